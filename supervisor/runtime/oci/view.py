"""The files of a container as it sees them, running or not, by descriptors: no path leads out of its root.

Of one that runs: by the root of its init, in its own mount namespace, so that everything mounted there is seen. The pid
is checked by a pidfd after the root was opened, since it could have become another's. Of one that does not: its
overlay, and its bind mounts and volumes at the places where they were mounted, which are recognised by device and
inode.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack

from shim import native
from shim.frozen import mutable
from supervisor.config.settings import Limits
from supervisor.model.errors import NoSuchPath, ShimFailed, Unsupported, WrongState
from supervisor.model.values import Container, Mount, Process
from supervisor.monitor import epoll
from supervisor.runtime.oci import bundle, rootfs
from supervisor.runtime.oci.inroot import open_in_root
from supervisor.system import regular

ROOT = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
ENTRY = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
MISSING = frozenset({errno.ENOENT, errno.ENOTDIR})


@mutable
class MountedAt:
    """What is mounted over a file or directory of a container that does not run."""

    fd: int
    source: str  # on the machine, without links
    read_only: bool


@mutable
class FilesView:
    """`pidfd` is of the init through whose root it looks; -1 where there is none."""

    root_fd: int
    pidfd: int
    read_only: bool
    mounted: dict[tuple[int, int], MountedAt]
    on_fuse: bool
    crossed: MountedAt | None = None  # by the last path

    def open(self, path: str, *, follow: bool) -> int:
        """Return an O_PATH descriptor. `follow`: also the last part, which a slash at the end asks for, too. The
        caller closes it. Raises NoSuchPath, WrongState."""
        root, self.crossed = f"/proc/self/fd/{self.root_fd}", None
        above, _, last = path.rstrip("/").rpartition("/")
        wants_directory = path.endswith("/")
        try:
            if follow or wants_directory or last in ("", ".", ".."):
                fd = open_in_root(root, path, cross=self.cross)
            else:
                above_fd = open_in_root(root, above, cross=self.cross)
                try:
                    fd = self.cross(os.open(last, ENTRY, dir_fd=above_fd))
                finally:
                    os.close(above_fd)
        except OSError as error:
            if error.errno in MISSING:
                raise NoSuchPath(f"no {path} in the container", path=path) from error
            raise WrongState(f"{path}: {error.strerror or error}", path=path) from error
        if wants_directory and not stat.S_ISDIR(os.fstat(fd).st_mode):
            os.close(fd)
            raise WrongState(f"{path}: not a directory", path=path)
        return fd

    def cross(self, fd: int) -> int:
        """Return a descriptor of what is mounted over it, and close it; itself, if that is nothing."""
        if not self.mounted:
            return fd
        status = os.fstat(fd)
        found = self.mounted.get((status.st_dev, status.st_ino))
        if found is None:
            return fd
        os.close(fd)
        self.crossed = found
        return os.dup(found.fd)

    def cross_to_write(self, fd: int) -> int:
        """As `cross`. Raises WrongState where the container itself could not write."""
        other = self.cross(fd)
        if other != fd and self.crossed is not None and self.crossed.read_only:
            os.close(other)
            raise WrongState("the container has it read-only")
        return other

    def refuse_read_only(self, fd: int, path: str) -> None:
        """Raise WrongState where the container itself could not write to what `open` has just found. Of one that runs
        the kernel does so."""
        place = os.readlink(f"/proc/self/fd/{fd}")
        inside = [m for m in self.mounted.values() if f"{place}/".startswith(f"{m.source.rstrip('/')}/")]
        nearest = max(inside, key=lambda m: (m is self.crossed, len(m.source)), default=None)
        if nearest.read_only if nearest is not None else self.read_only:
            raise WrongState(f"{path}: the container has it read-only", path=path)

    def check(self) -> None:
        """Raise WrongState if the container has ended since it was opened: what was mounted in it is seen no more."""
        if self.pidfd >= 0 and epoll.read_ready(self.pidfd):
            raise WrongState("the container ended meanwhile, and its mounts with it; try again")


@contextlib.contextmanager
def of_running(init: Process) -> Iterator[FilesView]:
    """Raises WrongState when the process has ended; Unsupported where its root is this machine's own."""
    with ExitStack() as held:
        pidfd = epoll.open_process(init.pid, init.started_ticks)
        if pidfd is None:
            raise WrongState("the container has ended; try again")
        held.callback(os.close, pidfd)
        try:
            root_fd = os.open(f"/proc/{init.pid}/root", ROOT)
        except OSError as error:
            raise WrongState(f"the container's root cannot be opened: {error.strerror}; has it ended?") from error
        held.callback(os.close, root_fd)
        if epoll.read_ready(pidfd):
            raise WrongState("the container has ended; try again")
        if os.path.samestat(os.fstat(root_fd), os.stat("/")):  # of a runtime with a machine around its containers
            raise Unsupported("the process of the container has this machine's own root; its files are elsewhere")
        yield FilesView(root_fd, pidfd, False, {}, _is_on_fuse(root_fd))


@contextlib.contextmanager
def of_stopped(container: Container, root: str, merged: str) -> Iterator[FilesView]:
    """`merged`: from `mounted_root`. Raises OSError."""
    with ExitStack() as held:
        root_fd = os.open(merged, ROOT)
        held.callback(os.close, root_fd)
        spec = container.spec
        view = FilesView(root_fd, -1, spec.read_only or rootfs.is_shared(spec), {}, _is_on_fuse(root_fd))
        # Those above come first: what is mounted in another mount is found there.
        for index, mount in sorted(enumerate(spec.mounts), key=lambda each: each[1].destination.count("/")):
            _add(view, mount, bundle.source_of(container, root, index), held)
        yield view


@contextlib.contextmanager
def of_root(merged: str) -> Iterator[FilesView]:
    """The root file system alone. Raises OSError."""
    root_fd = os.open(merged, ROOT)
    try:
        yield FilesView(root_fd, -1, True, {}, _is_on_fuse(root_fd))
    finally:
        os.close(root_fd)


def mounted_root(container: Container, root: str, state: str, limits: Limits) -> str:
    """Mount the overlay of a container that does not run, unless it is there, and return its path. No other work may
    begin a run of it meanwhile. Raises WrongState for a container without one, ShimFailed."""
    spec = container.spec
    if spec.bundle or spec.task is not None:
        raise WrongState(f"{spec.name} has a root file system of its caller's; it can be read while the container runs")
    try:
        apart = bundle.apart_of(state, container.id)
        return rootfs.prepare(spec, f"{bundle.directory_of(root, container.id)}/rootfs", limits, apart)
    except OSError as error:
        raise ShimFailed(f"the files of {spec.name}: {error.strerror or error}") from error


def _add(view: FilesView, mount: Mount, source: str, held: ExitStack) -> None:
    """A place that is not there yet, since the container has not run, or a source that is gone, hides nothing."""
    if not source:
        return
    try:
        in_volume = mount.sub_path
        source_fd = open_in_root(source, in_volume) if in_volume else os.open(source, os.O_PATH | os.O_CLOEXEC)
        held.callback(os.close, source_fd)
        place_fd = open_in_root(f"/proc/self/fd/{view.root_fd}", mount.destination, cross=view.cross)
    except OSError:
        return
    status = os.fstat(place_fd)
    os.close(place_fd)
    view.mounted[status.st_dev, status.st_ino] = MountedAt(
        source_fd, os.readlink(f"/proc/self/fd/{source_fd}"), mount.read_only
    )


def _is_on_fuse(fd: int) -> bool:
    return native.file_system(fd) == regular.FUSE
