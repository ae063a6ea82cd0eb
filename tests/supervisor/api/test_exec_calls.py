"""Execs over the API: each call reaches its owner, and each answer is whole."""

from pathlib import Path

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.model.errors import WrongState
from supervisor.model.execs import ExecSpec
from tests.supervisor.api.rig import Rig, reason, refused, run


def test_an_exec_is_begun_with_what_was_asked_and_shown_as_it_runs(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        spec = pb.ExecSpec(args=["sh"], env=["A=1"], timeout_seconds=0.5)
        reply = await rig.exitd.Exec(pb.ExecRequest(id="web", spec=spec))
        assert rig.node.asked[-1][:3] == ("exec", "web", ExecSpec(("sh",), ("A=1",), timeout_seconds=0.5))
        assert (reply.exec.id, reply.exec.container_id, reply.exec.phase) == ("e1", "web", "running")
        assert reply.exec.spec == spec

    run(tmp_path, test)


def test_a_signal_and_a_wait_with_an_exec_id_mean_the_exec(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        await rig.exitd.Kill(pb.KillRequest(id="web", exec_id="e1", signal="TERM", all=True))
        assert rig.node.asked[-1][:5] == ("kill_exec", "web", "e1", 15, True)
        reply = await rig.exitd.Wait(pb.WaitRequest(id="web", exec_id="e1", run=4))
        assert rig.node.asked[-1] == ("wait_exec", "web", "e1", 4)
        assert reply.exit.code == 3

    run(tmp_path, test)


def test_what_cannot_be_asked_of_an_exec_is_refused(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        for call in (
            rig.exitd.Wait(pb.WaitRequest(id="web", exec_id="e1", condition="removed")),
            rig.exitd.Wait(pb.WaitRequest(id="web", exec_id="no id/")),
            rig.exitd.Kill(pb.KillRequest(id="web", exec_id="no id/")),
            rig.exitd.Exec(pb.ExecRequest(id="web")),
        ):
            assert reason(await refused(call)).reason == "BAD_REQUEST"
        rig.node.failure = WrongState("web is paused; resume it first")
        request = pb.ExecRequest(id="web", spec=pb.ExecSpec(args=["sh"]))
        assert reason(await refused(rig.exitd.Exec(request))).reason == "WRONG_STATE"

    run(tmp_path, test)
