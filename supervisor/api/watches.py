"""The methods of service Exitd about what exitd watches and does not run. Knows nothing of gRPC."""

from typing import Protocol

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api import replies, requests
from supervisor.api.values import clean, timestamp
from supervisor.model.errors import BadRequest
from supervisor.model.values import By
from supervisor.model.watched import NODE, Kind, WatchView


class Watches(Protocol):
    """What the API asks of the owner of watches."""

    async def watch(self, kind: Kind, where: str, by: By) -> WatchView: ...
    def watches(self) -> list[WatchView]: ...
    async def end(self, where: str) -> WatchView: ...
    def last_seq(self) -> int:
        """Return the number of the newest event."""


class WatchServicer:
    """Answers the calls about what exitd watches and does not run."""

    def __init__(self, watches: Watches) -> None:
        self._watched = watches

    async def Watch(self, request: pb.WatchRequest, by: By) -> pb.WatchReply:
        kind, where = target_of(request)
        seq = self._watched.last_seq() + 1
        return pb.WatchReply(watch=watch_message(await self._watched.watch(kind, where, by)), seq=seq)

    async def Watches(self, request: pb.WatchesRequest, by: By) -> pb.WatchesReply:
        return pb.WatchesReply(watches=map(watch_message, self._watched.watches()))

    async def EndWatch(self, request: pb.EndWatchRequest, by: By) -> pb.EndWatchReply:
        return pb.EndWatchReply(watch=watch_message(await self._watched.end(request.target)))


def target_of(request: pb.WatchRequest) -> tuple[Kind, str]:
    """Return the one target of the request. Raises BadRequest unless it has exactly one."""
    requests.refuse_nul(request)
    pid = [(Kind.PID, str(request.pid))] if request.pid else []
    paths = [(Kind.CONTAINERD, request.containerd), (Kind.RUNC_ROOT, request.runc_root)]
    node = [(Kind.NODE, NODE)] if request.node else []
    given = [*pid, *((kind, where) for kind, where in paths if where), *node]
    if len(given) != 1:
        raise BadRequest("pid, containerd, runc_root, node: exactly one of them is to be given", field="pid")
    if request.pid < 0:
        raise BadRequest(f"pid {request.pid} is no process id", field="pid")
    return given[0]


def watch_message(view: WatchView) -> pb.Watch:
    return pb.Watch(
        target=clean(view.target.where),
        kind=str(view.target.kind),
        since=timestamp(view.target.since_ns),
        processes=view.processes,
        exits=view.exits,
        trouble=clean(view.trouble),
        by=replies.by_message(view.target.by),
        found_by=clean(view.target.found_by),
    )
