"""A container's words, resources, image and volumes."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.cli.manifest.container import Pull
from tests.supervisor.cli.manifest.manifests import UID, container, manifest, play, pod, refusal, spec_of

FIELDS = {
    "metadata.name": "web",
    "metadata.namespace": "default",
    "metadata.uid": UID,
    "metadata.labels['app']": "x",
    "metadata.labels['none']": "",
    "metadata.annotations['a.b/c']": "y",
}


def test_a_command_stands_in_the_place_of_the_images_and_args_after_it() -> None:
    both = spec_of(command=["a", "b"], args=["c"])
    assert (list(both.entrypoint), list(both.args)) == (["a", "b"], ["c"])
    only = spec_of(args=["c"])
    assert (list(only.entrypoint), list(only.args)) == ([], ["c"])


@pytest.mark.parametrize(("path", "value"), FIELDS.items())
def test_a_variable_may_be_a_field_of_the_pod(path: str, value: str) -> None:
    variable = {"name": "A", "valueFrom": {"fieldRef": {"fieldPath": path}}}
    metadata = {"labels": {"app": "x"}, "annotations": {"a.b/c": "y"}}
    plan = pod(manifest(metadata, containers=[container(env=[variable])]))
    assert list(plan.members[0].spec.env) == [f"A={value}"]


def test_variables_use_those_before_them_and_the_command_line_uses_all() -> None:
    env = [
        {"name": "A", "value": "$(B)"},
        {"name": "B", "value": "1"},
        {"name": "C", "value": "$(B)$(B)"},
        {"name": "D"},
    ]
    spec = spec_of(env=env, command=["$(C)"], args=["$$(C)", "$(X)", "$(A)"])
    assert list(spec.env) == ["A=$(B)", "B=1", "C=11", "D="]
    assert (list(spec.entrypoint), list(spec.args)) == (["11"], ["$(C)", "$(X)", "$(B)"])


def test_the_last_of_two_variables_of_one_name_counts() -> None:
    env = [{"name": "A", "value": "1"}, {"name": "A", "value": "$(A)2"}]
    assert list(spec_of(env=env).env) == ["A=12"]


@pytest.mark.parametrize(
    ("resources", "memory", "limit", "request_"),
    [
        ({}, 0, 0, 0),
        ({"limits": {"memory": "64Mi"}}, 64 << 20, 0, 0),
        ({"limits": {"memory": 67108864}}, 64 << 20, 0, 0),
        ({"limits": {"memory": "1e8"}}, 10**8, 0, 0),
        ({"limits": {"memory": "4194304.1"}}, (4 << 20) + 1, 0, 0),
        ({"limits": {"memory": 0, "cpu": 0}}, 0, 0, 0),
        ({"limits": {"cpu": "1500m"}}, 0, 1500, 1500),
        ({"limits": {"cpu": 0.5}}, 0, 500, 500),
        ({"limits": {"cpu": "100.5m"}}, 0, 101, 101),
        ({"limits": {"cpu": 2}, "requests": {"cpu": "250m"}}, 0, 2000, 250),
        ({"requests": {"cpu": "1m"}}, 0, 0, 10),
        ({"requests": {"cpu": 0}}, 0, 0, 0),
    ],
)  # fmt: skip
def test_resources_are_exact_and_never_less_than_asked_for(
    resources: dict[str, Any], memory: int, limit: int, request_: int
) -> None:
    spec = spec_of(resources=resources)
    assert (spec.memory_bytes, spec.cpu_limit_milli, spec.cpu_request_milli) == (memory, limit, request_)


@given(st.integers(4 << 20, 2**63 - 1))
def test_every_number_of_bytes_comes_through(count: int) -> None:
    assert spec_of(resources={"limits": {"memory": count}}).memory_bytes == count


@pytest.mark.parametrize(
    ("image", "policy", "word", "pull"),
    [
        ("busybox", None, "busybox", Pull.MISSING),
        ("busybox", "IfNotPresent", "busybox", Pull.MISSING),
        ("busybox:1", "Always", "busybox:1", Pull.ALWAYS),
        ("busybox", "Never", "busybox", Pull.NOTHING),
        ("docker://busybox", None, "docker.io/library/busybox:latest", Pull.MISSING),
        ("docker://quay.io/a/b:2", "Never", "quay.io/a/b:2", Pull.NOTHING),
        ("pause", "Always", "pause", Pull.NOTHING),
        ("/srv/root", "Always", "/srv/root", Pull.NOTHING),
        ("./root", None, "/work/root", Pull.NOTHING),
        ("oci:layout:tag", None, "oci:/work/layout:tag", Pull.NOTHING),
        ("docker-archive:/a.tar", None, "docker-archive:/a.tar", Pull.NOTHING),
        ("sha256:" + "0" * 64, None, "sha256:" + "0" * 64, Pull.NOTHING),
    ],
)  # fmt: skip
def test_an_image_is_a_word_of_exitd_and_what_has_no_name_is_not_pulled(
    image: str, policy: str | None, word: str, pull: Pull
) -> None:
    member = pod(manifest(containers=[container(image=image, imagePullPolicy=policy)])).members[0]
    assert (member.spec.image, member.pull) == (word, pull)


VOLUMES = [
    {"name": "e", "emptyDir": {}},
    {"name": "n", "emptyDir": None},
    {"name": "h", "hostPath": {"path": "/h"}},
]


def test_volumes_are_mounted_where_a_container_says() -> None:
    mounts = [
        {"name": "e", "mountPath": "/e", "subPath": "", "mountPropagation": "None", "recursiveReadOnly": "Disabled"},
        {"name": "n", "mountPath": "/n", "subPath": ".", "readOnly": True, "recursiveReadOnly": "IfPossible"},
        {"name": "h", "mountPath": "/h"},
        {"name": "h", "mountPath": "/again", "subPath": "a//./b/"},
    ]
    plan = pod(manifest(volumes=VOLUMES, containers=[container(volumeMounts=mounts)]))
    assert list(plan.members[0].spec.mounts) == [
        pb.Mount(empty_dir="e", destination="/e"),
        pb.Mount(empty_dir="n", destination="/n", read_only=True),
        pb.Mount(source="/h", destination="/h"),
        pb.Mount(source="/h", destination="/again", sub_path="a/b"),
    ]


@pytest.mark.parametrize(
    ("mount", "why"),
    [
        ({"name": "x", "mountPath": "/x"}, "there is no volume 'x'; spec.volumes has e, n, h"),
        ({"name": "e", "mountPath": "x"}, "no absolute path"), ({"name": "e", "mountPath": "/a:b"}, "without a colon"),
        ({"name": "e", "mountPath": "/e"}, "/e is mounted twice"),
        ({"name": "e", "mountPath": "/x", "subPath": "a/" * 20 + "b"}, "without . and .., at most 16 names"),
        ({"name": "e", "mountPath": "/x", "subPathExpr": "$(A)"}, "write the path itself, as subPath"),
        ({"name": "e", "mountPath": "/x", "mountPropagation": "Bidirectional"}, "only a privileged container may"),
        ({"name": "e", "mountPath": "/x", "recursiveReadOnly": "Enabled"}, "stay as they are"),
        ({"name": "e", "mountPath": "/x", "bindMountOptions": ["noexec"]}, "that is all"),
        ({"name": "e", "mountPath": "/x", "readOnly": "yes"}, "must be true or false; it is a text"),
    ],
)  # fmt: skip
def test_a_mount_that_cannot_be_is_refused(mount: dict[str, object], why: str) -> None:
    mounts = [{"name": "e", "mountPath": "/e"}, mount]
    assert why in refusal(manifest(volumes=VOLUMES, containers=[container(volumeMounts=mounts)]))


@pytest.mark.parametrize(
    ("volume", "why"),
    [
        ({"name": "v"}, "a volume is one of emptyDir, hostPath"),
        ({"name": "v", "emptyDir": {}, "hostPath": {"path": "/x"}}, "a volume is one of emptyDir, hostPath"),
        ({"name": "e", "emptyDir": {}}, "the volume e is there twice"), ({"name": "V", "emptyDir": {}}, "no DNS label"),
        ({"name": "v", "emptyDir": {"medium": "HugePages"}}, "'HugePages' is none of , Memory"),
        ({"name": "v", "emptyDir": {"sizeLimit": "2Pi"}}, "is more than any machine has"),
        ({"name": "v", "emptyDir": {"sizeLimit": "2Pi", "medium": "Memory"}}, "more than any machine has"),
        ({"name": "v", "configMap": {}}, "name is missing"), ({"name": "v", "secret": {}}, "secretName is missing"),
        ({"name": "v", "persistentVolumeClaim": {}}, "claimName is missing"),
        ({"name": "v", "emptyDir": {"mode": 0}}, "open to all users"),
        ({"name": "v", "hostPath": {"path": "x"}}, "no absolute path"),
        ({"name": "v", "hostPath": {}}, "path is missing"),
        ({"name": "v", "hostPath": {"path": "/x", "type": "CharDevice"}}, "no devices"),
        ({"name": "v", "hostPath": {"path": "/x", "type": "Pipe"}}, "'Pipe' is none of"),
        *(({"name": "v", kind: {"a": "b"}}, "exitd's volumes are emptyDir, hostPath, configMap, secret")
          for kind in ("csi", "image", "nfs")),
    ],
)  # fmt: skip
def test_a_volume_that_cannot_be_is_refused(volume: dict[str, object], why: str) -> None:
    assert why in refusal(manifest(volumes=[*VOLUMES, volume]))


@pytest.mark.parametrize(
    ("rules", "why"),
    [
        ([{"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [1]}}], "none of Restart"),
        ([{"action": "Restart"}], "exitCodes is missing"),
        ([{"action": "Restart", "exitCodes": {"operator": "In", "values": []}}], "values is empty"),
        ([{"action": "Restart", "exitCodes": {"operator": "In", "values": [256]}}], "not in the range of 0 to 255"),
        ([{"action": "Restart", "exitCodes": {"operator": "Within", "values": [1]}}], "none of In, NotIn"),
    ],
)  # fmt: skip
def test_restart_rules_that_cannot_be_are_refused(rules: list[object], why: str) -> None:
    assert why in refusal(manifest(containers=[container(restartPolicy="Never", restartPolicyRules=rules)]))


def test_a_warning_is_no_refusal_and_both_have_their_place() -> None:
    found = play(manifest(containers=[container(), container(name="b", resizePolicy=[{"a": "b"}])]))
    (warning,) = found.warnings
    assert warning.startswith("pod.yaml:1:") and "spec.containers[1].resizePolicy: ignored: resources are" in warning
