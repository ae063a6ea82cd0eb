"""What the securityContexts of a container and its pod say about rights, into a request. Pure."""

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.cli.manifest.fields import Field, flag_of
from supervisor.rights import capability


def capability_name(field: Field) -> str:
    """Raises Wrong."""
    name = capability(field.text())
    if name is None:
        raise field.wrong(f"{field.text()!r} is no capability; write NET_ADMIN, or ALL")
    return name


def rights_of(own: Field | None, pods: Field | None) -> pb.RightsSpec | None:
    """None where nothing is said. Groups are the pod's, fsGroup among them."""
    rights = pb.RightsSpec(
        privileged=flag_of(_get(own, "privileged")),
        cap_add=[capability_name(each) for each in _items(_get(own, "capabilities", "add"))],
        cap_drop=[capability_name(each) for each in _items(_get(own, "capabilities", "drop"))],
        groups=[each.integer() for each in (*_items(_get(pods, "supplementalGroups")), *_one(_get(pods, "fsGroup")))],
        not_root=flag_of(_get(own, "runAsNonRoot") or _get(pods, "runAsNonRoot")),
    )
    return rights if rights.ListFields() else None


def fs_group(pods: Field | None) -> int | None:
    """Whose the pod's volumes are."""
    field = _get(pods, "fsGroup")
    return None if field is None else field.integer()


def _get(field: Field | None, *names: str) -> Field | None:
    return None if field is None else field.get(*names)


def _items(field: Field | None) -> tuple[Field, ...]:
    return () if field is None else field.items()


def _one(field: Field | None) -> tuple[Field, ...]:
    return () if field is None else (field,)
