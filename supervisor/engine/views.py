"""What callers are shown of containers and pods."""

from shim.frozen import replace
from supervisor.engine.execlife import Execs
from supervisor.engine.node import Node
from supervisor.model import pods
from supervisor.model.values import LIVE, BootTime, Container, RunKey
from supervisor.model.views import PodView, View
from supervisor.monitor.rundir import path_of
from supervisor.runtime.managers import ContainerRuntimes
from supervisor.runtime.oci import bundle


class Views:
    """Makes views of containers from what the node, the runtimes and the execs know at this moment."""

    def __init__(self, node: Node, manager: ContainerRuntimes, execs: Execs, root: str, state: str) -> None:
        """`root` and `state`: exitd's two directories."""
        self._node = node
        self._manager = manager
        self._execs = execs
        self._root = root
        self._state = state

    def of(self, c: Container) -> View:
        """Return the container as callers are shown it. The shim is the present one, which may have replaced the stored
        one."""
        key = RunKey(c.id, c.run)
        shim = self._manager.shim_of(key) if c.phase in LIVE else c.shim
        return View(
            c if shim == c.shim else replace(c, shim=shim),
            recovering=c.id in self._node.containers.recovering,
            monitored_by=self._manager.monitored_by(key) if c.phase in LIVE else "",
            log_path=self.log_path(c),
            bundle_path=f"{bundle.directory_of(self._root, c.id)}/bundle",
            run_directory=path_of(self._state, c.id, c.run),
            execs=self._execs.of(c.id),
            evicted=self._evicted(c),
            restart_at_ns=None if c.restart_at is None else self._wall_ns(c.restart_at),
        )

    def _evicted(self, c: Container) -> str:
        pause = self._node.containers.get(c.spec.sandbox) if c.spec.sandbox else c
        return pause.evicted if pause is not None else ""

    def _wall_ns(self, at: BootTime) -> int:
        now = self._node.moment()
        return now.now_ns + at.ns - now.boot.ns

    def mount_sources(self, c: Container) -> tuple[str, ...]:
        """Return where each thing that it mounts is on this machine; empty for what is nowhere there: a tmpfs."""
        return tuple(
            "/".join(filter(None, (bundle.source_of(c, self._root, index), mount.sub_path)))
            for index, mount in enumerate(c.spec.mounts)
        )

    def log_path(self, c: Container) -> str:
        return bundle.log_path(self._root, c)

    def of_pod(self, pause: Container) -> PodView:
        """Return the pod of this pause container with its members. `attempt` counts its restarts, as the CRI does."""
        assert pause.spec.pod is not None
        name = pause.spec.pod.name or pause.spec.name
        attempt = pause.spec.pod.attempt + pause.run - 1  # a restarted pause container is a new sandbox
        members = tuple(self.of(member) for member in self._node.containers.members(pause.id))
        pod = replace(pause.spec.pod, name=name, attempt=attempt)
        return PodView(pod, pods.state(pause.phase), self.of(pause), members)
