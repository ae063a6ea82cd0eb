"""One probe over the network, from inside the network namespace of a container's init: tcp, http, https, grpc.

Bounded in everything: its time is the caller's limit, its bytes are those of the head of one answer, or of one short
message. Redirections are
not followed, and no name is looked up: a target is an address, or the loopback.
"""

import asyncio
import errno
import os
import socket
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

from supervisor.model.errnos import USED_UP
from supervisor.model.errors import CannotStart
from supervisor.model.grpcreply import GrpcReader, check_call
from supervisor.model.health import ProbeAnswer
from supervisor.model.httpreply import StatusFound, StatusReader, request
from supervisor.model.values import GrpcTarget, HttpTarget, Process, TcpTarget
from supervisor.system import netns

if TYPE_CHECKING:
    import ssl

LOOPBACKS = ("127.0.0.1", "::1")
READ_BYTES = 4096

NetTarget = TcpTarget | HttpTarget | GrpcTarget


async def answer_of(init: Process, target: NetTarget) -> tuple[ProbeAnswer, str]:
    """Return whether the target answers well, and the reason for people. Raises WrongState when init has ended, OSError
    when the probe could not be made, for no fault of the container's."""
    try:
        line, address = await _connected(init, addresses_of(target), target.port)
    except CannotStart as error:
        raise OSError(errno.EAGAIN, str(error)) from error
    if line is None:
        return ProbeAnswer(False), address
    try:
        if isinstance(target, TcpTarget):
            return ProbeAnswer(True), f"{address}: connected"
        if isinstance(target, GrpcTarget):
            return await _grpc(line, address, target)
        return await _http(line, address, target)
    finally:
        line.close()


def addresses_of(target: NetTarget) -> tuple[str, ...]:
    """Return the addresses to try, the first that accepts counts. A program may listen on one of the loopbacks alone,
    and a machine may have no IPv6."""
    return (target.host,) if target.host else LOOPBACKS


async def _connected(init: Process, addresses: Sequence[str], port: int) -> tuple[socket.socket | None, str]:
    """Return a connection and its address; None, and why there is none."""
    families = {address: socket.AF_INET6 if ":" in address else socket.AF_INET for address in addresses}
    sockets = await netns.sockets_in(init, tuple(families.values()))
    why = ""
    try:
        for address, family in families.items():
            if family not in sockets:
                why = why or f"{address}: this machine has no such addresses"
                continue
            try:
                await asyncio.get_running_loop().sock_connect(sockets[family], (address, port))
            except OSError as error:
                if error.errno in USED_UP:
                    raise  # that is this machine's, and says nothing of the container
                # Of several the first is shown: most programs listen there.
                why = why or f"{address}:{port}: {os.strerror(error.errno or 0)}"
                continue
            return sockets.pop(family), address
    finally:
        netns.close_all(sockets)
    return None, why


async def _http(line: socket.socket, address: str, target: HttpTarget) -> tuple[ProbeAnswer, str]:
    import ssl  # imported on demand: exitd must start fast

    writer: asyncio.StreamWriter | None = None
    try:
        tls = _unchecked() if target.tls else None
        name = address if target.tls else None
        reader, writer = await asyncio.open_connection(sock=line, ssl=tls, server_hostname=name, limit=READ_BYTES)
        writer.write(request(target, address))
        status = StatusReader()
        found = None
        while found is None:
            found = status.feed(await reader.read(READ_BYTES))
    except OSError as error:  # ssl.SSLError is one
        if error.errno in USED_UP and not isinstance(error, ssl.SSLError):
            raise
        # Reset, or no TLS: it is the other side's.
        return ProbeAnswer(False), f"{address}:{target.port}: {error}"
    finally:
        if writer is not None:
            writer.transport.abort()
    if isinstance(found, StatusFound):
        first, _, _ = status.kept.partition(b"\r\n")
        return ProbeAnswer(found.is_good), f"HTTP status {found.code}\n{first[:200].decode('latin-1')}"
    return ProbeAnswer(False), found.why


async def _grpc(line: socket.socket, address: str, target: GrpcTarget) -> tuple[ProbeAnswer, str]:
    writer: asyncio.StreamWriter | None = None
    try:
        reader, writer = await asyncio.open_connection(sock=line, limit=READ_BYTES)
        writer.write(check_call(target, address))
        answer, found = GrpcReader(), None
        while found is None:
            found = answer.feed(await reader.read(READ_BYTES))
            writer.write(answer.to_send)
            answer.to_send = b""
    except OSError as error:
        if error.errno in USED_UP:
            raise
        return ProbeAnswer(False), f"{address}:{target.port}: {error}"  # reset: it is the other side's
    finally:
        if writer is not None:
            writer.transport.abort()
    return ProbeAnswer(found.good), f"{address}:{target.port}: {found.words}"


@cache
def _unchecked() -> "ssl.SSLContext":
    """As the kubelet: a probe asks whether something answers, not who."""
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
