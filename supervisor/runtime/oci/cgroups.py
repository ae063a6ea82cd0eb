"""The cgroups of a container, by the file system alone: where they are, which processes are in them, how they are
removed. v1 and v2.

A cgroups path is the value of config.json's linux.cgroupsPath. For the cgroupfs driver it is absolute, the same below
every hierarchy. For the systemd driver it is SLICE:PREFIX:NAME and means the unit PREFIX-NAME.scope in that slice
(systemd.slice(5): a-b.slice is in a.slice), whose cgroup is below every hierarchy, too. The runtime asks systemd to
make it, and systemd removes it, counters included, with its last process. `make test` tries such paths on made-up trees
and with a runtime that makes the directories itself, `make vm-test` under a systemd that is init.

`root` is a parameter so that a made-up tree can replace a kernel that is not available. See cgroups(7) and
https://docs.kernel.org/admin-guide/cgroup-v2.html.
"""

import errno
import os
import signal
import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from enum import StrEnum
from functools import lru_cache, partial

from shim.undo import undone_on_failure
from supervisor.model.errnos import USED_UP
from supervisor.model.errors import ShimFailed, TimedOut
from supervisor.model.values import Process
from supervisor.monitor import epoll, procfs

ROOT = "/sys/fs/cgroup"
CRUN_INNER = "container"  # the cgroup that crun makes in a scope
DEFAULT_SLICE = "system.slice"  # where the runtimes put a scope without a slice
NO_LIMIT = 1 << 60  # v1 writes "no limit" as a huge number that depends on the page size
CPU_PERIOD_US = 100_000  # the kernel's default for a new cgroup
MIN_QUOTA_US = 1_000  # the kernel's minimum
RETRY_SECONDS = 0.01
LAYOUT_SECONDS = 10.0
PATHS_KEPT = 256  # that have been taken apart: a container's is asked for a dozen times while it is made or found
READ_BYTES = 4096
AT_ONCE = 256  # pidfds held at a time: one round kills all processes, and waits for so many of them


class Mode(StrEnum):
    """The layouts of the cgroup file systems."""

    V1 = "v1"
    HYBRID = "hybrid"
    V2 = "v2"


def mode(root: str = ROOT) -> Mode:
    """Return the layout of this host. Only a v2 hierarchy has a file cgroup.controllers at its top."""
    return _layout(root)[0]


def _layout(root: str) -> tuple[Mode, list[str]]:
    """Return the layout, and the names of the v1 hierarchies; of the host as they were LAYOUT_SECONDS ago at most: a
    look at them all costs more than most work with a cgroup."""
    return _layout_seen(root, int(time.monotonic() / LAYOUT_SECONDS)) if root == ROOT else _layout_of(root)


@lru_cache(maxsize=1)
def _layout_seen(root: str, moment: int) -> tuple[Mode, list[str]]:
    return _layout_of(root)


def _layout_of(root: str) -> tuple[Mode, list[str]]:
    found = _mode_of(root)
    return found, [] if found is Mode.V2 else _hierarchies(root)


def _mode_of(root: str) -> Mode:
    if os.path.exists(f"{root}/cgroup.controllers"):
        return Mode.V2
    return Mode.HYBRID if os.path.exists(f"{root}/unified/cgroup.controllers") else Mode.V1


def hierarchies(root: str = ROOT) -> list[str]:
    """Return the names of the v1 hierarchies; none with v2 alone."""
    return _layout(root)[1]


def paths(cgroups_path: str, root: str = ROOT) -> dict[str, str]:
    """Return the cgroup's present or future directory in each hierarchy: {"memory": DIR, ...}; with v2 one entry,
    "unified".

    Raises ValueError for a path of neither form, and for one that is not strictly below the top, where all processes of
    the machine are.
    """
    inner = inside(cgroups_path)
    layout, names = _layout(root)
    if layout is Mode.V2:
        return {"unified": f"{root}/{inner}"}
    return {name: f"{root}/{name}/{inner}" for name in names}


def directories(cgroups_path: str, root: str = ROOT) -> tuple[str, ...]:
    """Return the directories without their names, the unified one first, in which all processes can be killed at
    once."""
    found = paths(cgroups_path, root)
    return tuple(found[name] for name in sorted(found, key=lambda name: (name != "unified", name)))


def is_scope(cgroups_path: str) -> bool:
    """Return whether the path has the form of the systemd driver."""
    return not cgroups_path.startswith("/") and cgroups_path.count(":") == 2


def with_inner(cgroups_path: str, path: str) -> tuple[str, ...]:
    """Return the directory of this cgroup in a hierarchy, and that of the one that crun has made in it if it is a
    scope: the limits of such a container are the inner one's."""
    inner = f"{path}/{CRUN_INNER}"
    return (path, inner) if is_scope(cgroups_path) and os.path.isdir(inner) else (path,)


def place(cgroups_path: str) -> str:
    """Return the path as `inside` does, with a slash at its end: those of all cgroups in it begin so."""
    return f"{inside(cgroups_path)}/"


@lru_cache(maxsize=PATHS_KEPT)
def inside(cgroups_path: str) -> str:
    """Return the path below the top of every hierarchy, without slashes at its ends. Raises ValueError as `paths`."""
    if is_scope(cgroups_path):
        slice_name, prefix, name = cgroups_path.split(":")
        if not name or name.endswith(".slice") or "/" in prefix + name:
            raise ValueError(f"cgroups path {cgroups_path!r} must be SLICE:PREFIX:NAME, of a scope")
        return f"{_slice_path(slice_name or DEFAULT_SLICE)}{prefix}-{name}.scope"
    inner = os.path.normpath(cgroups_path).lstrip("/")
    if not cgroups_path.startswith("/") or inner in ("", ".") or ".." in cgroups_path.split("/"):
        raise ValueError(f"cgroups path {cgroups_path!r} must be absolute and below the top, or SLICE:PREFIX:NAME")
    return inner


def inside_or_nowhere(cgroups_path: str) -> str:
    """As `inside`; empty for a path of neither form."""
    with suppress(ValueError):
        return inside(cgroups_path)
    return ""


def _slice_path(name: str) -> str:
    """Return the slice's path with a slash at the end: a-b.slice is a.slice/a-b.slice/, -.slice is the top."""
    stem = name.removesuffix(".slice")
    if stem == "-" and stem != name:
        return ""
    parts = stem.split("-")
    if stem == name or "/" in name or not all(parts):
        raise ValueError(f"{name!r} is no slice's name: it must be of the form a-b.slice")
    return "".join(f"{'-'.join(parts[: depth + 1])}.slice/" for depth in range(len(parts)))


def let_pass(cgroups_path: str, root: str = ROOT) -> None:
    """Let other users pass through the cgroups around this one, which may have been made with a narrow umask: with v1
    a container with users of its own comes to its cgroup by its path. Raises OSError."""
    if _mode_of(root) is Mode.V2:
        return
    for each in paths(cgroups_path, root).values():
        above = os.path.dirname(each)
        while above.startswith(f"{root}/"):
            with suppress(FileNotFoundError):
                mode = stat.S_IMODE(os.stat(above).st_mode)
                if not mode & stat.S_IXOTH:
                    os.chmod(above, mode | 0o011)
            above = os.path.dirname(above)


def oom_counter_path(cgroups_path: str, root: str = ROOT) -> str | None:
    """Return the file that counts memory kills, or None if the memory controller is not mounted."""
    return _memory_file(cgroups_path, ("memory.oom_control", "memory.events"), root)


def parse_oom_kills(text: str) -> int:
    """Return `oom_kill N` of memory.oom_control (v1, since Linux 4.13) or memory.events (v2); 0 if there is no such
    line."""
    value = f"\n{text}".partition("\noom_kill ")[2].partition("\n")[0].strip()
    return int(value) if value.isdigit() else 0


def oom_kills(cgroups_path: str, root: str = ROOT) -> int | None:
    """Return the present count; None if the cgroup is gone."""
    return oom_kills_in(oom_counter_path(cgroups_path, root))


def oom_kills_in(path: str | None) -> int | None:
    """As `oom_kills`, of the file that `oom_counter_path` has found."""
    text = _read(path) if path else None
    return None if text is None else parse_oom_kills(text)


def oom_event(cgroups_path: str, root: str = ROOT) -> int:
    """Return, with v1, an eventfd that the kernel signals when memory runs out in the cgroup or one above it, and when
    the cgroup is removed. -1: there is no such cgroup, or no memory controller. Raises OSError when this kernel does
    not report it."""
    path = _memory_file(cgroups_path, ("memory.oom_control", "memory.events"), root)
    if path is None:
        return -1
    try:
        counter_fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return -1
    try:
        event_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        with undone_on_failure(lambda: os.close(event_fd)):
            control_fd = os.open(f"{os.path.dirname(path)}/cgroup.event_control", os.O_WRONLY | os.O_CLOEXEC)
            try:
                os.write(control_fd, f"{event_fd} {counter_fd}".encode())
            finally:
                os.close(control_fd)
    finally:
        os.close(counter_fd)
    return event_fd


def memory_limit_bytes(cgroups_path: str, root: str = ROOT) -> int:
    """Return the limit that the kernel enforces on this cgroup itself; 0 if there is none or the cgroup is gone."""
    path = _memory_file(cgroups_path, ("memory.limit_in_bytes", "memory.max"), root)
    text = (_read(path) or "").strip() if path else ""
    limit = int(text) if text.isdigit() else 0  # v2 says "max"
    return limit if limit < NO_LIMIT else 0


def limit_memory(cgroups_path: str, limit_bytes: int, root: str = ROOT) -> None:
    """Set a memory limit for the cgroup, made if missing, and all below it. Raises ShimFailed when the kernel refuses.

    v2: a cgroup has the controllers that its parent hands down (cgroup-v2.rst, "Enabling and Disabling").
    """
    file = _memory_file(cgroups_path, ("memory.limit_in_bytes", "memory.max"), root)
    if file is None:
        raise ShimFailed(f"{cgroups_path}: no memory limit, the memory controller is not mounted")
    _limit(file, limit_bytes, "memory", root)


def limit_pids(cgroups_path: str, limit: int, root: str = ROOT) -> None:
    """Limit the processes and threads in the cgroup, made if missing, and below it: pids.max (Linux 4.3). The limit
    refuses forks; processes moved in are counted but not refused. Raises ShimFailed when the kernel refuses, or has no
    `pids`."""
    if not counts_pids(root):
        raise ShimFailed(f"{cgroups_path}: no limit of processes, the pids controller is not mounted")
    top = root if mode(root) is Mode.V2 else f"{root}/pids"
    _limit(f"{top}/{inside(cgroups_path)}/pids.max", limit, "pids", root)


def limit_cpu(cgroups_path: str, milli: int, root: str = ROOT) -> None:
    """Limit the CPU time of the cgroup, made if missing, and all below it, in thousandths of a CPU. v1 refuses cgroups
    below it that have more. Raises ShimFailed when the kernel refuses, or has no `cpu`."""
    quota = max(milli * CPU_PERIOD_US // 1000, MIN_QUOTA_US)
    if mode(root) is Mode.V2:
        return _limit(f"{root}/{inside(cgroups_path)}/cpu.max", f"{quota} {CPU_PERIOD_US}", "cpu", root)
    top = next((name for name in hierarchies(root) if "cpu" in name.split(",")), None)
    if top is None:
        raise ShimFailed(f"{cgroups_path}: no limit of CPU time, the cpu controller is not mounted")
    _limit(f"{root}/{top}/{inside(cgroups_path)}/cpu.cfs_quota_us", quota, "cpu", root)


NO_LIMITS = {  # file and text that means none, by controller, of v1 and of v2
    "cpu": (("cpu.cfs_quota_us", "-1"), ("cpu.max", f"max {CPU_PERIOD_US}")),
    "pids": (("pids.max", "max"), ("pids.max", "max")),
    "memory": (("memory.limit_in_bytes", "-1"), ("memory.max", "max")),
}


def lift(cgroups_path: str, controller: str, root: str = ROOT) -> None:
    """Take away the limit of the cgroup's own: of CPU time for `cpu`, of processes for `pids`, of memory for `memory`.
    Does nothing where there is no such cgroup. Raises OSError."""
    tops, is_v2 = paths(cgroups_path, root), mode(root) is Mode.V2
    names = ("unified",) if is_v2 else tuple(names for names in tops if controller in names.split(","))
    file, text = NO_LIMITS[controller][is_v2]
    there = (tops[name] for name in names if os.path.isdir(tops[name]))
    for path in (each for top in there for each in with_inner(cgroups_path, top)):
        with open(f"{path}/{file}", "w", encoding="ascii") as written:
            written.write(text)


def _limit(file: str, limit: int | str, controller: str, root: str) -> None:
    try:
        os.makedirs(os.path.dirname(file), exist_ok=True)
        if mode(root) is Mode.V2:
            _hand_down(controller, os.path.dirname(file), root)
        with open(file, "w", encoding="ascii") as written:
            written.write(str(limit))
    except OSError as error:
        raise ShimFailed(f"{file}: {error.strerror}; the {controller} limit is not set") from error


def _hand_down(controller: str, directory: str, root: str) -> None:
    """Enable the controller on every level from the top to `directory`."""
    level = root
    for part in os.path.relpath(directory, root).split("/"):
        with open(f"{level}/cgroup.subtree_control", "w", encoding="ascii") as control:
            control.write(f"+{controller}")
        level = f"{level}/{part}"


def children(cgroups_path: str, root: str = ROOT) -> tuple[str, ...]:
    """Return the cgroups directly below this one, in any hierarchy; none if it does not exist."""
    found = set[str]()
    for top in paths(cgroups_path, root).values():
        with suppress(FileNotFoundError, NotADirectoryError):
            found |= {entry.name for entry in os.scandir(top) if entry.is_dir(follow_symlinks=False)}
    return tuple(f"{cgroups_path}/{name}" for name in sorted(found))


def counts_pids(root: str = ROOT) -> bool:
    """Return whether the number of processes can be limited: pids.max, Linux 4.3."""
    if mode(root) is not Mode.V2:
        return os.path.isdir(f"{root}/pids")
    return "pids" in (_read(f"{root}/cgroup.controllers") or "").split()


def counts_swap(root: str = ROOT) -> bool:
    """Return whether a swap limit can be set. v2's top has no such file, so this asks any cgroup below it; what a
    cgroup namespace shows as the top has one."""
    if mode(root) is not Mode.V2:
        return os.path.exists(f"{root}/memory/memory.memsw.limit_in_bytes")
    below = (entry.path for entry in os.scandir(root) if entry.is_dir(follow_symlinks=False))
    return any(os.path.exists(f"{path}/memory.swap.max") for path in (root, *below))


def pids(cgroups_path: str, root: str = ROOT) -> tuple[int, ...]:
    """Return all pids in the cgroup or below it, in any hierarchy, sorted; none if there is no such cgroup."""
    found = {pid for top in paths(cgroups_path, root).values() for path in _tree(top) for pid in members(path)}
    return tuple(sorted(found))


def tops(root: str = ROOT) -> list[str]:
    """Return the top directory of each hierarchy in which a container has a cgroup; none if there are no cgroups."""
    if mode(root) is Mode.V2:
        return [root]
    return [f"{root}/{name}" for name in hierarchies(root) if name != "unified"]


def writable(root: str = ROOT) -> bool:
    """Return whether cgroups can be made here: by permission and by mount (access(2) knows read-only ones)."""
    if mode(root) is Mode.V2:
        return os.access(root, os.W_OK)
    names = hierarchies(root)
    return bool(names) and all(os.access(os.path.join(root, name), os.W_OK) for name in names)


def remove(cgroups_path: str, *, limit_seconds: float = 5.0, root: str = ROOT) -> None:
    """Remove the cgroup from every hierarchy, its children first, after killing the processes that are in it.
    Repeatable.

    Blocks for at most about `limit_seconds` (call it in a thread; if there is nothing left it only takes a few failed
    lookups). Raises TimedOut when it could not be emptied by then, OSError when the kernel refuses for another reason.
    """
    tops = paths(cgroups_path, root)
    deadline = time.monotonic() + limit_seconds
    while busy := [top for top in tops.values() if not _remove_tree(top)]:
        if time.monotonic() >= deadline:
            raise TimedOut(f"cgroup {busy[0]} is still busy after {limit_seconds:g} s", cgroup=cgroups_path)
        if not _kill_all(tops, deadline):
            time.sleep(RETRY_SECONDS)  # empty and yet EBUSY: the kernel releases the dead a moment later


def existing(cgroups_path: str, root: str = ROOT) -> tuple[str, ...]:
    """Return the existing directories of the cgroup, one for each hierarchy that has it."""
    return tuple(top for top in paths(cgroups_path, root).values() if os.path.isdir(top))


def join(cgroups_path: str, process: Process, root: str = ROOT) -> None:
    """Move a process into the cgroup, in each hierarchy that has it. Does nothing if the process has ended.

    Raises FileNotFoundError when no hierarchy has the cgroup, OSError when the kernel refuses.
    """
    if not (tops := existing(cgroups_path, root)):
        raise FileNotFoundError(errno.ENOENT, "no cgroup hierarchy has it", cgroups_path)
    for top in tops:
        if procfs.is_ending(process):
            return
        with suppress(ProcessLookupError), open(f"{top}/cgroup.procs", "r+", encoding="ascii") as file:
            file.write(str(process.pid))


def remove_if_empty(cgroups_path: str, *, limit_seconds: float = 3.0, root: str = ROOT) -> bool:
    """Remove a cgroup that others may share from every hierarchy in which it is empty. Return False if some of it is
    left. Repeatable.

    Blocks for at most about `limit_seconds`: a process that is about to end keeps its cgroup busy though it is no
    longer listed. Raises OSError when the kernel refuses for another reason.
    """
    tops = paths(cgroups_path, root).values()
    deadline = time.monotonic() + limit_seconds
    while not all([_remove_tree(top) for top in tops]):
        if pids(cgroups_path, root) or time.monotonic() >= deadline:
            return False
        time.sleep(RETRY_SECONDS)
    return True


def _kill_all(tops: dict[str, str], deadline: float) -> bool:
    """Kill every process once with SIGKILL and wait for their ends. Return whether there was any."""
    ends: list[int] = []
    try:
        try:
            _freeze(tops, "FROZEN")  # so that a fork bomb is not faster than the list
            for top in tops.values():
                _write(os.path.join(top, "cgroup.kill"), "1")  # v2 since Linux 5.14: all at once, forks included
            found = (end_fd for top in tops.values() for path in _tree(top) for end_fd in _kill_members(path))
            for end_fd in found:
                if len(ends) < AT_ONCE:
                    ends.append(end_fd)
                else:
                    os.close(end_fd)
        except OSError:  # no descriptor for one more: those found so far end first
            if not ends:
                raise
            os.close(ends.pop())
        finally:
            _freeze(tops, "THAWED")  # what is frozen in v1 does not die; v2 kills frozen processes
        for end_fd in ends:
            epoll.read_ready(end_fd, max(0.0, deadline - time.monotonic()))
    finally:
        for end_fd in ends:
            os.close(end_fd)
    return bool(ends)


def _kill_members(path: str) -> Iterator[int]:
    """Send SIGKILL to the members of one cgroup and yield their pidfds, which the caller closes.

    A pid read from a file may be another process's by now. The pidfd is opened first. If the pid is still listed after
    that, it was a member's when it was opened; or it is a newer member's and the pidfd's process is dead.
    """
    for pid in members(path):
        if pid == os.getpid():
            continue
        end_fd = epoll.open_pid(pid)
        if end_fd is None:
            continue
        with undone_on_failure(partial(os.close, end_fd)):  # there may be no descriptor for the second look
            is_listed = pid in members(path)
        if is_listed:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(end_fd, signal.SIGKILL)
            yield end_fd
        else:
            os.close(end_fd)


def thaw(cgroups_path: str, root: str = ROOT) -> None:
    """Thaw the cgroup so that its processes can die: v1 keeps frozen processes from dying, v2 does not. Repeatable."""
    _freeze(paths(cgroups_path, root), "THAWED")


def is_frozen(cgroups_path: str, root: str = ROOT) -> bool:
    """Return whether the cgroup itself is frozen, whatever one above it is; False if it does not exist."""
    tops = paths(cgroups_path, root)
    v1 = f"{tops['freezer']}/freezer.self_freezing" if "freezer" in tops else ""
    v2 = f"{tops['unified']}/cgroup.freeze" if "unified" in tops else ""
    return any((_read(file) or "").strip() == "1" for file in (v1, v2) if file)


def _freeze(tops: dict[str, str], state: str) -> None:
    """v1 only: set FROZEN or THAWED for the whole tree, without waiting. A child that was paused itself is thawed,
    too."""
    for path in _tree(tops["freezer"]) if "freezer" in tops else ():
        _write(os.path.join(path, "freezer.state"), state)


def _remove_tree(top: str) -> bool:
    """rmdir, children first. Return False if something in it is busy."""
    for path in reversed(list(_tree(top))):
        try:
            os.rmdir(path)
        except FileNotFoundError:
            continue
        except OSError as error:
            if error.errno in _BUSY:
                return False
            raise
    return True


_BUSY = frozenset({errno.EBUSY, errno.ENOTEMPTY})  # a process is in it; a child was made meanwhile


def _tree(top: str) -> Iterator[str]:
    """Yield the cgroup and all below it, parents first; nothing if it does not exist. Raises OSError when it cannot be
    read."""
    if os.path.isdir(top):
        for path, _, _ in os.walk(top, onerror=_raised_unless_gone):
            yield path


def _raised_unless_gone(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error


def members(directory: str) -> list[int]:
    """Return the pids in one cgroup; none if it is gone. Raises OSError when it cannot be read.

    cgroup.procs lists a process of a pid namespace that is not visible from here as 0. That of a threaded cgroup of v2
    cannot be read (EOPNOTSUPP): it contains threads, whose processes are looked up.
    """
    try:
        return _numbers(_read(f"{directory}/cgroup.procs"))
    except OSError as error:
        if error.errno != errno.EOPNOTSUPP:
            raise
    threads = _numbers(_read(f"{directory}/cgroup.threads"))
    return sorted({pid for tid in threads if (pid := procfs.process_of(tid))})


def _numbers(text: str | None) -> list[int]:
    return [int(line) for line in (text or "").split() if line != "0"]


def _hierarchies(root: str) -> list[str]:
    """v1 hierarchies, including named ones and the unified one of a hybrid host. Links are second names:
    cpu,cpuacct."""
    with suppress(FileNotFoundError):
        entries = [entry for entry in os.scandir(root) if entry.is_dir(follow_symlinks=False)]
        return sorted(entry.name for entry in entries if os.path.exists(f"{entry.path}/cgroup.procs"))
    return []


def _memory_file(cgroups_path: str, v1_v2: tuple[str, str], root: str) -> str | None:
    inner = inside(cgroups_path)
    layout, names = _layout(root)
    if layout is Mode.V2:
        return f"{root}/{inner}/{v1_v2[1]}"
    return f"{root}/memory/{inner}/{v1_v2[0]}" if "memory" in names else None


def _read(path: str) -> str | None:
    """Return None if the cgroup is gone: ENOENT, or ENODEV if the file was open or opened at the moment of removal."""
    try:
        return _text_of(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        if error.errno == errno.ENODEV:
            return None
        raise


def _text_of(path: str) -> str:
    """Return a file of the kernel's. Without the layers of open(): they take as long as the kernel, and exitd reads
    some for each container in each round. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        text = os.read(fd, READ_BYTES)
        while more := os.read(fd, READ_BYTES):
            text += more
        return text.decode("ascii")
    finally:
        os.close(fd)


def _write(path: str, text: str) -> None:
    """Best effort: the file is missing on older kernels, and gone with its cgroup; a later look decides. Raises OSError
    when it cannot be opened for lack of descriptors or memory."""
    try:
        with open(path, "r+", encoding="ascii") as file:
            file.write(text)
    except OSError as error:
        if error.errno in USED_UP:
            raise
