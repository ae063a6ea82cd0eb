"""podman, with directories of its own."""

import os
import pathlib
import resource
import subprocess

from supervisor.compare.machine import ROOT_FOLDERS, SLEEP, Scratch, command_lines, run, until

SMALL_LIMIT = 4096


class Podman:
    """Its containers sleep on the same files as everybody's, with a config.json that podman writes."""

    name = "podman"

    def __init__(self, scratch: Scratch) -> None:
        self._root, self._state = scratch.root_place("podman"), scratch.state_place("podman")
        self._rootfs = scratch.config["root"]["path"]
        self._environment = {**os.environ, "CONTAINERS_CONF": f"{self._root}/containers.conf"}
        pathlib.Path(f"{self._root}/containers.conf").write_text(_limits())
        self._volumes = [f"--volume=/{name}:/{name}:ro" for name in ROOT_FOLDERS if _is_directory(f"/{name}")]

    def run(self, id: str, *options: str) -> None:
        where = ("--rootfs", self._rootfs, *SLEEP.args)
        self.call("run", "--detach", *options, "--name", id, *self._volumes, *where)

    def exec(self, id: str, *args: str) -> None:
        """To its end."""
        self.call("exec", id, *args)

    def close(self) -> None:
        """Behind its own clean-up, which goes on after its commands and mounts its store once more."""
        self.call("rm", "--force", "--time", "0", "--all")
        root = os.fsencode(self._root)
        until(lambda: all(root not in words for _, words in command_lines()), "the end of podman's own clean-up")
        if os.path.ismount(store := f"{self._root}/overlay"):
            run("umount", store)

    def call(self, *words: str, given: bytes = b"") -> bytes:
        """What it says. RuntimeError when it fails."""
        places = ("--root", self._root, "--runroot", f"{self._state}/run", "--tmpdir", f"{self._state}/tmp")
        how = ("--cgroup-manager", "cgroupfs", "--runtime", "runc", "--events-backend", "file")
        command = ["podman", *places, *how, *words]
        done = subprocess.run(command, input=given, capture_output=True, env=self._environment, timeout=120)
        if done.returncode:
            raise RuntimeError(f"podman {words[0]} {words[1]}: {done.stderr.decode()[-500:]}")
        return done.stdout


def _limits() -> str:
    """Its own defaults may be above what this machine lets root have."""
    limits = {"nofile": resource.RLIMIT_NOFILE, "nproc": resource.RLIMIT_NPROC}
    words = [f'"{name}={_limit(what)}:{_limit(what)}"' for name, what in limits.items()]
    return f"[containers]\ndefault_ulimits = [{', '.join(words)}]\n"


def _limit(what: int) -> int:
    hard = resource.getrlimit(what)[1]
    return SMALL_LIMIT if hard == resource.RLIM_INFINITY else min(hard, SMALL_LIMIT)


def _is_directory(path: str) -> bool:
    return os.path.isdir(path) and not os.path.islink(path)
