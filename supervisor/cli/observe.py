"""`watch`: how containers of other engines end."""

import os

import click

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api.client import Client
from supervisor.cli import live, output, parse
from supervisor.cli.app import OWN_FAILURE, complain, connect
from supervisor.cli.away import GONE, EventsFollowed, reconnect
from supervisor.cli.shape import Document, event_document, lost_document, time_text
from supervisor.cli.spelling import Spelled
from supervisor.cli.watch import event_line
from supervisor.model.errors import BadRequest
from supervisor.model.watched import NODE

HEADINGS = ("TARGET", "KIND", "SINCE", "PROCESSES", "EXITS", "TROUBLE")
EXIT = "exit"


@click.command(cls=Spelled)
@click.option(
    "--containerd", default="", metavar="SOCKET", help="Watch all tasks of all its namespaces, present and future ones."
)
@click.option(
    "--runc-root", default="", metavar="DIR", help="Watch all containers in a state directory of runc or crun."
)
@click.option("--node", is_flag=True, help="Watch all that is found on this machine: now, and what comes later.")
@click.option("--list", "listed", is_flag=True, help="List the watches.")
@click.option("--stop", metavar="TARGET", help="End the watch of this pid, socket or directory.")
@click.option("-d", "--detach", is_flag=True, help="Watch without showing the ends.")
@reconnect
@output.option("table")
@click.argument("pid", metavar="[PID]", required=False, type=parse.WholeNumber(1, 2**31 - 1))
@click.pass_context
def watch(
    ctx: click.Context, containerd: str, runc_root: str, node: bool, listed: bool, stop: str | None, detach: bool,
    patience: float, format_: str, pid: int | None,
) -> int:  # fmt: skip
    """Watch containers of other engines, and show how each ends. Each end goes into the ledger and the events like one
    of exitd's own, with its true code, even while no command shows it; the containers are not touched. Ctrl-C stops
    showing, --stop ends the watch."""
    wanted = output.format_of(format_)
    given = [pid is not None, bool(containerd), bool(runc_root), node, listed, stop is not None]
    if sum(given) != 1:
        what = "PID, --containerd SOCKET, --runc-root DIR, or all of this machine: --node"
        raise BadRequest(f"what to watch: {what}; or --list, or --stop TARGET")
    client = connect(ctx)
    if listed:
        return _list(client, wanted)
    if stop is not None:
        client.end_watch(stop if stop.isdecimal() or stop == NODE else os.path.abspath(stop))
        print(stop, flush=True)
        return 0
    paths = (os.path.abspath(path) if path else "" for path in (containerd, runc_root))
    reply = client.watch(pb.WatchRequest(pid=pid or 0, containerd=next(paths), runc_root=next(paths), node=node))
    if reply.watch.trouble:
        complain(reply.watch.trouble)
    if detach:
        print(reply.watch.target, flush=True)
        return 0
    if node:
        return live.follow(client, live.ShownEnds(wanted, reply.seq), patience)
    return _show(client, reply, wanted, patience)


def _list(client: Client, wanted: output.Format) -> int:
    output.show(wanted, map(_document, client.watches()), HEADINGS, _row)
    return 0


def _document(watch: pb.Watch) -> Document:
    return {
        "Target": watch.target,
        "Kind": watch.kind,
        "Since": time_text(watch.since),
        "Processes": watch.processes,
        "Exits": watch.exits,
        "Trouble": watch.trouble,
    }


def _row(document: Document) -> list[str]:
    return [str(value) for value in document.values()]


def _show(client: Client, reply: pb.WatchReply, wanted: output.Format, patience: float) -> int:
    """Print each end as it comes; of a single process, until its end."""
    complain(f"watching {reply.watch.target}; ctrl-c ends the showing, and --stop the watch")
    filters = (f"watch={reply.watch.target}", f"type={EXIT}", "type=unwatch")
    followed = EventsFollowed(client, pb.EventsRequest(from_seq=reply.seq, filters=filters), patience)
    try:
        for item in followed:
            match item.WhichOneof("item"):
                case "event" if item.event.type == EXIT:
                    _print(event_line(item.event), event_document(item.event), wanted)
                    if reply.watch.kind == "pid":
                        return 0
                case "event":
                    complain(f"the watch of {reply.watch.target} was ended")
                    return 0
                case "lost":
                    lost = lost_document(item.lost)
                    complain(f"the events {lost['From']} to {lost['To']} came too fast; exitctl exits has them")
                case _:
                    pass
    except GONE:
        again = f"exitctl events --filter watch={reply.watch.target} --from-seq {followed.last + 1}"
        complain(f"the daemon went away; it goes on watching when it is back: {again}")
        return OWN_FAILURE
    return 0


def _print(line: str, document: Document, wanted: output.Format) -> None:
    print(line if wanted.kind == "table" else output.line(wanted, document), flush=True)
