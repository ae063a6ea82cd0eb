"""ConfigMaps, Secrets and claims beside the pods that use them; Deployments, DaemonSets and Jobs."""

import json
import pathlib
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from yaml import safe_load_all

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.cli.manifest import kube, objects
from supervisor.cli.manifest.downward import NodeFacts
from supervisor.cli.manifest.kube import ManifestSource, Play
from supervisor.cli.manifest.shape import Object
from supervisor.model.errors import BadRequest
from tests.supervisor.cli.manifest.broken import broken
from tests.supervisor.cli.manifest.manifests import container, manifest, pod, read

NODE = NodeFacts("node1", "192.0.2.7", 4, 8 << 30)
CONFIG: dict[str, Any] = {
    "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "conf"},
    "data": {"COLOR": "blue", "app.conf": "a=1\n"}, "binaryData": {"blob": "/wA="},
}  # fmt: skip
SECRET: dict[str, Any] = {
    "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "keys"}, "type": "Opaque",
    "data": {"PASSWORD": "aHVudGVyMg==", "USER": "b2xk"}, "stringData": {"USER": "ann"},
}  # fmt: skip


def together(*documents: dict[str, Any]) -> Play:
    sources = (ManifestSource("pod.yaml", "\n---\n".join(map(json.dumps, documents)), "/work"),)
    return kube.play(sources, lambda: "uid-1", node=NODE)


def spec_with(*others: dict[str, Any], volumes: list[Any] | None = None, **fields: Any) -> pb.ContainerSpec:
    """Of the one container of a pod beside these."""
    found = together(*others, manifest(volumes=volumes or [], containers=[container(**fields)]))
    return found.pods[0].members[0].spec


def refused(*others: dict[str, Any], volumes: list[Any] | None = None, **fields: Any) -> str:
    with pytest.raises(BadRequest) as caught:
        spec_with(*others, volumes=volumes, **fields)
    return str(caught.value)


def files(mount: pb.Mount) -> dict[str, tuple[bytes, int]]:
    return {each.path: (each.content, each.mode) for each in mount.files}


def ref(kind: str, name: str, key: str, **more: Any) -> dict[str, Any]:
    return {"name": "A", "valueFrom": {kind: {"name": name, "key": key, **more}}}


def test_variables_of_a_config_map_are_shown_and_those_of_a_secret_are_apart() -> None:
    env = [
        ref("configMapKeyRef", "conf", "COLOR"),
        {**ref("secretKeyRef", "keys", "PASSWORD"), "name": "P"},
        {"name": "URL", "value": "db://$(P)@$(A)"},
        {"name": "PLAIN", "value": "$(A)"},
        {**ref("secretKeyRef", "keys", "other", optional=True), "name": "GONE"},
    ]
    spec = spec_with(CONFIG, SECRET, env=env, command=["sh", "--pass=$(P)", "$(A)"], args=["$(URL)", "$$(P)"])
    assert list(spec.env) == ["A=blue", "PLAIN=blue"]
    assert list(spec.secrets.env) == ["P=hunter2", "URL=db://hunter2@blue"]
    assert (list(spec.entrypoint), list(spec.args)) == (["sh", "--pass=$(P)", "blue"], ["$(URL)", "$(P)"])
    assert dict(spec.secrets.words) == {"--pass=$(P)": "--pass=hunter2", "$(URL)": "db://hunter2@blue"}


def test_a_word_that_would_look_like_one_with_a_secret_is_shown_as_in_the_file_too_and_keeps_its_meaning() -> None:
    env = [{**ref("secretKeyRef", "keys", "PASSWORD"), "name": "P"}, {"name": "L", "value": "$$$$(P)"}]
    spec = spec_with(CONFIG, SECRET, env=env, command=["$$(P)"], args=["$(P)", "$(L)", "$$$$(P)", "plain"])
    used, shown = dict(spec.secrets.words), [*spec.entrypoint, *spec.args]
    assert shown == ["$$(P)", "$(P)", "$(L)", "$$$$(P)", "plain"]
    assert [used.get(word, word) for word in shown] == ["$(P)", "hunter2", "$$(P)", "$$(P)", "plain"]


def test_all_keys_become_variables_and_a_later_one_of_the_name_counts() -> None:
    sources = [{"configMapRef": {"name": "conf"}, "prefix": "C_"}, {"secretRef": {"name": "keys"}}]
    text_only = {**CONFIG, "binaryData": {}}
    spec = spec_with(text_only, SECRET, envFrom=sources, env=[{"name": "USER", "value": "bob"}])
    assert list(spec.env) == ["C_COLOR=blue", "C_app.conf=a=1\n", "USER=bob"]
    assert list(spec.secrets.env) == ["PASSWORD=hunter2"]


def test_a_config_map_is_a_volume_of_all_its_keys_or_of_some_each_with_its_mode() -> None:
    items = [{"key": "app.conf", "path": "etc/app.conf", "mode": 0o400}, {"key": "blob", "path": "b"}]
    volumes = [
        {"name": "all", "configMap": {"name": "conf"}},
        {"name": "some", "configMap": {"name": "conf", "items": items, "defaultMode": 0o440}},
    ]
    mounts = [{"name": name, "mountPath": f"/{name}"} for name in ("all", "some")]
    whole, some = spec_with(CONFIG, volumes=volumes, volumeMounts=mounts).mounts
    blue, conf, blob = b"blue", b"a=1\n", b"\xff\0"
    assert files(whole) == {"COLOR": (blue, 0o644), "app.conf": (conf, 0o644), "blob": (blob, 0o644)}
    assert files(some) == {"etc/app.conf": (conf, 0o400), "b": (blob, 0o440)}
    assert (whole.read_only, whole.secret, whole.single) == (True, False, False)


def test_a_secret_is_a_volume_in_memory_and_one_key_of_it_a_file_of_its_own() -> None:
    volumes = [{"name": "k", "secret": {"secretName": "keys", "defaultMode": 0o400}}]
    mounts = [{"name": "k", "mountPath": "/k"}, {"name": "k", "mountPath": "/etc/pass", "subPath": "PASSWORD"}]
    whole, single = spec_with(SECRET, volumes=volumes, volumeMounts=mounts).mounts
    assert files(whole) == {"PASSWORD": (b"hunter2", 0o400), "USER": (b"ann", 0o400)}
    assert (whole.secret, single.secret, single.single, single.destination) == (True, True, True, "/etc/pass")
    assert files(single) == {"PASSWORD": (b"hunter2", 0o400)}


def test_a_mode_in_yaml_is_octal_with_a_zero_before_it_and_else_decimal() -> None:
    text = """
apiVersion: v1
kind: ConfigMap
metadata: {name: conf}
data: {a: x}
---
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  volumes: [{name: v, configMap: {name: conf, defaultMode: MODE}}]
  containers: [{name: c, image: /, volumeMounts: [{name: v, mountPath: /v}]}]
"""
    for word, mode in (("0400", 0o400), ("256", 0o400), ("0o444", 0o444)):
        (mount,) = read(text.replace("MODE", word)).pods[0].members[0].spec.mounts
        assert files(mount) == {"a": (b"x", mode)}
    for word in ("0800", "1000", "0", "-1", "0x1ff"):
        with pytest.raises(BadRequest, match="defaultMode"):
            read(text.replace("MODE", word))


def test_a_projected_volume_has_the_files_of_all_its_sources() -> None:
    sources = [
        {"configMap": {"name": "conf", "items": [{"key": "COLOR", "path": "color"}]}},
        {"secret": {"name": "keys", "items": [{"key": "USER", "path": "user"}]}},
        {"downwardAPI": {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
        {"configMap": {"name": "not-there", "optional": True}},
    ]
    volumes = [{"name": "v", "projected": {"sources": sources}}]
    pod_ = manifest({"labels": {"b": 'x"y', "a": "1"}}, volumes=volumes,
                    containers=[container(volumeMounts=[{"name": "v", "mountPath": "/v"}])])  # fmt: skip
    (mount,) = together(CONFIG, SECRET, pod_).pods[0].members[0].spec.mounts
    texts = {path: content for path, (content, _) in files(mount).items()}
    assert texts == {"color": b"blue", "user": b"ann", "labels": b'a="1"\nb="x\\"y"'}
    assert mount.secret


def test_a_pod_knows_itself_its_machine_and_its_resources() -> None:
    def field(path: str) -> dict[str, Any]:
        return {"fieldRef": {"fieldPath": path}}

    def resource(name: str, **more: str) -> dict[str, Any]:
        return {"resourceFieldRef": {"resource": name, **more}}

    wanted = {
        "NODE": (field("spec.nodeName"), "node1"), "HOST": (field("status.hostIP"), "192.0.2.7"),
        "IP": (field("status.podIP"), "pod-address-uid-1"), "UID": (field("metadata.uid"), "uid-1"),
        "CPU": (resource("limits.cpu"), "1"), "MILLI": (resource("limits.cpu", divisor="1m"), "250"),
        "MEM": (resource("limits.memory", divisor="1Mi"), "8192"), "ASKED": (resource("requests.memory"), "0"),
        "OWN": (resource("requests.cpu", divisor="1m", containerName="app"), "250"),
    }  # fmt: skip
    env = [{"name": name, "valueFrom": source} for name, (source, _) in wanted.items()]
    spec = spec_with(env=env, resources={"limits": {"cpu": "250m"}})
    assert list(spec.env) == [f"{name}={value}" for name, (_, value) in wanted.items()]


CONF = {"name": "v", "configMap": {"name": "conf"}}
AT = [{"name": "v", "mountPath": "/v"}]


@pytest.mark.parametrize(
    ("others", "volumes", "fields", "why"),
    [
        ([], [CONF], {}, "spec.volumes[0].configMap.name: there is no ConfigMap 'conf' in these files; add it"),
        ([CONFIG], [{"name": "v", "configMap": {"name": "conf", "items": [{"key": "x", "path": "y"}]}}], {},
         "items[0].key: the ConfigMap conf has no key 'x'; it has COLOR, app.conf, blob"),
        ([CONFIG], [{"name": "v", "configMap": {"name": "conf", "items": [{"key": "COLOR", "path": "../y"}]}}], {},
         "items[0].path: '../y' is no relative path without . and .."),
        ([CONFIG], [CONF], {"volumeMounts": [{**AT[0], "subPath": "x"}]}, "there is no 'x' in the volume; it"),
        ([CONFIG], [], {"env": [ref("configMapKeyRef", "conf", "blob")]}, "the key blob is no text"),
        ([CONFIG, CONFIG], [], {}, "the ConfigMap conf is there twice"),
        ([{**SECRET, "data": {"a": "*"}}], [], {}, "data.a: is not base64; stringData takes plain text"),
        ([{**CONFIG, "data": {"a/b": "x"}}], [], {}, "'a/b' is no key"),
        ([{**CONFIG, "binaryData": {"COLOR": "AA=="}}], [], {}, "the key COLOR is in data as well"),
        ([], [{"name": "v", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}], {}, "no cluster is"),
        ([], [{"name": "v", "downwardAPI": {"items": [{"path": "a"}]}}], {}, "either a fieldRef or a resourceFieldRef"),
    ],
)  # fmt: skip
def test_what_cannot_be_had_is_refused_by_its_place(
    others: list[Any], volumes: list[Any], fields: dict[str, Any], why: str
) -> None:
    assert why in refused(*others, volumes=volumes, **fields)


def test_no_refusal_quotes_a_secret() -> None:
    whole = refused(SECRET, env=[ref("secretKeyRef", "keys", "nope")])
    assert "it has PASSWORD, USER" in whole and "hunter2" not in whole and "aHVudGVyMg" not in whole


# -- claims, and what is in memory


def test_a_claim_is_a_volume_that_is_made_before_the_pods() -> None:
    claim = {
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data", "namespace": "shop"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }  # fmt: skip
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "data", "readOnly": True}}]
    user = manifest({"namespace": "shop"}, volumes=volumes, containers=[container(volumeMounts=AT)])
    found = together(claim, user)
    assert found.volumes == ("shop_data",) and found.warnings == ()
    assert list(found.pods[0].members[0].spec.mounts) == [
        pb.Mount(volume="shop_data", destination="/v", read_only=True)
    ]
    assert together(claim).volumes == ("shop_data",)
    claim["spec"] = {"volumeMode": "Block"}
    with pytest.raises(BadRequest, match="directories and no block devices"):
        together(claim)


def test_an_empty_directory_in_memory_has_a_limit() -> None:
    volumes = [{"name": "v", "emptyDir": {"medium": "Memory", "sizeLimit": "64Mi"}}]
    (mount,) = pod(manifest(volumes=volumes, containers=[container(volumeMounts=AT)])).members[0].spec.mounts
    assert mount == pb.Mount(empty_dir="v", destination="/v", tmpfs=True, size_bytes=64 << 20)


# -- deployments


def deployment(replicas: int | None = 3, labels: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    labels = {"app": "web"} if labels is None else labels
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container()], **spec}}
    wanted = {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": wanted}


def test_a_deployment_is_its_pods() -> None:
    found = together(deployment())
    assert [plan.name for plan in found.pods] == ["web-0", "web-1", "web-2"]
    first = found.pods[0]
    assert first.members[0].spec.name == "web-0-app" and dict(first.pause.labels) == {"app": "web"}
    assert first.pause.annotations["exitd/deployment"] == "default/web"
    assert len(together(deployment(None)).pods) == 1
    source = ManifestSource("f", json.dumps(deployment()))
    assert (kube.names((source,)), kube.deployments((source,))) == ((), (("default", "web"),))


@pytest.mark.parametrize(
    ("document", "why"),
    [
        (deployment(labels={"app": "other"}), "the template has no label app: web, so this selects none of its pods"),
        (deployment(restartPolicy="Never"), "the pods of a Deployment are always restarted"),
        (deployment(101), "101 is not in the range of 0 to 100"),
        (deployment(hostNetwork=True, containers=[container(ports=[{"containerPort": 80, "hostPort": 80}])]),
         "the host's port 80/tcp is taken by"),
        ({**deployment(), "spec": {"selector": {}}}, "template is missing"),
        ({**deployment(), "metadata": {"name": "w" * 63}}, "longer than 63 characters"),
    ],
)  # fmt: skip
def test_a_deployment_that_cannot_be_is_refused(document: dict[str, Any], why: str) -> None:
    with pytest.raises(BadRequest) as caught:
        together(document)
    assert why in str(caught.value)


@pytest.mark.parametrize(
    ("expression", "fits"),
    [
        ({"key": "app", "operator": "In", "values": ["web", "x"]}, True),
        ({"key": "app", "operator": "NotIn", "values": ["web"]}, False),
        ({"key": "app", "operator": "Exists"}, True), ({"key": "app", "operator": "DoesNotExist"}, False),
        ({"key": "tier", "operator": "NotIn", "values": ["web"]}, True),
    ],
)  # fmt: skip
def test_a_selectors_expressions_are_checked_against_the_template(expression: dict[str, Any], fits: bool) -> None:
    document = deployment()
    document["spec"]["selector"] = {"matchExpressions": [expression]}
    if fits:
        assert len(together(document).pods) == 3
    else:
        with pytest.raises(BadRequest, match="selects none of its pods"):
            together(document)


# -- daemon sets and jobs


def daemon_set(policy: str | None = None, **fields: Any) -> dict[str, Any]:
    document = deployment(None, restartPolicy=policy)
    document["spec"].pop("replicas")
    document["spec"].update(fields)
    return {**document, "kind": "DaemonSet", "metadata": {"name": "agent", "namespace": "ops"}}


def job(policy: str | None = "OnFailure", pods: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    template = {"spec": {"restartPolicy": policy, "containers": [container()], **(pods or {})}}
    spec = {"template": template, **fields}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "pi"}, "spec": spec}


# Of batch/v1 and apps/v1 (types.go of 1.36), by the names in JSON: a new field must be decided upon.
JOB_FIELDS = """parallelism completions activeDeadlineSeconds podFailurePolicy successPolicy backoffLimit
backoffLimitPerIndex maxFailedIndexes selector manualSelector template ttlSecondsAfterFinished completionMode suspend
podReplacementPolicy managedBy"""
DAEMON_SET_FIELDS = "selector template updateStrategy minReadySeconds revisionHistoryLimit"


@pytest.mark.parametrize(("shape", "fields"), [(objects.JOB, JOB_FIELDS), (objects.DAEMON_SET, DAEMON_SET_FIELDS)])
def test_every_field_of_a_job_and_of_a_daemon_set_is_decided_upon(shape: Object, fields: str) -> None:
    spec = shape.known["spec"]
    assert isinstance(spec, Object) and set(spec.known) == set(fields.split())


def test_a_daemon_set_is_one_pod_as_on_a_node_of_one() -> None:
    found = together(daemon_set(updateStrategy={"type": "OnDelete"}))
    (plan,) = found.pods
    assert (plan.namespace, plan.name, plan.members[0].spec.name) == ("ops", "agent-pod", "agent-pod-app")
    assert (plan.pause.restart, plan.members[0].spec.restart) == ("always", "always")
    assert dict(plan.pause.labels) == {"app": "web"}
    (warning,) = found.warnings
    assert "spec.updateStrategy: ignored: the pods of a file are made at once" in warning


def test_a_job_is_one_pod_beside_which_a_pod_may_have_its_name() -> None:
    found = together(job(), manifest({"name": "pi"}))
    assert [plan.name for plan in found.pods] == ["pi-pod", "pi"] and found.warnings == ()


@pytest.mark.parametrize(
    ("policy", "limit", "restart"),
    [
        ("OnFailure", 3, "on-failure:3"), ("OnFailure", None, "on-failure:6"), ("OnFailure", 0, "no"),
        ("Never", None, "no"), ("Never", 0, "no"),
    ],
)  # fmt: skip
def test_a_jobs_containers_are_begun_again_as_often_as_it_says(policy: str, limit: int | None, restart: str) -> None:
    inits = [container(name="first"), container(name="side", restartPolicy="Always")]
    found = together(job(policy, {"initContainers": inits}, backoffLimit=limit))
    (plan,) = found.pods
    assert [member.spec.restart for member in (*plan.inits, *plan.members)] == [restart, "always", restart]
    assert found.warnings == ()


def test_a_jobs_pod_that_is_never_restarted_is_made_once_which_is_said() -> None:
    (warning,) = together(job("Never", backoffLimit=4)).warnings
    assert "spec.backoffLimit: ignored: with restartPolicy Never the pod is made once, as by podman" in warning


@pytest.mark.parametrize(
    ("own", "pods", "seconds"), [(5, None, 5), (None, 7, 7), (5, 7, 5), (9, 7, 7), (None, None, 0)]
)
def test_a_jobs_deadline_is_its_own_or_its_pods_whichever_is_first(
    own: int | None, pods: int | None, seconds: int
) -> None:
    found = together(job(pods={"activeDeadlineSeconds": pods}, activeDeadlineSeconds=own))
    assert found.pods[0].pause.pod.active_deadline_seconds == seconds


@pytest.mark.parametrize(
    ("field", "value", "what"),
    [
        ("ttlSecondsAfterFinished", 0, "the ended pod stays"), ("ttlSecondsAfterFinished", 60, "the ended pod stays"),
        ("managedBy", "example.org/x", "exitd runs the pod"),
    ],
)  # fmt: skip
def test_what_of_a_job_is_a_clusters_is_ignored_with_a_word(field: str, value: Any, what: str) -> None:
    (warning,) = together(job(**{field: value})).warnings
    assert f"spec.{field}: ignored: " in warning and what in warning


@pytest.mark.parametrize(
    "fields",
    [
        {"completions": 1, "parallelism": 1, "completionMode": "NonIndexed", "suspend": False},
        {"selector": {"matchLabels": {"a": "b"}}, "manualSelector": True, "podReplacementPolicy": "Failed"},
    ],
)
def test_what_asks_for_a_job_as_it_is_needs_no_word(fields: dict[str, Any]) -> None:
    found = together(job(**fields))
    assert (len(found.pods), found.warnings) == (1, ())


@pytest.mark.parametrize(
    ("document", "why"),
    [
        (job(completions=2), "spec.completions: a Job here is one pod that has to succeed once; write 1"),
        (job(completions=0), "spec.completions: a Job here is one pod"),
        (job(parallelism=3), "spec.parallelism: a Job here is one pod"),
        (job(completionMode="Indexed"), "spec.completionMode: is of indexed Jobs"),
        (job(backoffLimitPerIndex=0), "spec.backoffLimitPerIndex: is of indexed Jobs"),
        (job(successPolicy={"rules": []}), "spec.successPolicy: is of indexed Jobs"),
        (job(suspend=True), "spec.suspend: a Job begins when it is played"),
        (job(podFailurePolicy={"rules": [{}]}), "spec.podFailurePolicy: write restartPolicy and restartPolicyRules"),
        (job(backoffLimit=-1), "spec.backoffLimit: -1 is not in the range"),
        (job("Always"), "spec.template.spec.restartPolicy: the pod of a Job ends: write restartPolicy: Never or"),
        (job(None), "spec.template.spec: the pod of a Job ends"),
        (job(pods={"containers": []}), "a pod needs a container"),
        ({**job(), "apiVersion": "v1"}, "apiVersion: 'v1' is none of batch/v1"),
        ({**job(), "spec": {}}, "template is missing"),
        (daemon_set(selector={"matchLabels": {"app": "other"}}), "the template has no label app: other"),
        (daemon_set(replicas=2), "spec.replicas: there is no such field"),
        ({**daemon_set(), "metadata": {"name": "w" * 60}}, "longer than 63 characters"),
        (daemon_set("OnFailure"), "the pods of a DaemonSet are always restarted; write Always, or a Pod"),
    ],
)  # fmt: skip
def test_a_job_and_a_daemon_set_that_cannot_be_are_refused(document: dict[str, Any], why: str) -> None:
    with pytest.raises(BadRequest) as caught:
        together(document)
    assert why in str(caught.value)


def test_the_pods_of_jobs_and_daemon_sets_are_taken_down_by_their_names() -> None:
    source = ManifestSource("f", "\n---\n".join(map(json.dumps, (job(completions=9), daemon_set()))))
    assert kube.names((source,)) == (("default", "pi-pod"), ("ops", "agent-pod"))
    assert kube.deployments((source,)) == ()


def test_what_is_a_clusters_is_ignored_with_a_warning() -> None:
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": {"ports": [{"port": 80}]}}
    found = together(service, manifest())
    assert [plan.name for plan in found.pods] == ["web"]
    assert found.warnings == ("pod.yaml:1:22: kind: ignored: a Service is for a cluster, and none is here",)


# -- any files


CHARTS = pathlib.Path(__file__).parents[3] / "system/manifests"


def charts() -> list[dict[str, Any]]:
    """Each document of the charts, a List as its items."""
    texts = (path.read_text().replace("@SHARED@", "/x") for path in sorted(CHARTS.glob("*.yaml")))
    documents = [each for text in texts for each in safe_load_all(text)]
    return [inner for each in documents for inner in each.get("items", [each])]


ALL = charts()


@given(st.integers(0, len(ALL) - 1).flatmap(lambda index: broken(ALL[index])))
def test_whatever_stands_in_a_chart_it_is_played_or_refused_with_its_place_and_no_secret(
    document: dict[str, Any],
) -> None:
    others = [each for each in ALL if each.get("kind") in ("ConfigMap", "Secret")]
    try:
        together(*others, document)
    except BadRequest as error:
        lines = str(error).split("\n")
        assert all(re.match(r"pod\.yaml:\d+:\d+: |pod\.yaml: ", line) for line in lines)
        assert not [line for line in lines if "secret-of-wordpress" in line]


def test_all_charts_together_can_be_read() -> None:
    assert len(together(*ALL).pods) == 26
