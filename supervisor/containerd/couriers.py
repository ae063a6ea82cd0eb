"""The relays as event senders: each sends its tasks' events to containerd and remembers the last one. It outlives
exitd. So if exitd was killed before it could note an answer, the next exitd hands the event over again, and the relay
does not send it twice. A relay is identified by its process, which every event of its tasks names
(docs/decisions/0026)."""

import asyncio
import os
import struct
from collections.abc import Callable

import structlog
from google.protobuf.message import DecodeError, Message

from protos.ttrpc.v1.ttrpc_pb2 import Request, Response
from shim.undo import undone_on_failure
from supervisor.monitor.epoll import open_process, read_ready
from supervisor.ttrpc.faults import CallFailed
from supervisor.ttrpc.frames import Frame, encode
from supervisor.ttrpc.server import Connection

EVENT, TOLD = 0x85, 0x86  # types of frames, see `taskserver.py`
_NUMBER = struct.Struct(">Q")

log = structlog.get_logger(__name__)


def packed(seq: int, name: str, message: Message) -> bytes:
    """Return the content of an event's frame: its number, and the request for containerd. `name`: service/method."""
    service, _, method = name.partition("/")
    request = Request(service=service, method=method, payload=message.SerializeToString())
    return _NUMBER.pack(seq) + request.SerializeToString()


def unpacked(data: bytes) -> tuple[int, Response]:
    """Return the content of a relay's answer: the number, and containerd's response. Raises ValueError."""
    try:
        return _NUMBER.unpack_from(data)[0], Response.FromString(data[_NUMBER.size :])
    except (struct.error, DecodeError) as error:
        raise ValueError(f"a relay's word on an event is not understood: {error}") from error


class Courier:
    """One living relay process. It is handed one event at a time."""

    def __init__(self, pidfd: int) -> None:
        self.pidfd = pidfd
        self.links: list[Connection] = []  # its connections, the newest last
        self.moved = asyncio.Event()  # there is a link, or there will be none
        self._handed: tuple[Connection, int] | None = None
        self._answer: asyncio.Future[Response | None] | None = None

    async def hand(self, seq: int, data: bytes) -> Response | None:
        """Hand an event over. Return None if the connection ended before an answer came."""
        link = self.links[-1]
        self._handed, self._answer = (link, seq), asyncio.get_running_loop().create_future()
        link.write(encode(Frame(0, EVENT, 0, data)))
        try:
            return await self._answer
        finally:
            self._handed = self._answer = None

    def answered(self, link: Connection, seq: int, response: Response) -> None:
        """Take containerd's response to the event with this number, from the connection that it was handed over on."""
        if self._handed == (link, seq) and self._answer is not None and not self._answer.done():
            self._answer.set_result(response)

    def lost(self, link: Connection | None) -> None:
        """Note the loss of that connection; None: of all."""
        self.links = [each for each in self.links if link is not None and each is not link]
        if self._handed is None or self._answer is None or self._answer.done():
            return
        if link is None or self._handed[0] is link:
            self._answer.set_result(None)


class Couriers:
    """Belongs to one event loop. A courier's name is its process: pid and start time."""

    def __init__(self) -> None:
        self._couriers: dict[str, Courier] = {}

    async def hand_over(self, name: str, seq: int, data: bytes, is_wanted: Callable[[], bool]) -> bool:
        """Hand an event over as soon as the relay is connected, while it lives. Return False if it has ended; it may
        have sent the event that it was handed last. Raises CallFailed with containerd's answer, OSError when there is
        no descriptor for its process."""
        while is_wanted():
            courier = self._of(name)
            if courier is None:
                return False
            if not courier.links:
                courier.moved.clear()
                await courier.moved.wait()
                continue
            answer = await courier.hand(seq, data)
            if answer is not None:
                if answer.status.code:
                    raise CallFailed(answer.status.code, answer.status.message)
                return True
        return True

    def linked(self, name: str, link: Connection) -> None:
        """Raises OSError when there is no descriptor for the relay's process."""
        if name and (courier := self._of(name)) is not None:
            courier.links.append(link)
            courier.moved.set()

    def answered(self, name: str, link: Connection, data: bytes) -> None:
        """Take the data of a `told` frame: an event's number and containerd's response."""
        try:
            seq, response = unpacked(data)
        except ValueError as error:
            log.warning("refused a relay's word", relay=name, why=str(error))
            link.abort()
            return
        if name in self._couriers:
            self._couriers[name].answered(link, seq, response)

    def parting(self, name: str, link: Connection) -> None:
        """Hand nothing more over on this connection; an answer may still come."""
        if name in self._couriers:
            courier = self._couriers[name]
            courier.links = [each for each in courier.links if each is not link]

    def lost(self, name: str, link: Connection) -> None:
        if name in self._couriers:
            self._couriers[name].lost(link)

    def close(self) -> None:
        for name in tuple(self._couriers):
            self._ended(name)

    def _of(self, name: str) -> Courier | None:
        """Return None if it is not alive. Raises OSError when that cannot be seen."""
        if name not in self._couriers:
            pid, _, started = name.partition("/")
            fd = open_process(int(pid), int(started))
            if fd is None:
                return None
            if read_ready(fd):
                os.close(fd)
                return None
            with undone_on_failure(lambda: os.close(fd)):
                asyncio.get_running_loop().add_reader(fd, self._ended, name)
            self._couriers[name] = Courier(fd)
        return self._couriers[name]

    def _ended(self, name: str) -> None:
        courier = self._couriers.pop(name)
        asyncio.get_running_loop().remove_reader(courier.pidfd)
        os.close(courier.pidfd)
        courier.lost(None)
        courier.moved.set()
