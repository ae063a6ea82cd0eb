"""Pods through the CRI of a containerd of our own: exitd behind its relay, and containerd's own shim."""

import contextlib
import json
import os
import pathlib
import signal
import time
from typing import Any

from bench.cpumeter import metered
from bench.figures import EXITD
from bench.ours import Daemon
from bench.peers import Containerd
from supervisor.compare.machine import CGROUP, Scratch, end_process, remove_cgroup, run, until
from supervisor.compare.server import EXITD_RUNTIME, RUNC_RUNTIME, WayServer, finding_exitd
from supervisor.compare.way import WayContainer
from tests.system.containerd.cri import NAMESPACES, STATES, Runtime
from tests.system.containerd.server import IMAGE, PAUSE, archive

HANDLERS = {EXITD: "exitd", Containerd.name: "runc"}
CRI_NAMESPACE = "k8s.io"
LOOK_SECONDS = 0.001
CONFIG = """version = 2
root = "{root}"
state = "{state}/state"
[grpc]
address = "{state}/sock"
[plugins."io.containerd.internal.v1.opt"]
path = "{root}/opt"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{pause}"
restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{root}/none"
conf_dir = "{root}/none"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "{runc}"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.exitd]
runtime_type = "{exitd}"
"""


class CriServer(WayServer):
    """One with a runtime service, and without any network: its pods are on the host's."""

    def __init__(self, state: str, root: str, exitd_state: str) -> None:
        super().__init__(state, root, environment=finding_exitd(exitd_state))
        text = CONFIG.format(root=root, state=state, pause=PAUSE, runc=RUNC_RUNTIME, exitd=EXITD_RUNTIME)
        pathlib.Path(f"{state}/config.toml").write_text(text)


class CriNode:
    """The containerd, with the images, and the exitd that its relays find. What all of it uses of the processor is
    metered."""

    def __init__(self, scratch: Scratch) -> None:
        with contextlib.ExitStack() as steps:  # the last one first
            self.used_ms = steps.enter_context(metered())
            self.daemon = steps.enter_context(contextlib.closing(Daemon(scratch, "c")))
            state, self.root = scratch.state_place("cri"), scratch.root_place("cri")
            self._server = CriServer(state, self.root, self.daemon.state)
            self._server.start()
            steps.callback(self._end_relays)
            steps.callback(self._server.close)
            pathlib.Path(f"{self.root}/images.tar").write_bytes(archive())
            ctr = ("ctr", "--address", self._server.address, "--namespace", CRI_NAMESPACE)
            run(*ctr, "images", "import", "--snapshotter", "overlayfs", f"{self.root}/images.tar")
            self.call = steps.enter_context(contextlib.closing(Runtime(self._server.address)))
            self.client = steps.enter_context(self.daemon.client())
            self._steps = steps.pop_all()

    def close(self) -> None:
        self._steps.close()

    def _end_relays(self) -> None:
        for pid in self._server.relays():
            end_process(pid)


class CriPod:
    """A sandbox of one runtime, with one container that sleeps and is followed by the next one when it ends."""

    def __init__(self, node: CriNode, who: str, name: str) -> None:
        self._call, self._attempts = node.call, 0
        os.makedirs(logs := f"{node.root}/logs/{name}")
        self._cgroup = f"{CGROUP}/{name}"
        self._config = {
            "metadata": {"name": name, "uid": f"uid-{name}", "namespace": "bench"},
            "log_directory": logs,
            "linux": {"cgroup_parent": self._cgroup, "security_context": {"namespace_options": NAMESPACES}},
        }
        made = self._call("RunPodSandbox", config=self._config, runtime_handler=HANDLERS[who])
        self._id: str = made.pod_sandbox_id
        self._container = self._next()

    def restart(self) -> tuple[float, float]:
        """Its container is killed; milliseconds until its exit is seen, and until the next one has been started. What
        has ended is removed then: a kubelet does that some time later."""
        ended = self._held(self._container)
        begun = time.perf_counter()
        ended.kill()
        until(lambda: self._has_ended(ended.id), "the exit's state in CRI", step=LOOK_SECONDS)
        seen = time.perf_counter()
        self._container = self._next()
        done = time.perf_counter()
        ended.close()
        self._call("RemoveContainer", container_id=ended.id)
        return (seen - begun) * 1000, (done - begun) * 1000

    def exec_sync(self, *args: str) -> None:
        """A command in its container to its end, which is to be 0."""
        reply = self._call("ExecSync", container_id=self._container, cmd=args)
        if reply.exit_code:
            raise RuntimeError(f"CRI says that {args[0]} ended with {reply.exit_code}")

    def close(self) -> None:
        """With all its containers. Its cgroup is what a kubelet makes and removes."""
        self._call("StopPodSandbox", pod_sandbox_id=self._id)
        self._call("RemovePodSandbox", pod_sandbox_id=self._id)
        remove_cgroup(self._cgroup)

    def _next(self) -> str:
        """The id of one that has been started."""
        self._attempts += 1
        config: dict[str, Any] = {
            "metadata": {"name": "main", "attempt": self._attempts},
            "image": {"image": IMAGE},
            "command": ("sleep", "1000000"),
            "log_path": f"{self._attempts}.log",
            "linux": {"security_context": {"namespace_options": NAMESPACES}},
        }
        made = self._call("CreateContainer", pod_sandbox_id=self._id, config=config, sandbox_config=self._config)
        self._call("StartContainer", container_id=made.container_id)
        return str(made.container_id)

    def _held(self, id: str) -> WayContainer:
        info = self._call("ContainerStatus", container_id=id, verbose=True).info["info"]
        return WayContainer(id, int(json.loads(info)["pid"])).hold()

    def _has_ended(self, id: str) -> bool:
        status = self._call("ContainerStatus", container_id=id).status
        if status.state != STATES.index("exited"):
            return False
        if status.exit_code != 128 + signal.SIGKILL:
            raise RuntimeError(f"CRI says that {id} ended with {status.exit_code}")
        return True
