"""Probes over the network, on real sockets: what counts as good, and that nobody can make one long or large.

Their target's process is this one: its network namespace is the machine's, with servers on the loopback.
"""

import asyncio
import contextlib
import os
import socket
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent import futures
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health, health_pb2, health_pb2_grpc  # type: ignore[import-untyped]

from shim import native
from supervisor.engine import netprobes
from supervisor.model.errors import WrongState
from supervisor.model.grpcreply import MOST_BYTES, MOST_MESSAGE_BYTES
from supervisor.model.health import ProbeAnswer
from supervisor.model.httpreply import MOST_HEAD_BYTES
from supervisor.model.values import GrpcTarget, HttpTarget, Process, TcpTarget
from supervisor.system import netns
from tests.supervisor.fakes import in_loop

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
KEY = """\
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgRD+dv6pPUW8nEn5q
VmxiX6S5t+mTrYoM5pnsIO2atW+hRANCAATOgZ7fXiTy5rnvU92Lcq5LGU4AYExq
7xy5fyfbleQfZ7inpW/rBYZFb+PHdHorKMUzPwXixR9kXLP7EC9LyKJa
-----END PRIVATE KEY-----
-----BEGIN CERTIFICATE-----
MIIBejCCAR+gAwIBAgIUKsUo06lw+QgqIRTzyMmwltoEMl8wCgYIKoZIzj0EAwIw
ETEPMA0GA1UEAwwGbm9ib2R5MCAXDTI2MTEyODE1MTk1MloYDzIxMjYxMTA0MTUx
OTUyWjARMQ8wDQYDVQQDDAZub2JvZHkwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNC
AATOgZ7fXiTy5rnvU92Lcq5LGU4AYExq7xy5fyfbleQfZ7inpW/rBYZFb+PHdHor
KMUzPwXixR9kXLP7EC9LyKJao1MwUTAdBgNVHQ4EFgQUELnxXLYBBKFxw16KuZqC
tAiA2j4wHwYDVR0jBBgwFoAUELnxXLYBBKFxw16KuZqCtAiA2j4wDwYDVR0TAQH/
BAUwAwEB/zAKBggqhkjOPQQDAgNJADBGAiEAk/sT4k6XcyKxYSaKYJW/omVV4QAR
TmONxGdAvc56HnECIQDFtHkrfH7MiCNkhaAnGlQTWBy7/BTBlxv4d5zBymxOtw==
-----END CERTIFICATE-----
"""


def here() -> Process:
    return process(os.getpid())


def process(pid: int) -> Process:
    return Process(pid, native.process_stat(pid)[2])


@contextlib.asynccontextmanager
async def server(serve: Serve, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """Its port."""
    listening = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    try:
        yield listening.sockets[0].getsockname()[1]
    finally:
        listening.close()


def says(data: bytes, *, seen: list[bytes] | None = None) -> Serve:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            asked = await reader.readuntil(b"\r\n\r\n")
            if seen is not None:
                seen.append(asked)
            writer.write(data)
            await writer.drain()
            writer.close()

    return serve


async def asked(port: int, **fields: object) -> tuple[ProbeAnswer, str]:
    return await netprobes.answer_of(here(), HttpTarget("", port, **fields))  # type: ignore[arg-type]


@in_loop
async def test_200_to_399_is_good_and_no_redirection_is_followed() -> None:
    seen: list[bytes] = []
    for code, good in ((200, True), (302, True), (404, False), (503, False)):
        answer = f"HTTP/1.1 {code} X\r\nLocation: http://127.0.0.1:1/\r\n\r\n".encode()
        async with server(says(answer, seen=seen)) as port:
            found, words = await asked(port, path="/healthz", headers=(("X-A", "b"),))
            assert (found, f"HTTP status {code}" in words) == (ProbeAnswer(good), True)
    assert len(seen) == 4 and all(b"GET /healthz HTTP/1.1" in each and b"X-A: b" in each for each in seen)


@in_loop
async def test_what_is_no_http_and_what_never_ends_is_bad_within_bounds() -> None:
    for data in (b"220 smtp\r\n", b"", b"HTTP/1.1 2", b"A" * 10 * MOST_HEAD_BYTES):
        async with server(says(data)) as port:
            assert (await asked(port))[0] == ProbeAnswer(False)

    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            writer.write(b"HTTP/1.1 100 Continue\r\n")
            while True:
                writer.write(b"A: b\r\n" * 1000)
                await writer.drain()

    async with server(endless) as port:
        found, why = await asked(port)
    assert (found, f"first {MOST_HEAD_BYTES} bytes" in why) == (ProbeAnswer(False), True)


@in_loop
async def test_who_never_answers_is_left_when_the_time_is_over() -> None:
    over = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await over.wait()
        writer.close()

    async with server(silent) as port:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await asked(port)
        over.set()


@in_loop
async def test_tls_is_spoken_and_no_certificate_is_checked(tmp_path: Path) -> None:
    (tmp_path / "key.pem").write_text(KEY)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "key.pem")
    answer = says(b"HTTP/1.1 200 OK\r\n\r\n")
    async with server(answer, context) as port:
        assert (await asked(port, tls=True))[0] == ProbeAnswer(True)

    async def greets(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 no TLS here\r\n")
        await reader.read(1)
        writer.close()

    async with server(greets) as port:
        assert (await asked(port, tls=True))[0] == ProbeAnswer(False)


@in_loop
async def test_a_connection_is_enough_for_tcp_and_a_closed_port_says_so() -> None:
    async with server(says(b"")) as port:
        assert (await netprobes.answer_of(here(), TcpTarget("", port)))[0] == ProbeAnswer(True)
        assert (await netprobes.answer_of(here(), TcpTarget("127.0.0.1", port)))[0] == ProbeAnswer(True)
    found, why = await netprobes.answer_of(here(), TcpTarget("", port))
    assert (found, why) == (ProbeAnswer(False), f"127.0.0.1:{port}: Connection refused")


@in_loop
async def test_a_server_of_grpc_is_asked_for_its_health() -> None:
    with futures.ThreadPoolExecutor(2) as workers:
        serving, bare = grpc.server(workers), grpc.server(workers)
        servicer = health.HealthServicer()
        for name, status in (("", "SERVING"), ("sick", "NOT_SERVING"), ("s" * 253, "SERVING")):
            servicer.set(name, health_pb2.HealthCheckResponse.ServingStatus.Value(status))
        health_pb2_grpc.add_HealthServicer_to_server(servicer, serving)
        ports = [each.add_insecure_port("127.0.0.1:0") for each in (serving, bare)]
        for each in (serving, bare):
            each.start()
        try:
            said = [await of_grpc(ports[0], service) for service in ("", "sick", "s" * 253, "nobody")]
            said.append(await of_grpc(ports[1]))
        finally:
            for each in (serving, bare):
                assert each.stop(0).wait(10)
    assert [(good, why.partition(": ")[2]) for good, why in said] == [
        (True, "SERVING"),
        (False, "NOT_SERVING"),
        (True, "SERVING"),
        (False, "the call failed: NOT_FOUND, it has no such service"),
        (False, "the call failed: UNIMPLEMENTED, it has no health service"),
    ]
    assert await of_grpc(ports[0]) == (False, f"127.0.0.1:{ports[0]}: Connection refused")


@in_loop
async def test_what_is_no_grpc_and_what_never_ends_is_bad_within_bounds() -> None:
    settings, over = bytes(3) + b"\4" + bytes(5), asyncio.Event()
    data = (MOST_MESSAGE_BYTES + 6).to_bytes(3) + b"\0\0\0\0\0\1" + bytes(MOST_MESSAGE_BYTES + 6)
    pings = (bytes(2) + b"\x08\6" + bytes(5) + bytes(8)) * (MOST_BYTES // 8)

    def sends(what: bytes) -> Serve:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with contextlib.suppress(OSError):
                writer.write(what)
                await over.wait()
                writer.close()

        return serve

    for what, words in (
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "no HTTP/2"),
        (settings + data, f"more than {MOST_MESSAGE_BYTES}"),
        (settings + pings, f"first {MOST_BYTES} bytes"),
    ):
        async with server(sends(what)) as port:
            good, why = await of_grpc(port)
            assert (good, words in why) == (False, True), why
    async with server(sends(settings)) as port:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await of_grpc(port)
    over.set()


async def of_grpc(port: int, service: str = "") -> tuple[bool, str]:
    found, why = await netprobes.answer_of(here(), GrpcTarget(port, service, "127.0.0.1"))
    return found.good, why


@in_loop
async def test_a_machine_without_a_family_of_addresses_has_the_other() -> None:
    found = await netns.sockets_in(here(), (socket.AF_INET, socket.AF_UNSPEC + 999))
    assert list(found) == [socket.AF_INET]
    netns.close_all(found)
    assert await netns.sockets_in(here(), (999,)) == {}


@in_loop
async def test_it_is_the_targets_network_that_is_asked_and_never_another_ones() -> None:
    command = ("unshare", "-n", sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()")
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:  # noqa: ASYNC220  (it begins at once)
        assert other.stdout is not None and other.stdin is not None
        other.stdout.readline()
        target = process(other.pid)
        async with server(says(b"")) as port:
            assert (await netprobes.answer_of(here(), TcpTarget("", port)))[0] == ProbeAnswer(True)
            assert (await netprobes.answer_of(target, TcpTarget("", port)))[0] == ProbeAnswer(False)
        other.stdin.close()
    for gone in (target, Process(os.getpid(), 1)):
        with pytest.raises(WrongState, match="has ended"):
            await netprobes.answer_of(gone, TcpTarget("", port))


@in_loop
async def test_probes_leave_no_descriptor() -> None:
    async with server(says(b"HTTP/1.1 200 OK\r\n\r\n")) as port:
        await asked(port)
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(20):
            await asked(port)
            await netprobes.answer_of(here(), TcpTarget("", 1))
        assert len(os.listdir("/proc/self/fd")) <= before + 1  # the server's end of the last one
