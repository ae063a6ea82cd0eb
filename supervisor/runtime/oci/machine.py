"""What a privileged container gets of this machine and others must not see, and the devices that a caller names: looked
up when a container is made."""

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import lru_cache

from shim.frozen import replace
from supervisor.model.errors import BadRequest
from supervisor.model.idranges import IdRange
from supervisor.model.limits import HostDevice
from supervisor.model.rights import NAMES
from supervisor.model.values import OWN_PROFILE as OWN_PROFILE
from supervisor.runtime.oci.privileges import Device

# File systems that are private to every container, and nodes that a runtime makes itself.
OWN = frozenset({"pts", "shm", "fd", "mqueue", "console", "ptmx", "null", "zero", "full", "tty", "random", "urandom"})

# docker's, for a container with its own network: every user in it may send an echo, and serve on every port.
PING_GROUPS = "net.ipv4.ping_group_range"
NETWORK = (("net.ipv4.ip_unprivileged_port_start", "0"), (PING_GROUPS, "0 2147483647"))
EVERY_ID = ["0", "0", "4294967295"]  # user_namespaces(7): of the initial one


@lru_cache(maxsize=1)
def capabilities(status: str = "/proc/self/status") -> tuple[str, ...]:
    """Return the capabilities that this process can pass on: its bounding set, proc(5). Only the process itself can
    change it, and exitd never does: it is looked up once."""
    with open(status, encoding="ascii", errors="replace") as file:
        words = dict(line.split(":", 1) for line in file if ":" in line)
    held = int(words["CapBnd"], 16)
    return tuple(name for number, name in enumerate(NAMES) if held >> number & 1)


def sysctls(
    directory: str = "/proc/sys", groups: str = "/proc/self/gid_map", ids: IdRange | None = None
) -> tuple[tuple[str, str], ...]:
    """Return those of NETWORK that this kernel has, by their configuration names. In a user namespace that lacks some
    groups the kernel refuses the range, so there are none; one of its own, with `ids`, gets all of these."""
    found = [(name, value) for name, value in NETWORK if os.path.exists(f"{directory}/{name.replace('.', '/')}")]
    if ids is not None:
        return tuple((name, f"0 {ids.count - 1}" if name == PING_GROUPS else value) for name, value in found)
    has_all_groups = _has_all_groups(groups)
    return tuple(each for each in found if has_all_groups or each[0] != PING_GROUPS)


def _has_all_groups(path: str) -> bool:
    try:
        with open(path, encoding="ascii") as file:
            return file.read().split() == EVERY_ID
    except FileNotFoundError:  # no CONFIG_USER_NS: the only user namespace has all groups
        return True


def has_apparmor(enabled: str = "/sys/module/apparmor/parameters/enabled") -> bool:
    """Return whether the kernel has AppArmor, and it is enabled."""
    try:
        with open(enabled, encoding="ascii") as file:
            return file.read(1) == "Y"
    except OSError:
        return False


def own_profile(profiles: str = "/sys/kernel/security/apparmor/profiles") -> str:
    """Return the name of exitd's own AppArmor profile if the kernel has loaded it; else an empty string."""
    try:
        with open(profiles, encoding="utf-8", errors="replace") as file:
            loaded = (line.rpartition(" (")[0] for line in file)  # each with its mode
            return OWN_PROFILE if OWN_PROFILE in loaded else ""
    except OSError:  # the kernel has no AppArmor, or securityfs is not mounted
        return ""


def has_selinux(directory: str = "/sys/fs/selinux") -> bool:
    """Return whether the kernel has SELinux and its file system is mounted, which is what runtimes check."""
    return os.path.exists(f"{directory}/enforce")


def throttles(cpus: str = "/sys/devices/system/cpu") -> tuple[str, ...]:
    """Return the directories that count how often each processor was too hot: containers could use them as a common
    clock."""
    try:
        names = [name for name in os.listdir(cpus) if name.startswith("cpu") and name[3:4].isdigit()]
    except OSError:
        return ()
    places = (f"{cpus}/{name}/thermal_throttle" for name in sorted(names))
    return tuple(place for place in places if os.path.exists(place))


def devices(directory: str = "/dev") -> tuple[Device, ...]:
    """Return all nodes below `directory`, by path, without links and without those that every container has anyway."""
    return tuple(sorted(_devices(directory, OWN), key=lambda device: device.path))


def asked_devices(asked: Iterable[HostDevice]) -> tuple[tuple[Device, str], ...]:
    """Return the nodes that a caller named, at their paths in the container, each with its access; of a directory all
    that are below it. Raises BadRequest for what is no device."""
    found = []
    for each in asked:
        nodes = _asked(each)
        if not nodes:
            raise BadRequest(f"device {each.source!r}: no device, and no directory with one in it", field="devices")
        inside = each.path or each.source
        found += [(replace(node, path=f"{inside}{node.path[len(each.source) :]}"), each.access) for node in nodes]
    return tuple(found)


def _asked(asked: HostDevice) -> tuple[Device, ...]:
    try:
        looked = os.stat(asked.source)
    except OSError as error:
        raise BadRequest(f"device {asked.source!r}: {error.strerror}", field="devices") from error
    if stat.S_ISDIR(looked.st_mode):
        return tuple(sorted(_devices(asked.source, OWN), key=lambda device: device.path))
    device = _device(asked.source, looked)
    return (device,) if device else ()


def _devices(directory: str, left_out: frozenset[str] = frozenset()) -> Iterator[Device]:
    entries: list[os.DirEntry[str]] = []
    with suppress(OSError):  # removed meanwhile
        entries = [entry for entry in os.scandir(directory) if entry.name not in left_out]
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            yield from _devices(entry.path)
            continue
        with suppress(FileNotFoundError):
            if device := _device(entry.path, entry.stat(follow_symlinks=False)):
                yield device


def _device(path: str, found: os.stat_result) -> Device | None:
    kind = "c" if stat.S_ISCHR(found.st_mode) else "b" if stat.S_ISBLK(found.st_mode) else ""
    if not kind:
        return None
    numbers = os.major(found.st_rdev), os.minor(found.st_rdev)
    return Device(path, kind, *numbers, stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid)
