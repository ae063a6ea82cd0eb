"""The store's directory: what is where, and how it is written, so that a kill at any moment leaves only complete
things.

    index.json              what is listed; replaced as a whole, and last
    index.json.damaged-N    one that could not be read, as it was
    layers/HEX/             an unpacked layer, by the digest of its uncompressed tar: a lower directory for overlay
    blobs/HEX               configurations and manifests, by their digest
    holds/CONTAINER         a symbolic link whose text is the id of the image that the container uses
    empty/                  the lower directory of an image without layers
    staging/                loads in progress, and what is being removed; emptied after the store has been opened
    lock                    flock of the one exitd that has the store open

Everything in layers/ and blobs/ was renamed into place after its content was on the disk. What no image in index.json
needs is removed after the store has been opened.
"""

import errno
import fcntl
import hashlib
import os
import secrets
import shutil
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import count

from supervisor.images import documents, index, unpack
from supervisor.images.facts import DIGEST, Image, Layer
from supervisor.model.errors import BadImage, CannotStart, ImageStoreFailed
from supervisor.system import regular
from supervisor.system.flushed import flush_directory

INDEX = "index.json"
ASIDE = f"{INDEX}.damaged-"
MOST_INDEX_BYTES = 64 << 20
UNREADABLE = frozenset({errno.EIO, errno.EUCLEAN, errno.EBADMSG, errno.EISDIR, errno.ELOOP})  # not only for a moment
PLACES = ("layers", "blobs", "holds", "empty", "staging")


class Disk:
    """The directory of one store. Raises CannotStart when it is open elsewhere or unusable, ImageStoreFailed later."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.damaged: tuple[index.IndexDamaged, ...] = ()
        self.lost = ""
        try:
            os.makedirs(path, mode=0o700, exist_ok=True)
            for place in PLACES:
                os.makedirs(f"{path}/{place}", mode=0o700, exist_ok=True)
            os.chmod(f"{path}/empty", 0o755)  # it becomes the / of a container
            self._lock_fd = os.open(f"{path}/lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise CannotStart(f"the image store {path} cannot be used: {error.strerror}") from error
        try:
            fcntl.flock(self._lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(self._lock_fd)
            raise CannotStart(f"the image store {path} is in use by another exitd") from error

    def close(self) -> None:
        os.close(self._lock_fd)

    def layer(self, diff_id: str) -> str:
        return f"{self.path}/layers/{_hex(diff_id)}"

    def blob(self, digest: str) -> str:
        return f"{self.path}/blobs/{_hex(digest)}"

    def read_index(self) -> index.Images:
        """Return what the index lists. An entry that cannot be read is skipped, and kept in every later index.

        If the index as a whole cannot be read, call `put_aside`; `lost` says why. The images are then those whose
        configurations and layers exist, without their names and sizes.

        Raises:
            CannotStart: a later exitd wrote the index, or it cannot be read just now.
        """
        try:
            images, self.damaged = index.decode(self._index_text(), f"{self.path}/{INDEX}")
            return images
        except FileNotFoundError:
            return self._found() if self._aside() else ()
        except BadImage as error:
            self.lost = str(error)
            return self._found()
        except (OSError, index.NewerVersion) as error:
            raise CannotStart(f"the image store's index cannot be read: {error}") from error

    def put_aside(self) -> str:
        """Rename the index that cannot be read, and return its new path. Raises ImageStoreFailed."""
        taken = set(self._aside())
        name = next(name for name in map(f"{ASIDE}{{}}".format, count(1)) if name not in taken)
        with self.errors():
            os.rename(f"{self.path}/{INDEX}", f"{self.path}/{name}")
        return f"{self.path}/{name}"

    def write_index(self, images: index.Images) -> None:
        with self.errors():
            write_durably(f"{self.path}/{INDEX}.new", index.encode(images, self.damaged))
            os.rename(f"{self.path}/{INDEX}.new", f"{self.path}/{INDEX}")

    def sync(self) -> None:
        """Make the last written index survive a power cut."""
        with self.errors():
            flush_directory(self.path)

    def read_blob(self, digest: str) -> bytes:
        with self.errors():
            text = regular.read(self.blob(digest), most_bytes=documents.MOST_BYTES + 1)
        if _digest_of(text) != digest:
            raise ImageStoreFailed(f"{self.blob(digest)} has been damaged; load the image again")
        return text

    def holds(self) -> dict[str, str]:
        """Return container and image of every hold. One that is released meanwhile may or may not be among them."""
        with self.errors():
            found = {name: self.held_by(name) for name in os.listdir(f"{self.path}/holds")}
        return {name: image for name, image in found.items() if image}

    def held_by(self, container: str) -> str:
        """Return the image id; empty if the container holds none."""
        with self.errors():
            try:
                return os.readlink(f"{self.path}/holds/{container}")
            except FileNotFoundError:
                return ""

    def hold(self, container: str, image: str) -> None:
        """A single system call: the hold exists or not. It survives every process; a power cut may remove it."""
        with self.errors():
            os.symlink(image, f"{self.path}/holds/{container}")

    def release(self, container: str) -> None:
        with self.errors(), suppress(FileNotFoundError):
            os.unlink(f"{self.path}/holds/{container}")

    def stage(self) -> str:
        """Return a new directory for one load."""
        with self.errors():
            path = f"{self.path}/staging/{secrets.token_hex(8)}"
            os.mkdir(path, 0o700)
            os.mkdir(f"{path}/layers")
            os.mkdir(f"{path}/blobs")
        return path

    def staged(self) -> tuple[str, ...]:
        with self.errors():
            return tuple(f"{self.path}/staging/{name}" for name in os.listdir(f"{self.path}/staging"))

    def remove_staged(self, paths: Iterable[str]) -> None:
        """Remove them. What cannot be removed now is tried again after the next opening."""
        for path in paths:
            shutil.rmtree(path, ignore_errors=True)

    def take_over(self, staging: str) -> None:
        """Move what a load has staged, which is on the disk already, into the store, except what it has meanwhile."""
        with self.errors():
            for place in ("layers", "blobs"):
                for name in os.listdir(f"{staging}/{place}"):
                    if not os.path.lexists(f"{self.path}/{place}/{name}"):
                        os.rename(f"{staging}/{place}/{name}", f"{self.path}/{place}/{name}")
                flush_directory(f"{self.path}/{place}")

    def move_others(self, bin_path: str, layers: Iterable[str], blobs: Iterable[str]) -> tuple[str, ...]:
        """Move every other layer and blob to a staging directory. Return the layers' diff ids. One rename for each, so
        that none is ever in its place incompletely."""
        removed = []
        with self.errors():
            for place, kept in (("layers", set(map(_hex, layers))), ("blobs", set(map(_hex, blobs)))):
                for name in sorted(set(os.listdir(f"{self.path}/{place}")) - kept):
                    os.rename(f"{self.path}/{place}/{name}", f"{bin_path}/{place}/{name}")
                    removed += [f"sha256:{name}"] if place == "layers" else []
        return tuple(removed)

    def _index_text(self) -> bytes:
        path = f"{self.path}/{INDEX}"
        try:
            text = regular.read(path, most_bytes=MOST_INDEX_BYTES + 1)
        except regular.NotRegular as error:
            raise BadImage(f"{path}: not a regular file", document=path) from error
        except OSError as error:
            if error.errno not in UNREADABLE:
                raise
            raise BadImage(f"{path}: {error.strerror}", document=path) from error
        if len(text) > MOST_INDEX_BYTES:
            raise BadImage(f"{path}: larger than {MOST_INDEX_BYTES} bytes", document=path)
        return text

    def _aside(self) -> tuple[str, ...]:
        with self.errors():
            return tuple(name for name in os.listdir(self.path) if name.startswith(ASIDE))

    def _found(self) -> index.Images:
        """Return the complete images, without using the index. Raises CannotStart when they cannot be read just now."""
        try:
            names = sorted(os.listdir(f"{self.path}/blobs"))
            return tuple(image for name in names if (image := self._image(f"sha256:{name}")) is not None)
        except OSError as error:
            raise CannotStart(f"the image store {self.path} cannot be read: {error.strerror}") from error

    def _image(self, digest: str) -> Image | None:
        """Raises OSError when it cannot be read just now."""
        if not DIGEST.fullmatch(digest):
            return None
        try:
            text = regular.read(self.blob(digest), most_bytes=documents.MOST_BYTES + 1)
            if _digest_of(text) != digest:
                return None
            config = documents.parse_config(text, self.blob(digest))
            if not all(stat.S_ISDIR(os.stat(self.layer(diff_id)).st_mode) for diff_id in config.diff_ids):
                return None
        except (BadImage, regular.NotRegular, FileNotFoundError):
            return None
        except OSError as error:
            if error.errno not in UNREADABLE:
                raise
            return None
        return Image(digest, "", (), tuple(Layer(diff_id, 0) for diff_id in config.diff_ids), config.created)

    @contextmanager
    def errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise unpack.disk_error(error, self.path) from error


def write_durably(path: str, data: bytes) -> None:
    """Write the whole file and flush it. Raises OSError, with ENOSPC where only a part found room."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        if os.write(fd, data) != len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        os.fsync(fd)
    finally:
        os.close(fd)


def _digest_of(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _hex(digest: str) -> str:
    return digest.removeprefix("sha256:")
