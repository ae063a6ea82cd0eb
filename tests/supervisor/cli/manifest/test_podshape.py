"""Every field of a Pod: read, ignored with a word, or refused by its name."""

import re
from pathlib import Path
from typing import Any

import pytest

from supervisor.cli.manifest import podshape, sandboxconfig
from tests.supervisor.cli.manifest.manifests import container, elsewhere, manifest, play, refusal

ROOT = Path(__file__).parents[4]

# Of core/v1 (types.go of 1.36), by the names in JSON: a new field must be decided upon.
POD_FIELDS = """volumes initContainers containers ephemeralContainers restartPolicy terminationGracePeriodSeconds
activeDeadlineSeconds dnsPolicy nodeSelector serviceAccountName serviceAccount automountServiceAccountToken nodeName
hostNetwork hostPID hostIPC shareProcessNamespace securityContext imagePullSecrets hostname subdomain affinity
schedulerName tolerations hostAliases priorityClassName priority dnsConfig readinessGates runtimeClassName
enableServiceLinks preemptionPolicy overhead topologySpreadConstraints setHostnameAsFQDN os hostUsers schedulingGates
resourceClaims resources hostnameOverride schedulingGroup evictionResponders"""
CONTAINER_FIELDS = """name image command args workingDir ports envFrom env resources resizePolicy restartPolicy
restartPolicyRules volumeMounts volumeDevices livenessProbe readinessProbe startupProbe lifecycle terminationMessagePath
terminationMessagePolicy imagePullPolicy securityContext stdin stdinOnce tty"""
SECURITY_FIELDS = """capabilities privileged seLinuxOptions windowsOptions runAsUser runAsGroup runAsNonRoot
readOnlyRootFilesystem allowPrivilegeEscalation procMount seccompProfile appArmorProfile"""
POD_SECURITY_FIELDS = """seLinuxOptions windowsOptions runAsUser runAsGroup runAsNonRoot supplementalGroups
supplementalGroupsPolicy fsGroup sysctls fsGroupChangePolicy seccompProfile appArmorProfile seLinuxChangePolicy"""
VOLUME_FIELDS = """name hostPath emptyDir gcePersistentDisk awsElasticBlockStore gitRepo secret nfs iscsi glusterfs
persistentVolumeClaim rbd flexVolume cinder cephfs flocker downwardAPI fc azureFile configMap vsphereVolume quobyte
azureDisk photonPersistentDisk projected portworxVolume scaleIO storageos csi ephemeral image"""
MOUNT_FIELDS = """name readOnly recursiveReadOnly mountPath subPath mountPropagation subPathExpr bindMountOptions"""


@pytest.mark.parametrize(
    ("shape", "fields"),
    [
        (podshape.POD_SPEC, POD_FIELDS), (podshape.CONTAINER, CONTAINER_FIELDS),
        (podshape.INIT_CONTAINER, CONTAINER_FIELDS), (podshape.SECURITY, SECURITY_FIELDS),
        (podshape.POD_SECURITY, POD_SECURITY_FIELDS), (podshape.VOLUME, VOLUME_FIELDS), (podshape.MOUNT, MOUNT_FIELDS),
        (podshape.ENV, "name value valueFrom"), (podshape.PORT, "name hostPort containerPort protocol hostIP"),
        (podshape.RESOURCES, "limits requests claims"),
        (podshape.VALUE_FROM, "fieldRef resourceFieldRef configMapKeyRef secretKeyRef fileKeyRef"),
    ],
)  # fmt: skip
def test_every_field_of_kubernetes_is_decided_upon(shape: Any, fields: str) -> None:
    assert set(shape.known) == set(fields.split())


def test_the_page_on_manifests_says_what_becomes_of_every_field() -> None:
    page = (ROOT / "docs/manifests.md").read_text()
    fields = {*podshape.POD_SPEC.known, *podshape.CONTAINER.known, *sandboxconfig.CONFIG.known}
    assert sorted(field for field in fields if f"`{field}`" not in page and f"`{field}: " not in page) == []


@pytest.mark.parametrize(
    ("field", "value", "why"),
    [
        ("ephemeralContainers", [container()], "exitctl run --pod"),
        ("activeDeadlineSeconds", 0, "not in the range"),
        ("hostIPC", "true", "must be true or false; it is a text"),
        ("hostAliases", [{"ip": "here", "hostnames": ["a"]}], "'here' is no address; write 192.0.2.1"),
        ("hostAliases", [{"hostnames": ["a"]}], "ip is missing"),
        ("hostAliases", [{"ip": "192.0.2.1", "hostnames": ["a b"]}], "no host name"),
        ("dnsPolicy", "None", "leaves no server; name some in dnsConfig.nameservers"),
        ("dnsPolicy", "Mine", "'Mine' is none of ClusterFirst, ClusterFirstWithHostNet, Default, None"),
        ("dnsConfig", {"nameservers": ["dns.example"]}, "'dns.example' is no address"),
        ("dnsConfig", {"searches": ["a b"]}, "no word of resolv.conf"),
        ("dnsConfig", {"options": [{"value": "5"}]}, "name is missing"),
        ("dnsConfig", {"servers": ["192.0.2.1"]}, "there is no such field; did you mean nameservers?"),
        ("hostUsers", False, "user namespaces"),
        ("hostnameOverride", "x", "write hostname"),
        ("setHostnameAsFQDN", True, "write hostname"),
        ("resourceClaims", [{"name": "gpu"}], "no devices"),
        ("os", {"name": "windows"}, "this is Linux"),
        ("restartPolicy", "Sometimes", "'Sometimes' is none of Always, OnFailure, Never"),
        ("terminationGracePeriodSeconds", -1, "not in the range"),
        ("terminationGracePeriodSeconds", "5", "must be a whole number; it is a text"),
        ("hostNetwork", "true", "must be true or false; it is a text"),
        ("hostname", "a.b", "no DNS label"),
        ("containers", [], "a pod needs a container"),
        ("containers", {}, "must be a list; it is a mapping"),
        ("containers", ["x"], "must be a mapping; it is a text"),
        ("restartPolcy", "Never", "there is no such field; did you mean restartPolicy?"),
        ("xyz", 1, "there is no such field"),
        ("resources", {"limits": {"cpu": "5m"}}, "not in the range of 10m"),
        ("resources", {"limits": {"hugepages-2Mi": "4Mi"}}, "cpu and memory alone"),
        ("resources", {"limits": {"memory": "1Mi"}}, "below 4Mi"),
        ("securityContext", {"fsGroup": -1}, "not in the range"),
        ("securityContext", {"supplementalGroups": ["wheel"]}, "must be a whole number"),
        ("securityContext", {"supplementalGroupsPolicy": "strict"}, "Merge"),
        ("securityContext", {"sysctls": [{"name": "kernel.pid_max", "value": "9"}]}, "its own namespaces: net.*"),
        ("securityContext", {"sysctls": [{"name": "net.core.somaxconn", "value": ""}]}, "a value of one line"),
        ("securityContext", {"sysctls": [{"name": "net.core.somaxconn"}]}, "value is missing"),
        ("securityContext", {"sysctls": 2 * [{"name": "net.core.somaxconn", "value": "9"}]}, "is there twice"),
        ("securityContext", {"seccompProfile": {"type": "Default"}}, "RuntimeDefault"),
        ("securityContext", {"runAsNonRoot": 1}, "must be true or false"),
        ("securityContext", {"runAsGroup": 5}, "needs runAsUser beside it"),
    ],
)  # fmt: skip
def test_what_a_pod_cannot_have_is_refused_by_its_field(field: str, value: Any, why: str) -> None:
    text = refusal(manifest(**{field: value}))
    assert why in text
    assert re.match(rf"pod\.yaml:1:\d+: spec(\.{field}|: )", text)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("nodeSelector", {"disk": "ssd"}), ("affinity", {"nodeAffinity": {}}), ("tolerations", [{"key": "a"}]),
        ("priorityClassName", "high"), ("priority", 5), ("preemptionPolicy", "Never"), ("nodeName", "n1"),
        ("topologySpreadConstraints", [{"maxSkew": 1}]), ("schedulingGates", [{"name": "x"}]),
        ("schedulingGroup", {"a": 1}), ("evictionResponders", [{}]), ("overhead", {"cpu": "1m"}),
        ("readinessGates", [{"conditionType": "x"}]), ("subdomain", "x"),
        ("dnsPolicy", "ClusterFirstWithHostNet"), ("imagePullSecrets", [{"name": "x"}]),
        ("serviceAccountName", "robot"), ("serviceAccount", "robot"), ("schedulerName", "mine"),
        ("resources", {"requests": {"cpu": 1}}),
    ],
)  # fmt: skip
def test_what_only_a_cluster_has_is_reported_and_left_out(field: str, value: Any) -> None:
    with_it, without = play(manifest(**{field: value})), play(manifest())
    assert elsewhere(with_it) == elsewhere(without)
    (warning,) = with_it.warnings
    assert re.match(rf"pod\.yaml:1:\d+: spec\.{field}[\w.]*: ignored: ", warning)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("dnsPolicy", "ClusterFirst"), ("dnsPolicy", "Default"), ("dnsConfig", {}), ("hostAliases", []),
        ("hostAliases", [{"ip": "192.0.2.1"}]), ("schedulerName", "default-scheduler"),
        ("serviceAccountName", "default"),
        ("automountServiceAccountToken", False), ("enableServiceLinks", True), ("hostIPC", False),
        ("hostUsers", True), ("os", {"name": "linux"}), ("securityContext", {}), ("tolerations", []),
        ("nodeSelector", {}), ("priority", 0), ("activeDeadlineSeconds", None), ("volumes", []),
        ("securityContext", {"supplementalGroupsPolicy": "Merge"}),
        ("initContainers", []), ("hostNetwork", False), ("shareProcessNamespace", False),
    ],
)  # fmt: skip
def test_what_asks_for_what_is_done_anyway_needs_no_word(field: str, value: Any) -> None:
    found = play(manifest(**{field: value}))
    assert (elsewhere(found), found.warnings) == (elsewhere(play(manifest())), ())


@pytest.mark.parametrize(
    ("field", "value", "why"),
    [
        ("envFrom", [{"configMapRef": {"name": "x"}}], "there is no ConfigMap 'x' in these files; add it, or say opt"),
        ("envFrom", [{"prefix": "A_"}], "names either a configMapRef or a secretRef"),
        ("volumeDevices", [{"name": "x"}], "no devices"),
        ("lifecycle", {"preStop": {"exec": {"command": []}}}, "which command? It has none"),
        ("lifecycle", {"postStart": {"tcpSocket": {"port": 1}}}, "write an exec"),
        ("lifecycle", {"preStop": {"sleep": {"seconds": 31}}}, "more than the whole grace period, 30 s"),
        ("livenessProbe", {"grpc": {"port": "web"}}, "containers[0].livenessProbe.grpc.port"),
        ("livenessProbe", {}, "has one of exec, httpGet, tcpSocket, grpc"),
        ("livenessProbe", {"exec": {"command": ["a"]}, "tcpSocket": {"port": 1}}, "has one of exec"),
        ("livenessProbe", {"tcpSocket": {"port": "web"}}, "no port of the name 'web'; it has none"),
        ("livenessProbe", {"tcpSocket": {"port": 65536}}, "not in the range"),
        ("livenessProbe", {"tcpSocket": {"port": 1}, "successThreshold": 2}, "must be 1, but for a readinessProbe"),
        ("livenessProbe", {"tcpSocket": {"port": 1}, "periodSeconds": 0}, "not in the range"),
        ("livenessProbe", {"httpGet": {"port": 1, "host": "example.org"}}, "'example.org' is no address; drop it"),
        ("livenessProbe", {"tcpSocket": {"port": 1, "host": "fe80::1%eth0"}}, "'fe80::1%eth0' is no address"),
        ("livenessProbe", {"httpGet": {"port": 1, "path": "/a b"}}, "no path of a URL"),
        ("livenessProbe", {"httpGet": {"port": 1, "scheme": "FTP"}}, "none of HTTP, HTTPS"),
        ("livenessProbe", {"httpGet": {"port": 1, "httpHeaders": [{"name": "A:", "value": "b"}]}}, "name of a header"),
        ("livenessProbe", {"httpGet": {"port": 1, "httpHeaders": [{"name": "A", "value": "b\nc"}]}}, "value of a head"),
        ("readinessProbe", {"tcpSocket": {"port": 1}, "terminationGracePeriodSeconds": 5}, "ends nothing; drop it"),
        ("lifecycle", {"stopSignal": "SIGNONE"}, "'SIGNONE' is no signal"),
        ("image", "", "IMAGE ''"),
        ("image", "Not An Image", "IMAGE 'Not An Image'"),
        ("imagePullPolicy", "Often", "none of Always, IfNotPresent, Never"),
        ("workingDir", "srv", "'srv' is no absolute path"),
        ("name", "App", "'App' is no DNS label"),
        ("name", "a" * 60, "longer than 63"),
        ("command", "sleep 5", "must be a list; it is a text"),
        ("args", ["a", 5], "must be a text; it is a number; write it in quotes"),
        ("args", [True], "must be a text; it is a boolean; write it in quotes"),
        ("args", [None], "must be a text; it is null"),
        ("env", [{"name": "A", "value": 5}], "must be a text; it is a number"),
        ("env", [{"value": "x"}], "name is missing"),
        ("env", [{"name": "A=B", "value": "x"}], "no name of a variable"),
        ("env", [{"name": "A", "valueFrom": {}}], "valueFrom says nothing"),
        ("env", [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}], "no Secret 's' in these"),
        ("env", [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "s"}}}], "key is missing"),
        ("env", [{"name": "A", "valueFrom": {"resourceFieldRef": {"resource": "x"}}}], "'x' is not known here"),
        ("env", [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "status.phase"}}}], "'status.phase' is not"),
        ("env", [{"name": "A", "value": "x", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}], "exclude"),
        ("resources", {"limits": {"memory": "1Mi"}}, "1Mi is below 4Mi"),
        ("resources", {"limits": {"memory": "64m"}}, "m means thousandths, M millions"),
        ("resources", {"limits": {"memory": "64MB"}}, "'64MB' is no quantity"),
        ("resources", {"limits": {"memory": "-1Gi"}}, "less than nothing"),
        ("resources", {"limits": {"cpu": "5m"}}, "not in the range of 10m"),
        ("resources", {"limits": {"cpu": 5000}}, "not in the range of 10m"),
        ("resources", {"limits": {"cpu": 1}, "requests": {"cpu": "1500m"}}, "more than the limit, which is 1"),
        ("resources", {"limits": {"memory": "8Mi"}, "requests": {"memory": "9Mi"}}, "more than the limit, which is 8"),
        ("resources", {"limits": {"ephemeral-storage": "1Gi"}}, "cpu and memory alone"),
        ("resources", {"limits": {"nvidia.com/gpu": 1}}, "there is no such field"),
        ("resources", {"claims": [{"name": "x"}]}, "no devices"),
        ("restartPolicyRules", [{"action": "Restart", "exitCodes": {"operator": "In", "values": [1]}}], "beside it"),
        ("securityContext", {"privileged": "yes"}, "must be true or false"),
        ("securityContext", {"capabilities": {"drop": ["ROOT"]}}, "'ROOT' is no capability"),
        ("securityContext", {"capabilities": {"remove": ["ALL"]}}, "no such field"),
        ("securityContext", {"procMount": "Unmasked"}, "same paths of /proc"),
        ("securityContext", {"seccompProfile": {"type": "Localhost", "localhostProfile": "x"}}, "seccomp"),
        ("securityContext", {"seccompProfile": {"type": "Localhost"}}, "localhostProfile goes with"),
        ("securityContext", {"seccompProfile": {"type": "Localhost", "localhostProfile": "/x"}}, "relative"),
        ("securityContext", {"seccompProfile": {"type": "Localhost", "localhostProfile": "a/../x"}}, "relative"),
        ("securityContext", {"seccompProfile": {"type": "Unconfined", "localhostProfile": "x"}}, "goes with"),
        ("securityContext", {"appArmorProfile": {"type": "Default"}}, "RuntimeDefault"),
        ("securityContext", {"appArmorProfile": {"type": "Localhost"}}, "localhostProfile goes with"),
        ("securityContext", {"appArmorProfile": {"type": "RuntimeDefault", "localhostProfile": "x"}}, "goes with"),
        ("securityContext", {"appArmorProfile": {"type": "Localhost", "localhostProfile": "a b"}}, "loaded profile"),
        ("securityContext", {"seLinuxOptions": {"level": "s0"}}, "SELinux"),
        ("securityContext", {"windowsOptions": {"hostProcess": True}}, "this is Linux"),
        ("securityContext", {"runAsUser": -1}, "not in the range"),
        ("securityContext", {"runAsUser": "root"}, "must be a whole number; it is a text"),
        ("securityContext", {"runAsUser": 1.5}, "1.5 is no whole number"),
        ("securityContext", {"runAsNonRoot": True, "runAsUser": 0}, "contradicts runAsUser 0"),
        ("securityContext", {"runAsGroup": 5}, "needs runAsUser beside it"),
        ("ports", [{"containerPort": 0}], "not in the range"), ("ports", [{"name": "x"}], "containerPort is missing"),
        ("ports", [{"containerPort": 80, "hostIP": "here"}], "'here' is no address"),
        ("ports", [{"containerPort": 80, "hostIP": "fe80::1%x"}], "'fe80::1%x' is no address"),
        ("volumeMounts", [{"name": "x", "mountPath": "/x"}], "there is no volume 'x'; spec.volumes has none"),
        ("volumeMounts", [{"name": "x"}], "mountPath is missing"),
        ("volumeMounts", [{"name": "x", "mountPath": "/x", "mountPropagation": "rslave"}], "none of None, HostTo"),
    ],
)  # fmt: skip
def test_what_a_container_cannot_have_is_refused_by_its_field(field: str, value: Any, why: str) -> None:
    text = refusal(manifest(containers=[container(**{field: value})]))
    assert why in text
    assert re.match(rf"pod\.yaml:1:\d+: spec\.containers\[0\]\.{field}", text)


@pytest.mark.parametrize(
    ("field", "value", "warnings"),
    [
        ("resizePolicy", [{"resourceName": "cpu"}], 1),
        ("terminationMessagePath", "/dev/end", 1), ("terminationMessagePolicy", "FallbackToLogsOnError", 1),
        ("terminationMessagePath", "/dev/termination-log", 0), ("terminationMessagePolicy", "File", 0),
        ("securityContext", {"privileged": False, "capabilities": {}, "procMount": "Default"}, 0),
        ("ports", [{"containerPort": 80}], 0),
        ("stdinOnce", True, 0), ("livenessProbe", None, 0), ("resources", {"requests": {"memory": "1Gi"}}, 0),
        ("resources", {"requests": {"ephemeral-storage": "1Gi"}}, 0),
    ],
)  # fmt: skip
def test_what_a_container_goes_without_is_reported_where_it_matters(field: str, value: Any, warnings: int) -> None:
    found = play(manifest(containers=[container(**{field: value})]))
    assert elsewhere(found) == elsewhere(play(manifest()))
    assert len(found.warnings) == warnings
    assert all(f"spec.containers[0].{field}" in warning and ": ignored: " in warning for warning in found.warnings)
