"""exitd-launch: a command that dies with the process that asked for it."""

import os
import pathlib
import signal
import subprocess
import sys

import pytest

from shim import programs
from tests.system.waits import LIMIT_SECONDS, until, wait_readable


def launch(*words: str, parent: str = "") -> subprocess.CompletedProcess[bytes]:
    command = [str(programs.find("exitd-launch")), parent or str(os.getpid()), *words]
    return subprocess.run(command, capture_output=True, timeout=LIMIT_SECONDS)


@pytest.mark.parametrize("code", [0, 1, 43, 125, 255])
def test_the_commands_code_is_passed_on(code: int) -> None:
    assert launch("--", "/bin/sh", "-c", f"echo out; exit {code}").returncode == code


def test_the_commands_death_by_a_signal_is_passed_on() -> None:
    assert launch("--", "/bin/sh", "-c", "kill -SEGV $$").returncode == -signal.SIGSEGV


def test_a_command_that_is_not_there_is_127_and_one_that_is_no_program_126() -> None:
    missing = launch("--", "/nowhere/runc")
    assert missing.returncode == 127 and b"/nowhere/runc" in missing.stderr
    assert launch("--", "/etc/passwd").returncode == 126


@pytest.mark.parametrize("parent", ["1", "0", "-1", "x", "999999"])
def test_with_a_parent_that_is_another_nothing_is_run(parent: str) -> None:
    done = launch("--", "/bin/echo", "run", parent=parent)
    assert (done.returncode, done.stdout) == (125, b"")


@pytest.mark.parametrize(
    "words", [[], ["--"], ["--grace", "10"], ["--grace", "-1", "true"], ["--grace", "60001", "true"]]
)
def test_without_a_command_it_says_how_to_be_called(words: list[str]) -> None:
    done = launch(*words)
    assert done.returncode == 125 and b"usage" in done.stderr


@pytest.mark.parametrize(("script", "code"), [("exit 43", 43), ("kill -TERM $$", -signal.SIGTERM)])
def test_with_grace_the_end_is_passed_on_too(script: str, code: int) -> None:
    done = launch("--grace", "1000", "--", "/bin/sh", "-c", f"echo out; {script}")
    assert (done.returncode, done.stdout) == (code, b"out\n")


@pytest.mark.parametrize("ends", [True, False])
def test_with_grace_a_command_may_end_what_it_does_and_is_killed_if_it_does_not(
    tmp_path: pathlib.Path, ends: bool
) -> None:
    """Its asker is dead when it goes on."""
    os.mkfifo(tmp_path / "go")
    grace = "30000" if ends else "50"
    inner = f"echo $$ >{tmp_path}/pid; read line <{tmp_path}/go; echo $line >{tmp_path}/said; exec sleep 1000"
    script = (
        "import os, subprocess, sys\n"
        "words = [sys.argv[1], str(os.getpid()), '--grace', sys.argv[2], '--', 'sh', '-c', sys.argv[3]]\n"
        "p = subprocess.Popen(words, start_new_session=True); print(p.pid, flush=True); sys.stdin.read()\n"
    )
    words = [sys.executable, "-c", script, str(programs.find("exitd-launch")), grace, inner]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as asker:
        assert asker.stdout is not None
        launcher = os.pidfd_open(pid := int(asker.stdout.readline()))
        until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text(), "the command does not begin")
        asker.kill()
    if ends:
        (tmp_path / "go").write_text("done\n")
        until(lambda: (tmp_path / "said").exists() and (tmp_path / "said").read_text() == "done\n", "it was killed")
        os.killpg(pid, signal.SIGKILL)
    assert wait_readable(launcher)
    os.close(launcher)
    number = int((tmp_path / "pid").read_text())
    until(lambda: not os.path.exists(f"/proc/{number}"), "it lives on")


def test_a_command_dies_with_the_process_that_asked_for_it() -> None:
    script = (
        "import os, subprocess, sys\n"
        "p = subprocess.Popen([sys.argv[1], str(os.getpid()), '--', 'sleep', '1000'], stdout=subprocess.DEVNULL)\n"
        "print(p.pid, flush=True); sys.stdin.read()\n"
    )
    words = [sys.executable, "-c", script, str(programs.find("exitd-launch"))]
    asker = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert asker.stdout is not None and asker.stdin is not None
    pidfd = os.pidfd_open(int(asker.stdout.readline()))
    asker.kill()
    assert wait_readable(pidfd)
    asker.wait()
    asker.stdin.close()
    asker.stdout.close()
    os.close(pidfd)


def test_a_command_does_not_inherit_an_ignored_sigchld_or_a_blocked_signal() -> None:
    script = 'trap "" CHLD PIPE; exec "$0" $PPID -- grep -E "SigIgn|SigBlk" /proc/self/status'
    words = ["/bin/sh", "-c", script, str(programs.find("exitd-launch"))]
    done = subprocess.run(words, capture_output=True, timeout=LIMIT_SECONDS)
    values = {int(line.split()[1], 16) & (1 << 16 | 1 << 12) for line in done.stdout.splitlines()}
    assert values == {0}, done
