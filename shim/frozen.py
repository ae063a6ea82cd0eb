"""Frozen values that are quick to define.

`dataclasses.dataclass(frozen=True, slots=True)` writes and compiles six methods for each class. That took a quarter of
the time in which exitd starts. Here each class gets a constructor of its own, and the other methods are the same for
all.
"""

from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Any, TypeVar, cast, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(made: type[T]) -> type[T]:
    """Make a dataclass with slots, equal and hashed by its values. `dataclasses.replace`, `fields`, `asdict` and class
    patterns know it. The type checker refuses an assignment to an attribute; a running exitd does not.
    """
    own = vars(made)
    made.__doc__ = made.__doc__ or made.__name__  # otherwise dataclass() makes one of the signature, for half its time
    cls: Any = dataclass(slots=True, repr=False, eq=False)(made)
    cls.__values_of__ = attrgetter("__class__", *(each.name for each in fields(cls)))
    for name, method in _SHARED.items():
        if name not in own:
            setattr(cls, name, method)
    return cast(type[T], cls)


def _is_equal(self: Any, other: object) -> bool:
    of = self.__values_of__
    return of(self) == of(other) if other.__class__ is self.__class__ else NotImplemented


def _hash(self: Any) -> int:
    return hash(self.__values_of__(self))


def _text(self: Any) -> str:
    values = ", ".join(f"{each.name}={getattr(self, each.name)!r}" for each in fields(self))
    return f"{self.__class__.__qualname__}({values})"


_SHARED = {"__eq__": _is_equal, "__hash__": _hash, "__repr__": _text}
