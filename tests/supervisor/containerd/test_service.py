"""What is said of the end of a task that is removed: what is stored, or that nothing is known."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from protos.containerd import task_pb2 as pb
from supervisor.containerd import making
from supervisor.containerd.callers import Caller, Hello
from supervisor.containerd.publish import Publisher
from supervisor.containerd.service import TaskService
from supervisor.containerd.tasks import STOPPED, TaskLook
from supervisor.model.errors import RuntimeFailed
from supervisor.model.lifecycle import RemoveAsked
from supervisor.model.taskfacts import Task
from supervisor.model.values import UNKNOWN_NUMBER, By, Exited, Phase, Spec
from supervisor.ttrpc.faults import CallFailed
from tests.supervisor.fakes import World, in_loop, until, world


def service(w: World) -> TaskService:
    """Of these parts, which are all that a removal asks."""
    services = SimpleNamespace(containers=None, ending=None)
    given: Any = SimpleNamespace(runs=w.runs, manager=w.manager, services=services, execs=None, streams=None)
    given.state, given.asides, given.task_execs = "", making.Asides(), None
    return TaskService(given)


@in_loop
async def test_a_task_that_was_never_made_has_no_code_when_it_is_given_up_amid_its_clean_up(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        w.manager.fails["create"] = [RuntimeFailed("no")]
        gate = w.manager.gates["delete"] = asyncio.Event()
        c = await w.node.add(Spec(name="web", task=Task(str(tmp_path))))
        making_it = asyncio.create_task(w.runs.make(c.id))
        await until(lambda: w.node.containers[c.id].phase is Phase.REMOVING)
        removing = asyncio.create_task(service(w).remove(w.node.containers[c.id], By(), ""))
        await asyncio.sleep(0)
        gate.set()
        found = await removing
        await asyncio.wait([making_it])
        assert making_it.exception() is not None
        assert (found.status, found.pid, found.code) == (STOPPED, 0, UNKNOWN_NUMBER) and found.at_ns


@in_loop
async def test_a_task_that_has_ended_and_gone_meanwhile_has_the_code_that_is_stored(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        id = await w.running(Spec(name="web", task=Task(str(tmp_path))))
        as_seen = w.node.containers[id]
        w.manager.ends(id, status=Exited(7))
        await until(lambda: w.node.containers[id].clean)
        await w.node.apply(id, RemoveAsked(By()))
        await until(lambda: id not in w.node.containers)
        (exit,) = await w.store.exits()
        assert await service(w)._end_of(as_seen) == TaskLook(STOPPED, 40, 7, exit.at_ns)


@in_loop
async def test_a_relay_is_not_kept_by_a_task_that_containerd_has_given_up(tmp_path: Path) -> None:
    """Its Shutdown comes once, and perhaps before exitd has removed that task."""
    async with world(tmp_path) as w:
        publisher = Publisher(w.events, str(tmp_path), w.clock.boot_id())
        id = await w.running(Spec(name="web", task=Task(str(tmp_path), relay="r")))
        assert not service(w).is_unused("r", publisher.has_dropped)
        publisher.drop(w.node.containers[id])
        assert service(w).is_unused("r", publisher.has_dropped)
        await publisher.close()


def caller(relay: str, stream: int) -> Caller:
    return Caller(Hello(relay, 1, (), 1, "default", ""), f"{relay}/1/{stream}", 0, By())


@in_loop
async def test_who_asks_again_for_a_deletion_whose_answer_was_lost_is_given_it(tmp_path: Path) -> None:
    """By another request of the same relay, since the first has failed: exitd ended twice while it answered. Where
    there is no such task containerd publishes its end itself, for the second time."""

    async with world(tmp_path) as w:
        id = await w.running(Spec(name="web", task=Task(str(tmp_path), relay="r")))
        w.manager.ends(id, status=Exited(7))
        await until(lambda: w.node.containers[id].clean)
        tasks, request = service(w), pb.DeleteRequest(id="web")
        answer = await tasks.delete(request, caller("r", 33))
        assert answer.exit_status == 7
        for stream in (33, 49):
            assert await tasks.delete(request, caller("r", stream)) == answer
        with pytest.raises(CallFailed, match="not found"):  # another one's task of that name
            await tasks.delete(request, caller("q", 33))
        await w.store.forget_tombstones("relay = ?", "r")  # it was confirmed
        with pytest.raises(CallFailed, match="not found"):
            await tasks.delete(request, caller("r", 49))


@in_loop
async def test_who_asks_again_for_a_deletion_that_is_under_way_is_given_its_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By another request, as above; its exitd has not done with the files of the task."""
    async with world(tmp_path) as w:
        id = await w.running(Spec(name="web", task=Task(str(tmp_path), relay="r")))
        w.manager.ends(id, status=Exited(7))
        await until(lambda: w.node.containers[id].clean)
        gate, discard = asyncio.Event(), w.manager.discard

        async def held(container: str, *, is_pod: bool = True) -> None:
            await gate.wait()
            await discard(container, is_pod=is_pod)

        monkeypatch.setattr(w.manager, "discard", held)
        request = pb.DeleteRequest(id="web")
        first = asyncio.create_task(service(w).delete(request, caller("r", 33)))
        await until(lambda: w.node.containers[id].phase is Phase.REMOVING)
        again, other = (asyncio.create_task(service(w).delete(request, caller(*of))) for of in (("r", 49), ("q", 33)))
        await asyncio.sleep(0)
        gate.set()
        answer = await first
        assert answer.exit_status == 7 and await again == answer
        with pytest.raises(CallFailed, match="not found"):  # through another relay: another request, not that one again
            await other
