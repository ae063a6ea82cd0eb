"""The store's list: the images, the bytes of index.json, and how a name finds an image. Pure."""

import json
import re
from collections.abc import Iterable, Sequence
from itertools import chain

from shim.frozen import frozen, replace
from supervisor.images import documents
from supervisor.images.facts import DIGEST, Image, Layer, RemovedImage
from supervisor.images.reference import WAYS, Name, Stored, as_name, ends_with
from supervisor.model.errors import AmbiguousImage, BadImage, NoSuchImage

VERSION = 1
LEAST_ID_DIGITS = 4
MOST_DEPTH = 50  # of an entry that cannot be read

Images = tuple[Image, ...]


class NewerVersion(ValueError):
    """A later exitd wrote the index."""


@frozen
class IndexDamaged:
    """An entry that cannot be read: as it is in the file, and why."""

    value: object
    why: str


def encode(images: Images, damaged: Iterable[IndexDamaged] = ()) -> bytes:
    """Entries that cannot be read stay as they are."""
    rows: list[object] = [
        {
            "id": image.id,
            "digest": image.digest,
            "names": image.names,
            "layers": [{"diff_id": layer.diff_id, "size_bytes": layer.size_bytes} for layer in image.layers],
            "created": image.created,
        }
        for image in images
    ]
    rows += [each.value for each in damaged]
    return json.dumps({"version": VERSION, "images": rows}, indent=1).encode() + b"\n"


def decode(text: bytes, document: str) -> tuple[Images, tuple[IndexDamaged, ...]]:
    """Return the images, and the entries that cannot be read. Raises BadImage when it is no index, NewerVersion."""
    root = documents.parse_json(text, document)
    if (version := root.get("version").number()) > VERSION:
        raise NewerVersion(f"{document} has version {version}; this exitd knows {VERSION}")
    whole, damaged = list[Image](), list[IndexDamaged]()
    for row in root.get("images").items(most=1 << 20):
        try:
            whole.append(_image(row))
        except BadImage as error:
            if _is_deep(row.value):  # no later index could be written with it
                raise row.wrong("is too deep") from error
            damaged.append(IndexDamaged(row.value, str(error)))
    return tuple(whole), tuple(damaged)


def _is_deep(value: object) -> bool:
    level = [value]
    for _ in range(MOST_DEPTH):
        inner = ((each.values() if isinstance(each, dict) else each) for each in level if isinstance(each, dict | list))
        level = list(chain.from_iterable(inner))
        if not level:
            return False
    return True


def _image(row: documents.DocumentNode) -> Image:
    return Image(
        row.get("id").digest(),
        row.get("digest").text(""),
        row.get("names").texts(),
        tuple(
            Layer(layer.get("diff_id").digest(), layer.get("size_bytes").number())
            for layer in row.get("layers").items()
        ),
        row.get("created").text(""),
    )


def with_images(images: Images, new: Iterable[Image]) -> Images:
    """Return the images with `new` added, whose names are taken from other images. An image that exists already keeps
    its names, too."""
    for image in new:
        before = next((known for known in images if known.id == image.id), None)
        names = tuple(sorted({*(before.names if before else ()), *image.names}))
        digest = image.digest or (before.digest if before else "")
        others = (replace(o, names=_without(o.names, image.names)) for o in images if o.id != image.id)
        images = (*others, replace(image, names=names, digest=digest))
    return images


def without(images: Images, stored: Stored) -> tuple[Images, RemovedImage]:
    """Remove a name, and the image with its last name; an id or digest removes the image with all its names. Raises
    NoSuchImage, AmbiguousImage."""
    image = find(images, stored)
    name = name_meant(image, stored)
    if name is not None and len(image.names) > 1:
        rest = replace(image, names=_without(image.names, (name,)))
        return tuple(rest if known.id == image.id else known for known in images), RemovedImage((name,), ())
    return tuple(known for known in images if known.id != image.id), RemovedImage(image.names, (image.id,))


def untagged(images: Images, stored: Stored, names: tuple[str, ...]) -> tuple[Images, tuple[str, ...]]:
    """Take these names, or all, of an image, which stays. Return the names taken. Raises NoSuchImage."""
    image = find(images, stored)
    if missing := [name for name in names if name not in image.names]:
        raise NoSuchImage(f"image {image.id[7:19]} has no name {missing[0]}", image=missing[0])
    gone = names or image.names
    rest = replace(image, names=_without(image.names, gone))
    return tuple(rest if known.id == image.id else known for known in images), gone


def find(images: Images, stored: Stored) -> Image:
    """Return the image that is meant: by its full name, else the end of one, else an id, a digest or the beginning of
    an id. Raises NoSuchImage, AmbiguousImage."""
    fitting: Sequence[Image] = ()
    if stored.name is not None:
        name = stored.name
        fitting = [image for image in images if str(name) in image.names] or [
            image for image in images if any(map(lambda known: _is_called(image, known, name), image.names))
        ]
    fitting = fitting or [image for image in images if _has_id(image, stored.word)]
    if not fitting:
        raise NoSuchImage(f"no image {stored.word!r} in exitd's store; {WAYS}", image=stored.word)
    if len(fitting) > 1:
        known = ", ".join(sorted(" ".join((image.id[7:19], *image.names)) for image in fitting))
        raise AmbiguousImage(f"{stored.word!r} may be any of: {known}", image=stored.word)
    return fitting[0]


def name_meant(image: Image, stored: Stored) -> str | None:
    """Return which of its names is meant; None if it was its id or digest."""
    name = stored.name
    if name is None or name.digest:
        return str(name) if str(name) in image.names else None
    if str(name) in image.names:
        return str(name)
    return next((known for known in image.names if _is_called(image, known, name)), None)


def _is_called(image: Image, known: str, name: Name) -> bool:
    full = as_name(known)
    if full is None or not ends_with(full, name):
        return False
    return not name.digest or name.digest in (image.digest, image.id, full.digest)


def _has_id(image: Image, word: str) -> bool:
    if DIGEST.fullmatch(word):
        return word in (image.id, image.digest)
    is_hex = re.fullmatch(f"[0-9a-f]{{{LEAST_ID_DIGITS},64}}", word)
    return bool(is_hex) and image.id.startswith(f"sha256:{word}")


def _without(names: tuple[str, ...], gone: Iterable[str]) -> tuple[str, ...]:
    return tuple(name for name in names if name not in set(gone))
