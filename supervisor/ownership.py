"""Whose a cgroup is: an exitd marks what it makes with the instance of its root, and sweeps only what has that mark.

The instance is a random word in ROOT/instance, made at the first start. Beside it stand the state directories that
exitds of this root have had: a run's directory is looked for in those, too, before it is called lost.
"""

import contextlib
import os
import re
import uuid
from dataclasses import dataclass

from supervisor.errors import CannotStart

FILE = "instance"
MARK = "trusted.exitd.instance"  # an extended attribute of a cgroup's directory; only root can set one (xattr(7))
WORD = re.compile(r"[0-9a-f]{32}")
MOST_BYTES = 64 << 10


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
        try:
            return os.getxattr(directory, MARK) == self.instance.encode()
        except OSError:
            return False


def owner(root: str, state: str) -> Owner:
    """Read ROOT/instance, or make it, and note `state` in it. Raises CannotStart when it cannot be read or written."""
    path = f"{root}/{FILE}"
    try:
        instance, *states = _lines(path) or [uuid.uuid4().hex]
        if not WORD.fullmatch(instance):
            raise CannotStart(
                f"{path}: {instance[:40]!r} is no instance of exitd's; move the file away to make a new one"
            )
        states = [each for each in states if each != state and os.path.isdir(f"{each}/c")]
        _write(path, [instance, *states, state])
    except (OSError, ValueError) as error:
        raise CannotStart(f"{path}: {getattr(error, 'strerror', None) or error}") from error
    return Owner(instance, tuple(states))


def _lines(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read(MOST_BYTES).splitlines()
    except FileNotFoundError:
        return []


def _write(path: str, lines: list[str]) -> None:
    fd = os.open(f"{path}.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(fd, "w", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in lines)
        file.flush()
        os.fsync(file.fileno())
    os.rename(f"{path}.new", path)
