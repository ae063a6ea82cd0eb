"""Pods of a pause container and one member that shares its network, ipc and uts namespaces: by exitd and by others.

All members run the same command on the same files; all but podman, which writes its own, run the config.json that exitd
wrote, or what it was made from.
"""

import contextlib
import json
import os
import pathlib
import shutil
from dataclasses import dataclass
from typing import Any, Protocol

from bench.ours import Daemon
from bench.peers import Containerd
from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.compare.machine import CGROUP, Scratch, command_line, command_lines, end_process, run, state_of
from supervisor.compare.podman import Podman
from supervisor.compare.podspec import SANDBOX_ID, SHARED, pause_root


class PodPeer(Protocol):
    """Who can run a pod. `prepare` and `clean` are not timed."""

    name: str

    def prepare(self, id: str) -> None:
        """What must be there before, files alone."""

    def make(self, id: str) -> None:
        """A pause container and its member, both started when this returns."""

    def is_up(self, id: str) -> bool:
        """By this peer's own word, or by what it left where it keeps things."""

    def clean(self, id: str) -> None: ...
    def monitors(self, id: str) -> list[int]:
        """The pids of the processes that stay with the pod."""

    def close(self) -> None: ...


class Exitd:
    """The daemon, asked over gRPC by this process. Pause on exitd's own image, the member on a bundle."""

    name = "exitd"

    def __init__(self, scratch: Scratch) -> None:
        self.daemon = Daemon(scratch, "p")
        self._client = self.daemon.client()
        self._bundle = scratch.bundle("exitd-member")

    def prepare(self, id: str) -> None:
        pass

    def make(self, id: str) -> None:
        pod = self._client.run_pod(pb.ContainerSpec(image="pause", name=id))
        member = self._client.create(pb.ContainerSpec(bundle=self._bundle, sandbox=pod.id))
        self._client.start(member.id)

    def is_up(self, id: str) -> bool:
        pod = self._client.inspect_pod(id)
        return pod.state == "SANDBOX_READY" and [m.phase for m in pod.members] == [pb.PHASE_RUNNING]

    def clean(self, id: str) -> None:
        self._client.remove_pod(id, force=True)

    def monitors(self, id: str) -> list[int]:
        pod = self._client.inspect_pod(id)
        return [pod.pause.shim.pid, *(member.shim.pid for member in pod.members)]

    def close(self) -> None:
        self._client.close()
        self.daemon.close()

    def template(self) -> "Template":
        """The config.jsons of a pod that was made for this and is removed again."""
        self.make("template")
        pod = self._client.inspect_pod("template")
        pause, member = pod.id, pod.members[0].id
        texts = [pathlib.Path(f"{self.daemon.root}/c/{id}/bundle/config.json").read_text() for id in (pause, member)]
        self.clean("template")
        return Template(self.daemon.root, self.daemon.state, (pause, member), (texts[0], texts[1]))


@dataclass(frozen=True, slots=True)
class Template:
    """What exitd had its runtime run, pause container and member: to be run without exitd."""

    root: str
    state: str
    ids: tuple[str, str]
    texts: tuple[str, str]

    def configs(self, place: str, pause_root: str, cgroup: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """The same with everything that lay in exitd's directories in `place`: shm, and links for the namespaces."""
        pause, member = self.ids
        found = [
            json.loads(
                text.replace(f"{self.root}/c/{pause}/shm", f"{place}/shm")
                .replace(f"{self.state}/c/{member}/1/ns-", f"{place}/ns-")
                .replace(f"/exitd/pod-{pause}", cgroup)
            )
            for text in self.texts
        ]
        found[0]["root"]["path"] = pause_root
        return found[0], found[1]


class PodFiles:
    """What pods run from exitd's own config.jsons need; PLACE/ID/0 and 1 are the bundles of pause and member. In
    memory, where a runtime has the least to wait for."""

    def __init__(self, scratch: Scratch, template: Template, name: str) -> None:
        self._template = template
        self._pause_root = pause_root(scratch)
        self._place = scratch.state_place(f"{name}-files")

    def bundle(self, id: str, part: int) -> str:
        return f"{self._place}/{id}/{part}"

    def prepare(self, id: str, annotations: dict[str, str]) -> None:
        for name in ("shm", "0", "1"):
            os.makedirs(f"{self._place}/{id}/{name}")
        configs = self._template.configs(f"{self._place}/{id}", self._pause_root, f"{CGROUP}/pod-{id}")
        for part, config in enumerate(configs):
            config["annotations"] = annotations or config["annotations"]
            pathlib.Path(f"{self.bundle(id, part)}/config.json").write_text(json.dumps(config))

    def link_namespaces(self, id: str, pid: int) -> None:
        """Where the member's configuration looks for those of the pause process."""
        for kind in SHARED:
            os.symlink(f"/proc/{pid}/ns/{kind}", f"{self._place}/{id}/ns-{kind}")

    def remove(self, id: str) -> None:
        shutil.rmtree(f"{self._place}/{id}")
        for path in pathlib.Path("/sys/fs/cgroup").glob(f"*{CGROUP}/pod-{id}"):
            path.rmdir()


class BarePods:
    """The runtime calls that a pod needs and nothing else: nobody waits for anything."""

    name = "bare runc"

    def __init__(self, scratch: Scratch, template: Template) -> None:
        self._files = PodFiles(scratch, template, "bare-pods")
        self._state = scratch.state_place("bare-pods")

    def prepare(self, id: str) -> None:
        self._files.prepare(id, {})

    def make(self, id: str) -> None:
        for part, own in enumerate(_both(id)):
            bundle = self._files.bundle(id, part)
            self._runc("create", "--bundle", bundle, "--pid-file", f"{self._state}/{own}.pid", own)
            if part == 0:
                self._files.link_namespaces(id, self._pid(own))
            self._runc("start", own)

    def is_up(self, id: str) -> bool:
        return all(_is_running(self._pid(own)) for own in _both(id))

    def clean(self, id: str) -> None:
        for own in _both(id):
            end_process(self._pid(own))
            self._runc("delete", "--force", own)
        self._files.remove(id)

    def monitors(self, id: str) -> list[int]:
        return []

    def close(self) -> None:
        pass

    def _pid(self, own: str) -> int:
        return int(pathlib.Path(f"{self._state}/{own}.pid").read_text())

    def _runc(self, *words: str) -> None:
        run("runc", "--root", self._state, *words)


class ContainerdPods:
    """containerd asked by ctr: two `ctr run`, the second into the namespaces of the first, one shim for both."""

    name = "containerd"

    def __init__(self, scratch: Scratch, template: Template) -> None:
        self._files = PodFiles(scratch, template, "ctd-pods")
        self._containerd = Containerd(scratch, tells=False)

    def prepare(self, id: str) -> None:
        self._files.prepare(id, {SANDBOX_ID: f"{id}-0"})

    def make(self, id: str) -> None:
        for part, own in enumerate(_both(id)):
            self._containerd.run_config(own, f"{self._files.bundle(id, part)}/config.json")
            if part == 0:
                self._files.link_namespaces(id, self._containerd.pid(own))

    def is_up(self, id: str) -> bool:
        return all(_is_running(self._containerd.pid(own)) for own in _both(id))

    def clean(self, id: str) -> None:
        for own in reversed(_both(id)):  # the shim leaves with its first container
            end_process(self._containerd.pid(own))
            self._containerd.remove(own)
        self._files.remove(id)

    def monitors(self, id: str) -> list[int]:
        """containerd's shim is named by the container it was begun for."""
        return [pid for pid in self._containerd.monitors() if f"{id}-0".encode() in command_line(pid)]

    def close(self) -> None:
        self._containerd.close()


def _both(id: str) -> tuple[str, str]:
    """The pause container, then the member."""
    return f"{id}-0", f"{id}-1"


class PodmanPods(Podman):
    """`pod create` with exitd's pause program as its infra container, and `run`."""

    def __init__(self, scratch: Scratch) -> None:
        super().__init__(scratch)
        self.import_pause(scratch)

    def prepare(self, id: str) -> None:
        pass

    def make(self, id: str) -> None:
        self.create_pod(id)
        self.run(f"{id}-1", "--pod", id)

    def is_up(self, id: str) -> bool:
        return [container["State"] for container in self._containers(id)] == ["running", "running"]

    def clean(self, id: str) -> None:
        self.call("pod", "rm", "--force", "--time", "0", id)

    def monitors(self, id: str) -> list[int]:
        own = {container["Id"].encode() for container in self._containers(id)}
        return [pid for pid, line in command_lines() if line[0].endswith(b"conmon") and own & set(line)]

    def _containers(self, id: str) -> list[dict[str, str]]:
        found: list[dict[str, str]] = json.loads(self.call("pod", "inspect", id))["Containers"]
        return found


def _is_running(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return state_of(pid) not in "ZX"
    return False
