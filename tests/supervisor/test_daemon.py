import errno
import fcntl
import os
import resource
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner

from shim.names import STATE_PATH_LIMIT
from supervisor import daemon
from supervisor.__main__ import main
from supervisor.daemon import check, claimed
from supervisor.engine.operations import Settings
from supervisor.model.errors import CannotStart
from tests.supervisor.descriptors import held_now, opened_since


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A short path that is ours alone."""
    tmp_path.chmod(0o755)
    return tmp_path


def test_a_directory_is_made_locked_and_let_go(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemon, "LOCK_SECONDS", 0.1)
    before = held_now()
    wanted = base / "deep" / "state"
    with claimed(str(wanted), 0o711):
        assert wanted.stat().st_mode & 0o777 == 0o711
        with pytest.raises(CannotStart, match="another exitd has"), claimed(str(wanted), 0o711):
            raise AssertionError("two have it")
    with claimed(str(wanted), 0o711):
        pass
    assert not opened_since(before)


def test_a_lock_that_a_child_of_a_killed_exitd_holds_for_a_moment_is_waited_for(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(daemon, "LOCK_SECONDS", 60.0)
    with claimed(str(base), 0o711):
        lock_fd = os.open(base / "exitd.lock", os.O_RDWR)
    fcntl.flock(lock_fd, fcntl.LOCK_EX)
    letting_go = threading.Timer(0.2, os.close, (lock_fd,))
    letting_go.start()
    with claimed(str(base), 0o711):
        pass
    letting_go.join()


def test_a_lock_of_another_process_holds_until_it_dies(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemon, "LOCK_SECONDS", 0.1)
    script = (
        "import sys\nfrom supervisor.daemon import claimed\n"
        "with claimed(sys.argv[1], 0o711):\n    print('mine', flush=True)\n    sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", script, str(base / "s")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == b"mine\n"
        with pytest.raises(CannotStart), claimed(str(base / "s"), 0o711):
            pass
        holder.kill()
        holder.wait(20)
    with claimed(str(base / "s"), 0o711):
        pass


@pytest.mark.parametrize("mode", [0o777, 0o775, 0o1777])
def test_a_directory_that_others_may_write_is_refused(base: Path, mode: int) -> None:
    (base / "s").mkdir()
    (base / "s").chmod(mode)
    with pytest.raises(CannotStart, match="writable only by that user"), claimed(str(base / "s"), 0o711):
        pass


def test_what_is_no_directory_is_refused_with_the_next_step(base: Path) -> None:
    (base / "file").touch()
    for path in (base / "file", base / "file" / "s"):
        with pytest.raises(CannotStart, match="--root or --state"), claimed(str(path), 0o711):
            pass


@pytest.mark.parametrize("kind", ["link", "directory"])
def test_a_lock_that_is_no_file_of_ours_is_refused(base: Path, kind: str) -> None:
    lock = base / "exitd.lock"
    if kind == "link":
        lock.symlink_to(base / "elsewhere")
    else:
        lock.mkdir()
    with pytest.raises(CannotStart, match=r"exitd\.lock"), claimed(str(base), 0o711):
        pass
    assert not (base / "elsewhere").exists()


def test_trouble_inside_is_not_taken_for_a_second_daemon(base: Path) -> None:
    with pytest.raises(BlockingIOError), claimed(str(base), 0o711):
        raise BlockingIOError(errno.EAGAIN, "something else")


@pytest.mark.parametrize(
    ("root", "state", "words"),
    [
        ("relative", "/s", "--root relative: must be an absolute path"),
        ("/r", "relative", "--state relative: must be an absolute path"),
        ("/r", "/" + "s" * STATE_PATH_LIMIT, f"at most {STATE_PATH_LIMIT} bytes"),
        ("/same", "/same", "each needs a directory of its own"),
        ("/same", "/nowhere/../same", "each needs a directory of its own"),
    ],
)
def test_impossible_directories_are_refused_before_anything_is_touched(root: str, state: str, words: str) -> None:
    with pytest.raises(CannotStart, match=words):
        check(Settings(root, state))
    assert not Path(root).exists()


def test_possible_directories_pass() -> None:
    check(Settings("/r", "/" + "s" * (STATE_PATH_LIMIT - 1)))


PREPARED = """
import os, resource, signal
from supervisor.daemon import prepare_process
prepare_process()
print(signal.getsignal(signal.SIGCHLD) == signal.SIG_DFL, signal.pthread_sigmask(signal.SIG_BLOCK, ()) == set(),
      os.getcwd(), oct(os.umask(0)), resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""


def test_what_a_supervisor_must_not_inherit_is_put_right() -> None:
    """SIGCHLD ignored by whoever started it would leave nothing to reap."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    words = f'trap "" CHLD; ulimit -Sn 100; umask 077; exec "{sys.executable}" -c "$1"'
    environment = {**os.environ, "PYTHONPATH": os.getcwd()}
    found = subprocess.run(
        ["sh", "-c", words, "sh", PREPARED], capture_output=True, text=True, env=environment, timeout=60
    )
    assert found.stdout.split() == ["True", "True", "/", "0o22", str(hard)], found.stderr


HUNG_UP = """
import os, signal, subprocess
from supervisor.daemon import prepare_process
prepare_process()
os.kill(os.getpid(), signal.SIGHUP)
print(subprocess.run(["sh", "-c", "kill -HUP $$"]).returncode)
"""


def test_a_sighup_before_it_serves_does_not_end_it_and_is_not_ignored_by_its_children() -> None:
    found = subprocess.run([sys.executable, "-c", HUNG_UP], capture_output=True, text=True, timeout=60)
    assert found.stdout == "-1\n", found.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--log-format", "xml"], "'xml' is not one of"),
        (["--reconcile-seconds", "0"], "not in the range"),
        (["--state"], "requires an argument"),
        (["--frobnicate"], "No such option"),
        (["stray"], "unexpected extra argument"),
    ],
)
def test_flags_that_cannot_be_right_are_usage_errors(arguments: list[str], words: str) -> None:
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2
    assert words in result.output


def test_help_names_the_directories_and_version_the_program() -> None:
    runner = CliRunner()
    shown = " ".join(runner.invoke(main, ["-h"]).output.split())
    assert "/var/lib/exitd" in shown and "EXITD_STATE or /run/exitd" in shown
    assert runner.invoke(main, ["--version"]).output.startswith("exitd, version ")


def test_a_daemon_that_cannot_start_says_why_in_one_line_and_ends_with_1(base: Path) -> None:
    command = [sys.executable, "-m", "supervisor", "--root", str(base / "same"), "--state", str(base / "same")]
    found = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (found.returncode, found.stdout) == (1, "")
    assert found.stderr.startswith("exitd: --root and --state are both")
    assert len(found.stderr.splitlines()) == 1
    assert not (base / "same").exists()
