"""What holds a container back beside its capabilities: facts, as those of `facts`, which has them in its Spec."""

from dataclasses import dataclass

BUILTIN = "builtin"  # exitd's own seccomp profile
UNCONFINED = "unconfined"


@dataclass(frozen=True, slots=True)
class Security:
    """What was asked for. Nothing: what exitd gave before it could be asked, and what a bundle says by itself."""

    seccomp: str = ""  # builtin | unconfined | a profile, JSON as docker reads it
    no_new_privileges: bool | None = None  # None: true, or as the bundle has it
    apparmor: str = ""  # a profile that the kernel has loaded
    selinux: str = ""  # the label of its processes
