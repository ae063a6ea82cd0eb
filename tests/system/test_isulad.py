"""`python -m shim` in isulad-shim's place: started as iSulad's daemon starts it, with real runc."""

import contextlib
import fcntl
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from tests.system.isulad import Daemon
from tests.system.processes import cgroup_directories
from tests.system.waits import LIMIT_SECONDS, wait_readable

CODES = [0, 1, 43, 129, 255]
ORPHANS = 24


@pytest.mark.parametrize("code", CODES)
def test_a_code_comes_through_the_fifo_and_the_shim_ends_with_0(isulad: Daemon, code: int) -> None:
    box = isulad.container("box", "/bin/sh", "-c", f"exit {code}").create()
    box.start()
    assert (box.told(), box.ended(), isulad.said()) == (code, 0, "")
    written = box.record()
    assert written is not None and (written.code, written.id, written.run) == (code, "box", 1)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, 64])
def test_death_by_a_signal_is_128_and_its_number(isulad: Daemon, number: int) -> None:
    box = isulad.container("box", "/bin/sleep", "1000", host_pids=True).create()
    box.start()
    box.signal(number)
    assert (box.told(), box.ended()) == (128 + number, 0)
    written = box.record()
    assert written is not None and (written.code, written.signal) == (None, number)


def test_init_that_ends_before_it_was_started_is_reported_too(isulad: Daemon) -> None:
    box = isulad.container("box", "/bin/true").create()
    box.created()
    box.signal(signal.SIGKILL)
    assert (box.told(), box.ended()) == (137, 0)


def test_a_container_that_cannot_be_created_leaves_the_fifo_empty_and_status_1(isulad: Daemon) -> None:
    box = isulad.container("box", "/no/such/program").create()
    assert (box.told(), box.ended()) == (None, 1)
    assert "no such file" in box.words()


def gate(directory: pathlib.Path, verb: str) -> tuple[str, pathlib.Path]:
    """A runtime that is runc, but for a stop behind one of its commands: it goes on when the fifo is written."""
    fifo = directory / f"{verb}.gate"
    os.mkfifo(fifo)
    path = directory / "gated"
    path.write_text(
        f"""#!/bin/sh
        for word; do [ "$word" = {verb} ] && found=yes; done
        runc "$@"; status=$?
        [ -z "$found" ] || {{ : >{fifo}.reached; read line <{fifo}; }}
        exit $status
        """
    )
    path.chmod(0o755)
    return str(path), fifo


@pytest.mark.parametrize("verb", ["kill", "delete"])
def test_the_code_is_reported_only_when_the_runtime_has_killed_and_deleted(isulad: Daemon, verb: str) -> None:
    runtime, fifo = gate(isulad.base, verb)
    box = isulad.container("box", "/bin/sh", "-c", "exit 43").create(runtime)
    box.start()
    while not os.path.exists(f"{fifo}.reached"):
        assert not wait_readable(box.pidfd, 0.005), "the shim ended without that command"
    # The daemon's word is held back, the witness is not: the exit is written down before anybody reaps.
    written = box.record()
    assert written is not None and written.code == 43
    assert not wait_readable(box.fifo_fd, 0.2)
    assert box.runtime("state", "box").returncode == (0 if verb == "kill" else 1)
    fifo.write_text("go\n")
    assert box.told() == 43
    assert box.runtime("state", "box").returncode == 1
    assert cgroup_directories(isulad.cgroup) == []
    assert box.ended() == 0


def test_a_daemon_that_kills_the_shim_with_the_code_in_hand_finds_everything_done(isulad: Daemon) -> None:
    script = "i=0; while [ $i -lt 20000 ]; do echo line $i; i=$((i+1)); done; printf end; exit 43"
    box = isulad.container("box", "/bin/sh", "-c", script).create()
    box.start()
    assert box.told() == 43
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(box.pidfd, signal.SIGKILL)
    assert box.output() == "".join(f"line {n}\n" for n in range(20000)) + "end"
    assert box.runtime("state", "box").returncode == 1


def test_processes_that_the_container_left_behind_do_not_hold_the_exit_back_a_second_each(isulad: Daemon) -> None:
    script = f"n=0; while [ $n -lt {ORPHANS} ]; do setsid sleep 1000 & n=$((n+1)); done; exit 7"
    box = isulad.container("box", "/bin/sh", "-c", script, host_pids=True).create()
    box.start()
    began = time.monotonic()
    assert box.told() == 7
    assert time.monotonic() - began < ORPHANS / 2
    assert (box.ended(), cgroup_directories(isulad.cgroup)) == (0, [])


def test_the_runtimes_environment_is_the_daemons_without_its_log_and_systemds_socket(isulad: Daemon) -> None:
    runtime = isulad.base / "noting"
    runtime.write_text(f'#!/bin/sh\nenv >>{isulad.base}/environment\nexec runc "$@"\n')
    runtime.chmod(0o755)
    box = isulad.container("box", "/bin/true").create(str(runtime), NOTIFY_SOCKET="/nowhere", HTTP_PROXY="p:1")
    box.start()
    assert box.told() == 0
    lines = (isulad.base / "environment").read_text().splitlines()
    assert lines.count("HTTP_PROXY=p:1") == 3  # create, kill, delete
    assert not [line for line in lines if line.startswith(("NOTIFY_SOCKET", "ISULAD_SHIIM"))]


def test_a_shim_holds_its_slots_its_fifo_and_nothing_of_the_daemons(isulad: Daemon) -> None:
    box = isulad.container("box", "/bin/sleep", "1000").create()
    box.start()
    links = {os.path.realpath(path) for path in pathlib.Path(f"/proc/{box.pid}/fd").iterdir()}
    named = {link for link in links if link.startswith("/") and "/proc/" not in link}
    assert named == {"/dev/null", *(str(box.state / name) for name in ("exit_fifo", "exit.json", "lock"))} | {
        str(box.bundle / "console.log")
    }
    assert os.getsid(box.pid) == box.pid
    assert b"python" not in pathlib.Path(f"/proc/{box.pid}/cmdline").read_bytes()
    box.signal(signal.SIGKILL)
    assert box.told() == 137


def test_a_state_directory_that_was_not_cleared_is_used_again_and_its_old_pid_not_believed(isulad: Daemon) -> None:
    box = isulad.container("box", "/bin/true")
    for name in ("pid", "created", "exit.json", "plan"):
        (box.state / name).write_text(str(os.getpid()))
    box.create()
    while (box.state / "pid").exists() and (box.state / "pid").read_text() == str(os.getpid()):
        assert not wait_readable(box.pidfd, 0.005)
    box.start()
    assert (box.told(), box.ended()) == (0, 0)


def test_a_second_shim_in_the_same_directory_is_refused_and_the_first_goes_on(isulad: Daemon) -> None:
    box = isulad.container("box", "/bin/sh", "-c", "exit 43").create()
    box.created()
    done = called(isulad, box.state, "box", str(box.bundle), "runc", "info")
    assert (done.returncode, "another shim runs in this directory" in done.stderr) == (1, True)
    box.start()
    assert (box.told(), box.ended()) == (43, 0)


def called(
    isulad: Daemon, cwd: pathlib.Path, *argv: str, **environment: str | None
) -> "subprocess.CompletedProcess[str]":
    """One that is expected to end at once, its stderr kept."""
    return subprocess.run(
        [sys.executable, "-Im", "shim", *argv],
        cwd=cwd,
        env=isulad.environment(**environment),
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
    )


def refused(isulad: Daemon, words: str, *argv: str, cwd: pathlib.Path, **environment: str | None) -> None:
    """Status 1, the reason on stderr, nothing in the fifo, nothing begun."""
    done = called(isulad, cwd, *argv, **environment)
    assert (done.returncode, done.stdout) == (1, "")
    assert words in done.stderr and done.stderr.count("\n") == 1, done.stderr
    assert not (cwd / "plan").exists() and not (cwd / "pid").exists()


@pytest.mark.parametrize("name", ["ISULAD_SHIIM_LOG_PATH", "ISULAD_SHIIM_LOG_LEVEL"])
def test_without_its_environment_it_says_which_variable_lacks(isulad: Daemon, name: str) -> None:
    box = isulad.container("box", "/bin/true")
    refused(isulad, f"{name} is not set", "box", str(box.bundle), "runc", "info", cwd=box.state, **{name: None})


def test_a_log_that_is_no_fifo_of_mode_0600_is_refused(isulad: Daemon) -> None:
    box = isulad.container("box", "/bin/true")
    argv = ("box", str(box.bundle), "runc", "info")
    isulad.log_fifo.chmod(0o640)
    refused(isulad, "must be a fifo of mode 0600", *argv, cwd=box.state)
    isulad.log_fifo.chmod(0o600)
    (plain := isulad.base / "plain").touch(0o600)
    refused(isulad, "must be a fifo of mode 0600", *argv, cwd=box.state, ISULAD_SHIIM_LOG_PATH=f"fifo:{plain}")
    gone = f"fifo:{isulad.base}/gone"
    refused(isulad, "No such file or directory", *argv, cwd=box.state, ISULAD_SHIIM_LOG_PATH=gone)


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ((), "0 arguments: usage"),
        (("box", "/b"), "2 arguments: usage"),
        (("box", "/b", "no-such-runtime", "info"), "RUNTIME no-such-runtime: no such program"),
        (("box", "/b", "runc", "info", "soon"), "TIMEOUT 'soon': must be whole seconds"),
    ],
)
def test_wrong_arguments_are_reported_on_stderr_and_in_the_daemons_log(
    isulad: Daemon, argv: tuple[str, ...], words: str
) -> None:
    box = isulad.container("box", "/bin/true")
    refused(isulad, words, *argv, cwd=box.state)
    assert words in isulad.said()


def test_a_state_directory_without_process_json_or_exit_fifo_is_refused_by_name(isulad: Daemon) -> None:
    box = isulad.container("box", "/bin/true")
    argv = ("box", str(box.bundle), "runc", "info")
    (box.state / "exit_fifo").unlink()
    refused(isulad, "exit_fifo: No such file or directory", *argv, cwd=box.state)
    (box.state / "exit_fifo").touch()
    refused(isulad, "exit_fifo must be a fifo", *argv, cwd=box.state)
    (box.state / "process.json").write_text('{"cwd": "/"}')
    refused(isulad, "process.json: field 'args' is missing", *argv, cwd=box.state)
    (box.state / "process.json").write_text('{"cwd"')
    refused(isulad, "process.json, line 1 column 7", *argv, cwd=box.state)
    (box.state / "process.json").unlink()
    refused(isulad, "process.json: No such file or directory", *argv, cwd=box.state)


@pytest.mark.parametrize(("code", "action"), [(129, "reboot"), (130, "shutdown"), (131, "")])
def test_a_system_containers_wish_is_in_the_environment_of_what_ends_it(isulad: Daemon, code: int, action: str) -> None:
    runtime = isulad.base / "noting"
    runtime.write_text(f'#!/bin/sh\necho "action=$CONTAINER_ACTION" >>{isulad.base}/actions\nexec runc "$@"\n')
    runtime.chmod(0o755)
    box = isulad.container("box", "/bin/sh", "-c", f"exit {code}").create(str(runtime))
    box.start()
    assert box.told() == code
    assert (isulad.base / "actions").read_text().split() == ["action=", f"action={action}", f"action={action}"]


def test_a_daemon_that_does_not_read_its_log_holds_up_nobody(isulad: Daemon) -> None:
    box = isulad.container("box", "/bin/true")
    full_fd = os.open(isulad.log_fifo, os.O_WRONLY | os.O_NONBLOCK)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(full_fd, bytes(65536))
    assert fcntl.fcntl(full_fd, fcntl.F_GETFL) & os.O_NONBLOCK
    os.close(full_fd)
    refused(isulad, "2 arguments", "box", "/b", cwd=box.state)
