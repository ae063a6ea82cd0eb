"""The daemon's side of an attach, played by a test; and exitctl as a child, on a terminal of the test's."""

import os
import queue
import select
import signal
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.ttrpc.faults import CallFailed

LIMIT_SECONDS = 20
SHORT_SECONDS = 0.05
COOKED = termios.ICANON | termios.ECHO | termios.ISIG | termios.IEXTEN


class FakeAttach:
    """An answer for Attach: what the client sends is in `asked`, `say` is what it gets, `end` the end."""

    def __init__(self) -> None:
        self.starts: list[pb.AttachStart] = []
        self.asked: queue.SimpleQueue[pb.AttachRequest | None] = queue.SimpleQueue()  # None: it is over
        self._replies: queue.SimpleQueue[pb.AttachReply | None] = queue.SimpleQueue()

    def __call__(self, requests: Iterator[pb.AttachRequest]) -> Iterator[pb.AttachReply]:
        start = next(requests).start
        self.starts.append(start)
        threading.Thread(target=self._listen, args=(requests,), daemon=True).start()
        yield pb.AttachReply(started=pb.AttachStarted(tty=True, stdin=start.stdin))
        while (reply := self._replies.get(timeout=LIMIT_SECONDS)) is not None:
            yield reply

    def say(self, **reply: Any) -> None:
        self._replies.put(pb.AttachReply(**reply))

    def end(self) -> None:
        self._replies.put(None)

    def typed(self, length: int) -> bytes:
        """The next that many bytes of input, or all up to the end of the requests."""
        data = b""
        while len(data) < length and (request := self.asked.get(timeout=LIMIT_SECONDS)) is not None:
            data += request.stdin
        return data

    def _listen(self, requests: Iterator[pb.AttachRequest]) -> None:
        try:
            for request in requests:
                self.asked.put(request)
                if request.detach:
                    self.end()
        except (grpc.RpcError, CallFailed):  # the client has gone
            self.end()
        self.asked.put(None)


@dataclass
class Pty:
    """A terminal: a program has `slave`, we have `master`, like the person in front of it."""

    master: int = field(init=False)
    slave: int = field(init=False)

    def __post_init__(self) -> None:
        self.master, self.slave = os.openpty()
        self.resize(24, 80)
        self.before = self.modes()

    def close(self) -> None:
        os.close(self.master)
        os.close(self.slave)

    def modes(self) -> list[Any]:
        return list(termios.tcgetattr(self.slave))

    def is_raw(self) -> bool:
        return not self.modes()[3] & COOKED

    def resize(self, rows: int, columns: int) -> None:
        termios.tcsetwinsize(self.slave, (rows, columns))

    def type(self, data: bytes) -> None:
        os.write(self.master, data)

    def shows(self, text: bytes) -> bool:
        """Whether that is what comes next."""
        got = b""
        while len(got) < len(text) and select.select([self.master], [], [], LIMIT_SECONDS)[0]:
            got += os.read(self.master, len(text) - len(got))
        return got == text

    def shown(self) -> str:
        """What there is to read now."""
        if not select.select([self.master], [], [], SHORT_SECONDS)[0]:
            return ""
        return os.read(self.master, 65536).decode(errors="replace")

    def until_raw(self) -> None:
        """There is no event for it."""
        for _ in range(int(LIMIT_SECONDS / SHORT_SECONDS)):
            if self.is_raw():
                return
            select.select([], [], [], SHORT_SECONDS)
        raise AssertionError("the terminal is not raw")


class Child:
    """exitctl in a process of its own. stdin and stdout are the terminal unless given; stderr is kept."""

    def __init__(self, state: Path, *words: str, pty: Pty | None = None, stdin: int | None = None) -> None:
        own = pty.slave if pty is not None else subprocess.DEVNULL
        self.process = subprocess.Popen(
            [sys.executable, "-m", "supervisor.cli", *words],
            stdin=own if stdin is None else stdin,
            stdout=pty.slave if pty is not None else subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "EXITD_STATE": str(state), "EXITD_ADDRESS": ""},
            cwd=Path(__file__).parents[3],
        )

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def ended(self) -> tuple[int, bytes, bytes]:
        out, err = self.process.communicate(timeout=LIMIT_SECONDS)
        return self.process.returncode, out or b"", err
