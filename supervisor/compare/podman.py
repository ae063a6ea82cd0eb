"""podman, with directories of its own: a command without a daemon, a conmon for each container."""

import os
import pathlib
import resource
import subprocess
from collections.abc import Sequence

from shim.frozen import frozen
from supervisor.compare import machine
from supervisor.compare.daemonless import Daemonless
from supervisor.compare.group import ProcessGroup
from supervisor.compare.machine import (
    CGROUP,
    DATA,
    ROOT_FOLDERS,
    SLEEP,
    Scratch,
    Work,
    command_lines,
    run,
    until,
)
from supervisor.compare.podspec import pause_root
from supervisor.compare.way import Wait, WayAnswer, WayContainer, WayPod, number_answer

SMALL_LIMIT = 4096
SHARED = ("--network", "none", "--share", "ipc,net,uts", "--security-opt", "seccomp=unconfined")
PAUSE = "exitd-pause"


class Podman:
    """podman with directories of its own. Its containers sleep on the same files as everybody's, with a config.json
    that podman writes."""

    name = "podman"

    def __init__(self, scratch: Scratch, before: Sequence[str] = ()) -> None:
        self._root, self._state = scratch.root_place("podman"), scratch.state_place("podman")
        self._before = tuple(before)
        self._rootfs = scratch.config["root"]["path"]
        self.environment = {**os.environ, "CONTAINERS_CONF": f"{self._root}/containers.conf"}
        pathlib.Path(f"{self._root}/containers.conf").write_text(_limits())
        self._volumes = [f"--volume=/{name}:/{name}:ro" for name in ROOT_FOLDERS if _is_directory(f"/{name}")]

    def run(self, id: str, *options: str, work: Work = SLEEP) -> None:
        where = ("--rootfs", self._rootfs, *work.args)
        self.call("run", "--detach", *options, "--name", id, *self._volumes, *where)

    def exec(self, id: str, *args: str) -> None:
        """Run an exec to its end."""
        self.call("exec", id, *args)

    def close(self) -> None:
        """Remove everything. Waits for podman's own clean-up, which goes on after its commands and mounts its store
        once more, and again."""
        self.call("pod", "rm", "--force", "--time", "0", "--all")
        self.call("rm", "--force", "--time", "0", "--all")
        self.call("rmi", "--force", "--all")
        root = os.fsencode(self._root)
        until(lambda: all(root not in words for _, words in command_lines()), "the end of podman's own clean-up")
        while os.path.ismount(store := f"{self._root}/overlay"):
            run("umount", store)

    def call(self, *words: str, given: bytes = b"") -> bytes:
        """Return what the command prints. Raises RuntimeError when it fails."""
        command = self.command(*words)
        done = subprocess.run(command, input=given, capture_output=True, env=self.environment, timeout=120)
        if done.returncode:
            raise RuntimeError(f"podman {words[0]} {words[1]}: {done.stderr.decode()[-500:]}")
        return done.stdout

    def command(self, *words: str) -> list[str]:
        """Return the whole command; it runs with `environment`."""
        places = ("--root", self._root, "--runroot", f"{self._state}/run", "--tmpdir", f"{self._state}/tmp")
        how = ("--cgroup-manager", "cgroupfs", "--runtime", "runc", "--events-backend", "file")
        return [*self._before, "podman", *places, *how, *words]

    def import_pause(self, scratch: Scratch) -> None:
        packed = subprocess.run(["tar", "-C", pause_root(scratch), "-c", "."], capture_output=True, check=True)
        self.call("import", "-", PAUSE, given=packed.stdout)

    def create_pod(self, id: str, *options: str) -> str:
        """Create a pod with exitd's pause program as its infra container, after `import_pause`. Return podman's own id
        for it."""
        infra = ("--infra-image", f"localhost/{PAUSE}", "--infra-command", "/pause", "--infra-name", f"{id}-infra")
        return self.call("pod", "create", "--name", id, *options, *infra, *SHARED).decode().strip()


class Podmans(Podman, Daemonless):
    """A Driver: the client is `podman wait`."""

    no_answer = "podman wait has no end"

    def __init__(self, scratch: Scratch, key: str) -> None:
        self.group = ProcessGroup(key)
        super().__init__(scratch, self.group.words())
        self.import_pause(scratch)
        self._cgroups: dict[str, str] = {}  # of pods, by their names

    def prepare(self, id: str, works: Sequence[Work]) -> "PreparedPodman":
        return PreparedPodman(id, tuple(works))

    def start(self, prepared: object) -> WayPod:
        assert isinstance(prepared, PreparedPodman)
        self._cgroups[prepared.id] = f"{CGROUP}/{self.create_pod(prepared.id, '--cgroup-parent', CGROUP)}"
        names = [f"{prepared.id}-{number}" for number in range(1, len(prepared.works) + 1)]
        for name, work in zip(names, prepared.works, strict=True):
            data = [f"--volume={work.data}:{DATA}"] if work.data else []
            self.run(name, "--pod", prepared.id, *data, work=work)
        if not names:
            self.call("pod", "start", prepared.id)
        return WayPod(prepared.id, self._found(f"{prepared.id}-infra"), tuple(map(self._found, names)))

    def begin_wait(self, container: WayContainer) -> Wait:
        waiting = subprocess.Popen(
            self.command("wait", container.id),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.environment,
        )

        def wait(seconds: float) -> WayAnswer:
            try:
                out, error = waiting.communicate(timeout=seconds)
            except subprocess.TimeoutExpired:
                waiting.kill()
                waiting.communicate()
                raise TimeoutError(f"podman wait {container.id}: not within {seconds:.0f} s") from None
            words = error.strip().splitlines()
            number = out.strip()
            return number_answer(int(number)) if number.isdigit() else WayAnswer(words[-1] if words else number, None)

        return wait

    def end(self, pod: WayPod) -> None:
        self.call("pod", "rm", "--force", "--time", "0", pod.id)
        machine.remove_cgroup(self._cgroups[pod.id])  # podman leaves some of it
        for container in pod.containers:
            container.close()

    def close(self) -> None:
        super().close()
        self.group.remove()

    def _found(self, name: str) -> WayContainer:
        return WayContainer(name, int(self.call("inspect", "--format", "{{.State.Pid}}", name))).hold()


@frozen
class PreparedPodman:
    id: str
    works: tuple[Work, ...]


def _limits() -> str:
    """Its own defaults may be above what this machine lets root have."""
    limits = {"nofile": resource.RLIMIT_NOFILE, "nproc": resource.RLIMIT_NPROC}
    words = [f'"{name}={_limit(what)}:{_limit(what)}"' for name, what in limits.items()]
    # Its locks otherwise are in a place that all podmans of the machine share.
    return f'[containers]\ndefault_ulimits = [{", ".join(words)}]\n[engine]\nlock_type = "file"\n'


def _limit(what: int) -> int:
    hard = resource.getrlimit(what)[1]
    return SMALL_LIMIT if hard == resource.RLIM_INFINITY else min(hard, SMALL_LIMIT)


def _is_directory(path: str) -> bool:
    return os.path.isdir(path) and not os.path.islink(path)
