"""The kernel calls behind shim.native, as far as nobody needs to be root for them."""

import errno
import os
import pathlib
import select
import subprocess
import sys

import pytest

from shim import native, slots


def ended_child() -> tuple[int, int]:
    """Pid and pidfd of a child that has ended with 43 and is not reaped."""
    pid = os.posix_spawn("/bin/sh", ["sh", "-c", "exit 43"], {})
    pidfd = os.pidfd_open(pid)
    assert select.select([pidfd], [], [], 10)[0]
    return pid, pidfd


def test_a_zombies_wait_status_is_there_to_be_read_before_it_is_reaped() -> None:
    pid, pidfd = ended_child()
    state, parent, started, wait_status = native.process_stat(pid)
    os.waitpid(pid, 0)
    os.close(pidfd)
    assert (state, parent, os.waitstatus_to_exitcode(wait_status)) == ("Z", os.getpid(), 43)
    assert started > 0


def test_a_zombie_still_knows_whether_it_has_executed_a_program() -> None:
    executed, pidfd = ended_child()
    forked = os.fork()
    if not forked:
        os._exit(1)
    os.waitid(os.P_PID, forked, os.WEXITED | os.WNOWAIT)
    started = native.process_stat(forked)[2]
    assert native.has_executed(executed, native.process_stat(executed)[2]) is True
    assert native.has_executed(forked, started) is False
    assert native.has_executed(forked, started + 1) is None
    assert native.process_origin(executed) == (os.getpid(), native.process_stat(executed)[2], True)
    assert native.process_origin(forked) == (os.getpid(), started, False)
    for pid in (executed, forked):
        os.waitpid(pid, 0)
    os.close(pidfd)
    assert native.has_executed(forked, started) is None


def test_a_held_pidfd_reports_nothing_before_and_the_code_after_the_reaping_or_the_kernel_says_it_cannot() -> None:
    pid, pidfd = ended_child()
    try:
        before = native.pidfd_exit_status(pidfd)
        os.waitpid(pid, 0)
        after = native.pidfd_exit_status(pidfd)
    except OSError as error:
        assert error.errno in (errno.ENOTTY, errno.EINVAL)
    else:
        assert before is None and after is not None
        assert os.waitstatus_to_exitcode(after) == 43
    finally:
        os.close(pidfd)


def test_what_is_no_pidfd_is_an_error_and_no_status() -> None:
    with open("/dev/null") as file, pytest.raises(OSError):
        native.pidfd_exit_status(file.fileno())


def test_a_process_that_is_not_there_is_said_to_be_none() -> None:
    pid = os.posix_spawn("/bin/true", ["true"], {})
    os.waitpid(pid, 0)
    with pytest.raises(ProcessLookupError):
        native.process_stat(pid)


def test_a_subreaper_gets_the_orphans_of_its_children() -> None:
    script = (
        "import os, subprocess, sys; from shim import native; native.set_subreaper(True)\n"
        # The orphan waits for its input's end, so that its parent, the shell, cannot be the one who reaps it.
        "p = subprocess.Popen(['/bin/sh', '-c', 'exec 3<&0; (read x <&3; exit 7) & echo $!'], stdin=subprocess.PIPE,"
        " stdout=subprocess.PIPE)\n"
        "orphan = int(p.stdout.readline())\n"
        "p.wait()\n"
        "p.stdin.close()\n"
        "pid, status = os.waitpid(-1, 0)\n"
        "assert (pid, os.waitstatus_to_exitcode(status)) == (orphan, 7)\n"
    )
    root = pathlib.Path(__file__).parents[2]
    subprocess.run([sys.executable, "-c", script], check=True, timeout=20, cwd=root)


def test_a_mount_that_fails_names_its_target() -> None:
    with pytest.raises(OSError, match="/nowhere/at/all") as caught:
        native.mount("none", "/nowhere/at/all", "tmpfs", 0, "")
    assert caught.value.errno in (errno.ENOENT, errno.EPERM)
    with pytest.raises(OSError, match="/nowhere/at/all"):
        native.unmount("/nowhere/at/all")


def test_the_slots_of_a_shim_have_the_numbers_of_every_version_before() -> None:
    """A keeper of an earlier version starts shims of this one, with descriptors that this daemon names by number."""
    assert (slots.STATUS_FD, slots.OUTPUT, slots.INPUT, slots.SLOTS_END) == (3, (4, 5, 6, 7), (12, 13), 16)
    assert (slots.OWN_OUTPUT, slots.STAGE_READ_FD, slots.STAGE_WRITE_FD) == ((8, 9), 14, 15)
