"""Follows a log over restarts of exitd: nothing is missed, and nothing comes twice."""

from collections.abc import Callable, Iterator

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api.answers import AnswerStream
from supervisor.api.client import Client
from supervisor.cli.app import complain
from supervisor.cli.away import GONE, await_return
from supervisor.model.errors import ExitdError

GAP = "a part of its log was deleted before exitd was back, by rotation or by hand; what follows is what there is"


class Progress:
    """How far a log has been shown: a position that exitd has sent, and the bytes of each stream behind it. Pure."""

    def __init__(self) -> None:
        self.position: pb.LogPosition | None = None
        self._behind: dict[str, int] = {}  # bytes, by stream
        self._to_skip: dict[str, int] = {}  # of what comes again

    @property
    def may_go_on(self) -> bool:
        """Return whether what comes next can be asked for: a position is known, or nothing has been shown."""
        return self.position is not None or not self._behind

    def take(self, reply: pb.LogsReply) -> pb.LogsReply | None:
        """Return what of the reply is to be shown."""
        if reply.HasField("position"):
            if not any(self._to_skip.values()):
                self.position, self._behind = reply.position, {}
            return None
        again = min(self._to_skip.get(reply.stream, 0), len(reply.data))
        if again:
            self._to_skip[reply.stream] -= again
            reply.data = reply.data[again:]
        if not reply.data:
            return None
        self._behind[reply.stream] = self._behind.get(reply.stream, 0) + len(reply.data)
        return reply

    def begin_again(self) -> None:
        """The log is read from the position on: what was shown behind it comes once more, and is skipped."""
        self._to_skip = dict(self._behind)

    def give_up_skipping(self) -> None:
        """The position is gone, and other entries come."""
        self._to_skip, self._behind = {}, {}


class FollowedLog:
    """The replies of a log that is followed; the call has begun when it has been made. `cancel` ends it, from any
    thread."""

    def __init__(
        self, client: Client, request: pb.LogsRequest, patience: float, say: Callable[[str], None] = complain
    ) -> None:
        """`patience`: the seconds to wait for exitd when it goes away. Raises ExitdError."""
        request.positions = request.follow
        self._client = client
        self._request = request
        self._patience = patience
        self._say = say
        self._progress = Progress()
        self._cancelled = False
        self._log: AnswerStream = client.logs(request)

    def cancel(self) -> None:
        self._cancelled = True
        self._log.cancel()

    def __iter__(self) -> Iterator[pb.LogsReply]:
        """Yield what is to be shown. Raises ExitdError."""
        while True:
            try:
                yield from self._of_this_call()
                return
            except GONE as error:
                if self._cancelled:
                    return
                if not self._progress.may_go_on or not self._request.follow:
                    raise
                self._again(error)

    def _of_this_call(self) -> Iterator[pb.LogsReply]:
        for reply in self._log:
            if reply.gap:
                self._progress.give_up_skipping()
                self._say(GAP)
            if (shown := self._progress.take(reply)) is not None:
                yield shown

    def _again(self, error: ExitdError) -> None:
        """Raises `error` once exitd was away for too long, or the command has had enough."""
        await_return(self._client, self._patience, error, say=self._say, over=lambda: self._cancelled)
        self._progress.begin_again()
        if (position := self._progress.position) is not None:
            self._request.after.CopyFrom(position)
        self._log = self._client.logs(self._request)
        if self._cancelled:
            self._log.cancel()
