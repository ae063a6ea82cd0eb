"""Ports of containers which are made at the same moment, and of those whose networks have changed."""

import asyncio
import json
from collections.abc import Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from supervisor.config.settings import Config
from supervisor.engine import networkservice
from supervisor.engine.networkservice import NetworkService
from supervisor.engine.node import Node
from supervisor.model.errors import BadRequest, ToolFailed, WrongState
from supervisor.model.networks import AddressWish, PublishedPort
from supervisor.model.values import Container, Phase, Spec
from supervisor.network import calls, conflist, files, hostports, namespace, plugins
from supervisor.network.conflist import NetworkConfig
from supervisor.network.records import AttachmentRecord, NetworkLink


def test_a_chosen_port_is_the_containers_before_it_is_recorded_until_it_is_discarded() -> None:
    """Four requests take most of what there is: by chance alone they would meet."""
    service = NetworkService(cast(Node, SimpleNamespace(containers={})), Config, "/nowhere", "/nowhere")
    share = min(1000, len(list(hostports.numbers())) * 2 // 9)
    spec = Spec("web", ports=tuple(PublishedPort(port) for port in range(1, share + 1)))
    chosen = [service.claim_ports(spec, (), id).ports for id in "abcd"]
    assert len({port.host_port for ports in chosen for port in ports}) == 4 * share
    with pytest.raises(WrongState, match="no free port"):
        service.claim_ports(spec, (), "e")
    asyncio.run(service.discarded("a"))
    assert service.claim_ports(spec, (), "e").ports


def _network(name: str, *, publishes: bool) -> NetworkConfig:
    plugin = {"type": "any", "capabilities": {"portMappings": publishes}}
    return conflist.parse(json.dumps({"cniVersion": "1.0.0", "name": name, "plugins": [plugin]}))


class KnownHere(dict[str, Container]):
    """Containers of a node, none of which is in a pod."""

    def members(self, sandbox: str) -> list[Container]:
        return []


def _service(directory: Path, monkeypatch: pytest.MonkeyPatch, *configured: NetworkConfig) -> NetworkService:
    """A service whose plugins give each container an address, after all others have had their turn."""

    async def add(network: NetworkConfig, endpoint: calls.Endpoint, plugin_dirs: tuple[str, ...]) -> str:
        for _ in range(100):
            await asyncio.sleep(0)
        return json.dumps({"ips": [{"address": "10.88.0.2/16"}]})

    async def found() -> list[files.Config]:
        return [(each.name, each) for each in configured]

    monkeypatch.setattr(plugins, "add", add)
    monkeypatch.setattr(files, "missing", lambda network, dirs: "")
    monkeypatch.setattr(hostports, "first_taken", lambda ports: None)
    monkeypatch.setattr(namespace, "make", lambda path, ids: None)
    service = NetworkService(
        cast(Node, SimpleNamespace(containers=KnownHere())), Config, str(directory), str(directory)
    )
    monkeypatch.setattr(service.choice, "found", found)
    return service


def _publishing(id: str) -> Container:
    spec = Spec(id, network="plain", more_networks=("open",), ports=(PublishedPort(80, 8080),))
    return Container(id, spec, Phase.CREATING, 1, 0)


def test_a_port_of_a_later_network_is_not_given_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither has a record of the port while their first networks are put up."""
    service = _service(tmp_path, monkeypatch, _network("plain", publishes=False), _network("open", publishes=True))

    async def both() -> list[Container | BaseException]:
        return await asyncio.gather(*(service.attach(_publishing(id)) for id in "ab"), return_exceptions=True)

    refused = [str(each) for each in asyncio.run(both()) if isinstance(each, WrongState)]
    assert len(refused) == 1 and "8080/tcp" in refused[0]


def test_a_port_whose_network_takes_too_long_to_take_down_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a container that has gone; its plugin hangs."""
    service = _service(tmp_path, monkeypatch, _network("plain", publishes=False), _network("open", publishes=True))

    async def delete(*_: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(plugins, "delete", delete)
    monkeypatch.setattr(networkservice, "LETS_GO_SECONDS", 0.01)

    async def refused() -> None:
        begun: list[asyncio.Future[object]] = []
        service._node.spawn = lambda work: begun.append(asyncio.ensure_future(work))  # type: ignore[method-assign]
        await service.attach(_publishing("a"))
        with pytest.raises(WrongState, match="8080/tcp was published by a, whose network is still being taken down"):
            await service.attach(_publishing("b"))
        for each in begun:
            each.cancel()
        await asyncio.gather(*begun, return_exceptions=True)

    asyncio.run(refused())


def test_what_no_network_takes_any_more_is_not_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their files have changed since the container was made."""
    service = _service(tmp_path, monkeypatch, _network("plain", publishes=False), _network("open", publishes=False))
    with pytest.raises(BadRequest, match=r"ports: network plain or open .*portMappings"):
        asyncio.run(service.attach(_publishing("a")))
    spec = Spec("a", network="plain", wishes=(AddressWish("plain", ("10.88.0.9",)),))
    with pytest.raises(BadRequest, match=r"addresses: network plain .*ips"):
        asyncio.run(service.attach(Container("a", spec, Phase.CREATING, 1, 0)))
    assert not list(tmp_path.iterdir())


GONE = "0" * 64


@pytest.mark.parametrize(("seconds", "stays"), [(0.01, False), (1000.0, True)])
def test_the_namespace_of_a_network_that_is_given_up_is_unmade_when_that_can_be_and_left_alone_between_two_tries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float, stays: bool
) -> None:
    """A directory in the place of its file stands for a kernel that refuses."""

    async def delete(*_: object) -> None:
        raise ToolFailed("the switch does not answer")

    monkeypatch.setattr(plugins, "delete", delete)
    monkeypatch.setattr(networkservice, "AGAIN_SECONDS", (seconds,))
    link = NetworkLink("eth0", _network("plain", publishes=False), ("/plugins",))
    path = tmp_path / "netns" / f"{GONE}-1"
    path.mkdir(parents=True)
    (tmp_path / "networks").mkdir()
    files.write(str(tmp_path / "networks"), AttachmentRecord(GONE, 1, (link,)))
    begun: list[asyncio.Future[object]] = []

    def spawn(work: Coroutine[Any, Any, object]) -> None:
        begun.append(asyncio.ensure_future(work))

    async def until_nothing_is_left() -> None:
        node = SimpleNamespace(containers=KnownHere(), spawn=spawn)
        service = NetworkService(cast(Node, node), Config, str(tmp_path), str(tmp_path))
        await service.load()
        service.look()
        await service.after_clean_up(GONE)
        given_up = (await service.prune_networks()).given_up
        assert [(each.record, each.why) for each in given_up] == [(f"{GONE}-1", "the switch does not answer")]
        path.rmdir()
        path.touch()
        if stays:
            for _ in range(20):  # as many turns of a thread as it would need for so many tries
                await asyncio.to_thread(path.exists)
            for each in begun:
                each.cancel()
        await asyncio.wait_for(asyncio.gather(*begun, return_exceptions=stays), 30)

    asyncio.run(until_nothing_is_left())
    assert path.exists() == stays and not list((tmp_path / "networks").iterdir())
