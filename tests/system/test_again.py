"""Keepers and shims killed one after the other: what lives registers anew in between, and no byte is lost."""

import os
import pathlib
import signal
import socket
from collections.abc import Iterator
from dataclasses import replace

import pytest

from protos.exitd.v1 import exitd_pb2 as pb
from shim import fields, launch
from supervisor import monitor
from supervisor.api.client import Client
from tests.system import lives
from tests.system.daemonrig import LIMIT_SECONDS, Daemon, left, remove_all, until
from tests.system.lives import last_exit, word

SAYS = "exec 3<>/mnt/go; while read line <&3 && [ $line != end ]; do echo $line; done; exit 43"


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    with lives.daemon(extra=("--reconcile-seconds", "0.2")) as made:
        yield made


@pytest.fixture
def client(daemon: Daemon) -> Iterator[Client]:
    """The line to a keeper that was killed may not be there yet: exitd's descriptors are not counted."""
    with daemon.client() as made:
        daemon.warm(made)
        before = replace(left(daemon), descriptors=0)
        yield made
        remove_all(made)
    until(lambda: replace(left(daemon), descriptors=0) == before, f"left behind: {left(daemon)}")


class Subject:
    """A container that prints what it is given, and ends when it is given nothing."""

    def __init__(self, daemon: Daemon, client: Client, shared: pathlib.Path) -> None:
        self.daemon, self.client, self.go = daemon, client, shared / "go"
        os.mkfifo(self.go)
        mounts = [pb.Mount(source=str(shared), destination="/mnt")]
        self.id = lives.up(client, "sh", "-c", SAYS, mounts=mounts).id
        self.said: list[str] = []

    def says(self) -> None:
        """One line more, and it is in the log."""
        self.said.append(f"line-{len(self.said)}")
        self._give(self.said[-1])
        until(lambda: self.output() == self.said, f"not logged: {self.said}, but {self.output()}")

    def _give(self, line: str) -> None:
        with open(self.go, "w") as file:
            file.write(f"{line}\n")

    def ends(self) -> pb.Exit:
        self._give("end")
        return last_exit(self.client, self.id)

    def output(self) -> list[str]:
        logged = b"".join(reply.data for reply in self.client.logs(pb.LogsRequest(id=self.id)))
        return logged.decode().split()

    def kill_shim(self) -> None:
        shim = self.client.inspect(self.id).shim.pid
        killed(shim)
        until(lambda: self.client.inspect(self.id).shim.pid not in (0, shim), "no other shim")

    def kill_keeper(self) -> None:
        killed(self.daemon.keeper_pid())
        until(self.is_known, "not registered anew")

    def is_known(self) -> bool:
        """By the keeper that there is."""
        try:
            with launch.connect(str(self.daemon.state)) as line:
                return self.id in _runs(line)
        except OSError:
            return False


def killed(pid: int) -> None:
    pidfd = os.pidfd_open(pid)
    signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    assert monitor.read_ready(pidfd, LIMIT_SECONDS)
    os.close(pidfd)


def _runs(line: socket.socket) -> list[str]:
    found: list[str] = []
    while True:
        message, _ = launch.ask(line, fields.encode("exitd-list", [("at", len(found))]), [])
        if message.kind != "exitd-run":
            return found
        found.append(message.get("id"))


@pytest.mark.parametrize("order", ["KS", "SKS", "KKSSK"])
def test_keepers_and_shims_killed_in_any_order_cost_no_byte(
    daemon: Daemon, client: Client, tmp_path: pathlib.Path, order: str
) -> None:
    subject = Subject(daemon, client, tmp_path)
    subject.says()
    for who in order:
        subject.kill_keeper() if who == "K" else subject.kill_shim()
        subject.says()
    exit_ = subject.ends()
    assert (word(exit_), exit_.source) in {
        ("exited 43", "pidfd"),
        ("exited 43", "zombie"),
        ("unknown monitors-killed", "none"),
    }
    assert subject.output() == subject.said
