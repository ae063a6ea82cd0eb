"""Images made by hand: tars entry by entry, OCI layouts and docker-archives from them."""

import gzip
import hashlib
import io
import json
import pathlib
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

Json = dict[str, object]


def digest_of(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def entry(name: str, kind: bytes = tarfile.REGTYPE, **fields: object) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.mode, info.mtime = kind, 0o755 if kind == tarfile.DIRTYPE else 0o644, 1_000_000_000
    for key, value in fields.items():
        setattr(info, key, value)
    return info


def folder(name: str, **fields: object) -> tarfile.TarInfo:
    return entry(name, tarfile.DIRTYPE, **fields)


def link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> tarfile.TarInfo:
    return entry(name, kind, linkname=target)


def hard(name: str, target: str) -> tarfile.TarInfo:
    return link(name, target, tarfile.LNKTYPE)


Member = tarfile.TarInfo | tuple[str | tarfile.TarInfo, bytes]


def tar(*members: Member) -> bytes:
    """Entries without content as they are, (name or entry, content) for files."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                archive.addfile(member)
                continue
            info = entry(member[0]) if isinstance(member[0], str) else member[0]
            info.size = len(member[1])
            archive.addfile(info, io.BytesIO(member[1]))
    return buffer.getvalue()


@dataclass
class Made:
    """One image: its layers' tars, and what its configuration says. What is set in `config` replaces the default."""

    layers: Sequence[bytes]
    process: Json = field(default_factory=dict)
    config: Json = field(default_factory=dict)

    @property
    def config_text(self) -> bytes:
        document: Json = {
            "architecture": "amd64",
            "os": "linux",
            "config": self.process,
            "rootfs": {"type": "layers", "diff_ids": [digest_of(layer) for layer in self.layers]},
        }
        return json.dumps(document | self.config).encode()

    @property
    def id(self) -> str:
        return digest_of(self.config_text)


def write_layout(directory: pathlib.Path, images: Mapping[str, Made], *, packed: bool = True) -> pathlib.Path:
    """An OCI layout; the keys are tags, an empty one is none."""
    (directory / "blobs/sha256").mkdir(parents=True, exist_ok=True)
    (directory / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    manifests = []
    for tag, image in images.items():
        layers = [gzip.compress(layer, 1, mtime=0) if packed else layer for layer in image.layers]
        manifest = {
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": blob(directory, image.config_text, "application/vnd.oci.image.config.v1+json"),
            "layers": [blob(directory, data, "application/vnd.oci.image.layer.v1.tar+gzip") for data in layers],
        }
        kind = "application/vnd.oci.image.manifest.v1+json"
        descriptor = blob(directory, json.dumps(manifest).encode(), kind)
        manifests.append({**descriptor, "annotations": {"org.opencontainers.image.ref.name": tag} if tag else {}})
    (directory / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": manifests}))
    return directory


def blob(directory: pathlib.Path, data: bytes, media_type: str) -> Json:
    digest = digest_of(data)
    (directory / "blobs/sha256" / digest.removeprefix("sha256:")).write_bytes(data)
    return {"mediaType": media_type, "digest": digest, "size": len(data)}


def docker_archive(*images: tuple[Made, Sequence[str]]) -> bytes:
    """What `docker save` writes, with the names of each image."""
    members: list[Member] = []
    entries = []
    for image, names in images:
        files = [f"{digest_of(layer).removeprefix('sha256:')}/layer.tar" for layer in image.layers]
        members += zip(files, image.layers, strict=True)
        config = f"{image.id.removeprefix('sha256:')}.json"
        members.append((config, image.config_text))
        entries.append({"Config": config, "RepoTags": list(names), "Layers": files})
    return tar(*members, ("manifest.json", json.dumps(entries).encode()))


def tree(root: pathlib.Path) -> dict[str, str]:
    """What is below a directory: content of files, targets of links, else the kind."""
    found = {}
    for path in root.rglob("*"):
        name = str(path.relative_to(root))
        if path.is_symlink():
            found[name] = f"-> {path.readlink()}"
        elif path.is_file():
            found[name] = path.read_text()
        elif path.is_dir():
            found[name] = "/"
        elif path.is_char_device():
            found[name] = "whiteout"
        else:
            found[name] = "other"
    return found
