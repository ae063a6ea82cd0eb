"""exitd and containerd are killed and stopped while tasks live under a real containerd: no call fails for it,
no event is missing or told twice, and every end has the code that the program gave itself."""

import os
import select
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.system import observedpods
from tests.system.containerdrig import EXITD, Box, Containerd, containerd, for_one_test
from tests.system.daemonrig import LIMIT_SECONDS, SCALE, until
from tests.system.gates import Gates, stopped
from tests.system.kill_matrix.calls import CALLS, calls_of, chosen, hit_at
from tests.system.kill_matrix.table import Case, cases, row
from tests.system.kill_matrix.tasklife import SECONDS, Execs, Life, Reviver, judge, ledger

TALK = ("sendto", "recvfrom", "write")  # with relays and their containerd; and the notes of what was told


@pytest.fixture(scope="module")
def running() -> Iterator[Containerd]:
    with containerd() as made:
        made.with_exitd()
        yield made


@pytest.fixture
def rig(running: Containerd) -> Iterator[Containerd]:
    with for_one_test(running) as made:
        yield made


def allowed(rig: Containerd) -> float:
    """The two seconds, and several times what this machine takes at the moment for a restart and an answer when nothing
    is going on: other tests come and go meanwhile. How late it was is printed."""
    assert rig.exitd is not None
    plain = Life(rig.box(EXITD, "plain")).live()
    rig.exitd.kill()
    begun = time.monotonic()
    rig.exitd.start()
    return SECONDS + 4 * (plain.slowest + time.monotonic() - begun)


def plain_life(rig: Containerd) -> None:
    Life(rig.box(EXITD, "learn")).live()


@pytest.mark.parametrize("calls", [CALLS, TALK], ids=["any", "talk"])
def test_exitd_killed_at_any_system_call_of_a_tasks_life_is_not_noticed(
    rig: Containerd, calls: tuple[str, ...]
) -> None:
    limit, daemon = allowed(rig), rig.with_exitd()
    deaths, latest = 0, 0.0
    tried = chosen(calls_of(daemon, lambda: plain_life(rig), calls), row("task, at calls").count)
    for call in tried:
        life = Life(rig.box(EXITD, "call"))
        with rig.events() as events, Reviver(daemon) as reviver:
            with hit_at(daemon, call):
                life.live()
            told = events.wait(life.box.id, "/tasks/delete") and events.settled().of(life.box.id)
        judge(life, told, str(call))
        assert life.late(reviver.back) <= limit, f"{call}: {life.steps}, back {reviver.back}"
        deaths, latest = deaths + len(reviver.back), max(latest, life.late(reviver.back))
        rig.left_is()
    print(len(tried), deaths, f"{latest:.2f} of {limit:.2f} s")
    assert deaths


def test_exitd_killed_while_the_runtime_works_is_not_noticed(rig: Containerd) -> None:
    """Its commands go on, before exitd is there again or after that."""
    limit, daemon = allowed(rig), rig.with_exitd()
    for case in cases("task"):
        with observedpods.gated(daemon) as gates, rig.events() as events, Reviver(daemon) as reviver:
            options = gates.directory / "options.toml"
            options.write_text(f'BinaryName = "{gates.runtime}"\n')
            life = Life(rig.box(EXITD, "gate"), ("--runtime-config-path", str(options)))
            gates.close(command(case))
            with ThreadPoolExecutor(1) as pool:
                killing = pool.submit(kill_at, gates, case, reviver)
                life.live()
                killing.result(LIMIT_SECONDS)
            told = events.wait(life.box.id, "/tasks/delete") and events.settled().of(life.box.id)
        judge(life, told, str(case))
        assert len(reviver.back) == 1 and life.late(reviver.back) <= limit, f"{case}: {life.steps}"
        rig.left_is()


def test_exitd_killed_at_any_system_call_of_an_execs_life_runs_it_once_and_nobody_notices(rig: Containerd) -> None:
    limit, daemon = allowed(rig), rig.with_exitd()
    box = rig.box(EXITD, "execs").started("--null-io", "--", "sleep", "1000")
    execs, deaths = Execs(box), 0
    tried = chosen(calls_of(daemon, execs.live), row("task, an exec at calls").count)
    for call in tried:
        with rig.events() as events, Reviver(daemon) as reviver:
            with hit_at(daemon, call):
                execs.live()
            over = time.monotonic()
            told = events.wait(box.id, "/tasks/exit") and events.settled().of(box.id)
        execs.judge(told, str(call))
        late = max((over - at for at in reviver.back[-1:]), default=0.0)
        assert late <= limit, f"{call}: {late:.2f} s"
        deaths += len(reviver.back)
    print(len(tried), deaths, f"limit {limit:.2f} s")
    assert deaths
    box.end()
    rig.left_is()


@pytest.mark.parametrize("case", cases("task, an exec"), ids=str)
def test_exitd_killed_while_the_runtime_begins_an_exec_runs_it_once_and_nobody_notices(
    rig: Containerd, case: Case
) -> None:
    """Before it has begun its shim has opened its fifos already."""
    with observedpods.gated(rig.with_exitd()) as gates:
        (options := gates.directory / "options.toml").write_text(f'BinaryName = "{gates.runtime}"\n')
        words = ("--null-io", "--runtime-config-path", str(options), "--", "sleep", "1000")
        execs = Execs(box := rig.box(EXITD, "execs").started(*words))
        gates.close(command(case))
        with rig.events() as events, Reviver(rig.with_exitd()) as reviver, ThreadPoolExecutor(1) as pool:
            killing = pool.submit(kill_at, gates, case, reviver)
            execs.live()
            killing.result(LIMIT_SECONDS)
            told = events.wait(box.id, "/tasks/exit") and events.settled().of(box.id)
        execs.judge(told, str(case))
        assert len(reviver.back) == 1
        box.end()
    rig.left_is()


def command(case: Case) -> str:
    """At which the runtime halts."""
    return case.moment.removesuffix(" and back")


def kill_at(gates: Gates, case: Case, reviver: Reviver) -> None:
    gates.reached(command(case))
    reviver.kill(back=case.moment.endswith(" and back"))
    gates.open()


WAITING = "until [ -e /mnt/go ]; do sleep 0.02; done; exit {}"
STANDS_SECONDS = 60.0 if SCALE >= 1 else 8.0


def waiting(rig: Containerd, code: int) -> Box:
    """One that ends with this code when it finds a file of its name in the rig's directory `go`."""
    box = rig.box(EXITD, "waiting")
    (place := rig.base / f"go-{box.id}").mkdir()
    mount = ("--mount", f"type=bind,src={place},dst=/mnt,options=rbind")
    return box.started("--null-io", *mount, "--", "sh", "-c", WAITING.format(code))


def told_to_go(box: Box) -> None:
    (box.rig.base / f"go-{box.id}" / "go").touch()


def test_while_exitd_stands_still_containerd_may_be_killed_and_no_container_dies(rig: Containerd) -> None:
    """Who waits meanwhile is answered afterwards, with the true codes."""
    daemon = rig.with_exitd()
    boxes = [waiting(rig, code) for code in (11, 12, 13)]
    pids = [box.pid for box in boxes]
    over = [os.pidfd_open(pid) for pid in pids]
    with stopped(daemon.pid):
        begun = time.monotonic()
        rig.restart()
        waits = [rig.begin("task", "attach", box.id) for box in boxes]
        told_to_go(boxes[0])
        until(lambda: select.select(over[:1], [], [], 0)[0], "it has not ended")
        select.select(over[1:], [], [], STANDS_SECONDS - (time.monotonic() - begun))
        assert not select.select(over[1:], [], [], 0)[0], "a container has died"
        assert all(each.poll() is None for each in waits), [each.communicate() for each in waits]
    for box in boxes[1:]:
        told_to_go(box)
    said = [each.communicate(timeout=LIMIT_SECONDS) for each in waits]
    assert [each.returncode for each in waits] == [11, 12, 13], said
    rows = [[(row.kind, row.code, row.init.pid) for row in ledger(box)] for box in boxes]
    assert rows == [[("exited", code, pid)] for code, pid in zip((11, 12, 13), pids, strict=True)]
    for fd in over:
        os.close(fd)
    for box in boxes:
        box.end()
    rig.left_is()
