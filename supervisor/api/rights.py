"""What a container may do: message to fact, checked, and back. Pure."""

from collections.abc import Iterable

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api.values import bad, one_of
from supervisor.model.errors import BadRequest
from supervisor.model.rights import ALWAYS, DEFAULT_PIDS, LIMITS, NEVER, UNLIMITED, Rights, Ulimit, capability

MOST_PIDS = 1 << 22  # PID_MAX_LIMIT: no machine has more
MOST_GROUPS = 65_536  # NGROUPS_MAX
MOST_ID = 2**32 - 2


def rights_of(message: pb.RightsSpec, *, of_bundle: bool) -> Rights:
    """Return the checked rights; a bundle says by itself what is left open. Raises BadRequest."""
    if of_bundle:
        _refuse_for_bundle(message)
    return Rights(
        privileged=message.privileged,
        cap_add=_capabilities("rights.cap_add", message.cap_add),
        cap_drop=_capabilities("rights.cap_drop", message.cap_drop),
        ulimits=_ulimits(message.ulimits),
        pids_limit=_pids(message, of_bundle=of_bundle),
        groups=_groups(message.groups),
        not_root=message.not_root,
        image_groups=one_of("rights.image_groups", message.image_groups, ("", ALWAYS, NEVER)),
    )


def rights_message(rights: Rights) -> pb.RightsSpec:
    """Return the message of rights, as `rights_of` reads it."""
    return pb.RightsSpec(
        privileged=rights.privileged,
        cap_add=rights.cap_add,
        cap_drop=rights.cap_drop,
        ulimits=[pb.Ulimit(name=each.name, soft=each.soft, hard=each.hard) for each in rights.ulimits],
        pids_limit=rights.pids_limit,
        groups=rights.groups,
        not_root=rights.not_root,
        image_groups=rights.image_groups,
    )


def _refuse_for_bundle(message: pb.RightsSpec) -> None:
    for field in ("privileged", "cap_add", "cap_drop", "groups", "not_root", "image_groups"):
        if getattr(message, field):
            raise BadRequest(f"rights.{field}: a bundle says that itself, in its config.json", field=f"rights.{field}")


def _capabilities(field: str, words: Iterable[str]) -> tuple[str, ...]:
    found = []
    for word in words:
        name = capability(word)
        if name is None:
            raise bad(field, word, "ALL or a capability, as NET_ADMIN or CAP_NET_ADMIN (capabilities(7))")
        found.append(name)
    return tuple(dict.fromkeys(found))


def _ulimits(messages: Iterable[pb.Ulimit]) -> tuple[Ulimit, ...]:
    """Of two with the same name the later one counts."""
    found: dict[str, Ulimit] = {}
    for each in messages:
        if each.name not in LIMITS:
            raise bad("rights.ulimits", each.name, ", ".join(LIMITS))
        if each.soft > each.hard:
            pair = f"{each.name}={_shown(each.soft)}:{_shown(each.hard)}"
            raise bad("rights.ulimits", pair, "a soft limit that is not above the hard one")
        found[each.name] = Ulimit(each.name, each.soft, each.hard)
    return tuple(found.values())


def _shown(limit: int) -> str:
    return "unlimited" if limit == UNLIMITED else str(limit)


def _pids(message: pb.RightsSpec, *, of_bundle: bool) -> int:
    if not message.HasField("pids_limit"):
        return 0 if of_bundle else DEFAULT_PIDS
    if message.pids_limit > MOST_PIDS:
        raise bad("rights.pids_limit", str(message.pids_limit), f"1 to {MOST_PIDS}, or 0 for no limit")
    return max(0, message.pids_limit)


def _groups(numbers: Iterable[int]) -> tuple[int, ...]:
    groups = tuple(dict.fromkeys(group_of("rights.groups", number) for number in numbers))
    if len(groups) > MOST_GROUPS:
        raise bad("rights.groups", f"{len(groups)} of them", f"at most {MOST_GROUPS}")
    return groups


def group_of(field: str, number: int) -> int:
    """Return the number of a group. Raises BadRequest, also for the last one, which means none to the kernel."""
    if number > MOST_ID:
        raise bad(field, str(number), f"the number of a group, at most {MOST_ID}")
    return number
