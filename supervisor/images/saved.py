"""Images of the store as one archive: an OCI layout that is a docker-archive, too, as docker has written them since 25.

The store has layers unpacked, and not the tars that they came in, so each is packed anew. Its digest is that of these
bytes, and the image's id follows from it: an image that was loaded from such an archive keeps its id when it is saved
again. Each layer is packed twice, first for its digest, which is its name in the archive; no copy of it is kept.
"""

import hashlib
import os
from collections.abc import Callable, Iterator

from shim.frozen import frozen
from supervisor.images import documents, tarwriter
from supervisor.images.changes import layer_tar
from supervisor.images.documents import CONFIG_TYPES, LAYER_TYPE, MANIFEST_TYPE, Archived, Descriptor
from supervisor.images.layout import ARCHIVE_DOCUMENT, LAYOUT_DOCUMENT
from supervisor.images.tar import TarEntry, TarKind
from supervisor.model.errors import ImageStoreFailed

LAYOUT = b'{"imageLayoutVersion": "1.0.0"}'
BLOBS = "blobs/sha256"


@frozen
class SavedImage:
    """An image to be saved: its configuration, the directories of its layers, lowest first, and the names it gets."""

    config: bytes
    layers: tuple[str, ...]
    names: tuple[str, ...]


def archive(images: tuple[SavedImage, ...], check: Callable[[], None]) -> Iterator[bytes]:
    """Yield the archive. `check` is called again and again, and may raise. Raises ImageStoreFailed when a layer is not
    the same twice; WrongState, OSError."""
    measured: dict[str, Descriptor] = {}
    blobs: dict[str, bytes] = {}
    listed: list[Descriptor] = []
    archived: list[Archived] = []
    for image in images:
        for directory in image.layers:
            if directory not in measured:
                measured[directory] = _measured(directory, check)
        layers = [measured[directory] for directory in image.layers]
        config = _blob(
            blobs,
            documents.with_diff_ids(image.config, "the configuration", [layer.digest for layer in layers]),
            CONFIG_TYPES[0],
        )
        manifest = _blob(blobs, documents.manifest_document(config, layers), MANIFEST_TYPE)
        listed += [_named(manifest, name) for name in image.names or ("",)]
        archived.append(Archived(_path(config), tuple(map(_path, layers)), image.names))
    yield from _entry("oci-layout", LAYOUT)
    yield from _entry(LAYOUT_DOCUMENT, documents.index_document(listed))
    yield from _entry(ARCHIVE_DOCUMENT, documents.archive_document(archived))
    for name in ("blobs", BLOBS):
        yield tarwriter.header(TarEntry(name, TarKind.DIRECTORY, mode=0o755))
    for digest, text in sorted(blobs.items()):
        yield from _entry(f"{BLOBS}/{digest.removeprefix('sha256:')}", text)
    yield from _layers(measured, check)
    yield tarwriter.END


def _layers(measured: dict[str, Descriptor], check: Callable[[], None]) -> Iterator[bytes]:
    done: set[str] = set()
    for directory, found in measured.items():
        if found.digest in done:
            continue
        done.add(found.digest)
        yield tarwriter.header(TarEntry(_path(found), TarKind.FILE, found.size_bytes))
        digest, size = hashlib.sha256(), 0
        for part in _packed(directory, check):
            digest.update(part)
            size += len(part)
            if size > found.size_bytes:
                break
            yield part
        if f"sha256:{digest.hexdigest()}" != found.digest:
            raise ImageStoreFailed(f"{directory} has changed while it was saved; load the image again")
        yield tarwriter.padding(size)


def _measured(directory: str, check: Callable[[], None]) -> Descriptor:
    digest, size = hashlib.sha256(), 0
    for part in _packed(directory, check):
        digest.update(part)
        size += len(part)
    return Descriptor(f"sha256:{digest.hexdigest()}", size, LAYER_TYPE)


def _packed(directory: str, check: Callable[[], None]) -> Iterator[bytes]:
    fd = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in layer_tar(fd, ()):
            check()
            yield part
    finally:
        os.close(fd)


def _blob(blobs: dict[str, bytes], text: bytes, media_type: str) -> Descriptor:
    digest = f"sha256:{hashlib.sha256(text).hexdigest()}"
    blobs[digest] = text
    return Descriptor(digest, len(text), media_type)


def _named(manifest: Descriptor, name: str) -> Descriptor:
    return Descriptor(manifest.digest, manifest.size_bytes, manifest.media_type, None, name, name)


def _path(found: Descriptor) -> str:
    return f"{BLOBS}/{found.digest.removeprefix('sha256:')}"


def _entry(name: str, text: bytes) -> Iterator[bytes]:
    yield tarwriter.header(TarEntry(name, TarKind.FILE, len(text))) + tarwriter.padded(text)
