"""What exitd tells a containerd: every event on its way there, and whether it was taken. In between, and unnoticed."""

import contextlib
import pathlib
import select
import socket
import threading
import time
from types import TracebackType
from typing import Any

from protos.containerd import events_pb2 as pb
from protos.containerd.forward_pb2 import ForwardRequest
from protos.ttrpc.v1 import ttrpc_pb2 as wire
from supervisor.containerd.publish import FORWARD
from supervisor.ttrpc.frames import REQUEST, RESPONSE, Decoder, Frame
from tests.system.containerd.history import End, Told, Who

KINDS: dict[str, Any] = {
    "create": pb.TaskCreate,
    "start": pb.TaskStart,
    "exec-added": pb.TaskExecAdded,
    "exec-started": pb.TaskExecStarted,
    "paused": pb.TaskPaused,
    "resumed": pb.TaskResumed,
    "exit": pb.TaskExit,
    "delete": pb.TaskDelete,
    "oom": pb.TaskOOM,
}
# As containerd calls a shim; but that the shim, and so exitd, takes this socket for containerd's.
SHIM = """#!/bin/sh
TTRPC_ADDRESS={address} exec containerd-shim-exitd-v2 "$@"
"""


class Tap:
    """For a block: listens in the place of containerd's ttrpc socket. `shim`, in `place`, is the runtime that leads
    here."""

    def __init__(self, place: pathlib.Path, containerd: str) -> None:
        place.mkdir()
        self._containerd = containerd
        self._told: list[Told] = []
        self._threads: list[threading.Thread] = []
        self._over, self._end = socket.socketpair()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(address := f"{place}/socket")
        self._listener.listen()
        self.shim = place / "containerd-shim"
        self.shim.write_text(SHIM.format(address=address))
        self.shim.chmod(0o755)

    def __enter__(self) -> "Tap":
        self._begin(threading.Thread(target=self._accept))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._end.close()
        for thread in self._threads:
            thread.join()
        self._listener.close()
        self._over.close()

    @property
    def told(self) -> tuple[Told, ...]:
        return tuple(self._told)

    def _begin(self, thread: threading.Thread) -> None:
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while self._over not in select.select([self._listener, self._over], [], [])[0]:
            self._begin(threading.Thread(target=self._pass_on, args=[self._listener.accept()[0]]))

    def _pass_on(self, exitd: socket.socket) -> None:
        """Until one of the two has closed its end, or is gone."""
        with (
            exitd,
            socket.socket(socket.AF_UNIX) as containerd,
            contextlib.suppress(ConnectionError, FileNotFoundError),
        ):
            containerd.connect(self._containerd)
            line = Line(self._told)
            while True:
                ready, _, _ = select.select([exitd, containerd, self._over], [], [])
                for one, other, note in ((containerd, exitd, line.answered), (exitd, containerd, line.asked)):
                    if one in ready:
                        data = one.recv(1 << 18)
                        note(data)
                        if not data:
                            return
                        other.sendall(data)
                if self._over in ready:
                    return


class Line:
    """One connection."""

    def __init__(self, told: list[Told]) -> None:
        self._told = told
        self._asked, self._answered = Decoder(), Decoder()
        self._waiting: dict[int, int] = {}  # what was told, by stream

    def asked(self, data: bytes) -> None:
        for frame in self._asked.feed(data):
            assert isinstance(frame, Frame) and frame.type == REQUEST, frame
            request = wire.Request.FromString(frame.data)
            assert f"{request.service}/{request.method}" == FORWARD, request
            self._waiting[frame.stream] = len(self._told)
            self._told.append(read(request.payload))

    def answered(self, data: bytes) -> None:
        for frame in self._answered.feed(data):
            assert isinstance(frame, Frame) and frame.type == RESPONSE, frame
            number = self._waiting.pop(frame.stream)
            if not wire.Response.FromString(frame.data).status.code:
                self._told[number] = self._told[number].taken()


def read(payload: bytes) -> Told:
    envelope = ForwardRequest.FromString(payload).envelope
    return event(envelope.topic, envelope.event.value, payload)


def event(topic: str, data: bytes, payload: bytes = b"") -> Told:
    """From an event's own message."""
    word = topic.removeprefix("/tasks/")
    message = KINDS[word].FromString(data)
    exec_id = getattr(message, "exec_id", "") or getattr(message, "id", "")
    who = Who(message.container_id, "" if exec_id == message.container_id else exec_id)
    end = End(message.exit_status, message.exited_at.ToNanoseconds()) if word in ("exit", "delete") else None
    return Told(time.time(), who, word, payload, getattr(message, "pid", 0), end)
