"""From a CreateSandbox to a pod: what its pause container is configured to be, and what its members get to see."""

import json
from typing import Any

import pytest
from google.protobuf.any_pb2 import Any as AnyMessage

from protos.containerd import podsandbox_pb2 as cri
from supervisor.containerd.sandbox import FILES, Sandbox, document, files, mounts_of, parse
from supervisor.model.errors import BadRequest
from supervisor.model.values import Mount, OnPauseExit, Pod
from supervisor.runtime.oci import spec

ID = "5e" * 32
HOST = {"hostname": "node\n", "hosts": "127.0.0.1 localhost\n", "resolv.conf": "nameserver 10.0.0.1\n"}


def options(**fields: Any) -> AnyMessage:
    config = cri.PodSandboxConfig(**fields)
    return AnyMessage(type_url="runtime.v1.PodSandboxConfig", value=config.SerializeToString())


def linux(**modes: int) -> dict[str, Any]:
    return {"security_context": {"namespace_options": modes}}


def namespaces(wanted: Sandbox) -> dict[str, str]:
    made: Any = document(wanted, "/pause")
    return {each["type"]: each.get("path", "") for each in made["linux"]["namespaces"]}


def test_the_type_url_is_that_of_cri() -> None:
    assert cri.PodSandboxConfig.DESCRIPTOR.full_name == "runtime.v1.PodSandboxConfig"


def test_a_pod_has_its_name_its_hostname_and_namespaces_of_its_own() -> None:
    said = {"name": "web", "uid": "u-1", "namespace": "shop", "attempt": 2}
    wanted = parse(ID, "/run/netns/x", options(metadata=said, hostname="web-0"))
    assert wanted.pod == Pod("web", "shop", "u-1", 2, OnPauseExit.KEEP) and wanted.hostname == "web-0"
    assert namespaces(wanted) == {"mount": "", "pid": "", "ipc": "", "uts": "", "network": "/run/netns/x"}


def test_a_pod_on_the_hosts_network_has_the_hosts_names_too() -> None:
    wanted = parse(ID, "", options(hostname="ignored", linux=linux(network=cri.NODE, pid=cri.NODE, ipc=cri.NODE)))
    assert namespaces(wanted) == {"mount": ""}
    assert "hostname" not in document(wanted, "/pause")
    assert files(wanted, HOST) == HOST


def test_without_options_a_pod_is_one_by_itself() -> None:
    wanted = parse(ID, "", None)
    assert (wanted.pod.name, wanted.hostname, wanted.note) == (ID, ID[:12], "")
    assert namespaces(wanted)["network"] == ""


def test_options_of_another_kind_are_noted() -> None:
    wanted = parse(ID, "/n", AnyMessage(type_url="x/some.Kind", value=b"\xff"))
    assert "some.Kind" in wanted.note and wanted.netns_path == "/n"


@pytest.mark.parametrize(
    ("parent", "path"),
    [
        ("", None),
        ("/kubepods/pod1", f"/kubepods/pod1/{ID}"),
        ("kubepods/pod1/", f"/kubepods/pod1/{ID}"),
        ("kubepods-pod1.slice", f"kubepods-pod1.slice:cri-containerd:{ID}"),
        ("/kubepods.slice/kubepods-pod1.slice", f"kubepods-pod1.slice:cri-containerd:{ID}"),
    ],
)
def test_its_cgroup_is_where_cri_puts_those_of_its_own_pause_containers(parent: str, path: str | None) -> None:
    made: Any = document(parse(ID, "", options(linux={"cgroup_parent": parent})), "/pause")
    assert made["linux"].get("cgroupsPath") == path


def test_the_configuration_is_one_that_a_bundle_may_have() -> None:
    asked = options(linux={"sysctls": {"net.ipv4.ip_local_port_range": "1024 65000"}})
    made: Any = document(parse(ID, "", asked), "/var/lib/exitd/pause")
    read: Any = spec.parse_bundle(json.dumps(made).encode(), "config.json")
    assert read["root"] == {"path": "/var/lib/exitd/pause", "readonly": True}
    assert read["process"]["args"] == ["/pause"] and read["process"]["user"]["uid"] != 0
    assert read["process"]["capabilities"] == {} and read["process"]["noNewPrivileges"] is True
    assert read["linux"]["sysctl"] == {"net.ipv4.ip_local_port_range": "1024 65000"}
    assert read["annotations"] == {
        "io.kubernetes.cri.container-type": "sandbox",
        "io.kubernetes.cri.sandbox-id": ID,
    }


def test_members_see_the_pods_name_and_its_resolver() -> None:
    dns = {"servers": ["10.96.0.10", "fd00::a"], "searches": ["shop.svc", "svc"], "options": ["ndots:5"]}
    made = files(parse(ID, "", options(hostname="web-0", dns_config=dns)), HOST)
    assert made == {
        "hostname": "web-0\n",
        "hosts": HOST["hosts"],
        "resolv.conf": "search shop.svc svc\nnameserver 10.96.0.10\nnameserver fd00::a\noptions ndots:5\n",
    }
    assert files(parse(ID, "", options(dns_config={})), HOST)["resolv.conf"] == HOST["resolv.conf"]


def test_a_member_gets_what_its_own_configuration_does_not_mount() -> None:
    sources = {name: f"/b/exitd.{name}" for name in FILES}
    member: dict[str, object] = {"root": {"path": "rootfs"}, "mounts": [{"destination": "/etc//hosts"}, {}]}
    assert mounts_of(member, sources) == (
        Mount("/b/exitd.hostname", "/etc/hostname"),
        Mount("/b/exitd.resolv.conf", "/etc/resolv.conf"),
    )
    read_only = mounts_of({"root": {"readonly": True}}, {"hosts": "/b/exitd.hosts"})
    assert read_only == (Mount("/b/exitd.hosts", "/etc/hosts", read_only=True),)


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"hostname": "a" * 65}, "hostname"),
        ({"hostname": "a\nb"}, "hostname"),
        ({"linux": {"cgroup_parent": "/a/../b"}}, "cgroup_parent"),
        ({"linux": {"cgroup_parent": "a.slice:b"}}, "cgroup_parent"),
        ({"dns_config": {"servers": ["1.1.1.1\nnameserver 6.6.6.6"]}}, "dns_config"),
        ({"dns_config": {"searches": ["a b"]}}, "dns_config"),
        ({"dns_config": {"options": [""]}}, "dns_config"),
        ({"dns_config": {"options": ["x" * 70_000]}}, "dns_config"),
        ({"metadata": {"name": "a\x1b[31m"}}, "metadata.name"),
        ({"metadata": {"namespace": "n" * 254}}, "metadata.namespace"),
        ({"linux": {"security_context": {"namespace_options": {"userns_options": {"mode": 0}}}}}, "podsandbox"),
    ],
)
def test_what_cannot_be_a_pod_is_refused_by_name(fields: dict[str, Any], word: str) -> None:
    with pytest.raises(BadRequest, match=word):
        parse(ID, "", options(**fields))


@pytest.mark.parametrize("path", ["run/netns/x", "/a\0b", "/" + "x" * 5000])
def test_a_network_namespace_has_an_absolute_path(path: str) -> None:
    with pytest.raises(BadRequest, match="netns_path"):
        parse(ID, path, None)


def test_bytes_that_are_no_message_are_refused() -> None:
    with pytest.raises(BadRequest, match="cannot be read"):
        parse(ID, "", AnyMessage(type_url="runtime.v1.PodSandboxConfig", value=b"\xff"))
