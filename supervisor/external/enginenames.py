"""Reads what containers are called from the files of docker, podman, CRI-O and containerd's CRI, see `enginefiles`.

All of it runs in threads, whose limits of time are their callers': the file systems are others'. A file that belongs to
neither root nor the user who could write the state that led to it is not read, none that is not a regular file, and
none on FUSE. To parse JSON takes 30 times its size in memory and holds the interpreter: a user gets little of that.
"""

import os
import stat
import threading
from weakref import WeakValueDictionary

import structlog

from shim.frozen import frozen
from supervisor.model import enginefiles, whose
from supervisor.model.values import NO_NAMES, Names
from supervisor.system import regular

DOCKER_ROOT = "/var/lib/docker/containers"  # where docker's default data-root has them
MOST_CONFIG_BYTES = 4 << 20  # of a bundle's config.json and of docker's file
MOST_STORAGE_BYTES = 16 << 20  # of podman's containers.json: twenty thousand containers
MOST_USERS_BYTES = 256 << 10  # of either, where a state leads to it that another user than root could write

log = structlog.get_logger(__name__)


@frozen
class _StorageRead:
    """A containers.json as it was read last: while it is the same file, it is not read again."""

    path: str
    writer: int  # of the states that led to it: to others it may be closed
    mark: tuple[int, int, int, int]
    found: dict[str, Names]


class EngineNames:
    """Called from threads. The names of a state directory's containers come from one containers.json,
    which is kept until it changes."""

    def __init__(self) -> None:
        self._storage: _StorageRead | None = None
        self._turns: WeakValueDictionary[str, threading.Lock] = WeakValueDictionary()  # by path: one may hang

    def of_bundle(self, bundle: str, id: str, writer: int) -> Names:
        """Return the names of a container of runc's or crun's; none where no engine has named it, or its files cannot
        be read. `writer`: the uid that could write the state that names the bundle."""
        if not bundle or writer == whose.ANY_USER:
            return NO_NAMES
        words = enginefiles.bundle_words(self._text(f"{bundle}/config.json", writer, MOST_CONFIG_BYTES))
        if words.names.pod or words.names.namespace:
            return words.names
        if words.docker:
            return self._dockers(os.path.dirname(words.docker), id, writer)
        storage = enginefiles.storage_of(bundle)
        if words.is_podmans and storage:
            return enginefiles.in_pod(self._podmans(storage, writer).get(id, NO_NAMES), words.pod)
        return words.names

    def of_docker(self, id: str) -> Names:
        """Return the names of a container in docker's default place; none where it has no such container."""
        return self._dockers(DOCKER_ROOT, id, whose.ROOT)

    def _dockers(self, directory: str, id: str, writer: int) -> Names:
        path = enginefiles.docker_config(directory, id)
        return enginefiles.dockers(self._text(path, writer, MOST_CONFIG_BYTES)) if path else NO_NAMES

    def _podmans(self, path: str, writer: int) -> dict[str, Names]:
        with self._turns.setdefault(path, threading.Lock()):
            known = self._storage
            mark = _mark(path)
            if known is None or (known.path, known.writer, known.mark) != (path, writer, mark) or mark is None:
                found = enginefiles.podmans(self._text(path, writer, MOST_STORAGE_BYTES))
                if mark is None:
                    return found
                known = self._storage = _StorageRead(path, writer, mark, found)
            return known.found

    def _text(self, path: str, writer: int, most_bytes: int) -> str:
        """Return the text; empty if it cannot be read, is too large, or another user's."""
        most_bytes = most_bytes if writer == whose.ROOT else min(most_bytes, MOST_USERS_BYTES)
        try:
            fd = regular.open_path(path, follow=False, fuse=False)
            found, data = os.fstat(fd), b""
            if may_read := found.st_uid in (whose.ROOT, writer) and found.st_size <= most_bytes:
                data = regular.read_all(fd, most_bytes + 1)  # it may have grown meanwhile
            else:
                os.close(fd)
        except OSError as error:
            if not isinstance(error, FileNotFoundError | NotADirectoryError):
                log.info("names cannot be read", path=path, why=str(error))
            return ""
        if not may_read or len(data) > most_bytes:
            log.info("names are not read", path=path, owner=found.st_uid, size_bytes=found.st_size)
            return ""
        return data.decode(errors="replace")


def _mark(path: str) -> tuple[int, int, int, int] | None:
    """Return what changes with the file; None if there is none."""
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return (found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size) if stat.S_ISREG(found.st_mode) else None
