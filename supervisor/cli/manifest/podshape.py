"""What happens to every field of a Kubernetes Pod (core/v1, types.go of 1.36): read, ignored with a warning, or
refused.

Refused is what would limit, isolate or do something and cannot be done here. What only a cluster has (scheduling,
services, name resolution) is ignored with a warning.
"""

import re
from fractions import Fraction

from supervisor.cli.manifest import quantity
from supervisor.cli.manifest.fields import Field, Notes
from supervisor.cli.manifest.marks import MarkedNumber
from supervisor.cli.manifest.rights import capability_name
from supervisor.cli.manifest.shape import (
    Check,
    Object,
    boolean,
    each,
    forbidden,
    ignored,
    items,
    matching,
    one_of,
    pairs,
    quiet,
    read,
    refused,
    text,
    texts,
    unless,
    within,
)
from supervisor.cli.manifest.tree import kind_of
from supervisor.model import parsing
from supervisor.model.addresses import address

LABEL = r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?"
MOST_ID = (1 << 32) - 2  # of users and groups: the kernel uses the last one for "none"
PULL_POLICIES = ("Always", "IfNotPresent", "Never")
PROPAGATIONS = {"None": "", "HostToContainer": "rslave", "Bidirectional": "rshared"}  # as mount(8) says it
RESTART_POLICIES = ("Always", "OnFailure", "Never")
HOST_PATH_TYPES = ("", "DirectoryOrCreate", "Directory", "FileOrCreate", "File", "Socket")

label = matching(LABEL, "DNS label (a-z, 0-9 and -, at most 63)")
user_id = within(0, MOST_ID)
capability = read(capability_name)

NO_TCP_HOOK = "Kubernetes has no such hooks either; write an exec"
NO_CLUSTER = "this is one machine, with nothing to choose from"
NO_PROFILE = "exitd has no SELinux profile of its own; drop it to run without"
GROUP_POLICIES = ("Merge", "Strict")
PROFILE_TYPES = ("RuntimeDefault", "Unconfined", "Localhost")
NO_PROC = "exitd hides the same paths of /proc from all containers but privileged ones; drop it"
NO_WINDOWS = "this is Linux"
NO_DEVICES = "exitd gives out no devices"


def amount(field: Field) -> Fraction:
    """Return a quantity. Raises WrongField."""
    value = field.node.value
    word = value.text if isinstance(value, MarkedNumber) else field.text()
    try:
        found = quantity.parse(word)
    except ValueError as error:
        raise field.wrong(str(error)) from error
    if found < 0:
        raise field.wrong(f"{word} is less than nothing")
    return found


def signal_number(field: Field) -> int:
    """Return a signal's number. Raises WrongField."""
    number = parsing.number_of(field.text())
    if number is None:
        raise field.wrong(f"{field.text()!r} is no signal; write SIGTERM")
    return number


QUANTITY = read(amount)
quantity_ = QUANTITY

_LIMITS = Object(
    {
        "cpu": quantity_,
        "memory": quantity_,
        **each("ephemeral-storage hugepages-2Mi hugepages-1Gi", refused("exitd limits cpu and memory alone; drop it")),
    }
)
_REQUESTS = Object({"cpu": quantity_, "memory": quantity_, "ephemeral-storage": quantity_})
_CLAIMS = refused(NO_DEVICES)
RESOURCES = Object({"limits": _LIMITS, "requests": _REQUESTS, "claims": _CLAIMS})
POD_RESOURCES = Object(
    {
        "limits": Object(
            {
                "memory": quantity_,
                "cpu": quantity_,
                **each("hugepages-2Mi hugepages-1Gi", refused("exitd limits cpu and memory alone; drop it")),
            }
        ),
        "requests": ignored("a pod as a whole has no weight; its containers may have"),
        "claims": _CLAIMS,
    }
)

_APPARMOR = Object(
    {"type": one_of(*PROFILE_TYPES), "localhostProfile": matching(r"\S{1,255}", "name of a loaded profile")},
    required=("type",),
)
_SECCOMP = Object(
    {
        "type": one_of(*PROFILE_TYPES),
        "localhostProfile": matching(r"(?!/)(?!(?:.*/)?\.\.(?:/|$)).+", "path of a file, relative, without .. in it"),
    },
    required=("type",),
)
_USERS: dict[str, Check] = {
    "runAsUser": user_id,
    "runAsGroup": user_id,
    "runAsNonRoot": boolean,
    "seLinuxOptions": refused(NO_PROFILE),
    "seccompProfile": _SECCOMP,
    "appArmorProfile": _APPARMOR,
    "windowsOptions": refused(NO_WINDOWS),
}
POD_SECURITY = Object(
    {
        **_USERS,
        "supplementalGroups": items(user_id),
        "supplementalGroupsPolicy": one_of(*GROUP_POLICIES),
        "fsGroup": user_id,
        "fsGroupChangePolicy": quiet,  # of fsGroup
        "seLinuxChangePolicy": quiet,
        "sysctls": items(Object({"name": text, "value": text}, required=("name", "value"))),
    }
)
SECURITY = Object(
    {
        **_USERS,
        "readOnlyRootFilesystem": boolean,
        "privileged": boolean,
        "allowPrivilegeEscalation": boolean,
        "capabilities": Object({"add": items(capability), "drop": items(capability)}),
        "procMount": unless(("Default",), refused(NO_PROC)),
    }
)

_FIELD_REF = Object({"apiVersion": one_of("v1"), "fieldPath": text}, required=("fieldPath",))
_RESOURCE_REF = Object({"containerName": text, "resource": text, "divisor": quantity_}, required=("resource",))
_KEY_REF = Object({"name": text, "key": text, "optional": boolean}, required=("name", "key"))
VALUE_FROM = Object(
    {
        "fieldRef": _FIELD_REF,
        "resourceFieldRef": _RESOURCE_REF,
        **each("configMapKeyRef secretKeyRef", _KEY_REF),
        "fileKeyRef": refused("write the value itself, or put it into a ConfigMap"),
    }
)
_WHOLE_REF = Object({"name": text, "optional": boolean}, required=("name",))
ENV_FROM = Object({"prefix": matching(r"[^=\0]*", "beginning of a name"), **each("configMapRef secretRef", _WHOLE_REF)})
ENV = Object(
    {"name": matching(r"[^=\0]+", "name of a variable"), "value": text, "valueFrom": VALUE_FROM}, required=("name",)
)
MOUNT = Object(
    {
        "name": label,
        "mountPath": matching(r"/[^:]*", "absolute path without a colon"),
        "readOnly": boolean,
        "recursiveReadOnly": unless(
            ("Disabled", "IfPossible"), refused("mounts below a read-only one stay as they are; drop it")
        ),
        "subPath": matching(r"(?!/)(?!(?:.*/)?\.\.(?:/|$)).*", "relative path without .. in it"),
        "subPathExpr": refused("write the path itself, as subPath"),
        "mountPropagation": one_of(*PROPAGATIONS),
        "bindMountOptions": refused("exitd's mounts are read-only or not, and that is all"),
    },
    required=("name", "mountPath"),
)
PORT = Object(
    {
        "name": text,
        "containerPort": within(1, 65535),
        "hostPort": within(0, 65535),
        "hostIP": text,
        "protocol": one_of("TCP", "UDP", "SCTP"),
    }
)
RESTART_RULE = Object(
    {
        "action": one_of("Restart"),
        "exitCodes": Object(
            {"operator": one_of("In", "NotIn"), "values": items(within(0, 255))}, required=("operator", "values")
        ),
    },
    required=("action", "exitCodes"),
)
_MOST_SECONDS = 86_400


def _port(field: Field, notes: Notes) -> None:
    (within(1, 65535) if isinstance(field.node.value, MarkedNumber) else text)(field, notes)


_EXEC = Object({"command": texts}, required=("command",))
_HEADER = Object(
    {
        "name": matching(r"[-!#$%&'*+.^_`|~0-9A-Za-z]{1,256}", "name of a header"),
        "value": matching(r"[\t\x20-\x7e]{0,4096}", "value of a header"),
    },
    required=("name", "value"),
)
_HTTP_GET = Object(
    {
        "host": text,
        "port": _port,
        "path": matching(r"[\x21-\x7e]{0,4096}", "path of a URL (without spaces; %20 is one)"),
        "scheme": one_of("HTTP", "HTTPS"),
        "httpHeaders": items(_HEADER),
    },
    required=("port",),
)
_TCP = Object({"host": text, "port": _port}, required=("port",))
_GRPC = Object(
    {
        "port": within(1, 65535),  # no name: Kubernetes takes none here
        "service": matching(r"[\x21-\x7e]{0,253}", "name of a service"),
    },
    required=("port",),
)
PROBE = Object(
    {
        "exec": _EXEC,
        "httpGet": _HTTP_GET,
        "tcpSocket": _TCP,
        "grpc": _GRPC,
        "initialDelaySeconds": within(0, _MOST_SECONDS),
        **each("periodSeconds timeoutSeconds", within(1, _MOST_SECONDS)),
        **each("successThreshold failureThreshold", within(1, (1 << 31) - 1)),
        "terminationGracePeriodSeconds": within(1, (1 << 31) - 1),
    }
)
HOOK = Object(
    {
        "exec": _EXEC,
        "httpGet": _HTTP_GET,
        "tcpSocket": refused(NO_TCP_HOOK),
        "sleep": Object({"seconds": within(0, _MOST_SECONDS)}, required=("seconds",)),
    }
)
_LIFECYCLE = Object({"postStart": HOOK, "preStop": HOOK, "stopSignal": read(signal_number)})
_CONTAINER: dict[str, Check] = {
    "name": label,
    "image": text,
    "imagePullPolicy": one_of(*PULL_POLICIES),
    "command": texts,
    "args": texts,
    "workingDir": matching(r"/.*", "absolute path"),
    "ports": items(PORT),
    "env": items(ENV),
    "envFrom": items(ENV_FROM),
    "resources": RESOURCES,
    "resizePolicy": ignored("resources are not changed while a container runs"),
    "restartPolicy": one_of(*RESTART_POLICIES),
    "restartPolicyRules": items(RESTART_RULE),
    "volumeMounts": items(MOUNT),
    "volumeDevices": refused(NO_DEVICES),
    "terminationMessagePath": unless(("/dev/termination-log",), ignored("exitctl why shows the end of the log")),
    "terminationMessagePolicy": unless(("File",), ignored("exitctl why shows the end of the log")),
    "securityContext": SECURITY,
    "stdin": boolean,
    "stdinOnce": quiet,
    "tty": boolean,
}
_PROBES = "livenessProbe readinessProbe startupProbe"
CONTAINER = Object({**_CONTAINER, "lifecycle": _LIFECYCLE, **each(_PROBES, PROBE)}, required=("name", "image"))
_SIDECAR_ALONE = refused("an init container has none; with restartPolicy: Always it is a sidecar, and may have some")
INIT_CONTAINER = Object({**_CONTAINER, **each(f"lifecycle {_PROBES}", _SIDECAR_ALONE)}, required=("name", "image"))


def _first_container(field: Field, notes: Notes) -> None:
    """A container that is begun before the others: an init container, or a sidecar, which goes on."""
    node = field.node.value
    policy = node.get("restartPolicy") if isinstance(node, dict) else None
    (CONTAINER if policy is not None and policy.value == "Always" else INIT_CONTAINER)(field, notes)


def _host_path_type(field: Field, notes: Notes) -> None:
    if field.node.value in ("CharDevice", "BlockDevice"):
        field.refuse(notes, NO_DEVICES)
    else:
        one_of(*HOST_PATH_TYPES)(field, notes)


_NO_VOLUME = refused(
    "exitd's volumes are emptyDir, hostPath, configMap, secret, downwardAPI, projected and persistentVolumeClaim"
)
_FOREIGN = (
    "awsElasticBlockStore azureDisk azureFile cephfs cinder csi ephemeral fc flexVolume "
    "flocker gcePersistentDisk gitRepo glusterfs image iscsi nfs photonPersistentDisk "
    "portworxVolume quobyte rbd scaleIO storageos vsphereVolume"
)


def permissions(field: Field) -> int:
    """Return the permissions of a file: YAML has 0400 for the octal and 256 for the decimal number. Raises
    WrongField."""
    value = field.node.value
    word = value.text if isinstance(value, MarkedNumber) else ""
    octal = re.fullmatch(r"0o?([0-7]{1,5})", word, re.ASCII)
    number = int(octal[1], 8) if octal else int(word) if re.fullmatch(r"[1-9][0-9]{0,4}", word, re.ASCII) else 0
    if not 1 <= number <= 0o777:
        raise field.wrong(f"{word or kind_of(value)} are no permissions; write 0400, or 256")
    return number


_file_mode = read(permissions)


_ITEM = Object({"key": text, "path": text, "mode": _file_mode}, required=("key", "path"))
_KEYED: dict[str, Check] = {"items": items(_ITEM), "optional": boolean}
_OF_CONFIG_MAP: dict[str, Check] = {"name": text, **_KEYED}
_DOWNWARD_ITEM = Object(
    {"path": text, "mode": _file_mode, "fieldRef": _FIELD_REF, "resourceFieldRef": _RESOURCE_REF}, required=("path",)
)
_NO_TOKEN = refused("no cluster is here that gives such a thing; drop it")
_PROJECTED = Object(
    {
        **each("configMap secret", Object(_OF_CONFIG_MAP, required=("name",))),
        "downwardAPI": Object({"items": items(_DOWNWARD_ITEM)}),
        **each("serviceAccountToken clusterTrustBundle podCertificate", _NO_TOKEN),
    }
)
VOLUME = Object(
    {
        "name": label,
        "configMap": Object({**_OF_CONFIG_MAP, "defaultMode": _file_mode}, required=("name",)),
        "secret": Object({"secretName": text, **_KEYED, "defaultMode": _file_mode}, required=("secretName",)),
        "downwardAPI": Object({"items": items(_DOWNWARD_ITEM), "defaultMode": _file_mode}),
        "projected": Object({"sources": items(_PROJECTED), "defaultMode": _file_mode}),
        "persistentVolumeClaim": Object(
            {"claimName": matching(r"[a-z0-9](?:[-a-z0-9.]*[a-z0-9])?", "name of a claim"), "readOnly": boolean},
            required=("claimName",),
        ),
        "emptyDir": Object(
            {
                "medium": one_of("", "Memory"),
                "sizeLimit": quantity_,
                "mode": forbidden("an emptyDir of exitd is open to all users (0777); drop it"),
            }
        ),
        "hostPath": Object({"path": matching(r"/.*", "absolute path"), "type": _host_path_type}, required=("path",)),
        **each(_FOREIGN, _NO_VOLUME),
    },
    required=("name",),
)


def _address(field: Field) -> None:
    try:
        address(field.text())
    except ValueError as error:
        raise field.wrong(f"{field.text()[:100]!r} is no address; write 192.0.2.1") from error


_ALIAS = Object(
    {
        "ip": read(_address),
        "hostnames": items(matching(r"[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?", "host name (a-z, 0-9, - and .)")),
    },
    required=("ip",),
)
_WORD = matching(r"[!-~]{1,120}", "word of resolv.conf, without blanks")
_DNS_CONFIG = Object(
    {
        "nameservers": items(read(_address)),
        "searches": items(_WORD),
        "options": items(Object({"name": _WORD, "value": matching(r"[!-~]{0,120}", "value")}, required=("name",))),
    }
)


def _dns_policy(field: Field, notes: Notes) -> None:
    one_of("ClusterFirst", "ClusterFirstWithHostNet", "Default", "None")(field, notes)
    if field.node.value == "ClusterFirstWithHostNet":
        field.warn(notes, "ignored: no cluster's DNS is here; the machine's is used")


_SCHEDULING = (
    "nodeSelector affinity tolerations priorityClassName priority preemptionPolicy nodeName "
    "topologySpreadConstraints schedulingGates schedulingGroup evictionResponders overhead readinessGates"
)
POD_SPEC = Object(
    {
        "containers": items(CONTAINER),
        "initContainers": items(_first_container),
        "ephemeralContainers": refused("containers are added to a pod with exitctl run --pod"),
        "volumes": items(VOLUME),
        "restartPolicy": one_of(*RESTART_POLICIES),
        "terminationGracePeriodSeconds": within(0, (1 << 31) - 1),
        "activeDeadlineSeconds": within(1, (1 << 31) - 1),
        "hostNetwork": boolean,
        "hostPID": boolean,
        "hostIPC": boolean,
        "shareProcessNamespace": boolean,
        "hostUsers": unless((True,), forbidden("exitd makes no user namespaces of pods; drop it to run without")),
        "hostname": label,
        "hostnameOverride": refused("write hostname"),
        "setHostnameAsFQDN": refused("write hostname"),
        "subdomain": ignored("no cluster's DNS is here to give that name; hostAliases give names to addresses"),
        "hostAliases": items(_ALIAS),
        "dnsConfig": _DNS_CONFIG,
        "dnsPolicy": _dns_policy,
        "securityContext": POD_SECURITY,
        "resources": POD_RESOURCES,
        "resourceClaims": _CLAIMS,
        "runtimeClassName": text,
        "imagePullSecrets": ignored("images are pulled with root's own login (skopeo login)"),
        "serviceAccountName": unless(("default",), ignored("no cluster answers here")),
        "serviceAccount": unless(("default",), ignored("no cluster answers here")),
        "automountServiceAccountToken": quiet,
        "enableServiceLinks": quiet,
        "schedulerName": unless(("default-scheduler",), ignored(NO_CLUSTER)),
        **each(_SCHEDULING, ignored(NO_CLUSTER)),
        "os": Object({"name": unless(("linux",), refused(NO_WINDOWS))}),
    },
    required=("containers",),
)

_OBSERVED = (
    "uid creationTimestamp resourceVersion selfLink generation managedFields ownerReferences finalizers "
    "deletionTimestamp deletionGracePeriodSeconds"
)
METADATA = Object(
    {
        "name": matching(r"[a-z0-9](?:[-a-z0-9.]{0,61}[a-z0-9])?", "name of a pod (a-z, 0-9, - and ., at most 63)"),
        "namespace": label,
        "labels": pairs,
        "annotations": pairs,
        "generateName": refused("give it a name: metadata.name"),
        **each(_OBSERVED, quiet),
    },
    required=("name",),
)
TEMPLATE_METADATA = Object({**METADATA.known, **each("name generateName namespace", quiet)})
POD = Object(
    {"apiVersion": one_of("v1"), "kind": one_of("Pod"), "metadata": METADATA, "spec": POD_SPEC, "status": quiet},
    required=("apiVersion", "metadata", "spec"),
)
