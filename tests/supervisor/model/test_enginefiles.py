"""What docker's, podman's, CRI-O's and containerd's files say a container is called."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.model import enginefiles
from supervisor.model.enginefiles import BundleWords
from supervisor.model.values import Names

ID, POD = "a1" * 32, "b2" * 32
KUBELETS = {"io.kubernetes.pod.namespace": "shop", "io.kubernetes.pod.name": "web-0"}
LABELS = {**KUBELETS, "io.kubernetes.container.name": "app"}
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=20), inner, max_size=4),
    max_leaves=20,
)


@pytest.mark.parametrize(
    ("state", "bundle"),
    [
        ({"config": {"labels": ["a=b", "bundle=/b/x"]}}, "/b/x"),  # runc's
        ({"bundle": "/b/x"}, "/b/x"),  # crun's
        ({"bundle": "b/x"}, ""),
        ({"bundle": "/b/../x"}, ""),
        ({"bundle": "/b\0x"}, ""),
        ({"bundle": 7, "config": {"labels": "bundle=/b"}}, ""),
        ({}, ""),
    ],
)
def test_a_state_names_the_bundle_by_a_plain_absolute_path(state: object, bundle: str) -> None:
    assert enginefiles.bundle_in(json.dumps(state)) == bundle


@pytest.mark.parametrize(
    ("annotations", "names"),
    [
        (
            {
                "io.kubernetes.cri.sandbox-namespace": "shop",
                "io.kubernetes.cri.sandbox-name": "web-0",
                "io.kubernetes.cri.container-name": "app",
                "io.kubernetes.cri.image-name": "img",
            },
            Names("shop", "web-0", "app", "img"),
        ),
        (
            {**LABELS, "io.kubernetes.cri-o.ContainerType": "container", "io.kubernetes.cri-o.ImageName": "img"},
            Names("shop", "web-0", "app", "img"),
        ),
        (
            {
                "io.kubernetes.cri-o.ContainerType": "container",
                "io.kubernetes.cri-o.Labels": json.dumps(LABELS),
                "io.kubernetes.cri-o.Image": "sha",
            },
            Names("shop", "web-0", "app", "sha"),
        ),
        (
            {**LABELS, "io.kubernetes.cri-o.ContainerType": "sandbox", "io.kubernetes.container.name": "POD"},
            Names("shop", "web-0"),
        ),
        (LABELS, Names()),  # anybody's annotations, which no engine has written
        ({}, Names()),
    ],
)
def test_the_annotations_of_a_bundle_name_pod_and_container(annotations: object, names: Names) -> None:
    assert enginefiles.bundle_words(json.dumps({"annotations": annotations})).names == names


@pytest.mark.parametrize(
    ("cgroup", "pod"),
    [
        (f"machine-libpod_pod_{POD}.slice:libpod:{ID}", POD[:12]),
        (f"/libpod_parent/{POD}/libpod-{ID}", POD[:12]),
        (f"machine.slice:libpod:{ID}", ""),
        (7, ""),
    ],
)
def test_podmans_pod_is_in_the_cgroups_path(cgroup: object, pod: str) -> None:
    config = {"annotations": {"io.container.manager": "libpod"}, "linux": {"cgroupsPath": cgroup}}
    assert enginefiles.bundle_words(json.dumps(config)) == BundleWords(is_podmans=True, pod=pod)


def test_docker_is_known_by_the_directory_that_it_mounts_the_host_name_from() -> None:
    def found(source: object) -> str:
        mounts = [{"destination": "/etc/hosts", "source": "/x"}, {"destination": "/etc/hostname", "source": source}]
        return enginefiles.bundle_words(json.dumps({"mounts": mounts})).docker

    assert found(f"/srv/docker/containers/{ID}/hostname") == f"/srv/docker/containers/{ID}"
    for source in (f"/srv/docker/containers/../{ID}/hostname", "/etc/hostname", "/containers/short/hostname", 7):
        assert found(source) == ""


def test_podmans_names_are_in_the_containers_json_beside_its_bundle() -> None:
    assert enginefiles.storage_of(f"/s/overlay-containers/{ID}/userdata") == "/s/overlay-containers/containers.json"
    assert enginefiles.storage_of(f"/s/overlay-containers/{ID}") == enginefiles.storage_of("/userdata") == ""
    entries = [
        {"id": ID, "names": ["web"], "metadata": json.dumps({"image-name": "docker.io/library/busybox:latest"})},
        {"id": POD, "names": [], "metadata": "{"},
        {"id": 7},
        7,
    ]
    found = enginefiles.podmans(json.dumps(entries))
    assert found == {ID: Names("podman", "", "web", "docker.io/library/busybox:latest"), POD: Names("podman")}
    assert enginefiles.in_pod(found[ID], "p") == Names("podman", "p", "web", "docker.io/library/busybox:latest")


def test_dockers_names_are_kubernetes_else_composes_else_its_own() -> None:
    def found(labels: object) -> Names:
        return enginefiles.dockers(json.dumps({"Name": "/web", "Config": {"Image": "img", "Labels": labels}}))

    assert found(None) == Names("docker", "", "web", "img")
    assert found({"com.docker.compose.project": "shop"}) == Names("docker", "shop", "web", "img")
    assert found(LABELS) == Names("shop", "web-0", "app", "img")
    assert enginefiles.dockers("{}") == Names()
    assert enginefiles.docker_config("/d", ID) == f"/d/{ID}/config.v2.json"
    assert enginefiles.docker_config("/d", "../x") == ""


@given(ANYTHING, st.text(max_size=50))
def test_whatever_is_in_the_files_is_no_error_and_bounded(document: object, text: str) -> None:
    for each in (
        json.dumps(document),
        json.dumps({"annotations": document, "mounts": document, "linux": document}),
        text,
    ):
        words = enginefiles.bundle_words(each)
        assert words.pod == ""
        bundle = enginefiles.bundle_in(each)
        assert not bundle or bundle.startswith("/")
        for names in (words.names, enginefiles.dockers(each), *enginefiles.podmans(each).values()):
            assert max(map(len, (names.namespace, names.pod, names.container, names.image))) <= 256


def test_deep_nesting_and_large_lists_are_no_error() -> None:
    deep = "[" * 100_000
    assert enginefiles.bundle_words(deep) == BundleWords()
    assert enginefiles.podmans(deep) == {}
    many = json.dumps([{"id": str(number)} for number in range(enginefiles.MOST_ENTRIES + 1)])
    assert len(enginefiles.podmans(many)) == enginefiles.MOST_ENTRIES
