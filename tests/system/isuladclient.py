"""The streams of a container under isulad-shim's contract, from the daemon's side: fifos, attaching, commands."""

import json
import os
import pathlib
import socket
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

from tests.system.isuladrig import DOUBLE_FORK, Shim
from tests.system.shimrig import LIMIT_SECONDS, wait_readable

NAMES = ("in", "out", "err")


class Client:
    """Three fifos, and the daemon's ends of them: it opens its own first."""

    def __init__(self, directory: pathlib.Path) -> None:
        directory.mkdir(parents=True)
        self.paths = [directory / name for name in NAMES]
        for path in self.paths:
            os.mkfifo(path, 0o600)
        flags = (os.O_RDWR, os.O_RDONLY | os.O_NONBLOCK, os.O_RDONLY | os.O_NONBLOCK)
        self.fds = {name: os.open(path, how) for name, path, how in zip(NAMES, self.paths, flags, strict=True)}

    def fields(self) -> dict[str, str]:
        """Of process.json."""
        return dict(zip(("isuladStdin", "isuladStdout", "isuladStderr"), map(str, self.paths), strict=True))

    def write(self, data: bytes) -> None:
        while data:
            data = data[os.write(self.fds["in"], data) :]

    def read(self, name: str = "out") -> bytes:
        assert wait_readable(self.fds[name]), f"nothing came to {name}"
        return os.read(self.fds[name], 65536)

    def read_until(self, end: bytes, name: str = "out") -> bytes:
        got = b""
        while end not in got:
            part = self.read(name)
            assert part, got
            got += part
        return got

    def read_to_end(self, name: str = "out") -> bytes:
        return b"".join(iter(lambda: self.read(name), b""))

    def close(self, *names: str) -> None:
        for name in names or tuple(self.fds):
            os.close(self.fds.pop(name))


def attach(box: Shim, message: str) -> int:
    """What the shim answers."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(LIMIT_SECONDS)
        connection.connect(str(box.state / "attach.sock"))
        connection.send(message.encode())
        return int.from_bytes(connection.recv(16), sys.byteorder, signed=True)


def attached(box: Shim, name: str) -> Client:
    client = Client(box.state / "attach" / name)
    assert attach(box, " ".join(map(str, client.paths))) == 0
    return client


@dataclass
class Command:
    """One in a container that runs, with a directory of its own."""

    box: Shim
    directory: pathlib.Path

    def client(self) -> Client:
        made = Client(self.directory / "stdio")
        self.change(**made.fields())
        return made

    def change(self, **changed: Any) -> None:
        path = self.directory / "process.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **changed}))

    def words(self, *timeout: str) -> list[str]:
        return [self.box.id, str(self.box.bundle), "runc", "info", *timeout]

    def begin(self, *timeout: str) -> "subprocess.Popen[bytes]":
        """In the foreground: its code comes on stdout, what is wrong on stderr."""
        return subprocess.Popen(
            ["isulad-shim", *self.words(*timeout)],
            cwd=self.directory,
            env=self.box.daemon.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )

    def outcome(self, *timeout: str) -> tuple[int | None, int, str]:
        return outcome(self.begin(*timeout))

    def detached(self) -> int:
        """The shim's pidfd."""
        command = [sys.executable, "-Ic", DOUBLE_FORK, *self.words()]
        environment = self.box.daemon.environment()
        subprocess.run(command, cwd=self.directory, env=environment, check=True, timeout=LIMIT_SECONDS)
        return os.pidfd_open(int((self.directory / "shim-pid").read_text()))


def outcome(shim: "subprocess.Popen[bytes]") -> tuple[int | None, int, str]:
    """The four bytes as a C int, None when there were none; the shim's exit status; its words."""
    out, err = shim.communicate(timeout=LIMIT_SECONDS)
    assert len(out) in (0, 4)
    return (int.from_bytes(out, sys.byteorder, signed=True) if out else None), shim.returncode, err.decode()


def command(box: Shim, id: str, *args: str, **changed: Any) -> Command:
    """A directory with everything the daemon puts there; no shim yet."""
    directory = box.state / "exec" / id
    directory.mkdir(parents=True, mode=0o700)
    document = {**json.loads((box.bundle / "config.json").read_text())["process"], "args": [*args], "terminal": False}
    document |= {"exec": True, "runtime": "runc", **changed}
    (directory / "process.json").write_text(json.dumps(document))
    return Command(box, directory)
