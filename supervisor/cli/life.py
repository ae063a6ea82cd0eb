"""The commands that change containers: start, stop, kill, restart, pause, unpause, rm. Each prints the ids of those it
changed."""

import click

from supervisor.cli import parse
from supervisor.cli.app import connect, each
from supervisor.model.errors import NoSuchContainer

containers = click.argument("containers", nargs=-1, required=True, metavar="ID...")
grace = click.option(
    "-t", "--time", "--timeout", "seconds", type=parse.UINT32, metavar="S",
    help="Grace period before SIGKILL; default: the container's own (10).",
)  # fmt: skip


@click.command()
@containers
@click.pass_context
def start(ctx: click.Context, containers: tuple[str, ...]) -> int:
    """Start created containers, or ended ones again."""
    client = connect(ctx)
    return each(containers, lambda word: void(client.start(word)))


@click.command()
@grace
@containers
@click.pass_context
def stop(ctx: click.Context, containers: tuple[str, ...], seconds: int | None) -> int:
    """Stop containers: stop signal, grace period, SIGKILL. One that has already ended is no error."""
    client = connect(ctx)
    return each(containers, lambda word: client.stop(word, seconds))


@click.command()
@click.option("-s", "--signal", default="KILL", metavar="SIGNAL", help="A name or a number; default KILL.")
@click.option("--all", "everyone", is_flag=True, help="Send it to every process of the container.")
@containers
@click.pass_context
def kill(ctx: click.Context, containers: tuple[str, ...], signal: str, everyone: bool) -> int:
    """Send a signal to containers."""
    client = connect(ctx)
    return each(containers, lambda word: client.kill(word, signal, everyone=everyone))


@click.command()
@grace
@containers
@click.pass_context
def restart(ctx: click.Context, containers: tuple[str, ...], seconds: int | None) -> int:
    """Stop containers and start them again."""
    client = connect(ctx)
    return each(containers, lambda word: client.restart(word, seconds))


@click.command()
@containers
@click.pass_context
def pause(ctx: click.Context, containers: tuple[str, ...]) -> int:
    """Freeze all processes of containers."""
    return each(containers, connect(ctx).pause)


@click.command()
@containers
@click.pass_context
def unpause(ctx: click.Context, containers: tuple[str, ...]) -> int:
    """Resume paused containers."""
    return each(containers, connect(ctx).resume)


@click.command()
@click.option("-f", "--force", is_flag=True, help="Kill it first if it runs; a missing container is no error.")
@containers
@click.pass_context
def rm(ctx: click.Context, containers: tuple[str, ...], force: bool) -> int:
    """Remove containers. Their exits stay in the ledger."""
    client = connect(ctx)

    def remove(word: str) -> None:
        try:
            client.remove(word, force=force)
        except NoSuchContainer:
            if not force:
                raise

    return each(containers, remove)


def void(_: object) -> None:
    """For calls whose answer only says that they succeeded."""
