"""Pods as a kubelet has them, by the CRI of a real containerd: with exitd as with containerd's own runtime."""

import contextlib
import json
import os
import pathlib
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest

from tests.system.containerd.cri import CONTAINER, HANDLERS, NAMESPACES, NODE, POD, STATES, Runtime
from tests.system.containerd.server import EXITD, IMAGE, RUNC, Containerd, running
from tests.system.containerd.verbs import OURS, TRUTH
from tests.system.containerd.wiretable import plain
from tests.system.processes import commands, empty_cgroup, end_process, own_kb, stopped
from tests.system.waits import SCALE, until, wait_readable


class Cri(Runtime):
    """The pods of one containerd; to be made anew when that was restarted."""

    def __init__(self, containerd: Containerd) -> None:
        super().__init__(containerd.address)
        self.containerd = containerd

    def refused(self, method: str, **fields: Any) -> str:
        """The name of the code."""
        try:
            answer = self(method, **fields)
        except grpc.RpcError as error:
            return str(error.code().name)
        raise AssertionError(f"{method} was not refused: {answer}")

    def pod(self, runtime: str, name: str, *, pid: int = CONTAINER) -> "Pod":
        """On the host's network, since there is no other; the rest as kubelet asks for it. `pid`: whose pid namespace
        its containers have."""
        if runtime == EXITD:
            self.containerd.with_exitd()
        (logs := self.containerd.base / "logs" / name).mkdir(parents=True)
        config = {
            "metadata": {"name": name, "uid": f"uid-{name}", "namespace": "test"},
            "log_directory": str(logs),
            "linux": {
                "cgroup_parent": f"{self.containerd.cgroup}/{name}",
                "security_context": {"namespace_options": {**NAMESPACES, "pid": pid}},
            },
        }
        made = Pod(self, config, logs)
        made.id = self("RunPodSandbox", config=config, runtime_handler=HANDLERS[runtime]).pod_sandbox_id
        self.containerd.keys.add(made.id)
        return made

    def clear(self) -> None:
        """No pod, no container."""
        for pod in self("ListPodSandbox").items:
            self("StopPodSandbox", pod_sandbox_id=pod.id)
            self("RemovePodSandbox", pod_sandbox_id=pod.id)
        empty_cgroup(self.containerd.cgroup)


class Pod:
    """A sandbox, and the containers made in it."""

    def __init__(self, cri: Cri, config: dict[str, Any], logs: pathlib.Path) -> None:
        self.cri, self.id, self.config, self.logs = cri, "", config, logs

    def create(self, name: str, *command: str, memory_bytes: int = 0, **fields: Any) -> "Container":
        config = {
            "metadata": {"name": name},
            "image": {"image": IMAGE},
            "command": command,
            "log_path": f"{name}.log",
            "linux": {
                "resources": {"memory_limit_in_bytes": memory_bytes},
                "security_context": self.config["linux"]["security_context"],
            },
            **fields,
        }
        made = self.cri("CreateContainer", pod_sandbox_id=self.id, config=config, sandbox_config=self.config)
        return Container(self, made.container_id, self.logs / f"{name}.log")

    def run(self, name: str, *command: str, **fields: Any) -> "Container":
        made = self.create(name, *command, **fields)
        made("Start")
        return made

    def ready(self) -> bool:
        return bool(self.cri("PodSandboxStatus", pod_sandbox_id=self.id).status.state == 0)

    def remove(self) -> None:
        """The pod's own cgroup too: it is the kubelet's."""
        self.cri("StopPodSandbox", pod_sandbox_id=self.id)
        self.cri("RemovePodSandbox", pod_sandbox_id=self.id)
        empty_cgroup(self.config["linux"]["cgroup_parent"])


class Container:
    def __init__(self, pod: Pod, id: str, log: pathlib.Path) -> None:
        self.pod, self.id, self.log = pod, id, log

    def __call__(self, verb: str, **fields: Any) -> Any:
        """`Start` is StartContainer."""
        return self.pod.cri(f"{verb}Container", container_id=self.id, **fields)

    def exec(self, *command: str, seconds: int = 20) -> tuple[int, bytes, bytes]:
        said = self.pod.cri("ExecSync", container_id=self.id, cmd=command, timeout=seconds)
        return said.exit_code, said.stdout, said.stderr

    def status(self) -> Any:
        return self.pod.cri("ContainerStatus", container_id=self.id).status

    def pid(self) -> int:
        info = self.pod.cri("ContainerStatus", container_id=self.id, verbose=True).info["info"]
        return int(json.loads(info)["pid"])

    def ended(self) -> tuple[str, int, str, bool]:
        """State, code, reason, and whether its times are in order; waits for it."""
        until(lambda: self.status().state == STATES.index("exited"), f"{self.log.stem} does not end")
        now = self.status()
        # The start's time is taken after it.
        in_order = 0 < now.created_at <= min(now.started_at, now.finished_at)
        return STATES[now.state], now.exit_code, now.reason, in_order

    def lines(self) -> list[tuple[str, str, str]]:
        """Stream, F or P, and text of each line of its log."""
        words = [line.split(" ", 3) for line in self.log.read_text().splitlines()]
        return [(word[1], word[2], word[3]) for word in words]

    def stats(self) -> dict[str, Any]:
        return plain(self.pod.cri("ContainerStats", container_id=self.id).stats)


AWAY_SECONDS = 60 * min(1.0, SCALE)
RELAY_KB, EXECS = 60, 20
PODS, STATS_SECONDS = 6, 5.0  # all together wait for a second once, each for itself would wait for 6
ONE_STATS_SECONDS = 5.0  # of one, which waits for a second and a half at most
KUBELET_SECONDS = 120.0  # its limit for a call
SEEN_SECONDS = 10.0  # an end, by a kubelet that lists all containers again and again
UNTIL_TOLD = "until [ -e /mnt/go ]; do sleep 0.02; done"


@pytest.fixture(scope="module")
def containerd_of_file() -> Iterator[Containerd]:
    with running(cri=True) as made:
        yield made


@pytest.fixture
def containerd(containerd_of_file: Containerd) -> Iterator[Containerd]:
    """One for all tests of the file."""
    yield containerd_of_file
    make_ready(containerd_of_file)


def make_ready(containerd: Containerd) -> None:
    """For the next one, when this one has failed: whoever was ended is there again, and no pod is."""
    containerd.revive()
    with contextlib.closing(Cri(containerd)) as cri:
        cri.clear()


class Scene:
    """What a scenario has: one pod, the interface, and a way to have it anew after a restart."""

    def __init__(self, cri: Cri, runtime: str, name: str) -> None:
        self.cri, self.runtime, self.name = cri, runtime, name
        self.pod = cri.pod(runtime, name)

    def told(self, name: str, script: str, **fields: Any) -> tuple[Container, Callable[[], None]]:
        """A container that goes on with its script when the second is called."""
        place = self.cri.containerd.base / f"m-{self.name}-{name}"
        place.mkdir()
        mounts = [{"container_path": "/mnt", "host_path": str(place)}]
        made = self.pod.run(name, "sh", "-c", f"echo up; {UNTIL_TOLD}; {script}", mounts=mounts, **fields)
        until(lambda: made.lines()[:1] == [("stdout", "F", "up")], f"{name} is not up")
        return made, (place / "go").touch

    def restart(self, between: Callable[[], None] = lambda: None) -> None:
        """Of containerd; what is to be done while it is away."""
        self.cri.containerd.kill()
        between()
        self.cri.containerd.start()
        self.cri.close()
        self.cri = self.pod.cri = Cri(self.cri.containerd)


def two_containers(scene: Scene) -> object:
    first = scene.pod.run("first", "sh", "-c", "echo out; echo err >&2; echo -n end; exit 3")
    second = scene.pod.run("second", "sleep", "1000")
    ended = first.ended()
    assert ended == ("exited", 3, "Error", True)
    mine = [one for one in scene.cri("ListContainers").containers if one.pod_sandbox_id == scene.pod.id]
    listed = sorted((one.metadata.name, one.state) for one in mine)
    third = scene.pod.run("third", "true").ended()
    second("Stop", timeout=0)
    return ended, sorted(first.lines()), listed, third, second.ended(), scene.pod.ready()


def exec_sync(scene: Scene) -> object:
    box = scene.pod.run("box", "sleep", "1000")
    said = [box.exec("sh", "-c", "echo out; echo err >&2; exit 5"), box.exec("sh", "-c", "kill -9 $$")]
    assert said[0] == (5, b"out\n", b"err\n")
    late = scene.cri.refused("ExecSync", container_id=box.id, cmd=["sleep", "1000"], timeout=1)
    assert late == "DEADLINE_EXCEEDED"
    missing = scene.cri.refused("ExecSync", container_id=box.id, cmd=["no-such-program"], timeout=5)
    return said, late, missing, len(box.exec("seq", "100000")[1]), box.exec("true")


def whom_init_leaves(scene: Scene, pid: int) -> object:
    """Without a pid namespace of their own they would outlive it."""
    pod = scene.cri.pod(scene.runtime, f"{scene.name}-pid", pid=pid)
    word = f"1000.{int(pod.id[:8], 16)}".encode()  # nobody else on this machine sleeps so long
    box = pod.run("box", "sh", "-c", f"(sleep {word.decode()} &); echo up; exit 3")
    ended = box.ended()
    alive = [command for _, command in commands() if command.split(b"\0")[:2] == [b"sleep", word]]
    assert alive == []
    pod.remove()
    return ended, box.lines()


def whom_init_leaves_among_the_hosts_pids(scene: Scene) -> object:
    return whom_init_leaves(scene, NODE)


def whom_init_leaves_among_its_pods_pids(scene: Scene) -> object:
    return whom_init_leaves(scene, POD)


def logs_that_are_rotated(scene: Scene) -> object:
    box, go = scene.told("box", "echo two; sleep 1000")
    old = box.log.rename(box.log.with_suffix(".old"))
    scene.cri("ReopenContainerLog", container_id=box.id)
    go()
    until(box.lines, "nothing in the new log")
    lines = box.lines()
    box("Stop", timeout=0)
    assert (lines, "up" in old.read_text()) == ([("stdout", "F", "two")], True)
    return lines, old.read_text().count("\n"), scene.cri.refused("ReopenContainerLog", container_id=box.id)


def stop_with_grace(scene: Scene) -> object:
    script = "trap '{}' TERM; echo up; while :; do sleep 0.05; done"
    obeys = scene.pod.run("obeys", "sh", "-c", script.format("exit 7"))
    ignores = scene.pod.run("ignores", "sh", "-c", script.format(""))
    for box in (obeys, ignores):
        until(box.lines, "it is not up")
    obeys("Stop", timeout=30)
    ignores("Stop", timeout=1)
    for box in (obeys, ignores):
        box("Stop", timeout=1)
    ended = obeys.ended(), ignores.ended()
    assert [one[1] for one in ended] == [7, 137]
    return ended


def out_of_memory(scene: Scene) -> object:
    """It is the reason because of an event, which containerd may look at after the exit. Its own shim now and then does
    not send it at all: ours does."""
    box = scene.pod.run("box", "tail", "/dev/zero", memory_bytes=16 << 20)
    state, code, _, has_times = box.ended()
    if scene.runtime != RUNC:
        until(lambda: box.status().reason == "OOMKilled", "it is not told as killed for memory")
    return state, code, has_times


def statistics(scene: Scene) -> object:
    box = scene.pod.run("box", "sleep", "1000", memory_bytes=64 << 20)
    until(lambda: "memory" in box.stats(), "no statistics")
    found = box.stats()
    memory = {name: one["value"] for name, one in found["memory"].items() if isinstance(one, dict) and one}
    assert 0 < memory["working_set_bytes"] <= memory["usage_bytes"] < 64 << 20
    assert memory["available_bytes"] + memory["working_set_bytes"] == 64 << 20
    assert found["cpu"]["usage_core_nano_seconds"]["value"] > 0
    listed = [one.attributes.id for one in scene.cri("ListContainerStats").stats]
    scene.cri("UpdateContainerResources", container_id=box.id, linux={"memory_limit_in_bytes": 32 << 20})
    memory = box.stats()["memory"]
    assert memory["available_bytes"]["value"] + memory["working_set_bytes"]["value"] == 32 << 20
    return sorted(found), sorted(found["memory"]), listed.count(box.id)


def what_cannot_start(scene: Scene) -> object:
    box = scene.pod.create("box", "no-such-program")
    refused = scene.cri.refused("StartContainer", container_id=box.id)
    assert box.status().exit_code == 128
    again = scene.pod.create("again", "true")
    again("Remove")
    return refused, box.ended()[:3], scene.cri.refused("ContainerStatus", container_id=again.id)


def containerd_is_restarted(scene: Scene) -> object:
    """What ran runs on, what ended meanwhile has its code, and what is said afterwards is in the log. What is said
    while containerd is away its own shim loses; of exitd's a containerd that comes back soon enough has it."""
    ends, go = scene.told("ends", "echo late; exit 33")
    stays, go_on = scene.told("stays", "echo after; sleep 1000")

    def between() -> None:
        pidfd = os.pidfd_open(pid)
        go()
        assert wait_readable(pidfd), "it does not end"
        os.close(pidfd)

    pid = ends.pid()
    scene.restart(between)
    ended = ends.ended()
    assert ended == ("exited", 33, "Error", True)
    go_on()
    until(lambda: ("stdout", "F", "after") in stays.lines(), "nothing is logged after the restart")
    said = stays.exec("sh", "-c", "exit 4")
    stays("Stop", timeout=0)
    before = [line for line in ends.lines() if line != ("stdout", "F", "late")]
    return ended, before, stays.lines(), said, scene.pod.ready(), stays.ended()


def ends_while_exitd_is_away(scene: Scene) -> object:
    """Each is seen, with its code and reason, and removed; statistics do not hang."""
    ends, go = scene.told("ends", "exit 33")
    eats, eat = scene.told("eats", "exec tail /dev/zero", memory_bytes=16 << 20)
    stays = scene.pod.run("stays", "sleep", "1000")
    daemon = scene.cri.containerd.exitd if scene.runtime == EXITD else None
    if daemon is not None:
        daemon.kill()
    go()
    eat()
    ended, killed = ends.ended(), eats.ended()
    assert ended == ("exited", 33, "Error", True)
    ends("Remove")
    began = time.monotonic()
    with contextlib.suppress(grpc.RpcError):
        stays.stats()
    assert time.monotonic() - began < ONE_STATS_SECONDS
    if daemon is not None:
        until(lambda: eats.status().reason == "OOMKilled", "it is not told as killed for memory")
        daemon.start()
    said = stays.exec("sh", "-c", "exit 4")
    stays("Stop", timeout=0)
    return ended, killed[:2], said, stays.ended(), scene.pod.ready()


def exitd_is_away_for_a_minute(scene: Scene) -> object:
    """Who lists all containers, as a kubelet does, sees every end when it comes, with its code and reason. Only what is
    new has to wait for exitd."""
    boxes = [scene.told(f"box{code}", f"exit {code}") for code in (0, 33, 137)]
    boxes.append(scene.told("eats", "exec tail /dev/zero", memory_bytes=16 << 20))
    daemon = scene.cri.containerd.exitd if scene.runtime == EXITD else None
    if daemon is not None:
        daemon.kill()
    began = time.monotonic()
    with ThreadPoolExecutor(1) as client:
        fresh = scene.pod.create("new", "sh", "-c", "exit 6")
        new = client.submit(fresh, "Start", seconds=KUBELET_SECONDS)
        ended = []
        for number, (box, go) in enumerate(boxes):
            due = began + AWAY_SECONDS * (number + 1) / len(boxes)
            until(lambda due=due: time.monotonic() > due, "the time does not pass", AWAY_SECONDS)  # type: ignore[misc]
            go()
            went = time.monotonic()
            until(lambda box=box: _listed(scene, box) == "exited", "it is not seen", SEEN_SECONDS)  # type: ignore[misc]
            print(f"seen after {time.monotonic() - went:.2f} s, as it is {went - began:.1f} s since exitd went")
            state, code, reason, has_times = box.ended()
            ended.append((state, code, has_times, reason if code != 137 else ""))
        if daemon is not None:
            assert not new.done()
            until(lambda: boxes[-1][0].status().reason == "OOMKilled", "its reason is not seen")
            daemon.start()
        new.result()
    return ended, fresh.ended(), scene.pod.ready()


def _listed(scene: Scene, box: Container) -> str:
    return next(STATES[one.state] for one in scene.cri("ListContainers").containers if one.id == box.id)


def the_sandbox_dies(scene: Scene) -> object:
    """The pod is not ready any more; its containers are not touched, each has a pid namespace of its own."""
    box = scene.pod.run("box", "sleep", "1000")
    info = scene.cri("PodSandboxStatus", pod_sandbox_id=scene.pod.id, verbose=True).info["info"]
    end_process(json.loads(info)["pid"])
    until(lambda: not scene.pod.ready(), "the pod is ready without its sandbox")
    return box.status().state, box.exec("sh", "-c", "exit 4")


def the_shim_dies(scene: Scene) -> object:
    """With it all of its pod; other pods live on."""
    box = scene.pod.run("box", "sleep", "1000")
    other = Scene(scene.cri, scene.runtime, f"{scene.name}-other")
    stays = other.pod.run("stays", "sleep", "1000")
    (shim,) = scene.cri.containerd.shims(scene.pod.id)
    end_process(shim)
    ended = box.ended()
    until(lambda: not scene.pod.ready(), "the pod is ready without its shim")
    said = stays.exec("sh", "-c", "exit 4"), other.pod.ready()
    other.pod.remove()
    if scene.runtime == RUNC:  # which leaves its socket
        os.unlink(scene.cri.containerd.socket_of(scene.pod.id))
    return ended[:3], said


SCENES: tuple[Callable[[Scene], object], ...] = (
    *(two_containers, exec_sync, logs_that_are_rotated, stop_with_grace, out_of_memory, statistics),
    *(what_cannot_start, containerd_is_restarted, ends_while_exitd_is_away, exitd_is_away_for_a_minute),
    *(the_sandbox_dies, the_shim_dies),
    *(whom_init_leaves_among_the_hosts_pids, whom_init_leaves_among_its_pods_pids),
)


def outcome(containerd: Containerd, runtime: str, play: Callable[[Scene], object], number: int) -> object:
    """What it returns; its pod is removed, and nothing is left."""
    scene = Scene(Cri(containerd), runtime, f"{play.__name__.replace('_', '-')}-{number}")
    try:
        result = play(scene)
        scene.pod.remove()
        containerd.left_is()
        assert scene.cri("ListContainers").containers == scene.cri("ListPodSandbox").items == []
        return result
    finally:
        scene.cri.close()
        make_ready(containerd)


@pytest.mark.parametrize("play", SCENES, ids=lambda play: play.__name__)
def test_a_pod_fares_as_it_does_with_containerds_own_runtime(
    containerd: Containerd, play: Callable[[Scene], object]
) -> None:
    truth, ours = (outcome(containerd, runtime, play, number) for number, runtime in enumerate((TRUTH, OURS)))
    assert ours == truth


def test_the_relay_of_a_pod_of_pause_and_two_is_small_also_after_execs(containerd: Containerd) -> None:
    """Of two pods: they share the relay's program, as all pods of a node do."""
    cri = Cri(containerd)
    pods = [cri.pod(EXITD, f"small-{number}") for number in range(2)]
    boxes = [[pod.run(name, "sleep", "1000") for name in ("one", "two")] for pod in pods]
    relays = [relay for pod in pods for relay in containerd.shims(pod.id)]
    sizes = [own_kb(pid) for pid in relays]
    for _ in range(EXECS):
        assert boxes[0][1].exec("sh", "-c", "exit 3")[0] == 3
    sizes.append(own_kb(relays[0]))
    print(f"private memory of two relays: {sizes[:2]} kB; of the first after {EXECS} execs: {sizes[2]} kB")
    for pod in pods:
        pod.remove()
    cri.close()
    containerd.left_is()
    assert len(relays) == 2 and max(sizes) <= RELAY_KB


def counted(cri: Cri) -> set[str]:
    """The containers of which there are statistics at this moment."""
    return {one.attributes.id for one in cri("ListContainerStats").stats if one.HasField("memory")}


@pytest.mark.parametrize("silent", [True, False], ids=["silent", "away"])
def test_the_statistics_of_all_pods_together_do_not_hang(containerd: Containerd, silent: bool) -> None:
    """containerd asks for each task's after the other's: if each waited for exitd, the list would wait that often."""
    cri = Cri(containerd)
    pods = [cri.pod(EXITD, f"counted-{silent}-{number}".lower()) for number in range(PODS)]
    boxes = [pod.run("box", "sleep", "1000") for pod in pods]
    until(lambda: counted(cri) >= {box.id for box in boxes}, "no statistics")
    daemon = containerd.with_exitd()
    with contextlib.ExitStack() as steps:
        if silent:
            steps.enter_context(stopped(daemon.pid))
        else:
            daemon.kill()
            steps.callback(daemon.start)
        took = []
        for _ in range(2):
            began = time.monotonic()
            with contextlib.suppress(grpc.RpcError):
                cri("ListContainerStats")
            took.append(time.monotonic() - began)
        print(f"the statistics of {PODS} pods: {took[0]:.2f} s, and once more {took[1]:.2f} s")
    assert max(took) <= STATS_SECONDS
    until(lambda: counted(cri) >= {box.id for box in boxes}, "no statistics afterwards")
    for pod in pods:
        pod.remove()
    cri.close()
    containerd.left_is()
