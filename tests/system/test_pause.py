"""exitd-pause: ends when it is told to, whenever that comes, and leaves no zombie in its pod."""

import contextlib
import os
import pathlib
import signal
import subprocess
import sys

import pytest

from shim import native, programs
from tests.system import pods
from tests.system.keepers import Node
from tests.system.kill_matrix.test_monitors import calls
from tests.system.pods import Pod
from tests.system.processes import cgroup_pids, children_of, wait_state
from tests.system.waits import LIMIT_SECONDS, until, wait_readable

PAUSE = str(programs.find("exitd-pause"))
ORPHANS = 200


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("runtime", ["runc", "crun"])
def test_as_the_first_process_it_ends_with_0_on_a_root_that_holds_nothing_else(
    node: Node, runtime: str, number: int
) -> None:
    keeper = node.keeper()
    with pods.pod(node, keeper, runtime) as pod:
        signal.pidfd_send_signal(pod.pause.created.pidfd, number)
        assert wait_readable(pod.pause.shim_pidfd)
        written = pod.pause.record()
        assert written is not None and (written.code, written.signal) == (0, None)
        assert pod.pause.log() == ""
    keeper.close()


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGUSR1, signal.SIGPIPE, signal.SIGCHLD, signal.SIGALRM])
def test_as_the_first_process_it_is_ended_by_no_other_signal(pod: Pod, number: int) -> None:
    signal.pidfd_send_signal(pod.pause.created.pidfd, number)
    assert not pod.pause.ended(0.05)


@pytest.mark.parametrize("stopped", [False, True])
def test_orphans_leave_no_zombie_not_even_while_it_is_stopped(pod: Pod, stopped: bool) -> None:
    pid = pod.pause.created.pid
    if stopped:
        signal.pidfd_send_signal(pod.pause.created.pidfd, signal.SIGSTOP)
        assert wait_state(pid, pod.pause.created.pidfd, "T")
    # Each inner shell is an orphan by the time it ends: its parent does not wait for it.
    script = f"for i in $(seq {ORPHANS}); do (sh -c 'kill -0 $PPID; exit 5' &) ; done; echo up; exec sleep 1000"
    member = pod.member("member", pods.ALL, "/bin/sh", "-c", script)
    member.start()
    member.wait_output()
    for orphan in cgroup_pids(f"{pod.node.cgroup}/member") - {member.created.pid}:
        with contextlib.suppress(ProcessLookupError):
            pidfd = os.pidfd_open(orphan)
            assert wait_readable(pidfd)
            os.close(pidfd)
    until(lambda: children_of(pid) == [], "its last zombie")
    if stopped:
        assert native.process_stat(pid)[0] == "T"
        signal.pidfd_send_signal(pod.pause.created.pidfd, signal.SIGCONT)
    pods.kill(member)
    pod.finish(member)


def test_a_child_that_ended_before_it_looked_is_reaped_too() -> None:
    script = (
        "import os, subprocess, sys\n"
        "child = subprocess.Popen(['true']); os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)\n"
        "print(child.pid, flush=True); os.execv(sys.argv[1], sys.argv[1:])\n"
    )
    words = [sys.executable, "-c", script, PAUSE]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None and process.stderr is not None
    assert int(process.stdout.readline()) > 1
    process.stderr.readline()
    assert children_of(process.pid) == []
    process.terminate()
    assert process.wait(LIMIT_SECONDS) == 0
    process.stdout.close()
    process.stderr.close()


def test_where_it_is_not_the_first_process_it_says_so_and_works() -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        process = subprocess.Popen([PAUSE], stderr=subprocess.PIPE)
        assert process.stderr is not None
        assert b"not process 1" in process.stderr.readline()
        process.send_signal(number)
        assert process.wait(LIMIT_SECONDS) == 0
        process.stderr.close()


def test_a_reader_of_its_words_that_has_gone_does_not_end_it() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    process = subprocess.Popen([PAUSE], stderr=writing)
    os.close(writing)
    pidfd = os.pidfd_open(process.pid)
    pods.listening(process.pid, pidfd)
    assert not wait_readable(pidfd, 0.05)
    process.terminate()
    assert process.wait(LIMIT_SECONDS) == 0
    os.close(pidfd)


def test_a_signal_at_any_call_since_it_listens_ends_it_with_0(tmp_path: pathlib.Path) -> None:
    trace = tmp_path / "trace"
    process = subprocess.Popen(["strace", "-DDD", "-o", str(trace), PAUSE], stderr=subprocess.PIPE)
    assert process.stderr is not None
    process.stderr.readline()
    process.terminate()
    assert process.wait(LIMIT_SECONDS) == 0
    process.stderr.close()
    found = calls(trace)
    listens = next(i for i, (_, line) in enumerate(found) if line.startswith("rt_sigprocmask("))
    later = [call for call, _ in found[listens + 1 :] if not call.name.startswith("exit")]
    assert len(later) >= 4
    for call in later:
        words = ["strace", *call.inject("TERM"), PAUSE]
        done = subprocess.run(words, capture_output=True, timeout=LIMIT_SECONDS)
        assert done.returncode == 0, (call, done)


def test_with_arguments_it_says_how_to_be_called_and_ends_with_3() -> None:
    done = subprocess.run([PAUSE, "sleep"], capture_output=True, timeout=LIMIT_SECONDS)
    assert (done.returncode, done.stdout) == (3, b"") and done.stderr.startswith(b"usage: exitd-pause")


def test_its_memory_is_a_few_pages(pod: Pod) -> None:
    rollup = pathlib.Path(f"/proc/{pod.pause.created.pid}/smaps_rollup").read_text().splitlines()
    sizes = {line.split(":")[0]: int(line.split()[1]) for line in rollup[1:]}
    print({key: size for key, size in sizes.items() if size})
    assert sizes["Anonymous"] <= 64  # musl needs 8, glibc 44


def test_with_a_program_it_ends_as_that_does() -> None:
    ends = {"exit 7": 7, "kill -9 $$": 137, "kill -SEGV $$": 139}
    for script, status in ends.items():
        assert subprocess.run([PAUSE, "--", "sh", "-c", script], timeout=LIMIT_SECONDS).returncode == status
    for program, status, words in (("no-such", 127, "no-such: not found"), ("/etc/passwd", 126, "cannot be executed")):
        done = subprocess.run([PAUSE, "--", program], stderr=subprocess.PIPE, text=True, timeout=LIMIT_SECONDS)
        assert (done.returncode, words in done.stderr) == (status, True), done


def test_it_hands_signals_on_and_the_program_has_them_unblocked() -> None:
    script = "trap 'echo hup' HUP; trap 'echo usr; exit 4' USR1; echo up; while :; do sleep 0.01; done"
    with subprocess.Popen([PAUSE, "--", "sh", "-c", script], stdout=subprocess.PIPE, text=True) as init:
        assert init.stdout is not None
        for number, words in ((None, "up\n"), (signal.SIGHUP, "hup\n"), (signal.SIGUSR1, "usr\n")):
            if number is not None:
                init.send_signal(number)
            assert init.stdout.readline() == words
        assert init.wait(LIMIT_SECONDS) == 4
