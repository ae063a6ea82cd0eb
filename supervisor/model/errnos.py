"""What the errors of system calls mean to the caller. docs/errnos.md goes through the places one by one."""

import errno

# pidfd_open(2) of a number that no process has: ESRCH. If the number is now a thread's id: EINVAL, on newer kernels
# ENOENT. EMFILE, ENFILE and ENOMEM say nothing about the process.
NO_PROCESS = frozenset({errno.ESRCH, errno.ENOENT, errno.EINVAL})

# A file that does not exist: its path is gone (ENOENT, ENOTDIR), or something else stands there which open(2) refuses,
# with O_NOFOLLOW or because it is a socket or a fifo without a reader (ELOOP, ENXIO, EISDIR).
NO_FILE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO, errno.EISDIR})

# The kernel or a limit of this process has no room for the call, and may have in a moment; this says nothing about the
# object of the call. EAGAIN: no more processes or threads. ETOOMANYREFS: too many descriptors in flight, unix(7).
USED_UP = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS, errno.EAGAIN, errno.ETOOMANYREFS})

_WHY = {
    errno.ENOSPC: "is the state directory full?",
    errno.EDQUOT: "is the state directory full?",
    errno.EMFILE: "exitd has as many files open as it may",
    errno.ENFILE: "the machine has as many files open as it may",
    errno.ENOMEM: "the machine has no memory left",
    errno.EROFS: "the state directory's file system is read-only",
}


def said(error: OSError) -> str:
    """Return the text of an error in the state directory, with what it means there if that is known."""
    why = _WHY.get(error.errno or 0)
    return f"{error.strerror}; {why}" if why else str(error.strerror)
