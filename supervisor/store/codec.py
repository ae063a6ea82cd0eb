"""Encodes values as database rows, and decodes them. What is queried has a column; the whole value is JSON text beside
it.

The JSON follows the dataclasses: a field that an older exitd did not write gets its default, a field that only a newer
one knows is skipped, and an enum value that only a newer one knows becomes the "not known" value of its enum.
"""

import json
import marshal
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from enum import StrEnum
from functools import cache
from operator import attrgetter
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from shim.frozen import NO_DEFAULT, fields_of, frozen, is_defined, replace
from supervisor.model.execs import Exec
from supervisor.model.remembered import Remembered
from supervisor.model.taskfacts import TaskExec, Tombstone
from supervisor.model.values import (
    ROW_DAMAGED,
    By,
    Container,
    Event,
    Exit,
    Exited,
    HealthStatus,
    HookStage,
    LogDriver,
    LogMode,
    OnUnhealthy,
    Oom,
    Policy,
    Process,
    Reason,
    RunKey,
    Signaled,
    Source,
    Spec,
    Unknown,
)
from supervisor.model.watched import Observed, Target

T = TypeVar("T")
MOST = 2**63  # limit of a number in a column, and of a time in ns
SPECS_BYTES = 256 << 10  # of specs that are being stored: those of about a hundred containers
MOST_REASON = 200  # characters of the reason why a field cannot be read
Reader = Callable[[object], object]

KINDS: dict[str, type] = {"exited": Exited, "signaled": Signaled, "unknown": Unknown}
KIND_OF = {cls: kind for kind, cls in KINDS.items()}
# A phase has no such value: guessing one would start or remove a container.
STRANGERS: dict[type[StrEnum], StrEnum] = {
    Source: Source.NONE,
    Reason: Reason.UNKNOWN,
    Policy: Policy.NO,
    LogDriver: LogDriver.NONE,
    LogMode: LogMode.BLOCKING,
    OnUnhealthy: OnUnhealthy.NONE,
    HealthStatus: HealthStatus.STARTING,
    HookStage: HookStage.DONE,
}


class BadRow(ValueError):
    """A row that no exitd wrote like this: damage, or a newer exitd whose schema number did not change."""


@frozen
class Damaged:
    """A row that cannot be decoded: its key columns, its body as stored, and why. `run` and `exec_id` are set for an
    exec's."""

    id: str
    namespace: str = ""
    name: str = ""
    body: str | bytes = b""
    why: str = ""
    run: int = 0
    exec_id: str = ""


ContainerRow = tuple[str, str, str, str]  # id, namespace, name, body
ExitRow = tuple[str, int, str, int, bool, str]  # container, run, exec, at_ns, unknown, body
ExecRow = tuple[str, int, str, str]  # container, run, exec, body
EventRow = tuple[int, str]  # time_ns, body; SQLite assigns the number


def container_row(container: Container) -> ContainerRow:
    """Return the row of a container. A name is unique in a namespace; containerd's namespaces get a prefix, since they
    are not exitd's namespaces of the same name."""
    return *_columns(container), _container_body(container)


def _container_body(container: Container) -> str:
    """Return what `encode` does, with the text of the spec made once: it is the same in all rows of a container."""
    rest = {name: value for name, value in _plain(container).items() if name not in ("id", "spec")}
    return f'{{"id":{encode(container.id)},"spec":{SPECS.of(container.spec)},{encode(rest)[1:]}'


def _columns(container: Container) -> tuple[str, str, str]:
    """Return id, namespace and name, as the row has them beside its body."""
    spec = container.spec
    namespace = spec.namespace if spec.task is None else f"containerd/{spec.namespace}"
    return container.id, namespace, spec.name


def exit_row(exit: Exit) -> ExitRow:
    key = exit.key
    return key.container, key.run, key.exec_id, exit.at_ns, isinstance(exit.status, Unknown), encode(exit)


def exec_row(e: Exec) -> ExecRow:
    return e.key.container, e.key.run, e.key.exec_id, encode(e)


def event_row(event: Event) -> EventRow:
    return event.time_ns, encode(event)


def container_from(body: str | bytes) -> Container:
    """Decode a body alone, without its columns: see `container_of`. Raises BadRow."""
    return decode(Container, body)


def exit_from(body: str | bytes) -> Exit:
    """Decode a body alone, without its columns: see `exit_of`. Raises BadRow."""
    return decode(Exit, body)


def exec_from(body: str | bytes) -> Exec:
    """Decode a body alone, without its columns: see `exec_of`. Raises BadRow."""
    return decode(Exec, body)


def container_of(id: str, namespace: str, name: str, body: str | bytes) -> Container:
    """Decode the container of the row with these columns. Raises BadRow, also for impossible numbers, and for names
    that no column can hold."""
    container = container_from(body)
    _check(_columns(container) == (id, namespace, name), "the row is another container's")
    _check(all(map(is_text, (id, namespace, name))), "a name")
    _check(0 < container.run < MOST, "run")
    _check(is_process(container.init) and is_process(container.shim), "a process")
    _check(all(0 <= (ns or 0) < MOST for ns in (container.created_ns, container.started_ns)), "a time")
    return container


def exec_of(key: RunKey, body: str | bytes) -> Exec:
    """Decode the exec of the row with this key. Raises BadRow, as `container_of` does."""
    e = exec_from(body)
    _check(e.key == key, "the row is another exec's")
    _check(is_process(e.init) and is_process(e.shim), "a process")
    return e


def exit_of(key: RunKey, at_ns: int, body: str | bytes) -> Exit:
    """Decode the exit of the row with this key and time. Raises BadRow, as `container_of` does."""
    exit = exit_from(body)
    _check(exit.key == key and exit.at_ns == at_ns, "the row is another end's")
    return exit


def event_from(seq: int, body: str | bytes) -> Event:
    """Decode the event of the row with this number. Raises BadRow."""
    return replace(decode(Event, body), seq=seq)


def damaged_exit(key: RunKey, at_ns: int) -> Exit:
    """Return what the columns of a ledger row say whose body cannot be read."""
    status, source = Unknown(ROW_DAMAGED), Source.NONE
    return Exit(key, "", "", status, source, Reason.UNKNOWN, By(), Oom(), at_ns, None, None, at_is_found=True)


def exit_in_row(row: tuple[Any, ...]) -> Exit:
    """Decode a ledger row (container, run, exec, at_ns, body) as far as possible. Its key comes from the columns, since
    pages are ordered by it."""
    container, run, exec_id, at_ns, body = row
    key = RunKey(container, run, exec_id)
    try:
        return exit_of(key, at_ns, body)
    except BadRow:
        return damaged_exit(key, at_ns)


def damaged_event(seq: int, time_ns: int, why: str) -> Event:
    """Return the event that replaces one which cannot be read: its number is known to readers."""
    return Event("unreadable", "", "", "", time_ns, attributes=(("why", why),), seq=seq)


def is_process(process: Process | None) -> bool:
    """Return whether such a process can exist: pid_t is an int, start times are unsigned long long (proc(5))."""
    return process is None or (0 <= process.pid < 2**31 and 0 <= process.started_ticks < 2**64)


def is_text(text: str) -> bool:
    """Return whether a column can hold the text: half of a surrogate pair stands for a byte that was not UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _check(right: bool, what: str) -> None:
    if not right:
        raise BadRow(f"what is stored cannot be: {what}")


def encode(fact: object) -> str:
    """Encode a value as compact ASCII JSON; undecodable bytes of arguments (surrogates) survive as escapes."""
    return ENCODER.encode(fact)


def decode(cls: type[T], text: str | bytes) -> T:
    """Decode the value of class `cls` that `encode` wrote. Raises BadRow."""
    try:
        return cast(T, _reader(cast(Hashable, cls))(json.loads(text)))
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise BadRow(f"a stored {cls.__name__} cannot be read: {_short(error)}") from error


def readable(cls: type, value: object) -> tuple[dict[str, object], dict[str, str]]:
    """Decode the fields of class `cls` in a damaged row one by one. Return those that can be read, and for each of the
    others the reason, by name.

    `value`: the stored text, or a part of its JSON that holds a nested value. A text that is not a JSON object has no
    fields; its reason has the empty name.
    """
    try:
        body = _mapping(json.loads(value) if isinstance(value, str | bytes) else value)
    except (ValueError, TypeError, RecursionError) as error:
        return {}, {"": _short(error)}
    hints = get_type_hints(cls)
    found, why = dict[str, object](), dict[str, str]()
    for name in names(cls):
        try:
            if name in body:
                found[name] = _reader(hints[name])(body[name])
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            why[name] = _short(error)
    return found, why


def part(value: object, name: str) -> object:
    """Return a field of a damaged row as JSON has it; None if there is none."""
    try:
        return _mapping(json.loads(value) if isinstance(value, str | bytes) else value).get(name)
    except (ValueError, TypeError, RecursionError):
        return None


def _short(error: Exception) -> str:
    """Shorten a reason, which quotes stored text of any length and with any characters."""
    return ascii(str(error) or repr(error))[1:-1][:MOST_REASON]


def _plain(fact: Any) -> dict[str, object]:
    """Called by json for each dataclass. Enums and tuples are strings and sequences already."""
    cls: Any = type(fact)
    body = dict(zip(names(cls), _values(cls)(fact), strict=True))
    kind = KIND_OF.get(cls)
    return body if kind is None else {"kind": kind, **body}


ENCODER = json.JSONEncoder(default=_plain, separators=(",", ":"), check_circular=False)
SPECS: Remembered[Spec, str] = Remembered(encode, len, SPECS_BYTES)


@cache
def names(cls: Any) -> tuple[str, ...]:
    """Return the names of the fields. Raises TypeError for what is no value of ours."""
    return (*fields_of(cls),)


def values(fact: object) -> tuple[object, ...]:
    """Return the values of all fields, in the order of `names`."""
    return _values(cast(Hashable, type(fact)))(fact)


@cache
def _values(cls: Any) -> Callable[[object], tuple[object, ...]]:
    """Return what gets the values of all fields: one call, where a loop over their names takes three times as long."""
    own = names(cls)
    get = attrgetter(*own) if own else None
    if get is None:
        return lambda fact: ()
    return get if len(own) > 1 else lambda fact: (get(fact),)


@cache
def _reader(hint: Any) -> Reader:
    """Return the function that decodes values of this type."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (UnionType, Union):
        return _union_reader(arguments)
    if origin is tuple:
        return _tuple_reader(arguments)
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return _word_reader(hint)
    if is_defined(hint):
        return _fact_reader(hint)
    return _scalar_reader(hint)


def _scalar_reader(kind: type) -> Reader:
    def read(value: object) -> object:
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
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
        return lambda value: () if value == [] else tuple(read_item(item) for item in _sequence(value))
    readers = tuple(_reader(argument) for argument in arguments)
    return lambda value: tuple(read(item) for read, item in zip(readers, _sequence(value), strict=True))


def _fact_reader(cls: Any) -> Reader:
    hints = get_type_hints(cls)
    readers = tuple((name, _as_they_are(hints[name]), _reader(hints[name])) for name in names(cls))
    needed = {name for name, (_, default) in fields_of(cls).items() if default is NO_DEFAULT}

    unset = None if needed else cls()
    body_of_unset = None if needed else _exactly(json.loads(encode(unset)))

    def read(value: object) -> object:
        body, found = _mapping(value), dict[str, object]()
        # A start reads a hundred fields and more for each container. Most values in them are as nothing has set them,
        # most others are a text, a number or nothing.
        if body_of_unset is not None and _exactly(body) == body_of_unset:
            return unset
        for name, as_it_is, read in readers:
            if name in body:
                item = body[name]
                found[name] = item if item.__class__ in as_it_is else read(item)
            elif name in needed:
                raise KeyError(name)
        return cls(**found)

    return read


def _exactly(value: Any) -> bytes:
    """Return bytes that are the same only for the same JSON, in the same order: True equals 1, and 1 equals 1.0."""
    return marshal.dumps(value, 2)  # later versions of the format depend on who else holds the value


def _as_they_are(hint: Any) -> frozenset[type]:
    """Return the types of JSON whose values need not be read for a field of this type."""
    members = get_args(hint) if get_origin(hint) in (UnionType, Union) else (hint,)
    return frozenset(member for member in members if member in (str, int, float, bool, NoneType))


def _mapping(value: object) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise BadRow(f"{value!r} is no object")
    return value


def _sequence(value: object) -> list[object]:
    if not isinstance(value, list):
        raise BadRow(f"{value!r} is no list")
    return value


# -- tasks

# The statements that change them, for the store's writer.


KEPT_NS = 3600 * 10**9  # of a tombstone whose client has not confirmed the answer
EXPIRED = "boot_id <> ? OR boot_ns < ?"

# Of this namespace, task and exec. json_extract of text that is not JSON would fail the whole query.
TOMBSTONE_OF = " AND ".join(
    f"CASE WHEN json_valid(body) THEN json_extract(body, '$.{field}') END = ?"
    for field in ("namespace", "task", "exec")
)

Statement = tuple[str, tuple[object, ...]]


def statements(
    added: Iterable[TaskExec], removed: Iterable[TaskExec], tombstones: Iterable[Tombstone]
) -> Iterator[Statement]:
    """Return the statements for a transaction's execs of tasks and tombstones."""
    for each in removed:
        yield "DELETE FROM task_execs WHERE container = ? AND name = ?", (each.container, each.name)
    for each in added:
        body = encode(each)
        yield "INSERT OR REPLACE INTO task_execs VALUES (?, ?, ?)", (each.container, each.name, body)
    for one in tombstones:
        yield f"DELETE FROM tombstones WHERE {EXPIRED}", (one.boot_id, one.made_boot_ns - KEPT_NS)
        place = (*key_parts(one.key), one.boot_id, one.made_boot_ns, encode(one))
        yield "INSERT OR REPLACE INTO tombstones VALUES (?, ?, ?, ?, ?, ?)", place


def key_parts(key: str) -> tuple[str, int, int]:
    """Split a request's key into relay, connection and stream; 0 for connection and stream if it is not such a key."""
    relay, _, rest = key.partition("/")
    connection, _, stream = rest.partition("/")
    return relay, int(connection or 0), int(stream or 0)


# -- watches

# The statements that change them, for the store's writer.


def begun(targets: Iterable[Target] = (), observed: Iterable[Observed] = ()) -> Iterator[Statement]:
    """Return the statements for watches that have begun or changed."""
    for target in targets:
        yield "INSERT OR REPLACE INTO watches VALUES (?, ?)", (target.where, encode(target))
    for one in observed:
        yield "INSERT OR REPLACE INTO observed VALUES (?, ?, ?)", (one.container, one.run, encode(one))


def over(targets: Iterable[Target] = (), observed: Iterable[Observed] = ()) -> Iterator[Statement]:
    for target in targets:
        yield "DELETE FROM watches WHERE target = ?", (target.where,)
    for one in observed:
        yield "DELETE FROM observed WHERE container = ? AND run = ?", (one.container, one.run)
