"""Execs whose shim, daemon or runtime is killed or stopped: no exit is lost, and nothing is left."""

import contextlib
import os
import pathlib
import select
import signal
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api.client import Client, Unreachable
from supervisor.model.errors import ShimFailed
from tests.system.daemons import Daemon, left
from tests.system.execs import UNTIL_LET_GO, begin, end_of, exec_directories, let_go, run, shim_of, shims_of
from tests.system.lives import events, last_exit, ledger, up, word
from tests.system.processes import commands
from tests.system.runtimes import Wrapper
from tests.system.waits import LIMIT_SECONDS, scaled, until

# However late the end of an exec is stored on a busy machine: its container's comes behind it.
pytestmark = pytest.mark.limits({"supervisor.engine.execlife.BEFORE_END_SECONDS": 4.0})

ENDS_WITH_43 = ("sh", "-c", f"{UNTIL_LET_GO} exit 43")


def with_exec(client: Client, *args: str, **fields: object) -> tuple[str, str]:
    """A container that runs, and an exec in it."""
    box = up(client).id
    return box, begin(client, box, *args, **fields)


def told(client: Client, box: str, exec_id: str) -> tuple[str, str]:
    exit_ = end_of(client, box, exec_id)
    return word(exit_), exit_.source


def test_a_shim_that_is_killed_costs_no_exit(killable: Daemon) -> None:
    with killable.client() as client:
        box, exec_id = with_exec(client, *ENDS_WITH_43)
        os.kill(shim_of(killable, exec_id), signal.SIGKILL)
        let_go(killable, box)
        assert told(client, box, exec_id) == ("exited 43", "keeper")
        client.remove(box, force=True)


def test_a_stopped_shim_of_an_exec_keeps_no_container_from_dying(killable: Daemon) -> None:
    with killable.client() as client:
        box, exec_id = with_exec(client, "sleep", "1000")
        os.kill(shim_of(killable, exec_id), signal.SIGSTOP)
        begun = time.monotonic()
        client.stop(box, 0)
        assert time.monotonic() - begun < 10
        assert word(last_exit(client, box)) == "signaled 9"
        assert word(end_of(client, box, exec_id)) == "signaled 9"
        client.remove(box, force=False)
        until(lambda: not shims_of(killable, exec_id), "the end of the stopped shim")
        until(lambda: left(killable).zombies == 0, "a zombie stays")


def test_a_stopped_shim_leaves_the_code_of_its_exec_to_be_read(killable: Daemon) -> None:
    with killable.client() as client:
        box, exec_id = with_exec(client, *ENDS_WITH_43)
        os.kill(shim_of(killable, exec_id), signal.SIGSTOP)
        let_go(killable, box)
        assert told(client, box, exec_id) == ("exited 43", "zombie")
        until(lambda: not exec_directories(killable), "its directory")
        client.remove(box, force=True)


def test_what_a_killed_daemon_had_not_cleaned_up_keeps_no_container_from_dying(killable: Daemon) -> None:
    """The end of an exec was stored, and its shim is stopped: nobody watches that one any more."""
    with killable.client() as client:
        box, exec_id = with_exec(client, "sleep", "1000")
        shim = shim_of(killable, exec_id)
    killable.kill()
    with contextlib.closing(sqlite3.connect(killable.root / "exitd.db")) as database, database:
        assert database.execute("DELETE FROM execs").rowcount == 1
    os.kill(shim, signal.SIGSTOP)
    killable.start()
    with killable.client() as client:
        until(lambda: not exec_directories(killable), "its directory")
        until(lambda: not shims_of(killable, exec_id), "the end of its shim")
        client.stop(box, 0)
        client.remove(box, force=False)


@pytest.mark.parametrize("when", ["runs", "ends"])
def test_a_daemon_that_is_killed_meanwhile_finds_every_exec_again(
    killable: Daemon, when: str, tmp_path: pathlib.Path
) -> None:
    go = tmp_path / "go"
    with killable.client() as client:
        box = up(client, mounts=[pb.Mount(source=str(tmp_path), destination="/mnt")]).id
        wait = "while [ ! -e /mnt/go ]; do sleep 0.01; done"
        execs = {begin(client, box, "sh", "-c", f"{wait}; exit {code}"): code for code in (1, 2, 3)}
        pids = [e.init.pid for e in client.inspect(box).execs]
    killable.kill()
    if when == "ends":
        go.touch()
        until(lambda: not any(os.path.isdir(f"/proc/{pid}") for pid in pids), "their ends")
    killable.start()
    with killable.client() as client:
        if when == "runs":
            assert {e.id for e in client.inspect(box).execs} == set(execs)
            go.touch()
        for exec_id, code in execs.items():
            assert told(client, box, exec_id) == (f"exited {code}", "record")
        assert len(ledger(client, box)) == 3
        client.remove(box, force=True)
        until(lambda: not exec_directories(killable), "their directories")


def test_a_daemon_that_is_killed_between_the_ends_of_exec_and_container_reports_both_in_order(killable: Daemon) -> None:
    with killable.client() as client:
        box = up(client)
        exec_id = begin(client, box.id, "sleep", "1000")
    killable.kill()
    os.kill(box.init.pid, signal.SIGKILL)
    until(lambda: not os.path.isdir(f"/proc/{box.init.pid}"), "its end")
    killable.start()
    with killable.client() as client:
        last_exit(client, box.id)
        exits = [event for event in events(client, box.id) if event.type == "exit"]
        assert [event.exec_id for event in exits] == [exec_id, ""]
        assert {event.exit.source for event in exits} == {"record"}
        client.remove(box.id, force=True)


def test_a_limit_passes_while_the_daemon_is_away(killable: Daemon) -> None:
    with killable.client() as client:
        box, exec_id = with_exec(client, "sleep", "1000", timeout_seconds=0.5)
    killable.kill()
    killable.start()
    with killable.client() as client:
        exit_ = end_of(client, box, exec_id)
        assert (word(exit_), exit_.reason) == ("signaled 9", "timeout")
        client.remove(box, force=True)


def test_shim_and_daemon_both_killed_leave_the_code_to_the_keeper(killable: Daemon) -> None:
    with killable.client() as client:
        box, exec_id = with_exec(client, *ENDS_WITH_43)
        shim = shim_of(killable, exec_id)
    killable.kill()
    os.kill(shim, signal.SIGKILL)
    let_go(killable, box)
    killable.start()
    with killable.client() as client:
        assert told(client, box, exec_id) == ("exited 43", "keeper")
        client.remove(box, force=True)


def slow_exec(killable: Daemon, script: str) -> tuple[Wrapper, str]:
    """A running container whose runtime does this before an exec."""
    wrapper = Wrapper.make(killable.base)
    wrapper.on("exec", script)
    with killable.client() as client:
        return wrapper, up(client, runtime=wrapper.name).id


def test_an_exec_whose_daemon_is_killed_while_it_is_made_goes_on_and_its_end_is_reported(
    killable: Daemon, tmp_path: pathlib.Path
) -> None:
    """Its shim goes on, and makes it. Whoever asked for it has no answer, and finds it in the list."""
    made, go = tmp_path / "made", tmp_path / "go"
    _, box = slow_exec(killable, f"touch {made}; while [ ! -e {go} ]; do sleep 0.01; done")
    with killable.client() as client, ThreadPoolExecutor() as caller:
        asked = caller.submit(begin, client, box, "sleep", "12345")
        until(made.exists, "the runtime's exec")
        killable.kill()
        with pytest.raises(Unreachable):
            asked.result(LIMIT_SECONDS)
    go.touch()
    until(lambda: _running(b"sleep\x0012345"), "its process")
    killable.start()
    with killable.client() as client:
        (exec_,) = until(lambda: client.inspect(box).execs, "the exec")
        client.kill(box, "TERM", exec_id=exec_.id)
        assert told(client, box, exec_.id) == ("signaled 15", "record")
        assert not _running(b"sleep\x0012345")
        until(lambda: not exec_directories(killable), "its directory")
        client.remove(box, force=True)


def test_a_shim_killed_while_it_makes_an_exec_is_an_error_and_leaves_nothing(
    killable: Daemon, tmp_path: pathlib.Path
) -> None:
    made = tmp_path / "made"
    wrapper, box = slow_exec(killable, f"touch {made}; exec sleep 1000")
    with killable.client() as client, ThreadPoolExecutor() as caller:
        asked = caller.submit(begin, client, box, "true")
        until(made.exists, "the runtime's exec")
        (directory,) = exec_directories(killable)
        os.kill(shim_of(killable, directory.name), signal.SIGKILL)
        with pytest.raises(ShimFailed, match="died before it ran"):
            asked.result(LIMIT_SECONDS)
        until(lambda: not exec_directories(killable), "its directory")
        wrapper.on("exec", "")
        assert word(run(client, box, "true")) == "exited 0"
        client.remove(box, force=True)


def _running(command: bytes) -> bool:
    return any(line.startswith(command) for _, line in commands())


def test_a_daemon_killed_at_any_moment_reports_every_exec_that_began_once_and_leaves_nothing(killable: Daemon) -> None:
    rounds, at_once = scaled(300, least=6), 6
    with killable.client() as client:
        box = up(client).id
    codes: dict[str, int] = {}
    for round_ in range(rounds):
        with killable.client() as client, ThreadPoolExecutor(at_once) as callers:
            asked = {callers.submit(begin, client, box, "sh", "-c", f"exit {n}"): n for n in range(at_once)}
            select.select([], [], [], (round_ * 0.037) % 0.3)
            killable.kill()
            for each, code in asked.items():
                with contextlib.suppress(Unreachable):
                    codes[each.result(LIMIT_SECONDS)] = code
        killable.start()
    with killable.client() as client:
        for exec_id, code in codes.items():
            assert word(end_of(client, box, exec_id)) == f"exited {code}"
        # Those of the last round, too, for which the daemon may look yet, have begun and ended, or failed.
        until(lambda: not exec_directories(killable), "their directories")
        told = [(e.exec_id, e.type) for e in events(client, box) if e.exec_id]
        begun = {exec_id for exec_id, type_ in told if type_ == "exec"}
        for exec_id in begun:
            assert end_of(client, box, exec_id).source in ("record", "fifo", "keeper")
        told = [(e.exec_id, e.type) for e in events(client, box) if e.exec_id]
        failed = {exec_id for exec_id, type_ in told if type_ == "failed"}
        assert codes.keys() <= begun
        assert begun.isdisjoint(failed)
        assert len(told) == len(set(told)) == 2 * len(begun) + len(failed)
        assert len(ledger(client, box)) == len(begun)
        client.remove(box, force=True)
