"""Finds runtimes that silently ignore a seccomp profile. crun does so if it was built without seccomp (its
libcrun/seccomp.c). runc refuses the container then; how other runtimes behave is not known."""

import asyncio
import os

from supervisor.model.errors import RuntimeFailed, TimedOut
from supervisor.runtime.oci import runtime
from supervisor.system import room
from supervisor.system.aside import Aside

LIMIT_SECONDS = 5.0

Stamp = tuple[int, int, int, int]


def is_silent(version: str) -> bool:
    """Judge by the output of `--version`: crun lists what it was built with."""
    return version.startswith("crun version ") and "+SECCOMP" not in version.split()


class Unfiltered:
    """Remembers the answer of each program, and asks again when the program has changed. Belongs to the event loop.
    The programs are looked at by threads of `looks`: a caller may have named one whose file system hangs."""

    def __init__(self, looks: Aside) -> None:
        self._looks = looks
        self._known: dict[str, tuple[Stamp, bool]] = {}
        self._asking: dict[tuple[str, Stamp], asyncio.Task[bool]] = {}

    async def refuse(self, path: str) -> None:
        """Refuse a program that would run a container without the profile it was asked for.

        Raises:
            RuntimeFailed: the program would do so.
            TimedOut: its file system hangs.
            Busy: there is no room to ask it.
        """
        if await self._look(path):
            raise RuntimeFailed(
                f"{path} was built without seccomp, and would leave the container's profile out: choose another "
                "runtime, or --security-opt seccomp=unconfined"
            )

    async def _look(self, path: str) -> bool:
        stamp = await self._looks.at(path, lambda: _stamp(path))
        if stamp is None:
            return False
        known, silent = self._known.get(path, (None, False))
        if known == stamp:
            return silent
        return await asyncio.shield(self._question(path, stamp))

    def _question(self, path: str, stamp: Stamp) -> asyncio.Task[bool]:
        """Return the one question in progress for this program. A program that hangs delays its own containers by one
        limit, and those of other programs not at all."""
        asking = self._asking.get((path, stamp))
        if asking is None:
            asking = self._asking[path, stamp] = asyncio.create_task(self._ask(path, stamp))
            asking.add_done_callback(lambda done: self._asked((path, stamp), done))
        return asking

    async def _ask(self, path: str, stamp: Stamp) -> bool:
        answer = await _asked(path)
        if answer is not None:
            self._known[path] = stamp, answer
        return bool(answer)

    def _asked(self, key: tuple[str, Stamp], done: asyncio.Task[bool]) -> None:
        del self._asking[key]
        if not done.cancelled():
            done.exception()  # the caller that asked may be gone


def _stamp(path: str) -> Stamp | None:
    """Return what changes with the program. None: it does not exist, and its create will report that."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size


async def _asked(path: str) -> bool | None:
    """Return whether the program is silent. None: it has not answered; its create will report what is wrong with it,
    and the next container asks again. Raises Busy when there is no room to ask."""
    try:
        found = await runtime.run([path, "--version"], timeout_seconds=LIMIT_SECONDS)
    except TimedOut:
        return None
    except OSError as error:
        if room.is_used_up(error):
            raise room.busy(f"{path} --version", error.strerror) from error
        return None
    return is_silent(found.stdout) if found.returncode == 0 else None
