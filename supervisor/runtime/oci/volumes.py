"""Named volumes: directories that outlive the containers that mount them, until they are removed.

ROOT/v/NAME/         0700; its time of modification is when it was made
ROOT/v/NAME/data/    what containers see; its first container gives it the owner and mode of the directory it hides
ROOT/v/.gone-HEX/    one that is being removed, and whose removal may have been cut off
"""

import os
import secrets
import stat
from contextlib import suppress

from supervisor.model.volumes import Volume
from supervisor.runtime.oci.inroot import open_in_root
from supervisor.system.removal import remove_tree

GONE = ".gone-"
DATA = "data"
PRIVATE = 0o700
MODE = 0o755  # of one that hides nothing


def top_of(root: str) -> str:
    return f"{root}/v"


def path_of(root: str, name: str) -> str:
    """Return what a container mounts."""
    return f"{top_of(root)}/{name}/{DATA}"


def make(root: str, name: str) -> None:
    """Make the volume unless it is there. Repeatable: one whose making was cut off is completed. Raises OSError."""
    for path in (top_of(root), f"{top_of(root)}/{name}"):
        with suppress(FileExistsError):
            os.mkdir(path, PRIVATE)
    with suppress(FileExistsError):
        os.mkdir(path_of(root, name), MODE)  # exitd's umask takes nothing of it


def is_unused(root: str, name: str) -> bool:
    """Return whether it is as `make` has made it. Raises OSError."""
    found = os.stat(path_of(root, name))
    is_plain = (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (0, 0, MODE)
    return is_plain and not os.listdir(path_of(root, name))


def adopt(root: str, name: str, image_root: str, destination: str) -> None:
    """Give an unused volume the owner and mode of the directory that it hides; if that is none, it stays root's. Raises
    OSError."""
    try:
        fd = open_in_root(image_root, destination)
    except OSError:
        return
    try:
        found = os.fstat(fd)
    finally:
        os.close(fd)
    if stat.S_ISDIR(found.st_mode):
        os.chown(path_of(root, name), found.st_uid, found.st_gid)
        os.chmod(path_of(root, name), stat.S_IMODE(found.st_mode))


def listing(root: str) -> tuple[Volume, ...]:
    """Return all, by name. Raises OSError."""
    found = []
    for name in _names(root):
        if not name.startswith("."):
            with suppress(FileNotFoundError):  # removed meanwhile
                made_ns = os.stat(f"{top_of(root)}/{name}").st_mtime_ns
                found.append(Volume(name, path_of(root, name), made_ns))
    return tuple(found)


def take_away(root: str, name: str) -> str:
    """Hide the volume: it has its name no more. Return where it is, for `delete`; empty if there is none.
    Raises OSError."""
    gone = f"{top_of(root)}/{GONE}{secrets.token_hex(8)}"
    try:
        os.rename(f"{top_of(root)}/{name}", gone)
    except FileNotFoundError:
        return ""
    return gone


def delete(gone: str) -> None:
    """Remove a hidden volume with all that is in it. May take long. Raises OSError when something of it cannot be
    removed; `sweep` tries again."""
    remove_tree(gone)


def hidden(root: str) -> list[str]:
    """Return the paths of those whose removal was cut off. Raises OSError."""
    return [f"{top_of(root)}/{name}" for name in _names(root) if name.startswith(GONE)]


def _names(root: str) -> list[str]:
    try:
        return sorted(os.listdir(top_of(root)))
    except FileNotFoundError:
        return []
