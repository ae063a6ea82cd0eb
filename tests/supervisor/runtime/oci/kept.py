"""A real Watching over a keeper that is made up: it knows what its test wants, until that is acknowledged."""

import contextlib
from collections.abc import Iterator
from typing import Any

from shim import fields, launch
from supervisor.model.values import Process, RunKey
from supervisor.monitor import epoll
from supervisor.monitor.kernelword import BY_PIDFD
from supervisor.runtime.oci.watching import Watching
from supervisor.system.inotify import Inotify


class Keeper:
    def __init__(self) -> None:
        self._known: dict[RunKey, Process] = {}
        self.process: Process | None = None
        self.lists = 0  # how often it was asked for all

    def keeps(self, key: RunKey, process: Process) -> None:
        self._known[key] = process

    async def run_count(self) -> int:
        return len(self._known)

    async def runs(self) -> list[fields.Message]:
        self.lists += 1
        return [_message(key, process) for key, process in self._known.items()]

    async def acknowledge(self, container: str, run: int, exec_id: str = "") -> None:
        self._known.pop(RunKey(container, run, exec_id), None)

    def entry(self, container: str, run: int, exec_id: str = "") -> None:
        """No end of it is journalled."""


def _message(key: RunKey, process: Process) -> fields.Message:
    facts = [("init_pid", process.pid), ("init_started", process.started_ticks), ("doubtful", 0)]
    pairs = [*launch.key(key.container, key.run, key.exec_id), *facts]
    return fields.decode(fields.encode("exitd-run", pairs), "exitd-run")


@contextlib.contextmanager
def watching() -> Iterator[tuple[Watching, Keeper]]:
    keeper: Any = Keeper()
    watcher, changes = epoll.Monitor(), Inotify()
    made = Watching(watcher, keeper, changes, zombie=False, kernel=BY_PIDFD)
    try:
        yield made, keeper
    finally:
        made.close()
        watcher.close()
        changes.close()
