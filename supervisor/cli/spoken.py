"""Values in few words for people: how long, how much, how it ended, what state it is in."""

import shlex
import signal

from google.protobuf.timestamp_pb2 import Timestamp

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api.answers import status_of
from supervisor.model.status import Exited, Signaled, Unknown, fold

SECOND_NS = 1_000_000_000
SHORT_ID = 12
COMMAND_WIDTH = 30


def short_id(id: str) -> str:
    """Return the beginning of an id, long enough to be unique; for another engine's container, followed by all of its
    place."""
    from supervisor.model.watched import FOREIGN

    own, at, where = id.partition(FOREIGN)
    return own[:SHORT_ID] + at + where


def short_name(name: str) -> str:
    """Return a name; the beginning of one that is an engine's id of 64 hexadecimal digits."""
    return name[:SHORT_ID] if len(name) == 64 and set(name) <= set("0123456789abcdef") else name


def called(exit_: pb.Exit) -> str:
    """Return the name of whose end it is: for another engine's container, its pod and what that engine calls it."""
    from supervisor.model.watched import FOREIGN

    if FOREIGN not in exit_.container_id:
        return exit_.name
    return "/".join(word for word in (exit_.names.pod, exit_.names.container) if word) or short_name(exit_.name)


def nanoseconds(moment: Timestamp) -> int:
    """Convert a protobuf timestamp to ns since 1970."""
    return moment.seconds * SECOND_NS + moment.nanos


def moment(ns: int) -> Timestamp:
    """Convert ns since 1970 to a protobuf timestamp."""
    return Timestamp(seconds=ns // SECOND_NS, nanos=ns % SECOND_NS)


def span(ns: int) -> str:
    """Return a duration in docker's words: `3 seconds`, `About a minute`, `5 minutes`, `2 days`."""
    seconds = max(0, ns) // SECOND_NS
    for limit, text in ((1, "Less than a second"), (2, "1 second"), (60, f"{seconds} seconds")):
        if seconds < limit:
            return text
    minutes, hours = seconds // 60, round(seconds / 3600)
    for value, limit, text in (
        (minutes, 2, "About a minute"),
        (minutes, 46, f"{minutes} minutes"),
        (hours, 2, "About an hour"),
        (hours, 48, f"{hours} hours"),
        (hours, 24 * 14, f"{hours // 24} days"),
        (hours, 24 * 60, f"{hours // 168} weeks"),
    ):
        if value < limit:
            return text
    return f"{hours // 720} months"


def ago(then: Timestamp, now_ns: int) -> str:
    return f"{span(now_ns - nanoseconds(then))} ago"


def precise(ns: int) -> str:
    """Return a duration with three significant digits: `12.3 ms`, `4.05 s`, `3 min 5 s`."""
    seconds = ns / SECOND_NS
    if seconds < 0.9995:  # what rounds to a thousand milliseconds is a second
        return f"{seconds * 1000:.3g} ms"
    if seconds < 60:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def size(count: int) -> str:
    """Return bytes in powers of 1024: `64 MiB`, `1.5 GiB`."""
    value, unit = float(count), "bytes"
    for bigger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            break
        value, unit = value / 1024, bigger
    return f"{value:.4g} {unit}"


def signal_name(number: int) -> str:
    """Return SIGKILL for 9; realtime signals as SIGRTMIN+3; `signal 99` if there is no name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        first, last = int(signal.SIGRTMIN), int(signal.SIGRTMAX)
        return f"SIGRTMIN+{number - first}" if first < number < last else f"signal {number}"


def outcome(exit_: pb.Exit) -> str:
    """Return the end in one or two words, for a table: `7`, `137 SIGKILL`, `unknown`."""
    match status_of(exit_):
        case Exited(code):
            return str(code)
        case Signaled(number, core):
            return f"{128 + number} {signal_name(number)}{' (core)' if core else ''}"
        case Unknown():
            return "unknown"


def member_line(exit_: pb.Exit) -> str:
    """Return the line of a pod's member that `wait` prints: its number, or `unknown`, and its name."""
    ended = status_of(exit_)
    return f"{'unknown' if isinstance(ended, Unknown) else fold(ended)} {exit_.name}"


def status(container: pb.Container, now_ns: int) -> str:
    """Return the STATUS column: `Up 5 minutes (healthy)`, `Exited (7) 3 seconds ago`, `Exited (unknown: ...) ...`.
    `(unresponsive)`: its foreign shim does not answer. `(damaged)`: its row could not be read."""
    return f"{_status(container, now_ns)}{' (damaged)' if container.damaged else ''}"


def _status(container: pb.Container, now_ns: int) -> str:
    if container.recovering:
        return "Recovering"
    match container.phase:
        case pb.PHASE_RUNNING if container.monitored_by == "unresponsive":
            return f"Up {span(now_ns - nanoseconds(container.started_at))} (unresponsive)"
        case pb.PHASE_RUNNING:
            return f"Up {span(now_ns - nanoseconds(container.started_at))}{_health(container)}"
        case pb.PHASE_PAUSED:
            return f"Up {span(now_ns - nanoseconds(container.started_at))} (Paused)"
        case pb.PHASE_RESTARTING:
            return _restarting(container, now_ns)
        case pb.PHASE_EXITED:
            return _exited(container, now_ns)
        case pb.PHASE_CREATING | pb.PHASE_CREATED | pb.PHASE_STARTING | pb.PHASE_REMOVING as phase:
            return pb.Phase.Name(phase).removeprefix("PHASE_").capitalize()
        case _:
            return "Unknown"


def _health(container: pb.Container) -> str:
    status = container.health.status
    if container.HasField("probes"):
        states = container.probes
        return " (starting)" if not states.started else "" if not states.HasField("readiness") else _ready(states)
    return f" ({'health: ' if status == 'starting' else ''}{status})" if status else ""


def _ready(states: pb.ProbeStates) -> str:
    return " (ready)" if states.ready else " (not ready)"


def command(args: tuple[str, ...] | list[str], *, whole: bool) -> str:
    """Return the command line as it could be typed, cut to a column's width unless `whole`."""
    text = shlex.join(args)
    return text if whole or len(text) <= COMMAND_WIDTH else text[: COMMAND_WIDTH - 1] + "…"


def _restarting(container: pb.Container, now_ns: int) -> str:
    left = nanoseconds(container.restart_at) - now_ns
    if not container.HasField("restart_at") or left < SECOND_NS:
        return "Restarting now"
    return f"Restarting in {precise(left // SECOND_NS * SECOND_NS)}"


def _exited(container: pb.Container, now_ns: int) -> str:
    if not container.HasField("exit"):
        return f"Exited: {container.error}" if container.error else "Exited"
    match status_of(container.exit):
        case Unknown(cause):
            number = f"unknown: {cause}" if cause else "unknown"
        case Exited(code):
            number = str(code)
        case Signaled(number_, _):
            number = str(128 + number_)
    return f"Exited ({number}) {ago(container.exit.at, now_ns)}"
