"""Many an exitctl for the price of one start: each is a fork of a process that has the program loaded.

It is a process of its own, and its environment, directory and outputs are its own; only the interpreter's start is
saved. `exitctl` as it is installed is what Cli.begin, the terminals and the pages of the documentation start.
"""

import contextlib
import functools
import gc
import importlib
import json
import os
import pathlib
import pkgutil
import select
import socket
import subprocess
import sys
import traceback
from typing import Never

ROOT = pathlib.Path(__file__).resolve().parents[2]
LARGEST = 1 << 17  # a request: words, environment, directory
LOADED = ("supervisor.cli", "supervisor.api")


@functools.cache
def _line() -> socket.socket:
    """To the process that forks; it ends when this one does."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        subprocess.Popen([sys.executable, "-m", "tests.system.warmctl"], stdin=theirs.fileno(), cwd=ROOT)
    return ours


def run(words: tuple[str, ...], environment: dict[str, str], seconds: float) -> tuple[int, bytes, bytes]:
    """Exit code as subprocess gives it, stdout, stderr. TimeoutError when it has not ended in time."""
    with contextlib.ExitStack() as files:
        out, err = (files.enter_context(os.fdopen(os.memfd_create(name), "rb")) for name in ("out", "err"))
        told, tells = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        files.enter_context(told)
        with tells:
            request = json.dumps([words, environment, os.getcwd()]).encode()
            socket.send_fds(_line(), [request], [tells.fileno(), out.fileno(), err.fileno()])
        told.settimeout(seconds)
        code = told.recv(64)
        assert code, "the process that forks has gone"
        out.seek(0)  # both processes' place in the file, and that was its end
        err.seek(0)
        return int(code), out.read(), err.read()


def serve(line: socket.socket) -> None:
    """Until nobody can ask any more."""
    running: dict[int, tuple[int, int]] = {}  # by pidfd: pid, and whom to tell
    poll = select.poll()
    poll.register(line, select.POLLIN)
    while True:
        for fd, _ in poll.poll():
            if fd != line.fileno():
                poll.unregister(fd)
                pid, teller = running.pop(fd)
                os.close(fd)
                _tell(teller, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
                continue
            request, fds, _, _ = socket.recv_fds(line, LARGEST, 3)
            if not request:
                return
            pid = os.fork()
            if pid == 0:
                _become(request, *fds[1:])
            for output in fds[1:]:
                os.close(output)
            pidfd = os.pidfd_open(pid)
            running[pidfd] = pid, fds[0]
            poll.register(pidfd, select.POLLIN)


def _tell(teller: int, code: int) -> None:
    with socket.socket(fileno=teller) as line, contextlib.suppress(OSError):  # who asked may have given up
        line.send(str(code).encode())


def _become(request: bytes, out: int, err: int) -> Never:
    """What exec would have done, and then exitctl."""
    from supervisor.cli.__main__ import main

    try:
        words, environment, directory = json.loads(request)
        for fd, number in ((os.open(os.devnull, os.O_RDONLY), 0), (out, 1), (err, 2)):
            os.dup2(fd, number)
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        os.environ.clear()
        os.environ.update(environment)
        os.chdir(directory)
        sys.argv[:] = ["exitctl", *words]
        main(words)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


if __name__ == "__main__":
    for package in LOADED:
        for module in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
            importlib.import_module(module.name)
    gc.freeze()
    serve(socket.socket(fileno=os.dup(0)))
