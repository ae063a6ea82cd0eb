"""Checks the types of those parts of config.json that exitd reads, as runtime-spec defines them. The runtime may refuse
the other parts. Pure.

Source: runtime-spec 1.1, config.md and config-linux.md. A null member of an object counts as absent, as in Go; in a
list it is refused.
"""

from typing import Any, TypeAlias

from shim.frozen import frozen
from supervisor.model.errors import BadRequest

MOST_DEPTH = 100


@frozen
class Number:
    """A number from `least` to `most`, both included."""

    least: int
    most: int


@frozen
class Texts:
    """An object whose values are all texts."""


Shape: TypeAlias = "type[str] | type[bool] | type[dict[str, Any]] | Number | Texts | list[Any] | dict[str, Any]"

ID = Number(0, 2**32 - 1)
LONG = Number(0, 2**64 - 1)
RLIMIT = {"type": str, "hard": LONG, "soft": LONG}
CAPABILITIES = {name: [str] for name in ("bounding", "effective", "inheritable", "permitted", "ambient")}
PROCESS: dict[str, Any] = {
    "args": [str],
    "env": [str],
    "cwd": str,
    "terminal": bool,
    "user": {"uid": ID, "gid": ID, "additionalGids": [ID], "umask": ID},
    "rlimits": [RLIMIT],
    "capabilities": CAPABILITIES,
    "consoleSize": {"height": LONG, "width": LONG},
    "noNewPrivileges": bool,
    "oomScoreAdj": Number(-1000, 1000),
    "apparmorProfile": str,
    "selinuxLabel": str,
}
CONFIG: dict[str, Any] = {
    "process": PROCESS,
    "root": {"path": str, "readonly": bool},
    "hostname": str,
    "mounts": [{"type": str, "source": str, "destination": str, "options": [str]}],
    "annotations": Texts(),
    "linux": {
        "cgroupsPath": str,
        "namespaces": [{"type": str, "path": str}],
        "resources": {"memory": dict, "cpu": dict, "pids": dict, "devices": [dict]},
        "sysctl": Texts(),
        "devices": [dict],
        "maskedPaths": [str],
        "readonlyPaths": [str],
        "seccomp": dict,
    },
}


def is_ordinary(value: object, shape: Shape) -> bool:
    """Return whether the value is, for certain, one in which `check` finds nothing wrong and nothing to remove, as in
    most files. This takes one call for each object, where `check` takes some for each member."""
    if isinstance(shape, dict):
        if not isinstance(value, dict):
            return False
        for name in value.keys() & shape.keys():
            each, inner = value[name], shape[name]
            if inner is str:
                if not isinstance(each, str) or not each.isascii() or "\0" in each:
                    return False
            elif not is_ordinary(each, inner):
                return False
        return True
    if isinstance(shape, list):
        if not isinstance(value, list):
            return False
        return _are_plain(value) if shape[0] is str else all([is_ordinary(each, shape[0]) for each in value])
    if isinstance(shape, Texts):
        return isinstance(value, dict) and _are_plain([*value, *value.values()])
    if isinstance(shape, Number):
        return isinstance(value, int) and not isinstance(value, bool) and shape.least <= value <= shape.most
    return isinstance(value, shape) and (shape is not str or _are_plain([value]))


def check(value: object, shape: Shape, place: str) -> None:
    """Check a value, and remove nulls from its objects. Raises BadRequest, which names the place of a wrong type."""
    if shape is str:  # most are
        _text(_is(value, str, place, "a string"), place)
    elif isinstance(shape, dict):
        _members(value, shape, place)
    elif isinstance(shape, list):
        found = _is(value, list, place, "a list")
        if shape[0] is not str or not _are_plain(found):
            for index, each in enumerate(found):
                check(each, shape[0], f"{place}[{index}]")
    elif isinstance(shape, Texts):
        found = _is(value, dict, place, "an object")
        for name in [name for name, each in found.items() if each is None]:
            del found[name]
        for name, each in found.items():
            check(name, str, f"{place}: a name")
            check(each, str, f"{place}.{name[:60]}")
    elif isinstance(shape, Number):
        if isinstance(value, bool) or not isinstance(value, int) or not shape.least <= value <= shape.most:
            raise BadRequest(f"{place} must be a whole number from {shape.least} to {shape.most}")
    elif shape is bool:
        _is(value, bool, place, "true or false")
    else:
        _is(value, dict, place, "an object")


def trim(value: object, shape: Shape) -> bool:
    """Remove what `check` would refuse: members, and those elements of a list that are objects; a list of texts or
    numbers with another type in it is removed as a whole. Return False if the value itself has a wrong type."""
    if isinstance(shape, dict | Texts):
        if not isinstance(value, dict):
            return False
        inner: dict[str, Any] = dict.fromkeys(value, str) if isinstance(shape, Texts) else shape
        for name in [name for name in value.keys() & inner.keys() if not trim(value[name], inner[name])]:
            del value[name]
        return True
    if isinstance(shape, list) and _of_objects(shape):
        if isinstance(value, list):
            value[:] = [each for each in value if trim(each, shape[0])]
        return isinstance(value, list)
    try:
        check(value, shape, "")
    except BadRequest:
        return False
    return True


def _of_objects(shape: list[Any]) -> bool:
    return shape[0] is dict or isinstance(shape[0], dict)


def check_depth(value: object, place: str) -> None:
    """Refuse what is nested too deeply to be written again: json is limited by the stack. Raises BadRequest."""
    level = [value]
    for _ in range(MOST_DEPTH):
        inner = [each for each in level if isinstance(each, dict | list)]
        if not inner:
            return
        level = [one for each in inner for one in (each.values() if isinstance(each, dict) else each)]
    raise BadRequest(f"{place}: more than {MOST_DEPTH} objects and lists in each other")


def _members(value: object, shape: dict[str, Any], place: str) -> None:
    found = _is(value, dict, place, "an object")
    for name, inner in shape.items():
        if name in found and found[name] is None:
            del found[name]
        elif name in found:
            check(found[name], inner, f"{place}.{name}" if place else name)


def _is(value: object, kind: type, place: str, what: str) -> Any:
    if not isinstance(value, kind):
        raise BadRequest(f"{place or 'the whole'} must be {what}")
    return value


def _are_plain(found: list[Any]) -> bool:
    """Return whether these are texts that all are right, as in most files."""
    try:
        text = "".join(found)
    except TypeError:
        return False
    return text.isascii() and "\0" not in text


def _text(text: str, place: str) -> None:
    """Refuse text that no C string or no UTF-8 can hold: no program could receive it. Raises BadRequest."""
    if text.isascii():
        if "\0" in text:
            raise BadRequest(f"{place} has a zero byte in it")
        return
    try:
        data = text.encode()
    except UnicodeEncodeError as error:
        raise BadRequest(f"{place} has a lone surrogate in it") from error
    if b"\0" in data:
        raise BadRequest(f"{place} has a zero byte in it")
