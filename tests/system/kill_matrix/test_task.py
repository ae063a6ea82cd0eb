"""exitd and containerd are killed and stopped while tasks live under a real containerd: no call fails for it,
no event is missing or reported twice, and every end has the code that the program gave itself."""

import os
import select
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.system.containerd.server import EXITD, Box, Containerd
from tests.system.kill_matrix.calls import CALLS, calls_of, chosen, hit_at
from tests.system.kill_matrix.table import Case, cases, row
from tests.system.kill_matrix.tasklife import SECONDS, Execs, Life, Reviver, judge, ledger
from tests.system.processes import stopped
from tests.system.runtimes import Gates, gated
from tests.system.waits import LIMIT_SECONDS, SCALE, until

TALK = ("sendto", "recvfrom", "write")  # with relays and their containerd; and the notes of what was told


def allowed(containerd: Containerd) -> float:
    """The two seconds, and several times what this machine takes at the moment for a restart and an answer when nothing
    is going on: other tests come and go meanwhile. How late it was is printed."""
    plain, daemon = Life(containerd.box(EXITD, "plain")).live(), containerd.with_exitd()
    daemon.kill()
    begun = time.monotonic()
    daemon.start()
    return SECONDS + 4 * (plain.slowest + time.monotonic() - begun)


def plain_life(containerd: Containerd) -> None:
    Life(containerd.box(EXITD, "learn")).live()


@pytest.mark.parametrize("calls", [CALLS, TALK], ids=["any", "talk"])
def test_exitd_killed_at_any_system_call_of_a_tasks_life_is_not_noticed(
    containerd: Containerd, calls: tuple[str, ...]
) -> None:
    limit, daemon = allowed(containerd), containerd.with_exitd()
    deaths, latest = 0, 0.0
    tried = chosen(calls_of(daemon, lambda: plain_life(containerd), calls), row("task, at calls").count)
    for call in tried:
        life = Life(containerd.box(EXITD, "call"))
        with containerd.events() as events:
            with hit_at(daemon, call), Reviver(daemon) as reviver:
                life.live()
            told = events.wait(life.box.id, "/tasks/delete") and events.settled().of(life.box.id)
        judge(life, told, str(call))
        assert life.late(reviver.back) <= limit, f"{call}: {life.steps}, back {reviver.back}"
        deaths, latest = deaths + len(reviver.back), max(latest, life.late(reviver.back))
        containerd.left_is()
    print(len(tried), deaths, f"{latest:.2f} of {limit:.2f} s")
    assert deaths


def test_exitd_killed_while_the_runtime_works_is_not_noticed(containerd: Containerd) -> None:
    """Its commands go on, before exitd is there again or after that."""
    limit, daemon = allowed(containerd), containerd.with_exitd()
    for case in cases("task"):
        with gated(daemon) as gates, containerd.events() as events, Reviver(daemon) as reviver:
            life = Life(containerd.box(EXITD, "gate"), gates.flags())
            gates.close(command(case))
            with ThreadPoolExecutor(1) as pool:
                killing = pool.submit(kill_at, gates, case, reviver)
                life.live()
                killing.result(LIMIT_SECONDS)
            told = events.wait(life.box.id, "/tasks/delete") and events.settled().of(life.box.id)
        judge(life, told, str(case))
        assert len(reviver.back) == 1 and life.late(reviver.back) <= limit, f"{case}: {life.steps}"
        containerd.left_is()


def test_exitd_killed_at_any_system_call_of_an_execs_life_runs_it_once_and_nobody_notices(
    containerd: Containerd,
) -> None:
    limit, daemon = allowed(containerd), containerd.with_exitd()
    box = containerd.box(EXITD, "execs").started("--null-io", "--", "sleep", "1000")
    execs, deaths = Execs(box), 0
    tried = chosen(calls_of(daemon, execs.live), row("task, an exec at calls").count)
    for call in tried:
        with containerd.events() as events:
            with hit_at(daemon, call), Reviver(daemon) as reviver:
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
    containerd.left_is()


@pytest.mark.parametrize("case", cases("task, an exec"), ids=str)
def test_exitd_killed_while_the_runtime_begins_an_exec_runs_it_once_and_nobody_notices(
    containerd: Containerd, case: Case
) -> None:
    """Before it has begun its shim has opened its fifos already."""
    with gated(containerd.with_exitd()) as gates:
        words = ("--null-io", *gates.flags(), "--", "sleep", "1000")
        execs = Execs(box := containerd.box(EXITD, "execs").started(*words))
        gates.close(command(case))
        with containerd.events() as events, Reviver(containerd.with_exitd()) as reviver, ThreadPoolExecutor(1) as pool:
            killing = pool.submit(kill_at, gates, case, reviver)
            execs.live()
            killing.result(LIMIT_SECONDS)
            told = events.wait(box.id, "/tasks/exit") and events.settled().of(box.id)
        execs.judge(told, str(case))
        assert len(reviver.back) == 1
        box.end()
    containerd.left_is()


def command(case: Case) -> str:
    """At which the runtime halts."""
    return case.moment.removesuffix(" and back")


def kill_at(gates: Gates, case: Case, reviver: Reviver) -> None:
    gates.reached(command(case))
    reviver.kill(back=case.moment.endswith(" and back"))
    gates.open()


WAITING = "until [ -e /mnt/go ]; do sleep 0.02; done; exit {}"
STANDS_SECONDS = 60.0 if SCALE >= 1 else 8.0


def waiting(containerd: Containerd, code: int) -> Box:
    """One that ends with this code when it finds a file of its name in the containerd's directory `go`."""
    box = containerd.box(EXITD, "waiting")
    (place := containerd.base / f"go-{box.id}").mkdir()
    mount = ("--mount", f"type=bind,src={place},dst=/mnt,options=rbind")
    return box.started("--null-io", *mount, "--", "sh", "-c", WAITING.format(code))


def told_to_go(box: Box) -> None:
    (box.containerd.base / f"go-{box.id}" / "go").touch()


def test_while_exitd_stands_still_containerd_may_be_killed_and_no_container_dies(containerd: Containerd) -> None:
    """Who waits meanwhile is answered afterwards, with the true codes."""
    daemon = containerd.with_exitd()
    boxes = [waiting(containerd, code) for code in (11, 12, 13)]
    pids = [box.pid for box in boxes]
    over = [os.pidfd_open(pid) for pid in pids]
    with stopped(daemon.pid):
        begun = time.monotonic()
        containerd.restart()
        waits = [containerd.begin("task", "attach", box.id) for box in boxes]
        told_to_go(boxes[0])
        until(lambda: select.select(over[:1], [], [], 0)[0], "it has not ended")
        select.select(over[1:], [], [], max(0.0, STANDS_SECONDS - (time.monotonic() - begun)))
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
    containerd.left_is()
