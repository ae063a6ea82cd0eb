"""The present configuration: read at the start, at SIGHUP, and whenever its file changes."""

import asyncio
import contextlib
import signal
from collections.abc import Callable

import structlog

from supervisor.config import file
from supervisor.config import settings as config
from supervisor.config.settings import Config, Values
from supervisor.model.errors import BadConfig, Busy, TimedOut
from supervisor.model.views import Setting
from supervisor.system import room, systemd
from supervisor.system.aside import Aside
from supervisor.system.inotify import Inotify
from supervisor.system.pathwatch import PathWatch

READ_SECONDS = 10.0
AGAIN_SECONDS = 30.0  # until the next look, if the last one failed for lack of time or room

log = structlog.get_logger(__name__)


class Configuration:
    """The values in force. An invalid file changes nothing."""

    def __init__(self, path: str, *, required: bool, given: Values) -> None:
        """`given`: flags and variables, which override the file. Raises BadConfig, also when the file is required but
        missing."""
        self.path = path
        self._given = given
        data = file.read_file(path)
        if data is None and required:
            raise BadConfig(f"{path}: no such file; without --config exitd reads {file.FILE}, if that is there")
        self.values = config.in_force(given, file.parse(data or b"", path))
        self._config = config.config_of(self.values)
        self.seen: bytes | str | None = data  # what the file contained, or why it could not be read
        self._is_of_file = data is not None

    def now(self) -> Config:
        return self._config

    def settings(self) -> tuple[Setting, ...]:
        return config.settings(self.values)

    def take(self, data: bytes | None) -> tuple[list[str], tuple[str, ...]]:
        """Put the file's new content in force. Return the names of the changed values, and a sentence for each value
        that cannot change now. Raises BadConfig; then nothing changes."""
        if data is None and not self._is_of_file:
            return [], ()
        if data is None:
            raise BadConfig(f"{self.path}: no such file; for the defaults, restart exitd or leave an empty one")
        new = config.in_force(self._given, file.parse(data, self.path))
        values, words = config.held(self.values, new)
        changed = config.changed(self.values, values)
        self.values, self._config, self._is_of_file = values, config.config_of(values), True
        return changed, words


class Reloads:
    """Follows the file once it is made. From then on SIGHUP does not end the process, but asks for a reload."""

    def __init__(self, configuration: Configuration, inotify: Inotify) -> None:
        self._configuration = configuration
        self._woken = asyncio.Event()
        self._asked = False
        self._looks = Aside(most_at_once=1, limit_seconds=READ_SECONDS)
        self._watch = PathWatch(inotify, configuration.path, self._woken.set, self._looks)
        self._blind = False
        self._again = False  # the way to the file could not be watched now
        self._unread = False  # nor the file be read, which says nothing about it
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._ask)

    def _ask(self) -> None:
        self._asked = True
        self._woken.set()

    async def forever(self) -> None:
        """Look once before waiting for changes: the file may have changed since it was read."""
        try:
            while True:
                self._woken.clear()
                asked, self._asked = self._asked, False
                self._again = False
                await self._watch_again()
                await self.look(asked=asked)
                await self._rest()
        finally:
            self._watch.close()

    async def _rest(self) -> None:
        """Wait for a change or a SIGHUP; for AGAIN_SECONDS at most if something has to be tried again."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(AGAIN_SECONDS if self._again or self._unread else None):
                await self._woken.wait()

    async def _watch_again(self) -> None:
        try:
            await self._watch.renew()
            self._blind = False
        except (OSError, TimedOut, Busy) as error:
            self._again = _is_passing(error)
            if not self._blind:
                log.warning("changes of the configuration go unnoticed, send SIGHUP", why=str(error))
            self._blind = True

    async def look(self, *, asked: bool) -> None:
        """Read the file once. Unless `asked`, content that has been seen before is ignored. A file that could not be
        read for lack of time or room is looked at again by `forever`."""
        if asked:
            await _notify(systemd.reloading)
        found = await self._read()
        if not asked and found == self._configuration.seen:
            return
        if not asked:
            await _notify(systemd.reloading)
        self._configuration.seen = found
        status = self._put_in_force(found)
        await _notify(lambda: systemd.ready(status))

    async def _read(self) -> bytes | str | None:
        path, self._unread = self._configuration.path, False
        try:
            return await self._looks.run(f"reading {path}", lambda: file.read_file(path))
        except TimedOut:
            self._unread = True
            return f"{path}: its file system gave no answer in {READ_SECONDS:g} s"
        except (BadConfig, Busy) as error:
            self._unread = _is_passing(error)
            return str(error)

    def _put_in_force(self, found: bytes | str | None) -> str:
        """Return one line for the service manager."""
        if self._unread and isinstance(found, str):
            log.error("configuration cannot be read now, the one before stays in force", why=found)
            return f"configuration cannot be read now, the one before stays in force: {found}"
        try:
            if isinstance(found, str):
                raise BadConfig(found)
            changed, words = self._configuration.take(found)
        except BadConfig as error:
            problems = str(error).splitlines()
            for problem in problems:
                log.error("configuration refused, the one before stays in force", problem=problem)
            return f"configuration refused, the one before stays in force: {problems[0]}"
        for word in words:
            log.warning("configuration needs a restart", what=word)
        log.info("configuration read", file=self._configuration.path, changed=changed)
        return f"configuration read, changed: {', '.join(changed) or 'nothing'}"


def _is_passing(error: Exception) -> bool:
    """Return whether the error says nothing about the file: no answer in time, no thread, no descriptor."""
    return isinstance(error, TimedOut | Busy) or room.lacks_room(error)


async def _notify(what: Callable[[], bool]) -> None:
    """Notify in a thread, so that a service manager which does not read holds up nothing else."""
    await asyncio.to_thread(what)
