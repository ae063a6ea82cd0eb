"""exitd's containers under a shim that does not let them go: they go all the same, and nothing of them is left."""

import contextlib
import os
import pathlib
import tempfile
from collections.abc import Iterator

import pytest

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.model.errors import ShimLost
from tests.fakeshim.making import RUNTIME, FakeShim, make
from tests.system.daemons import Daemon
from tests.system.processes import end_process, processes_of
from tests.system.waits import LIMIT_SECONDS, until


class Odd:
    """An exitd, and the fake shim on its PATH."""

    def __init__(self, base: pathlib.Path) -> None:
        (base / "e").mkdir()
        (base / "f").mkdir()
        self.fake: FakeShim = make(base / "f")
        self.daemon = Daemon(base / "e", environment={"PATH": f"{base}/f:{os.environ['PATH']}"})

    def created(self, *args: str) -> str:
        with self.daemon.client() as client:
            return client.create(pb.ContainerSpec(args=args, rootfs="/", runtime=RUNTIME)).id

    def ended(self, *args: str) -> str:
        """One that has."""
        id = self.created(*args)
        with self.daemon.client() as client:
            waiting = client.begin_wait(id)
            client.start(id)
            waiting.result(LIMIT_SECONDS)
        return id

    def removed(self, id: str) -> None:
        with self.daemon.client() as client:
            client.remove(id, force=True)
            assert id not in [each.id for each in client.list(all_of_them=True)]
        until(lambda: self.left(id) == [], f"something of {id} is left")

    def left(self, id: str) -> list[str]:
        sockets = [str(path) for path in self.fake.directory.iterdir() if path.is_socket()]
        return [*(line for line in processes_of(self.fake.directory) if id in line), *sockets]

    def swept(self) -> None:
        for line in processes_of(self.daemon.base.parent):
            end_process(int(line.partition(":")[0]))


@pytest.fixture
def odd() -> Iterator[Odd]:
    with tempfile.TemporaryDirectory(prefix="exitd-") as directory:
        made = Odd(pathlib.Path(directory))
        made.daemon.start()
        try:
            yield made
        finally:
            made.fake.does()
            with contextlib.ExitStack() as steps:  # the last one first
                steps.callback(made.swept)
                steps.callback(made.daemon.end)


@pytest.mark.parametrize("code", [2, 9])
def test_a_delete_that_is_refused_keeps_no_container(odd: Odd, code: int) -> None:
    odd.fake.does(refused={"Delete": (code, "not now")})
    odd.removed(odd.ended("sh", "-c", "exit 7"))


def test_a_shim_that_freezes_over_its_delete_is_killed(odd: Odd) -> None:
    odd.fake.does(freezes_on=("Delete",))
    odd.removed(odd.ended("sh", "-c", "exit 7"))


def test_a_shim_that_stays_after_its_shutdown_is_killed(odd: Odd) -> None:
    odd.fake.does(shutdown="stays")
    odd.removed(odd.ended("sh", "-c", "exit 7"))


def test_a_container_whose_shim_has_died_over_its_start_is_removed_by_force(odd: Odd) -> None:
    odd.fake.does(dies_on=("Start",))
    id = odd.created("sleep", "1000")
    with odd.daemon.client() as client, pytest.raises(ShimLost):
        client.start(id)
    odd.fake.does()
    odd.removed(id)
