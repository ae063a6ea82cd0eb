"""Watches over the API: each call reaches its owner, and each answer is whole."""

from pathlib import Path

import pytest

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api.watches import target_of
from supervisor.model.errors import BadRequest
from supervisor.model.watched import Kind
from tests.supervisor.api.rig import Rig, run


def test_a_watch_is_asked_for_listed_and_ended(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        reply = await rig.exitd.Watch(pb.WatchRequest(pid=70))
        listed = (await rig.exitd.Watches(pb.WatchesRequest())).watches
        ended = (await rig.exitd.EndWatch(pb.EndWatchRequest(target="70"))).watch
        assert reply.seq == 42  # the first event that may be of this watch
        assert [reply.watch] == list(listed) == [ended]
        assert (ended.target, ended.kind, ended.processes, ended.exits, ended.trouble) == ("70", "pid", 1, 2, "trouble")
        assert ended.HasField("since") and ended.by.uid == 0
        assert rig.node.asked == [("watch", Kind.PID, "70"), ("end_watch", "70")]

    run(tmp_path, test)


@pytest.mark.parametrize(
    ("request_", "target"),
    [
        (pb.WatchRequest(pid=7), (Kind.PID, "7")),
        (pb.WatchRequest(containerd="/c.sock"), (Kind.CONTAINERD, "/c.sock")),
        (pb.WatchRequest(runc_root="/run/runc"), (Kind.RUNC_ROOT, "/run/runc")),
    ],
)
def test_a_target_is_one_of_three(request_: pb.WatchRequest, target: tuple[Kind, str]) -> None:
    assert target_of(request_) == target


@pytest.mark.parametrize(
    "request_",
    [
        pb.WatchRequest(),
        pb.WatchRequest(pid=-7),
        pb.WatchRequest(pid=7, containerd="/c"),
        pb.WatchRequest(containerd="/c", runc_root="/r"),
        pb.WatchRequest(runc_root="/r\0"),
    ],
)
def test_anything_else_is_refused(request_: pb.WatchRequest) -> None:
    with pytest.raises(BadRequest):
        target_of(request_)
