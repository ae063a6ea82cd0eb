"""A seccomp profile in docker's JSON format: checked, and applied to a container's capabilities and a machine. Pure.

The format is the OCI configuration's linux.seccomp with three additions of docker's: `archMap` beside `architectures`,
and `includes` and `excludes` of an entry, by capability, architecture and the kernel's release. A file may come from
any user: its size is limited, and unknown parts are refused with their place, since an ignored condition would allow
too much.
"""

import json
from collections.abc import Callable, Iterable
from typing import cast

from shim.patterns import LatePattern
from supervisor.model.errors import BadRequest
from supervisor.runtime.oci.seccomp import Document, SeccompMachine

MOST_BYTES = 256 << 10  # docker's own has some 20 KiB
MOST_NAMES = 8192
MOST_ERRNO = 4095  # the kernel's MAX_ERRNO
ACTIONS = frozenset(
    f"SCMP_ACT_{word}" for word in ("ALLOW", "ERRNO", "KILL", "KILL_PROCESS", "KILL_THREAD", "LOG", "TRACE", "TRAP")
)
OPERATORS = frozenset(f"SCMP_CMP_{word}" for word in ("EQ", "GE", "GT", "LE", "LT", "MASKED_EQ", "NE"))
FLAGS = frozenset(f"SECCOMP_FILTER_FLAG_{word}" for word in ("LOG", "SPEC_ALLOW", "TSYNC"))
# uname(2)'s names: Go's, which docker's conditions use, and libseccomp's.
NATIVE = {
    "x86_64": ("amd64", "SCMP_ARCH_X86_64"),
    "aarch64": ("arm64", "SCMP_ARCH_AARCH64"),
    "ppc64le": ("ppc64le", "SCMP_ARCH_PPC64LE"),
    "riscv64": ("riscv64", "SCMP_ARCH_RISCV64"),
    "s390x": ("s390x", "SCMP_ARCH_S390X"),
}
_NAME = LatePattern(r"[a-z0-9_]{1,64}")
_ARCHITECTURE = LatePattern(r"SCMP_ARCH_[A-Z0-9_]{1,32}")
_CAPABILITY = LatePattern(r"CAP_[A-Z_]{1,32}")
_WORD = LatePattern(r"[a-z0-9_]{1,32}")
_RELEASE = LatePattern(r"([0-9]{1,5})\.([0-9]{1,5})")
_CONDITIONS = ("caps", "arches", "minKernel")
_QUIET = ("comment", "errno", "defaultErrno")  # text for people; the numbers count


def parse(text: str, file: str = "the seccomp profile") -> Document:
    """Parse and check every part of a profile. Raises BadRequest with the file and the place."""
    if len(text.encode("utf-8", "replace")) > MOST_BYTES:
        raise BadRequest(f"{file}: larger than {MOST_BYTES} bytes, which no seccomp profile needs")
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        raise BadRequest(f"{file}, line {error.lineno}, column {error.colno}: {error.msg}") from error
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"{file}: not the JSON of a seccomp profile: {error}") from error
    _ProfileReader(file).profile(document)
    return cast(Document, document)


def compact(document: Document) -> str:
    """Return the profile without white space and comments, as it is sent and stored."""
    entries = [_plain(each) for each in _objects(document.get("syscalls"))]
    return json.dumps({**_plain(document), "syscalls": entries}, separators=(",", ":"))


def applied(profile: Document, rights: Iterable[str], machine: SeccompMachine) -> Document:
    """Return linux.seccomp for a container whose bounding set is `rights`. `profile` comes from `parse`."""
    held = frozenset(rights)
    kept = [each for each in _objects(profile.get("syscalls")) if _counts(each, held, machine)]
    result = {
        key: profile[key] for key in ("defaultAction", "defaultErrnoRet", "flags") if profile.get(key) is not None
    }
    architectures = _architectures(profile, machine)
    return {
        **result,
        **({"architectures": architectures} if architectures else {}),
        "syscalls": [_entry(each) for each in kept],
    }


def _architectures(profile: Document, machine: SeccompMachine) -> list[str]:
    given = profile.get("architectures")
    if given:
        return cast(list[str], given)
    native = NATIVE.get(machine.name, ("", ""))[1]
    for each in _objects(profile.get("archMap")):
        if each["architecture"] == native:
            return [native, *cast(list[str], each.get("subArchitectures") or [])]
    return []


def _counts(entry: Document, held: frozenset[str], machine: SeccompMachine) -> bool:
    """Docker's rule: everything in `includes` must hold, and nothing in `excludes`."""
    includes, excludes = (cast(Document, entry.get(key) or {}) for key in ("includes", "excludes"))
    word = NATIVE.get(machine.name, (machine.name, ""))[0]
    arches = {key: cast(list[str], each.get("arches") or []) for key, each in (("in", includes), ("ex", excludes))}
    return (
        held.issuperset(cast(list[str], includes.get("caps") or []))
        and held.isdisjoint(cast(list[str], excludes.get("caps") or []))
        and (not arches["in"] or word in arches["in"])
        and word not in arches["ex"]
        and (not includes.get("minKernel") or machine.kernel >= _release(includes["minKernel"]))
        and (not excludes.get("minKernel") or machine.kernel < _release(excludes["minKernel"]))
    )


def _release(text: object) -> tuple[int, int]:
    found = _RELEASE.fullmatch(str(text))
    assert found is not None  # `parse` has checked it
    return int(found[1]), int(found[2])


def _entry(entry: Document) -> Document:
    names = entry.get("names") or [entry["name"]]
    optional = {key: entry[key] for key in ("errnoRet", "args") if entry.get(key) is not None}
    return {"names": names, "action": entry["action"], **optional}


def _plain(document: Document) -> Document:
    return {key: value for key, value in document.items() if key not in _QUIET}


def _objects(value: object) -> list[Document]:
    return cast(list[Document], value or [])


class _ProfileReader:
    """Checks each part once. Errors name the file and the place in it."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._names = 0

    def profile(self, value: object) -> None:
        known = ("defaultAction", "defaultErrnoRet", "archMap", "architectures", "syscalls", "flags", *_QUIET)
        document = self._object(value, "the whole", known, needed=("defaultAction",))
        self._one_of(document["defaultAction"], "defaultAction", ACTIONS)
        self._number(document.get("defaultErrnoRet"), "defaultErrnoRet", MOST_ERRNO)
        self._texts(document.get("architectures"), "architectures", _ARCHITECTURE)
        self._texts(document.get("flags"), "flags", LatePattern("|".join(FLAGS)))
        self._each(document.get("archMap"), "archMap", self._map)
        self._each(document.get("syscalls"), "syscalls", self._syscall)
        if document.get("architectures") and document.get("archMap"):
            raise self._wrong("archMap", "there are architectures too; write one of them")

    def _map(self, value: object, place: str) -> None:
        entry = self._object(value, place, ("architecture", "subArchitectures"), needed=("architecture",))
        self._text(entry["architecture"], f"{place}.architecture", _ARCHITECTURE)
        self._texts(entry.get("subArchitectures"), f"{place}.subArchitectures", _ARCHITECTURE)

    def _syscall(self, value: object, place: str) -> None:
        known = ("name", "names", "action", "errnoRet", "args", "includes", "excludes", *_QUIET)
        entry = self._object(value, place, known, needed=("action",))
        self._one_of(entry["action"], f"{place}.action", ACTIONS)
        self._number(entry.get("errnoRet"), f"{place}.errnoRet", MOST_ERRNO)
        if bool(entry.get("name")) == bool(entry.get("names")):
            raise self._wrong(place, "either names or name must be there")
        self._texts(entry.get("names") or [entry.get("name")], f"{place}.names", _NAME)
        self._names += len(cast(list[object], entry.get("names") or [1]))
        if self._names > MOST_NAMES:
            raise self._wrong(place, f"more than {MOST_NAMES} names in all")
        self._each(entry.get("args"), f"{place}.args", self._argument)
        for key in ("includes", "excludes"):
            self._condition(entry.get(key), f"{place}.{key}")

    def _argument(self, value: object, place: str) -> None:
        argument = self._object(value, place, ("index", "value", "valueTwo", "op"), needed=("index", "op"))
        self._number(argument["index"], f"{place}.index", 5)
        for key in ("value", "valueTwo"):
            self._number(argument.get(key), f"{place}.{key}", 2**64 - 1)
        self._one_of(argument["op"], f"{place}.op", OPERATORS)

    def _condition(self, value: object, place: str) -> None:
        if value is None:
            return
        condition = self._object(value, place, _CONDITIONS)
        self._texts(condition.get("caps"), f"{place}.caps", _CAPABILITY)
        self._texts(condition.get("arches"), f"{place}.arches", _WORD)
        if condition.get("minKernel"):
            self._text(condition["minKernel"], f"{place}.minKernel", _RELEASE)

    def _object(self, value: object, place: str, known: Iterable[str], needed: Iterable[str] = ()) -> Document:
        if not isinstance(value, dict):
            raise self._wrong(place, "must be an object")
        for key in value:
            if key not in known:
                raise self._wrong(place, f"{key[:100]!r} is not known here; known are {', '.join(known)}")
        for key in needed:
            if value.get(key) is None:
                raise self._wrong(place, f"{key} is missing")
        return cast(Document, value)

    def _each(self, value: object, place: str, look: Callable[[object, str], None]) -> None:
        for index, each in enumerate(self._list(value, place)):
            look(each, f"{place}[{index}]")

    def _list(self, value: object, place: str) -> list[object]:
        if value is not None and not isinstance(value, list):
            raise self._wrong(place, "must be a list")
        return value or []

    def _texts(self, value: object, place: str, pattern: LatePattern[str]) -> None:
        for index, each in enumerate(self._list(value, place)):
            self._text(each, f"{place}[{index}]", pattern)

    def _text(self, value: object, place: str, pattern: LatePattern[str]) -> None:
        if not isinstance(value, str) or not pattern.fullmatch(value):
            raise self._wrong(place, f"{str(value)[:100]!r} cannot be here; it must be like {pattern.pattern}")

    def _one_of(self, value: object, place: str, words: frozenset[str]) -> None:
        if not isinstance(value, str) or value not in words:
            raise self._wrong(place, f"{str(value)[:100]!r} is none of {', '.join(sorted(words))}")

    def _number(self, value: object, place: str, most: int) -> None:
        if value is not None and (type(value) is not int or not 0 <= value <= most):
            raise self._wrong(place, f"must be a whole number, 0 to {most}")

    def _wrong(self, place: str, why: str) -> BadRequest:
        return BadRequest(f"{self._file}: {place}: {why}")
