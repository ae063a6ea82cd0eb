"""The files of mounts that are made of files, and empty directories in memory. All of it is below the container's own
directory, which only root may enter; what is secret is on a tmpfs.

ROOT/c/ID/files/N       the files of mount N
ROOT/c/ID/secrets/      a tmpfs, if a mount is secret
ROOT/c/ID/secrets/N     the files of the secret mount N

They are made anew for each run: whatever a privileged container may have made of them is removed, and nothing of it is
followed.
"""

import os
from contextlib import suppress

from shim.frozen import frozen
from supervisor.model.idranges import IdRange
from supervisor.model.secrets import MountedFile
from supervisor.model.values import Mount
from supervisor.runtime.oci import rootfs
from supervisor.system.removal import remove_tree

PRIVATE = 0o700
FILES, SECRETS = "files", "secrets"
SECRETS_OPTIONS = "mode=0700,size=64m,nr_inodes=64k"
OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
GROUP_READS, GROUP_ENTERS = 0o040, 0o050


def source_of(directory: str, index: int, mount: Mount) -> str:
    """Return what a container mounts: a directory, or the one file of a single mount."""
    place = f"{directory}/{SECRETS if mount.secret else FILES}/{index}"
    return f"{place}/{mount.files[0].path}" if mount.single else place


@frozen
class FileOwners:
    """Whose the files are: a user, -1 for exitd's own, and a group, None for the user's."""

    user: int = -1
    group: int | None = None

    @property
    def ids(self) -> tuple[int, int]:
        """As fchown(2) takes them."""
        return self.user, self.user if self.group is None else self.group


def owners_of(mount: Mount, ids: IdRange | None) -> FileOwners:
    """Return the owners of a mount's files: the container's root, and the mount's group."""
    if ids is None:
        return FileOwners(group=mount.group)
    return FileOwners(ids.first, None if mount.group is None else ids.outside(mount.group))


def make(directory: str, mounts: tuple[Mount, ...], ids: IdRange | None = None) -> None:
    """Make the files of all mounts that have some. `ids`: those of the container's own users. Repeatable. Raises
    OSError."""
    for index, mount in enumerate(mounts):
        if mount.files:
            top = f"{directory}/{SECRETS if mount.secret else FILES}"
            with suppress(FileExistsError):
                os.mkdir(top, PRIVATE)
            if mount.secret:
                rootfs.prepare_tmpfs(top, SECRETS_OPTIONS)
            remove_tree(f"{top}/{index}")
            _fill(f"{top}/{index}", mount, owners_of(mount, ids))


def _fill(place: str, mount: Mount, owners: FileOwners) -> None:
    os.mkdir(place, PRIVATE)
    place_fd = os.open(place, OPEN_DIRECTORY)
    try:
        for file in mount.files:
            _write_in(place_fd, file, owners)
        _open_to_all(place_fd, owners)
    finally:
        os.close(place_fd)


def _write_in(top_fd: int, file: MountedFile, owners: FileOwners) -> None:
    *parts, name = file.path.split("/")
    at_fd = os.dup(top_fd)
    try:
        for part in parts:
            with suppress(FileExistsError):
                os.mkdir(part, PRIVATE, dir_fd=at_fd)
            inner_fd = os.open(part, OPEN_DIRECTORY, dir_fd=at_fd)
            os.close(at_fd)
            at_fd = inner_fd
            _open_to_all(at_fd, owners)
        _write_new(at_fd, name, file, owners)
    finally:
        os.close(at_fd)


def _write_new(at_fd: int, name: str, file: MountedFile, owners: FileOwners) -> None:
    file_fd = os.open(name, NEW_FILE, 0o600, dir_fd=at_fd)
    try:
        left = memoryview(file.data)
        while left:
            left = left[os.write(file_fd, left) :]
        os.fchown(file_fd, *owners.ids)
        os.fchmod(file_fd, file.mode | (0 if owners.group is None else GROUP_READS))
    finally:
        os.close(file_fd)


def _open_to_all(directory_fd: int, owners: FileOwners) -> None:
    """Whatever the umask is: its modes are those of its files."""
    os.fchown(directory_fd, *owners.ids)
    os.fchmod(directory_fd, 0o755 if owners.group is None else 0o755 | GROUP_ENTERS)


def release(directory: str) -> None:
    """Unmount what is in memory below a container's directory: secrets, and empty directories of its pod. Repeatable.
    Raises OSError when the kernel refuses."""
    rootfs.release_shm(f"{directory}/{SECRETS}")
    if os.path.isdir(f"{directory}/volumes"):
        rootfs.unmount_all(f"{directory}/volumes")
