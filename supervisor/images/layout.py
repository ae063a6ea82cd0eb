"""The images in an OCI layout or a docker-archive: which there are, and which one is meant.

Documents are verified here, by the digest that points to them; layers when they are unpacked.
"""

import hashlib
import os.path
import re
from collections.abc import Iterator, Sequence

from shim.frozen import frozen
from shim.patterns import LatePattern
from supervisor.images import documents
from supervisor.images.documents import Descriptor, ImageConfig, Index, Platform
from supervisor.images.files import Files, read_document
from supervisor.images.reference import as_name
from supervisor.model.errors import AmbiguousImage, BadImage, NoSuchImage, WrongDigest

ARCHIVE_DOCUMENT = "manifest.json"
LAYOUT_DOCUMENT = "index.json"
MOST_DEPTH = 4  # of indexes inside indexes
_DIGEST_IN_NAME = LatePattern(r"(?:blobs/sha256/)?([0-9a-f]{64})(?:\.json)?")


@frozen
class LayerFile:
    """The place of a layer. `digest` is that of the file as it is, perhaps compressed; empty if the archive has
    none."""

    name: str
    diff_id: str
    digest: str = ""


@frozen
class LayoutImage:
    """An image that is not in the store yet. `tag` is its name in the layout, `digest` its manifest's."""

    id: str
    digest: str
    names: tuple[str, ...]
    tag: str
    config: ImageConfig
    config_text: bytes
    layers: tuple[LayerFile, ...]


def find(files: Files, wanted: Platform, tag: str = "") -> tuple[LayoutImage, ...]:
    """Return every image for this host: by docker's manifest.json if there is one, else as an OCI layout. With a tag
    that a layout has, only that tag's images are read."""
    if files.has(ARCHIVE_DOCUMENT):
        return in_archive(files)
    if files.has(LAYOUT_DOCUMENT):
        return in_layout(files, wanted, tag)
    raise BadImage(f"{files.where}: neither {ARCHIVE_DOCUMENT} nor {LAYOUT_DOCUMENT} is in it: not an image")


def choose(images: Sequence[LayoutImage], where: str, word: str) -> LayoutImage:
    """Return the image that `word` (a tag or a name) means; without a word, the only one. Raises NoSuchImage,
    AmbiguousImage."""
    fitting = [image for image in images if not word or word == image.tag or word in image.names]
    known = ", ".join(sorted({name for image in images for name in (image.tag, *image.names) if name})) or "none"
    if not fitting:
        raise NoSuchImage(f"no image {word!r} in {where}; the names there are: {known}", image=word)
    if len({image.id for image in fitting}) > 1:
        raise AmbiguousImage(f"several images in {where}; name one of: {known}", image=word)
    return fitting[0]


def in_layout(files: Files, wanted: Platform, tag: str = "") -> tuple[LayoutImage, ...]:
    """Return the images of an OCI layout for this host; with `tag`, only those with this tag. Raises NoSuchImage,
    BadImage."""
    document = f"{files.where}: {LAYOUT_DOCUMENT}"
    index = documents.parse_index(documents.parse_json(read_document(files, LAYOUT_DOCUMENT), document))
    found: dict[tuple[str, str], LayoutImage] = {}
    for entry in [entry for entry in index.manifests if tag and entry.ref_name == tag] or index.manifests:
        if documents.fits(wanted, entry.platform):
            image = _image(files, entry, wanted)
            found[image.id, entry.ref_name] = image
    if not found:
        raise NoSuchImage(f"{files.where} has no image for {wanted.os}/{wanted.architecture}")
    return tuple(found.values())


def in_archive(files: Files) -> tuple[LayoutImage, ...]:
    entries = documents.parse_archive(read_document(files, ARCHIVE_DOCUMENT), f"{files.where}: {ARCHIVE_DOCUMENT}")
    if not entries:
        raise NoSuchImage(f"{files.where} has no image in it")
    return tuple(_archived(files, entry) for entry in entries)


def _archived(files: Files, entry: documents.Archived) -> LayoutImage:
    text = read_document(files, entry.config)
    digest = f"sha256:{hashlib.sha256(text).hexdigest()}"
    named = _DIGEST_IN_NAME.fullmatch(entry.config)
    if named and digest != f"sha256:{named[1]}":
        raise WrongDigest(f"{files.where}: {entry.config} has the digest {digest}", document=entry.config)
    config = documents.parse_config(text, f"{files.where}: {entry.config}")
    _same_length(files, config, len(entry.layers))
    layers = tuple(LayerFile(name, diff_id) for name, diff_id in zip(entry.layers, config.diff_ids, strict=True))
    names = []
    for name in entry.names:
        parsed = as_name(name)
        if parsed is None or parsed.digest:
            raise BadImage(f"{files.where}: {ARCHIVE_DOCUMENT}: RepoTags: {name!r} is not NAME:TAG")
        names.append(str(parsed))
    return LayoutImage(digest, "", tuple(names), "", config, text, layers)


def _image(files: Files, entry: Descriptor, wanted: Platform) -> LayoutImage:
    descriptor, manifest = entry, None
    for _ in range(MOST_DEPTH):
        manifest = documents.parse_manifest(_blob(files, descriptor), f"{files.where}: {_path(descriptor)}")
        if not isinstance(manifest, Index):
            break
        descriptor = next(_fitting(manifest, wanted), None) or _none_fits(files, wanted)
    if manifest is None or isinstance(manifest, Index):
        raise BadImage(f"{files.where}: more than {MOST_DEPTH} indexes in each other")
    config_text = _blob(files, manifest.config)
    config = documents.parse_config(config_text, f"{files.where}: {_path(manifest.config)}")
    _same_length(files, config, len(manifest.layers))
    layers = tuple(
        LayerFile(_path(layer), diff_id, layer.digest)
        for layer, diff_id in zip(manifest.layers, config.diff_ids, strict=True)
    )
    # The digest of the index itself, if there is one: registries identify the image by it.
    names = tuple(_names(files.where, entry))
    return LayoutImage(manifest.config.digest, entry.digest, names, entry.ref_name, config, config_text, layers)


def _names(where: str, entry: Descriptor) -> Iterator[str]:
    """A full name comes from the annotations; a bare tag belongs to a repository with the directory's name."""
    for text in (entry.full_name, entry.ref_name):
        name = as_name(text) if re.search("[/:]", text) else None
        if name and not name.digest:
            yield str(name)
            return
    local = as_name(f"{os.path.basename(where).partition('.')[0].lower()}:{entry.ref_name}") if entry.ref_name else None
    if local:
        yield str(local)


def _fitting(index: Index, wanted: Platform) -> Iterator[Descriptor]:
    return (entry for entry in index.manifests if documents.fits(wanted, entry.platform))


def _none_fits(files: Files, wanted: Platform) -> Descriptor:
    raise NoSuchImage(f"{files.where} has no image for {wanted.os}/{wanted.architecture}")


def _blob(files: Files, descriptor: Descriptor) -> bytes:
    text = read_document(files, _path(descriptor))
    digest = f"sha256:{hashlib.sha256(text).hexdigest()}"
    if digest != descriptor.digest or len(text) != descriptor.size_bytes:
        raise WrongDigest(
            f"{files.where}: {_path(descriptor)} has {len(text)} bytes with the digest {digest}, "
            f"not {descriptor.size_bytes} with {descriptor.digest}",
            document=_path(descriptor),
        )
    return text


def _path(descriptor: Descriptor) -> str:
    return "blobs/" + descriptor.digest.replace(":", "/")


def _same_length(files: Files, config: ImageConfig, layers: int) -> None:
    if layers != len(config.diff_ids):
        raise BadImage(
            f"{files.where}: {layers} layers, but rootfs.diff_ids of the configuration has {len(config.diff_ids)}"
        )
