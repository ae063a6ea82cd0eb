"""Single values between messages and facts: checked on their way in, made to fit on their way out. Pure."""

from google.protobuf.timestamp_pb2 import Timestamp

from protos.exitd.v1 import exitd_pb2 as pb
from shim.patterns import LatePattern
from supervisor.model.errors import BadRequest
from supervisor.model.values import Winsize

MOST_SIDE = 65_535  # of a terminal, ioctl_tty(2)


def bad(field: str, value: str, allowed: str) -> BadRequest:
    return BadRequest(f"{field} {value[:100]!r}: allowed is {allowed}", field=field)


def matching(field: str, value: str, pattern: LatePattern[str], allowed: str) -> str:
    """Return the value, which is empty or matches the pattern. Raises BadRequest: `allowed` says what is."""
    if value and not pattern.fullmatch(value):
        raise bad(field, value, allowed)
    return value


def one_of(field: str, value: str, allowed: tuple[str, ...]) -> str:
    if value not in allowed:
        raise bad(field, value, " or ".join(word for word in allowed if word))
    return value


def absolute(field: str, value: str) -> str:
    """Return the value, which is empty or an absolute path. Raises BadRequest."""
    if value and not value.startswith("/"):
        raise bad(field, value, "an absolute path")
    return value


def size_of(size: pb.Winsize) -> Winsize:
    """Return the size of a terminal. Raises BadRequest."""
    for name, cells in (("rows", size.rows), ("cols", size.cols)):
        if cells > MOST_SIDE:
            raise BadRequest(f"size.{name} {cells}: at most {MOST_SIDE}", field=f"size.{name}")
    return Winsize(size.rows, size.cols)


def timestamp(time_ns: int | None) -> Timestamp | None:
    """Return a time in ns as a message; None for a time that is not known: the field stays absent."""
    if time_ns is None:
        return None
    seconds, nanos = divmod(time_ns, 1_000_000_000)
    return Timestamp(seconds=seconds, nanos=nanos)


def clean(text: str) -> str:
    """Return a text that protobuf takes: what was no UTF-8 (paths, a runtime's words) becomes '?'."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
