"""Ports that are chosen for containers which are being made at the same moment."""

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest

from supervisor.config.settings import Config
from supervisor.engine.networkdesk import NetworkDesk
from supervisor.engine.node import Node
from supervisor.model.errors import WrongState
from supervisor.model.networks import PublishedPort
from supervisor.model.values import Spec
from supervisor.network import hostports


def test_a_chosen_port_is_the_containers_before_it_is_recorded_until_it_is_discarded() -> None:
    """Four requests take most of what there is: by chance alone they would meet."""
    desk = NetworkDesk(cast(Node, SimpleNamespace(containers={})), Config, "/nowhere", "/nowhere")
    share = min(1000, len(list(hostports.numbers())) * 2 // 9)
    spec = Spec("web", ports=tuple(PublishedPort(port) for port in range(1, share + 1)))
    chosen = [desk.with_ports(spec, (), id).ports for id in "abcd"]
    assert len({port.host_port for ports in chosen for port in ports}) == 4 * share
    with pytest.raises(WrongState, match="no free port"):
        desk.with_ports(spec, (), "e")
    asyncio.run(desk.discarded("a"))
    assert desk.with_ports(spec, (), "e").ports
