"""`watch`: how containers of other engines end."""

import os

import click

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api.client import Client, Unreachable
from supervisor.cli import output, parse
from supervisor.cli.app import OWN_FAILURE, complain, connect
from supervisor.cli.shape import Document, event_document, lost_document, time_text
from supervisor.cli.watch import event_line
from supervisor.model.errors import BadRequest

HEADINGS = ("TARGET", "KIND", "SINCE", "PROCESSES", "EXITS", "TROUBLE")
EXIT = "exit"


@click.command()
@click.option(
    "--containerd", default="", metavar="SOCKET", help="Watch all tasks of all its namespaces, present and future ones."
)
@click.option(
    "--runc-root", default="", metavar="DIR", help="Watch all containers in a state directory of runc or crun."
)
@click.option("--list", "listed", is_flag=True, help="List the watches.")
@click.option("--stop", metavar="TARGET", help="End the watch of this pid, socket or directory.")
@click.option("-d", "--detach", is_flag=True, help="Watch without showing the ends.")
@output.option("table")
@click.argument("pid", metavar="[PID]", required=False, type=parse.WholeNumber(1, 2**31 - 1))
@click.pass_context
def watch(
    ctx: click.Context, containerd: str, runc_root: str, listed: bool, stop: str | None, detach: bool, format_: str,
    pid: int | None,
) -> int:  # fmt: skip
    """Watch containers of other engines, and show how each ends. Each end goes into the ledger and the events like one
    of exitd's own, with its true code, even while no command shows it; the containers are not touched. Ctrl-C stops
    showing, --stop ends the watch."""
    wanted = output.format_of(format_)
    given = [pid is not None, bool(containerd), bool(runc_root), listed, stop is not None]
    if sum(given) != 1:
        raise BadRequest("what to watch: PID, --containerd SOCKET or --runc-root DIR; or --list, or --stop TARGET")
    client = connect(ctx)
    if listed:
        return _list(client, wanted)
    if stop is not None:
        client.end_watch(stop if stop.isdecimal() else os.path.abspath(stop))
        print(stop, flush=True)
        return 0
    paths = (os.path.abspath(path) if path else "" for path in (containerd, runc_root))
    reply = client.watch(pb.WatchRequest(pid=pid or 0, containerd=next(paths), runc_root=next(paths)))
    if reply.watch.trouble:
        complain(reply.watch.trouble)
    if detach:
        print(reply.watch.target, flush=True)
        return 0
    return _show(client, reply, wanted)


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


def _show(client: Client, reply: pb.WatchReply, wanted: output.Format) -> int:
    """Print each end as it comes; of a single process, until its end."""
    complain(f"watching {reply.watch.target}; ctrl-c ends the showing, and --stop the watch")
    last = reply.seq - 1
    filters = (f"watch={reply.watch.target}", f"type={EXIT}", "type=unwatch")
    try:
        for item in client.events(pb.EventsRequest(from_seq=reply.seq, filters=filters)):
            last = max(last, item.event.seq, item.bookmark, item.lost.to)
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
    except Unreachable:
        again = f"exitctl events --filter watch={reply.watch.target} --from-seq {last + 1}"
        complain(f"the daemon went away; it goes on watching when it is back: {again}")
        return OWN_FAILURE
    return 0


def _print(line: str, document: Document, wanted: output.Format) -> None:
    print(line if wanted.kind == "table" else output.line(wanted, document), flush=True)
