"""What a real containerd's clients see of living tasks while exitd is away, silent, or in the middle of a change."""

import contextlib
import pathlib
import shutil
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from protos.containerd import process_pb2
from tests.system.containerd.history import Who
from tests.system.containerd.server import EXITD, NOTHING, Box, Containerd
from tests.system.containerd.tasks import Program, Tasks
from tests.system.processes import end_process, killed, stopped
from tests.system.runtimes import Wrapper, gated
from tests.system.waits import until

UNKNOWN, CREATED = process_pb2.UNKNOWN, process_pb2.CREATED


@contextlib.contextmanager
def away(containerd: Containerd) -> Iterator[None]:
    daemon = containerd.with_exitd()
    daemon.kill()
    try:
        yield
    finally:
        daemon.start()


@contextlib.contextmanager
def silent(containerd: Containerd) -> Iterator[None]:
    with stopped(containerd.with_exitd().pid):
        yield


def own(box: Box, verb: str) -> None:
    """exitd does it for a client of its own, and containerd has no part in it."""
    with box.containerd.with_exitd().client() as client:
        found = next(c.id for c in client.list(all_of_them=True) if c.spec.name == box.id)
        getattr(client, verb)(found)


def theirs(box: Box, verb: str) -> None:
    """containerd asks for it."""
    assert box.task(verb).code == 0


def shown(box: Box) -> tuple[int, str]:
    """Its row, once containerd has an answer: it gives a State up after 2 s, which is not long on a busy machine, and
    shows an UNKNOWN one."""
    rows: list[tuple[int, str]] = []

    def is_known() -> bool:
        rows.append(box.row())
        return rows[-1] != (0, "UNKNOWN")

    until(is_known, "containerd does not learn of it")
    return rows[-1]


Turn = tuple[Callable[[Box, str], None], str]
TURNS: dict[str, tuple[tuple[Turn, ...], str]] = {
    "started": ((), "RUNNING"),
    "paused": (((theirs, "pause"),), "PAUSED"),
    "paused and resumed": (((theirs, "pause"), (theirs, "resume")), "RUNNING"),
    "paused by exitd": (((own, "pause"),), "PAUSED"),
    "paused, and resumed by exitd": (((theirs, "pause"), (own, "resume")), "RUNNING"),
}


@pytest.mark.parametrize("how", [away, silent])
@pytest.mark.parametrize("turns", TURNS)
def test_a_living_task_is_shown_as_it_is_while_exitd_is_away_or_silent(
    containerd: Containerd, turns: str, how: Callable[[Containerd], contextlib.AbstractContextManager[None]]
) -> None:
    (asked, state), box = TURNS[turns], containerd.box(EXITD, "alive")
    box.started("--", "sleep", "1000")
    pid = box.pid
    for turn, verb in asked:
        turn(box, verb)  # of which containerd has not asked since: what it was told before is out of date
    with how(containerd):
        assert shown(box) == (pid, state)
    until(lambda: box.row() == (pid, state), "it is another one once exitd is back")
    if state == "PAUSED":
        own(box, "resume")
    box.end()
    containerd.left_is(NOTHING, "fifos")


def test_a_task_that_is_made_and_not_started_is_shown_as_that_while_exitd_is_away(containerd: Containerd) -> None:
    clients, program = Tasks(containerd), Program.make(containerd, EXITD, "", 1)
    who = Who(program.id)
    with contextlib.closing(clients):
        pid = clients.begin("create", who, rootfs=clients.mounts(program.id)).call().pid
        with away(containerd):
            state = clients.begin("state", who).call()
            assert (state.status, state.pid) == (CREATED, pid)
        assert clients.begin("start", who).call().pid == pid
        program.up()
        program.go()
        assert clients.begin("wait", who).call().end is not None
        clients.begin("delete", who).call()
        containerd.wanted("container", "rm", program.id)
    containerd.left_is(NOTHING, "fifos")


def test_a_task_that_exitd_was_about_to_start_when_it_was_killed_is_said_to_be_nothing(containerd: Containerd) -> None:
    with gated(containerd.with_exitd()) as gates, contextlib.closing(Tasks(containerd)) as clients:
        box = containerd.box(EXITD, "between")
        gates.close("start.before")
        began = box.begun("-d", *gates.flags(), "--", "sleep", "1000")
        runtime = gates.reached("start.before")
        with away(containerd):
            end_process(runtime)  # it has a second after exitd's end, which may be over
            state = clients.begin("state", Who(box.id)).call()
            assert (state.status, state.pid) == (UNKNOWN, 0)
            gates.open()
        assert began.wait(60) == 0
        box.until("RUNNING")
        box.end()
    containerd.left_is(NOTHING, "fifos")


def test_a_task_that_exitd_was_about_to_pause_when_it_was_killed_is_said_to_be_nothing(
    containerd: Containerd, tmp_path: pathlib.Path
) -> None:
    runtime, here = Wrapper.make(tmp_path), tmp_path / "here"
    (options := tmp_path / "options.toml").write_text(f'BinaryName = "{runtime.name}"\n')
    box = containerd.box(EXITD, "between")
    box.started("--runtime-config-path", str(options), "--", "sleep", "1000")
    pid = box.pid
    runtime.on("pause", f'{shutil.which("runc")} "$@"; echo $$ >{here}; exec sleep 1000')
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(own, box, "pause")
        hangs = int(until(lambda: here.exists() and here.read_text().strip(), "the runtime has not paused it"))
        with away(containerd):
            end_process(hangs)  # it ends with exitd, and may have been reaped
            assert box.row() == (0, "UNKNOWN")
        assert asked.exception(60) is not None
    until(lambda: box.row() == (pid, "PAUSED"), "it is not found paused")
    box.task("resume")
    box.end()
    containerd.left_is(NOTHING, "fifos")


def test_one_that_has_ended_while_its_shim_stands_still_is_not_said_to_run(containerd: Containerd) -> None:
    box = containerd.box(EXITD, "dead")
    box.started("--", "sleep", "1000")
    pid = box.pid
    with containerd.with_exitd().client() as client:
        shim = next(c.shim.pid for c in client.list(all_of_them=True) if c.spec.name == box.id)
    with away(containerd), stopped(shim):
        killed(pid)
        began = time.monotonic()
        assert box.state == "UNKNOWN"
        assert time.monotonic() - began > 1.5, "containerd gives a State up after 2 s"
    box.until("STOPPED")
    box.end()
    containerd.left_is(NOTHING, "fifos")
