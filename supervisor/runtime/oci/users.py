"""The user of a container's process: a name from the caller, looked up in the container's own passwd and group
files."""

from collections.abc import Iterator

from shim.frozen import frozen
from supervisor.model.errors import BadRequest
from supervisor.model.rights import ALWAYS, NEVER
from supervisor.runtime.oci.inroot import read_in_root

MOST_BYTES = 4 << 20  # of a passwd or group file
MOST_ID = 2**32 - 2  # -1 means "unchanged" to setuid(2)


@frozen
class Ids:
    """The ids of a process, and its home directory."""

    uid: int = 0
    gid: int = 0
    additional_gids: tuple[int, ...] = ()
    home: str = "/"


@frozen
class User:
    """A line of passwd(5)."""

    name: str
    uid: int
    gid: int
    home: str


@frozen
class Group:
    """A line of group(5)."""

    name: str
    gid: int
    members: tuple[str, ...]


def resolve(user: str, rootfs: str, *, shown: str = "", image_groups: str = "") -> Ids:
    """Resolve `name|uid[:group|gid]` as docker reads it: names first, then numbers; empty is root.

    A number needs no entry. If no group is named, the user's own group and all that list it as a member apply; if one
    is named, only that one. `image_groups`, ALWAYS or NEVER, overrides whether the listing groups apply.

    Raises:
        BadRequest: a name is not in `rootfs`; the error names it, and `shown` instead of `rootfs`.
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
    """Parse passwd(5). Malformed lines are skipped, as the C library does."""
    return [
        User(fields[0], int(fields[2]), int(fields[3]), fields[5] or "/")
        for fields in _lines(text, 6)
        if _is_id(fields[2]) and _is_id(fields[3])
    ]


def parse_group(text: str) -> list[Group]:
    """Parse group(5). Malformed lines are skipped."""
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
    """Return the file's text, empty if it is missing or no regular file: then there are no names."""
    try:
        return read_in_root(rootfs, path, most_bytes=MOST_BYTES).decode(errors="replace")
    except OSError:
        return ""
