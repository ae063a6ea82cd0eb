"""systemd/kubernetes: the manifest for nodes on which exitd only watches, as Kubernetes' types have it."""

import pathlib
import tomllib
from typing import Any

import yaml

from supervisor.config import file as configfile
from supervisor.external import enginenames, nodesearch
from tests.test_packaging import ROOT
from tests.test_units import WATCH

DIRECTORY = ROOT / "systemd/kubernetes"
DOCUMENTS = list(yaml.safe_load_all((DIRECTORY / "exitd-watch.yaml").read_text()))
ELSEWHERE = ("/var/snap/microk8s/common/run/containerd.sock",)  # snaps' are not mounted


def only(kind: str) -> dict[str, Any]:
    (found,) = [document for document in DOCUMENTS if document["kind"] == kind]
    return dict(found)


POD = only("DaemonSet")["spec"]["template"]["spec"]
EXITD, PROXY = POD["containers"]


def mounts() -> dict[str, dict[str, Any]]:
    return {mount["mountPath"]: mount for mount in EXITD["volumeMounts"]}


def host_path(mount: dict[str, Any]) -> str:
    (volume,) = [volume for volume in POD["volumes"] if volume["name"] == mount["name"]]
    return str(volume.get("hostPath", {}).get("path", ""))


def test_each_part_is_in_one_namespace_and_the_set_finds_its_own_pods() -> None:
    daemon_set = only("DaemonSet")
    labels = daemon_set["spec"]["template"]["metadata"]["labels"]
    assert daemon_set["spec"]["selector"]["matchLabels"] == labels
    for kind in ("ServiceAccount", "ConfigMap", "DaemonSet"):
        assert only(kind)["metadata"]["namespace"] == only("Namespace")["metadata"]["name"]
    (subject,) = only("ClusterRoleBinding")["subjects"]
    assert (subject["name"], subject["namespace"]) == (POD["serviceAccountName"], "exitd-watch")
    roles = {document["metadata"]["name"] for document in DOCUMENTS if document["kind"] == "ClusterRole"}
    assert only("ClusterRoleBinding")["roleRef"]["name"] in roles


def test_it_sees_the_nodes_processes_and_cgroups_and_has_no_capability_but_those_for_looking() -> None:
    assert POD["hostPID"] is True
    assert POD["hostNetwork"] is True  # the process events of kernels before 6.15
    assert EXITD["command"] == ["nsenter", "--cgroup=/proc/1/ns/cgroup", "--", "/opt/exitd/bin/exitd"]
    security = EXITD["securityContext"]
    assert "privileged" not in security
    assert security["capabilities"]["drop"] == ["ALL"]
    service = (ROOT / "systemd/exitd-watch.service").read_text()
    (bound,) = [line for line in service.splitlines() if line.startswith("CapabilityBoundingSet=")]
    wanted = {word.removeprefix("CAP_") for word in bound.partition("=")[2].split()}
    # /dev/kmsg is no device that a pod is given; nsenter needs SYS_ADMIN.
    assert set(security["capabilities"]["add"]) == wanted - {"SYSLOG"} | {"SYS_ADMIN"}


def test_everything_that_exitd_looks_at_is_mounted_where_the_node_has_it_and_read_only() -> None:
    found = mounts()
    places = [*nodesearch.SOCKETS, *nodesearch.ROOTS, *nodesearch.CONTAINERDS_ROOTS, nodesearch.USERS]
    places += [enginenames.DOCKER_ROOT, "/var/lib/containers/storage", "/sys/fs/cgroup"]
    for place in places:
        parents = [str(parent) for parent in (pathlib.Path(place), *pathlib.Path(place).parents)]
        mount = next((found[parent] for parent in parents if parent in found), None)
        assert mount is not None or place in ELSEWHERE, place
        if mount is not None:
            assert host_path(mount) == mount["mountPath"]
            assert mount["readOnly"] is True
    writable = {path for path, mount in found.items() if not mount.get("readOnly")}
    assert writable == {"/var/lib/exitd", "/run/exitd", "/tmp"}
    assert {mount["name"] for mount in (*found.values(), *PROXY["volumeMounts"])} == {
        volume["name"] for volume in POD["volumes"]
    }


def test_its_flags_and_its_configuration_are_exitds_and_the_units() -> None:
    words = dict(word.removeprefix("--").split("=") for word in EXITD["args"])
    assert words == {
        "config": "/etc/exitd/watch.toml",
        "root": "/var/lib/exitd",
        "state": "/run/exitd",
        "keeper": "wait",
        "log-format": "json",
    }
    (text,) = only("ConfigMap")["data"].values()
    assert configfile.parse(text.encode(), "watch.toml")
    assert tomllib.loads(text) == tomllib.loads(WATCH.read_text())


def test_metrics_leave_the_node_only_through_a_program_that_asks_who_reads_them() -> None:
    (text,) = only("ConfigMap")["data"].values()
    listen = tomllib.loads(text)["metrics"]["listen"]
    assert listen.startswith("127.0.0.1:")
    assert f"--upstream=http://{listen}/" in PROXY["args"]
    (port,) = PROXY["ports"]
    assert f"--secure-listen-address=:{port['containerPort']}" in PROXY["args"]
    assert PROXY["securityContext"]["runAsNonRoot"] is True


def test_the_image_is_made_of_the_package_that_make_deb_makes() -> None:
    lines = (DIRECTORY / "Containerfile").read_text().splitlines()
    assert "FROM debian:trixie-slim" in lines
    assert 'ENTRYPOINT ["/opt/exitd/bin/exitd"]' in lines
    assert any(f"-t {EXITD['image'].partition(':')[0]} " in line for line in lines)
    assert any("exitd_*~deb13_*.deb" in line for line in lines)
