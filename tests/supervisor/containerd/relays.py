"""A relay that brings events, in the test's own hands: a connection to exitd, and a process that lives or does not."""

import os
import struct
import subprocess
from typing import cast

from protos.ttrpc.v1.ttrpc_pb2 import Request, Response
from shim import native
from supervisor.containerd.couriers import EVENT, Couriers
from supervisor.ttrpc.frames import Decoder, Frame
from supervisor.ttrpc.server import Connection


def name_of(pid: int) -> str:
    return f"{pid}/{native.process_stat(pid)[2]}"


ME = name_of(os.getpid())


class Relay:
    """`handed` are the numbers that came over this connection, `requests` what they came with."""

    def __init__(self, couriers: Couriers, name: str = ME) -> None:
        self.couriers, self.name = couriers, name
        self.handed: list[int] = []
        self.requests: list[Request] = []
        self.aborted = False
        self.link = cast(Connection, self)
        couriers.linked(name, self.link)

    def write(self, data: bytes) -> None:
        (frame,) = Decoder().feed(data)
        assert isinstance(frame, Frame) and (frame.type, frame.stream) == (EVENT, 0)
        self.handed += struct.unpack_from(">Q", frame.data)
        self.requests.append(Request.FromString(frame.data[8:]))

    def abort(self) -> None:
        self.aborted = True

    def answers(self, seq: int, code: int = 0, text: str = "") -> None:
        response = Response()
        if code:
            response.status.code, response.status.message = code, text
        self.couriers.answered(self.name, self.link, struct.pack(">Q", seq) + response.SerializeToString())

    def lost(self) -> None:
        self.couriers.lost(self.name, self.link)


class Process:
    """One that lives until it is ended; it is not reaped before `close`."""

    def __init__(self) -> None:
        self._child = subprocess.Popen(["sleep", "1000"])
        self.name = name_of(self._child.pid)

    def end(self) -> None:
        self._child.kill()
        os.waitid(os.P_PID, self._child.pid, os.WEXITED | os.WNOWAIT)

    def close(self) -> None:
        self._child.kill()
        self._child.wait()
