"""The machine a run takes place on: its facts, a scratch place that is cleaned up, and load made on purpose."""

import contextlib
import json
import os
import pathlib
import platform
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from shim.frozen import frozen
from supervisor.runtime.oci import cgroups

LIMIT_SECONDS = 30.0
UNMOUNT_SECONDS = 10.0
BUSY = "import os; os.sched_setaffinity(0, {})\nwhile True: pass"
BUSY_WORDS = "an endless loop at nice 0 on every processor"  # what busy_cores does, for those who read its figures
DISTRIBUTION_PYTHON = "/usr/bin/python3"
ROOT_FOLDERS = ("usr", "bin", "sbin", "lib", "lib64")
DATA = "/data"


def cgroup_of(pid: int) -> str:
    """Return the cgroup around everything that the process measures; it is no other process's."""
    return f"/exitd-measured-{pid}"


CGROUP = cgroup_of(os.getpid())


def until(look: Callable[[], object], what: str, seconds: float = LIMIT_SECONDS, step: float = 0.002) -> None:
    """Call `look` every `step` seconds until it returns something true. Raises TimeoutError, with `what`, after
    `seconds`."""
    deadline = time.monotonic() + seconds
    while not look():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {seconds:.0f} s")
        time.sleep(step)


def wait_readable(fd: int, what: str, seconds: float = LIMIT_SECONDS) -> None:
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    if not poll.poll(seconds * 1000):
        raise TimeoutError(f"{what}: not within {seconds:.0f} s")


def run(*argv: str) -> None:
    """Run a command to its end, its stderr passed on. Its stdout goes nowhere: a container's init inherits it.

    The end is awaited on a pidfd: subprocess's own wait with a limit looks only now and then, up to 50 ms apart.
    """
    process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    pidfd = os.pidfd_open(process.pid)
    try:
        wait_readable(pidfd, argv[0])
    finally:
        os.close(pidfd)
    if process.wait():
        raise subprocess.CalledProcessError(process.returncode, argv)


def end_process(pid: int) -> None:
    """Send SIGKILL through a pidfd, and wait until it is dead."""
    with contextlib.suppress(ProcessLookupError):
        pidfd = os.pidfd_open(pid)
        try:
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            wait_readable(pidfd, f"the end of {pid}")
        finally:
            os.close(pidfd)


@contextlib.contextmanager
def busy_cores() -> Iterator[None]:
    """Keep every core that we may use busy inside the block, with an endless loop that has the priority of everybody
    else."""
    with _loops([core] for core in sorted(os.sched_getaffinity(0))):
        yield


@contextlib.contextmanager
def busy_loops(count: int) -> Iterator[None]:
    """Run so many endless loops inside the block, at the priority of everybody else and on whatever core they get."""
    with _loops([sorted(os.sched_getaffinity(0))] * count):
        yield


@contextlib.contextmanager
def _loops(cores: Iterable[list[int]]) -> Iterator[None]:
    """One for each list of cores, at nice 0 whatever this process's priority is."""
    with contextlib.ExitStack() as stack:
        for allowed in cores:
            loop = stack.enter_context(subprocess.Popen([sys.executable, "-S", "-c", BUSY.format(allowed)]))
            stack.callback(loop.kill)
            os.setpriority(os.PRIO_PROCESS, loop.pid, 0)
        yield


def file_system(path: str) -> str:
    """Return the type of the file system that holds `path`, by the longest mount point that leads to it."""
    best, kind = "", "unknown"
    for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines():
        words = line.split()
        point = words[4].rstrip("/")
        if len(point) >= len(best) and f"{path}/".startswith(f"{point}/"):
            best, kind = point, words[words.index("-") + 1]
    return kind


def load() -> str:
    """Return the three load averages."""
    return " ".join(pathlib.Path("/proc/loadavg").read_text().split()[:3])


def idle_share(seconds: float) -> float:
    """Return how much of all cores was idle in the next `seconds`, from /proc/stat; 1.0 is all."""
    before = _core_ticks()
    time.sleep(seconds)
    idle, total = (after - b for after, b in zip(_core_ticks(), before, strict=True))
    return idle / max(total, 1)


def _core_ticks() -> tuple[int, int]:
    ticks = [int(word) for word in pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return ticks[3] + ticks[4], sum(ticks)


def first_line(*argv: str) -> str:
    """Return what a program says first, or `absent`."""
    if shutil.which(argv[0]) is None:
        return "absent"
    done = subprocess.run(argv, capture_output=True, text=True, timeout=LIMIT_SECONDS)
    return (done.stdout.splitlines() or ["no version shown"])[0]


@frozen
class Work:
    """What a container does, and with what."""

    args: tuple[str, ...] = ("/usr/bin/sleep", "1000000")
    data: str = ""  # a directory that it sees as DATA
    tty: bool = False
    stdin: bool = False  # stays open


SLEEP = Work()


@frozen
class Scratch:
    """`state` is where runs live (memory, as /run is), `root` is on a disk that has to be flushed."""

    state: str
    root: str
    config: dict[str, Any]

    def state_place(self, name: str) -> str:
        return _made(f"{self.state}/{name}")

    def root_place(self, name: str) -> str:
        return _made(f"{self.root}/{name}")

    def bundle(self, id: str, cgroup: str = "", work: Work = SLEEP) -> str:
        """Make an OCI bundle of its own, and return it: conmon, for one, leaves files in it."""
        place = _made(f"{self.root}/bundles/{id}")
        pathlib.Path(f"{place}/config.json").write_text(json.dumps(self.spec(cgroup, work)))
        return place

    def spec(self, cgroup: str, work: Work = SLEEP) -> dict[str, Any]:
        """Return a config.json of its own, on the host's programs."""
        config: dict[str, Any] = json.loads(json.dumps(self.config))
        config["linux"]["cgroupsPath"] = cgroup
        config["process"].update(terminal=work.tty, args=list(work.args))
        if work.data:
            config["mounts"].append(_bind(work.data, DATA))
        return config


def facts(scratch: Scratch) -> dict[str, str]:
    """Return what a reader must know to judge the figures."""
    return {
        "kernel": platform.release(),
        "cpus": str(len(os.sched_getaffinity(0))),
        "python": python_build(),
        "runc": first_line("runc", "--version"),
        "conmon": first_line("conmon", "--version"),
        "containerd": first_line("containerd", "--version"),
        "podman": first_line("podman", "--version"),
        "state directory on": file_system(scratch.state),
        "database on": file_system(scratch.root),
    }


def python_build() -> str:
    """Return this Python's version, when and by which compiler it was built, and whether it is the distribution's own:
    builds of one version differ by a third in speed. In an environment, of the Python that it was made with."""
    base = os.path.realpath(getattr(sys, "_base_executable", sys.executable))
    own = base == os.path.realpath(DISTRIBUTION_PYTHON)
    kind = f"the distribution's own {DISTRIBUTION_PYTHON}" if own else f"not the distribution's {DISTRIBUTION_PYTHON}"
    return f"{' '.join(sys.version.split())}, {kind}"


@contextlib.contextmanager
def scratch(state_on: str, root_on: str) -> Iterator[Scratch]:
    """Make both directories for the block. They are removed at its end, unless something stays mounted below them for
    UNMOUNT_SECONDS."""
    state = tempfile.mkdtemp(prefix="xb", dir=state_on)
    root = tempfile.mkdtemp(prefix="xb", dir=root_on)
    try:
        yield Scratch(state, root, _config(_made(f"{root}/rootfs"), f"{root}/spec"))
    finally:
        for place in (state, root):
            if not _unmounted(place):
                print(f"{place}: something is still mounted below it, it stays", file=sys.stderr)
            else:
                shutil.rmtree(place)
        _remove_cgroups()


def _unmounted(place: str) -> bool:
    """Wait until nothing is mounted below the place, UNMOUNT_SECONDS at most: what an engine that was ended a moment
    ago has mounted goes with its last process. The file reports each change (proc_pid_mountinfo(5))."""
    deadline, changes = time.monotonic() + UNMOUNT_SECONDS, select.poll()
    with open("/proc/self/mountinfo", encoding="utf-8") as file:
        changes.register(file, select.POLLPRI)
        while f" {place}/" in file.read():
            if not changes.poll(max(0.0, deadline - time.monotonic()) * 1000):
                return False
            file.seek(0)
    return True


def memory_place() -> str:
    """Return the first directory in memory: where a state directory belongs."""
    return next((place for place in ("/run", "/dev/shm") if file_system(place) == "tmpfs"), "/tmp")


def _made(place: str) -> str:
    os.makedirs(place, mode=0o700, exist_ok=True)
    return place


def _config(rootfs: str, place: str) -> dict[str, Any]:
    """runc's own example, made to run the host's `sleep` on the host's programs, read-only."""
    run("runc", "spec", "--bundle", _made(place))
    config: dict[str, Any] = json.loads(pathlib.Path(f"{place}/config.json").read_text())
    config["root"] = {"path": rootfs, "readonly": False}
    config["process"]["env"] = ["PATH=/usr/bin:/bin"]
    for name in ROOT_FOLDERS:
        if os.path.islink(f"/{name}"):
            os.symlink(os.readlink(f"/{name}"), f"{rootfs}/{name}")
        elif os.path.isdir(f"/{name}"):
            _made(f"{rootfs}/{name}")
            config["mounts"].append(_bind(f"/{name}", f"/{name}"))
    os.chmod(rootfs, 0o755)
    return config


def _bind(source: str, destination: str) -> dict[str, Any]:
    options = ["rbind", "ro", "nosuid"]
    return {"destination": destination, "type": "bind", "source": source, "options": options}


def remove_cgroup(path: str) -> list[str]:
    """Remove a cgroup and all below it, in every hierarchy. Return the directories that were there."""
    found = []
    for top in cgroups.paths(path).values():
        for directory, _, _ in os.walk(top, topdown=False):
            with contextlib.suppress(FileNotFoundError):
                os.rmdir(directory)
                found.append(directory)
    return found


def _remove_cgroups() -> None:
    """The parents of what the runtimes have removed."""
    for path in pathlib.Path("/sys/fs/cgroup").glob(f"*{CGROUP}"):
        with contextlib.suppress(OSError):
            path.rmdir()
    with contextlib.suppress(OSError):
        os.rmdir(f"/sys/fs/cgroup{CGROUP}")


def command_lines() -> Iterator[tuple[int, Sequence[bytes]]]:
    """Yield pid and command line of every process."""
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                yield int(name), command_line(int(name))


def command_line(pid: int) -> list[bytes]:
    """Return the words of a command line. Raises OSError when there is no such process."""
    return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")


def cpu_seconds(pid: int) -> float:
    """Return what a process has used, user and system; in steps of a tick, 10 ms as a rule."""
    words = _stat(pid)
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def private_kb(pid: int) -> tuple[int, int]:
    """Return Private_Clean and Private_Dirty of a process in kB, from /proc/PID/smaps_rollup."""
    found = _rollup(pid)
    return found["Private_Clean"], found["Private_Dirty"]


def pss_kb(pid: int) -> int:
    """Return a process's share of all that it has in memory in kB, from /proc/PID/smaps_rollup."""
    return _rollup(pid)["Pss"]


def _rollup(pid: int) -> dict[str, int]:
    """kB by name; the first line is the range of addresses."""
    lines = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return {line.split(":")[0]: int(line.split()[1]) for line in lines[1:]}


def parent_of(pid: int) -> int:
    """Return the parent's pid. Raises OSError when there is no such process."""
    return int(_stat(pid)[1])


def state_of(pid: int) -> str:
    """Return the letter that proc(5) has for its state. Raises OSError when there is no such process."""
    return _stat(pid)[0]


def _stat(pid: int) -> list[str]:
    """What stands behind its name, from the state on."""
    return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def status_kb(pid: int, field: str) -> int:
    """Return one of the sizes in /proc/PID/status, in kB."""
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1])
    raise ValueError(f"{field} of {pid}")
