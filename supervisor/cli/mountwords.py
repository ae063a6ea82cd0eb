"""Converts -v, --mount and --tmpfs, in docker's words, to the mounts of a request."""

import os
from collections.abc import Iterable

from protos.exitd.v1 import exitd_pb2 as pb
from shim.frozen import frozen
from supervisor.cli import parse
from supervisor.model.errors import BadRequest
from supervisor.model.mountflags import ALONE, FLAGS, PROPAGATIONS

RELABEL = "exitd changes no SELinux labels: leave it out, and give the files the label that the container may use"
OWNERS = (
    "exitd changes no owners of what is mounted; with --userns auto a new volume is the container's, and a directory "
    "can be given to the first id that exitctl inspect shows: chown"
)
KEYS = {  # of --mount, each with the names that docker and podman know it by
    "type": ("type",),
    "source": ("source", "src"),
    "destination": ("destination", "dst", "target"),
    "readonly": ("readonly", "ro"),
    "propagation": ("bind-propagation",),
    "nonrecursive": ("bind-nonrecursive",),
    "size": ("tmpfs-size",),
    "mode": ("tmpfs-mode",),
    "nocopy": ("volume-nocopy",),
    "subpath": ("volume-subpath", "subpath"),
}
_KEY = {name: key for key, names in KEYS.items() for name in names}
TRUE, FALSE = ("", "true", "1"), ("false", "0")


@frozen
class MountWords:
    """The options about mounts, literally."""

    volume: tuple[str, ...] = ()
    mount: tuple[str, ...] = ()
    tmpfs: tuple[str, ...] = ()


def mounts(words: MountWords) -> list[pb.Mount]:
    """Return them in the order -v, --mount, --tmpfs. Raises BadRequest, which names the word."""
    found = [
        *(volume(word) for word in words.volume),
        *(_mount(word) for word in words.mount),
        *(_tmpfs(word) for word in words.tmpfs),
    ]
    at = [os.path.normpath(each.destination) for each in found]
    if twice := next((path for path in at if at.count(path) > 1), ""):
        raise BadRequest(f"{twice}: something is to be mounted there twice; leave one of them out")
    return found


def volume(word: str) -> pb.Mount:
    """Return the mount of `SRC:DST[:OPTION,...]`: SRC is a directory or file, relative to here, or, as a plain word,
    the name of a volume; or of `DST`, for an anonymous volume. Raises BadRequest."""
    source, *rest = word.split(":")
    if not rest and source.startswith("/"):
        return pb.Mount(anonymous=True, destination=source)
    if len(rest) not in (1, 2) or not source or not all(rest):
        raise BadRequest(f"mount {word!r} is not of the form SRC:DST, SRC:DST:ro or /DST")
    options = rest[1].split(",") if len(rest) == 2 else []
    kept = [each for each in options if each not in ("ro", "rw", "rbind", "nocopy")]
    if {"z", "Z"} & {*kept}:
        raise BadRequest(f"mount {word!r}: {RELABEL}")
    if {"U", "idmap"} & {*kept}:
        raise BadRequest(f"mount {word!r}: {OWNERS}")
    if wrong := [each for each in kept if each not in (*FLAGS, *PROPAGATIONS, ALONE)]:
        raise BadRequest(f"mount {word!r}: {wrong[0]!r} is none of ro, rw, {', '.join((*FLAGS, *PROPAGATIONS))}")
    named = "/" not in source and source not in (".", "..")
    return pb.Mount(
        source="" if named else os.path.abspath(source),
        volume=source if named else "",
        destination=_destination(rest[0], f"mount {word!r}"),
        read_only="ro" in options,
        options=kept,
        no_copy=named and "nocopy" in options,
    )


def bind_word(mount: pb.Mount) -> str:
    """Return a bind mount as `docker inspect` shows it."""
    options = ("ro" if mount.read_only else "rw", *mount.options)
    source = "/".join(filter(None, (mount.source or mount.volume or mount.empty_dir, mount.sub_path)))
    return ":".join(word for word in (source, mount.destination, ",".join(options)) if word)


def mode_of(mount: pb.Mount) -> str:
    """Return the options of a mount as docker's `.Mounts` has them; empty for one that has none."""
    if mount.tmpfs and not mount.empty_dir:
        return tmpfs_options(mount)
    own = (each for each in mount.options if each not in PROPAGATIONS)
    return ",".join((*(("ro",) if mount.read_only else ()), *own))


def propagation_of(mount: pb.Mount) -> str:
    """Return whether what is mounted below it is seen on the other side, in mount(8)'s word; empty where docker says
    nothing of it: of what is no bind mount of the machine's."""
    usual = "rprivate" if mount.source else ""
    return next((each for each in mount.options if each in PROPAGATIONS), usual)


def tmpfs_options(mount: pb.Mount) -> str:
    """Return the options of a tmpfs as `docker inspect` shows them."""
    size = (f"size={mount.size_bytes}",) if mount.size_bytes else ()
    mode = (f"mode={mount.mode:o}",) if mount.HasField("mode") else ()
    return ",".join(("ro" if mount.read_only else "rw", *mount.options, *size, *mode))


def _mount(word: str) -> pb.Mount:
    what = f"--mount {word}"
    given: dict[str, str] = {}
    for part in word.split(","):
        name, _, value = part.partition("=")
        key = _KEY.get(name.strip())
        if key is None:
            raise BadRequest(f"{what}: {name!r} is none of {', '.join(sorted(_KEY))}")
        given[key] = value
    kind = given.pop("type", "volume")
    if "destination" not in given:
        raise BadRequest(f"{what}: where? Add dst=/PATH")
    read_only = _truth(given.pop("readonly", "false"), what)
    destination = _destination(given.pop("destination"), what)
    if kind == "tmpfs":
        return _of_tmpfs(given, what, destination, read_only=read_only)
    if kind == "volume":
        return _of_volume(given, what, destination, read_only=read_only)
    if kind != "bind":
        raise BadRequest(f"{what}: type {kind!r}: write type=bind, type=volume or type=tmpfs")
    if "source" not in given:
        raise BadRequest(f"{what}: of which directory or file? Add src=/PATH")
    source, spread = given.pop("source"), given.pop("propagation", "")
    if spread and spread not in PROPAGATIONS:
        raise BadRequest(f"{what}: bind-propagation {spread!r} is none of {', '.join(PROPAGATIONS)}")
    alone = _truth(given.pop("nonrecursive", "false"), what)
    _refuse_rest(given, what, kind)
    options = [*([ALONE] if alone else []), *([spread] if spread else [])]
    return pb.Mount(source=os.path.abspath(source), destination=destination, read_only=read_only, options=options)


def _of_volume(given: dict[str, str], what: str, destination: str, *, read_only: bool) -> pb.Mount:
    name, no_copy = given.pop("source", ""), _truth(given.pop("nocopy", "false"), what)
    below = _sub_path(given.pop("subpath"), what) if "subpath" in given else ""
    _refuse_rest(given, what, "volume")
    if below and not name:
        raise BadRequest(f"{what}: an anonymous volume is new and has no volume-subpath; name the volume: src=NAME")
    return pb.Mount(
        volume=name,
        anonymous=not name,
        destination=destination,
        read_only=read_only,
        no_copy=no_copy and not below,  # what is below a path is never filled
        sub_path=below,
    )


def _sub_path(path: str, what: str) -> str:
    """Return the path as the API has it: relative, without . and empty parts; exitd refuses .. in it."""
    plain = "/".join(part for part in path.split("/") if part not in ("", "."))
    if not plain or path.startswith("/"):
        raise BadRequest(f"{what}: volume-subpath {path!r} is no path in the volume: write it relative, as in DIR/DIR")
    return plain


def _of_tmpfs(given: dict[str, str], what: str, destination: str, *, read_only: bool) -> pb.Mount:
    size, mode = given.pop("size", ""), given.pop("mode", "")
    _refuse_rest(given, what, "tmpfs")
    return pb.Mount(
        tmpfs=True,
        destination=destination,
        read_only=read_only,
        size_bytes=parse.size_of(what, size),
        mode=_mode(mode, what) if mode else None,
    )


def _refuse_rest(given: Iterable[str], what: str, kind: str) -> None:
    for key in given:
        raise BadRequest(f"{what}: a mount of type {kind} has no {KEYS[key][0]}")


def _tmpfs(word: str) -> pb.Mount:
    """`DST[:OPTION,...]`: flags of mount(8), size=SIZE, mode=OCTAL."""
    what = f"--tmpfs {word}"
    path, _, options = word.partition(":")
    made = pb.Mount(tmpfs=True, destination=_destination(path, what))
    for option in filter(None, options.split(",")):
        name, _, value = option.partition("=")
        if name == "size":
            made.size_bytes = parse.size_of(what, value)
        elif name == "mode":
            made.mode = _mode(value, what)
        elif option in ("ro", "rw"):
            made.read_only = option == "ro"
        elif option in FLAGS:
            made.options.append(option)
        else:
            raise BadRequest(f"{what}: {option!r} is none of size=SIZE, mode=OCTAL, ro, rw, {', '.join(FLAGS)}")
    return made


def _destination(text: str, what: str) -> str:
    if not text.startswith("/"):
        raise BadRequest(f"{what}: the destination must be an absolute path")
    return text


def _mode(text: str, what: str) -> int:
    try:
        return int(text, 8)
    except ValueError:
        raise BadRequest(f"{what}: {text!r} is no mode: write it in octal, as in 1777") from None


def _truth(text: str, what: str) -> bool:
    if text not in (*TRUE, *FALSE):
        raise BadRequest(f"{what}: {text!r} is neither true nor false")
    return text in TRUE
