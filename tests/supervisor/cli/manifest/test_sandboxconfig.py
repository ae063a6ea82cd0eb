"""CRI's PodSandboxConfig: what each field becomes, and that nothing is left out without a word."""

import json
import re
from typing import Any

import pytest
from hypothesis import given

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.cli.manifest import sandboxconfig
from supervisor.cli.manifest.sandboxconfig import SandboxConfig, read_config
from supervisor.model.errors import BadRequest
from tests.supervisor.cli.manifest.broken import broken
from tests.supervisor.cli.manifest.manifests import UID

# As it stands in the first founding document, byte for byte.
FOUNDING = """{
"metadata": {
"name": "nginx-sandbox",
"namespace": "default",
"attempt": 1,
"uid": "hdishd83djaidwnduwk28bcsb"
},
"image": {
"image": "docker.io/library/busybox:latest"
},
"linux": {
}
}
"""
WHOLE = {
    "metadata": {"name": "web", "namespace": "shop", "attempt": 2, "uid": "u-1"},
    "hostname": "front",
    "log_directory": "/var/log/pods/web",
    "dns_config": {"servers": [], "searches": [], "options": []},
    "port_mappings": [{"protocol": 0, "container_port": 80, "host_port": 0}],
    "labels": {"app": "web"},
    "annotations": {"note": "hello"},
    "linux": {
        "cgroup_parent": "",
        "sysctls": {},
        "overhead": {},
        "resources": {"memory_limit_in_bytes": 64 << 20, "cpu_quota": 25000, "cpu_period": 50000, "cpu_shares": 0},
        "security_context": {
            "namespace_options": {"network": 2, "pid": 1, "ipc": 0, "userns_options": {"mode": 2}},
            "run_as_user": {"value": 1000},
            "run_as_group": {"value": 1001},
            "readonly_rootfs": True,
            "privileged": False,
            "supplemental_groups": [],
            "supplemental_groups_policy": 0,
            "seccomp": {"profile_type": 1},
            "apparmor": {"profile_type": "Unconfined", "localhost_ref": ""},
            "seccomp_profile_path": "",
        },
    },
    "windows": {},
}


def config(document: dict[str, Any]) -> SandboxConfig:
    return read_config(json.dumps(document), "c.json", lambda: UID)


def with_(path: str, value: object) -> dict[str, Any]:
    """The least configuration there is, with something in it at a place such as `linux.sysctls`."""
    document: dict[str, Any] = {"metadata": {"name": "web", "namespace": "shop"}}
    here = document
    *way, last = path.split(".")
    for step in way:
        here = here.setdefault(step, {})
    here[last] = value
    return document


def test_the_founding_documents_file_is_taken_and_its_image_told_to_be_of_no_effect() -> None:
    found = read_config(FOUNDING, "sandbox-config.json", lambda: UID)
    assert found.spec == pb.ContainerSpec(
        image="pause",
        pid="own",
        pod=pb.PodSpec(name="nginx-sandbox", namespace="default", attempt=1, uid="hdishd83djaidwnduwk28bcsb"),
    )
    assert found.warnings == ("sandbox-config.json:8:1: image: ignored: there is no such field",)


def test_a_whole_configuration_becomes_a_request() -> None:
    found = config(WHOLE)
    assert found.warnings == ()
    assert found.spec == pb.ContainerSpec(
        image="pause", hostname="front", network="host", pid="own", user="1000:1001", read_only=True,
        labels={"app": "web"}, annotations={"note": "hello"},
        pod=pb.PodSpec(
            name="web", namespace="shop", attempt=2, uid="u-1", log_directory="/var/log/pods/web",
            memory_bytes=64 << 20, cpu_limit_milli=500,
        ),
        security=pb.SecuritySpec(seccomp="unconfined", apparmor="unconfined"),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("asked", "profile"),
    [
        ({"profile_type": "RuntimeDefault"}, "exitd-default"),
        ({"profile_type": 1}, "unconfined"),
        ({"profile_type": 2, "localhost_ref": "tight"}, "tight"),
    ],
)
def test_a_sandbox_has_the_apparmor_profile_that_was_asked_for(asked: object, profile: str) -> None:
    spec = config(with_("linux.security_context.apparmor", asked)).spec
    assert spec.security == pb.SecuritySpec(apparmor=profile)


def test_sysctls_are_the_pause_containers_but_those_of_the_machines_network() -> None:
    asked = with_("linux.sysctls", {"net.core.somaxconn": "5", "kernel.sem": "1 2 3 4"})
    assert dict(config(asked).spec.sysctls) == {"net.core.somaxconn": "5", "kernel.sem": "1 2 3 4"}
    asked["linux"]["security_context"] = {"namespace_options": {"network": 2}}
    with pytest.raises(BadRequest, match=r"c\.json:1:\d+: linux\.sysctls.*: .*none of net\.\* with the host's network"):
        config(asked)


def test_the_machines_ipc_namespace_is_the_pause_containers_and_takes_no_sysctls_of_it() -> None:
    asked = with_("linux.security_context", {"namespace_options": {"ipc": 2}})
    assert (config(asked).spec.ipc, config(WHOLE).spec.ipc) == ("host", "")
    asked["linux"]["sysctls"] = {"kernel.sem": "1 2 3 4"}
    with pytest.raises(BadRequest, match=r"linux\.sysctls.*with the host's ipc namespace"):
        config(asked)


def test_the_ports_of_the_machine_are_published_by_the_pause_container() -> None:
    mappings = [
        {"host_port": 8080, "container_port": 80, "host_ip": "127.0.0.1"},
        {"host_port": 53, "container_port": 53, "protocol": 1},
        {"host_port": 8080, "container_port": 80, "protocol": "SCTP"},
        {"container_port": 81},
    ]
    found = config(with_("port_mappings", mappings)).spec
    assert (found.network, list(found.ports)) == (
        "",
        [
            pb.PortMapping(container_port=80, host_port=8080, protocol="tcp", host_ip="127.0.0.1"),
            pb.PortMapping(container_port=53, host_port=53, protocol="udp"),
            pb.PortMapping(container_port=80, host_port=8080, protocol="sctp"),
        ],
    )


def test_with_the_machines_network_a_port_of_the_machine_is_the_containers_own() -> None:
    shared = {**WHOLE, "port_mappings": [{"host_port": 80, "container_port": 80}]}
    assert not config(shared).spec.ports
    with pytest.raises(BadRequest, match="the host's port is the container's, 80"):
        config({**WHOLE, "port_mappings": [{"host_port": 8080, "container_port": 80}]})


def test_a_cpu_period_of_0_is_the_kernels_own_as_in_cri() -> None:
    for quota, milli in ((0, 0), (-1, 0), (25000, 250)):
        found = config(with_("linux.resources", {"cpu_quota": quota, "cpu_period": 0}))
        assert (found.spec.pod.cpu_limit_milli, found.warnings) == (milli, ())


def test_a_pod_without_a_uid_gets_one() -> None:
    assert config(with_("hostname", "h")).spec.pod.uid == UID


def test_the_same_in_yaml() -> None:
    text = (
        "metadata: {name: web, namespace: shop}\nlinux:\n  security_context:\n    namespace_options: {network: NODE}\n"
    )
    assert read_config(text, "c.yaml", lambda: UID).spec.network == "host"


@pytest.mark.parametrize(
    ("path", "value", "why"),
    [
        ("linux.cgroup_parent", "/kubepods", "a cgroup of its own"),
        ("linux.sysctls", {"kernel.pid_max": "5"}, "its own namespaces: net.*"),
        ("linux.sysctls", {"net.core.somaxconn": 5}, "must be a text; it is a number; write it in quotes"),
        ("linux.overhead", {"memory_limit_in_bytes": 5}, "add it to resources"),
        ("linux.resources.cpu_quota", 500, "not in the range of 10 to"),
        ("linux.resources.cpu_period", 999, "not in the range of 1000 to 1000000"),
        ("linux.resources.cpuset_cpus", "0-1", "limits of memory and CPU time alone"),
        ("linux.resources.cpuset_mems", "0", "limits of memory and CPU time alone"),
        ("linux.resources.hugepage_limits", [{"page_size": "2MB", "limit": 5}], "limits of memory and CPU time alone"),
        ("linux.resources.unified", {"memory.high": "5"}, "limits of memory and CPU time alone"),
        ("linux.resources.memory_swap_limit_in_bytes", 5, "limits of memory and CPU time alone"),
        ("linux.resources.memory_limit_in_bytes", 1000, "below 4194304"),
        ("linux.resources.memory_limit_in_bytes", "64Mi", "must be a whole number; it is a text"),
        ("linux.resources.memory_limit_in_bytes", -1, "not in the range"),
        ("linux.resources.oom_score_adj", -500, "in the kernel's own order"),
        ("linux.resources.memoryLimitInBytes", 5, "no such field; did you mean memory_limit_in_bytes?"),
        ("linux.securityContext", {}, "no such field; did you mean security_context?"),
        ("linux.security_context.namespace_options.network", 1, "CONTAINER: a pod's network is its own"),
        ("linux.security_context.namespace_options.network", "TARGET", "TARGET: a pod's network is its own"),
        ("linux.security_context.namespace_options.network", 4, "not in the range of 0 to 3"),
        ("linux.security_context.namespace_options.network", "HOST", "'HOST' is none of POD, CONTAINER, NODE, TARGET"),
        ("linux.security_context.namespace_options.ipc", 1, "CONTAINER: a pod's ipc namespace is its own"),
        ("linux.security_context.namespace_options.pid", 3, "TARGET: members say for themselves"),
        ("linux.security_context.namespace_options.target_id", "x", "joins no other container"),
        ("linux.security_context.namespace_options.userns_options.mode", 0, "POD: exitd makes no user namespaces"),
        ("linux.security_context.namespace_options.userns_options.uids", [{"length": 1}], "no user namespaces"),
        ("linux.security_context.selinux_options", {"level": "s0"}, "SELinux"),
        ("linux.security_context.run_as_user", {}, "value is missing"),
        ("linux.security_context.run_as_group", {"value": 5}, "needs run_as_user beside it"),
        ("linux.security_context.supplemental_groups", [-5], "not in the range"),
        ("linux.security_context.supplemental_groups_policy", 1, "/etc/group"),
        ("linux.security_context.privileged", True, "needs no rights"),
        ("linux.security_context.seccomp", {"profile_type": 2, "localhost_ref": "/x"}, "exitd's own profile"),
        ("linux.security_context.seccomp", {}, "profile_type is missing"),
        ("linux.security_context.apparmor", {"profile_type": 2, "localhost_ref": ""}, "Localhost goes with localhost_"),
        ("linux.security_context.apparmor", {"profile_type": "None"}, "'None' is none of RuntimeDefault"),
        ("linux.security_context.seccomp_profile_path", "runtime/default", "seccomp"),
        ("port_mappings", [{"host_port": 80}], "container_port is missing"),
        ("port_mappings", [{"host_port": 80, "container_port": 70000}], "not in the range of 0 to 65535"),
        ("port_mappings", [{"host_port": 80, "container_port": 80, "host_ip": "here"}], "no address"),
        ("port_mappings", [{"host_port": 80, "container_port": 80, "protocol": "ICMP"}], "none of TCP, UDP, SCTP"),
        ("port_mappings", [{"host_port": 80, "container_port": 80, "protocol": 3}], "not in the range of 0 to 2"),
        ("port_mappings", 2 * [{"host_port": 80, "container_port": 80}], "is taken by"),
        ("log_directory", "logs", "no absolute path"),
        ("hostname", "-x", "no host name"),
        ("metadata.name", "", "'' is no name"),
        ("metadata.namespace", None, "namespace is missing"),
        ("metadata.attempt", -1, "not in the range"),
        ("labels", {"a": 5}, "must be a text; it is a number"),
        ("windows", {"a": 5}, "this is Linux"),
        ("metadata", None, "metadata is missing"),
    ],
)  # fmt: skip
def test_what_a_sandbox_cannot_have_is_refused_by_its_field(path: str, value: object, why: str) -> None:
    with pytest.raises(BadRequest) as caught:
        config(with_(path, value))
    assert why in str(caught.value)
    assert re.match(rf"c\.json:1:\d+: ({path}|{path.rpartition('.')[0]})", str(caught.value))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("dns_config.servers", ["1.1.1.1"]), ("dns_config.searches", ["x"]), ("dns_config.options", ["ndots:5"]),
        ("linux.resources.cpu_shares", 512), ("image", {"image": "busybox"}), ("logDirectory", "/x"),
        ("metadata.generation", 5),
    ],
)  # fmt: skip
def test_what_is_left_out_without_harm_is_reported(path: str, value: object) -> None:
    found = config(with_(path, value))
    assert found.spec == config({"metadata": {"name": "web", "namespace": "shop"}}).spec
    (warning,) = found.warnings
    assert re.match(rf"c\.json:1:\d+: {path}: ignored: ", warning)


# Of runtime/v1/api.proto (cri-api 0.36): a new field must be decided upon.
@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("", "metadata hostname log_directory dns_config port_mappings labels annotations linux windows"),
        ("metadata", "name uid namespace attempt"),
        ("dns_config", "servers searches options"),
        ("linux", "cgroup_parent security_context sysctls overhead resources"),
        ("linux.security_context", "namespace_options selinux_options run_as_user run_as_group readonly_rootfs "
         "supplemental_groups supplemental_groups_policy privileged seccomp apparmor seccomp_profile_path"),
        ("linux.security_context.namespace_options", "network pid ipc target_id userns_options"),
        ("linux.security_context.namespace_options.userns_options", "mode uids gids"),
        ("linux.resources", "cpu_period cpu_quota cpu_shares memory_limit_in_bytes oom_score_adj cpuset_cpus "
         "cpuset_mems hugepage_limits unified memory_swap_limit_in_bytes"),
    ],
)  # fmt: skip
def test_every_field_of_cri_is_decided_upon(path: str, fields: str) -> None:
    shape: Any = sandboxconfig.CONFIG
    for step in path.split(".") if path else ():
        shape = shape.known[step]
    assert set(shape.known) == set(fields.split())


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ('{"metadata": {"name": "a",}}', "c.json:1:26: metadata: no JSON: a comma before the closing }"),
        ("", "c.json:1:1: no JSON: the text ends too early"),
        ("null", "c.json: holds 0 documents"),
        ("[]", "c.json:1:1: must be a mapping; it is a list"),
        ("{}", "c.json:1:1: metadata is missing"),
        ('{"metadata": []}', "c.json:1:2: metadata: must be a mapping; it is a list"),
    ],
)  # fmt: skip
def test_what_is_no_configuration_is_refused_with_its_place(text: str, what: str) -> None:
    with pytest.raises(BadRequest, match=re.escape(what)):
        read_config(text, "c.json", lambda: UID)


@given(broken(WHOLE))
def test_whatever_stands_in_a_configuration_it_is_taken_or_refused_with_its_place(document: dict[str, Any]) -> None:
    try:
        assert config(document).spec.image == "pause"
    except BadRequest as error:
        assert all(re.match(r"c\.json:\d+:\d+: ", line) for line in str(error).split("\n"))
