"""What a container may do, in config.json's form: capabilities, limits, devices, visible parts of the machine. Pure."""

from shim.frozen import frozen
from supervisor.model.errors import BadRequest
from supervisor.model.rights import DEFAULT_PIDS, NOT_ROOT, Rights, capabilities
from supervisor.runtime.oci.users import Ids

# docker's, of 2025; those of the machine's processors are added.
MASKED_PATHS = (
    "/proc/acpi",
    "/proc/asound",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/sys/devices/virtual/powercap",
    "/sys/firmware",
)
READONLY_PATHS = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")
SOFT_FILES = 1024  # the number that select(2) can handle; programs that need more raise it to the hard limit themselves
MOST_FILES = 524288


@frozen
class Device:
    """A node in /dev; `kind` is c or b."""

    path: str
    kind: str
    major: int
    minor: int
    mode: int
    uid: int
    gid: int


def capability_sets(rights: Rights, user: Ids, available: tuple[str, ...]) -> dict[str, list[str]]:
    """Only root holds capabilities at the start, as if execve(2) had made the process."""
    bounding = list(capabilities(rights, available))
    held = bounding if user.uid == 0 else []
    return {"bounding": bounding, "effective": list(held), "permitted": list(held)}


def rlimits(rights: Rights, hard_files: int) -> list[dict[str, object]]:
    """`hard_files`: the daemon's own limit of open files, below 0 for none."""
    hard = max(1, min(hard_files if hard_files > 0 else MOST_FILES, MOST_FILES))
    files = {"RLIMIT_NOFILE": {"type": "RLIMIT_NOFILE", "soft": min(SOFT_FILES, hard), "hard": hard}}
    return list({**files, **_asked(rights)}.values())


def with_rlimits(given: list[dict[str, object]], rights: Rights) -> list[dict[str, object]]:
    """Return a bundle's own limits, overridden by those that were asked for."""
    return list({**{str(each.get("type")): each for each in given}, **_asked(rights)}.values())


def _asked(rights: Rights) -> dict[str, dict[str, object]]:
    kinds = {f"RLIMIT_{each.name.upper()}": each for each in rights.ulimits}
    return {kind: {"type": kind, "soft": each.soft, "hard": each.hard} for kind, each in kinds.items()}


def pids(rights: Rights, *, lacking: str) -> dict[str, object]:
    """Return the part of `resources`. `lacking`: why the number of processes cannot be limited here; then the default
    is no limit. Raises BadRequest."""
    if not rights.pids_limit:
        return {}
    if lacking:
        if rights.pids_limit != DEFAULT_PIDS:
            raise BadRequest(f"rights.pids_limit: {lacking}; or ask for no limit")
        return {}
    return {"pids": {"limit": rights.pids_limit}}


def device_rules(rights: Rights) -> list[dict[str, object]]:
    """Return which of the machine's devices it may use; a runtime adds those that every container has."""
    return [{"allow": rights.privileged, "access": "rwm"}]


def device_grants(asked: tuple[tuple[Device, str], ...]) -> list[dict[str, object]]:
    """Return the rules for devices that the caller named, each with its access."""
    return [
        {"allow": True, "type": device.kind, "major": device.major, "minor": device.minor, "access": access}
        for device, access in asked
    ]


def device_nodes(devices: tuple[Device, ...]) -> list[dict[str, object]]:
    """Return linux.devices of runtime-spec (config-linux.md, Devices)."""
    return [
        {
            "path": each.path,
            "type": each.kind,
            "major": each.major,
            "minor": each.minor,
            "fileMode": each.mode,
            "uid": each.uid,
            "gid": each.gid,
        }
        for each in devices
    ]


def user_of(rights: Rights, user: Ids) -> Ids:
    """Return the user with the groups that were asked for. Raises BadRequest when it is root, and must not be."""
    if rights.not_root and user.uid == 0:
        raise BadRequest(f"its user is root, and {NOT_ROOT} forbids that: choose another, as in 1000", field=NOT_ROOT)
    return with_groups(rights, user)


def with_groups(rights: Rights, user: Ids) -> Ids:
    """Return the user with the groups that were asked for in addition to its own."""
    groups = tuple(dict.fromkeys((*user.additional_gids, *rights.groups)))
    return Ids(user.uid, user.gid, groups, user.home)
