"""Which exitd a cgroup or a state directory belongs to. exitd marks them with the instance of its root and sweeps only
its own.

The instance is a random word in ROOT/instance, made at the first start. The file also lists the state directories that
exitds of this root have used: a run's directory is looked for in those, too, before it counts as lost. STATE/instance
has the instance and the root of the exitd whose run directories are there; earlier versions wrote no such file.
"""

import itertools
import os
import uuid
from collections.abc import Iterator, Sequence

import structlog

from shim.frozen import frozen
from shim.patterns import LatePattern
from supervisor.model.errors import CannotStart

FILE = "instance"
MARK = "trusted.exitd.instance"  # an extended attribute of a cgroup's directory; only root can set one (xattr(7))
WORD = LatePattern(r"[0-9a-f]{32}")
MOST_BYTES = 64 << 10

log = structlog.get_logger(__name__)


@frozen
class Owner:
    """This exitd: its instance, and the other state directories that earlier exitds of its root have used."""

    instance: str
    earlier_states: tuple[str, ...] = ()

    def earlier_state_of(self, container: str, run: int) -> str:
        """Return the earlier state directory that has the run's directory; empty if none has."""
        found = (state for state in self.earlier_states if os.path.isdir(f"{state}/c/{container}/{run}"))
        return next(found, "")

    def mark(self, directories: tuple[str, ...]) -> None:
        """Mark the directories of a cgroup as this exitd's. A directory that is gone is skipped; so is marking on an
        old kernel, since no exitd sweeps what has no mark. Where the last has it, all others have been tried."""
        if any(self.owns(each) for each in _last_there(directories)):
            return
        mark = self.instance.encode()
        for path in directories:
            try:
                os.setxattr(path, MARK, mark)
            except OSError:
                continue

    def owns(self, directory: str) -> bool:
        """Return whether a cgroup's directory has this exitd's mark."""
        return _mark_of(directory) == self.instance.encode()

    def is_anothers(self, directory: str) -> bool:
        """Return whether a cgroup's directory has the mark of an exitd with another root."""
        return _mark_of(directory) not in (b"", self.instance.encode())


def _last_there(directories: Sequence[str]) -> Iterator[str]:
    """Yield the last of the directories that is there: as a rule one look at the last."""
    return itertools.islice(filter(os.path.isdir, reversed(directories)), 1)


def _mark_of(directory: str) -> bytes:
    """Return the mark; empty if there is none, or if the directory is gone."""
    try:
        return os.getxattr(directory, MARK)
    except OSError:
        return b""


def owner(root: str, state: str) -> Owner:
    """Read or make ROOT/instance, add `state` to it, and claim the state directory.

    If the root was lost, it gets the instance that its state directory has. Raises CannotStart when a file cannot be
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
        if (lines := [instance, *states, state]) != before:  # a full disk must not keep exitd from starting again
            _write(path, lines)
    except OSError as error:
        raise CannotStart(f"{path}: {error.strerror}") from error
    if found != [instance, root]:
        _take(state, [instance, root])
    return Owner(instance, tuple(states))


def _has_runs(state: str) -> bool:
    """Raises CannotStart when that cannot be read."""
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
    """Ignore a full disk: exitd can start no containers there, but it has to run."""
    try:
        _write(f"{state}/{FILE}", lines)
    except OSError as error:
        log.warning("state directory not marked", path=f"{state}/{FILE}", why=error.strerror)


def _lines(path: str) -> list[str]:
    """Return the lines of an instance file, none if it does not exist. Raises CannotStart when it is not such a
    file."""
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
