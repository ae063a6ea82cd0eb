"""Values and records that are quick to define.

`dataclasses.dataclass(frozen=True, slots=True)` writes and compiles six methods for each class. That takes up to two
milliseconds, and exitd has three hundred classes; a command, or the start of the daemon, makes values of a few. Here
the methods are the same for all; a class gets a constructor of its own when its first value is made, and what
`dataclasses` knows of it when that is looked at.
"""

import dataclasses
import sys
from dataclasses import MISSING, dataclass, field, fields
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast, dataclass_transform

T = TypeVar("T")
_FIELDS = "__dataclass_fields__"
_OF_DATACLASSES = (_FIELDS, "__dataclass_params__")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(made: type[T]) -> type[T]:
    """Make a dataclass with slots, equal and hashed by its values. `dataclasses.replace`, `fields`, `asdict` and class
    patterns know it. The type checker refuses an assignment to an attribute; a running exitd does not.
    """
    return cast(type[T], _defined(made, _SHARED))


@dataclass_transform(field_specifiers=(field,))
def mutable(made: type[T]) -> type[T]:
    """Make a dataclass with slots whose attributes change, compared by identity."""
    return cast(type[T], _defined(made, _SHARED_OF_MUTABLE))


def _defined(made: type, shared: dict[str, Any]) -> Any:
    own = vars(made)
    names = _names(made)
    cls: Any = _with_slots(made, names)
    cls.__doc__ = made.__doc__ = made.__doc__ or made.__name__  # dataclass() would make one of the signature, slowly
    cls.__values_of__ = attrgetter("__class__", *names)
    for name, method in shared.items():
        if name not in own:
            setattr(cls, name, method)
    cls.__init__ = _Constructor(cls)
    for name in _OF_DATACLASSES:
        setattr(cls, name, _Looked(cls, made, name))
    return cls


def _names(made: type) -> tuple[str, ...]:
    """Return the names of the fields, a base's first."""
    names: dict[str, None] = {}
    for base in reversed(made.__mro__[1:]):
        if _FIELDS in vars(base):
            names |= dict.fromkeys(base.__match_args__)  # type: ignore[attr-defined]
    for name, hint in made.__annotations__.items():
        if getattr(hint, "__origin__", hint) is not ClassVar:
            names[name] = None
    return (*names,)


def _with_slots(made: type, names: tuple[str, ...]) -> type:
    """Make the class anew: slots can be given to a class only when it is made."""
    inherited = {name for base in made.__mro__[1:] for name in vars(base).get("__slots__", ())}
    content = {name: value for name, value in vars(made).items() if name not in {*names, "__dict__", "__weakref__"}}
    weak = [name for name in vars(made).get("__slots__", ()) if name == "__weakref__"]  # the class asked for it
    content["__slots__"] = (*(name for name in names if name not in inherited), *weak)
    content["__qualname__"] = made.__qualname__
    content["__match_args__"] = names
    return type(made)(made.__name__, made.__bases__, content)


class _Looked:
    """Stands for what the standard library knows of a dataclass, until it is looked at for the first time: of most
    classes nothing ever does. `made` is the class as it was written, with the defaults of its fields."""

    def __init__(self, cls: Any, made: type, name: str) -> None:
        self._cls = cls
        self._made = made
        self._name = name

    def __get__(self, instance: object, owner: type) -> Any:
        known = vars(dataclass(init=False, repr=False, eq=False, match_args=False)(self._made))
        for name in _OF_DATACLASSES:
            setattr(self._cls, name, known[name])
        return known[self._name]


class _Constructor:
    """Stands for `__init__` until it is called or looked at for the first time."""

    def __init__(self, cls: Any) -> None:
        self._cls = cls

    def __get__(self, instance: object, owner: type) -> Any:
        self._cls.__init__ = made = _compiled(self._cls)
        return made.__get__(instance, owner)


def _compiled(cls: Any) -> Any:
    """Write and compile what dataclass() would: a parameter for each field, assigned to its attribute."""
    known: dict[str, Any] = {"_MISSING": MISSING}
    parameters, body = ["self"], []
    for each in fields(cls):
        value = each.name
        if each.default_factory is not MISSING:
            known[f"_make_{each.name}"] = each.default_factory
            parameters.append(f"{each.name}=_MISSING")
            value = f"_make_{each.name}() if {each.name} is _MISSING else {each.name}"
        elif each.default is not MISSING:
            known[f"_default_{each.name}"] = each.default
            parameters.append(f"{each.name}=_default_{each.name}")
        else:
            parameters.append(each.name)
        body.append(f"  self.{each.name} = {value}\n")
    head = f"def make({', '.join(known)}):\n def __init__({', '.join(parameters)}):\n"
    text = f"{head}{''.join(body) or '  pass'}\n return __init__\n"
    found: dict[str, Any] = {}
    exec(text, vars(sys.modules[cls.__module__]), found)
    made = found["make"](**known)
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    made.__annotations__ = {each.name: each.type for each in fields(cls)} | {"return": None}
    return made


if TYPE_CHECKING:  # the type checker looks at the names and types of changes for that one alone
    from dataclasses import replace as replace
else:

    def replace(fact, /, **changes):
        """Return a copy of a value with these fields changed, as `dataclasses.replace` does: that one looks at each
        field in Python, which takes four times as long for a value with many. Raises TypeError for what is no
        field."""
        values_of = getattr(fact.__class__, "__values_of__", None)
        if values_of is None:
            return dataclasses.replace(fact, **changes)
        cls = fact.__class__
        if not cls.__match_args__:  # the values of a class without fields are no tuple
            return cls(**changes)
        return cls(**{**dict(zip(cls.__match_args__, values_of(fact)[1:], strict=True)), **changes})


def _is_equal(self: Any, other: object) -> bool:
    if self is other:
        return True
    of = self.__values_of__
    return of(self) == of(other) if other.__class__ is self.__class__ else NotImplemented


def _hash(self: Any) -> int:
    return hash(self.__values_of__(self))


def _text(self: Any) -> str:
    values = ", ".join(f"{each.name}={getattr(self, each.name)!r}" for each in fields(self))
    return f"{self.__class__.__qualname__}({values})"


_SHARED = {"__eq__": _is_equal, "__hash__": _hash, "__repr__": _text}
_SHARED_OF_MUTABLE = {"__repr__": _text}
