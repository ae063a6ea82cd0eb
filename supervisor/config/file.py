"""What a configuration file may contain, and what one contains: text to values with their lines. Pure but for
`read_file`."""

import difflib
import json
import os
import re
import stat
from collections.abc import Callable
from enum import StrEnum
from typing import cast

from shim.patterns import LatePattern
from supervisor.config import listen, tomllines
from supervisor.config.settings import SHIM_V2, CgroupDriver, Given, KernelWitness, Values, shown_path
from supervisor.config.tomllines import Path, Table
from supervisor.model import parsing
from supervisor.model.errors import BadConfig
from supervisor.model.idranges import COUNT, MOST_ID
from supervisor.model.networks import POD
from supervisor.model.storage import StorageKind
from supervisor.model.values import LogDriver

FILE = "/etc/exitd/config.toml"
MOST_BYTES = 1 << 20
MOST_SHOWN = 60  # characters of an invalid value

_NAME = LatePattern(r"[a-zA-Z0-9][a-zA-Z0-9_.-]{0,62}")
_GLOBS = "annotations' names, in which * and ? stand for what may vary"
_ANY = r"[^\0]+"
_ANY_RUNTIME = ("runtimes", "*")

Reader = Callable[[object], object]  # takes a value as TOML has it; raises WrongValue


class WrongValue(ValueError):
    """Says what a value must be."""


def _number(low: float, high: float) -> Reader:
    def read(value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            raise WrongValue(f"must be a number from {low:.10g} to {high:.10g}")
        return float(value)

    return read


def _count(low: int, high: int) -> Reader:
    def read(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise WrongValue(f"must be a whole number from {low} to {high}")
        return value

    return read


def _first_id(value: object) -> int:
    """Below it are the users of this machine."""
    if isinstance(value, bool) or not isinstance(value, int) or (value and not COUNT <= value <= MOST_ID - COUNT):
        raise WrongValue(f"must be 0, for none, or a whole number from {COUNT} to {MOST_ID - COUNT}")
    return value


def _directory(value: object) -> str:
    if not isinstance(value, str) or not value.startswith("/") or "\0" in value:
        raise WrongValue("must be an absolute path")
    return os.path.normpath(value)


def _program(value: object) -> str:
    if not isinstance(value, str) or not value.startswith("/") or value.endswith("/") or "\0" in value:
        raise WrongValue("must be the absolute path of a program")
    return value


def runtime_name(value: object) -> str:
    if not isinstance(value, str) or not (value.startswith("/") or _NAME.fullmatch(value)):
        raise WrongValue("must be a runtime's name (letters, digits, '_', '.', '-') or an absolute path")
    return _program(value) if value.startswith("/") else value


def _runtime_type(value: object) -> str:
    if not isinstance(value, str) or not SHIM_V2.fullmatch(value):
        raise WrongValue("must be of the form io.containerd.NAME.vN; a plain OCI runtime is given by its path")
    return value


def _word_of(kind: type[StrEnum]) -> Reader:
    def read(value: object) -> StrEnum:
        if not isinstance(value, str) or value not in [*kind]:
            raise WrongValue(f"must be one of {', '.join(kind)}")
        return kind(value)

    return read


def _size(least: int) -> Reader:
    """Bytes: 0, or at least `least`."""

    def read(value: object) -> int:
        try:
            count = parsing.parse(value) if isinstance(value, str) else value
        except ValueError:
            count = None
        if isinstance(count, bool) or not isinstance(count, int) or not (count == 0 or least <= count < 1 << 63):
            raise WrongValue(f'must be 0, or a number of bytes from {least} on, or a size such as "10m"')
        return count

    return read


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise WrongValue("must be true or false")
    return value


def _place(value: object) -> str:
    try:
        if not isinstance(value, str):
            raise ValueError("text")
        return str(listen.parse(value)) if value else ""
    except ValueError as error:
        raise WrongValue(f"must be {listen.WANTED}") from error


def _strings(what: str, pattern: str) -> Reader:
    def read(value: object) -> tuple[str, ...]:
        if not isinstance(value, list) or not all(isinstance(e, str) and re.fullmatch(pattern, e) for e in value):
            raise WrongValue(f"must be a list of {what}")
        return tuple(value)

    return read


def _directories(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not value:
        raise WrongValue("must be a list of absolute paths")
    return tuple(map(_directory, value))


def network_name(value: object) -> str:
    if not isinstance(value, str) or not _NAME.fullmatch(value) or value == POD:
        raise WrongValue("must be auto, none, host or the name of a network (letters, digits, '_', '.', '-')")
    return value


# Each key with its table; `*` stands for the name of any runtime.
KEYS: dict[str, Reader] = {
    "root": _directory,
    "state": _directory,
    "default_runtime": runtime_name,
    "cgroup_driver": _word_of(CgroupDriver),
    "kernel_witness": _word_of(KernelWitness),
    "watch_node": _flag,
    "log_driver": _word_of(LogDriver),
    "log_max_size": _size(4096),
    "log_max_files": _count(1, 100),
    "storage": _word_of(StorageKind),
    "limits.runtime_seconds": _number(0.1, 3600),
    "limits.create_seconds": _number(0.1, 14400),
    "limits.reconcile_seconds": _number(0.05, 86400),
    "limits.restart_max_seconds": _number(0.001, 86400),
    "limits.restart_reset_seconds": _number(0, 86400),
    "limits.ring_flush_seconds": _number(0, 60),
    "limits.scratch_mib": _count(1, 1 << 20),
    "limits.scratch_files": _count(16, 1 << 30),
    "limits.image_gib": _count(1, 1 << 14),
    "limits.image_files": _count(1, 1 << 30),
    "retention.events": _count(1, 1 << 30),
    "retention.events_days": _number(0.001, 36500),
    "retention.exits": _count(1, 1 << 30),
    "retention.exits_days": _number(0.001, 36500),
    "retention.exit_seconds": _number(0, 30 * 86400),
    "retention.series": _count(1, 100_000),
    "retention.series_days": _number(0.001, 36500),
    "metrics.listen": _place,
    "metrics.containers": _flag,
    "network.conf_dir": _directory,
    "network.plugin_dirs": _directories,
    "network.default": network_name,
    "userns.base": _first_id,
    "userns.count": _count(COUNT, MOST_ID - COUNT),
    "runtimes.*.path": _program,
    "runtimes.*.runtime_type": _runtime_type,
    "runtimes.*.options": _strings("arguments, each a string", _ANY),
    "runtimes.*.pod_annotations": _strings(_GLOBS, _ANY),
    "runtimes.*.container_annotations": _strings(_GLOBS, _ANY),
    "runtimes.*.handlers": _strings("names (letters, digits, '_', '.', '-')", _NAME.pattern),
}
_READERS: dict[Path, Reader] = {tuple(key.split(".")): reader for key, reader in KEYS.items()}
_TABLES: frozenset[Path] = frozenset({("runtimes",), *(path[:-1] for path in _READERS)})


# -- from a text to values


def read_file(path: str) -> bytes | None:
    """Return the file's content, None if there is no such file. Raises BadConfig when it cannot be read, or when other
    users may write to it: they would choose what exitd runs as root."""
    try:
        with open(path, "rb", opener=_without_waiting) as file:
            found = os.fstat(file.fileno())
            data = file.read(MOST_BYTES + 1) if stat.S_ISREG(found.st_mode) else None
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BadConfig(f"{path}: {error.strerror}") from error
    if data is None:
        raise BadConfig(f"{path}: is no regular file")
    if found.st_uid not in (0, os.geteuid()) or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise BadConfig(f"{path}: must belong to root and be writable only by root: chown root, chmod go-w")
    if len(data) > MOST_BYTES:
        raise BadConfig(f"{path}: larger than {MOST_BYTES >> 20} MiB: not a configuration")
    return data


def _without_waiting(path: str, flags: int) -> int:
    """Open without waiting: a fifo without a writer would block forever."""
    return os.open(path, flags | os.O_NONBLOCK)


def parse(data: bytes, file: str) -> Values:
    """Return the values in the file. Raises BadConfig, which lists every mistake with its line."""
    try:
        document = tomllines.parse(data)
    except tomllines.NotToml as error:
        raise BadConfig(f"{file}:{error.line}: {error}") from error
    reading = _FileReading(document, file)
    reading.table(document.values, ())
    reading.runtimes_agree()
    if reading.wrong:
        raise BadConfig("\n".join(f"{file}:{line}: {text}" for line, text in sorted(reading.wrong)))
    return reading.values


class _FileReading:
    """One file being read: its valid values, and its mistakes."""

    def __init__(self, document: tomllines.Document, file: str) -> None:
        self._lines = document.lines
        self._file = file
        self.values: Values = {}
        self.wrong: list[tuple[int, str]] = []

    def table(self, table: Table, path: Path) -> None:
        for name, value in table.items():
            self._entry((*path, name), value)

    def _entry(self, path: Path, value: object) -> None:
        pattern = _pattern(path)
        if pattern == _ANY_RUNTIME and not _NAME.fullmatch(path[-1]):
            self._complain(path, "a runtime's name has letters, digits, '_', '.' and '-' only; use path for its path")
        elif pattern in _TABLES:
            if isinstance(value, dict):
                self.table(cast(Table, value), path)
            else:
                self._complain(path, f"must be a table: [{shown_path(path)}]")
        elif pattern in _READERS:
            try:
                self.values[path] = Given(_READERS[pattern](value), f"{self._file}:{self._lines[path]}")
            except WrongValue as error:
                self._complain(path, f"{error}, and is {_as_toml(value)}")
        else:
            self._complain(path, f"there is no such key; {_nearest(path)}")

    def _complain(self, path: Path, text: str) -> None:
        self.wrong.append((self._lines[path], f"{shown_path(path)}: {text}"))

    def runtimes_agree(self) -> None:
        for name in {path[1] for path in self.values if path[0] == "runtimes"}:
            if {("runtimes", name, "path"), ("runtimes", name, "runtime_type")} <= self.values.keys():
                self._complain(("runtimes", name, "runtime_type"), "there is a path too; a runtime is one or the other")
        taken = {path[1]: path for path in self._lines if _pattern(path) == _ANY_RUNTIME}
        for path, given in self.values.items():
            if path[0] == "runtimes" and path[2] == "handlers":
                for handler in cast(tuple[str, ...], given.value):
                    first = taken.setdefault(handler, path)
                    if first[1] != path[1]:
                        what = f"a handler of {first[1]}" if len(first) > 2 else "another runtime's name"
                        self._complain(path, f"{handler} is {what} already, in line {self._lines[first]}")


def _pattern(path: Path) -> Path:
    return (*_ANY_RUNTIME, *path[2:]) if path[0] == "runtimes" and len(path) > 1 else path


def _nearest(path: Path) -> str:
    """Suggest a key: that name in another table, a similar name here or elsewhere; else list the keys of this table."""
    known = sorted({*_READERS, *_TABLES} - {(), _ANY_RUNTIME})
    table = _pattern(path)[:-1]
    beside = [each[-1] for each in known if each[:-1] == table]
    elsewhere = {each[-1]: ".".join(each).replace("*", "NAME") for each in known}
    if path[-1] not in elsewhere and (close := difflib.get_close_matches(path[-1], beside, 1)):
        return f"did you mean {close[0]}?"
    if close := difflib.get_close_matches(path[-1], elsewhere, 1, 0.8):
        return f"did you mean {elsewhere[close[0]]}?"
    return f"here there are {', '.join(beside)}" if beside else "nothing can stand here"


def _as_toml(value: object) -> str:
    """Short enough for a line."""
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= MOST_SHOWN else f"{text[: MOST_SHOWN - 3]}..."
