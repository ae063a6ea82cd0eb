"""What ConfigMaps and Secrets of the files hold, and how containers get at it: variables, and volumes of files. Pure.

Source: core/v1 (types.go), the API reference of ConfigMapVolumeSource, SecretVolumeSource, DownwardAPIVolumeSource and
ProjectedVolumeSource.
"""

import base64
import binascii
from collections.abc import Iterator, Mapping

from protos.exitd.v1 import exitd_pb2 as pb
from shim.frozen import field, frozen
from supervisor.api.secrets import MOST_FILE_BYTES, check_path
from supervisor.cli.manifest.downward import Downward
from supervisor.cli.manifest.fields import Field, Notes, flag_of, text_of
from supervisor.cli.manifest.podshape import permissions
from supervisor.model.errors import BadRequest

DEFAULT_FILE_MODE = 0o644
CONFIG_MAP, SECRET = "ConfigMap", "Secret"
NOT_THERE = "there is no {kind} {name!r} in these files; add it, or say optional: true"


@frozen
class KeyedContent:
    """The keys of a ConfigMap or a Secret."""

    kind: str
    data: Mapping[str, bytes]


@frozen
class Contents:
    """All of the files, by kind, namespace and name; and the namespace of the pod that asks."""

    found: Mapping[tuple[str, str, str], KeyedContent] = field(default_factory=dict)

    def get(self, kind: str, namespace: str, name: Field | None, optional: bool, notes: Notes) -> KeyedContent | None:
        """Return None where there is none; that is refused unless it is optional."""
        found = self.found.get((kind, namespace, text_of(name)))
        if found is None and name is not None and not optional:
            name.refuse(notes, NOT_THERE.format(kind=kind, name=name.text()))
        return found


def content_of(document: Field, notes: Notes) -> KeyedContent:
    """Return what a ConfigMap or a Secret holds. A key that is there twice is refused, but stringData comes before
    data."""
    kind = text_of(document.get("kind"))
    data: dict[str, bytes] = {}
    plain, other = document.get("data"), document.get("binaryData" if kind == CONFIG_MAP else "stringData")
    for key, each in plain.fields() if plain is not None else ():
        data[key] = each.text().encode() if kind == CONFIG_MAP else _decoded(each, kind, notes)
    for key, each in other.fields() if other is not None else ():
        if key in data and kind == CONFIG_MAP:
            each.refuse(notes, f"the key {key} is in data as well")
        data[key] = _decoded(each, kind, notes) if kind == CONFIG_MAP else each.text().encode()
    if sum(map(len, data.values())) > MOST_FILE_BYTES:
        document.refuse(notes, f"more than {MOST_FILE_BYTES} bytes, which Kubernetes does not take either")
    return KeyedContent(kind, data)


def _decoded(value: Field, kind: str, notes: Notes) -> bytes:
    try:
        return base64.b64decode("".join(value.text().split()), validate=True)
    except (binascii.Error, ValueError):
        value.refuse(notes, "is not base64" + ("; stringData takes plain text" if kind == SECRET else ""))
        return b""


# -- variables


@frozen
class FoundVariable:
    value: str
    secret: bool = False


def variable_from(source: Field, contents: Contents, namespace: str, notes: Notes) -> FoundVariable | None:
    """Return the value of a configMapKeyRef or secretKeyRef. None: it is optional and not there, or was refused."""
    for word, kind in (("configMapKeyRef", CONFIG_MAP), ("secretKeyRef", SECRET)):
        ref = source.get(word)
        if ref is None:
            continue
        optional, key = flag_of(ref.get("optional")), ref.get("key")
        content = contents.get(kind, namespace, ref.get("name"), optional, notes)
        if content is None or key is None:
            return None
        if key.text() in content.data:
            return _variable(content, key.text(), key, notes)
        if not optional:
            known = ", ".join(content.data) or "none"
            key.refuse(notes, f"the {kind} {text_of(ref.get('name'))} has no key {key.text()!r}; it has {known}")
    return None


def variables_from(
    source: Field, contents: Contents, namespace: str, notes: Notes
) -> Iterator[tuple[str, FoundVariable]]:
    """Yield name and value of all keys of an element of envFrom."""
    prefix = text_of(source.get("prefix"))
    refs = [(source.get(name), kind) for name, kind in (("configMapRef", CONFIG_MAP), ("secretRef", SECRET))]
    if sum(ref is not None for ref, _ in refs) != 1:
        source.refuse(notes, "names either a configMapRef or a secretRef")
        return
    for ref, kind in refs:
        if ref is not None:
            content = contents.get(kind, namespace, ref.get("name"), flag_of(ref.get("optional")), notes)
            for key in content.data if content is not None else ():
                found = _variable(content, key, ref, notes) if content is not None else None
                if found is not None:
                    yield f"{prefix}{key}", found


def _variable(content: KeyedContent, key: str, where: Field, notes: Notes) -> FoundVariable | None:
    try:
        text = content.data[key].decode()
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        where.refuse(notes, f"the key {key} is no text, which a variable must be; mount it as a file")
        return None
    return FoundVariable(text, content.kind == SECRET)


# -- volumes


@frozen
class FilesVolume:
    """A volume that is made of files."""

    files: tuple[pb.MountFile, ...]
    secret: bool
    group: int | None = None

    def mount(self, destination: str, sub_path: Field | None, notes: Notes) -> pb.Mount | None:
        """Return the mount; None where there is nothing to mount. Each container has files of its own."""
        inside = text_of(sub_path).strip("/")
        if inside in ("", "."):
            return self._mount(destination, self.files)
        single = [file for file in self.files if file.path == inside]
        if single:
            only = pb.MountFile(path=inside.rpartition("/")[2], content=single[0].content, mode=single[0].mode)
            mount = self._mount(destination, (only,))
            if mount is not None:
                mount.single = True
            return mount
        below = f"{inside}/"
        found = [
            pb.MountFile(path=file.path[len(below) :], content=file.content, mode=file.mode)
            for file in self.files
            if file.path.startswith(below)
        ]
        if not found and sub_path is not None:
            known = ", ".join(file.path for file in self.files) or "nothing"
            sub_path.refuse(notes, f"there is no {inside!r} in the volume; it has {known}")
        return self._mount(destination, tuple(found))

    def _mount(self, destination: str, files: tuple[pb.MountFile, ...]) -> pb.Mount | None:
        if not files:
            return pb.Mount(tmpfs=True, destination=destination, read_only=True, size_bytes=4096, mode=0o755)
        return pb.Mount(destination=destination, files=files, secret=self.secret, read_only=True, group=self.group)


def files_volume(
    source: Field, kind: str, contents: Contents, down: Downward, group: int | None, notes: Notes
) -> FilesVolume:
    """Return the volume of a configMap, secret, downwardAPI or projected source."""
    default = mode_of(source.get("defaultMode"), DEFAULT_FILE_MODE)
    secret = False
    found: dict[str, pb.MountFile] = {}
    for part, word in _parts(source, kind, notes):
        if word in ("configMap", "secret"):
            secret |= word == "secret"
            files = _keyed(part, word, contents, down.namespace, default, notes)
        else:
            files = _downward(part, down, default, notes)
        for path, file in files:
            if kind == "projected" and path in found:
                part.refuse(notes, f"{path} is in an earlier source of the volume as well")
            found[path] = file
    return FilesVolume(tuple(found.values()), secret, group)


def _parts(source: Field, kind: str, notes: Notes) -> Iterator[tuple[Field, str]]:
    if kind != "projected":
        yield source, kind
        return
    sources = source.get("sources")
    for each in sources.items() if sources is not None else ():
        named = [name for name, part in each.fields() if part.node.value is not None]
        if len(named) != 1:
            each.refuse(notes, "is one of configMap, secret and downwardAPI")
            continue
        part = each.get(named[0])
        if part is not None:
            yield part, named[0]


def _keyed(
    part: Field, word: str, contents: Contents, namespace: str, default: int, notes: Notes
) -> Iterator[tuple[str, pb.MountFile]]:
    kind = CONFIG_MAP if word == "configMap" else SECRET
    optional, name = flag_of(part.get("optional")), part.get("name") or part.get("secretName")
    if name is None:
        part.refuse(notes, "which one? It has no name")
        return
    content, items = contents.get(kind, namespace, name, optional, notes), part.get("items")
    if content is None:
        return
    if items is None:
        for name_of_file, data in content.data.items():
            yield name_of_file, pb.MountFile(path=name_of_file, content=data, mode=default)
        return
    for item in items.items():
        key, path = item.get("key"), _path(item, notes)
        data_of_key = content.data.get(text_of(key))
        if data_of_key is not None:
            yield path, pb.MountFile(path=path, content=data_of_key, mode=mode_of(item.get("mode"), default))
        elif not optional and key is not None:
            known = ", ".join(content.data) or "none"
            key.refuse(notes, f"the {kind} {name.text()} has no key {key.text()!r}; it has {known}")


def _downward(part: Field, down: Downward, default: int, notes: Notes) -> Iterator[tuple[str, pb.MountFile]]:
    items = part.get("items")
    for item in items.items() if items is not None else ():
        path, text = _path(item, notes), down.of_file(item, notes)
        mode = mode_of(item.get("mode"), default)
        yield path, pb.MountFile(path=path, content=text.encode(), mode=mode)


def _path(item: Field, notes: Notes) -> str:
    path = item.get("path")
    assert path is not None
    try:
        check_path("path", path.text())
    except BadRequest:
        path.refuse(notes, f"{path.text()[:100]!r} is no relative path without . and ..")
    return path.text()


def mode_of(field: Field | None, otherwise: int) -> int:
    return otherwise if field is None else permissions(field)
