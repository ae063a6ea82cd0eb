"""Facts to database rows and back. What is queried is a column; the whole fact is one JSON text beside it.

The JSON follows the dataclasses by itself: a field that an older exitd did not write takes its default, a field that
only a newer one knows is skipped, and a word that only a newer one knows becomes the honest "don't know" of its kind.
"""

import json
from collections.abc import Callable, Hashable, Mapping
from dataclasses import MISSING, fields, is_dataclass, replace
from enum import StrEnum
from functools import cache
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from supervisor.checks import HealthStatus, OnUnhealthy
from supervisor.execs import Exec
from supervisor.facts import Container, Event, Exit, Exited, Policy, Reason, Signaled, Source, Unknown
from supervisor.logspecs import LogDriver, LogMode

T = TypeVar("T")
Reader = Callable[[object], object]

KINDS: dict[str, type] = {"exited": Exited, "signaled": Signaled, "unknown": Unknown}
KIND_OF = {cls: kind for kind, cls in KINDS.items()}
# A phase has no such word: guessing one would start or remove something.
STRANGERS: dict[type[StrEnum], StrEnum] = {
    Source: Source.NONE,
    Reason: Reason.UNKNOWN,
    Policy: Policy.NO,
    LogDriver: LogDriver.NONE,
    LogMode: LogMode.BLOCKING,
    OnUnhealthy: OnUnhealthy.NONE,
    HealthStatus: HealthStatus.STARTING,
}


class BadRow(ValueError):
    """A row that is not what any exitd wrote: damage, or a newer exitd whose schema number did not change."""


ContainerRow = tuple[str, str, str, str]  # id, namespace, name, body
ExitRow = tuple[str, int, str, int, bool, str]  # container, run, exec, at_ns, unknown, body
ExecRow = tuple[str, int, str, str]  # container, run, exec, body
EventRow = tuple[int, str]  # time_ns, body; the number is the row's own


def container_row(container: Container) -> ContainerRow:
    """A name is taken once in a namespace: containerd's namespaces are others than ours of the same name."""
    spec = container.spec
    namespace = spec.namespace if spec.task is None else f"containerd/{spec.namespace}"
    return container.id, namespace, spec.name, encode(container)


def exit_row(exit: Exit) -> ExitRow:
    key = exit.key
    return key.container, key.run, key.exec_id, exit.at_ns, isinstance(exit.status, Unknown), encode(exit)


def exec_row(e: Exec) -> ExecRow:
    return e.key.container, e.key.run, e.key.exec_id, encode(e)


def event_row(event: Event) -> EventRow:
    return event.time_ns, encode(event)


def container_from(body: str) -> Container:
    return decode(Container, body)


def exit_from(body: str) -> Exit:
    return decode(Exit, body)


def exec_from(body: str) -> Exec:
    return decode(Exec, body)


def event_from(seq: int, body: str) -> Event:
    return replace(decode(Event, body), seq=seq)


def encode(fact: object) -> str:
    """One fact as compact ASCII JSON; undecodable bytes of arguments (surrogates) survive as escapes."""
    return ENCODER.encode(fact)


def decode(cls: type[T], text: str) -> T:
    """The fact of class `cls` that `encode` wrote. Raises BadRow."""
    try:
        return cast(T, _reader(cast(Hashable, cls))(json.loads(text)))
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise BadRow(f"a stored {cls.__name__} cannot be read: {error}") from error


def _plain(fact: Any) -> dict[str, object]:
    """What json asks for each dataclass. Enums and tuples need no help: they are strings and sequences already."""
    if not is_dataclass(fact):
        raise TypeError(f"{type(fact).__name__} is not a fact")
    cls: Any = type(fact)
    body = {name: getattr(fact, name) for name in _names(cls)}
    kind = KIND_OF.get(type(fact))
    return body if kind is None else {"kind": kind, **body}


ENCODER = json.JSONEncoder(default=_plain, separators=(",", ":"), check_circular=False)


@cache
def _names(cls: Any) -> tuple[str, ...]:
    return tuple(field.name for field in fields(cls))


@cache
def _reader(hint: Any) -> Reader:
    """How a value of this type comes back from JSON."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (UnionType, Union):
        return _union_reader(arguments)
    if origin is tuple:
        return _tuple_reader(arguments)
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return _word_reader(hint)
    if is_dataclass(hint):
        return _fact_reader(hint)
    return _scalar_reader(hint)


def _scalar_reader(kind: type) -> Reader:
    def read(value: object) -> object:
        if not isinstance(value, kind):
            raise BadRow(f"{value!r} is no {kind.__name__}")
        return value

    return read


def _word_reader(kind: type[StrEnum]) -> Reader:
    words = {member.value: member for member in kind}
    stranger = STRANGERS.get(kind)

    def read(value: object) -> object:
        member = words.get(str(value), stranger)
        if member is None:
            raise BadRow(f"{value!r} is no {kind.__name__}")
        return member

    return read


def _union_reader(members: tuple[Any, ...]) -> Reader:
    if set(members) == set(KIND_OF):
        return _read_status
    (member,) = (each for each in members if each is not NoneType)
    read_member = _reader(member)
    return lambda value: None if value is None else read_member(value)


def _read_status(value: object) -> object:
    kind = str(_mapping(value)["kind"])
    cls = KINDS.get(kind)
    return Unknown(cause=f"written by a newer exitd as {kind}") if cls is None else _reader(cls)(value)


def _tuple_reader(arguments: tuple[Any, ...]) -> Reader:
    if arguments[-1] is Ellipsis:
        read_item = _reader(arguments[0])
        return lambda value: tuple(read_item(item) for item in _sequence(value))
    readers = tuple(_reader(argument) for argument in arguments)
    return lambda value: tuple(read(item) for read, item in zip(readers, _sequence(value), strict=True))


def _fact_reader(cls: Any) -> Reader:
    hints = get_type_hints(cls)
    readers = tuple((name, _reader(hints[name])) for name in _names(cls))
    needed = {f.name for f in fields(cls) if f.default is MISSING and f.default_factory is MISSING}

    def read(value: object) -> object:
        body = _mapping(value)
        return cls(**{name: read(body[name]) for name, read in readers if name in body or name in needed})

    return read


def _mapping(value: object) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise BadRow(f"{value!r} is no object")
    return value


def _sequence(value: object) -> list[object]:
    if not isinstance(value, list):
        raise BadRow(f"{value!r} is no list")
    return value
