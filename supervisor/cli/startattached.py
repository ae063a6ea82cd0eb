"""`start -a` and `start -i`: a container that is attached to before its program begins."""

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api.client import Client
from supervisor.cli import keys
from supervisor.cli.session import Manner, SessionTarget, TerminalSession

RUNS = (pb.PHASE_STARTING, pb.PHASE_RUNNING, pb.PHASE_PAUSED)


def start(client: Client, word: str, interactive: bool, detach_keys: str | None, proxy: bool | None) -> int:
    """Start a container and follow it to its end; return its code. One that runs already is attached to."""
    found = client.inspect(word)
    runs = found.phase in RUNS
    manner = Manner(
        tty=found.spec.tty,
        interactive=interactive and found.spec.stdin,
        detach_keys=keys.parse(keys.DEFAULT if detach_keys is None else detach_keys),
        proxy=proxy,
        lossless=not runs,
    )
    manner.check("leave -i out")
    if not runs:
        found = client.start(found.id, prepare=True)  # so that its first byte is seen
    with TerminalSession(client, SessionTarget(found.id, found.run), manner) as attached:
        client.start(found.id)
        attached.begin()
        attached.follow()
    return attached.code()
