"""conmon as podman and CRI-O use it: a monitor for each container; the exit code is a file that appears in a directory.

No process is above the monitors here: a client watches the directory.
"""

import contextlib
import ctypes
import os
import pathlib
import shutil
import struct
import subprocess
import threading
import time
from collections.abc import Sequence

from supervisor.compare import podspec
from supervisor.compare.daemonless import Daemonless
from supervisor.compare.group import ProcessGroup
from supervisor.compare.machine import LIMIT_SECONDS, SLEEP, Scratch, Work, end_process, run, wait_readable
from supervisor.compare.way import Wait, WayAnswer, WayContainer, WayPod, number_answer

IN_MOVED_TO = 0x80


class Monitors:
    """conmon with directories of its own; `state` belongs in memory. `before`: words in front of its command."""

    def __init__(self, state: str, logs: str, before: Sequence[str] = ()) -> None:
        self._place, self._log, self._before = state, logs, before
        self.exits = f"{state}/exits"
        os.makedirs(self.exits, mode=0o700, exist_ok=True)
        self._pids: dict[str, int] = {}
        self._watch_fd = _inotify(self.exits, IN_MOVED_TO)

    def create_from(self, id: str, bundle: str, work: Work = SLEEP) -> float:
        """Create a container, and return the milliseconds from conmon's start until it reports init's pid."""
        read_fd, write_fd = os.pipe()
        begun = time.perf_counter()
        process = subprocess.Popen(
            [*self._command(id, bundle), *(["-t"] if work.tty else []), *(["-i"] if work.stdin else [])],
            pass_fds=(write_fd,),
            env={**os.environ, "_OCI_SYNCPIPE": str(write_fd)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        os.close(write_fd)
        try:
            wait_readable(read_fd, "conmon's word")
            took = (time.perf_counter() - begun) * 1000
            os.read(read_fd, 4096)
        finally:
            os.close(read_fd)
            process.wait()  # the first process; the one that stays is its child
        self._pids[id] = int(pathlib.Path(f"{self._place}/{id}.conmon").read_text())
        return took

    def begin(self, id: str) -> WayContainer:
        """Start what was created."""
        run("runc", "--root", f"{self._place}/rt", "start", id)
        return WayContainer(id, int(pathlib.Path(f"{self._place}/{id}.pid").read_text())).hold()

    def log_of(self, id: str) -> str:
        return f"{self._log}/{id}.log"

    def socket_of(self, id: str) -> str:
        """Return the socket where one attaches: input as it is, output in packets that begin with a byte for the
        stream."""
        return f"{self._place}/{id}/attach"

    def delete(self, id: str) -> None:
        end_process(int(pathlib.Path(f"{self._place}/{id}.pid").read_text()))
        run("runc", "--root", f"{self._place}/rt", "delete", "--force", id)
        end_process(self._pids.pop(id))

    def monitors(self) -> list[int]:
        return list(self._pids.values())

    def news(self) -> set[str]:
        """Wait for exit files, and return whose have appeared since the last time. They are whole: conmon renames
        them."""
        wait_readable(self._watch_fd, "conmon's exit file")
        data, names = os.read(self._watch_fd, 1 << 16), set()
        while data:
            _, _, _, size = struct.unpack_from("iIII", data)
            names.add(data[16 : 16 + size].rstrip(b"\0").decode())
            data = data[16 + size :]
        return names

    def close(self) -> None:
        for id in list(self._pids):
            self.delete(id)
        os.close(self._watch_fd)

    def _command(self, id: str, bundle: str) -> list[str]:
        return [
            *(*self._before, "conmon", "-c", id, "-u", id, "-n", id, "-r", shutil.which("runc") or "runc"),
            *("-b", bundle, "-p", f"{self._place}/{id}.pid", "-P", f"{self._place}/{id}.conmon"),
            *("--exit-dir", self.exits, "--socket-dir-path", self._place, "--persist-dir", bundle),
            *("-l", f"k8s-file:{self.log_of(id)}", "--runtime-arg", "--root", "--runtime-arg", f"{self._place}/rt"),
        ]


class Conmons(Daemonless):
    """A Driver: the client is a thread that watches the directory of exit files."""

    no_answer = "no exit file"

    def __init__(self, scratch: Scratch, key: str) -> None:
        self._scratch = scratch
        self.group = ProcessGroup(key)
        self._monitors = Monitors(scratch.state_place(key), scratch.root_place(key), self.group.words())
        self._ended: set[str] = set()
        self._news = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def prepare(self, id: str, works: Sequence[Work]) -> podspec.PodSpecs:
        return podspec.pod_specs(self._scratch, id, works)

    def start(self, prepared: object) -> WayPod:
        assert isinstance(prepared, podspec.PodSpecs)
        return podspec.start(prepared, self._begun)

    def begin_wait(self, container: WayContainer) -> Wait:
        def wait(seconds: float) -> WayAnswer:
            with self._news:
                if not self._news.wait_for(lambda: container.id in self._ended, seconds):
                    raise TimeoutError(f"no exit file of {container.id}: not within {seconds:.0f} s")
            return number_answer(int(pathlib.Path(f"{self._monitors.exits}/{container.id}").read_text()))

        return wait

    def end(self, pod: WayPod) -> None:
        for container in reversed(pod.containers):
            if container.pidfd >= 0:
                container.end()
                self._monitors.delete(container.id)
                container.close()

    def close(self) -> None:
        self._closing = True
        pathlib.Path(f"{self._monitors.exits}/.last.new").touch()
        os.rename(f"{self._monitors.exits}/.last.new", f"{self._monitors.exits}/.last")
        self._thread.join(LIMIT_SECONDS)
        self._monitors.close()
        self.group.remove()

    def _begun(self, id: str, spec: podspec.Spec) -> WayContainer:
        self._monitors.create_from(id, podspec.write(spec, f"{self._scratch.root}/bundles/{id}"))
        return self._monitors.begin(id)

    def _watch(self) -> None:
        while not self._closing:
            with contextlib.suppress(TimeoutError):  # no container has ended for long
                names = self._monitors.news()
                with self._news:
                    self._ended |= names
                    self._news.notify_all()


def _inotify(directory: str, events: int) -> int:
    """Return a descriptor that reports files in a directory, inotify(7)."""
    libc = ctypes.CDLL(None, use_errno=True)
    fd: int = libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
    if fd < 0 or libc.inotify_add_watch(fd, os.fsencode(directory), events) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return fd
