"""Values and records that are quick to define.

`dataclasses.dataclass(frozen=True, slots=True)` writes and compiles six methods for each class. That takes up to two
milliseconds, and exitd has three hundred classes; a command, or the start of the daemon, makes values of a few. Here
the methods are the same for all; a class gets a constructor of its own when its first value is made, and what
`dataclasses` knows of it when that is looked at.
"""

import sys
from collections.abc import Callable, Mapping
from functools import cache
from operator import attrgetter
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast, dataclass_transform


class Anew:
    """The default of a field that is made anew for each value."""

    __slots__ = ("default_factory",)

    def __init__(self, *, default_factory: Callable[[], object]) -> None:
        self.default_factory = default_factory


if TYPE_CHECKING:  # the type checker looks at the types of factories, and of changes, for those alone
    from dataclasses import field as field
    from dataclasses import replace as replace
else:
    field = Anew

    def replace(fact, /, **changes):
        """Return a copy of a value with these fields changed, as `dataclasses.replace` does: that one looks at each
        field in Python, which takes four times as long for a value with many. Raises TypeError for what is no
        field."""
        values_of = getattr(fact.__class__, "__values_of__", None)
        if values_of is None:
            import dataclasses

            return dataclasses.replace(fact, **changes)
        cls = fact.__class__
        if not cls.__match_args__:  # the values of a class without fields are no tuple
            return cls(**changes)
        return cls(**{**dict(zip(cls.__match_args__, values_of(fact)[1:], strict=True)), **changes})


T = TypeVar("T")
Field = tuple[object, object]  # its type and its default
NO_DEFAULT = object()  # the default of a field that has none
_OF_DATACLASSES = ("__dataclass_fields__", "__dataclass_params__")


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


def is_defined(kind: object) -> bool:
    """Return whether it is a class that `frozen` or `mutable` has made."""
    return isinstance(kind, type) and hasattr(kind, "__fields_of__")


def fields_of(kind: Any) -> Mapping[str, Field]:
    """Return the fields of such a class by name, in their order, as `dataclasses.fields` does, which has to look at the
    class first. Raises TypeError for another one."""
    if not is_defined(kind):
        raise TypeError(f"{kind!r} is made by neither `frozen` nor `mutable`")
    found: dict[str, Field] = kind.__fields_of__
    return found


def _defined(made: type, shared: dict[str, Any]) -> Any:
    own = vars(made)
    fields = _fields(made)
    cls: Any = _with_slots(made, (*fields,))
    cls.__doc__ = made.__doc__ = made.__doc__ or made.__name__  # dataclass() would make one of the signature, slowly
    cls.__fields_of__ = fields
    cls.__values_of__ = attrgetter("__class__", *fields)
    for name, method in shared.items():
        if name not in own:
            setattr(cls, name, method)
    cls.__init__ = _Constructor(cls)
    for name in _OF_DATACLASSES:
        setattr(cls, name, _Looked(cls, made, name))
    return cls


def _fields(made: type) -> dict[str, Field]:
    """Return the fields by name, a base's first. Raises TypeError for a default by `dataclasses.field`."""
    found: dict[str, Field] = {}
    for base in reversed(made.__mro__[1:]):
        found |= vars(base).get("__fields_of__", {})
    for name, hint in made.__annotations__.items():
        if getattr(hint, "__origin__", hint) is not ClassVar:
            default = vars(made).get(name, NO_DEFAULT)
            if default.__class__.__name__ == "Field":
                raise TypeError(f"{made.__qualname__}.{name}: its default has to be a `field` of shim.frozen")
            found[name] = (hint, default)
    return found


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
        import dataclasses

        for name, value in [*vars(self._made).items()]:
            if isinstance(value, Anew):
                setattr(self._made, name, dataclasses.field(default_factory=value.default_factory))
        known = vars(dataclasses.dataclass(init=False, repr=False, eq=False, match_args=False)(self._made))
        for name in _OF_DATACLASSES:
            setattr(self._cls, name, known[name])
        return known[self._name]


class _Constructor:
    """Stands for `__init__` until it is called or looked at for the first time."""

    def __init__(self, cls: Any) -> None:
        self._cls = cls

    def __get__(self, instance: object, owner: type) -> Any:
        self._cls.__init__ = made = _constructor(self._cls)
        return made.__get__(instance, owner)


def _constructor(cls: Any) -> Any:
    """Make what dataclass() would: a parameter for each field, assigned to its attribute."""
    fields: dict[str, Field] = cls.__fields_of__
    factories = {at: default for at, (_, default) in enumerate(fields.values()) if isinstance(default, Anew)}
    plain = _template(len(fields), (*factories,))(NO_DEFAULT, *(each.default_factory for each in factories.values()))
    made = FunctionType(
        _named(plain.__code__, (*fields,)), vars(sys.modules[cls.__module__]), "__init__", closure=plain.__closure__
    )
    made.__defaults__ = _defaults(cls, fields)
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    made.__annotations__ = {name: hint for name, (hint, _) in fields.items()} | {"return": None}
    return made


def _defaults(cls: Any, fields: dict[str, Field]) -> tuple[object, ...]:
    given = [default for _, default in fields.values()]
    first = next((at for at, default in enumerate(given) if default is not NO_DEFAULT), len(given))
    if NO_DEFAULT in given[first:]:
        raise TypeError(f"{cls.__qualname__}: a field without a default follows one that has one")
    return tuple(NO_DEFAULT if isinstance(default, Anew) else default for default in given[first:])


@cache
def _template(count: int, factories: tuple[int, ...]) -> Callable[..., FunctionType]:
    """Compile a constructor for so many fields, those at `factories` made anew. Most classes have the shape of another:
    compiling takes ten times as long as all the rest."""
    makers = "".join(f", _make{at}_" for at in factories)
    body = [
        f"  self.p{at} = _make{at}_() if p{at} is _none_ else p{at}" if at in factories else f"  self.p{at} = p{at}"
        for at in range(count)
    ]
    head = f"def make(_none_{makers}):\n def __init__(self{''.join(f', p{at}' for at in range(count))}):\n"
    found: dict[str, Any] = {}
    exec("\n".join([f"{head}{'' if body else '  pass'}", *body, " return __init__"]), found)
    return cast(Callable[..., FunctionType], found["make"])


def _named(code: CodeType, names: tuple[str, ...]) -> CodeType:
    """Give the code's parameters, and the attributes that it sets, the names of the fields."""
    real = {f"p{at}": name for at, name in enumerate(names)}
    return code.replace(
        co_varnames=tuple(real.get(name, name) for name in code.co_varnames),
        co_names=tuple(real.get(name, name) for name in code.co_names),
    )


def _is_equal(self: Any, other: object) -> bool:
    if self is other:
        return True
    of = self.__values_of__
    return of(self) == of(other) if other.__class__ is self.__class__ else NotImplemented


def _hash(self: Any) -> int:
    return hash(self.__values_of__(self))


def _text(self: Any) -> str:
    values = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__match_args__)
    return f"{self.__class__.__qualname__}({values})"


_SHARED = {"__eq__": _is_equal, "__hash__": _hash, "__repr__": _text}
_SHARED_OF_MUTABLE = {"__repr__": _text}
