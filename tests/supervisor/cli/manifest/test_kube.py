"""Kubernetes manifests: what each field becomes, and that nothing is left out without a word."""

import json
import re
from typing import Any

import pytest
from hypothesis import given
from yaml import safe_load

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.cli.manifest import kube
from supervisor.cli.manifest.kube import HostPath, ManifestSource
from supervisor.model.errors import BadRequest
from tests.supervisor.cli.manifest.broken import broken
from tests.supervisor.cli.manifest.manifests import (
    UID,
    container,
    elsewhere,
    manifest,
    play,
    pod,
    read,
    refusal,
    spec_of,
)

WHOLE = """\
# a pod with a bit of everything
apiVersion: v1
kind: Pod
metadata:
  name: web
  namespace: shop
  labels: {app: web}
  annotations: {note: hello}
spec:
  restartPolicy: OnFailure
  terminationGracePeriodSeconds: 5
  hostname: front
  initContainers:
  - name: prep
    image: busybox:1.36
    command: [sh, -c, "echo $(WHAT) > /data/x"]
    env: [{name: WHAT, value: "43"}]
    volumeMounts: [{name: data, mountPath: /data}]
  containers:
  - name: app
    image: ./root
    imagePullPolicy: Never
    command: [serve]
    args: ["--port", "80"]
    workingDir: /srv
    tty: true
    stdin: true
    restartPolicy: Never
    restartPolicyRules:
    - action: Restart
      exitCodes: {operator: In, values: [42, 43]}
    - action: Restart
      exitCodes: {operator: NotIn, values: [0]}
    env:
    - {name: POD, valueFrom: {fieldRef: {apiVersion: v1, fieldPath: metadata.name}}}
    - {name: URL, value: http://$(POD).$$(X)}
    resources:
      limits: {cpu: 1.5, memory: 64Mi}
      requests: {cpu: 250m, memory: 32Mi}
    securityContext: {runAsUser: 1000, runAsGroup: 1001, readOnlyRootFilesystem: true, allowPrivilegeEscalation: false}
    lifecycle: {stopSignal: SIGUSR1}
    volumeMounts:
    - {name: data, mountPath: /data, readOnly: true}
    - {name: logs, mountPath: /logs}
  volumes:
  - {name: data, emptyDir: {}}
  - {name: logs, hostPath: {path: /var/log/web, type: DirectoryOrCreate}}
"""


def test_a_whole_pod_becomes_a_pause_container_init_containers_and_members() -> None:
    (plan,) = read(WHOLE).pods
    labels, notes = {"app": "web"}, {"note": "hello"}
    assert (plan.name, plan.namespace) == ("web", "shop")
    assert plan.pause == pb.ContainerSpec(
        name="web", namespace="shop", image="pause", hostname="front", restart="on-failure",
        labels=labels, annotations=notes,
        pod=pb.PodSpec(name="web", namespace="shop", uid=UID, exit_policy="stop", inits=["web-prep"]),
    )  # fmt: skip
    (init,) = plan.inits
    assert init.spec == pb.ContainerSpec(
        name="web-prep", image="busybox:1.36", entrypoint=["sh", "-c", "echo 43 > /data/x"], env=["WHAT=43"],
        restart="on-failure", stop_timeout_seconds=5, pid="own", labels=labels, annotations=notes,
        mounts=[pb.Mount(empty_dir="data", destination="/data")],
    )  # fmt: skip
    assert (init.pull, init.where) == ("missing", "pod.yaml:14:5: spec.initContainers[0].name")
    (member,) = plan.members
    assert member.spec == pb.ContainerSpec(
        name="web-app", image="/work/root", entrypoint=["serve"], args=["--port", "80"], cwd="/srv", tty=True,
        stdin=True, restart="no", restart_rules=["exit in 42,43 => restart", "exit not in 0 => restart"],
        env=["POD=web", "URL=http://web.$(X)"], cpu_limit_milli=1500, cpu_request_milli=250, memory_bytes=64 << 20,
        user="1000:1001", read_only=True, stop_signal="10", stop_timeout_seconds=5, pid="own", labels=labels,
        annotations=notes, security=pb.SecuritySpec(no_new_privileges=True),
            rights=pb.RightsSpec(image_groups="always"),
        mounts=[
            pb.Mount(empty_dir="data", destination="/data", read_only=True),
            pb.Mount(source="/var/log/web", destination="/logs"),
        ],
    )  # fmt: skip
    assert member.pull == "nothing"
    assert plan.host_paths == (
        HostPath("/var/log/web", "DirectoryOrCreate", "pod.yaml:47:29: spec.volumes[1].hostPath.path"),
    )


def test_the_least_pod_has_the_defaults_of_kubernetes() -> None:
    plan = pod(manifest())
    assert (plan.namespace, plan.inits, plan.host_paths) == ("default", (), ())
    assert (plan.pause.restart, plan.pause.network, plan.pause.hostname) == ("always", "", "web")
    assert plan.members[0].spec == pb.ContainerSpec(
        name="web-app", image="/", restart="always", stop_timeout_seconds=30, pid="own"
    )


def test_all_that_is_wrong_is_reported_at_once_and_in_order() -> None:
    text = refusal(manifest(hostUsers=False, containers=[container(stdin="x", foo=1)], volumes=[{"emptyDir": {}}]))
    fields = [line.split(": ")[1] for line in text.splitlines()]
    assert fields == ["spec.hostUsers", "spec.containers[0].stdin", "spec.containers[0].foo", "spec.volumes[0]"]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("kind: ReplicaSet\nmetadata: {}", "pod.yaml:1:1: kind: exitd plays no ReplicaSet; write a Deployment"),
        ("apiVersion: v1\nkind: CronJob", "pod.yaml:2:1: kind: exitd plays no CronJob; write a Job, and have a timer"),
        ("kind: Knob", "kind: exitd plays no Knob; exitd plays Pod, ConfigMap, Secret, PersistentVolumeClaim, Depl"),
        ("kind: Service", "no Pod in there"),
        ("apiVersion: v1", "pod.yaml:1:1: kind is missing"),
        ("- a", "pod.yaml:1:1: must be a mapping; it is a list"),
        ("kind: [Pod]", "pod.yaml:1:1: kind: must be a text; it is a list"),
        ("kind: Pod", "pod.yaml:1:1: apiVersion is missing"),
        ("", "no Pod in there"),
        ("# nothing", "no Pod in there"),
        ("kind: List\nitems: [{kind: StatefulSet}]", "pod.yaml:2:10: items[0].kind: exitd plays no StatefulSet; write"),
    ],
)  # fmt: skip
def test_what_is_no_pod_is_refused_by_its_kind_and_line(text: str, what: str) -> None:
    with pytest.raises(BadRequest, match=re.escape(what)):
        read(text)


@pytest.mark.parametrize(
    ("metadata", "what"),
    [
        ({"name": None}, "name is missing"), ({"name": "Web"}, "no name of a pod"),
        ({"name": "w" * 64}, "no name of a pod"), ({"namespace": "a.b"}, "no DNS label"),
        ({"labels": {"a": 1}}, "must be a text; it is a number"), ({"generateName": "x-"}, "give it a name"),
        ({"annotations": {"io.kubernetes.cri.container-type": "sandbox"}}, "exitd says itself"),
    ],
)  # fmt: skip
def test_metadata_that_cannot_be_is_refused(metadata: dict[str, Any], what: str) -> None:
    assert what in refusal(manifest(metadata))


def test_what_a_cluster_had_observed_is_no_wish() -> None:
    observed: dict[str, Any] = {
        "uid": "theirs",
        "creationTimestamp": None,
        "resourceVersion": "5",
        "managedFields": [{}],
    }
    document = manifest(observed) | {"status": {"phase": "Running"}}
    assert elsewhere(play(document)) == elsewhere(play(manifest()))


def test_several_documents_files_and_a_list_are_played_in_their_order() -> None:
    def text(name: str) -> str:
        return f"apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec: {{containers: [{{name: c, image: /}}]}}\n"

    inner = text("c").replace("\n", "\n  ").strip()
    found = read(f"{text('a')}---\n{text('b')}", f"kind: List\nitems:\n- {inner}\n")
    assert [plan.name for plan in found.pods] == ["a", "b", "c"]


def test_a_name_for_two_is_refused_with_both_places() -> None:
    twice = refusal(manifest(containers=[container(), container()]))
    assert "web-app would be the name of two" in twice and twice.count("spec.containers") == 2
    init = manifest(initContainers=[container()])
    assert "web-app would be the name of two" in refusal(init)
    other = {**manifest({"name": "a"}, containers=[container(name="b-c")])}
    clash = {**manifest({"name": "a-b"}, containers=[container(name="c")])}
    with pytest.raises(BadRequest, match="a-b-c would be the name of two"):
        read(*map(str, (other, clash)))
    clash["metadata"]["namespace"] = "elsewhere"
    assert len(read(*map(str, (other, clash))).pods) == 2


@pytest.mark.parametrize(
    ("policies", "inits", "others"),
    [
        ((None, None), "on-failure", "always"), (("Always", None), "on-failure", "always"),
        (("OnFailure", None), "on-failure", "on-failure"), (("Never", None), "no", "no"),
        (("Always", "Never"), "no", "no"), (("Never", "OnFailure"), "on-failure", "on-failure"),
    ],
)  # fmt: skip
def test_restart_policies_are_kubernetes_own(policies: tuple[str | None, str | None], inits: str, others: str) -> None:
    pods, own = policies
    one = container(restartPolicy=own)
    plan = pod(manifest(restartPolicy=pods, initContainers=[{**one, "name": "first"}], containers=[one]))
    assert (plan.inits[0].spec.restart, plan.members[0].spec.restart) == (inits, others)


def test_an_init_containers_probes_are_refused_and_a_sidecars_are_not() -> None:
    probe = {"exec": {"command": ["true"]}}
    sidecar = container(name="side", restartPolicy="Always", startupProbe=probe)
    plan = pod(manifest(restartPolicy="Never", initContainers=[container(name="i"), sidecar]))
    assert [(each.sidecar, each.spec.restart) for each in plan.inits] == [(False, "no"), (True, "always")]
    assert list(plan.pause.pod.sidecars) == ["web-side"] and plan.inits[1].spec.probes.startup.args == ["true"]
    for field in ("lifecycle", "livenessProbe", "readinessProbe", "startupProbe"):
        assert "an init container has none" in refusal(
            manifest(initContainers=[container(name="i", **{field: {"a": 1}})])
        )


@pytest.mark.parametrize(
    ("fields", "pid"),
    [
        ({}, "own"), ({"hostPID": True}, "host"), ({"shareProcessNamespace": True}, "pod"),
        ({"hostPID": True, "shareProcessNamespace": False}, "host"),
    ],
)  # fmt: skip
def test_pid_namespaces(fields: dict[str, Any], pid: str) -> None:
    plan = pod(manifest(**fields))
    assert (plan.members[0].spec.pid, plan.pause.pid) == (pid, "")


def test_pid_namespaces_that_exclude_each_other_are_refused() -> None:
    assert "exclude each other" in refusal(manifest(hostPID=True, shareProcessNamespace=True))


def test_the_machines_ipc_namespace_is_the_pods_and_takes_no_sysctls() -> None:
    plan = pod(manifest(hostIPC=True))
    assert (plan.pause.ipc, plan.members[0].spec.ipc) == ("host", "")
    assert pod(manifest(hostIPC=False)).pause.ipc == ""
    own = {"sysctls": [{"name": "kernel.msgmax", "value": "9000"}]}
    assert "with the host's ipc namespace" in refusal(manifest(hostIPC=True, securityContext=own))


def test_the_machines_network_is_the_pause_containers_and_lets_ports_be_said() -> None:
    ports = [{"containerPort": 80, "hostPort": 80}]
    plan = pod(manifest(hostNetwork=True, containers=[container(ports=ports)]))
    assert (plan.pause.network, plan.members[0].spec.network) == ("host", "")
    assert not plan.pause.ports  # they are the machine's already


ASKS_ADDRESS = {"env": [{"name": "ME", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]}


@pytest.mark.parametrize(
    ("words", "networks", "addresses"),
    [
        ((), [""], []),
        (("none",), ["none"], []),
        (("a,b", "c"), ["a", "b", "c"], []),
        (("a:ip=10.0.0.2", "b"), ["a", "b"], [pb.AddressWish(network="a", ips=["10.0.0.2"])]),
    ],
)
def test_networks_of_the_play_are_the_pause_containers(
    words: tuple[str, ...], networks: list[str], addresses: list[pb.AddressWish]
) -> None:
    (plan,) = play(manifest(containers=[container(**ASKS_ADDRESS)]), network=words).pods
    assert ([plan.pause.network, *plan.pause.more_networks], list(plan.pause.addresses)) == (networks, addresses)
    assert (plan.members[0].spec.network, bool(plan.members[0].spec.address_mark)) == ("", True)


@pytest.mark.parametrize("of_host", [False, True])
def test_a_play_in_the_machines_network_is_as_a_manifest_that_asks_for_it(of_host: bool) -> None:
    ports = [{"containerPort": 80, "hostPort": 80}]
    asked = manifest(hostNetwork=of_host, containers=[container(ports=ports, **ASKS_ADDRESS)])
    (plan,) = play(asked, network=("host",)).pods
    assert (plan.pause.network, list(plan.pause.ports)) == ("host", [])
    assert list(plan.members[0].spec.env) == [f"ME={kube.NO_FACTS.address}"]


@pytest.mark.parametrize(
    ("document", "word", "text"),
    [
        (manifest(hostNetwork=True), "a", "spec.hostNetwork: --network a asks for another network; drop one of them"),
        (manifest(hostNetwork=True), "none", "--network none asks for another network"),
        (manifest(), "pod", "write a network's name, none or host"),
        (manifest(), "a,,b", "a name is missing"),
        (
            {"apiVersion": "v1", "kind": "List", "items": [manifest(), manifest({"name": "b"})]},
            "a:ip=10.0.0.2",
            "an address is one pod's, and there are 2",
        ),
    ],
)
def test_a_network_that_the_pods_cannot_have_is_refused(document: dict[str, Any], word: str, text: str) -> None:
    with pytest.raises(BadRequest, match=re.escape(text)):
        play(document, network=(word,))


def test_host_ports_are_published_by_the_pause_container_in_the_daemons_network() -> None:
    ports = [
        {"containerPort": 80, "hostPort": 8080, "hostIP": "127.0.0.1"},
        {"containerPort": 53, "hostPort": 53, "protocol": "UDP"},
        {"containerPort": 9000},
    ]
    pause = pod(manifest(containers=[container(ports=ports)])).pause
    assert pause.network == ""
    assert list(pause.ports) == [
        pb.PortMapping(container_port=80, host_port=8080, protocol="tcp", host_ip="127.0.0.1"),
        pb.PortMapping(container_port=53, host_port=53, protocol="udp"),
    ]


def test_a_pods_address_is_exitds_to_put_in_when_a_run_begins() -> None:
    env = [{"name": "ME", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]
    asks = container(env=env, args=["--advertise=$(ME):80"])
    first, other = pod(manifest(containers=[asks, container(name="other")])).members
    mark = first.spec.address_mark
    assert mark == f"pod-address-{UID}"
    assert (list(first.spec.env), list(first.spec.args)) == ([f"ME={mark}"], [f"--advertise={mark}:80"])
    assert other.spec.address_mark == ""
    (of_host,) = pod(manifest(hostNetwork=True, containers=[asks])).members
    assert (list(of_host.spec.env), of_host.spec.address_mark) == (["ME=127.0.0.1"], "")


def test_sysctls_are_the_pause_containers_whose_namespaces_its_members_have() -> None:
    asked = [{"name": "net.core.somaxconn", "value": "99"}, {"name": "kernel/shm_rmid_forced", "value": "1"}]
    plan = pod(manifest(securityContext={"sysctls": asked}))
    assert dict(plan.pause.sysctls) == {"net.core.somaxconn": "99", "kernel.shm_rmid_forced": "1"}
    assert not plan.members[0].spec.sysctls
    text = refusal(manifest(securityContext={"sysctls": asked}, hostNetwork=True))
    assert "spec.securityContext.sysctls[0]: " in text and "none of net.* with the host's network" in text


def resolver(**fields: Any) -> pb.ResolverSpec:
    """What every container of a pod finds names by, and its pause container, which finds none, does not."""
    (plan,) = play(manifest(**fields, initContainers=[container(name="first")])).pods
    assert not plan.pause.HasField("resolver") and plan.inits[0].spec.resolver == plan.members[0].spec.resolver
    return plan.members[0].spec.resolver


def test_host_aliases_are_hosts_of_each_container() -> None:
    aliases = [{"ip": "192.0.2.7", "hostnames": ["db", "db.example"]}, {"ip": "2001:db8::1", "hostnames": ["six"]}]
    named = (("db", "192.0.2.7"), ("db.example", "192.0.2.7"), ("six", "2001:db8::1"))
    assert resolver(hostAliases=aliases) == pb.ResolverSpec(
        hosts=[pb.HostEntry(name=name, address=address) for name, address in named]
    )


def test_a_dns_config_is_in_the_machines_place_which_is_said_unless_nothing_else_was_asked_for() -> None:
    config = {
        "nameservers": ["192.0.2.53"], "searches": ["shop.example"],
        "options": [{"name": "ndots", "value": "2"}, {"name": "edns0"}],
    }  # fmt: skip
    whole = pb.ResolverSpec(servers=["192.0.2.53"], searches=["shop.example"], options=["ndots:2", "edns0"])
    assert resolver(dnsConfig=config) == whole == resolver(dnsConfig=config, dnsPolicy="None")
    (warning,) = play(manifest(dnsConfig=config)).warnings
    assert "spec.dnsConfig: takes the place of the machine's lines of its kind; Kubernetes adds to them" in warning
    assert play(manifest(dnsConfig=config, dnsPolicy="None")).warnings == ()


def test_without_a_domain_to_search_the_dns_policy_none_leaves_none_of_the_machines() -> None:
    asked = resolver(dnsConfig={"nameservers": ["192.0.2.53"]}, dnsPolicy="None")
    assert asked == pb.ResolverSpec(servers=["192.0.2.53"], searches=["."])


VOLUMES: dict[str, dict[str, Any]] = {
    "h": {"hostPath": {"path": "/srv"}}, "e": {"emptyDir": {}}, "c": {"persistentVolumeClaim": {"claimName": "kept"}},
    "d": {"downwardAPI": {"items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]}},
}  # fmt: skip


def spreading(volume: str, word: str, **fields: Any) -> dict[str, Any]:
    mounts = [{"name": volume, "mountPath": "/v", "mountPropagation": word}]
    volumes = [{"name": name, **kind} for name, kind in VOLUMES.items()]
    return manifest(volumes=volumes, containers=[container(volumeMounts=mounts, **fields)])


@pytest.mark.parametrize("volume", ["h", "e", "c"])
@pytest.mark.parametrize(
    ("word", "options"), [("None", []), ("HostToContainer", ["rslave"]), ("Bidirectional", ["rshared"])]
)
def test_mounts_spread_as_far_as_they_are_asked_to(volume: str, word: str, options: list[str]) -> None:
    (member,) = pod(spreading(volume, word, securityContext={"privileged": True})).members
    assert [list(mount.options) for mount in member.spec.mounts] == [options]


def test_mounts_spread_neither_to_the_machine_without_rights_nor_among_files() -> None:
    text = refusal(spreading("h", "Bidirectional"))
    assert "spec.containers[0].volumeMounts[0].mountPropagation: mounts on the machine; only a privileged" in text
    assert "nothing is mounted below them; drop it" in refusal(spreading("d", "HostToContainer"))


def test_a_runtime_is_the_command_lines_else_the_files() -> None:
    document = manifest(runtimeClassName="kata")
    assert play(document).pods[0].pause.runtime == "kata"
    assert play(document, runtime="runc").pods[0].pause.runtime == "runc"


def test_a_pods_own_limit_of_memory_is_its_sandboxs() -> None:
    assert pod(manifest(resources={"limits": {"memory": "1Gi"}})).pause.pod.memory_bytes == 1 << 30


def test_a_pods_own_limit_of_cpu_is_its_sandboxs_and_no_container_has_more() -> None:
    limited = {"resources": {"limits": {"cpu": "1500m", "memory": "1Gi"}}}
    fits = container(resources={"limits": {"cpu": "1.5", "memory": "1Gi"}})
    assert pod(manifest(**limited, containers=[fits])).pause.pod.cpu_limit_milli == 1500
    for name, more, most in (("cpu", "1501m", "1500m"), ("memory", "2Gi", "1Gi")):
        text = refusal(manifest(**limited, containers=[container(resources={"limits": {name: more}})]))
        assert f"spec.containers[0].resources.limits.{name}: more than the whole pod's limit, which is {most}" in text


def test_limits_of_processes_are_annotations_of_the_pod_and_of_its_containers() -> None:
    annotations = {"exitd/pids-limit": "100", "pids-limit.exitd/app": "50", "pids-limit.exitd/free": "-1"}
    containers = [container(), container(name="free"), container(name="other")]
    plan = pod(manifest({"annotations": annotations}, containers=containers))
    assert plan.pause.pod.pids_limit == 100
    rights = [member.spec.rights for member in plan.members]
    assert [each.pids_limit if each.HasField("pids_limit") else None for each in rights] == [50, 0, None]


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("exitd/pids-limit", "many", "'many' is no number of processes"),
        ("exitd/pids-limit", "4194305", "write 1 to 4194304"),
        ("pids-limit.exitd/app", "-2", "'-2' is no number of processes"),
        ("pids-limit.exitd/ap", "5", "there is no container 'ap'; there are app"),
        ("exitd/pid-limit", "5", "exitd knows exitd/pids-limit and pids-limit.exitd/CONTAINER"),
        ("memory.exitd/app", "5", "exitd knows exitd/pids-limit"),
        (
            "container.apparmor.security.beta.kubernetes.io/app",
            "tight",
            "'tight' is no AppArmor profile; write",
        ),
        (
            "container.apparmor.security.beta.kubernetes.io/ap",
            "unconfined",
            "there is no container 'ap'; there are app",
        ),
        ("container.apparmor.security.beta.kubernetes.io/app", "localhost/", "'localhost/' is no AppArmor profile"),
    ],
)
def test_an_annotation_that_would_limit_and_cannot_is_refused_by_its_place(key: str, value: str, why: str) -> None:
    text = refusal(manifest({"annotations": {key: value}}))
    assert re.match(r"pod\.yaml:1:\d+: metadata\.annotations\[", text) and why in text


def test_annotations_that_kubernetes_no_longer_reads_are_ignored_with_a_warning() -> None:
    older = {"seccomp.security.alpha.kubernetes.io/pod": "runtime/default"}
    (warning,) = play(manifest({"annotations": older})).warnings
    assert "ignored, as by Kubernetes since 1.27" in warning


def test_an_apparmor_profile_is_the_containers_else_its_annotations_else_the_pods() -> None:
    def found(pods: object = None, own: object = None, annotation: str | None = None) -> list[str]:
        key = "container.apparmor.security.beta.kubernetes.io/app"
        text = manifest(
            {"annotations": {key: annotation} if annotation else {}},
            securityContext={"appArmorProfile": pods} if pods else {},
            containers=[container(securityContext={"appArmorProfile": own} if own else {})],
        )
        played = play(text)
        assert played.warnings == ()
        (pod,) = played.pods
        return [pod.pause.security.apparmor, *(member.spec.security.apparmor for member in pod.members)]

    default, none = {"type": "RuntimeDefault"}, {"type": "Unconfined"}
    local = {"type": "Localhost", "localhostProfile": "tight"}
    own = "exitd-default"
    assert found() == ["", ""] and found(default, default) == [own, own]
    assert found(annotation="runtime/default") == ["", own]
    assert found(none) == ["unconfined", "unconfined"]
    assert found(local, none) == ["tight", "unconfined"]
    assert found(annotation="unconfined") == ["", "unconfined"]
    assert found(none, annotation="localhost/tight") == ["unconfined", "tight"]
    assert found(none, default, annotation="localhost/tight") == ["unconfined", own]


def test_names_are_found_in_files_that_cannot_be_played() -> None:
    text = (
        "kind: Pod\nmetadata: {name: a, namespace: ns}\nspec: {hostUsers: false}\n---\nkind: Pod\nmetadata: {name: b}\n"
    )
    assert kube.names((ManifestSource("f", text), ManifestSource("f", text))) == (("ns", "a"), ("default", "b"))
    with pytest.raises(BadRequest, match="f:1:1: kind: exitd plays no StatefulSet"):
        kube.names((ManifestSource("f", "kind: StatefulSet"),))
    with pytest.raises(BadRequest, match=r"f:1:1: metadata\.name is missing"):
        kube.names((ManifestSource("f", "kind: Pod"),))


def test_json_is_read_by_its_name() -> None:
    with pytest.raises(BadRequest, match=r"pod\.json:1:2: no JSON: a key in double quotes"):
        read("{kind: Pod}", file="pod.json")


def test_a_user_of_the_pod_holds_where_a_container_has_none_of_its_own() -> None:
    own = container(name="own", securityContext={"runAsUser": 5})
    plan = pod(manifest(securityContext={"runAsUser": 7, "runAsGroup": 8}, containers=[own, container()]))
    assert [member.spec.user for member in plan.members] == ["5:8", "7:8"]
    assert spec_of(securityContext={"runAsUser": 0}).user == "0"
    assert spec_of(securityContext={"runAsUser": 5, "runAsNonRoot": True}).user == "5"


def test_rights_are_the_containers_and_groups_the_pods() -> None:
    rights = {"capabilities": {"add": ["NET_ADMIN"], "drop": ["all"]}, "privileged": True, "runAsNonRoot": False}
    own = container(name="own", securityContext=rights)
    around = {"supplementalGroups": [5, 6], "fsGroup": 7, "runAsNonRoot": True}
    plan = pod(manifest(securityContext=around, containers=[own, container()]))
    assert [member.spec.rights for member in plan.members] == [
        pb.RightsSpec(privileged=True, cap_add=["CAP_NET_ADMIN"], cap_drop=["ALL"], groups=[5, 6, 7]),
        pb.RightsSpec(groups=[5, 6, 7], not_root=True),
    ]
    assert not spec_of().HasField("rights")


def test_the_images_groups_are_added_beside_a_named_one_unless_the_pod_is_strict() -> None:
    def of(policy: str, **context: int) -> str:
        pods = {"supplementalGroupsPolicy": policy} if policy else {}
        plan = pod(manifest(securityContext=pods, containers=[container(securityContext=context)]))
        return plan.members[0].spec.rights.image_groups

    named = {"runAsUser": 5, "runAsGroup": 6}
    assert [of(""), of("", **named), of("Merge", **named), of("Strict", **named), of("Strict")] == [
        *("", "always", "always", "never", "never")
    ]


def test_an_empty_directory_belongs_to_the_pods_group() -> None:
    mounting = container(volumeMounts=[{"name": "d", "mountPath": "/d"}])
    volumes: dict[str, Any] = {"volumes": [{"name": "d", "emptyDir": {}}], "containers": [mounting]}
    for context, expected in (({"fsGroup": 0}, pb.Mount(empty_dir="d", destination="/d", group=0)),
                              ({}, pb.Mount(empty_dir="d", destination="/d"))):  # fmt: skip
        (member,) = pod(manifest(securityContext=context, **volumes)).members
        assert list(member.spec.mounts) == [expected]


@given(broken(safe_load(WHOLE)))
def test_whatever_stands_in_a_manifest_it_is_played_or_refused_with_its_place(document: dict[str, Any]) -> None:
    try:
        found = play(document)
    except BadRequest as error:
        assert all(re.match(r"pod\.yaml:\d+:\d+: |pod\.yaml: no Pod", line) for line in str(error).split("\n"))
    else:
        assert [plan.pause.image for plan in found.pods] == ["pause"]


def seccomp(pods: object, own: object) -> list[str]:
    """Of the pause container and of the member, with what pod and container say."""
    text = manifest(securityContext={"seccompProfile": pods}, containers=[container(securityContext=own)])
    sources = (ManifestSource("pod.yaml", json.dumps(text), "/work"),)
    (plan,) = kube.play(sources, lambda: UID, read_profile=lambda file: f"{{{file}}}").pods
    return [plan.pause.security.seccomp, plan.members[0].spec.security.seccomp]


def test_a_container_has_its_own_seccomp_profile_else_its_pods_else_exitds() -> None:
    assert seccomp(None, None) == ["", ""]
    assert seccomp({"type": "Unconfined"}, None) == ["unconfined", "unconfined"]
    assert seccomp({"type": "Unconfined"}, {"seccompProfile": {"type": "RuntimeDefault"}}) == ["unconfined", "builtin"]
    localhost = {"type": "Localhost", "localhostProfile": "profiles/a.json"}
    assert seccomp(localhost, None) == ["{/work/profiles/a.json}"] * 2


@pytest.mark.parametrize(("word", "nothing_new"), [(False, True), (True, False)])
def test_whether_privileges_can_grow_is_handed_on(word: bool, nothing_new: bool) -> None:
    spec = pod(manifest(containers=[container(securityContext={"allowPrivilegeEscalation": word})])).members[0].spec
    assert spec.security == pb.SecuritySpec(no_new_privileges=nothing_new)
