import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.model.values import Process
from supervisor.monitor import procfs
from supervisor.monitor.procfs import Kin, family, look
from tests.supervisor.children import name_of, name_of_pid
from tests.supervisor.descriptors import held_now, only, opened_since
from tests.system.waits import until

# Should it be signalled last, it is still there.
TREE = "sleep 11111 & (sleep 22222 & sleep 33333) & setsid sh -c 'sleep 44444; true' & wait; sleep 55555"


def kin(parent: int, session: int) -> Kin:
    return Kin(parent, session, 1)


def test_descendants_and_the_session_are_family_and_nobody_else() -> None:
    table = {
        1: kin(0, 1),
        10: kin(1, 10),  # the root
        11: kin(10, 10),
        12: kin(11, 12),  # a session of its own
        13: kin(12, 12),
        14: kin(1, 10),  # lost its parent, not its session
        20: kin(1, 20),
        21: kin(20, 1),
    }
    assert family(table, 10, 10) == {10, 11, 12, 13, 14}


def test_a_root_without_a_session_of_its_own_has_descendants_only() -> None:
    """Else its starter's session would be taken for its own."""
    assert family({5: kin(1, 5), 10: kin(5, 5), 11: kin(10, 5), 12: kin(5, 5)}, 10, 0) == {10, 11}


def test_a_root_may_have_been_left_in_a_session_of_its_own() -> None:
    assert family({10: kin(1, 9), 11: kin(1, 9), 12: kin(1, 8)}, 10, 9) == {10, 11}


def test_of_a_root_that_is_gone_its_session_is_left() -> None:
    assert family({11: kin(1, 10), 12: kin(11, 99), 13: kin(1, 13)}, 10, 10) == {11, 12}


pids = st.integers(min_value=1, max_value=12)


@given(st.dictionaries(pids, st.builds(kin, pids, pids), max_size=12), pids, st.integers(min_value=0, max_value=12))
def test_a_family_is_closed_and_reached_from_its_root(table: dict[int, Kin], root: int, session: int) -> None:
    found = family(table, root, session)
    assert found <= table.keys()
    assert {pid for pid, each in table.items() if each.parent in found} <= found
    for pid in found - {root}:
        assert table[pid].session == session or table[pid].parent in found | {root}


def test_the_session_of_a_root_is_its_own_when_it_leads_it_or_nobody_else_does() -> None:
    script = "sleep 1000 >/dev/null & echo $!; read go"
    words = ["sh", "-c", script]
    with subprocess.Popen(words, start_new_session=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as leader:
        assert leader.stdin is not None and leader.stdout is not None
        root = name_of_pid(int(leader.stdout.readline()))
        try:
            assert procfs.own_session(name_of(leader)) == leader.pid
            assert procfs.own_session(root) == 0
            leader.stdin.close()
            os.waitid(os.P_PID, leader.pid, os.WEXITED | os.WNOWAIT)
            assert procfs.own_session(root) == leader.pid  # a zombie's
            leader.wait()
            assert procfs.own_session(root) == leader.pid
            assert procfs.is_led(os.getpid(), 0, 1)
            assert not procfs.is_led(root.pid, os.getpid(), 1)  # that pid is a younger process's by now
        finally:
            os.kill(root.pid, signal.SIGKILL)
    assert procfs.own_session(Process(2**22 - 1, 1)) == 2**22 - 1


@pytest.fixture
def tree() -> Iterator["subprocess.Popen[bytes]"]:
    """A shell that leads a session, with two levels of children, one of them with a session of its own."""
    process = subprocess.Popen(["sh", "-c", TREE], start_new_session=True)
    until(lambda: _sleepers(process.pid) == 4, "the children")
    members = [
        os.pidfd_open(pid) for pid in family(look(_everyone()), process.pid, process.pid)
    ]  # some lose their parent
    try:
        yield process
    finally:
        for member in members:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(member, signal.SIGKILL)
            os.close(member)
        process.wait()


def _everyone() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _sleepers(root: int) -> int:
    return sum(_command(pid).startswith("sleep") for pid in family(look(_everyone()), root, root))


def _command(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/cmdline", encoding="utf-8") as file:
            return file.read()
    except OSError:
        return ""


def test_the_whole_family_is_killed_and_those_outside_live_on(tree: "subprocess.Popen[bytes]") -> None:
    with subprocess.Popen(["sleep", "1000"]) as stranger:
        members = family(look(_everyone()), tree.pid, tree.pid)
        assert procfs.signal_family(name_of(tree), signal.SIGKILL, _everyone) == len(members) >= 6
        assert tree.wait(20) == -signal.SIGKILL
        until(lambda: not any(_command(pid) for pid in members), "the end of all")
        assert stranger.poll() is None
        stranger.kill()


def test_another_signal_is_sent_once_to_each(tree: "subprocess.Popen[bytes]") -> None:
    before = held_now()
    assert procfs.signal_family(name_of(tree), signal.SIGTERM, _everyone) >= 6
    assert not opened_since(before)
    assert tree.wait(20) == -signal.SIGTERM


def test_only_candidates_are_signalled(tree: "subprocess.Popen[bytes]") -> None:
    assert procfs.signal_family(name_of(tree), signal.SIGKILL, list) == 1
    assert tree.wait(20) == -signal.SIGKILL


def test_a_stranger_that_has_its_number_is_left_alone(tree: "subprocess.Popen[bytes]") -> None:
    name = name_of(tree)
    assert procfs.signal_family(Process(name.pid, name.started_ticks + 1), signal.SIGKILL, _everyone) == 0
    assert tree.poll() is None


@pytest.mark.parametrize("room", [1, 2, 4])
def test_out_of_descriptors_nobody_stays_stopped_and_the_next_try_finds_the_rest(
    tree: "subprocess.Popen[bytes]", room: int
) -> None:
    members = family(look(_everyone()), tree.pid, tree.pid)
    with only(room), pytest.raises(OSError, match="Too many open files"):
        procfs.signal_family(name_of(tree), signal.SIGKILL, lambda: members)
    stopped = [pid for pid in members if procfs.is_stopped(Process(pid, _started(pid)))]
    assert stopped == []
    procfs.signal_family(name_of(tree), signal.SIGKILL, lambda: members)
    for pid in members - {tree.pid}:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    assert tree.wait(30) == -signal.SIGKILL


def _started(pid: int) -> int:
    table = look([pid])
    return table[pid].started_ticks if table else 0
