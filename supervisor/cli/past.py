"""`why` and `exits`: what has happened."""

from collections.abc import Iterable

import click

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api.client import Client
from supervisor.cli import output, parse, spoken, story, table, tally
from supervisor.cli.app import connect, now_ns
from supervisor.cli.shape import Document, ledger_document, time_text
from supervisor.cli.spelling import Spelled
from supervisor.model.errors import ExitdError, NoSuchContainer
from supervisor.model.values import Reason
from supervisor.model.watched import FOREIGN

LOG_LINES = 5
LOG_BYTES = 16 * 1024
HEADINGS = ("AT", "NAME", "CONTAINER ID", "RUN", "EXIT", "REASON", "SOURCE", "THEN")


@click.command(cls=Spelled)
@click.argument("container", metavar="ID")
@click.pass_context
def why(ctx: click.Context, container: str) -> int:
    """Explain how and why a container last ended: what was seen, by which witness, when, and who asked for it."""
    client = connect(ctx)
    found, exit_ = _last_exit(client, container)
    if exit_ is None and found is not None:
        print(story.not_ended(found, now_ns()), end="")
    elif exit_ is not None:
        lines = last_words(client, found.id) if found is not None else ()
        print(story.of(exit_, found, lines), end="")
    return 0


@click.command(cls=Spelled)
@click.option("--since", metavar="TIME", help="Only exits since then: 10m (ago) or an RFC 3339 time.")
@click.option("--unknown", is_flag=True, help="Only exits whose code is unknown.")
@click.option("--reason", type=click.Choice([each.value for each in Reason]), help="Only exits for this reason.")
@click.option("--id", "container", default="", metavar="ID", help="Only exits of this container.")
@click.option("--by", type=click.Choice([*tally.KEYS]), help="Count the ends of containers by this, the most first.")
@click.option("--no-trunc", is_flag=True, help="Print whole ids.")
@output.option("table")
@click.pass_context
def exits(
    ctx: click.Context,
    since: str | None,
    unknown: bool,
    reason: str | None,
    container: str,
    by: str | None,
    no_trunc: bool,
    format_: str,
) -> int:
    """Show the ledger of exits, removed containers included."""
    wanted = output.format_of(format_)
    request = pb.ExitsRequest(
        since=None if since is None else spoken.moment(parse.moment_ns(since, now_ns())), unknown=unknown, id=container
    )
    client = connect(ctx)
    found = _of(client, request) if container else client.exits(request)
    found = (one for one in found if reason is None or one.reason == reason)
    if by is not None:
        _show_tallies(wanted, found, by)
    elif wanted.kind == "table":
        print(table.columns([HEADINGS, *(_row(exit_, whole=no_trunc) for exit_ in found)]), end="")
    else:
        output.show(wanted, map(ledger_document, found), (), _no_row)
    return 0


def _show_tallies(wanted: output.Format, found: Iterable[pb.Exit], by: str) -> None:
    counted = tally.tallies(found, by)
    if wanted.kind == "table":
        print(table.columns([tally.headings(by), *map(tally.row, counted)]), end="")
    else:
        output.show(wanted, [tally.document(each, by) for each in counted], (), _no_row)


def _last_exit(client: Client, word: str) -> tuple[pb.Container | None, pb.Exit | None]:
    """Return the container if it still exists, and its newest exit; a removed one is found in the ledger by id or name.

    Raises NoSuchContainer when neither knows the word.
    """
    try:
        if FOREIGN in word:
            raise NoSuchContainer(f"the ledger knows no {word}; `exitctl exits` shows what it has")
        container = client.inspect(word)
    except NoSuchContainer:
        if (newest := _newest(client, word)) is None:
            raise
        return None, newest
    return container, container.exit if container.HasField("exit") else None


def _newest(client: Client, word: str) -> pb.Exit | None:
    """Return the newest exit of all whose name this is, or whose id begins so."""
    ledger = client.exits(pb.ExitsRequest())
    mine = (one for one in ledger if one.name == word or one.container_id.startswith(word))
    return max(mine, key=lambda one: spoken.nanoseconds(one.at), default=None)


def _of(client: Client, request: pb.ExitsRequest) -> Iterable[pb.Exit]:
    """Yield the exits of one container, or of the newest removed one with that name. Raises NoSuchContainer as
    _last_exit does."""
    found = list(client.exits(request))
    if not found and (newest := _last_exit(client, request.id)[1]) is not None:
        request.id = newest.container_id
        return client.exits(request)
    return found


def last_words(client: Client, container_id: str) -> tuple[str, ...]:
    """Return the end of its log; none if the log cannot be read, which does not spoil the story."""
    data = b""
    try:
        for reply in client.logs(pb.LogsRequest(id=container_id, tail_lines=LOG_LINES)):
            data = (data + reply.data)[-LOG_BYTES:]
    except ExitdError:
        return ()
    return tuple(data.decode("utf-8", "replace").splitlines()[-LOG_LINES:])


def _row(exit_: pb.Exit, *, whole: bool) -> list[str]:
    name = spoken.called(exit_) + (f" exec {exit_.exec_id}" if exit_.exec_id else "")
    container_id = exit_.container_id if whole else spoken.short_id(exit_.container_id)
    how = spoken.outcome(exit_) + (f": {exit_.cause}" if exit_.cause else "")
    at, mark = time_text(exit_.at), "unverified" if exit_.unverified else ""
    return [at, name, container_id, str(exit_.run), how, exit_.reason, exit_.source, exit_.decision or mark]


def _no_row(_: Document) -> list[str]:
    return []
