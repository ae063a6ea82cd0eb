"""Processes and cgroups of this machine: looked at, waited for, stopped and killed."""

import contextlib
import functools
import os
import pathlib
import signal
from collections.abc import Iterator

from shim import native
from tests.system.waits import before_the_end, wait_readable


def commands() -> Iterator[tuple[int, bytes]]:
    """pid and command line of every process, by as little as it takes: this is asked all the time."""
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                fd = os.open(f"/proc/{name}/cmdline", os.O_RDONLY)
            except OSError:
                continue
            try:
                command = os.read(fd, 1 << 20)
            except OSError:
                continue
            finally:
                os.close(fd)
            yield int(name), command


def descriptors_of(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def links_of(pid: int) -> set[str]:
    """What its descriptors name; those that are closed meanwhile are passed over."""
    found = set()
    for name in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):
            found.add(os.readlink(f"/proc/{pid}/fd/{name}"))
    return found


def cwd_of(pid: int) -> str:
    """Empty when it has gone."""
    try:
        return os.readlink(f"/proc/{pid}/cwd")
    except OSError:
        return ""


def private_kb(pid: int) -> int:
    """What it has written and shares with nobody."""
    rollup = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in rollup if line.startswith("Private_Dirty"))


def own_kb(pid: int) -> int:
    """What it shares with nobody, written or not: of its program too, unless another process has that as well."""
    rollup = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in rollup if line.startswith(("Private_Clean", "Private_Dirty")))


def children_of(pid: int) -> list[int]:
    """Of its first thread, zombies included."""
    return [int(word) for word in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def zombies_of(parents: set[int]) -> list[int]:
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(ProcessLookupError):
            state, parent, _, _ = native.process_stat(int(name))
            found += [int(name)] if state == "Z" and parent in parents else []
    return found


def wait_state(pid: int, pidfd: int, states: str) -> bool:
    """True once the process is in one of these states (proc(5)), False when it has gone or takes too long."""

    def is_there() -> bool:
        try:
            return not wait_readable(pidfd, 0) and native.process_stat(pid)[0] in states
        except ProcessLookupError:  # it has been reaped between the two looks
            return False

    return before_the_end(pidfd, is_there)


def wait_gone(pid: int, meanwhile_pidfd: int) -> bool:
    """True once nothing is left of the process, not even a zombie; False when that takes too long, or when the process
    of `meanwhile_pidfd` has ended before."""
    return before_the_end(meanwhile_pidfd, lambda: not os.path.exists(f"/proc/{pid}"))


@functools.cache
def kernel_reports() -> bool:
    """Whether a pidfd says how a process has ended that another has reaped: Linux 6.15."""
    pid = os.fork()
    if not pid:
        os._exit(43)
    pidfd = os.pidfd_open(pid)
    os.waitpid(pid, 0)
    try:
        return native.pidfd_exit_status(pidfd) is not None
    except OSError:
        return False
    finally:
        os.close(pidfd)


def open_files(pid: int | str = "self") -> dict[int, str]:
    """Descriptor numbers and what they lead to."""
    links = {}
    for entry in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            links[int(entry.name)] = os.readlink(entry)
    return links


def cgroup_directories(cgroup: str) -> list[pathlib.Path]:
    """What there is of a cgroup, in every hierarchy of either version."""
    mounts = [line.split() for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines()]
    points = [words[4] for words in mounts if words[words.index("-") + 1] in ("cgroup", "cgroup2")]
    return [path for point in points if (path := pathlib.Path(point + cgroup)).exists()]


def cgroups_below(cgroup: str) -> list[pathlib.Path]:
    """All of them in every hierarchy, the innermost first, without the cgroup itself."""
    return [path for path in _cgroup_and_below(cgroup) if not str(path).endswith(cgroup)]


def _cgroup_and_below(cgroup: str) -> list[pathlib.Path]:
    return [pathlib.Path(path) for top in cgroup_directories(cgroup) for path, *_ in os.walk(top, topdown=False)]


def cgroup_pids(cgroup: str) -> set[int]:
    """Of all below it, too. Who clears one away meanwhile is no trouble: ENOENT, or ENODEV where it was open."""
    found: set[int] = set()
    for path in _cgroup_and_below(cgroup):
        with contextlib.suppress(OSError):
            found |= set(map(int, (path / "cgroup.procs").read_text().split()))
    return found


def end_process(pid: int) -> None:
    """SIGKILL to one that may have gone already; it is dead when this returns."""
    with contextlib.suppress(ProcessLookupError):
        killed(pid)


def empty_cgroup(cgroup: str) -> None:
    """What the daemon does about a run's cgroups after runtime delete, whatever that returned."""
    for pid in cgroup_pids(cgroup):
        end_process(pid)
    for path in _cgroup_and_below(cgroup):
        with contextlib.suppress(FileNotFoundError):
            path.rmdir()


def processes_of(state: pathlib.Path) -> list[str]:
    """Every process that has to do with a state directory: by its command line or its working directory."""
    found, wanted = [], os.fsencode(state)
    for pid, command in commands():
        if wanted in command or cwd_of(pid).startswith(str(state)):
            found.append(f"{pid}: {command.replace(bytes(1), b' ').decode('utf-8', 'replace')}")
    return found


def killed(pid: int, number: int = signal.SIGKILL) -> None:
    """By pid, as an operator would; dead when this returns."""
    pidfd = os.pidfd_open(pid)
    try:
        signal.pidfd_send_signal(pidfd, number)
        assert wait_readable(pidfd), f"{pid} does not die"
    finally:
        os.close(pidfd)


def gone(pid: int) -> bool:
    """Not even a zombie of it is left."""
    return not pathlib.Path(f"/proc/{pid}").exists()


def in_mask(pid: int, mask: str, number: int) -> bool:
    """Whether the process ignores (SigIgn), catches (SigCgt), ... this signal."""
    lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
    found = next(int(line.split()[1], 16) for line in lines if line.startswith(f"{mask}:"))
    return bool(found & 1 << number - 1)


def state_of(pid: int) -> str:
    """proc(5)'s letter; empty when it has gone."""
    try:
        return native.process_stat(pid)[0]
    except ProcessLookupError:
        return ""


@contextlib.contextmanager
def stopped(pid: int) -> Iterator[int]:
    """The process stands still for the block, or until it is killed. Its pidfd; -1 when there is no such process."""
    pidfd = -1
    with contextlib.suppress(ProcessLookupError):
        pidfd = os.pidfd_open(pid) if pid else -1
    try:
        if pidfd >= 0:
            signal.pidfd_send_signal(pidfd, signal.SIGSTOP)
        yield pidfd
    finally:
        if pidfd >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(pidfd, signal.SIGCONT)
            os.close(pidfd)
