"""The commands that change containers: start, stop, kill, restart, pause, unpause, rm. Each prints the ids of those it
changed."""

from collections.abc import Callable, Sequence

import click

from shim.patterns import LatePattern
from supervisor.cli import choice, parse
from supervisor.cli.app import connect, each
from supervisor.cli.spelling import Spelled
from supervisor.model.errors import BadRequest, NoSuchContainer

grace = click.option(
    "-t", "--time", "--timeout", "seconds", type=parse.UINT32, metavar="S",
    help="Grace period before SIGKILL; default: the container's own (10).",
)  # fmt: skip


stop_signal = click.option(
    "-s", "--signal", default="", metavar="SIGNAL", help="Sent first, instead of the container's own stop signal."
)
ignore = click.option("-i", "--ignore", is_flag=True, help="A missing container is no error.")
# Those of `supervisor.cli.session`, which takes its time to import.
detach_keys = click.option(
    "--detach-keys", metavar="KEYS", default=None,
    help="With -a: keys that detach from its terminal and leave it running; default as for attach, '' for none.",
)  # fmt: skip
sig_proxy = click.option(
    "--sig-proxy/--no-sig-proxy", default=None,
    help="With -a: pass signals on to it; default: yes, unless its terminal is this one.",
)  # fmt: skip


@click.command(cls=Spelled)
@click.option("-a", "--attach", "attaches", is_flag=True, help="Show its output, pass signals on, exit with its code.")
@click.option("-i", "--interactive", is_flag=True, help="As -a, and send it this command's input.")
@detach_keys
@sig_proxy
@choice.containers(choice.NOT_RUNNING, every=("--all",), cidfile=False)
@click.pass_context
def start(
    ctx: click.Context, containers: tuple[str, ...], attaches: bool, interactive: bool, detach_keys: str | None,
    sig_proxy: bool | None,
) -> int:  # fmt: skip
    """Start created containers, or ended ones again.

    \b
    exitctl start web
    exitctl start -ai shell
    """
    if attaches or interactive:
        if len(containers) != 1:
            raise BadRequest("start -a and -i take one container: there is one output to show")
        from supervisor.cli import startattached  # imported on demand: exitctl must start fast

        return startattached.start(connect(ctx), containers[0], interactive, detach_keys, sig_proxy)
    client = connect(ctx)
    return each(containers, lambda word: void(client.start(word)))


@click.command(cls=Spelled)
@stop_signal
@grace
@ignore
@choice.containers(choice.RUNNING)
@click.pass_context
def stop(ctx: click.Context, containers: tuple[str, ...], seconds: int | None, signal: str, ignore: bool) -> int:
    """Stop containers: stop signal, grace period, SIGKILL. One that has already ended is no error.

    \b
    exitctl stop -s QUIT -t 30 web
    """
    client = connect(ctx)
    return each(containers, unless_missing(lambda word: client.stop(word, seconds, signal), ignore=ignore))


class Kill(Spelled):
    """`kill`, which also takes a signal as kill(1) does: -9, -HUP, -SIGTERM."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, with_signals(args))


def with_signals(words: Sequence[str]) -> list[str]:
    """Return the words with `-9` and `-HUP` as `--signal=9` and `--signal=HUP`."""
    found = list[str]()
    for at, word in enumerate(words):
        if word == "--":
            return [*found, *words[at:]]
        is_signal = _SIGNAL.fullmatch(word) is not None and found[-1:] not in (["-s"], ["--signal"], ["--cidfile"])
        found.append(f"--signal={word[1:]}" if is_signal else word)
    return found


_SIGNAL = LatePattern(r"-(?:[0-9]{1,2}|[A-Z][A-Z0-9+-]+)")


@click.command(cls=Kill)
@click.option("-s", "--signal", default="KILL", metavar="SIGNAL", help="A name or a number; default KILL.")
@click.option("--all", "everyone", is_flag=True, help="Send it to every process of the container.")
@choice.containers()
@click.pass_context
def kill(ctx: click.Context, containers: tuple[str, ...], signal: str, everyone: bool) -> int:
    """Send a signal to containers. It may be written as for kill(1): exitctl kill -HUP web."""
    client = connect(ctx)
    return each(containers, lambda word: client.kill(word, signal, everyone=everyone))


@click.command(cls=Spelled)
@stop_signal
@grace
@choice.containers(choice.ALL)
@click.pass_context
def restart(ctx: click.Context, containers: tuple[str, ...], seconds: int | None, signal: str) -> int:
    """Stop containers and start them again."""
    client = connect(ctx)
    return each(containers, lambda word: client.restart(word, seconds, signal))


@click.command(cls=Spelled)
@choice.containers(choice.NOT_PAUSED)
@click.pass_context
def pause(ctx: click.Context, containers: tuple[str, ...]) -> int:
    """Freeze all processes of containers."""
    return each(containers, connect(ctx).pause)


@click.command(cls=Spelled)
@choice.containers(choice.PAUSED)
@click.pass_context
def unpause(ctx: click.Context, containers: tuple[str, ...]) -> int:
    """Resume paused containers."""
    return each(containers, connect(ctx).resume)


@click.command(cls=Spelled)
@click.option("-f", "--force", is_flag=True, help="Kill it first if it runs; a missing container is no error.")
@click.option("-v", "--volumes", is_flag=True, help="Remove its anonymous volumes, too.")
@ignore
@choice.containers(choice.ALL, filters=("--filter",))
@click.pass_context
def rm(ctx: click.Context, containers: tuple[str, ...], force: bool, volumes: bool, ignore: bool) -> int:
    """Remove containers. Their exits stay in the ledger."""
    client = connect(ctx)

    def remove(word: str) -> None:
        client.remove(word, force=force, volumes=volumes)

    return each(containers, unless_missing(remove, ignore=force or ignore))


def unless_missing(act: Callable[[str], object], *, ignore: bool) -> Callable[[str], None]:
    """Return what does it, and, with `ignore`, nothing to a container that is not there."""

    def acting(word: str) -> None:
        try:
            act(word)
        except NoSuchContainer:
            if not ignore:
                raise

    return acting


def void(_: object) -> None:
    """For calls whose answer only says that they succeeded."""
