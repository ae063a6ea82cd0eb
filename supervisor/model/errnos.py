"""What the errors of system calls say to their caller: docs/errnos.md goes through the places, one by one."""

import errno

# pidfd_open(2) of a number that no process has: ESRCH; where it is a thread's id by now EINVAL, and on newer kernels
# ENOENT. EMFILE, ENFILE and ENOMEM say nothing about the process.
NO_PROCESS = frozenset({errno.ESRCH, errno.ENOENT, errno.EINVAL})

# A file that is not there: its way is gone (ENOENT, ENOTDIR), or something else stands in its place, which open(2) with
# O_NOFOLLOW, or of a socket or a fifo without a reader, refuses (ELOOP, ENXIO, EISDIR).
NO_FILE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO, errno.EISDIR})

# The kernel, or a limit of this process, has nothing left for the call, and may have in a moment; it says nothing about
# what the call was for. EAGAIN: no more processes or threads; ETOOMANYREFS: descriptors under way, unix(7).
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
    """Return the words of an error in the state directory, and what it means there where that is known."""
    why = _WHY.get(error.errno or 0)
    return f"{error.strerror}; {why}" if why else str(error.strerror)
