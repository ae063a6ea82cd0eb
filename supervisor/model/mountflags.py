"""The words of mount(8) that a mount of a container may have, as runtimes know them."""

# `ro` and `rw` have a place of their own.
FLAGS = (
    *("exec", "noexec", "suid", "nosuid", "dev", "nodev", "atime", "noatime", "diratime", "nodiratime"),
    *("relatime", "norelatime", "strictatime", "nostrictatime", "sync", "async", "dirsync"),
)
PROPAGATIONS = ("private", "rprivate", "shared", "rshared", "slave", "rslave")
ALONE = "bind"  # without what is mounted below its source
# What a mount keeps from its source in a user namespace of its own, and the flag of statvfs(3); mount_namespaces(7).
KEPT = {"ro": 1, "nosuid": 2, "nodev": 4, "noexec": 8}
