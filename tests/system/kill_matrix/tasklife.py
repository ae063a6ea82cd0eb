"""A task's whole life through ctr while exitd is killed under it, and what must be said of it in the end."""

import contextlib
import os
import pathlib
import select
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import TypeVar

from protos.exitd.v1 import exitd_pb2 as pb
from tests.system.containerd.events import Event
from tests.system.containerd.server import Box, Said
from tests.system.daemons import Daemon
from tests.system.processes import killed
from tests.system.waits import LIMIT_SECONDS, until, wait_readable

T = TypeVar("T")
CODE, EXEC_CODE = 43, 5
SCRIPT = f"trap 'exit {CODE}' TERM; sleep 1000 & echo up; wait"
TOLD = [
    *("/tasks/create", "/tasks/start", "/tasks/exec-added", "/tasks/exec-started", "/tasks/exit"),
    *("/tasks/paused", "/tasks/resumed", "/tasks/exit", "/tasks/delete"),
]
SECONDS = 2.0  # from exitd's return to the answers of those who wait


class Reviver:
    """For a block: exitd is started again as soon as it has died, by nobody else. When that was, and when it was
    back."""

    def __init__(self, daemon: Daemon) -> None:
        self.daemon = daemon
        self.back: list[float] = []
        self._over, self._told = os.pipe()
        self._failed: BaseException | None = None
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Reviver":
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        os.close(self._told)
        self._thread.join(LIMIT_SECONDS * 2)
        os.close(self._over)
        assert self._failed is None, f"exitd does not return: {self._failed}"

    def kill(self, *, back: bool) -> None:
        """Dead when this returns; or back again."""
        count = len(self.back)
        killed(self.daemon.pid)
        if back:
            until(lambda: len(self.back) > count, "exitd does not return")

    def _run(self) -> None:
        try:
            while self._died():
                assert self.daemon.process is not None
                self.daemon.process.wait(LIMIT_SECONDS)
                self.daemon.start()
                self.back.append(time.monotonic())
        except BaseException as error:
            self._failed = error

    def _died(self) -> bool:
        """False: nobody is interested any more."""
        pidfd = os.pidfd_open(self.daemon.pid)
        try:
            ready, _, _ = select.select([pidfd, self._over], [], [])
        finally:
            os.close(pidfd)
        return pidfd in ready


@dataclass
class Life:
    """One task's, from its create to its removal; every step of it is an answer that ctr had to wait for."""

    box: Box
    flags: tuple[str, ...] = ()
    steps: dict[str, tuple[float, float]] = field(default_factory=dict)

    def live(self) -> "Life":
        with contextlib.ExitStack() as ends:
            running = self._step("start", lambda: self.box.begun("--rm", *self.flags, "--", "sh", "-c", SCRIPT))
            ends.callback(running.kill)
            assert running.stdout is not None
            out = running.stdout.fileno()
            assert self._step("start", lambda: wait_readable(out, LIMIT_SECONDS)), "it does not say that it is up"
            assert os.read(out, 99) == b"up\n", running.communicate(timeout=LIMIT_SECONDS)
            self._step("start", lambda: self.box.until("RUNNING"))  # it may be quicker than the answer to its start
            said = self._step("exec", lambda: self.box.exec("e", "--", "sh", "-c", f"exit {EXEC_CODE}"))
            assert said == Said(EXEC_CODE, "", ""), said
            for words in (("pause",), ("resume",), ("kill", "-s", "15")):
                said = self._step(words[0], lambda: self.box.task(*words))  # noqa: B023
                assert said == Said(0, "", ""), f"{words}: {said}"
            rest = self._step("end", lambda: running.communicate(timeout=LIMIT_SECONDS))
            assert (running.returncode, rest) == (CODE, (b"", b"")), f"{running.returncode}: {rest}"
        return self

    def _step(self, name: str, do: Callable[[], T]) -> T:
        begun = time.monotonic()
        value = do()
        self.steps[name] = (self.steps.get(name, (begun, 0.0))[0], time.monotonic())
        return value

    @property
    def slowest(self) -> float:
        return max(over - begun for begun, over in self.steps.values())

    def late(self, back: list[float]) -> float:
        """The longest that somebody waited after a return of exitd. Whoever saw several counts from the last one."""
        seen = [[at for at in back if begun <= at <= over] for begun, over in self.steps.values()]
        return max((over - at[-1] for at, (_, over) in zip(seen, self.steps.values(), strict=True) if at), default=0.0)


EXEC = f"echo here >>/count; read word; echo out $word; echo err >&2; exit {EXEC_CODE}"


@dataclass
class Execs:
    """Of one task that goes on: each says what it was told, and leaves a line in a file that all have in common."""

    box: Box
    names: list[str] = field(default_factory=list)

    def live(self) -> None:
        """The next one, from its adding to its deletion."""
        self.names.append(name := f"e{len(self.names)}")
        said = self.box.exec(name, "--", "sh", "-c", EXEC, stdin=b"in\n")
        assert said == Said(EXEC_CODE, "out in\n", "err\n"), said

    def judge(self, events: list[Event], case: str) -> None:
        """Of the last one: as often as it was asked for it ran once, and containerd was told each thing, in order."""
        name = self.names[-1]
        told = [event for event in events if name in (event.fields.get("exec_id"), event.fields.get("id"))]
        topics = [event.topic for event in told]
        assert topics == ["/tasks/exec-added", "/tasks/exec-started", "/tasks/exit"], f"{case}: {topics}"
        assert told[-1].fields["exit_status"] == EXEC_CODE, f"{case}: {told[-1]}"
        count = pathlib.Path(f"/proc/{self.box.pid}/root/count").read_text()
        assert count == "here\n" * len(self.names), f"{case}: {count}"
        rows = [row.code for row in ledger(self.box, execs=True)]
        assert rows == [EXEC_CODE] * len(self.names), f"{case}: {rows}"


def judge(life: Life, events: list[Event], case: str) -> None:
    """containerd was told each thing once and in order; exitd's ledger has one end, the true one."""
    told = [event.topic for event in events]
    assert told == TOLD, f"{case}: {told}"
    ends = [(event.fields["id"], event.fields["exit_status"]) for event in events if event.topic == "/tasks/exit"]
    assert ends == [("e", EXEC_CODE), (life.box.id, CODE)], f"{case}: {ends}"
    exit, delete = events[-2:]
    assert all(exit.fields[name] == delete.fields[name] for name in ("pid", "exit_status", "exited_at")), f"{case}"
    rows = ledger(life.box)
    assert [(row.kind, row.code) for row in rows] == [("exited", CODE)], f"{case}: {rows}"


def ledger(box: Box, *, execs: bool = False) -> list[pb.Exit]:
    """What `exitctl exits` knows of the task's init, or of its execs."""
    assert box.containerd.exitd is not None
    with box.containerd.exitd.client() as client:
        rows = list(client.exits(pb.ExitsRequest()))
    return [
        row for row in rows if (row.namespace, row.name, bool(row.exec_id)) == (box.containerd.namespace, box.id, execs)
    ]
