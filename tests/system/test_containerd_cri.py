"""Pods as a kubelet has them, by the CRI of a real containerd: with exitd as with containerd's own runtime."""

import json
import os
from collections.abc import Callable, Iterator

import pytest

from tests.system.containerdrig import RUNC, Containerd, containerd
from tests.system.containerdverbs import OURS, TRUTH
from tests.system.criclient import NODE, POD, Container, Cri
from tests.system.daemonrig import commands, until
from tests.system.shimrig import end_process, wait_readable

UNTIL_TOLD = "until [ -e /mnt/go ]; do sleep 0.02; done"


@pytest.fixture(scope="module")
def rig() -> Iterator[Containerd]:
    with containerd(cri=True) as made:
        yield made


class Scene:
    """What a scenario has: one pod, the interface, and a way to have it anew after a restart."""

    def __init__(self, cri: Cri, runtime: str, name: str) -> None:
        self.cri, self.runtime, self.name = cri, runtime, name
        self.pod = cri.pod(runtime, name)

    def told(self, name: str, script: str) -> tuple[Container, Callable[[], None]]:
        """A container that goes on with its script when the second is called."""
        place = self.cri.rig.base / f"m-{self.name}-{name}"
        place.mkdir()
        mounts = [{"container_path": "/mnt", "host_path": str(place)}]
        made = self.pod.run(name, "sh", "-c", f"echo up; {UNTIL_TOLD}; {script}", mounts=mounts)
        until(lambda: made.lines()[:1] == [("stdout", "F", "up")], f"{name} is not up")
        return made, (place / "go").touch

    def restart(self, between: Callable[[], None] = lambda: None) -> None:
        """Of containerd; what is to be done while it is away."""
        self.cri.rig.kill()
        between()
        self.cri.rig.start()
        self.cri.close()
        self.cri = self.pod.cri = Cri(self.cri.rig)


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
    (shim,) = scene.cri.rig.shims(scene.pod.id)
    end_process(shim)
    ended = box.ended()
    until(lambda: not scene.pod.ready(), "the pod is ready without its shim")
    said = stays.exec("sh", "-c", "exit 4"), other.pod.ready()
    other.pod.remove()
    if scene.runtime == RUNC:  # which leaves its socket
        os.unlink(scene.cri.rig.socket_of(scene.pod.id))
    return ended[:3], said


SCENES: tuple[Callable[[Scene], object], ...] = (
    *(two_containers, exec_sync, logs_that_are_rotated, stop_with_grace, out_of_memory, statistics),
    *(what_cannot_start, containerd_is_restarted, the_sandbox_dies, the_shim_dies),
    *(whom_init_leaves_among_the_hosts_pids, whom_init_leaves_among_its_pods_pids),
)


def outcome(rig: Containerd, runtime: str, play: Callable[[Scene], object], number: int) -> object:
    """What it returns; its pod is removed, and nothing is left."""
    scene = Scene(Cri(rig), runtime, f"{play.__name__.replace('_', '-')}-{number}")
    try:
        result = play(scene)
        scene.pod.remove()
        rig.left_is()
        assert scene.cri("ListContainers").containers == scene.cri("ListPodSandbox").items == []
        return result
    finally:
        scene.cri.clear()  # for the next one, when this one has failed
        scene.cri.close()


@pytest.mark.parametrize("play", SCENES, ids=lambda play: play.__name__)
def test_a_pod_fares_as_it_does_with_containerds_own_runtime(rig: Containerd, play: Callable[[Scene], object]) -> None:
    truth, ours = (outcome(rig, runtime, play, number) for number, runtime in enumerate((TRUTH, OURS)))
    assert ours == truth
