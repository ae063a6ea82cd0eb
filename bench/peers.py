"""The others: a bare runc with a pidfd, conmon, and a containerd of our own. All run the same bundle."""

import contextlib
import os
import pathlib
import subprocess
from collections.abc import Mapping
from typing import IO, Protocol

from supervisor.compare.conmon import Monitors
from supervisor.compare.harness import killed, timed
from supervisor.compare.machine import (
    CGROUP,
    SLEEP,
    Scratch,
    Work,
    command_lines,
    end_process,
    run,
    wait_readable,
)
from supervisor.compare.server import NAMESPACE, WayServer
from supervisor.compare.way import WayContainer


class Peer(Protocol):
    """Who can run a container and tell its end."""

    name: str

    def start(self, id: str) -> WayContainer: ...
    def end(self, container: WayContainer) -> float:
        """Kills init; milliseconds until this peer's word of it, exit code included, can be read. What it says is
        checked, outside of that time."""

    def clean(self, container: WayContainer) -> None: ...


class Bare:
    """runc alone. Nobody records a code; what is timed is the least that any watcher needs."""

    name = "bare pidfd"

    def __init__(self, scratch: Scratch) -> None:
        self._scratch = scratch
        self._root = scratch.state_place("bare")

    def create(self, id: str, bundle: str = "") -> float:
        """`runc create`, of a bundle of its own if none is given; how many milliseconds it took."""
        bundle = bundle or self._scratch.bundle(id, f"{CGROUP}/{id}")
        words = ("create", "--bundle", bundle, "--pid-file", f"{self._root}/{id}.pid", id)
        return timed(lambda: self._runc(*words))[0]

    def start(self, id: str, bundle: str = "") -> WayContainer:
        self.create(id, bundle)
        self._runc("start", id)
        return WayContainer(id, int(pathlib.Path(f"{self._root}/{id}.pid").read_text())).hold()

    def end(self, container: WayContainer) -> float:
        return killed(container, lambda: wait_readable(container.pidfd, "the end of init"))[0]

    def exec(self, id: str, *args: str) -> None:
        """To its end."""
        run(*self.exec_words(id, *args))

    def exec_words(self, id: str, *args: str) -> tuple[str, ...]:
        """The command."""
        return ("runc", "--root", self._root, "exec", id, *args)

    def clean(self, container: WayContainer) -> None:
        container.close()
        self.delete(container.id)

    def delete(self, id: str) -> None:
        """Init first: `runc delete --force` would kill it and then sleep for 100 ms."""
        end_process(int(pathlib.Path(f"{self._root}/{id}.pid").read_text()))
        self._runc("delete", "--force", id)

    def _runc(self, *words: str) -> None:
        run("runc", "--root", self._root, *words)


class Conmon(Monitors):
    """A Peer: the exit code is a file that appears in a directory."""

    name = "conmon"

    def __init__(self, scratch: Scratch) -> None:
        super().__init__(scratch.state_place("conmon"), scratch.root_place("conmon"))
        self._scratch = scratch

    def create(self, id: str, work: Work = SLEEP) -> float:
        """conmon's start until it tells init's pid; milliseconds."""
        return self.create_from(id, self._scratch.bundle(f"{id}-conmon", f"{CGROUP}/{id}", work), work)

    def start(self, id: str, work: Work = SLEEP) -> WayContainer:
        self.create(id, work)
        return self.begin(id)

    def end(self, container: WayContainer) -> float:
        took, _ = killed(container, lambda: self._told(container.id))
        text = pathlib.Path(f"{self.exits}/{container.id}").read_text()
        if text.strip() != "137":
            raise ValueError(f"conmon's exit file says {text!r}")
        return took

    def clean(self, container: WayContainer) -> None:
        container.close()
        self.delete(container.id)

    def _told(self, id: str) -> None:
        """The file is there, and whole: conmon renames it into its place."""
        while id not in self.news():
            pass


class Containerd:
    """A containerd with directories and a socket of its own; `ctr events` listens, if anybody does."""

    name = "containerd"

    def __init__(
        self, scratch: Scratch, place: str = "ctd", *, tells: bool = True, environment: Mapping[str, str] | None = None
    ) -> None:
        self._scratch = scratch
        self._place = scratch.state_place(place)
        self._server = WayServer(self._place, scratch.root_place(place), environment=environment)
        self.address = self._server.address
        self._server.start()
        self._events: subprocess.Popen[bytes] | None = None
        if tells:
            ctr = self._command("events")
            self._events = subprocess.Popen(ctr, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, bufsize=0)
        self._ids: set[str] = set()

    def start(self, id: str) -> WayContainer:
        self.run_config(id, f"{self._scratch.bundle(f'{id}-ctd', f'{CGROUP}/{id}')}/config.json")
        return WayContainer(id, self.pid(id)).hold()

    def run_config(self, id: str, config: str) -> None:
        """`ctr run` with a config.json as it is."""
        self._ids.add(id)
        runc_root = ("--runc-root", f"{self._place}/runc")
        pid_file = ("--pid-file", f"{self._place}/{id}.pid")
        run(*self._command("run", "-d", "--null-io", *runc_root, *pid_file, "--config", config, id))

    def exec(self, id: str, exec_id: str, *args: str) -> None:
        """`ctr task exec`, to its end."""
        run(*self._command("task", "exec", "--exec-id", exec_id, id, *args))

    def pid(self, id: str) -> int:
        """init's."""
        return int(pathlib.Path(f"{self._place}/{id}.pid").read_text())

    def end(self, container: WayContainer) -> float:
        return killed(container, lambda: self._told(container.id))[0]

    def clean(self, container: WayContainer) -> None:
        container.close()
        self.remove(container.id)

    def server_pid(self) -> int:
        """Its own."""
        return self._server.process.pid

    def monitors(self) -> list[int]:
        """The pids of its shims."""
        wanted = self.address.encode()
        return [pid for pid, line in command_lines() if b"containerd-shim-runc-v2" in line[0] and wanted in line]

    def close(self) -> None:
        for id in list(self._ids):
            with contextlib.suppress(subprocess.SubprocessError):
                self.remove(id)
        for process in (self._events, self._server.process):
            if process is not None:
                process.terminate()
                process.wait()
        for pid in self.monitors():
            end_process(pid)

    def remove(self, id: str) -> None:
        """The task, killed if it lives, and the container."""
        subprocess.run(self._command("task", "rm", "-f", id), capture_output=True, timeout=30)
        subprocess.run(self._command("container", "rm", id), capture_output=True, timeout=30, check=True)
        self._ids.discard(id)

    def _command(self, *words: str) -> list[str]:
        return ["ctr", "--address", self.address, "--namespace", NAMESPACE, *words]

    def _told(self, id: str) -> None:
        """The exit event's line, with the code in it."""
        assert self._events is not None and self._events.stdout is not None
        stream: IO[bytes] = self._events.stdout
        wanted, text = f'"container_id":"{id}"'.encode(), b""
        while True:
            wait_readable(stream.fileno(), "containerd's exit event")
            *lines, text = (text + os.read(stream.fileno(), 65536)).split(b"\n")
            for line in lines:
                if b"/tasks/exit" in line and wanted in line:
                    if b'"exit_status":137' not in line:
                        raise ValueError(f"containerd's event says {line!r}")
                    return
