"""The open connection by which exitd knows who asks: an exitd that did not greet in time is asked again by the next
call, or all that the client makes would be nobody's."""

import asyncio
import pathlib
import socket
import threading

import pytest

from exitd_client import aio, client, wire

LIMIT_SECONDS = 60.0
TOKEN = "abc123"
GREETED = ((wire.TOKEN_KEY, TOKEN),)


class Greeter:
    """Accepts two connections, and greets the second alone."""

    def __init__(self, path: str) -> None:
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.settimeout(LIMIT_SECONDS)
        self._listener.bind(path)
        self._listener.listen()
        self.taken: list[socket.socket] = []

    def greet_the_second(self) -> None:
        for _ in range(2):
            self.taken.append(self._listener.accept()[0])
        self.taken[-1].sendall(f"{TOKEN}\n".encode())

    def close(self) -> None:
        for each in (self._listener, *self.taken):
            each.close()


def test_who_was_not_greeted_in_time_asks_again(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    introduction = client._Introduction(f"{tmp_path}/identity")
    greeter = Greeter(f"{tmp_path}/identity")
    monkeypatch.setattr(wire, "GREETING_SECONDS", 0.05)
    assert introduction.metadata() == ()
    thread = threading.Thread(target=greeter.greet_the_second)
    thread.start()
    monkeypatch.setattr(wire, "GREETING_SECONDS", LIMIT_SECONDS)
    assert introduction.metadata() == introduction.metadata() == GREETED
    thread.join(LIMIT_SECONDS)
    introduction.close()
    greeter.close()
    assert len(greeter.taken) == 2


def test_so_does_the_client_of_asyncio(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    greeter = Greeter(f"{tmp_path}/identity")
    thread = threading.Thread(target=greeter.greet_the_second)

    async def asked() -> None:
        introduction = aio._Introduction(f"{tmp_path}/identity")
        monkeypatch.setattr(wire, "GREETING_SECONDS", 0.05)
        assert await introduction.metadata() == ()
        thread.start()
        monkeypatch.setattr(wire, "GREETING_SECONDS", LIMIT_SECONDS)
        assert await introduction.metadata() == await introduction.metadata() == GREETED
        introduction.close()

    asyncio.run(asyncio.wait_for(asked(), LIMIT_SECONDS))
    thread.join(LIMIT_SECONDS)
    greeter.close()
    assert len(greeter.taken) == 2
