"""gRPC clients that send nearly all of each message and wait, or read nothing: HTTP/2 by hand, as no library would do
it."""

import array
import contextlib
import fcntl
import select
import socket
import struct
import termios
from collections.abc import Iterator
from dataclasses import dataclass, field

MESSAGE_BYTES = 4 << 20
WITHHELD_BYTES = 10
FRAME_BYTES = 16_384
FIRST_WINDOW = 65_535
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
ACK = END_HEADERS = 0x4
END_STREAM = 0x1
INITIAL_WINDOW_SIZE, MOST_WINDOW = 4, (1 << 31) - 1
REFLECT = b"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
FILE_OF_SYMBOL = 4  # the field of a reflection's request
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes((kind, flags)) + struct.pack(">I", stream) + payload


def literal(name: bytes, value: bytes) -> bytes:
    """RFC 7541, 6.2.2: of fewer than 127 bytes."""
    return b"\0" + bytes((len(name),)) + name + bytes((len(value),)) + value


def headers(path: bytes) -> bytes:
    pairs = ((b":method", b"POST"), (b":scheme", b"http"), (b":path", path), (b":authority", b"x"))
    more = ((b"te", b"trailers"), (b"content-type", b"application/grpc"))
    return b"".join(literal(name, value) for name, value in (*pairs, *more))


@dataclass
class Sending:
    """One stream: its window, and how much of its message is to be sent yet."""

    window: int
    left: int = MESSAGE_BYTES - WITHHELD_BYTES
    prefix: bytes = struct.pack(">BI", 0, MESSAGE_BYTES - 5)


@dataclass
class Connection:
    line: socket.socket
    window: int = FIRST_WINDOW
    first: int = FIRST_WINDOW
    streams: dict[int, Sending] = field(default_factory=dict)
    answers: dict[int, bytes] = field(default_factory=dict)  # header blocks of streams that were answered
    is_over: bool = False
    _came: bytes = b""
    _going: bytearray = field(default_factory=bytearray)

    def begin(self, stream: int, path: bytes) -> None:
        self._going += frame(HEADERS, END_HEADERS, stream, headers(path))
        self.streams[stream] = Sending(self.first)

    def turn(self) -> None:
        """Read and send what can be read and sent now."""
        try:
            self._receive()
            for stream, sending in self.streams.items():
                self._fill(stream, sending)
            if self._going:
                del self._going[: self.line.send(self._going)]
        except BlockingIOError:
            return
        except OSError:
            self.is_over = True

    def _fill(self, stream: int, sending: Sending) -> None:
        while len(self._going) < 4 * FRAME_BYTES:
            size = min(sending.left, sending.window, self.window, FRAME_BYTES)
            if size <= len(sending.prefix):
                return
            payload = sending.prefix + bytes(size - len(sending.prefix))
            self._going += frame(DATA, 0, stream, payload)
            sending.prefix = b""
            sending.left, sending.window, self.window = sending.left - size, sending.window - size, self.window - size

    def _receive(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while data := self.line.recv(1 << 16):
                self._came += data
            self.is_over = True
        while len(self._came) >= 9:
            size = 9 + int.from_bytes(self._came[:3], "big")
            if len(self._came) < size:
                return
            one, self._came = self._came[:size], self._came[size:]
            self._take(one[3], one[4], int.from_bytes(one[5:9], "big"), one[9:])

    def _take(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind == SETTINGS and not flags & 1:
            for at in range(0, len(payload), 6):
                name, value = struct.unpack_from(">HI", payload, at)
                if name == 4:  # SETTINGS_INITIAL_WINDOW_SIZE
                    for sending in self.streams.values():
                        sending.window += value - self.first
                    self.first = value
            self._going += frame(SETTINGS, 1, 0)
        elif kind == PING and not flags & 1:
            self._going += frame(PING, 1, 0, payload)
        elif kind == WINDOW_UPDATE:
            size = int.from_bytes(payload, "big")
            if stream == 0:
                self.window += size
            elif stream in self.streams:
                self.streams[stream].window += size
        elif kind in (HEADERS, RST_STREAM):
            self.answers[stream] = self.answers.get(stream, b"") + (payload if kind == HEADERS else b"")
            self.streams.pop(stream, None)
        elif kind == GOAWAY:
            self.is_over = True


class Crowd:
    """Connections with some streams each; all have begun."""

    def __init__(self, path: str, count: int, streams: int, method: bytes) -> None:
        self.connections = [Connection(_connected(path)) for _ in range(count)]
        for connection in self.connections:
            for number in range(streams):
                connection.begin(1 + 2 * number, method)

    def turn(self) -> int:
        """Read and send what can be; return how many streams are neither answered nor gone with their connection."""
        waits = select.poll()
        for connection in self.connections:
            waits.register(connection.line, select.POLLIN)
        waits.poll(10)
        for connection in self.connections:
            if not connection.is_over:
                connection.turn()
        return sum(len(connection.streams) for connection in self.connections if not connection.is_over)

    @property
    def answers(self) -> list[bytes]:
        return [answer for connection in self.connections for answer in connection.answers.values()]

    def close(self) -> None:
        for connection in self.connections:
            connection.line.close()


def _connected(path: str) -> socket.socket:
    line = socket.socket(socket.AF_UNIX)
    line.connect(path)
    line.sendall(PREFACE + frame(SETTINGS, 0, 0))
    line.setblocking(False)
    return line


@contextlib.contextmanager
def crowd(path: str, count: int, streams: int, method: bytes) -> Iterator[Crowd]:
    made = Crowd(path, count, streams, method)
    try:
        yield made
    finally:
        made.close()


class Deaf:
    """A connection that reads nothing of what it is sent, and whose windows let the server send as much as it likes."""

    def __init__(self, path: str) -> None:
        self.line = socket.socket(socket.AF_UNIX)
        self.line.connect(path)
        settings = struct.pack(">HI", INITIAL_WINDOW_SIZE, MOST_WINDOW)
        more = struct.pack(">I", MOST_WINDOW - FIRST_WINDOW)
        self.line.sendall(PREFACE + frame(SETTINGS, 0, 0, settings) + frame(WINDOW_UPDATE, 0, 0, more))
        self._streams = iter(range(1, MOST_WINDOW, 2))

    def ask(self, symbol: bytes, times: int) -> None:
        """Ask as often for the file that has the symbol, all in one stream: small questions with large answers."""
        question = bytes((FILE_OF_SYMBOL << 3 | 2, len(symbol))) + symbol
        messages = (struct.pack(">BI", 0, len(question)) + question) * times
        stream = next(self._streams)
        self.line.sendall(frame(HEADERS, END_HEADERS, stream, headers(REFLECT)))
        self.line.sendall(frame(DATA, END_STREAM, stream, messages))

    def begin(self, method: bytes, streams: int) -> None:
        """Begin so many calls whose messages lack their ends."""
        for stream in (next(self._streams) for _ in range(streams)):
            message = struct.pack(">BI", 0, WITHHELD_BYTES)
            self.line.sendall(frame(HEADERS, END_HEADERS, stream, headers(method)) + frame(DATA, 0, stream, message))

    def unread_bytes(self) -> int:
        """How much there is to be read."""
        fcntl.ioctl(self.line, termios.FIONREAD, size := array.array("i", [0]))
        return size[0]

    def is_over(self) -> bool:
        """Return whether the server has ended the connection; nothing is read for that."""
        (looks := select.poll()).register(self.line, 0)
        return any(events & select.POLLHUP for _, events in looks.poll(0))

    def close(self) -> None:
        self.line.close()
