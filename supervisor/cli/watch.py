"""The commands that wait: `wait`, `events`, `logs`."""

import contextlib

import click

from protos.exitd.v1 import exitd_pb2 as pb
from shim.frozen import mutable
from supervisor.api.answers import Waiting, status_of
from supervisor.api.client import Client
from supervisor.cli import choice, output, parse, spoken
from supervisor.cli.app import OWN_FAILURE, TIMED_OUT, complain, connect, exit_code, now_ns
from supervisor.cli.away import GONE, EventsFollowed, await_return, reconnect
from supervisor.cli.copying import copy_log
from supervisor.cli.logfollow import FollowedLog
from supervisor.cli.shape import event_document, lost_document, number_of, time_text
from supervisor.cli.spelling import Spelled
from supervisor.model.errors import BadRequest, ExitdError, NoSuchContainer, TimedOut
from supervisor.model.values import Unknown

MOST_DIGITS = 9  # of --tail
CONDITIONS = ("exited", "next-exit", "removed")


@click.command(cls=Spelled)
@click.option(
    "--exit-code", is_flag=True, help="Exit with the container's code (255 if unknown); for one container only."
)
@click.option("--timeout", type=parse.LimitSeconds(), metavar="S", help="Give up after S seconds with 124.")
@click.option("--condition", type=click.Choice(CONDITIONS), default="exited", help="What to wait for; default exited.")
@reconnect
@choice.containers(cidfile=False)
@click.pass_context
def wait(
    ctx: click.Context, containers: tuple[str, ...], exit_code: bool, timeout: float | None, condition: str,
    patience: float,
) -> int:  # fmt: skip
    """Wait for containers to end and print one line each, in this order: the number, or `unknown`. For a pod, once all
    its members have ended for good: a line for each, with its name. Goes on over restarts of exitd."""
    if exit_code and len(containers) != 1:
        raise BadRequest("--exit-code can be that of one container only")
    client = connect(ctx)
    deadline_ns = None if timeout is None else now_ns() + round(timeout * parse.SECOND_NS)
    awaited = [_Awaited.begin(client, word, condition) for word in containers]
    codes = [_await(client, each, deadline_ns, patience) for each in awaited]
    if TIMED_OUT in (failure for failure, _ in codes):
        return TIMED_OUT
    worst = max(failure for failure, _ in codes)
    return worst or (codes[0][1] if exit_code else 0)


LIVE = (pb.PHASE_CREATED, pb.PHASE_STARTING, pb.PHASE_RUNNING, pb.PHASE_PAUSED)


@mutable
class _Awaited:
    """A wait for a container, which can be begun again after a restart of exitd: for the same `run`, also once it has
    been removed or has another name. 0: for whichever is current, where it does not live or is a pod, and where another
    condition is waited for."""

    word: str
    condition: str
    id: str
    run: int
    waiting: Waiting

    @classmethod
    def begin(cls, client: Client, word: str, condition: str) -> "_Awaited":
        id, run = word, 0
        if condition == "exited":
            with contextlib.suppress(ExitdError):  # the wait says what is wrong
                found = client.inspect(word)
                if found.phase in LIVE and not found.spec.HasField("pod"):
                    id, run = found.id, found.run
        return cls(word, condition, id, run, client.begin_wait(id, condition=condition, run=run))

    def again(self, client: Client) -> None:
        self.waiting = client.begin_wait(self.id, condition=self.condition, run=self.run)

    def reply(self, client: Client, seconds: float | None) -> pb.WaitReply:
        try:
            return self.waiting.reply(seconds)
        except NoSuchContainer:  # removed while exitd was away
            for exit_ in client.exits(pb.ExitsRequest(id=self.id)) if self.run else ():
                if exit_.run == self.run and not exit_.exec_id:
                    return pb.WaitReply(exit=exit_)
            raise


def _await(client: Client, awaited: _Awaited, deadline_ns: int | None, patience: float) -> tuple[int, int]:
    """Print the line and return (exitctl's own failure or 0, the container's number). A pod has a line for each member,
    and the number of the first that did not end with 0."""
    try:
        reply = _reply(client, awaited, deadline_ns, patience)
    except TimedOut as error:
        seconds = _left(deadline_ns)
        complain(str(error) if seconds is None else f"{awaited.word}: --timeout is over, and that has not happened")
        return (TIMED_OUT if seconds is not None else OWN_FAILURE), 0
    except ExitdError as error:
        complain(str(error))
        return exit_code(error), 0
    if reply.members:
        print(*map(spoken.member_line, reply.members), sep="\n", flush=True)
        return 0, next((number for number in map(number_of, reply.members) if number), 0)
    exit_ = reply.exit if reply.HasField("exit") else None
    unknown = exit_ is None or isinstance(status_of(exit_), Unknown)
    print("unknown" if unknown else number_of(exit_), flush=True)
    return 0, number_of(exit_)


def _reply(client: Client, awaited: _Awaited, deadline_ns: int | None, patience: float) -> pb.WaitReply:
    """Return the answer, asked for again after each restart of exitd. Raises ExitdError."""
    while True:
        try:
            return awaited.reply(client, _left(deadline_ns))
        except GONE as error:
            left = _left(deadline_ns)
            await_return(client, patience if left is None else min(patience, left), error)
            awaited.again(client)


def _left(deadline_ns: int | None) -> float | None:
    """Return the seconds until then; None if there is no limit."""
    return None if deadline_ns is None else max(0.0, (deadline_ns - now_ns()) / parse.SECOND_NS)


@click.command(cls=Spelled)
@click.option("--since", metavar="TIME", help="Only events since then: 10m (ago) or an RFC 3339 time.")
@click.option("--until", metavar="TIME", help="Only events until then.")
@click.option("--from-seq", type=parse.UINT64, metavar="N", help="All events from this number on.")
@click.option(
    "--filter",
    "filters",
    multiple=True,
    metavar="KEY=VALUE",
    help="By container, event, image, label, id, name, type, namespace or watch.",
)
@click.option("--follow/--no-follow", "--stream/--no-stream", default=True, help="Wait for new ones; default.")
@reconnect
@output.option("table")
@click.pass_context
def events(
    ctx: click.Context, since: str | None, until: str | None, from_seq: int | None, filters: tuple[str, ...],
    follow: bool, patience: float, format_: str,
) -> int:  # fmt: skip
    """Follow the numbered log of events, over restarts of exitd too: nothing is missed, and nothing comes twice."""
    wanted = output.format_of(format_)
    request = pb.EventsRequest(
        from_seq=from_seq,
        since=None if since is None else spoken.moment(parse.moment_ns(since, now_ns())),
        until=None if until is None else spoken.moment(parse.moment_ns(until, now_ns())),
        filters=filters,
        no_follow=not follow,
    )
    return _follow_events(connect(ctx), request, wanted, patience)


def _follow_events(client: Client, request: pb.EventsRequest, wanted: output.Format, patience: float) -> int:
    """Show events; after a restart of exitd, go on with the number after the last one."""
    followed = EventsFollowed(client, request, patience)
    try:
        for reply in followed:
            _show_event(reply, wanted)
    except GONE:
        if not followed.last:
            raise
        complain(f"the daemon went away; continue with: exitctl events --from-seq {followed.last + 1}")
        return OWN_FAILURE
    return 0


def _show_event(reply: pb.EventsReply, wanted: output.Format) -> None:
    match reply.WhichOneof("item"):
        case "event" if wanted.kind == "table":
            print(event_line(reply.event), flush=True)
        case "event":
            print(output.line(wanted, event_document(reply.event)), flush=True)
        case "lost":
            lost = lost_document(reply.lost)
            if wanted.kind in ("json", "jsonl"):
                print(output.line(wanted, lost), flush=True)
            complain(f"the events {lost['From']} to {lost['To']} came too fast; --from-seq {lost['From']} has them")
        case _:
            pass  # a bookmark, or a message of a newer exitd


def event_line(event: pb.Event) -> str:
    """Return one event as a line: time, number, type, name (id), and for an exit how and why."""
    who = f"{event.name or '-'} ({spoken.short_id(event.id)})"
    words = [time_text(event.time).ljust(30), str(event.seq).rjust(5), event.type.ljust(8), who]
    if event.HasField("exit"):
        exit_ = event.exit
        cause = f": {exit_.cause}" if exit_.cause else ""
        words.append(f"{spoken.outcome(exit_)}{cause} [source {exit_.source}, reason {exit_.reason}]")
    words += [f"{key}={value}" for key, value in sorted(event.attributes.items())]
    line = " ".join(words)
    return "".join(char if char.isprintable() else "?" for char in line)


@click.command(cls=Spelled)
@click.option("-f", "--follow", is_flag=True, help="Follow the log until the container's end.")
@click.option("-n", "--tail", "tail", default="all", metavar="N", help="Only the last N lines.")
@click.option("-t", "--timestamps", is_flag=True, help="Print the time before each line.")
@click.option("--since", metavar="TIME", help="Lines from then on: 10m (ago) or an RFC 3339 time.")
@click.option("--until", metavar="TIME", help="Lines before then; with -f, end then.")
@click.option("--run", "run_number", type=parse.UINT64, default=0, metavar="N", help="With -f: end with that run.")
@reconnect
@choice.container()
@click.pass_context
def logs(
    ctx: click.Context, container: str, follow: bool, tail: str, timestamps: bool, since: str | None,
    until: str | None, run_number: int, patience: float,
) -> int:  # fmt: skip
    """Show what a container wrote, stdout to stdout and stderr to stderr. With -f it goes on over restarts of exitd:
    nothing is missed, and nothing comes twice."""
    if tail != "all" and not tail.isdecimal():
        raise BadRequest(f"--tail {tail!r} is neither a number nor all")
    if tail == "0" and not follow:
        return 0
    since_ns = None if since is None else parse.moment_ns(since, now_ns())
    if tail == "0":
        since_ns = max(since_ns or 0, now_ns())  # only lines that are written from now on
    request = pb.LogsRequest(
        id=container,
        follow=follow,
        tail_lines=0 if tail == "all" or len(tail) > MOST_DIGITS else int(tail),  # no log has so many lines
        run=run_number,
        since=None if since_ns is None else spoken.moment(since_ns),
        until=None if until is None else spoken.moment(parse.moment_ns(until, now_ns())),
        timestamps=timestamps,
    )
    copy_log(FollowedLog(connect(ctx), request, patience))
    return 0
