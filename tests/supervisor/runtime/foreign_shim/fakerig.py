"""The fake shim under exitd's client: tasks that are processes of this machine, and a count of what is left of them."""

import asyncio
import contextlib
import functools
import json
import os
import pathlib
import select
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

from supervisor.runtime.foreign_shim.connection import remove_dead_socket
from tests.fakeshim.making import FakeShim, make
from tests.supervisor.runtime.foreign_shim import rig
from tests.supervisor.runtime.foreign_shim.rig import LIMIT_SECONDS, Place, Task

SANDBOX = "io.kubernetes.cri.sandbox-id"


@dataclass
class Fakes:
    """`fake.does(...)` says in what the shims are odd."""

    place: Place
    fake: FakeShim

    def bundle(self, id: str, *args: str, **annotations: str) -> pathlib.Path:
        bundle = self.place.bundle(id)
        process = {"args": args, "env": ["PATH=/usr/bin:/bin"], "cwd": "/"}
        (bundle / "config.json").write_text(json.dumps({"process": process, "annotations": annotations}))
        return bundle

    def task(self, id: str, *args: str, **annotations: str) -> Task:
        bundle = self.bundle(id, *(args or ("sh", "-c", "exit 7")), **annotations)
        return rig.task(self.place, self.fake.program, id, bundle)

    def processes(self) -> dict[int, str]:
        """The shims and all that they have begun."""
        found = {}
        for path in pathlib.Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                words = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                if f"{self.place.base}/" in words or os.readlink(path / "cwd").startswith(f"{self.place.base}/"):
                    found[int(path.name)] = words
        return found | {pid: "begun" for pid in self._begun() if os.path.exists(f"/proc/{pid}")}

    def _begun(self) -> list[int]:
        lines = [line for path in self.place.base.glob("b/*/begun") for line in path.read_text().splitlines()]
        return [pid for pid, started in (map(int, line.split()) for line in lines) if start_of(pid) == started]

    def sockets(self) -> list[str]:
        return [path.name for path in (self.place.base / "s").iterdir() if path.is_socket()]

    def dead_sockets_removed(self) -> int:
        return [remove_dead_socket(address) for address in {*self.place.addresses}].count(True)

    def clear(self) -> None:
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                pidfd = os.pidfd_open(pid)
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
                gone(pidfd)


def start_of(pid: int) -> int:
    """0: there is no such process, or it is a zombie that nobody here can reap."""
    try:
        words = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return 0 if words[0] == "Z" else int(words[19])


def gone(pidfd: int) -> None:
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    assert poll.poll(LIMIT_SECONDS * 1000), "a process does not end"
    os.close(pidfd)


@contextlib.asynccontextmanager
async def fakes() -> AsyncIterator[Fakes]:
    """Nothing may be left: no process, no socket, no descriptor."""
    before = rig.descriptors()
    async with rig.place() as place:
        (place.base / "s").mkdir()
        made = Fakes(place, make(place.base / "s"))
        try:
            yield made
            for pid in made.processes():
                with contextlib.suppress(ProcessLookupError):
                    gone(os.pidfd_open(pid))
            assert (made.processes(), made.sockets()) == ({}, [])
        finally:
            made.clear()
    assert rig.descriptors() - before == set()


def run(test: Callable[[Fakes], Awaitable[None]]) -> Callable[[], None]:
    """As a test of its own."""

    @functools.wraps(test)
    def plain() -> None:
        async def all_of_it() -> None:
            async with fakes() as made:
                await test(made)

        asyncio.run(all_of_it())

    del plain.__wrapped__  # pytest would look at its parameters
    return plain
