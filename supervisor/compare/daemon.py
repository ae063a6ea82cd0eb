"""An exitd of one's own, in directories of its own: begun, killed, begun again, and nothing of it left at the end."""

import contextlib
import os
import pathlib
import socket
import subprocess
import sys
import time
from collections.abc import Sequence

from supervisor.api.client import Client, answers
from supervisor.compare.harness import few_at_once
from supervisor.compare.machine import command_lines, end_process, until


class Daemon:
    """`start` it first. The state belongs in memory, the root on a disk. `before`: words in front of its command."""

    def __init__(self, state: str, root: str, before: Sequence[str] = ()) -> None:
        self.state, self.root = state, root
        self._before = tuple(before)
        self.process: subprocess.Popen[bytes]

    def start(self, *, by_ttrpc: bool = False) -> float:
        """Start a daemon. Return the seconds from its exec until it answers, over gRPC or ttrpc: where none comes over
        gRPC, that is not begun."""
        command = [*self._before, sys.executable, "-m", "supervisor", "--root", self.root, "--state", self.state]
        command += ["--default-network", "none"]
        with open(f"{self.root}/exitd.log", "ab") as log:
            begun = time.perf_counter()
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        until(lambda: self._answers(by_ttrpc), "exitd's answer", step=0.001)
        return time.perf_counter() - begun

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def client(self, *, by_ttrpc: bool = False) -> Client:
        return Client(f"{self.state}/exitd.sock", f"{self.state}/exitd.ttrpc" if by_ttrpc else None)

    def shims(self) -> list[int]:
        """Return the pids of its shims, known by the directory they work in."""
        return [pid for pid, line in command_lines() if line[0] == b"exitd-shim" and self._is_ours(pid)]

    def close(self) -> None:
        """Remove every container; end daemon and keeper."""
        if self.process.poll() is None:
            with self.client() as client:
                everyone = [container.id for container in client.list(all_of_them=True)]
                few_at_once(lambda id: client.remove(id, force=True), everyone)
            self.process.terminate()
            self.process.wait()
        for pid in self.keepers():
            end_process(pid)

    def keeper(self) -> int:
        """Return the keeper's pid."""
        (found,) = self.keepers()
        return found

    def keepers(self) -> list[int]:
        """Return the pids of keepers: one as a rule; none for moments after one has died."""
        wanted = [b"--state", self.state.encode()]
        return [pid for pid, line in command_lines() if b"exitd-keeper" in line[0] and list(line[1:3]) == wanted]

    def _is_ours(self, pid: int) -> bool:
        with contextlib.suppress(OSError):
            return os.readlink(f"/proc/{pid}/cwd").startswith(f"{self.state}/")
        return False

    def _answers(self, by_ttrpc: bool) -> bool:
        if self.process.poll() is not None:
            raise RuntimeError(pathlib.Path(f"{self.root}/exitd.log").read_text()[-2000:])
        path = f"{self.state}/exitd.ttrpc" if by_ttrpc else f"{self.state}/exitd.sock"
        with contextlib.closing(socket.socket(socket.AF_UNIX)) as knocking:
            if knocking.connect_ex(path):
                return False
        return answers(f"{self.state}/exitd.sock", path if by_ttrpc else None)
