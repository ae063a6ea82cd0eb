"""Run directories as somebody else makes them, up to any point, without a runtime."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from shim import fields, mark, names, plan, prepare
from shim.mark import Mark, Started
from supervisor.model.values import Process
from supervisor.system.clock import SystemClock
from tests.shim.test_record import PLAIN, written


class Handmade:
    """`<state>/c/<id>/1` with all that stands in it before there is a shim."""

    def __init__(self, state: Path, id: str, *, name: str = "") -> None:
        self.id = id
        self.path = state / "c" / id / "1"
        self.path.mkdir(parents=True, mode=0o700)
        self.mark = Mark(name or id, "/bundle", "runc", SystemClock().boot_id(), 4, ("sleep", "1"))
        (self.path / mark.MARK).write_bytes(mark.encode_mark(self.mark))
        os.mkfifo(self.path / "exit_fifo", 0o600)
        prepare.make_record(str(self.path / "exit.json"))
        prepare.write_new(str(self.path / names.LOCK), b"")
        words = ("/runc", "create")
        prepare.write_new(str(self.path / names.PLAN), plan.encode(plan.Plan(id, 1, words, words)))

    def made(self, init: Process) -> "Handmade":
        """A shim has made a container."""
        return self._write(names.CREATED, "exitd-created", init)

    def signed(self, shim: Process) -> "Handmade":
        return self._write(names.LOCK, "exitd-lock", shim)

    def started(self) -> "Handmade":
        (self.path / mark.STARTED).write_bytes(mark.encode_started(Started(5, 6)))
        return self

    def recorded(self, init: Process, code: int) -> "Handmade":
        facts: dict[str, Any] = {"id": self.id, "run": 1, "pid": init.pid, "started": init.started_ticks, "code": code}
        (self.path / "exit.json").write_bytes(written(replace(PLAIN, **facts)))
        return self

    def old(self) -> "Handmade":
        """Nothing was made in it for a while."""
        for path in (self.path, self.path.parent):
            os.utime(path, (1, 1))
        return self

    def _write(self, name: str, kind: str, process: Process) -> "Handmade":
        data = fields.encode(kind, [("pid", process.pid), ("started", process.started_ticks)])
        (self.path / name).write_bytes(data)
        return self
