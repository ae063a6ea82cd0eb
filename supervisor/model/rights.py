"""What a container's processes may do, and how many of them there may be: values, and the names of rights and
limits."""

from shim.frozen import frozen

DEFAULT_PIDS = 2048
UNLIMITED = 2**64 - 1  # RLIM_INFINITY, setrlimit(2)
EVERY = "ALL"
NOT_ROOT = "rights.not_root"  # the field of the API
ALWAYS, NEVER = "always", "never"

# capabilities(7), in the order of their numbers.
NAMES = tuple(
    f"CAP_{name}"
    for name in """
    CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP LINUX_IMMUTABLE NET_BIND_SERVICE
    NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO SYS_CHROOT SYS_PTRACE SYS_PACCT SYS_ADMIN
    SYS_BOOT SYS_NICE SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG MKNOD LEASE AUDIT_WRITE AUDIT_CONTROL SETFCAP MAC_OVERRIDE
    MAC_ADMIN SYSLOG WAKE_ALARM BLOCK_SUSPEND AUDIT_READ PERFMON BPF CHECKPOINT_RESTORE
    """.split()  # noqa: SIM905 - a list of 41 lines
)
# Docker's defaults.
DEFAULT = (
    "CAP_AUDIT_WRITE",
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_FOWNER",
    "CAP_FSETID",
    "CAP_KILL",
    "CAP_MKNOD",
    "CAP_NET_BIND_SERVICE",
    "CAP_NET_RAW",
    "CAP_SETFCAP",
    "CAP_SETGID",
    "CAP_SETPCAP",
    "CAP_SETUID",
    "CAP_SYS_CHROOT",
)
# setrlimit(2), without RLIMIT_.
LIMITS = (
    *("as", "core", "cpu", "data", "fsize", "locks", "memlock", "msgqueue", "nice", "nofile", "nproc"),
    *("rss", "rtprio", "rttime", "sigpending", "stack"),
)


@frozen
class Ulimit:
    """One of LIMITS, setrlimit(2)."""

    name: str
    soft: int
    hard: int


@frozen
class Rights:
    """The rights that were asked for. Without any: exitd's defaults, or what the bundle says."""

    privileged: bool = False
    cap_add: tuple[str, ...] = ()  # of NAMES, or EVERY
    cap_drop: tuple[str, ...] = ()
    ulimits: tuple[Ulimit, ...] = ()
    pids_limit: int = 0  # processes and threads; 0: no limit, or the bundle's own
    groups: tuple[int, ...] = ()  # in addition to those of its user
    not_root: bool = False  # of the image, those that list its user: ALWAYS, NEVER; "" as docker: unless one is named
    image_groups: str = ""  # those that list its user in the image: ALWAYS, NEVER; "" is docker's: unless one is named


def capability(word: str) -> str | None:
    """Return one of NAMES or EVERY for any spelling of it; None if there is no such capability."""
    name = word.upper()
    if name == EVERY:
        return name
    full = name if name.startswith("CAP_") else f"CAP_{name}"
    return full if full in NAMES else None


def capabilities(rights: Rights, available: tuple[str, ...] = NAMES) -> tuple[str, ...]:
    """Return the bounding set that was asked for, sorted. A capability both added and dropped is added; ALL means
    `available`."""
    if rights.privileged:
        return tuple(sorted(available))
    if EVERY in rights.cap_add:
        return tuple(sorted({*available} - {*rights.cap_drop} | ({*rights.cap_add} - {EVERY})))
    begun = () if EVERY in rights.cap_drop else DEFAULT
    return tuple(sorted({*begun} - {*rights.cap_drop} | {*rights.cap_add}))
