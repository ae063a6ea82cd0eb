"""Containers are found by name and by pod as if all of them had been looked at."""

import weakref
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from supervisor.engine.containers import Containers
from supervisor.model.remembered import Remembered
from supervisor.model.taskfacts import Task
from supervisor.model.values import Container, Phase, Spec

IDS, NAMES, PODS = ("a", "b", "c", "d"), ("x", "y"), ("", "a", "p")
KEPT = st.tuples(
    st.just("keep"), st.sampled_from(IDS), st.sampled_from(NAMES), st.sampled_from(PODS), st.integers(0, 3)
)
OTHERS = st.tuples(st.sampled_from(("drop", "pop", "change")), st.sampled_from(IDS))


def apply(containers: Containers, plain: dict[str, Container], step: tuple[object, ...]) -> None:
    """The same to both."""
    match step:
        case ("keep", str(id), str(name), str(pod), int(created)):
            plain.pop(id, None)  # what has another spec is another container: it is the newest of its name
            containers.pop(id)
            spec = Spec(name=name, namespace="n", sandbox=pod)
            plain[id] = containers[id] = Container(id, spec, Phase.CREATED, 1, created)
        case ("change", str(id)) if id in plain:
            plain[id] = containers[id] = replace(plain[id], phase=Phase.EXITED)
        case ("drop", str(id)) if id in plain:
            del plain[id], containers[id]
        case ("pop", str(id)):
            assert containers.pop(id) is plain.pop(id, None)


@given(st.lists(KEPT | OTHERS, max_size=30))
def test_who_is_found_is_who_a_look_at_all_would_find(steps: list[tuple[object, ...]]) -> None:
    containers, plain = Containers(), dict[str, Container]()
    for step in steps:
        apply(containers, plain, step)
        assert dict(containers) == plain
        for name in NAMES:
            assert containers.named("n", name) is next((c for c in plain.values() if c.spec.name == name), None)
            assert containers.named("other", name) is None
        for pod in PODS[1:]:
            members = sorted((c for c in plain.values() if c.spec.sandbox == pod), key=lambda c: c.created_ns)
            assert containers.members(pod) == members


def test_a_container_with_another_spec_is_found_by_the_new_one_alone() -> None:
    containers = Containers()
    first = Container("a", Spec(name="x", sandbox="p"), Phase.CREATED, 1, 0)
    containers["a"] = first
    containers["a"] = replace(first, spec=Spec(name="y", sandbox="q"))
    assert (containers.named("default", "x"), containers.members("p")) == (None, [])
    assert containers.named("default", "y") is containers["a"] and containers.members("q") == [containers["a"]]
    del containers["a"]
    containers["t"] = Container("t", Spec(name="y", task=Task("/b")), Phase.CREATED, 1, 0)
    assert containers.named("default", "y") is None
    assert containers.named("default", "y", task=True) is containers["t"]
    del containers["t"]
    assert not any(containers.__dict__.values())  # nothing is kept of who is gone


def test_a_name_that_is_reserved_for_a_container_that_goes_away_meanwhile_is_nobodys() -> None:
    containers = Containers()
    containers["a"] = Container("a", Spec(name="x"), Phase.EXITED, 1, 0)
    with containers.reserved("a", "y"):
        assert containers.named("default", "y") is containers["a"]
        del containers["a"]
        assert containers.named("default", "y") is None
    assert containers.named("default", "y") is None


class Text(str):
    """There can be weak references to it."""


def test_what_was_made_of_a_spec_after_its_container_is_gone_goes_with_the_spec() -> None:
    """As of a row that is stored late, or of an answer that shows what was there. It may have secrets in it."""
    remembered = Remembered[Spec, Text](lambda spec: Text(spec.name), len, 1 << 20)
    containers, spec = Containers(), Spec(name="x")
    containers["a"] = Container("a", spec, Phase.CREATED, 1, 0)
    kept = weakref.ref(remembered.of(spec))
    containers.pop("a")
    assert remembered.of(spec) is kept()
    del spec
    assert kept() is None
