"""Opens files that other users may have made, without ever blocking: a regular file on a disk or in memory, or an
error."""

import errno
import os
import stat

from shim import native

# statfs(2). The kernel's own file systems may block a read (/proc/kmsg) or change something on it: a user who puts a
# link there in place of a file must not make exitd follow it.
MADE_UP = frozenset(
    {
        0x9FA0,  # proc
        0x62656572,  # sysfs
        0x64626720,  # debugfs
        0x74726163,  # tracefs
        0x27E0EB,  # cgroup
        0x63677270,  # cgroup2
        0x1CD1,  # devpts
        0x19800202,  # mqueue
        0x62656570,  # configfs
        0x73636673,  # securityfs
        0xF97CFF8C,  # selinuxfs
        0x6165676C,  # pstore
        0xDE5E81E4,  # efivarfs
        0xCAFE4A11,  # bpf
        0x42494E4D,  # binfmt_misc
        0x0187,  # a look at it mounts, or waits for the mount
        0x6E736673,  # nsfs
        0x50494446,  # pidfs
    }
)
FUSE = 0x65735546  # a program answers, or does not


class NotRegular(OSError):
    """The file exists, but is no regular file on a disk or in memory."""


def check(fd: int, path: str, *, fuse: bool = True) -> None:
    """Raise NotRegular unless `fd` (O_PATH is enough) may be read. `fuse`: accept files of a FUSE file system."""
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        raise NotRegular(errno.EINVAL, "not a regular file", path)
    kind = native.file_system(fd)
    if kind in MADE_UP or (kind == FUSE and not fuse):
        raise NotRegular(errno.EINVAL, "not on a disk: the kernel or a program would make its content up", path)


def open_found(found_fd: int, path: str, *, fuse: bool = True) -> int:
    """Return a descriptor for reading what an O_PATH descriptor has found; the caller closes both. Raises NotRegular,
    OSError."""
    check(found_fd, path, fuse=fuse)
    return os.open(f"/proc/self/fd/{found_fd}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)


def open_path(path: str, *, follow: bool = True, fuse: bool = True) -> int:
    """Return a descriptor for reading the file; the caller closes it. It is checked before it is opened: opening alone
    may block, or rewind a tape. `follow`: the last part may be a link. `fuse`: as `check`. Raises NotRegular,
    OSError."""
    found_fd = os.open(path, os.O_PATH | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW))
    try:
        return open_found(found_fd, path, fuse=fuse)
    finally:
        os.close(found_fd)


def read_all(fd: int, most_bytes: int) -> bytes:
    """Return the first `most_bytes` from the descriptor's position, and close it."""
    with open(fd, "rb") as file:
        return file.read(most_bytes)


def read(path: str, *, most_bytes: int, follow: bool = True) -> bytes:
    """Return the first `most_bytes` of the file; a caller that needs all of it asks for one more. Raises NotRegular,
    OSError."""
    return read_all(open_path(path, follow=follow), most_bytes)
