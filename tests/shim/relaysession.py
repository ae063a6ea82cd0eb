"""One session of the relay (shim/relay/session.c) without sockets: bytes in, frames out, and the time is told."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from shim._native import ffi, lib
from tests.shim.relaywords import REQUEST, RESPONSE, TASK, Frame, call, code_of, decode, encode


class Session:
    """`given` is all that containerd has read, `told` what exitd has over the present connection."""

    def __init__(self, cache: Any) -> None:
        self.now_ms = 1000
        self.given: list[Frame] = []
        self.told: list[Frame] = []
        self._rest = b""
        self._told_rest = b""
        self.c = ffi.new("struct session *")
        self.cache = cache
        self.witness = ffi.NULL
        lib.session_init(self.c, cache)

    def ask(self, stream: int, method: str, payload: bytes = b"", service: str = TASK) -> None:
        self.from_containerd(encode(Frame(stream, REQUEST, 0, call(method, payload, service))))

    def from_containerd(self, data: bytes, piece: int = 0) -> None:
        for at in range(0, len(data), piece or len(data) or 1):
            part = data[at : at + (piece or len(data))]
            lib.session_ask(self.c, ffi.from_buffer(part), len(part), self.now_ms)
        self.fill()

    def answer(self, stream: int, reply: bytes, flags: int = 0) -> None:
        self.from_exitd(encode(Frame(stream, RESPONSE, flags, reply)))

    def from_exitd(self, data: bytes) -> None:
        lib.session_answer(self.c, ffi.from_buffer(data), len(data))

    def up(self) -> None:
        self.told, self._told_rest = [], b""
        lib.session_up(self.c, b"hi", 2, self.now_ms)

    def down(self) -> None:
        lib.session_down(self.c)

    def unheard(self) -> None:
        lib.session_unheard(self.c)

    def over(self) -> None:
        lib.session_over(self.c)

    def fill(self) -> None:
        lib.session_fill(self.c, self.now_ms)

    def passes(self, ms: int) -> None:
        self.now_ms += ms
        lib.session_look(self.c, self.now_ms)
        lib.session_witness(self.c, self.now_ms)
        self.fill()

    def take(self, most: int = 1 << 30) -> list[Frame]:
        """containerd reads at most so many bytes; the frames that are whole with them."""
        size, data = self._waiting(self.c.to_containerd, most)
        if size:
            lib.session_given(self.c, size)
        frames, self._rest = decode(self._rest + data)
        self.given += frames
        return frames

    def hear(self, most: int = 1 << 30) -> list[Frame]:
        """exitd reads; the new frames."""
        size, data = self._waiting(self.c.to_exitd, most)
        if size:
            lib.buffer_take(ffi.addressof(self.c, "to_exitd"), size)
        self.fill()
        frames, self._told_rest = decode(self._told_rest + data)
        self.told += frames
        return frames

    def hear_all(self) -> list[Frame]:
        return [frame for part in iter(self.hear, []) for frame in part]

    @staticmethod
    def _waiting(buffer: Any, most: int) -> tuple[int, bytes]:
        size = min(buffer.end - buffer.at, most)
        return size, bytes(ffi.buffer(buffer.data + buffer.at, size)) if size else b""

    def codes(self) -> dict[int, int]:
        """Of all that containerd was given: the status of each stream, each once."""
        streams = [frame.stream for frame in self.given]
        assert len(streams) == len(set(streams)), "answered twice"
        return {frame.stream: code_of(frame.data) for frame in self.given}


@contextmanager
def sessions(count: int = 1) -> Iterator[list[Session]]:
    """Sessions of one relay: they share a cache and a witness."""
    cache, witness = ffi.new("struct cache *"), ffi.new("struct witness *")
    made = [Session(cache) for _ in range(count)]
    for session in made:
        session.witness = session.c.witness = witness
    yield made
    for session in made:
        lib.session_free(session.c)
    forget(witness)
    while cache.first:
        lib.cache_forget(cache, cache.first.payload)


def forget(witness: Any) -> None:
    """Every task of it is gone."""
    task = witness.first
    while task:
        task.stage, task.taken, task.brought = lib.TASK_GONE, lib.NEWS_DELETE, 0
        task = task.next
    lib.news_sweep(witness)


@contextmanager
def session() -> Iterator[Session]:
    with sessions() as (one,):
        yield one
