"""`live`: how containers end, as they end, of everything on this machine."""

import os
import shutil
import sys
from collections.abc import Sequence

import click

from protos.exitd.v1 import exitd_pb2 as pb
from shim.frozen import frozen
from supervisor.api.answers import status_of
from supervisor.api.client import Client
from supervisor.cli import output, parse, spoken
from supervisor.cli.app import OWN_FAILURE, complain, connect, now_ns
from supervisor.cli.away import GONE, EventsFollowed, reconnect
from supervisor.cli.shape import Document, ledger_document, time_text
from supervisor.cli.spelling import Spelled
from supervisor.model.errors import CannotWatch
from supervisor.model.status import Exited, Unknown

EXIT = "exit"
OOM = "oom"  # the reason of an exit
HEADINGS = ("TIME", "NAME", "POD", "NAMESPACE", "IMAGE", "EXIT", "REASON", "SOURCE")
WIDTHS = (24, 24, 24, 16, 28, 14, 18, 0)  # of columns; what is longer is cut on a terminal; 0: the last
LEAST_WIDTHS = (12, 10, 8, 8, 8, 10, 10, 0)  # of a narrow terminal
GAP = "  "
NONE = "-"
BOLD, DIM, RED, YELLOW, PLAIN = "\x1b[1m", "\x1b[2m", "\x1b[31m", "\x1b[33m", "\x1b[0m"


@frozen
class ShownEnds:
    """What is shown, and from which event or time on. `most`: how many ends, 0 for all. `on_terminal`: with colours,
    and cut to its width."""

    wanted: output.Format
    from_seq: int | None
    since_ns: int | None = None
    most: int = 0
    on_terminal: bool = False


@click.command(cls=Spelled)
@click.option("--since", metavar="TIME", help="Begin with the ends since then: 10m (ago) or an RFC 3339 time.")
@click.option("-n", "--count", type=parse.WholeNumber(1, 2**31 - 1), metavar="N", help="End after N ends.")
@click.option("--no-watch", is_flag=True, help="Do not have exitd watch this machine: show what is watched already.")
@reconnect
@output.option("table")
@click.pass_context
def live(
    ctx: click.Context, since: str | None, count: int | None, no_watch: bool, patience: float, format_: str
) -> int:  # fmt: skip
    """Show how containers end, as they end: exitd's own, and those of every engine on this machine, which exitd then
    watches as `watch --node` does. Goes on over restarts of exitd: nothing is missed, and nothing comes twice."""
    wanted = output.format_of(format_)
    since_ns = None if since is None else parse.moment_ns(since, now_ns())
    client = connect(ctx)
    seq = client.info().seq + 1
    if not no_watch:
        _watch(client)
    on_terminal = sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"
    return follow(
        client, ShownEnds(wanted, seq if since_ns is None else None, since_ns, count or 0, on_terminal), patience
    )


def _watch(client: Client) -> None:
    """A kernel that reports no ends of others' processes still leaves exitd's own."""
    try:
        watch = client.watch(pb.WatchRequest(node=True)).watch
    except CannotWatch as error:
        complain(f"only exitd's own containers are shown: {error}")
        return
    if watch.trouble:
        complain(watch.trouble)


def follow(client: Client, shown: ShownEnds, patience: float) -> int:
    """Print each end as a line until the reader has seen enough."""
    if shown.wanted.kind == "table":
        text = line(HEADINGS, widths(_columns(), on_terminal=shown.on_terminal))
        print(f"{BOLD}{text}{PLAIN}" if shown.on_terminal else text, flush=True)
    since = None if shown.since_ns is None else spoken.moment(shown.since_ns)
    request = pb.EventsRequest(from_seq=shown.from_seq, since=since, filters=(f"type={EXIT}",))
    followed, count = EventsFollowed(client, request, patience), 0
    try:
        for reply in followed:
            if reply.WhichOneof("item") == "lost":
                complain(f"some events came too fast; exitctl exits has the ends among them, until {reply.lost.to}")
            elif reply.event.HasField("exit"):
                _print(reply.event, shown)
                count += 1
                if count == shown.most:
                    return 0
    except GONE:
        complain(f"the daemon went away; what comes: exitctl events --filter type=exit --from-seq {followed.last + 1}")
        return OWN_FAILURE
    return 0


def _print(event: pb.Event, shown: ShownEnds) -> None:
    if shown.wanted.kind != "table":
        print(output.line(shown.wanted, document(event)), flush=True)
        return
    text = line(cells(event), widths(_columns(), on_terminal=shown.on_terminal))
    color = color_of(event.exit) if shown.on_terminal else ""
    print(f"{color}{text}{PLAIN}" if color else text, flush=True)


def _columns() -> int:
    return shutil.get_terminal_size().columns


def document(event: pb.Event) -> Document:
    """Return one end as `live --format json` prints it: a line of the ledger, with the event's number."""
    return {"Seq": event.seq, "Watch": event.attributes.get("watch", ""), **ledger_document(event.exit)}


def cells(event: pb.Event) -> list[str]:
    """Return the cells of one end, see HEADINGS."""
    exit_ = event.exit
    names = exit_.names
    name = names.container or ("" if names.pod else spoken.short_name(exit_.name))
    if exit_.exec_id:
        name = f"{name} exec {spoken.short_id(exit_.exec_id)}"
    namespace = names.namespace or exit_.namespace
    how = spoken.outcome(exit_)
    reason = exit_.reason if exit_.reason != "unknown" else ""
    if reason == OOM and exit_.oom.limit_bytes:
        reason = f"{OOM} at {spoken.size(exit_.oom.limit_bytes)}"
    if isinstance(status_of(exit_), Unknown):
        reason = exit_.cause or reason
    if exit_.unverified:
        reason = f"{reason} unverified".strip()
    at = time_text(exit_.at)[:19] + "Z"
    return [word or NONE for word in (at, name, names.pod, namespace, names.image, how, reason, exit_.source)]


def color_of(exit_: pb.Exit) -> str:
    """Return the colour of an end: red for memory, yellow for a failure, dim where nothing is known."""
    status = status_of(exit_)
    if isinstance(status, Unknown):
        return DIM
    if exit_.reason == OOM:
        return RED
    return "" if isinstance(status, Exited) and not status.code else YELLOW


def widths(columns: int, *, on_terminal: bool) -> tuple[int, ...]:
    """Return how wide each column is. Where the lines go to no terminal, none is cut."""
    if not on_terminal:
        return WIDTHS
    room = columns - len(GAP) * (len(WIDTHS) - 1) - len("procevents")
    least = sum(LEAST_WIDTHS)
    share = max(0.0, min(1.0, (room - least) / (sum(WIDTHS) - least)))
    return tuple(-(low + int((high - low) * share)) for low, high in zip(LEAST_WIDTHS, WIDTHS, strict=True))


def line(words: Sequence[str], sizes: Sequence[int]) -> str:
    """Return one line. A negative size cuts what is longer. Control characters become `?`, so that no name controls the
    terminal."""
    clean = ["".join(char if char.isprintable() else "?" for char in word) for word in words]
    return GAP.join(_fitted(word, size) for word, size in zip(clean, sizes, strict=True)).rstrip()


def _fitted(word: str, size: int) -> str:
    if size < 0 and len(word) > -size:
        word = f"{word[: -size - 1]}…"
    return word.ljust(abs(size))
