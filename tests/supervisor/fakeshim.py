"""A shim that speaks the control protocol on a real socket, moves nothing by itself: a test has its descriptors."""

import asyncio
import contextlib
import errno
import os
import socket
from collections.abc import Iterator
from pathlib import Path

from shim import fields, launch

OK = fields.encode("exitd-ok", [])


class FakeShim:
    """Every request is noted. `answers` holds what an op is answered instead of `exitd-ok`; None: nothing at all."""

    def __init__(self, directory: Path) -> None:
        self.asked: list[tuple[str, ...]] = []
        self.answers: dict[str, bytes | None] = {}
        self.attached: list[dict[str, int]] = []  # the descriptors of each attach, by stream
        self.counters = dict.fromkeys(
            ("out", "err", "in", "lost", "dropped", "in_session", "missed_session", "attached"), 0
        )
        self.closed_stdin = False  # then `in` cannot be attached
        self._directory = directory
        self._connections: list[socket.socket] = []
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)

    @property
    def connection(self) -> socket.socket:
        """The newest one."""
        return self._connections[-1]

    @property
    def open_connections(self) -> int:
        return sum(connection.fileno() >= 0 for connection in self._connections)

    def begin(self, *, accepts: bool = True) -> "FakeShim":
        with contextlib.suppress(FileNotFoundError):
            (self._directory / "control.sock").unlink()
        directory_fd = os.open(self._directory, os.O_PATH)
        self._listener.bind(f"/proc/self/fd/{directory_fd}/control.sock")
        os.close(directory_fd)
        self._listener.listen(4)
        self._listener.setblocking(False)
        if accepts:
            asyncio.get_running_loop().add_reader(self._listener.fileno(), self._accept)
        return self

    def say_farewell(self) -> None:
        """As at its end: the counters, unasked."""
        self.connection.send(fields.encode("exitd-counters", self.counters.items()))

    def die(self) -> None:
        """As by SIGKILL: everything it had is closed. Repeatable."""
        for connection in (self._listener, *self._connections):
            if connection.fileno() >= 0:
                asyncio.get_running_loop().remove_reader(connection.fileno())
                connection.close()
        for name in ("in", "out", "err"):
            self.close(name)

    def close(self, *names: str) -> None:
        """The descriptors it has got under these names."""
        for attached in self.attached:
            for name in names:
                if (fd := attached.pop(name, -1)) >= 0:
                    os.close(fd)

    def refuse(self, op: str, number: int, why: str = "no") -> None:
        self.answers[op] = _refusal(number, why)

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        connection.setblocking(False)
        self._connections.append(connection)
        asyncio.get_running_loop().add_reader(connection.fileno(), self._request, connection)

    def _request(self, connection: socket.socket) -> None:
        data, descriptors = launch.receive(connection)
        if not data:
            asyncio.get_running_loop().remove_reader(connection.fileno())
            return connection.close()
        message = fields.decode(data, "exitd-control")
        op = message.get("op")
        self.asked.append((op, *(value for key, value in message.pairs if key != "op")))
        answer = self._answer(op, message.get("streams"))
        if op == "attach" and answer == OK:
            self.attached.append(dict(zip(message.get("streams").split(","), descriptors, strict=True)))
        else:
            for fd in descriptors:
                os.close(fd)
        if answer is not None:
            connection.send(answer)

    def _answer(self, op: str, streams: str) -> bytes | None:
        if op in self.answers:
            return self.answers[op]
        if self.closed_stdin and streams.startswith("in"):
            return _refusal(errno.EPIPE, "stdin is closed")
        return fields.encode("exitd-counters", self.counters.items()) if op == "counters" else OK


def _refusal(number: int, why: str) -> bytes:
    return fields.encode("exitd-refused", [("why", why), ("errno", number)])


@contextlib.contextmanager
def shim(directory: Path) -> Iterator[FakeShim]:
    """It listens, for the length of the block."""
    fake = FakeShim(directory).begin()
    try:
        yield fake
    finally:
        fake.die()
