"""The words of mount(8) that a mount of a container may have, as runtimes know them."""

# `ro` and `rw` have a place of their own.
FLAGS = (
    *("exec", "noexec", "suid", "nosuid", "dev", "nodev", "atime", "noatime", "diratime", "nodiratime"),
    *("relatime", "norelatime", "strictatime", "nostrictatime", "sync", "async", "dirsync"),
)
PROPAGATIONS = ("private", "rprivate", "shared", "rshared", "slave", "rslave")
ALONE = "bind"  # without what is mounted below its source
