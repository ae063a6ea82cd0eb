"""Everybody has a turn at being first; a client that waits knows what was reported, and when."""

import pathlib
import subprocess

import pytest

from supervisor.compare.harness import WayNotice, at_once, few_at_once, in_turn, in_turns, killed, timed
from supervisor.compare.machine import Scratch
from supervisor.compare.podspec import KIND, SANDBOX_ID, PodSpecs, Spec, pod_specs, start
from supervisor.compare.way import WayContainer


def test_another_one_is_first_each_time_and_nobody_is_left_out() -> None:
    turns = [in_turn(["a", "b", "c"], number) for number in range(4)]
    assert turns == [("a", "b", "c"), ("b", "c", "a"), ("c", "a", "b"), ("a", "b", "c")]
    assert in_turn([], 5) == ()


def test_the_round_that_warms_up_is_measured_and_does_not_count() -> None:
    seen: list[str] = []

    def sample(who: str) -> int:
        seen.append(who)
        return len(seen)

    assert in_turns(["a", "b"], 2, sample) == {"a": [4, 5], "b": [3, 6]}
    assert seen == ["a", "b", "b", "a", "a", "b"]
    assert in_turns(["a", "b"], 1, sample, warm_up=0) == {"a": [7], "b": [8]}


def test_what_is_done_at_once_comes_back_in_its_order() -> None:
    seconds, results = at_once(str, [3, 1, 2])
    assert seconds > 0 and results == ["3", "1", "2"]
    assert at_once(str, [])[1] == []
    assert timed(lambda: 7)[1] == 7
    assert few_at_once(str, range(9)) == [str(number) for number in range(9)]


def test_a_client_that_is_told_knows_when() -> None:
    notice = WayNotice(lambda seconds: "exited 43")
    assert notice.result() == "exited 43"
    assert notice.at > 0


def test_a_client_that_is_told_nothing_says_so() -> None:
    def never(seconds: float) -> str:
        raise TimeoutError("nobody")

    with pytest.raises(TimeoutError, match="nobody"):
        WayNotice(never).result()


def test_a_container_is_killed_once_and_ended_as_often_as_one_likes() -> None:
    child = subprocess.Popen(["sleep", "1000"])
    container = WayContainer("one", child.pid).hold()
    took, code = killed(container, child.wait)
    assert took > 0 and code == -9
    with pytest.raises(ProcessLookupError):
        container.kill()
    container.end()
    container.close()
    container.end()


def scratch(place: pathlib.Path) -> Scratch:
    spec = {"linux": {"namespaces": [{"type": "network"}]}, "process": {}, "root": {"path": "/"}, "mounts": []}
    return Scratch(str(place), str(place), spec)


def test_a_pods_containers_begin_one_after_the_other_in_the_namespaces_of_the_first(tmp_path: pathlib.Path) -> None:
    pods = scratch(tmp_path)
    specs = PodSpecs("p", {f"p-{number}": pods.spec(f"/p-{number}") for number in range(3)})

    def begin(id: str, spec: Spec) -> WayContainer:
        begun.append((id, spec["linux"]["namespaces"]))
        return WayContainer(id, 7)

    begun: list[tuple[str, object]] = []
    pod = start(specs, begin)
    joined = [{"type": "network", "path": "/proc/7/ns/net"}]
    assert begun == [("p-0", [{"type": "network"}]), ("p-1", joined), ("p-2", joined)]
    assert (pod.id, pod.pause.id, [member.id for member in pod.members]) == ("p", "p-0", ["p-1", "p-2"])


def test_only_a_pod_as_cri_makes_it_has_annotations(tmp_path: pathlib.Path) -> None:
    pods = scratch(tmp_path)
    (tmp_path / "pause").mkdir()
    (tmp_path / "pause/pause").touch()
    plain = pod_specs(pods, "p", [], cri=False).containers
    assert [spec["annotations"] for spec in plain.values()] == [{}]
    marked = pod_specs(pods, "p", [], cri=True).containers
    assert marked["p-0"]["annotations"] == {SANDBOX_ID: "p-0", KIND: "sandbox"}
