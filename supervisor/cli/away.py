"""What a command that follows does while exitd is away: it waits for it, for a limited time."""

import time

from supervisor.api.client import Client, Unreachable
from supervisor.cli.app import complain
from supervisor.model.errors import ExitdError, ShuttingDown

GONE = (Unreachable, ShuttingDown)
PAUSE_SECONDS = 0.1  # between two questions whether it is back


def await_return(client: Client, seconds: float, error: ExitdError) -> None:
    """Wait until exitd answers again. Raises `error`, the one that ended the call, after `seconds`; at once if they are
    0."""
    if not seconds:
        raise error
    if _answers(client):
        return
    complain("exitd is away; waiting for it ...")
    deadline = time.monotonic() + seconds
    while not _answers(client):
        if time.monotonic() >= deadline:
            raise error
        time.sleep(PAUSE_SECONDS)


def _answers(client: Client) -> bool:
    try:
        client.version()
    except GONE:
        return False
    return True
