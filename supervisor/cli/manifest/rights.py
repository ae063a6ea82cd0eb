"""Converts the rights in the securityContexts of a container and its pod to a request. Pure."""

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.cli.manifest.fields import Field, Notes, flag_of, text_of
from supervisor.model.rights import ALWAYS, NEVER, capability


def capability_name(field: Field) -> str:
    """Return the capability's name. Raises WrongField."""
    name = capability(field.text())
    if name is None:
        raise field.wrong(f"{field.text()!r} is no capability; write NET_ADMIN, or ALL")
    return name


def rights_of(own: Field | None, pods: Field | None) -> pb.RightsSpec | None:
    """Return None if nothing is asked for. Groups are the pod's, with fsGroup. Kubernetes adds the image's groups even
    if a group is named, which docker does not."""
    rights = pb.RightsSpec(
        privileged=is_privileged(own),
        cap_add=[capability_name(each) for each in _items(_get(own, "capabilities", "add"))],
        cap_drop=[capability_name(each) for each in _items(_get(own, "capabilities", "drop"))],
        groups=[each.integer() for each in (*_items(_get(pods, "supplementalGroups")), *_one(_get(pods, "fsGroup")))],
        not_root=flag_of(not_root(own, pods)),
        image_groups=_image_groups(own, pods),
    )
    return rights if rights.ListFields() else None


def is_privileged(own: Field | None) -> bool:
    return flag_of(_get(own, "privileged"))


def not_root(own: Field | None, pods: Field | None) -> Field | None:
    """Return the runAsNonRoot that counts: the container's own, else its pod's."""
    return _get(own, "runAsNonRoot") or _get(pods, "runAsNonRoot")


def _image_groups(own: Field | None, pods: Field | None) -> str:
    """Return the API's value; empty if docker does the same."""
    if text_of(_get(pods, "supplementalGroupsPolicy")) == "Strict":
        return NEVER
    return ALWAYS if _get(own, "runAsGroup") or _get(pods, "runAsGroup") else ""


def refuse_contradictions(own: Field | None, notes: Notes) -> None:
    """Refuse what Kubernetes' API server refuses, and what its container engines interpret in different ways."""
    added = {capability_name(each): each for each in _items(_get(own, "capabilities", "add"))}
    dropped = {capability_name(each) for each in _items(_get(own, "capabilities", "drop"))}
    for name, field in added.items():
        if name in dropped:
            field.refuse(notes, f"{name} is dropped as well; say one of the two")
    grows = _get(own, "allowPrivilegeEscalation")
    if grows is None or grows.boolean():
        return
    if is_privileged(own):
        grows.refuse(notes, "contradicts privileged: true; drop one")
    if "CAP_SYS_ADMIN" in added:
        grows.refuse(notes, "contradicts capabilities.add SYS_ADMIN; drop one")


def fs_group(pods: Field | None) -> int | None:
    """Return the group of the pod's volumes."""
    field = _get(pods, "fsGroup")
    return None if field is None else field.integer()


def _get(field: Field | None, *names: str) -> Field | None:
    return None if field is None else field.get(*names)


def _items(field: Field | None) -> tuple[Field, ...]:
    return () if field is None else field.items()


def _one(field: Field | None) -> tuple[Field, ...]:
    return () if field is None else (field,)
