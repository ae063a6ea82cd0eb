import asyncio
import itertools
from dataclasses import replace
from pathlib import Path

import pytest

from supervisor.engine import recovery
from supervisor.engine.participants import Participant
from supervisor.engine.recovery import A_TURN, recover
from supervisor.model.errors import RuntimeFailed, ShimFailed
from supervisor.model.values import LIVE, Container, Exited, Phase, Reason, Source, Spec, Unknown
from supervisor.monitor.earlyholds import EarlyHolds
from supervisor.monitor.kernelword import BY_PIDFD
from supervisor.runtime.sandbox import Found
from supervisor.store.database import Transaction
from tests.supervisor.children import child, name_of
from tests.supervisor.exec_fakes import exec_world
from tests.supervisor.fakes import World, hasty, until, world
from tests.supervisor.happenings import container

__all__ = ["hasty"]


@pytest.fixture(autouse=True)
def at_once(hasty: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery, "AGAIN_SECONDS", (0.01,))


async def recovered(w: World, *stored: Container) -> None:
    await w.store.commit(Transaction(tuple(stored)))
    await recover(w.runs, "")
    assert set(w.node.containers) == {each.id for each in stored}
    await until(lambda: not w.node.containers.recovering and not w.node.background, "the look-up")


def calls(w: World) -> list[str]:
    return [call[0] for call in w.manager.calls]


LIVING = sorted(LIVE)


@pytest.mark.parametrize("phase", LIVING)
def test_what_lives_goes_on(tmp_path: Path, phase: Phase) -> None:
    """A start that the daemon did not see to its end is made up for."""

    async def main() -> None:
        async with world(tmp_path) as w:
            await recovered(w, container(phase))
            going_on = Phase.RUNNING if phase is Phase.STARTING else phase
            assert w.node.containers["c1"].phase is going_on
            assert calls(w) == (["connect", "state", "start"] if phase is Phase.STARTING else ["connect"])
            assert await w.store.exits() == []
            assert w.exits._held == {}

    asyncio.run(main())


@pytest.mark.parametrize(
    ("stored", "frozen", "phase", "events"),
    [
        (Phase.RUNNING, True, Phase.PAUSED, ["pause"]),
        (Phase.PAUSED, False, Phase.RUNNING, ["resume"]),
        (Phase.RUNNING, False, Phase.RUNNING, []),
        (Phase.PAUSED, True, Phase.PAUSED, []),
    ],
)
def test_a_pause_or_resume_that_was_done_and_not_stored_is_made_up_for(
    tmp_path: Path, stored: Phase, frozen: bool, phase: Phase, events: list[str]
) -> None:
    async def main() -> None:
        async with world(tmp_path) as w:
            w.manager.frozen["c1"] = frozen
            await recovered(w, container(stored))
            assert (w.node.containers["c1"].phase, await w.event_types()) == (phase, events)
            (row,) = await w.store.load()
            assert row.phase is phase

    asyncio.run(main())


def test_a_container_of_which_nobody_can_tell_whether_it_is_paused_goes_on_as_it_was(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as w:
            w.manager.fails["is_paused"] = [RuntimeFailed("no state")]
            await recovered(w, container(Phase.PAUSED))
            assert (w.node.containers["c1"].phase, calls(w)) == (Phase.PAUSED, ["connect"])

    asyncio.run(main())


@pytest.mark.parametrize(("run", "phase"), [(1, Phase.CREATED), (2, Phase.RUNNING)])
def test_what_was_made_to_be_started_again_is_started(tmp_path: Path, run: int, phase: Phase) -> None:
    """A first run is made for whoever starts it."""

    async def main() -> None:
        async with world(tmp_path) as w:
            await recovered(w, container(Phase.CREATED, run=run))
            assert w.node.containers["c1"].phase is phase

    asyncio.run(main())


def test_whoever_follows_changes_is_told_once_a_container_has_been_looked_up(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as w:
            seen: list[tuple[str, bool]] = []

            class Listener(Participant):
                def changed(self, container: Container) -> None:
                    seen.append((container.id, container.id in w.node.containers.recovering))

            w.join(Listener())
            await recovered(w, container())
            assert seen == [("c1", False)]

    asyncio.run(main())


@pytest.mark.parametrize("phase", LIVING)
def test_what_ended_meanwhile_is_reported_once_with_its_true_code(tmp_path: Path, phase: Phase) -> None:
    async def main() -> None:
        async with world(tmp_path) as w:
            w.manager.found["c1"] = Found.ENDED
            w.manager.on_connect = lambda c: w.manager.ends(c.id, status=Exited(43))
            await recovered(w, container(phase))
            (exit,) = await w.store.exits()
            assert (exit.status, exit.source) == (Exited(43), Source.RECORD)
            assert w.node.containers["c1"].phase is Phase.EXITED
            assert await w.event_types() == (["start", "exit"] if phase is Phase.STARTING else ["exit"])
            assert calls(w) == ["connect", "settle", "delete"]

    asyncio.run(main())


@pytest.mark.parametrize("phase", LIVING)
def test_what_left_nothing_is_unknown(tmp_path: Path, phase: Phase) -> None:
    async def main() -> None:
        async with world(tmp_path) as w:
            w.manager.found["c1"] = Found.NOTHING
            await recovered(w, container(phase))
            (exit,) = await w.store.exits()
            assert (exit.status, exit.source) == (Unknown("monitors-killed"), Source.NONE)
            assert await w.event_types() == ["exit"]

    asyncio.run(main())


@pytest.mark.parametrize("phase", LIVING)
def test_whatever_ran_before_a_reboot_has_ended_and_nobody_saw_how(tmp_path: Path, phase: Phase) -> None:
    async def main() -> None:
        async with world(tmp_path, boot="new") as w:
            await recovered(w, container(phase))
            (exit,) = await w.store.exits()
            assert (exit.status, exit.reason) == (Unknown("host-rebooted"), Reason.UNKNOWN)
            assert w.node.containers["c1"].boot_id == "new"
            assert calls(w) == ["settle", "delete"]

    asyncio.run(main())


@pytest.mark.parametrize("boot", ["boot", "new"])
def test_a_create_that_the_daemon_did_not_finish_leaves_nothing(tmp_path: Path, boot: str) -> None:
    async def main() -> None:
        async with world(tmp_path, boot=boot) as w:
            await recovered(w, container(Phase.CREATING))
            await until(lambda: not w.node.containers)
            assert (await w.event_types(), w.manager.discarded) == (["failed", "remove"], ["c1"])

    asyncio.run(main())


@pytest.mark.parametrize("boot", ["boot", "new"])
@pytest.mark.parametrize("clean", [True, False])
def test_a_removal_goes_on_where_it_was(tmp_path: Path, boot: str, clean: bool) -> None:
    async def main() -> None:
        async with world(tmp_path, boot=boot) as w:
            await recovered(w, replace(container(Phase.REMOVING), clean=clean))
            await until(lambda: not w.node.containers)
            assert (calls(w), w.manager.discarded) == ([] if clean else ["settle", "delete"], ["c1"])

    asyncio.run(main())


@pytest.mark.parametrize("clean", [True, False])
def test_an_ended_container_is_cleaned_up_and_otherwise_left_alone(tmp_path: Path, clean: bool) -> None:
    async def main() -> None:
        async with world(tmp_path) as w:
            stored = replace(container(Phase.EXITED, policy="always"), clean=clean)
            await recovered(w, stored)
            assert w.node.containers["c1"] == replace(stored, clean=True)
            assert calls(w) == ([] if clean else ["settle", "delete"])

    asyncio.run(main())


@pytest.mark.parametrize("boot", ["boot", "new"])
@pytest.mark.parametrize("clean", [True, False])
def test_a_planned_restart_happens(tmp_path: Path, boot: str, clean: bool) -> None:
    async def main() -> None:
        async with world(tmp_path, boot=boot) as w:
            await recovered(w, replace(container(Phase.RESTARTING, policy="always"), clean=clean))
            await until(lambda: w.node.containers["c1"].phase is Phase.RUNNING)
            assert (w.node.containers["c1"].run, w.node.containers["c1"].boot_id) == (2, boot)

    asyncio.run(main())


@pytest.mark.parametrize(("policy", "stopped", "comes_back"), [("always", True, True), ("unless-stopped", True, False)])
def test_after_a_reboot_the_policy_looks_at_ended_containers_once(
    tmp_path: Path, policy: str, stopped: bool, comes_back: bool
) -> None:
    async def main() -> None:
        stored = replace(container(Phase.EXITED, policy=policy), stopped_by_user=stopped)
        async with world(tmp_path, boot="new") as w:
            await recovered(w, stored)
            assert w.node.containers["c1"].boot_id == "new"
            assert (w.node.containers["c1"].phase is not Phase.EXITED) is comes_back
        if not comes_back:
            async with world(tmp_path, boot="new") as w:
                await recover(w.runs, "")
                assert not w.node.containers.recovering

    asyncio.run(main())


def test_a_start_that_was_done_is_not_done_again(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as w:
            w.manager.states["c1"] = "running"
            await recovered(w, container(Phase.STARTING))
            assert calls(w) == ["connect", "state"]
            assert w.node.containers["c1"].phase is Phase.RUNNING

    asyncio.run(main())


def test_a_start_that_fails_in_recovery_kills_the_init(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as w:
            w.manager.fails["start"] = [RuntimeFailed("broken")]
            await recovered(w, container(Phase.STARTING))
            assert calls(w) == ["connect", "state", "start", "state", "kill"]
            assert w.exits._held == {}
            w.manager.ends("c1")
            await until(lambda: w.node.containers["c1"].phase is Phase.EXITED)

    asyncio.run(main())


@pytest.mark.parametrize("phase", LIVING)
def test_a_look_up_that_fails_is_tried_again_and_the_container_shown_as_recovering(
    tmp_path: Path, phase: Phase
) -> None:
    async def main() -> None:
        async with world(tmp_path) as w:
            w.manager.fails["connect"] = [OSError(24, "no descriptors"), ShimFailed("silent")]
            w.manager.gates["connect"] = asyncio.Event()
            await w.store.commit(Transaction((container(phase),)))
            await recover(w.runs, "")
            await until(lambda: w.manager.count("connect"))
            assert "c1" in w.node.containers.recovering
            w.manager.gates["connect"].set()
            await until(lambda: not w.node.containers.recovering)
            assert calls(w)[:5] == ["connect", "forget", "connect", "forget", "connect"]

    asyncio.run(main())


def test_one_silent_look_up_holds_up_nobody_else_and_has_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with world(tmp_path) as w:
            silent = replace(container(), id="silent", spec=replace(container().spec, name="silent"))
            w.manager.gates["connect"] = asyncio.Event()
            monkeypatch.setattr(recovery, "FIND_SECONDS", 0.05)
            await w.store.commit(Transaction((silent, replace(container(Phase.EXITED), clean=False))))
            await recover(w.runs, "")
            await until(lambda: set(w.node.containers.recovering) == {"silent"})
            await until(lambda: w.manager.count("connect") >= 3)  # given up and begun again
            w.manager.gates["connect"].set()
            await until(lambda: not w.node.containers.recovering)

    asyncio.run(main())


def test_an_end_found_in_recovery_waits_for_the_disk_however_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with world(tmp_path, boot="new") as w:
            monkeypatch.setattr(recovery, "FIND_SECONDS", 0.01)
            await w.store.commit(Transaction((container(),)))
            w.store.refusals = 10
            await recover(w.runs, "")
            await until(lambda: w.health == [False, True])
            assert len(await w.store.exits()) == 1

    asyncio.run(main())


def test_two_hundred_containers_are_looked_up_at_once(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as w:
            one = container()
            many = [replace(one, id=f"c{n}", spec=replace(one.spec, name=f"c{n}")) for n in range(200)]
            w.manager.gates["connect"] = asyncio.Event()
            await w.store.commit(Transaction(tuple(many)))
            await recover(w.runs, "")
            await until(lambda: w.manager.count("connect") == 200)
            w.manager.gates["connect"].set()
            await until(lambda: not w.node.containers.recovering)

    asyncio.run(main())


def test_what_nothing_watches_is_looked_at_until_it_has_gone(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as w:
            w.manager.found["c1"] = Found.UNWATCHED
            await recovered(w, replace(container(), damaged="its row cannot be read"))
            await recovery.look_at_unwatched(w.runs)
            w.manager.fails["connect"] = [ShimFailed("no keeper"), OSError("no descriptors")]
            for _ in range(2):
                await recovery.look_at_unwatched(w.runs)
            assert w.node.containers["c1"].phase is Phase.RUNNING
            w.manager.found["c1"] = Found.NOTHING
            for _ in range(2):
                await recovery.look_at_unwatched(w.runs)
            await until(lambda: not w.node.background, "the end")
            (exit,) = await w.store.exits()
            assert (exit.status, exit.source, exit.at_is_found) == (Unknown("row-damaged"), Source.NONE, True)
            assert (calls(w).count("connect"), w.node.containers.unwatched) == (5, set())

    asyncio.run(main())


@pytest.mark.parametrize("how", ["ended", "gone", "another run"])
def test_what_has_ended_otherwise_is_not_looked_at_any_more(tmp_path: Path, how: str) -> None:
    async def main() -> None:
        async with world(tmp_path) as w:
            w.manager.found["c1"] = Found.UNWATCHED
            await recovered(w, replace(container(), damaged="its row cannot be read"))
            now = w.node.containers["c1"]
            if how == "gone":
                w.node.containers.pop("c1")
            else:
                w.node.containers["c1"] = replace(now, phase=Phase.EXITED) if how == "ended" else replace(now, run=2)
            w.manager.found["c1"] = Found.NOTHING
            await recovery.look_at_unwatched(w.runs)
            assert (calls(w), w.node.containers.unwatched, await w.store.exits()) == (["connect"], set(), [])

    asyncio.run(main())


def _numbered(number: int) -> Container:
    one = container(Phase.RUNNING)
    return replace(one, id=f"c{number}", spec=replace(one.spec, name=f"web{number}"))


def test_a_call_is_answered_before_all_look_ups_have_begun(tmp_path: Path) -> None:
    """Each keeps the loop for a while, and there may be hundreds."""

    async def main() -> None:
        async with world(tmp_path) as w:
            many = [_numbered(number) for number in range(10 * A_TURN)]
            await w.store.commit(Transaction(tuple(many)))
            await recover(w.runs, "")
            begun: list[int] = []
            while not begun or begun[-1] < len(many):
                await asyncio.sleep(0)
                begun.append(len(w.manager.calls))
            assert max(after - before for before, after in itertools.pairwise([0, *begun])) <= A_TURN
            await until(lambda: not w.node.containers.recovering and not w.node.background, "the look-up")

    asyncio.run(main())


def test_what_lived_on_this_boot_is_held_before_it_is_looked_up_and_let_go_afterwards(tmp_path: Path) -> None:
    async def main() -> None:
        with child() as running, child() as ended, child() as elsewhere:
            names = [name_of(each) for each in (running, ended, elsewhere)]
            stored = [
                replace(container(Phase.RUNNING), init=names[0]),
                replace(container(Phase.EXITED), id="c2", spec=Spec(name="c2"), init=names[1], clean=False),
                replace(container(Phase.RUNNING), id="c3", spec=Spec(name="c3"), init=names[2], boot_id="earlier"),
            ]
            async with exec_world(tmp_path) as x:
                early = EarlyHolds(BY_PIDFD)
                await x.w.store.commit(Transaction(tuple(stored)))
                damaged = await recovery.load(x.w.node, "")
                held = recovery.HeldBefore(x.w.node, x.execs, early)
                x.w.node.join(x.execs, held)
                held.begin()
                assert list(early._held) == [names[0]]
                recovery.look_up(x.w.runs, damaged)
                await until(lambda: not x.w.node.containers.recovering, "the look-up")
                assert not early._held

    asyncio.run(main())
