"""`exec`."""

import os

import click

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.cli import choice, keys, parse, session
from supervisor.cli.app import TIMED_OUT, complain, connect
from supervisor.cli.away import reconnect
from supervisor.cli.session import Manner, SessionTarget, TerminalSession
from supervisor.cli.spelling import Spelled
from supervisor.cli.terminal import size_of

TIMEOUT = "timeout"  # the reason of an exit


@click.command(cls=Spelled, context_settings={"allow_interspersed_args": False})
@click.option("-d", "--detach", is_flag=True, help="Print the exec's id and leave it running.")
@click.option("-i", "--interactive", is_flag=True, help="Send it this command's input.")
@click.option("-t", "--tty", is_flag=True, help="Give it a terminal; with -i, this one.")
@click.option(
    "-e",
    "--env",
    multiple=True,
    metavar="K=V",
    help="Added to the container's; a bare K takes its value from this shell.",
)
@click.option(
    "--env-file", "env_files", multiple=True, metavar="FILE",
    help="A file with such a variable in each line; # begins a comment.",
)  # fmt: skip
@click.option("-u", "--user", metavar="USER", default="", help="name|uid[:group|gid]; default: the container's.")
@click.option("-w", "--workdir", metavar="DIR", default="", help="Its working directory; default: the container's.")
@click.option(
    "--timeout", type=parse.LimitSeconds(is_above=True), metavar="S", default=None,
    help="Kill it, with everything it has started, after S seconds; exit code 124.",
)  # fmt: skip
@session.detach_keys
@reconnect
@choice.container(before="command")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="CMD...")
@click.pass_context
def exec(
    ctx: click.Context, container: str, command: tuple[str, ...], detach: bool, interactive: bool, tty: bool,
    env: tuple[str, ...], env_files: tuple[str, ...], user: str, workdir: str, timeout: float | None, detach_keys: str,
    patience: float,
) -> int:  # fmt: skip
    """Run another command in a running container and exit with its code: 126 not executable, 127 not found, 124 ended
    by --timeout, 255 unknown."""
    if not command:
        raise click.MissingParameter(ctx=ctx, param=choice.argument(ctx, "command"))
    manner = Manner(tty, interactive, keys.parse(detach_keys), patience=patience)
    if not detach:
        manner.check("leave -t out")
    size = size_of(session.terminal_of(manner)) if tty and not detach else None
    spec = pb.ExecSpec(
        args=command,
        env=parse.environment((*parse.lines_of("--env-file", env_files), *env), os.environ),
        cwd=workdir,
        user=user,
        tty=tty,
        stdin=interactive,
        timeout_seconds=timeout or 0,
        attach=not detach,
        size=pb.Winsize(rows=size[0], cols=size[1]) if size else None,
    )
    client = connect(ctx)
    made = client.exec(container, spec)
    if detach:
        print(made.id, flush=True)
        return 0
    with TerminalSession(client, SessionTarget(made.container_id, made.run, made.id), manner) as attached:
        attached.begin()
        attached.follow()
    if attached.reason == TIMEOUT:
        complain(f"the exec was ended by its timeout of {made.spec.timeout_seconds:g} s")
        return TIMED_OUT
    return attached.code()
