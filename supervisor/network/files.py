"""The files of networks: the machine's configurations, and exitd's records of attachments. Blocks.

ROOT/networks/ID-RUN        a record, see `records`
ROOT/networks/odd/          what is no record, put aside
"""

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import suppress

from shim.frozen import frozen
from supervisor.network import conflist, records
from supervisor.network.conflist import NetworkConfig, NotConfig
from supervisor.network.records import AttachmentRecord, BadAttachment, NewerRecord
from supervisor.system import regular, room
from supervisor.system.flushed import flush_directory

ENDINGS = (".conf", ".conflist", ".json")
MOST_FILES = 256
MOST_CONFIG_BYTES = 1 << 20
ODD = "odd"
NEW = ".new"
LOOSE = stat.S_IWGRP | stat.S_IWOTH

Config = tuple[str, NetworkConfig | str]  # the file, and what it has, or why it is none


@frozen
class OddFile:
    """A file among the records that is none. `stays`: it may well be one, which cannot be read now or by this
    version."""

    name: str
    why: str
    stays: bool = False


def configurations(directory: str) -> list[Config]:
    """Return the configurations of a directory in the order of their names, which decides which one is the first."""
    try:
        names = sorted(name for name in os.listdir(directory) if name.endswith(ENDINGS) and not name.startswith("."))
    except FileNotFoundError:
        return []
    except OSError as error:
        return [(directory, f"it cannot be read: {error.strerror}")]
    return [(f"{directory}/{name}", _configuration(f"{directory}/{name}")) for name in names[:MOST_FILES]]


def _configuration(path: str) -> NetworkConfig | str:
    try:
        fd = regular.open_path(path)
        found = os.fstat(fd)
        data = regular.read_all(fd, MOST_CONFIG_BYTES + 1)
    except OSError as error:
        return f"it cannot be read: {error.strerror}"
    if found.st_uid not in (0, os.geteuid()) or found.st_mode & LOOSE:
        return "others than root can write to it, and plugins run as root: chown root, chmod go-w"
    if len(data) > MOST_CONFIG_BYTES:
        return f"it is larger than {MOST_CONFIG_BYTES >> 20} MiB"
    try:
        return conflist.parse(data.decode())
    except UnicodeDecodeError:
        return "it is no UTF-8"
    except NotConfig as error:
        return str(error)


def missing(network: NetworkConfig, plugin_dirs: tuple[str, ...]) -> str:
    """Return the first plugin of the network that is not installed; empty if all are."""
    return next((each.type for each in network.plugins if not program(each.type, plugin_dirs)), "")


def program(kind: str, plugin_dirs: tuple[str, ...]) -> str:
    """Return the path of a plugin; empty if it is in none of the directories."""
    paths = (f"{directory}/{kind}" for directory in plugin_dirs)
    return next((path for path in paths if os.path.isfile(path) and os.access(path, os.X_OK)), "")


# -- records


def write(directory: str, record: AttachmentRecord) -> None:
    """Put it on the disk: when this returns it outlives the host. Raises OSError; nothing of it counts then."""
    os.makedirs(directory, mode=0o700, exist_ok=True)
    path = f"{directory}/{record.id}"
    try:
        fd = os.open(f"{path}{NEW}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with open(fd, "wb") as file:
            file.write(records.encode(record))
            file.flush()
            os.fsync(fd)
        os.rename(f"{path}{NEW}", path)
    except OSError:
        with suppress(OSError):
            os.unlink(f"{path}{NEW}")
        raise
    flush_directory(directory)


def remove(directory: str, record: AttachmentRecord) -> None:
    """Remove it for good. Repeatable. A full disk does not hold this back. Raises OSError."""
    with suppress(FileNotFoundError):
        os.unlink(f"{directory}/{record.id}")
        flush_directory(directory)


def exists(directory: str, record: AttachmentRecord) -> bool:
    """Return False only if there certainly is no such file."""
    try:
        os.lstat(f"{directory}/{record.id}")
    except FileNotFoundError:
        return False
    except OSError:
        pass
    return True


def read(directory: str) -> Iterator[AttachmentRecord | OddFile]:
    """Yield each record, and each file that is none. What was never completed is removed: its ADD had not
    begun. Raises OSError when the directory cannot be read, or for lack of descriptors or memory."""
    try:
        names = sorted(os.listdir(directory))
    except FileNotFoundError:
        return
    for name in names:
        path = f"{directory}/{name}"
        if name.endswith(NEW) and records.key_of(name.removesuffix(NEW)):
            with suppress(OSError):
                os.unlink(path)
        elif name != ODD:
            yield _record(path, name)


def _record(path: str, name: str) -> AttachmentRecord | OddFile:
    if records.key_of(name) is None:
        return OddFile(name, "no record is called so")
    try:
        data = regular.read(path, most_bytes=records.MOST_BYTES + 1, follow=False)
        if len(data) > records.MOST_BYTES:
            raise BadAttachment("it is too large")
        return records.decode(data, name)
    except regular.NotRegular as error:
        return OddFile(name, error.strerror or str(error))
    except OSError as error:  # a disk that fails, say
        if room.is_used_up(error):
            raise
        return OddFile(name, error.strerror or str(error), stays=True)
    except BadAttachment as error:
        return OddFile(name, str(error), stays=isinstance(error, NewerRecord))


def put_aside(directory: str, name: str) -> str:
    """Move what is no record out of the way; return where it is now. Raises OSError."""
    os.makedirs(f"{directory}/{ODD}", mode=0o700, exist_ok=True)
    path = f"{directory}/{ODD}/{secrets.token_hex(4)}-{name[:200]}"
    os.rename(f"{directory}/{name}", path)
    return path
