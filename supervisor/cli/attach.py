"""`attach`."""

import click

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.cli import choice, keys, session
from supervisor.cli.app import connect
from supervisor.cli.away import reconnect
from supervisor.cli.session import Manner, SessionTarget, TerminalSession
from supervisor.cli.spelling import Spelled
from supervisor.model.errors import WrongState

ALIVE = (pb.PHASE_CREATED, pb.PHASE_STARTING, pb.PHASE_RUNNING, pb.PHASE_PAUSED)


@click.command(cls=Spelled)
@click.option("--no-stdin", is_flag=True, help="Only show output: send no input.")
@session.detach_keys
@session.sig_proxy
@reconnect
@choice.container()
@click.pass_context
def attach(
    ctx: click.Context, container: str, no_stdin: bool, detach_keys: str, sig_proxy: bool | None, patience: float
) -> int:
    """Attach to a container: show its output from now on, and send it input if it was made with -i. Exit with its code,
    or with 0 after the detach keys. Several clients may be attached; a slow one misses output, and learns how much."""
    sequence = keys.parse(detach_keys)
    client = connect(ctx)
    found = client.inspect(container)
    if found.phase not in ALIVE and not found.recovering:
        raise WrongState(f"{container} is not running; start it first: exitctl start {container}")
    manner = Manner(
        tty=found.spec.tty,
        interactive=found.spec.stdin and not no_stdin,
        detach_keys=sequence,
        proxy=sig_proxy,
        closes_stdin=False,  # other clients may still send input
        lossless=False,
        patience=patience,
    )
    manner.check("use --no-stdin")
    target = SessionTarget(found.id, found.run, log_files=session.log_files(found.spec.log))
    with TerminalSession(client, target, manner) as attached:
        attached.begin()
        attached.follow()
    return attached.code()
