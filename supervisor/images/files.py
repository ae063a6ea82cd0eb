"""The files of an image to be read, by name: in a directory, or as members of an archive."""

import os
import posixpath
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import BinaryIO, Protocol

from shim.frozen import field, mutable
from supervisor.images.documents import MOST_BYTES
from supervisor.images.streams import CHUNK_BYTES, Budget, Hashed, Slice, uncompressed
from supervisor.images.tar import BadTar, TarKind, TarReader
from supervisor.model.errors import BadImage, BadRequest
from supervisor.runtime.oci.inroot import open_in_root
from supervisor.system import regular

MOST_MEMBERS = 100_000
MOST_NAME_BYTES = 16 << 20  # of all members together
MOST_LINKS = 8


class Files(Protocol):
    """`where` names the image in errors."""

    where: str

    def has(self, name: str) -> bool: ...

    def open(self, name: str) -> Slice:
        """Return a part of a file, to be read from its start. Raises BadImage when there is none."""
        ...


def read_document(files: Files, name: str) -> bytes:
    """Return a small file's content. Raises BadImage when it does not exist or is not small."""
    part = files.open(name)
    data = bytearray()
    while len(data) <= MOST_BYTES and (more := part.read(MOST_BYTES + 1 - len(data))):
        data += more
    if len(data) > MOST_BYTES:
        raise BadImage(f"{files.where}: {name} is larger than {MOST_BYTES} bytes", document=name)
    return bytes(data)


@mutable
class InDirectory:
    """Links in the directory end at its root. Close it after use: `held` has every file that was opened."""

    where: str
    held: ExitStack = field(default_factory=ExitStack)

    def has(self, name: str) -> bool:
        try:
            os.close(open_in_root(self.where, name))
        except OSError:
            return False
        return True

    def open(self, name: str) -> Slice:
        try:
            found_fd = open_in_root(self.where, name)
            try:
                return Slice(self.held.enter_context(open(regular.open_found(found_fd, name), "rb")))
            finally:
                os.close(found_fd)
        except OSError as error:
            raise BadImage(f"{self.where}: {name}: {error.strerror}", document=name) from error


@mutable
class InArchive:
    """The members of an uncompressed tar: the place of each one's content, or the name that it links to."""

    where: str
    file: BinaryIO
    members: dict[str, tuple[int, int] | str]

    def has(self, name: str) -> bool:
        return self._find(name) is not None

    def open(self, name: str) -> Slice:
        found = self._find(name)
        if found is None:
            raise BadImage(f"{self.where}: {name} is not in the archive", document=name)
        return Slice(self.file, *found)

    def _find(self, name: str) -> tuple[int, int] | None:
        """Old archives hold a layer that two images share once, and a link to it."""
        for _ in range(MOST_LINKS):
            found = self.members.get(name)
            if not isinstance(found, str):
                return found
            name = found
        return None


@contextmanager
def directory(path: str) -> Iterator[InDirectory]:
    if not os.path.isdir(path):
        raise BadRequest(f"no image layout at {path}: no such directory", path=path)
    files = InDirectory(os.path.realpath(path))
    with files.held:
        yield files


@contextmanager
def archive(path: str, scratch: str, budget: Budget) -> Iterator[InArchive]:
    """Yield an archive's members. An archive that is compressed as a whole is first unpacked into a file in `scratch`,
    using `budget`, which is for that alone."""
    with ExitStack() as held:
        file = held.enter_context(open_regular(path))
        packed = Slice(file)
        with uncompressed(packed, path) as plain:
            if plain is not packed:
                file = held.enter_context(open(f"{scratch}/archive.tar", "w+b"))
                copy(Hashed(plain, budget.spend_bytes), file)
        try:
            yield InArchive(path, file, _members(file))
        except BadTar as error:
            raise BadImage(f"{path}: {error}", document=path) from error


def open_regular(path: str) -> BinaryIO:
    """Open a file that the caller named. Raises BadRequest when it does not exist or is not a regular file; never
    blocks."""
    try:
        return open(regular.open_path(path), "rb")
    except OSError as error:
        raise BadRequest(f"{path}: {error.strerror}", path=path) from error


def copy(source: Hashed, file: BinaryIO) -> None:
    while data := source.read(CHUNK_BYTES):
        file.write(data)
    file.flush()


def _members(file: BinaryIO) -> dict[str, tuple[int, int] | str]:
    source = Slice(file)
    reader = TarReader(source)
    size = os.fstat(file.fileno()).st_size
    members: dict[str, tuple[int, int] | str] = {}
    name_bytes = 0
    while entry := reader.next():
        name_bytes += len(entry.name) + len(entry.target)
        if len(members) > MOST_MEMBERS or name_bytes > MOST_NAME_BYTES:
            raise BadTar(f"more than {MOST_MEMBERS} members, or than {MOST_NAME_BYTES} bytes of their names")
        name = posixpath.normpath(entry.name)
        if entry.kind is TarKind.FILE:
            if source.offset + entry.size_bytes > size:
                raise BadTar(f"ends in the middle of {entry.name!r}")
            members[name] = (source.offset, entry.size_bytes)
        elif entry.kind is TarKind.SYMLINK:
            members[name] = posixpath.normpath(posixpath.join(posixpath.dirname(name), entry.target))
        elif entry.kind is TarKind.HARDLINK:
            members[name] = posixpath.normpath(entry.target)
    return members
