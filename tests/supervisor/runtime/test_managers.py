"""The family of foreign shims is made for its first container, and asked nothing before."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from supervisor.model.values import RunKey
from supervisor.runtime.managers import ContainerRuntimes, ExecRuntimes, ForeignShims
from supervisor.streams.attach import Orders
from tests.supervisor.stored import container

HERE, ELSEWHERE = RunKey("a" * 64, 1), RunKey("b" * 64, 1)
NATIVE, FOREIGN = container("c"), container("d", runtime_type="io.containerd.runc.v2")
ORDERS = Orders()


class Manager:
    """Has `HERE`, and writes down what it is asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def has(self, key: RunKey) -> bool:
        return key == HERE

    def orders(self, key: RunKey) -> Orders:
        return ORDERS

    def kill_stopped_shim(self, key: RunKey) -> bool:
        return True

    def listen(self, listener: object) -> None:
        self.asked.append(f"listen {listener}")

    def look_at_all(self) -> None:
        self.asked.append("look_at_all")

    async def look_at_memory(self) -> None:
        self.asked.append("look_at_memory")

    async def close(self) -> None:
        self.asked.append("close")


class Rig:
    def __init__(self) -> None:
        self.native, self.foreign, self.made = Manager(), Manager(), 0
        self.shims = ForeignShims(cast(Any, self.make))
        self.containers = ContainerRuntimes(cast(Any, self.native), self.shims)
        self.execs = ExecRuntimes(cast(Any, self.native), self.shims)

    def make(self) -> SimpleNamespace:
        self.made += 1
        return SimpleNamespace(containers=self.foreign, execs=self.foreign, close=self.foreign.close)


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_without_a_container_of_its_own_it_is_not_made(rig: Rig) -> None:
    rig.containers.listen(cast(Any, "l"))
    assert cast(object, rig.containers.of(NATIVE)) is cast(object, rig.execs.of(NATIVE)) is rig.native
    assert rig.containers.orders(HERE) is not ORDERS
    assert rig.containers.kill_stopped_shim(HERE) and rig.execs.kill_stopped_shim(HERE)
    rig.containers.look_at_all()
    asyncio.run(rig.containers.look_at_memory())
    asyncio.run(rig.shims.close())
    assert (rig.made, rig.native.asked) == (0, ["listen l", "look_at_all", "look_at_memory"])


def test_the_first_one_makes_it_once_with_the_listener_of_all(rig: Rig) -> None:
    rig.containers.listen(cast(Any, "l"))
    for _ in range(2):
        assert cast(object, rig.containers.of(FOREIGN)) is cast(object, rig.execs.of(FOREIGN)) is rig.foreign
    rig.containers.look_at_all()
    asyncio.run(rig.containers.look_at_memory())
    asyncio.run(rig.shims.close())
    assert (rig.made, rig.foreign.asked) == (1, ["listen l", "look_at_all", "look_at_memory", "close"])


def test_a_listener_that_comes_later_hears_of_both(rig: Rig) -> None:
    rig.execs.of(FOREIGN)
    rig.containers.listen(cast(Any, "l"))
    assert rig.native.asked == rig.foreign.asked == ["listen l"]


def test_a_run_is_asked_about_where_it_is(rig: Rig) -> None:
    rig.containers.of(FOREIGN)
    assert rig.containers.orders(HERE) is ORDERS and rig.containers.orders(ELSEWHERE) is not ORDERS
    for runtimes in (rig.containers, rig.execs):
        assert not runtimes.kill_stopped_shim(HERE)  # other containers may share it
        assert runtimes.kill_stopped_shim(ELSEWHERE)
