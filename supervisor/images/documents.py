"""An image's JSON documents as frozen values: bytes in, values out. Every BadImage names the document and the field.

Sources: OCI image-spec 1.1 (image-layout.md, image-index.md, manifest.md, config.md) and, for docker's archives, Docker
Image Specification v1.2 ("Combined Image JSON + Filesystem Changeset Format").
"""

import json
import os
import posixpath
from collections.abc import Iterator, Sequence

from shim.frozen import frozen
from supervisor.images.facts import DIGEST, ImageDefaults
from supervisor.model import bounds, networks, values
from supervisor.model.errors import BadImage
from supervisor.model.values import HealthSpec

MOST_BYTES = 4 << 20
MOST_ITEMS = 10_000
MOST_VOLUMES = 100
MOST_EXPOSED = 1000
MOST_LAYERS = 500  # the limit of overlay
REF_NAME = "org.opencontainers.image.ref.name"
FULL_NAME = "io.containerd.image.name"
INDEX_TYPES = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
LAYER_TYPE = "application/vnd.oci.image.layer.v1.tar"
CONFIG_TYPES = ("application/vnd.oci.image.config.v1+json", "application/vnd.docker.container.image.v1+json")
_MACHINES = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm", "i686": "386"}


@frozen
class DocumentNode:
    """A value inside a JSON document, with its place."""

    value: object
    document: str
    path: str = ""

    def wrong(self, what: str) -> BadImage:
        place = f"{self.document}: {self.path}" if self.path else self.document
        return BadImage(f"{place}: {what}", document=self.document, field=self.path)

    def get(self, *names: str) -> "DocumentNode":
        """Return a field, by the first of several spellings that exists; None if it is missing or null."""
        if not isinstance(self.value, dict):
            raise self.wrong("must be an object")
        for name in names:
            if self.value.get(name) is not None:
                return DocumentNode(self.value[name], self.document, f"{self.path}.{name}" if self.path else name)
        return DocumentNode(None, self.document, f"{self.path}.{names[0]}" if self.path else names[0])

    @property
    def is_there(self) -> bool:
        return self.value is not None

    def text(self, otherwise: str | None = None) -> str:
        if self.value is None and otherwise is not None:
            return otherwise
        if not isinstance(self.value, str):
            raise self.wrong("is missing" if self.value is None else "must be a text")
        if "\0" in self.value or (not self.value.isascii() and not _is_unicode(self.value)):
            raise self.wrong("has a zero byte or a lone surrogate in it")
        return self.value

    def number(self) -> int:
        if not isinstance(self.value, int) or isinstance(self.value, bool) or not 0 <= self.value < 1 << 63:
            raise self.wrong("is missing" if self.value is None else "must be a number that is not negative")
        return self.value

    def digest(self) -> str:
        text = self.text()
        if not DIGEST.fullmatch(text):
            raise self.wrong(f"{text[:80]!r} is not a sha256 digest, the only kind known here")
        return text

    def items(self, *, most: int = MOST_ITEMS) -> Iterator["DocumentNode"]:
        """Yield the elements of a list; none if it is missing or null."""
        if self.value is None:
            return
        if not isinstance(self.value, list):
            raise self.wrong("must be a list")
        if len(self.value) > most:
            raise self.wrong(f"has {len(self.value)} items, more than {most}")
        for index, item in enumerate(self.value):
            yield DocumentNode(item, self.document, f"{self.path}[{index}]")

    def texts(self) -> tuple[str, ...]:
        return tuple(item.text() for item in self.items())

    def pairs(self) -> tuple[tuple[str, str], ...]:
        if self.value is None:
            return ()
        if not isinstance(self.value, dict):
            raise self.wrong("must be an object")
        return tuple(
            (DocumentNode(key, self.document, f"{self.path}: a key").text(), self.get(key).text(""))
            for key in sorted(self.value)
        )

    def names(self) -> tuple[str, ...]:
        """Return the keys of an object, in order; none if it is missing or null."""
        if self.value is None:
            return ()
        if not isinstance(self.value, dict):
            raise self.wrong("must be an object")
        return tuple(sorted(self.value))


@frozen
class Platform:
    """What an image is built for, in image-spec's names."""

    os: str
    architecture: str
    variant: str = ""


@frozen
class Descriptor:
    """A reference to a blob. `ref_name` and `full_name` are annotations of an index."""

    digest: str
    size_bytes: int
    media_type: str = ""
    platform: Platform | None = None
    ref_name: str = ""
    full_name: str = ""


@frozen
class Index:
    """An index: references to manifests, or to further indexes."""

    manifests: tuple[Descriptor, ...]


@frozen
class Manifest:
    """A manifest: references to the configuration and the layers, lowest first."""

    config: Descriptor
    layers: tuple[Descriptor, ...]


@frozen
class ImageConfig:
    """The whole configuration; `config` is the part about the process."""

    config: ImageDefaults
    diff_ids: tuple[str, ...]
    created: str
    platform: Platform


@frozen
class Archived:
    """One image of a docker-archive: the names of its files, and the image's own names."""

    config: str
    layers: tuple[str, ...]
    names: tuple[str, ...]


def parse_json(text: bytes, document: str) -> DocumentNode:
    try:
        return DocumentNode(json.loads(text), document)
    except (ValueError, RecursionError) as error:
        raise BadImage(f"{document}: not JSON ({error})", document=document) from error


def parse_index(root: DocumentNode) -> Index:
    manifests = root.get("manifests")
    if not manifests.is_there:
        raise manifests.wrong("is missing")
    return Index(tuple(map(_descriptor, manifests.items())))


def parse_manifest(text: bytes, document: str) -> Index | Manifest:
    """Parse a manifest, or an index of several; the media type, or else the fields, show which it is. Raises
    BadImage."""
    root = parse_json(text, document)
    kind = root.get("mediaType").text("")
    if kind in INDEX_TYPES or (not kind and root.get("manifests").is_there):
        return parse_index(root)
    if root.get("schemaVersion").value == 1:
        raise root.get("schemaVersion").wrong("docker's old schema 1 is not known here")
    config = _descriptor(root.get("config"))
    if config.media_type and config.media_type not in CONFIG_TYPES:
        raise root.get("config").get("mediaType").wrong(f"{config.media_type!r} is not a container image's")
    layers = root.get("layers")
    if not layers.is_there:
        raise layers.wrong("is missing")
    return Manifest(config, tuple(map(_descriptor, layers.items(most=MOST_LAYERS))))


def parse_config(text: bytes, document: str) -> ImageConfig:
    """Parse an image's configuration. Raises BadImage."""
    root = parse_json(text, document)
    about = root.get("config")
    config = _process(about) if about.is_there else ImageDefaults()
    rootfs = root.get("rootfs")
    if not rootfs.is_there:
        raise rootfs.wrong("is missing")
    diff_ids = tuple(item.digest() for item in rootfs.get("diff_ids").items(most=MOST_LAYERS))
    runs_on = _platform(root)
    if runs_on.os != "linux":
        raise root.get("os").wrong(f"the image is for {runs_on.os!r}, not for linux")
    return ImageConfig(config, diff_ids, root.get("created").text(""), runs_on)


def parse_archive(text: bytes, document: str) -> tuple[Archived, ...]:
    """Parse the manifest.json of a docker-archive. Raises BadImage."""
    root = parse_json(text, document)
    if not isinstance(root.value, list):
        raise root.wrong("must be a list")
    return tuple(
        Archived(
            item.get("Config").text(),
            tuple(layer.text() for layer in item.get("Layers").items(most=MOST_LAYERS)),
            item.get("RepoTags").texts(),
        )
        for item in root.items()
    )


def config_document(diff_id: str) -> bytes:
    """Return the configuration of an image with one bare layer. The same layer always gives the same bytes."""
    document = {
        "architecture": host_platform().architecture,
        "os": "linux",
        "config": {},
        "rootfs": {"type": "layers", "diff_ids": [diff_id]},
    }
    return json.dumps(document, sort_keys=True).encode()


def manifest_document(config: Descriptor, layers: Sequence[Descriptor]) -> bytes:
    """Return an OCI manifest."""
    return _text(
        {
            "schemaVersion": 2,
            "mediaType": MANIFEST_TYPE,
            "config": _reference(config),
            "layers": [_reference(layer) for layer in layers],
        }
    )


def index_document(manifests: Sequence[Descriptor]) -> bytes:
    """Return the index.json of an OCI layout."""
    return _text(
        {
            "schemaVersion": 2,
            "mediaType": INDEX_TYPES[0],
            "manifests": [
                {
                    **_reference(each),
                    "annotations": {
                        key: text for key, text in ((REF_NAME, each.ref_name), (FULL_NAME, each.full_name)) if text
                    },
                }
                for each in manifests
            ],
        }
    )


def archive_document(images: Sequence[Archived]) -> bytes:
    """Return the manifest.json of a docker-archive."""
    return _text([{"Config": each.config, "RepoTags": [*each.names], "Layers": [*each.layers]} for each in images])


def with_diff_ids(config: bytes, document: str, diff_ids: Sequence[str]) -> bytes:
    """Return the configuration with other digests of its layers. Raises BadImage."""
    root = parse_json(config, document)
    rootfs = root.get("rootfs").value
    assert isinstance(root.value, dict) and isinstance(rootfs, dict)  # it was parsed before
    if rootfs.get("diff_ids") == [*diff_ids]:
        return config
    return _text({**root.value, "rootfs": {**rootfs, "diff_ids": [*diff_ids]}})


def _reference(found: Descriptor) -> dict[str, object]:
    return {"mediaType": found.media_type, "digest": found.digest, "size": found.size_bytes}


def _text(value: object) -> bytes:
    """The same value always gives the same bytes."""
    return json.dumps(value, sort_keys=True).encode()


def host_platform() -> Platform:
    machine = os.uname().machine
    return Platform("linux", _MACHINES.get(machine, machine), {"aarch64": "v8", "armv7l": "v7"}.get(machine, ""))


def fits(wanted: Platform, offered: Platform | None) -> bool:
    """Return whether an index's entry is for this host; an entry without a platform counts as fitting."""
    if offered is None:
        return True
    same = (offered.os, offered.architecture) == (wanted.os, wanted.architecture)
    return same and offered.variant in ("", wanted.variant)


def _descriptor(node: DocumentNode) -> Descriptor:
    if not node.is_there:
        raise node.wrong("is missing")
    notes, runs_on = node.get("annotations"), node.get("platform")
    return Descriptor(
        node.get("digest").digest(),
        node.get("size").number(),
        node.get("mediaType").text(""),
        _platform(runs_on) if runs_on.is_there else None,
        notes.get(REF_NAME).text("") if notes.is_there else "",
        notes.get(FULL_NAME).text("") if notes.is_there else "",
    )


def _platform(node: DocumentNode) -> Platform:
    return Platform(node.get("os").text("linux"), node.get("architecture").text(""), node.get("variant").text(""))


def _process(node: DocumentNode) -> ImageDefaults:
    return ImageDefaults(
        _words(node.get("Entrypoint")),
        _words(node.get("Cmd")),
        _words(node.get("Env")),
        node.get("User").text(""),
        node.get("WorkingDir").text(""),
        node.get("StopSignal").text(""),
        _labels(node.get("Labels")),
        _check(node.get("Healthcheck")),
        _volumes(node.get("Volumes")),
        _exposed(node.get("ExposedPorts")),
    )


def _volumes(node: DocumentNode) -> tuple[str, ...]:
    """The keys of an object whose values mean nothing."""
    if node.value is None:
        return ()
    if not isinstance(node.value, dict):
        raise node.wrong("must be an object")
    if len(node.value) > MOST_VOLUMES:
        raise node.wrong(f"has {len(node.value)} items, more than {MOST_VOLUMES}")
    found = (DocumentNode(key, node.document, f"{node.path}: a key").text() for key in sorted(node.value))
    places = {"/" + posixpath.normpath(f"/{text}").lstrip("/") for text in found}
    return tuple(sorted(places - {"/"}))


def _exposed(node: DocumentNode) -> tuple[tuple[int, str], ...]:
    """Parse docker's ExposedPorts, an object whose keys count. What is no port publishes nothing, as with docker."""
    found = (networks.exposed(name) for name in node.names()[:MOST_EXPOSED])
    return tuple(sorted(each for each in found if each is not None))


def _words(node: DocumentNode) -> tuple[str, ...]:
    words = node.texts()
    if (size := bounds.size_of(words)) > bounds.MOST_WORDS_BYTES:
        raise node.wrong(f"has {size} bytes, more than {bounds.MOST_WORDS_BYTES}")
    return words


def _labels(node: DocumentNode) -> tuple[tuple[str, str], ...]:
    pairs = node.pairs()
    if (size := bounds.size_of_pairs(pairs)) > bounds.MOST_PAIRS_BYTES:
        raise node.wrong(f"has {size} bytes, more than {bounds.MOST_PAIRS_BYTES}")
    return pairs


def _check(node: DocumentNode) -> HealthSpec | None:
    """Parse docker's Healthcheck, which no other specification has. Its Test is NONE; or CMD and words; or CMD-SHELL
    and one line. Without one there is nothing to inherit."""
    kind, *words = (_words(node.get("Test")) if node.is_there else ()) or ("NONE",)
    if kind == "CMD-SHELL" and len(words) == 1:
        words = [*values.SHELL, *words]
    elif kind != "CMD" or not words:
        if kind == "NONE":
            return None
        raise node.get("Test").wrong("must be NONE, or CMD and words, or CMD-SHELL and one line")
    interval, timeout, start_period = (_time(node.get(name)) for name in ("Interval", "Timeout", "StartPeriod"))
    return HealthSpec(tuple(words), interval, timeout, _retries(node.get("Retries")), start_period)


def _time(node: DocumentNode) -> int:
    """In ns; 0 means docker's default."""
    time_ns = node.number() if node.is_there else 0
    if time_ns and not values.MIN_NS <= time_ns <= values.MAX_NS:
        raise node.wrong(f"must be 0, or {values.MIN_NS} (1 ms) to {values.MAX_NS} (a day)")
    return time_ns


def _retries(node: DocumentNode) -> int:
    count = node.number() if node.is_there else 0
    if count > values.RETRIES_MAX:
        raise node.wrong(f"must be at most {values.RETRIES_MAX}")
    return count


def _is_unicode(text: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in text)
