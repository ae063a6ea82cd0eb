"""Who a container's process is: a user as the caller names it, looked up in the container's own passwd and group."""

from collections.abc import Iterator
from dataclasses import dataclass

from supervisor.model.errors import BadRequest
from supervisor.model.rights import ALWAYS, NEVER
from supervisor.runtime.oci.inroot import read_in_root

MOST_BYTES = 4 << 20  # of a passwd or group file
MOST_ID = 2**32 - 2  # -1 means "leave it" to setuid(2)


@dataclass(frozen=True, slots=True)
class Ids:
    """The numbers of a process, and the home directory that goes with them."""

    uid: int = 0
    gid: int = 0
    additional_gids: tuple[int, ...] = ()
    home: str = "/"


@dataclass(frozen=True, slots=True)
class User:
    """A line of passwd(5)."""

    name: str
    uid: int
    gid: int
    home: str


@dataclass(frozen=True, slots=True)
class Group:
    """A line of group(5)."""

    name: str
    gid: int
    members: tuple[str, ...]


def resolve(user: str, rootfs: str, *, shown: str = "", image_groups: str = "") -> Ids:
    """`name|uid[:group|gid]` as docker reads it: names first, then numbers; empty is root.

    A number needs no entry. Without a named group the user's own one and all that list it as a member apply; with one,
    that one alone. `image_groups` is ALWAYS or NEVER for all that list it, whether one is named or not.

    Raises:
        BadRequest: something could not be found in `rootfs`; the error names it, and `shown` in the place of `rootfs`.
    """
    wanted, colon, wanted_group = user.partition(":")
    wanted = wanted or "0"
    users = parse_passwd(_read(rootfs, "/etc/passwd"))
    groups = parse_group(_read(rootfs, "/etc/group"))
    found = next((u for u in users if wanted in (u.name, str(u.uid))), None)
    if found is None:
        found = User("", _number(wanted, "user", "/etc/passwd", shown or rootfs), 0, "/")
    is_named = bool(colon and wanted_group)
    gid = _gid(wanted_group, groups, shown or rootfs) if is_named else found.gid
    is_merged = image_groups == ALWAYS or (not is_named and image_groups != NEVER)
    additional = {g.gid for g in groups if is_merged and found.name and found.name in g.members} - {gid}
    return Ids(found.uid, gid, tuple(sorted(additional)), found.home)


def parse_passwd(text: str) -> list[User]:
    """passwd(5); lines that are none are passed over, as the C library does."""
    return [
        User(fields[0], int(fields[2]), int(fields[3]), fields[5] or "/")
        for fields in _lines(text, 6)
        if _is_id(fields[2]) and _is_id(fields[3])
    ]


def parse_group(text: str) -> list[Group]:
    """group(5); lines that are none are passed over."""
    return [
        Group(fields[0], int(fields[2]), tuple(name for name in fields[3].split(",") if name))
        for fields in _lines(text, 4)
        if _is_id(fields[2])
    ]


def _lines(text: str, least_fields: int) -> Iterator[list[str]]:
    for line in text.split("\n"):
        fields = line.strip().split(":")
        if len(fields) >= least_fields and fields[0] and not fields[0].startswith("#"):
            yield fields


def _gid(wanted: str, groups: list[Group], rootfs: str) -> int:
    found = next((g.gid for g in groups if wanted in (g.name, str(g.gid))), None)
    return _number(wanted, "group", "/etc/group", rootfs) if found is None else found


def _number(wanted: str, kind: str, file: str, rootfs: str) -> int:
    if _is_id(wanted):
        return int(wanted)
    raise BadRequest(
        f"no {kind} {wanted!r} in {file} of {rootfs}: name one that is there, or a number", **{kind: wanted}
    )


def _is_id(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 10 and int(text) <= MOST_ID


def _read(rootfs: str, path: str) -> str:
    """A root file system without the file, or with something else in its place, has no names at all."""
    try:
        return read_in_root(rootfs, path, most_bytes=MOST_BYTES).decode(errors="replace")
    except OSError:
        return ""
