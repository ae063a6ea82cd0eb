"""Everything else in the files than Pods: ConfigMaps, Secrets, claims of volumes, and Deployments, DaemonSets and Jobs,
which stand for Pods. Pure.

Source: core/v1, apps/v1 and batch/v1 (types.go).
"""

from collections.abc import Mapping

from shim.frozen import frozen
from supervisor.cli.manifest.fields import Field, Notes, WrongField, text_of
from supervisor.cli.manifest.podshape import METADATA, POD, POD_SPEC, QUANTITY, TEMPLATE_METADATA
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

NAMESPACE = "default"
MOST_REPLICAS = 100
BACKOFF_LIMIT = 6  # of a Job that says none, as in Kubernetes
MOST_VOLUME_NAME = 63
DEPLOYMENT = "exitd/deployment"  # the annotation of a Deployment's pods: its namespace and name

_NAME = r"[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?"
_META: dict[str, Check] = {**METADATA.known, "name": matching(_NAME, "name (a-z, 0-9, - and .)")}
_OBJECT_METADATA = Object(_META, required=("name",))
_KEYS = r"[-._a-zA-Z0-9]{1,253}"


def _keyed(field: Field, notes: Notes) -> None:
    """A mapping whose keys can be names of files."""
    pairs(field, notes)
    if isinstance(field.node.value, dict):
        for key, part in field.fields():
            if key in (".", "..") or not _is_key(key):
                part.refuse(notes, f"{key[:100]!r} is no key (letters, digits, -, _ and .)")


def _is_key(key: str) -> bool:
    return 0 < len(key) <= 253 and all(c.isascii() and (c.isalnum() or c in "-._") for c in key)


_HEAD: dict[str, Check] = {"metadata": _OBJECT_METADATA, "status": quiet}
CONFIG_MAP = Object(
    {
        **_HEAD,
        **{"apiVersion": one_of("v1"), "kind": text, "data": _keyed, "binaryData": _keyed, "immutable": boolean},
    },
    required=("apiVersion", "metadata"),
)
SECRET = Object(
    {
        **_HEAD,
        **{"apiVersion": one_of("v1"), "kind": text, "type": text},
        **{"data": _keyed, "stringData": _keyed, "immutable": boolean},
    },
    required=("apiVersion", "metadata"),
)
_NO_SIZE = ignored("a volume of exitd takes what there is on its disk")
_ONE_DISK = ignored("exitd has volumes on its own disk alone")
CLAIM = Object(
    {
        **_HEAD,
        **{"apiVersion": one_of("v1"), "kind": text},
        "spec": Object(
            {
                "accessModes": items(one_of("ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod")),
                "resources": Object({"requests": Object({"storage": QUANTITY}), "limits": _NO_SIZE}),
                "volumeMode": unless(("Filesystem",), refused("exitd has directories and no block devices")),
                "storageClassName": _ONE_DISK,
                **each("volumeName selector", _ONE_DISK),
                **each("dataSource dataSourceRef", refused("a volume of exitd begins empty; fill it by a container")),
                "volumeAttributesClassName": _ONE_DISK,
            }
        ),
    },
    required=("apiVersion", "metadata", "spec"),
)

_EXPRESSION = Object(
    {"key": text, "operator": one_of("In", "NotIn", "Exists", "DoesNotExist"), "values": texts},
    required=("key", "operator"),
)
_ROLLING = ignored("the pods of a file are made at once; --replace makes them anew")
_SELECTOR = Object({"matchLabels": pairs, "matchExpressions": items(_EXPRESSION)})
_TEMPLATE = Object({"metadata": TEMPLATE_METADATA, "spec": POD_SPEC}, required=("metadata", "spec"))
DEPLOYMENT_SHAPE = Object(
    {
        **_HEAD,
        **{"apiVersion": one_of("apps/v1"), "kind": text},
        "spec": Object(
            {
                "replicas": within(0, MOST_REPLICAS),
                "selector": _SELECTOR,
                "template": _TEMPLATE,
                **each("strategy minReadySeconds revisionHistoryLimit progressDeadlineSeconds", _ROLLING),
                "paused": refused("a Deployment here is its pods; drop it"),
            },
            required=("selector", "template"),
        ),
    },
    required=("apiVersion", "metadata", "spec"),
)

DAEMON_SET = Object(
    {
        **_HEAD,
        **{"apiVersion": one_of("apps/v1"), "kind": text},
        "spec": Object(
            {
                "selector": _SELECTOR,
                "template": _TEMPLATE,
                **each("updateStrategy minReadySeconds revisionHistoryLimit", _ROLLING),
            },
            required=("selector", "template"),
        ),
    },
    required=("apiVersion", "metadata", "spec"),
)


def _once(field: Field) -> None:
    if field.integer() != 1:
        raise field.wrong("a Job here is one pod that has to succeed once; write 1, and a Job for each")


def _kept(field: Field, notes: Notes) -> None:
    """For 0, too, which asks for a removal at once."""
    field.warn(notes, "ignored: the ended pod stays for exitctl why and logs; --wait and --down remove it")


_OF_INDEXED = forbidden("is of indexed Jobs, and a Job here is one pod; drop it")
JOB = Object(
    {
        **_HEAD,
        **{"apiVersion": one_of("batch/v1"), "kind": text},
        "spec": Object(
            {
                "template": Object({"metadata": TEMPLATE_METADATA, "spec": POD_SPEC}, required=("spec",)),
                "backoffLimit": within(0, (1 << 31) - 1),
                "activeDeadlineSeconds": within(1, (1 << 31) - 1),
                **each("completions parallelism", read(_once)),
                "completionMode": unless(("NonIndexed",), _OF_INDEXED),
                **each("backoffLimitPerIndex maxFailedIndexes successPolicy", _OF_INDEXED),
                "podFailurePolicy": refused("write restartPolicy and restartPolicyRules into the container"),
                "suspend": refused("a Job begins when it is played; play it when it is to begin"),
                "ttlSecondsAfterFinished": _kept,
                "managedBy": ignored("no cluster is here; exitd runs the pod"),
                **each("selector manualSelector podReplacementPolicy", quiet),  # its pod is that of the file
            },
            required=("template",),
        ),
    },
    required=("apiVersion", "metadata", "spec"),
)

SHAPES: Mapping[str, Object] = {
    "Pod": POD,
    "ConfigMap": CONFIG_MAP,
    "Secret": SECRET,
    "PersistentVolumeClaim": CLAIM,
    "Deployment": DEPLOYMENT_SHAPE,
    "DaemonSet": DAEMON_SET,
    "Job": JOB,
}
OF_ONE_POD = ("DaemonSet", "Job")
OF_PODS = ("Pod", "Deployment", *OF_ONE_POD)
INSTEAD = {
    "ReplicaSet": "write a Deployment, whose pods it would make",
    "ReplicationController": "write a Deployment",
    "StatefulSet": "write a Deployment with a volume, or a Pod for each",
    "CronJob": "write a Job, and have a timer of the machine play it with --wait",
    "PersistentVolume": "write a PersistentVolumeClaim, or a hostPath volume",
    "NetworkPolicy": "exitd restricts no traffic; drop it to run without",
    "LimitRange": "write the limits into each container",
    "ResourceQuota": "write the limits into each container",
}
OF_A_CLUSTER = {
    *("Service", "ServiceAccount", "Namespace", "Ingress", "IngressClass", "Endpoints", "EndpointSlice"),
    *("HorizontalPodAutoscaler", "PodDisruptionBudget", "StorageClass", "PriorityClass"),
    *("Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"),
}


def kind_of_object(document: Field, notes: Notes) -> str:
    """Return its kind; empty for one that is not played, which is noted."""
    try:
        kind = document.get("kind")
        word = text_of(kind)
    except WrongField as error:
        notes.refusals.append(str(error))
        return ""
    if word in SHAPES:
        return word
    if kind is None:
        document.refuse(notes, "kind is missing; exitd plays Pods, Deployments, DaemonSets and Jobs")
    elif word in OF_A_CLUSTER:
        kind.warn(notes, f"ignored: a {word} is for a cluster, and none is here")
    else:
        instead = INSTEAD.get(word, f"exitd plays {', '.join(SHAPES)}")
        kind.refuse(notes, f"exitd plays no {word or 'such thing'}; {instead}")
    return ""


@frozen
class PodSource:
    """Where a pod is described: by a Pod, or by the template of what stands for one or, a Deployment, for several."""

    name: str
    where: Field  # of the name
    namespace: str
    metadata: Field | None  # with its labels and annotations
    spec: Field
    file_directory: str
    deployment: str = ""  # NAMESPACE/NAME
    deadline: Field | None = None  # of a Job, beside that of its pod
    retries: int | None = None  # with restartPolicy OnFailure: so often each container is begun again; None: no limit


def full_name(document: Field) -> tuple[str, str]:
    """Return (namespace, name) of a document that has its shape."""
    metadata = document.get("metadata")
    assert metadata is not None
    return text_of(metadata.get("namespace"), NAMESPACE), text_of(metadata.get("name"))


def name_of_pod(kind: str, name: str) -> str:
    """Return the name of the pod that an object is, or stands for: podman's, so that a Pod may have the object's."""
    return f"{name}-pod" if kind in OF_ONE_POD else name


def pods_of(document: Field, kind: str, directory: str, notes: Notes) -> list[PodSource]:
    """Return the pods that one of OF_PODS stands for."""
    metadata, spec = document.get("metadata"), document.get("spec")
    assert metadata is not None and spec is not None
    (namespace, name), where = full_name(document), metadata.get("name")
    assert where is not None
    if kind == "Pod":
        return [PodSource(name, where, namespace, metadata, spec, directory)]
    if kind == "Job":
        return [_of_job(name, where, namespace, spec, directory, notes)]
    inner, pod_spec = spec.get("template", "metadata"), spec.get("template", "spec")
    assert inner is not None and pod_spec is not None
    _check_selector(spec, inner, notes)
    policy = pod_spec.get("restartPolicy")
    if policy is not None and policy.text() != "Always":
        policy.refuse(notes, f"the pods of a {kind} are always restarted; write Always, or a Pod")
    if kind == "DaemonSet":
        return [PodSource(name_of_pod(kind, name), where, namespace, inner, pod_spec, directory)]
    replicas = spec.get("replicas")
    count = replicas.integer() if replicas is not None else 1
    own = f"{namespace}/{name}"
    return [PodSource(f"{name}-{number}", where, namespace, inner, pod_spec, directory, own) for number in range(count)]


def _of_job(name: str, where: Field, namespace: str, spec: Field, directory: str, notes: Notes) -> PodSource:
    """With OnFailure its containers are begun again as often as `backoffLimit` says. With Never Kubernetes would make
    other pods; here, as with podman, there is one."""
    pod_spec, limit = spec.get("template", "spec"), spec.get("backoffLimit")
    assert pod_spec is not None
    policy = pod_spec.get("restartPolicy")
    word = text_of(policy, "Always")
    if word == "Always":
        place = policy if policy is not None else pod_spec
        place.refuse(notes, "the pod of a Job ends: write restartPolicy: Never or OnFailure")
    if word == "Never" and limit is not None and not limit.is_empty:
        limit.warn(notes, "ignored: with restartPolicy Never the pod is made once, as by podman; OnFailure tries again")
    retries = limit.integer() if limit is not None else BACKOFF_LIMIT
    return PodSource(
        name_of_pod("Job", name),
        where,
        namespace,
        spec.get("template", "metadata"),
        pod_spec,
        directory,
        deadline=spec.get("activeDeadlineSeconds"),
        retries=retries if word == "OnFailure" else None,
    )


def _check_selector(spec: Field, metadata: Field, notes: Notes) -> None:
    """As the API server: a Deployment that does not select its own pods would make pods for ever."""
    selector, labels = spec.get("selector"), metadata.get("labels")
    assert selector is not None
    found = labels.pairs() if labels is not None else {}
    wanted, expressions = selector.get("matchLabels"), selector.get("matchExpressions")
    if wanted is None and expressions is None:
        selector.refuse(notes, "selects nothing; write matchLabels as in template.metadata.labels")
    for key, each_ in wanted.fields() if wanted is not None else ():
        if found.get(key) != each_.text():
            each_.refuse(notes, f"the template has no label {key}: {each_.text()}, so this selects none of its pods")
    for each_ in expressions.items() if expressions is not None else ():
        if not _fits(each_, found):
            each_.refuse(notes, "the template's labels do not fit, so this selects none of its pods")


def _fits(expression: Field, labels: Mapping[str, str]) -> bool:
    key, operator, values = (expression.get(name) for name in ("key", "operator", "values"))
    value, among = labels.get(text_of(key)), values.texts() if values is not None else ()
    match text_of(operator):
        case "In":
            return value in among
        case "NotIn":
            return value not in among
        case "Exists":
            return value is not None
    return value is None


def volume_of_claim(namespace: str, name: Field, notes: Notes) -> str:
    """Return the name of the volume that stands for a claim; of another namespace than `default` it has that before
    it."""
    found = name.text() if namespace == NAMESPACE else f"{namespace}_{name.text()}"
    if len(found) > MOST_VOLUME_NAME:
        name.refuse(notes, f"the volume would be called {found}, which is longer than {MOST_VOLUME_NAME} characters")
    return found
