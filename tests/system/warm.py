"""Many a program for the price of one start: each is a fork of a process that has it loaded.

Its own, as after exec: pid, command line, standard streams and no other descriptor, directory, environment, threads and
what gRPC starts; group, session and limits are the test's, and so is the end: a dead one is a zombie until it is asked
for. Shared: the modules as they are when just imported, with all constructors compiled, the hash seed,
/proc/PID/environ, the memory not written since (its private memory means little), and its parent is the process that
forks.

What is about a start itself, about memory, or goes through another program is tested on the program as it is installed.
"""

import atexit
import contextlib
import ctypes
import functools
import gc
import importlib
import json
import os
import pathlib
import pkgutil
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn

ROOT = pathlib.Path(__file__).resolve().parents[2]
LARGEST = 1 << 17  # a request: command, environment, directory
LIMIT_SECONDS = 30.0  # for the process that forks: its start, and an answer
ASK_AGAIN_SECONDS = 0.005
# What exitd imports, at once or when it is needed.
ROOMS = (
    *("api", "config", "containerd", "engine", "external", "images", "model", "monitor", "runtime", "store", "streams"),
    *("network", "system", "ttrpc"),
)
# By name: what has `main`, and the packages that are loaded with all that is in them.
PROGRAMS: dict[str, tuple[str, tuple[str, ...]]] = {
    "exitd": ("supervisor.__main__", tuple(f"supervisor.{room}" for room in ROOMS)),
    "exitctl": ("supervisor.cli.__main__", ("supervisor.cli", "supervisor.api")),
}
# Words of nonsense are typed at them: an option that is given one is not one that is tested.
PROGRAMS |= {f"odd {name}": PROGRAMS[name] for name in ("exitd", "exitctl")}
LATE = ("google.rpc.error_details_pb2", "google.rpc.status_pb2")  # imported with the first error
ROOM = 4096  # for a command line


class Forked:
    """Of subprocess.Popen what tests ask of a daemon."""

    def __init__(
        self,
        program: str,
        called: Sequence[str],
        words: Sequence[str],
        stdio: Sequence[int],
        environment: Mapping[str, str],
        limits: Mapping[str, float] | None = None,
    ) -> None:
        """`called` is how the command line in /proc begins, before the words. `limits`: constants that are others in
        this fork, by `module.NAME`."""
        self.returncode: int | None = None
        self._lock = threading.Lock()
        self._line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            request = json.dumps([called, words, dict(environment), os.getcwd(), dict(limits or {})]).encode()
            socket.send_fds(_server(program), [request], [theirs.fileno(), *stdio])
        self._line.settimeout(LIMIT_SECONDS)
        pid, fds, _, _ = socket.recv_fds(self._line, 64, 1, socket.MSG_CMSG_CLOEXEC)
        assert pid, "the process that forks has gone"
        self.pid, self._pidfd = int(pid), fds[0]
        weakref.finalize(self, os.close, self._pidfd)

    def poll(self) -> int | None:
        with self._lock:
            if self.returncode is None and self._has_ended(0):
                self._line.send(b"?")
                code = self._line.recv(64)
                assert code, "the process that forks has gone"
                self.returncode = None if code == b"?" else int(code)
        return self.returncode

    def wait(self, timeout: float) -> int:
        deadline = time.monotonic() + timeout
        while (code := self.poll()) is None:
            left = deadline - time.monotonic()
            if left <= 0:
                raise subprocess.TimeoutExpired(str(self.pid), timeout)
            if self._has_ended(left):  # it is a tracer's turn first
                select.select([], [], [], ASK_AGAIN_SECONDS)
        return code

    def send_signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, number)

    def _has_ended(self, seconds: float) -> bool:
        poll = select.poll()
        poll.register(self._pidfd, select.POLLIN)
        return bool(poll.poll(seconds * 1000))


def run(
    program: str,
    called: Sequence[str],
    words: Sequence[str],
    environment: Mapping[str, str],
    seconds: float,
    limits: Mapping[str, float] | None = None,
) -> tuple[int, bytes, bytes]:
    """From beginning to end, with nothing to read: exit code as subprocess gives it, stdout, stderr.

    Raises subprocess.TimeoutExpired when it has not ended in time.
    """
    with contextlib.ExitStack() as files:
        nothing = files.enter_context(open(os.devnull, "rb"))
        out, err = (files.enter_context(os.fdopen(os.memfd_create(name), "rb")) for name in ("out", "err"))
        stdio = (nothing.fileno(), out.fileno(), err.fileno())
        code = Forked(program, called, words, stdio, environment, limits).wait(seconds)
        out.seek(0)  # both processes' place in the file, and that was its end
        err.seek(0)
        return code, out.read(), err.read()


@functools.cache
def _server(program: str) -> socket.socket:
    """To the process that forks; it ends when this one does."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        words = [sys.executable, "-m", "tests.system.warm", program, " " * ROOM]
        is_recorded = not program.startswith("odd ")  # see tests/optionrecord
        environment = {key: value for key, value in os.environ.items() if is_recorded or key != "OPTIONS_RECORD"}
        subprocess.Popen(words, stdin=theirs.fileno(), cwd=ROOT, env=environment)
    return ours


def serve(line: socket.socket) -> list[str]:
    """Until nobody can ask any more. Returns in each fork: its words."""
    running: dict[int, int] = {}  # by the line on which its end is asked for: pid
    poll = select.poll()
    poll.register(line, select.POLLIN)
    while True:
        for fd, _ in poll.poll():
            if fd != line.fileno():
                _answer(fd, running, poll)
                continue
            request, fds, _, _ = socket.recv_fds(line, LARGEST, 4, socket.MSG_CMSG_CLOEXEC)
            if not request:
                sys.exit()
            pid = os.fork()
            if pid == 0:
                line.detach()  # closed with all others: whoever has its number later is not to be closed with it
                return _become(request, fds[1:])
            pidfd = os.pidfd_open(pid)
            with socket.socket(fileno=os.dup(fds[0])) as teller, contextlib.suppress(OSError):
                socket.send_fds(teller, [str(pid).encode()], [pidfd])
            for each in (pidfd, *fds[1:]):
                os.close(each)
            running[fds[0]] = pid
            poll.register(fds[0], select.POLLIN)


def _answer(teller: int, running: dict[int, int], poll: select.poll) -> None:
    """Its exit code, or that it cannot be had yet. Whom nobody asks for any more is reaped with this process."""
    pid = running[teller]
    code = b""
    if os.read(teller, 1):
        found, status = os.waitpid(pid, os.WNOHANG)
        code = str(os.waitstatus_to_exitcode(status)).encode() if found else b"?"
        with contextlib.suppress(OSError):  # who asked may have given up
            os.write(teller, code)
    if code != b"?":
        del running[teller]
        poll.unregister(teller)
        os.close(teller)


def _become(request: bytes, stdio: list[int]) -> list[str]:
    """What exec would have done."""
    called, words, environment, directory, limits = json.loads(request)
    for number, fd in enumerate(stdio):
        os.dup2(fd, number)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(directory)
    _be_called([*called, *words])
    for name, value in limits.items():
        _limit(name, value)
    sys.argv[:] = [called[0], *words]
    return list(words)


def _limit(path: str, value: float) -> None:
    """In its module, and where it was imported from there: the very same object."""
    module, _, name = path.rpartition(".")
    was = getattr(importlib.import_module(module), name)
    for each in [each for each in sys.modules.values() if vars(each).get(name) is was]:
        setattr(each, name, value)


def _be_called(command: Sequence[str]) -> None:
    """/proc/PID/cmdline is a place in the process's memory, see proc_pid_stat(5); this one has ROOM there."""
    stat = pathlib.Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    begin, end = int(stat[45]), int(stat[46])  # fields 48 and 49, and 3 is the first after the name
    text = b"\0".join(map(os.fsencode, command))[: end - begin - 1]
    ctypes.memset(begin, 0, end - begin)
    ctypes.memmove(begin, text, len(text))


def main(program: str) -> None:
    entry, packages = PROGRAMS[program]
    for package in packages:
        for module in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
            importlib.import_module(module.name)
    for late in LATE:
        importlib.import_module(late)
    loaded = importlib.import_module(entry)
    _compile_constructors()
    gc.collect()
    gc.freeze()
    line = socket.socket(fileno=os.dup(0))
    assert len(os.listdir("/proc/self/task")) == 1, "a thread is not forked with the others"
    words = serve(line)
    _run_and_leave(loaded.main, words)


def _compile_constructors() -> None:
    """Those of exitd's values, which it compiles with the first of each (shim/frozen.py)."""
    for module in [module for name, module in sys.modules.items() if name.startswith(("supervisor.", "shim."))]:
        for each in [each for each in vars(module).values() if isinstance(each, type)]:
            type.__getattribute__(each, "__init__")  # to look at it is enough


def _run_and_leave(run: Callable[[list[str]], object], words: list[str]) -> NoReturn:
    """Ends as Python does, but for taking all modules and values down one after the other, which would copy the pages
    that this process shares with the one that forks: a third of what it has used in its life."""
    try:
        run(words)
        code: object = None
    except SystemExit as end:
        code = end.code
    except BaseException:
        traceback.print_exc()
        code = 1
    if code is not None and not isinstance(code, int):
        print(code, file=sys.stderr)
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]  # has executors end their threads, and joins them
    atexit._run_exitfuncs()
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.flush()
    os._exit(code or 0)


if __name__ == "__main__":
    main(sys.argv[1])
