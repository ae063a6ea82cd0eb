"""A containerd of one's own, with directories and a socket of its own: begun, killed, begun again."""

import contextlib
import os
import pathlib
import socket
import subprocess
from collections.abc import Mapping, Sequence

from shim import programs
from supervisor.compare.containerdapi import Api
from supervisor.compare.machine import command_lines, until

NAMESPACE = "exitd-measured"
RELAY = "containerd-shim-exitd-v2"
RUNC_RUNTIME, EXITD_RUNTIME = "io.containerd.runc.v2", "io.containerd.exitd.v2"


def finding_exitd(state: str) -> dict[str, str]:
    """Return the environment of a containerd whose relays find the exitd of this state directory."""
    return {"PATH": f"{programs.find(RELAY).parent}:{os.environ['PATH']}", "EXITD_STATE": state}


class WayServer:
    """A containerd. `start` it first. `state` belongs in memory. `before`: words in front of its command."""

    def __init__(
        self, state: str, root: str, before: Sequence[str] = (), environment: Mapping[str, str] | None = None
    ) -> None:
        self.address = f"{state}/sock"
        self.runc_root = f"{state}/runc"
        self.process: subprocess.Popen[bytes]
        self._log = f"{state}/log"
        self._command = [*before, "containerd", "-c", f"{state}/config.toml"]
        self._environment = {**os.environ, **(environment or {})}
        pathlib.Path(f"{state}/config.toml").write_text(
            f'version = 2\nroot = "{root}"\nstate = "{state}/state"\n'
            f'disabled_plugins = ["io.containerd.grpc.v1.cri"]\n[grpc]\naddress = "{self.address}"\n'
        )

    def start(self) -> None:
        """Start it, and wait until it answers."""
        # One that was killed in the middle of a fork has a child for a moment that holds its socket.
        pathlib.Path(self.address).unlink(missing_ok=True)
        with open(self._log, "ab") as log:
            self.process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self._environment
            )
        until(self._answers, "containerd's answer", step=0.001)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        self.process.terminate()
        self.process.wait()

    def api(self) -> Api:
        return Api(self.address, NAMESPACE, self.runc_root)

    def relays(self, id: str = "") -> list[int]:
        """Return the pids of the relays that it has begun; with an id, of the one that was begun for this container."""
        wanted = {self.address.encode(), *([id.encode()] if id else [])}
        return [pid for pid, line in command_lines() if RELAY.encode() in line[0] and wanted <= set(line)]

    def _answers(self) -> bool:
        if self.process.poll() is not None:
            raise RuntimeError(pathlib.Path(self._log).read_text()[-2000:])
        with contextlib.closing(socket.socket(socket.AF_UNIX)) as knocking:
            if knocking.connect_ex(self.address):
                return False
        with contextlib.closing(self.api()) as api:
            return api.answers()
