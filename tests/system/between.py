"""A stand-in between exitd and its keeper: it hands everything on, and lets a test act just before an answer."""

import contextlib
import os
import select
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from shim import fields, launch
from tests.system.daemonrig import Daemon

ROOM_FOR_DESCRIPTORS = 16


@dataclass
class Between:
    """`before`: what is done once, before the next answer of that kind is handed on."""

    before: dict[str, Callable[[], None]] = field(default_factory=dict)

    def hand_on(self, source: socket.socket, sink: socket.socket) -> bool:
        """One message with its descriptors. False: its sender has gone."""
        data, descriptors, _, _ = socket.recv_fds(source, launch.MESSAGE_MAX_BYTES, ROOM_FOR_DESCRIPTORS)
        try:
            if data:
                self.before.pop(fields.decode(data).kind, lambda: None)()
                socket.send_fds(sink, [data], descriptors)
        finally:
            for fd in descriptors:
                os.close(fd)
        return bool(data)


@contextlib.contextmanager
def between(daemon: Daemon) -> Iterator[Between]:
    """Everybody who talks to the daemon's keeper does so through this, for the block. The daemon is started anew; a
    container of its own must run, or its keeper would end."""
    path, own = daemon.state / launch.SOCKET_NAME, daemon.state / "own.sock"
    os.rename(path, own)
    made = Between()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening, _ending() as over:
        listening.bind(str(path))
        listening.listen(64)
        serving = threading.Thread(target=_serve, args=(made, listening, str(own), over))
        serving.start()
        try:
            daemon.restart()
            yield made
        finally:
            os.rename(own, path)
            over.set()
            serving.join()


@contextlib.contextmanager
def _ending() -> Iterator[threading.Event]:
    over = threading.Event()
    try:
        yield over
    finally:
        over.set()


def _serve(made: Between, listening: socket.socket, own: str, over: threading.Event) -> None:
    others: dict[socket.socket, socket.socket] = {}
    try:
        while not over.is_set():
            ready, _, _ = select.select([listening, *others], [], [], 0.05)
            for source in ready:
                if source is listening:
                    near, far = listening.accept()[0], socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                    far.connect(own)
                    others |= {near: far, far: near}
                elif source in others and not _is_handed_on(made, source, others[source]):
                    for each in (source, others[source]):
                        del others[each]
                        each.close()
    finally:
        for each in others:
            each.close()


def _is_handed_on(made: Between, source: socket.socket, sink: socket.socket) -> bool:
    try:
        return made.hand_on(source, sink)
    except OSError:  # one of them has gone
        return False
