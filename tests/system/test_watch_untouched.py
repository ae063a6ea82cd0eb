"""What is watched is left alone, and what lives over a restart of exitd is reported."""

import contextlib
import os
import pathlib
import re
import signal

import pytest

from protos.exitd.v1 import exitd_pb2 as pb
from tests.system import daemons
from tests.system.kill_matrix.calls import traced
from tests.system.waits import until
from tests.system.watched import KERNELS_SOURCE, end_of, engine, observed, said, stranger, told

# Whatever could change something outside of exitd's own directories and sockets.
CHANGING = (
    *("kill", "tkill", "tgkill", "pidfd_send_signal", "ptrace", "process_vm_writev", "setpriority", "prlimit64"),
    *("mkdir", "mkdirat", "rmdir", "unlink", "unlinkat", "rename", "renameat", "renameat2", "link", "symlink"),
    *("chmod", "fchmod", "fchmodat", "chown", "fchown", "utimensat", "mknod", "mknodat", "mount", "umount2", "setns"),
    *("truncate", "ftruncate", "fallocate", "openat", "open", "creat", "vfork", "clone3", "clone", "fork"),
)


def listing(root: pathlib.Path) -> dict[str, tuple[int, int, int]]:
    """Every file below it: when it was changed, its size and its mode."""
    found = [root, *sorted(root.rglob("*"))]
    return {str(path): (path.lstat().st_mtime_ns, path.lstat().st_size, path.lstat().st_mode) for path in found}


def counters(cgroup: str) -> dict[str, str]:
    """What can be written in its cgroups, but for what counts by itself."""
    top, inner = pathlib.Path("/sys/fs/cgroup"), cgroup.lstrip("/")
    files = (path for at in (inner, f"*/{inner}") for path in top.glob(f"{at}/*") if path.is_file())
    found = {}
    for path in files:
        if path.stat().st_mode & 0o222 and path.stat().st_mode & 0o444 and not MOVING.search(path.name):
            with contextlib.suppress(OSError):
                found[str(path)] = path.read_text()
    return found


MOVING = re.compile(r"usage|stat|failcnt|peak|pressure|numa|kmem|force_empty|cpu\.cfs_|io_")


def test_nothing_of_a_watched_container_is_touched(tmp_path: pathlib.Path) -> None:
    """Its process, its cgroups, its runtime's directory; and exitd writes and signals nowhere but at home."""
    with engine("runc", tmp_path / "x") as runtime, daemons.daemon() as daemon, daemon.client() as client:
        client.version()
        runtime.run("web", "echo up >/mnt/up; go; exit 7", memory_bytes=16 << 20)
        pid, up = runtime.pid("web"), runtime.base / "mnt" / "up"
        until(lambda: up.exists() and up.read_text() == "up\n", "its own program does not run")
        before = listing(runtime.root), counters(f"{runtime.cgroup}/web"), status_of(pid)
        trace = tmp_path / "trace"
        with traced(daemon, "-y", "-o", str(trace), "-e", f"trace={','.join((*CHANGING, 'write', 'pwrite64'))}"):
            target = client.watch(pb.WatchRequest(runc_root=str(runtime.root))).watch.target
            observed(client, target, 1)
            assert (listing(runtime.root), counters(f"{runtime.cgroup}/web"), status_of(pid)) == before
            runtime.go("web")
            assert said(end_of(client, f"web@{runtime.root}")) == ("exited 7", "self")
            assert listing(runtime.root) == before[0]
            client.end_watch(target)
        assert [line for line in trace.read_text().splitlines() if touches(line, str(daemon.base))] == []


def status_of(pid: int) -> list[str]:
    """What a signal, a tracer or a debugger would change."""
    kept = ("TracerPid:", "SigPnd:", "ShdPnd:", "SigBlk:", "SigIgn:", "SigCgt:", "Cpus_allowed:", "PPid:")
    return [line for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith(kept)]


READS = re.compile(r"\bopenat?\(.*O_RDONLY")
WRITES = re.compile(r"\b(?:write|pwrite64)\(\d+<([^>]*)>")
THREADS = re.compile(r"\bclone3?\(.*CLONE_THREAD")
NOWHERE = re.compile(r'openat?\(.*"/dev/null"')
PROBE = re.compile(r"vfork\(|--- SIG|\+\+\+|<unfinished|resumed>")


def touches(line: str, home: str) -> bool:
    """A call that changes something that is not exitd's own."""
    if READS.search(line) or THREADS.search(line) or PROBE.search(line) or home in line or NOWHERE.search(line):
        return False
    written = WRITES.search(line)
    own = ("socket:", "pipe:", "anon_inode:", "UNIX:", "TCP:")
    return written is None or not written[1].startswith(own)


@pytest.mark.parametrize(
    "call",
    [
        "7 pidfd_send_signal(31<pid:[70]>, SIGKILL, NULL, 0) = 0",
        "7 kill(70, 0) = 0",
        '7 openat(AT_FDCWD</>, "/sys/fs/cgroup/memory/web/cgroup.event_control", O_WRONLY|O_CLOEXEC) = 32',
        '7 write(32</sys/fs/cgroup/memory/web/cgroup.event_control>, "31 30", 5) = 5',
        '7 unlink("/run/runc/web/state.json") = 0',
    ],
)
def test_what_would_touch_one_is_noticed(call: str) -> None:
    assert touches(call, "/tmp/home")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_what_lives_over_a_restart_is_reported_truly_and_a_zombie_too(number: int) -> None:
    with daemons.daemon() as daemon, stranger("exit 7") as first, stranger("exit 9") as second:
        with daemon.client() as client:
            for process in (first, second):
                client.watch(pb.WatchRequest(pid=process.pid))
        os.kill(second.parent.pid, signal.SIGSTOP)  # it does not reap
        daemon.kill(number)
        second.go()
        status = pathlib.Path(f"/proc/{second.pid}/status")
        until(lambda: "\nState:\tZ" in status.read_text(), "it does not end")
        daemon.start()
        with daemon.client() as client:
            exit_ = told(client, second)
            assert (said(exit_), exit_.source) == (("exited 9", "self"), "zombie")
            assert len(client.watches()) == 1
            first.go()
            exit_ = told(client, first)
            assert (said(exit_), exit_.source) == (("exited 7", "self"), KERNELS_SOURCE)
        os.kill(second.parent.pid, signal.SIGCONT)
