"""What a pod knows of itself and of its machine (the downward API), for variables and for files. Pure.

Source: "Downward API" of Kubernetes' concepts; core/v1 ObjectFieldSelector and ResourceFieldSelector.
"""

import json
import math
from collections.abc import Mapping
from fractions import Fraction

from shim.frozen import frozen
from supervisor.cli.manifest.fields import Field, Notes, text_of
from supervisor.cli.manifest.podshape import amount

LOOPBACK = "127.0.0.1"
KNOWN = (
    "metadata.name, .namespace, .uid, .labels['KEY'], .annotations['KEY'], spec.nodeName, spec.serviceAccountName, "
    "status.podIP, .podIPs, .hostIP, .hostIPs"
)
RESOURCES = ("limits.cpu", "limits.memory", "requests.cpu", "requests.memory")


@frozen
class NodeFacts:
    """What a pod may learn of the machine."""

    name: str = "localhost"
    address: str = LOOPBACK
    cpus: int = 1
    memory_bytes: int = 1 << 30


@frozen
class Downward:
    """A pod's own data. `containers`: all of its containers by name."""

    name: str
    namespace: str
    uid: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    containers: Mapping[str, Field]
    node: NodeFacts
    host_network: bool
    address_mark: str = ""  # stands for its own address, which each new sandbox of it may have another one of

    @property
    def address(self) -> str:
        return self.node.address if self.host_network else self.address_mark

    def of_field(self, ref: Field, notes: Notes) -> str:
        """Return the value of a fieldRef."""
        path = ref.get("fieldPath")
        assert path is not None
        word = path.text()
        known = {
            "metadata.name": self.name,
            "metadata.namespace": self.namespace,
            "metadata.uid": self.uid,
            "spec.nodeName": self.node.name,
            "spec.serviceAccountName": "default",
            "status.podIP": self.address,
            "status.podIPs": self.address,
            "status.hostIP": self.node.address,
            "status.hostIPs": self.node.address,
        }
        for name, pairs in (("labels", self.labels), ("annotations", self.annotations)):
            if word.startswith(f"metadata.{name}['") and word.endswith("']"):
                return pairs.get(word[len(f"metadata.{name}['") : -2], "")
        if word not in known:
            path.refuse(notes, f"{word!r} is not known here; there are {KNOWN}")
        return known.get(word, "")

    def of_file(self, item: Field, notes: Notes) -> str:
        """Return the text of a file of a downwardAPI volume, which may also have all labels or annotations."""
        field_ref, resource = item.get("fieldRef"), item.get("resourceFieldRef")
        if (field_ref is None) is (resource is None):
            item.refuse(notes, "has either a fieldRef or a resourceFieldRef")
            return ""
        if resource is not None:
            name = resource.get("containerName")
            if name is None:
                resource.refuse(notes, "containerName is missing: a volume is all containers'")
                return ""
            return self.of_resource(resource, None, notes)
        assert field_ref is not None
        pairs = {"metadata.labels": self.labels, "metadata.annotations": self.annotations}.get(
            text_of(field_ref.get("fieldPath"))
        )
        if pairs is None:
            return self.of_field(field_ref, notes)
        return "\n".join(f"{key}={json.dumps(pairs[key], ensure_ascii=False)}" for key in sorted(pairs))

    def of_resource(self, ref: Field, own: Field | None, notes: Notes) -> str:
        """Return the value of a resourceFieldRef, of the container `own` unless it names another one."""
        name, resource, divisor = ref.get("containerName"), ref.get("resource"), ref.get("divisor")
        container = self.containers.get(name.text()) if name is not None else own
        if container is None:
            if name is not None:
                name.refuse(notes, f"there is no container {name.text()!r}; there are {', '.join(self.containers)}")
            return ""
        word = text_of(resource)
        if word not in RESOURCES:
            if resource is not None:
                resource.refuse(notes, f"{word!r} is not known here; there are {', '.join(RESOURCES)}")
            return ""
        by = amount(divisor) if divisor is not None else Fraction(0)
        return str(math.ceil(self._amount(container, *word.split(".")) / (by or 1)))

    def _amount(self, container: Field, kind: str, resource: str) -> Fraction:
        """As Kubernetes: without a request the limit, without a limit what the machine has."""
        limit = container.get("resources", "limits", resource)
        asked = limit if kind == "limits" else container.get("resources", "requests", resource) or limit
        if asked is not None:
            return amount(asked)
        if kind == "requests":
            return Fraction(0)
        return Fraction(self.node.cpus if resource == "cpu" else self.node.memory_bytes)
