"""What is mounted in a container: message to fact, checked, and back. Pure."""

from protos.exitd.v1 import exitd_pb2 as pb
from shim.frozen import replace
from shim.patterns import LatePattern
from supervisor.api.limits import bytes_of
from supervisor.api.rights import group_of
from supervisor.api.secrets import check_path, file_messages, files_of
from supervisor.api.values import absolute, bad, matching
from supervisor.model.errors import BadRequest
from supervisor.model.mountflags import ALONE, FLAGS, PROPAGATIONS
from supervisor.model.values import Mount

MOST_MODE = 0o7777
_NAME = LatePattern(r"[a-zA-Z0-9][a-zA-Z0-9_.-]{0,62}")


def mount_of(field: str, mount: pb.Mount) -> Mount:
    """Return the checked mount; `field`: its place in the request. Raises BadRequest."""
    if mount.sub_path:
        return _below(field, mount)
    if mount.files or mount.secret or mount.single:
        return _files(field, mount)
    if mount.tmpfs and not mount.empty_dir:
        return _tmpfs(field, mount)
    for name, is_given in (
        ("size_bytes", bool(mount.size_bytes) and not mount.empty_dir),
        ("mode", mount.HasField("mode")),
    ):
        if is_given:
            raise BadRequest(f"{field}.{name}: only a tmpfs has one", field=f"{field}.{name}")
    options = _options(field, mount, (*FLAGS, *PROPAGATIONS, ALONE))
    if mount.no_copy and not (mount.volume or mount.anonymous):
        raise BadRequest(f"{field}.no_copy: only a volume has it", field=f"{field}.no_copy")
    if mount.anonymous:
        return _anonymous(field, mount, options)
    if mount.empty_dir:
        matching(f"{field}.empty_dir", mount.empty_dir, _NAME, _NAME.pattern)
        destination = absolute(f"{field}.destination", mount.destination)
        group = group_of(f"{field}.group", mount.group) if mount.HasField("group") else None
        size_bytes = bytes_of(f"{field}.size_bytes", mount.size_bytes)
        kept = (mount.read_only, mount.empty_dir, group, mount.tmpfs, size_bytes)
        return Mount("", destination, *kept, options=options)
    if mount.volume:
        if mount.source:
            raise BadRequest(f"{field}.source: a volume has none", field=f"{field}.source")
        name = volume_of(f"{field}.volume", mount.volume)
        destination = _destination(field, mount)
        return Mount("", destination, mount.read_only, options=options, volume=name, no_copy=mount.no_copy)
    if not mount.source.startswith("/"):
        raise bad(f"{field}.source", mount.source, "an absolute path")
    return Mount(mount.source, _destination(field, mount), mount.read_only, options=options)


def _below(field: str, mount: pb.Mount) -> Mount:
    for name in ("files", "anonymous", "no_copy"):
        if getattr(mount, name):
            raise BadRequest(f"{field}.sub_path: a mount with {name} has none", field=f"{field}.sub_path")
    if mount.tmpfs and not mount.empty_dir:
        raise BadRequest(f"{field}.sub_path: a tmpfs has none", field=f"{field}.sub_path")
    check_path(f"{field}.sub_path", mount.sub_path)
    whole = pb.Mount()
    whole.CopyFrom(mount)
    whole.sub_path = ""
    return replace(mount_of(field, whole), sub_path=mount.sub_path)


def volume_of(field: str, name: str) -> str:
    """Return the name of a volume. Raises BadRequest."""
    if not _NAME.fullmatch(name):
        raise bad(field, name, f"the name of a volume: {_NAME.pattern}")
    return name


def mount_message(mount: Mount) -> pb.Mount:
    """Return the message of a mount, as `mount_of` reads it."""
    return pb.Mount(
        source=mount.source,
        destination=mount.destination,
        read_only=mount.read_only,
        empty_dir=mount.empty_dir,
        group=mount.group,
        tmpfs=mount.tmpfs,
        size_bytes=mount.size_bytes,
        mode=mount.mode,
        options=mount.options,
        volume=mount.volume,
        anonymous=mount.anonymous,
        no_copy=mount.no_copy,
        files=file_messages(mount),
        secret=mount.secret,
        single=mount.single,
        sub_path=mount.sub_path,
    )


def _anonymous(field: str, mount: pb.Mount, options: tuple[str, ...]) -> Mount:
    """Its name is exitd's: one that the caller names would go with the container."""
    for name, value in (("source", mount.source), ("empty_dir", mount.empty_dir), ("volume", mount.volume)):
        if value:
            raise BadRequest(f"{field}.{name}: an anonymous volume has none", field=f"{field}.{name}")
    destination = _destination(field, mount)
    return Mount("", destination, mount.read_only, options=options, anonymous=True, no_copy=mount.no_copy)


def _files(field: str, mount: pb.Mount) -> Mount:
    """Files that exitd makes: nothing but their group goes together with them. They can only be read."""
    others = ("source", "empty_dir", "tmpfs", "size_bytes", "volume", "anonymous", "no_copy", "options")
    for name in others:
        if getattr(mount, name):
            raise BadRequest(f"{field}.{name}: a mount of files has none", field=f"{field}.{name}")
    if mount.HasField("mode"):
        raise BadRequest(f"{field}.mode: each file has its own", field=f"{field}.mode")
    if not mount.files:
        raise BadRequest(f"{field}.files: which ones? There is none", field=f"{field}.files")
    group = group_of(f"{field}.group", mount.group) if mount.HasField("group") else None
    files, destination = files_of(field, mount), _destination(field, mount)
    return Mount("", destination, True, group=group, files=files, secret=mount.secret, single=mount.single)


def _tmpfs(field: str, mount: pb.Mount) -> Mount:
    for name, value in (
        ("source", mount.source),
        ("empty_dir", mount.empty_dir),
        ("volume", mount.volume),
        ("group", mount.HasField("group")),
        ("anonymous", mount.anonymous),
        ("no_copy", mount.no_copy),
    ):
        if value:
            raise BadRequest(f"{field}.{name}: a tmpfs has none", field=f"{field}.{name}")
    if mount.HasField("mode") and mount.mode > MOST_MODE:
        raise bad(f"{field}.mode", f"{mount.mode:o}", f"permissions in octal, 0 to {MOST_MODE:o}")
    return Mount(
        "",
        _destination(field, mount),
        mount.read_only,
        tmpfs=True,
        size_bytes=bytes_of(f"{field}.size_bytes", mount.size_bytes),
        mode=mount.mode if mount.HasField("mode") else None,
        options=_options(field, mount, FLAGS),
    )


def _destination(field: str, mount: pb.Mount) -> str:
    if not mount.destination.startswith("/"):
        raise bad(f"{field}.destination", mount.destination, "an absolute path")
    return mount.destination


def _options(field: str, mount: pb.Mount, allowed: tuple[str, ...]) -> tuple[str, ...]:
    for each in mount.options:
        if each not in allowed:
            raise bad(f"{field}.options", each, ", ".join(allowed))
    return tuple(dict.fromkeys(mount.options))
