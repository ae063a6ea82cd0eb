"""Whose a cgroup or a state directory is: an exitd marks it with the instance of its root, and sweeps only its own.

The instance is a random word in ROOT/instance, made at the first start. Beside it stand the state directories that
exitds of this root have had: a run's directory is looked for in those, too, before it is called lost. STATE/instance
has the instance of the exitd whose run directories are there, and its root. An earlier version has left none.
"""

import contextlib
import os
import re
import uuid
from dataclasses import dataclass

import structlog

from supervisor.model.errors import CannotStart

FILE = "instance"
MARK = "trusted.exitd.instance"  # an extended attribute of a cgroup's directory; only root can set one (xattr(7))
WORD = re.compile(r"[0-9a-f]{32}")
MOST_BYTES = 64 << 10

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Owner:
    """This exitd: its instance, and the state directories of earlier exitds of its root that are not its own."""

    instance: str
    earlier_states: tuple[str, ...] = ()

    def earlier_state_of(self, container: str, run: int) -> str:
        """The earlier state directory that has the run's directory; empty where none has."""
        found = (state for state in self.earlier_states if os.path.isdir(f"{state}/c/{container}/{run}"))
        return next(found, "")

    def mark(self, directories: tuple[str, ...]) -> None:
        """Mark the directories of a cgroup as this exitd's. One that has gone is passed over, and so is an old kernel:
        what has no mark is swept by no exitd."""
        for path in directories:
            with contextlib.suppress(OSError):
                os.setxattr(path, MARK, self.instance.encode())

    def owns(self, directory: str) -> bool:
        """Whether a cgroup's directory has this exitd's mark."""
        return _mark_of(directory) == self.instance.encode()

    def is_anothers(self, directory: str) -> bool:
        """Whether a cgroup's directory has the mark of an exitd with another root."""
        return _mark_of(directory) not in (b"", self.instance.encode())


def _mark_of(directory: str) -> bytes:
    """Empty: it has none, or has gone."""
    try:
        return os.getxattr(directory, MARK)
    except OSError:
        return b""


def owner(root: str, state: str) -> Owner:
    """Read ROOT/instance, or make it, note `state` in it, and take the state directory.

    A root that was lost gets the instance back that its state directory has. Raises CannotStart when a file cannot be
    read, ROOT/instance cannot be written, or the state directory has run directories of another instance.
    """
    path, found = f"{root}/{FILE}", _lines(f"{state}/{FILE}")
    taken = found[0] if found else ""
    new = taken if found[1:] == [root] else uuid.uuid4().hex
    before = _lines(path)
    instance, *states = before or [new]
    if taken not in ("", instance) and _has_runs(state):
        raise CannotStart(_of_another(root, state, *found[1:2]))
    try:
        states = [each for each in states if each != state and os.path.isdir(f"{each}/c")]
        if (lines := [instance, *states, state]) != before:  # a full disk keeps no exitd from its next start
            _write(path, lines)
    except OSError as error:
        raise CannotStart(f"{path}: {error.strerror}") from error
    if found != [instance, root]:
        _take(state, [instance, root])
    return Owner(instance, tuple(states))


def _has_runs(state: str) -> bool:
    """Raises CannotStart: nobody can tell."""
    try:
        return bool(os.listdir(f"{state}/c"))
    except FileNotFoundError:
        return False
    except OSError as error:
        raise CannotStart(f"{state}/c: {error.strerror}") from error


def _of_another(root: str, state: str, other: str = "another root") -> str:
    given = f"--root {other}" if other.startswith("/") else other
    if other == root:
        given = f"the former content of --root {root}"
    return (
        f"{state} has the containers of an exitd with {given}, and this exitd has --root {root}; start that one, or"
        f" choose another --state. To end what runs there instead, remove {state}/{FILE}"
    )


def _take(state: str, lines: list[str]) -> None:
    """A state directory without room is nobody's new one: exitd can start nothing there, and has to run."""
    try:
        _write(f"{state}/{FILE}", lines)
    except OSError as error:
        log.warning("state directory not marked", path=f"{state}/{FILE}", why=error.strerror)


def _lines(path: str) -> list[str]:
    """Of a file whose first line is an instance; none without a file. Raises CannotStart: it is no such file."""
    try:
        with open(path, encoding="utf-8") as file:
            lines = file.read(MOST_BYTES).splitlines()
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        raise CannotStart(f"{path}: {getattr(error, 'strerror', None) or error}") from error
    if lines and not WORD.fullmatch(lines[0]):
        raise CannotStart(f"{path}: {lines[0][:40]!r} is no instance of exitd's; move the file away to make a new one")
    return lines


def _write(path: str, lines: list[str]) -> None:
    fd = os.open(f"{path}.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(fd, "w", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in lines)
        file.flush()
        os.fsync(file.fileno())
    os.rename(f"{path}.new", path)
