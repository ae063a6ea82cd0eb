"""Memory kills and ends of what a real containerd runs and exitd only watches, and of what it runs through exitd:
counted once, with the names that Kubernetes has given."""

import os
import pathlib
from collections.abc import Iterator

import pytest

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api.client import Client
from supervisor.model.names import LABELS
from tests.system.containerd.cri import HANDLERS, NAMESPACES, Runtime
from tests.system.containerd.server import EXITD, IMAGE, RUNC, Containerd, running
from tests.system.daemons import Daemon
from tests.system.exitctl import Cli
from tests.system.processes import empty_cgroup
from tests.system.scrape import Page, scrape, scraped
from tests.system.waits import until
from tests.system.watched import observed

LIMIT_BYTES = 16 << 20
# A child runs out of memory for each line, until init itself does.
BOMBS = """while read word; do
[ $word = last ] && exec tail /dev/zero
[ $word = end ] && exit 5
tail /dev/zero
done </mnt/go"""


@pytest.fixture(scope="module")
def containerd_of_file() -> Iterator[Containerd]:
    with running(cri=True) as made:
        yield made


class Pod:
    """A pod as kubelet asks for it, with containers that run out of memory when they are told to."""

    def __init__(self, cri: Runtime, containerd: Containerd, base: pathlib.Path, runtime: str, name: str) -> None:
        self._cri = cri
        self._labels = {LABELS[0]: "shop", LABELS[1]: name}
        self._base = base
        self._config = {
            "metadata": {"name": name, "uid": f"uid-{name}", "namespace": "shop"},
            "labels": self._labels,
            "log_directory": str(base),
            "linux": {
                "cgroup_parent": f"{containerd.cgroup}/{name}",
                "security_context": {"namespace_options": NAMESPACES},
            },
        }
        self.id = cri("RunPodSandbox", config=self._config, runtime_handler=HANDLERS[runtime]).pod_sandbox_id
        containerd.keys.add(self.id)

    def run(self, name: str) -> "Bomber":
        (shared := self._base / name).mkdir()
        os.mkfifo(shared / "go")
        config = {
            "metadata": {"name": name},
            "image": {"image": IMAGE},
            "command": ("sh", "-c", BOMBS),
            "labels": {**self._labels, LABELS[2]: name},
            "log_path": f"{name}.log",
            "mounts": [{"container_path": "/mnt", "host_path": str(shared)}],
            "linux": {
                "resources": {"memory_limit_in_bytes": LIMIT_BYTES},
                "security_context": {"namespace_options": NAMESPACES},
            },
        }
        made = self._cri("CreateContainer", pod_sandbox_id=self.id, config=config, sandbox_config=self._config)
        self._cri("StartContainer", container_id=made.container_id)
        return Bomber(made.container_id, shared)

    def remove(self) -> None:
        self._cri("StopPodSandbox", pod_sandbox_id=self.id)
        self._cri("RemovePodSandbox", pod_sandbox_id=self.id)
        empty_cgroup(self._config["linux"]["cgroup_parent"])  # type: ignore[index]  # a mapping


class Bomber:
    def __init__(self, id: str, shared: pathlib.Path) -> None:
        self.id = id
        self._fd = os.open(shared / "go", os.O_RDWR)

    def bomb(self, word: str = "now") -> None:
        os.write(self._fd, f"{word}\n".encode())

    def close(self) -> None:
        os.close(self._fd)


def kills(page: Page) -> dict[tuple[str, ...], float]:
    return page.of("exitd_oom_kills_total", "namespace", "pod", "container")


def end_of(client: Client, id: str) -> pb.Exit:
    def found() -> list[pb.Exit]:
        return [each for each in client.exits(pb.ExitsRequest()) if each.name == id]

    (exit_,) = until(found, f"no end of {id}")
    return exit_


def test_memory_kills_of_containerds_own_pods_are_counted_once_with_their_names(
    containerd: Containerd, tmp_path: pathlib.Path
) -> None:
    """Two scrapes, and everything that happens between them."""
    cri = Runtime(containerd.address)
    with scraped() as daemon:
        with daemon.client() as client:
            client.watch(pb.WatchRequest(containerd=containerd.address))
            pods = [Pod(cri, containerd, made(tmp_path / name), RUNC, name) for name in ("web-0", "web-1")]
            app, side, other = pods[0].run("app"), pods[0].run("side"), pods[1].run("app")
            observed(client, containerd.address, 5)
            until(lambda: len(named(daemon)) == 5, "the names are not known")
            assert not kills(scrape(daemon))
            for word in ("now", "now", "end"):
                bombed(daemon, app, word)
            other.bomb("last")
            side.bomb("end")
            exits = [end_of(client, each.id) for each in (app, other, side)]
            page = scrape(daemon)
        assert [(each.reason, each.oom.kills) for each in exits] == [("self", 2), ("oom", 1), ("self", 0)]
        assert [each.names.pod for each in exits] == ["web-0", "web-1", "web-0"]
        wanted = {("shop", "web-0", "app"): 2, ("shop", "web-1", "app"): 1}
        assert kills(page) == wanted
        assert page.of("exitd_node_oom_kills_total", "of") == {("watched",): 3}
        labels = ("namespace", "pod", "name", "reason")
        assert page.of("exitd_named_exits_total", *labels) == {
            ("shop", "web-0", "app", "self"): 1,
            ("shop", "web-0", "side", "self"): 1,
            ("shop", "web-1", "app", "oom"): 1,
        }
        daemon.restart()
        assert kills(scrape(daemon)) == wanted
        line = next(line for line in Cli(daemon).ok("exits", "--reason", "oom", "--format", "jsonl").splitlines())
        assert '"PodName":"web-1"' in line.replace(" ", "") and '"ContainerName":"app"' in line.replace(" ", "")
        assert '"pod": "web-1"' in daemon.log.read_text()
    for each in (app, side, other):
        each.close()
    for pod in pods:
        pod.remove()
    cri.close()


def made(path: pathlib.Path) -> pathlib.Path:
    path.mkdir()
    return path


def named(daemon: Daemon) -> dict[tuple[str, ...], float]:
    found = scrape(daemon).of("exitd_container_running", "namespace", "pod", "name")
    return {words: value for words, value in found.items() if words[0] == "shop"}


def bombed(daemon: Daemon, bomber: Bomber, word: str) -> None:
    """The kill is counted while the container lives."""
    before = sum(kills(scrape(daemon)).values())
    bomber.bomb(word)
    if word == "now":
        until(lambda: sum(kills(scrape(daemon)).values()) == before + 1, "the kill is not counted")


def test_what_containerd_runs_through_exitd_has_the_names_of_its_pod(
    containerd: Containerd, tmp_path: pathlib.Path
) -> None:
    cri, exitd = Runtime(containerd.address), containerd.with_exitd()
    pod = Pod(cri, containerd, made(tmp_path / "web-2"), EXITD, "web-2")
    app = pod.run("app")
    app.bomb("last")
    with exitd.client() as client:
        exit_ = end_of(client, app.id)
        names = exit_.names
        assert (names.namespace, names.pod, names.container, exit_.reason) == ("shop", "web-2", "app", "oom")
        assert names.image.endswith("small:1")
        assert kills(Page(client.metrics())) == {("shop", "web-2", "app"): 1}
    app.close()
    pod.remove()
    cri.close()
