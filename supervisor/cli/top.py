"""`top`: the processes of a container, as ps(1) shows them."""

import subprocess

import click

from supervisor.cli import choice
from supervisor.cli.app import connect
from supervisor.cli.spelling import Spelled
from supervisor.model.errors import BadRequest, ToolFailed, ToolMissing, WrongState

PS_SECONDS = 20.0
DEFAULT = ("-ef",)
PID = "PID"


@click.command(cls=Spelled, context_settings={"allow_interspersed_args": False})
@choice.container(before="options")
@click.argument("options", nargs=-1, type=click.UNPROCESSED, metavar="[PS-OPTION]...")
@click.pass_context
def top(ctx: click.Context, container: str, options: tuple[str, ...]) -> int:
    """Show the processes of a running container with ps(1): their numbers are this machine's. PS-OPTIONs are those of
    ps, default -ef; its output must have a column PID."""
    pids = connect(ctx).pids(container)
    if not pids:
        raise WrongState(f"{container} has no process: it is not running", id=container)
    listed = ",".join(map(str, pids))
    for line in lines_of(_ps((*(options or DEFAULT), "-q", listed)), frozenset(map(str, pids))):
        print(line)
    return 0


def lines_of(text: str, pids: frozenset[str]) -> list[str]:
    """Return the heading and the lines of those processes. Raises BadRequest when there is no column PID."""
    heading, *rest = text.splitlines() or [""]
    if PID not in heading.split():
        raise BadRequest(f"ps printed no column {PID}: add it, as in -o pid,args")
    column = heading.split().index(PID)
    found = [line for line in rest if (words := line.split())[column:] and words[column] in pids]
    return [heading, *found]


def _ps(options: tuple[str, ...]) -> str:
    try:
        done = subprocess.run(["ps", *options], capture_output=True, text=True, errors="replace", timeout=PS_SECONDS)
    except FileNotFoundError as error:
        raise ToolMissing("ps is not installed (Debian: procps)", tool="ps") from error
    except subprocess.TimeoutExpired as error:
        raise ToolFailed(f"ps {' '.join(options)} has not ended within {PS_SECONDS:g} s", tool="ps") from error
    if done.returncode:
        raise ToolFailed(f"ps {' '.join(options)}: {done.stderr.strip() or f'status {done.returncode}'}", tool="ps")
    return done.stdout
