"""Where a link leads, and what becomes of one that leads nowhere; its calls are in test_with_a_fake_shim.py."""

import asyncio
import contextlib
import pathlib
import socket
import tempfile
from collections.abc import Iterator

import pytest

from supervisor.model.errors import ShimFailed, ShimLost, TimedOut, Unsupported
from supervisor.runtime.foreign_shim.binary import Address
from supervisor.runtime.foreign_shim.connection import OPEN_SECONDS, ShimConnection, remove_dead_socket, socket_path
from supervisor.system.aside import Aside

SOON = 0.2  # a limit that is to run out


async def opened(address: Address, seconds: float = OPEN_SECONDS) -> ShimConnection:
    return await ShimConnection.open(address, Aside(), seconds)


@pytest.mark.parametrize(
    "address, path",
    [
        ("unix:///run/containerd/s/1", "/run/containerd/s/1"),
        ("unix://@/containerd-shim/1.sock", "\0/containerd-shim/1.sock"),
        ("/containerd-shim/1.sock", "\0/containerd-shim/1.sock"),
    ],
)
def test_an_address_leads_to_a_path_or_an_abstract_name(address: str, path: str) -> None:
    assert socket_path(address) == path


@pytest.mark.parametrize("address", ["vsock://3:1024", "hvsock:///run/vm.sock:1024"])
def test_a_machine_is_not_connected_to(address: str) -> None:
    with pytest.raises(Unsupported, match="unix sockets alone"):
        asyncio.run(opened(Address(address, 3)))


@pytest.mark.parametrize("address", [f"unix:///{'x' * 107}", f"unix:///{'ü' * 54}", "unix://"])
def test_a_path_that_fits_in_no_address_is_refused(address: str) -> None:
    with pytest.raises(ShimFailed, match="no path of a unix socket"):
        asyncio.run(opened(Address(address, 2)))


@contextlib.contextmanager
def listening(backlog: int) -> Iterator[Address]:
    with tempfile.TemporaryDirectory(prefix="exitd-") as directory, socket.socket(socket.AF_UNIX) as server:
        server.bind(f"{directory}/s")
        server.listen(backlog)
        yield Address(f"unix://{directory}/s", 2)


def test_a_shim_that_takes_no_connections_is_waited_for_within_a_limit() -> None:
    with listening(0) as address, contextlib.ExitStack() as callers:
        caller = callers.enter_context(socket.socket(socket.AF_UNIX))
        caller.connect(socket_path(address.address))
        with pytest.raises(TimedOut):
            asyncio.run(opened(address, SOON))
        assert not remove_dead_socket(address)


def test_a_shim_that_is_not_there_is_lost(tmp_path: pathlib.Path) -> None:
    with pytest.raises(ShimLost, match="No such file"):
        asyncio.run(opened(Address(f"unix://{tmp_path}/none", 2)))


def test_the_socket_of_a_dead_shim_is_removed_and_no_other_file() -> None:
    with listening(8) as address:
        path = pathlib.Path(socket_path(address.address))
        assert not remove_dead_socket(address) and path.exists()
    with tempfile.TemporaryDirectory(prefix="exitd-") as directory:
        path = pathlib.Path(directory, "s")
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(path))
        assert remove_dead_socket(Address(f"unix://{path}", 2)) and not path.exists()
        assert not remove_dead_socket(Address(f"unix://{path}", 2))
        path.write_text("a file")
        assert not remove_dead_socket(Address(f"unix://{path}", 2)) and path.exists()
        assert not remove_dead_socket(Address("/abstract", 2))


def test_a_call_of_a_link_that_was_never_opened_is_lost() -> None:
    async def test() -> None:
        link = ShimConnection(Address("unix:///none", 2))
        with pytest.raises(ShimLost):
            await link.state("c1")
        await link.shutdown("c1")
        link.close()

    asyncio.run(test())
