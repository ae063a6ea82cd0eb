"""What a command that follows does while exitd is away: it waits for a limited time, and goes on where it was."""

import time
from collections.abc import Callable, Iterator

import click

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api.client import Client, Unreachable
from supervisor.cli import parse
from supervisor.cli.app import complain
from supervisor.model.errors import ExitdError, ShuttingDown

GONE = (Unreachable, ShuttingDown)
PAUSE_SECONDS = 0.1  # between two questions whether it is back
PATIENCE_SECONDS = 60.0
AWAY = "exitd is away; waiting for it ..."

reconnect = click.option(
    "--reconnect-seconds", "patience", type=parse.LimitSeconds(), default=PATIENCE_SECONDS, metavar="S",
    help="How long to wait for exitd when it goes away; default 60, 0: not at all.",
)  # fmt: skip


def await_return(
    client: Client,
    seconds: float,
    error: ExitdError,
    *,
    say: Callable[[str], None] = complain,
    over: Callable[[], bool] = lambda: False,
) -> None:
    """Wait until exitd answers again. `over`: whether no caller waits for it any more. Raises `error`, the one that
    ended the call, after `seconds`, or once it is over; at once if they are 0."""
    if not seconds:
        raise error
    if _answers(client):
        time.sleep(PAUSE_SECONDS)  # it may be about to leave
        return
    say(AWAY)
    deadline = time.monotonic() + seconds
    while not _answers(client):
        if time.monotonic() >= deadline or over():
            raise error
        time.sleep(PAUSE_SECONDS)


def _answers(client: Client) -> bool:
    try:
        client.version()
    except GONE:
        return False
    return True


class EventsFollowed:
    """The events of a request, over restarts of exitd too: none is missed, and none comes twice. `last` is the number
    up to which everything has come; 0: nothing has."""

    def __init__(self, client: Client, request: pb.EventsRequest, patience: float) -> None:
        self._client = client
        self._request = request
        self._patience = patience
        self.last = max(0, request.from_seq - 1) if request.HasField("from_seq") else 0

    def __iter__(self) -> Iterator[pb.EventsReply]:
        """Raises the error that ended the call once exitd was away for too long; ExitdError."""
        while True:
            try:
                for reply in self._client.events(self._request):
                    self.last = max(self.last, reply.event.seq, reply.bookmark, reply.lost.to)
                    yield reply
                return
            except GONE as error:
                if not (self.last or self._request.HasField("from_seq") or self._request.HasField("since")):
                    raise  # where it would have begun cannot be known
                await_return(self._client, self._patience, error)
                if self.last:
                    self._request.from_seq = self.last + 1
