"""What a run directory that was made by hand says of itself: in `byhand`, who and what it is; in `started`, that init
was started, and when. Together they are what exitd needs to adopt it.

The maker of such a directory, `<state>/c/<id>/1`, writes `byhand` first, then what exitd-shim needs (`exit_fifo`,
`exit.json`, `lock`, `plan`), then starts the shim, and writes `started` when the runtime's start has returned. The
runtime's root is `rt` in that directory. Everything belongs to root, nothing is a link.
"""

from shim import fields
from shim.frozen import frozen
from shim.patterns import LatePattern

MARK, STARTED = "byhand", "started"
RUN = 1
ID = LatePattern(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
EXITDS_OWN_ID = LatePattern(r"[0-9a-f]{64}")  # what exitd gives out, and nothing else does


@frozen
class Mark:
    """`byhand`. `args` is the container's command line, to be shown."""

    name: str
    bundle: str
    runtime: str  # a name on PATH or a path
    boot_id: str
    made_ns: int  # CLOCK_REALTIME
    args: tuple[str, ...] = ()


@frozen
class Started:
    """`started`: CLOCK_REALTIME and CLOCK_BOOTTIME in ns."""

    realtime_ns: int
    boottime_ns: int


def encode_mark(mark: Mark) -> bytes:
    """Return the text of the file `byhand`, which `decode_mark` reads."""
    return fields.encode(
        "exitd-byhand",
        [
            ("name", mark.name),
            ("bundle", mark.bundle),
            ("runtime", mark.runtime),
            ("boot_id", mark.boot_id),
            ("made_ns", mark.made_ns),
            *(("arg", word) for word in mark.args),
        ],
    )


def decode_mark(data: bytes) -> Mark:
    """fields.BadMessage names what lacks."""
    message = _known(data, "exitd-byhand")
    for key in ("name", "bundle", "runtime", "boot_id"):
        if not message.get(key):
            raise fields.BadMessage(f"{message.kind}: field {key!r} is missing")
    if not message.get("bundle").startswith("/"):
        raise fields.BadMessage(f"{message.kind}: field 'bundle' is no absolute path")
    if not ID.fullmatch(message.get("name")):
        raise fields.BadMessage(f"{message.kind}: field 'name' is no name of a container")
    args = tuple(value for key, value in message.pairs if key == "arg")
    made_ns = message.number("made_ns")
    return Mark(
        message.get("name"), message.get("bundle"), message.get("runtime"), message.get("boot_id"), made_ns, args
    )


def encode_started(started: Started) -> bytes:
    return fields.encode("exitd-started", [("realtime_ns", started.realtime_ns), ("boottime_ns", started.boottime_ns)])


def decode_started(data: bytes) -> Started:
    message = _known(data, "exitd-started")
    return Started(message.number("realtime_ns"), message.number("boottime_ns"))


def _known(data: bytes, kind: str) -> fields.Message:
    message = fields.decode(data, kind)
    if message.version != 1:
        raise fields.BadMessage(f"{kind} of version {message.version}, which a newer exitd wrote")
    return message
