"""The commands that change containers: start, stop, kill, restart, pause, unpause, rm. Each prints the ids of those it
changed."""

import click

from supervisor.cli import parse
from supervisor.cli.app import connect, each
from supervisor.cli.spelling import Spelled
from supervisor.model.errors import BadRequest, NoSuchContainer

containers = click.argument("containers", nargs=-1, required=True, metavar="ID...")
grace = click.option(
    "-t", "--time", "--timeout", "seconds", type=parse.UINT32, metavar="S",
    help="Grace period before SIGKILL; default: the container's own (10).",
)  # fmt: skip


stop_signal = click.option(
    "-s", "--signal", default="", metavar="SIGNAL", help="Sent first, instead of the container's own stop signal."
)
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
@containers
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
@containers
@click.pass_context
def stop(ctx: click.Context, containers: tuple[str, ...], seconds: int | None, signal: str) -> int:
    """Stop containers: stop signal, grace period, SIGKILL. One that has already ended is no error.

    \b
    exitctl stop -s QUIT -t 30 web
    """
    client = connect(ctx)
    return each(containers, lambda word: client.stop(word, seconds, signal))


@click.command(cls=Spelled)
@click.option("-s", "--signal", default="KILL", metavar="SIGNAL", help="A name or a number; default KILL.")
@click.option("--all", "everyone", is_flag=True, help="Send it to every process of the container.")
@containers
@click.pass_context
def kill(ctx: click.Context, containers: tuple[str, ...], signal: str, everyone: bool) -> int:
    """Send a signal to containers."""
    client = connect(ctx)
    return each(containers, lambda word: client.kill(word, signal, everyone=everyone))


@click.command(cls=Spelled)
@stop_signal
@grace
@containers
@click.pass_context
def restart(ctx: click.Context, containers: tuple[str, ...], seconds: int | None, signal: str) -> int:
    """Stop containers and start them again."""
    client = connect(ctx)
    return each(containers, lambda word: client.restart(word, seconds, signal))


@click.command(cls=Spelled)
@containers
@click.pass_context
def pause(ctx: click.Context, containers: tuple[str, ...]) -> int:
    """Freeze all processes of containers."""
    return each(containers, connect(ctx).pause)


@click.command(cls=Spelled)
@containers
@click.pass_context
def unpause(ctx: click.Context, containers: tuple[str, ...]) -> int:
    """Resume paused containers."""
    return each(containers, connect(ctx).resume)


@click.command(cls=Spelled)
@click.option("-f", "--force", is_flag=True, help="Kill it first if it runs; a missing container is no error.")
@click.option("-v", "--volumes", is_flag=True, help="Remove its anonymous volumes, too.")
@containers
@click.pass_context
def rm(ctx: click.Context, containers: tuple[str, ...], force: bool, volumes: bool) -> int:
    """Remove containers. Their exits stay in the ledger."""
    client = connect(ctx)

    def remove(word: str) -> None:
        try:
            client.remove(word, force=force, volumes=volumes)
        except NoSuchContainer:
            if not force:
                raise

    return each(containers, remove)


def void(_: object) -> None:
    """For calls whose answer only says that they succeeded."""
