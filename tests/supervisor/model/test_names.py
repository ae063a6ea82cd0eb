"""What a container is called, whoever has made it."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.model import names
from supervisor.model.values import Container, Exited, ExitStatus, Names, Phase, Pod, Process, Signaled, Spec, Unknown
from supervisor.model.watched import Observed
from tests.supervisor.stored import ended

ANY = st.dictionaries(st.sampled_from([*names.LABELS, *names.ANNOTATIONS, names.IMAGE, "x"]), st.text(max_size=600))


def of(spec: Spec, id: str = "c1") -> Container:
    return Container(id, spec, Phase.RUNNING, 1, 1)


def test_kubelets_labels_are_the_names_of_a_watched_container() -> None:
    labels = dict(zip(names.LABELS, ("shop", "web-0", "app"), strict=True)) | {"other": "x"}
    assert names.of_labels(labels, "img") == Names("shop", "web-0", "app", "img")
    assert names.of_labels({}) == Names()


def test_nerdctls_name_is_one_where_kubernetes_has_given_none() -> None:
    labels = {"nerdctl/namespace": "default", "nerdctl/name": "web"}
    assert names.of_labels(labels, "img") == Names("containerd/default", "", "web", "img")
    kubelets = dict(zip(names.LABELS, ("shop", "web-0", "app"), strict=True))
    assert names.of_labels({**labels, **kubelets}) == Names("shop", "web-0", "app")


def test_the_annotations_of_a_bundle_are_the_names_of_a_task() -> None:
    annotations = dict(zip((*names.ANNOTATIONS, names.IMAGE), ("shop", "web-0", "app", "img"), strict=True))
    assert names.of_annotations(annotations) == Names("shop", "web-0", "app", "img")
    assert names.of_annotations({names.ANNOTATIONS[1]: 7}) == Names()
    task = of(Spec("id", names=Names("shop", "web-0", "app")))
    assert names.of_container(task, None) == Names("shop", "web-0", "app")


def test_a_member_has_its_pods_names_and_the_sandbox_none_of_a_container() -> None:
    pause = of(Spec("p", pod=Pod("web-0", "shop")), "p")
    member = of(Spec("app", sandbox="p", image="img"))
    assert names.of_container(member, pause) == Names("shop", "web-0", "app", "img")
    assert names.of_container(pause, pause) == Names("shop", "web-0", "")
    unnamed = replace(pause, spec=Spec("p", pod=Pod("", "shop")))
    assert names.of_container(member, unnamed).pod == "p"


def test_a_container_alone_has_its_own_namespace_and_name() -> None:
    assert names.of_container(of(Spec("app", image="img")), None) == Names("default", "", "app", "img")


def test_what_nobody_has_named_is_counted_as_the_ledger_shows_it() -> None:
    assert names.of_exit(ended("c9")) == Names("default", "", "c9")
    assert names.of_exit(replace(ended("c9"), names=Names("a", "b", "c"))) == Names("a", "b", "c")
    one = Observed(Process(1, 2), "boot", "x@/s/n", 1, "x", "containerd/n", "/s")
    assert names.of_observed(one) == Names("containerd/n", "", "x")
    assert names.of_observed(replace(one, names=Names("a", "b"))) == Names("a", "b")


@given(ANY)
def test_whatever_somebody_has_written_the_names_are_short_and_can_be_stored(written: dict[str, str]) -> None:
    for found in (names.of_labels(written, written.get("x", "")), names.of_annotations(written)):
        for word in (found.namespace, found.pod, found.container, found.image):
            assert len(word) <= names.MOST_CHARACTERS
            word.encode()


def test_a_log_line_of_an_end_has_the_names_that_there_are() -> None:
    said = names.logged(replace(ended("c9"), names=Names("shop", "web-0", "app")))
    assert (said["namespace"], said["pod"], said["name"], said["reason"]) == ("shop", "web-0", "app", "self")
    assert "pod" not in names.logged(ended("c9"))


@pytest.mark.parametrize(
    ("status", "fields"),
    [
        (Exited(7), {"code": 7}),
        (Signaled(9), {"signal": 9}),
        (Signaled(11, core=True), {"signal": 11, "core": True}),
        (Unknown("monitors-killed"), {"unknown": "monitors-killed"}),
        (Unknown("shim-number-only", 137), {"unknown": "shim-number-only", "number": 137}),
    ],
)
def test_a_log_line_of_an_end_has_its_number_as_a_field(status: ExitStatus, fields: dict[str, object]) -> None:
    said = names.logged(replace(ended("c9"), status=status))
    words = ("code", "signal", "core", "unknown", "number", "status")
    assert {word: said[word] for word in words if word in said} == fields
