"""Containers and execs whose shim and keeper are killed, and what exitd reports of their end: a line of JSON each.

witness.py WHAT FIRST DAEMON END COUNT

WHAT     container | exec
FIRST    shim | keeper: which of the two is killed first
DAEMON   there: exitd is there all the time; back: it is stopped while the two are killed, and there again when the
         end comes; away: it is stopped while the two are killed and the end comes, and started again after that
END      code: it exits with 7; signal: it is killed by SIGKILL; thread: its first thread has left alone, with a code
         that does not count, and another one ends the process with 7
"""

import json
import os
import pathlib
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api.client import Client, ttrpc_beside

SOCKET = "/run/exitd/exitd.sock"
LIMIT_SECONDS = 900.0
TRAP = "trap 'exit 7' USR1; while :; do sleep 1000 & wait; done"
LEADER_LEAVES = """
import ctypes, os, signal, threading
def rest():
    signal.sigwait([signal.SIGUSR1])
    os._exit(7)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
threading.Thread(target=rest).start()
ctypes.CDLL(None).syscall(60, 0)
"""
ARGS = {
    "code": ["sh", "-c", TRAP],
    "signal": ["sh", "-c", TRAP],
    "thread": ["python3", "-Sc", LEADER_LEAVES],
}
NUMBERS = {"code": signal.SIGUSR1, "signal": signal.SIGKILL, "thread": signal.SIGUSR1}


@dataclass(frozen=True)
class Victim:
    """One process that is to end, known by its pidfd, and whose end it is for exitd."""

    container: str
    exec_id: str
    pid: int
    shim: int
    pidfd: int


def systemctl(*words: str) -> str:
    run = subprocess.run(["systemctl", *words], check=True, timeout=LIMIT_SECONDS, stdout=subprocess.PIPE, text=True)
    return run.stdout.strip()


def connect() -> Client:
    """exitd is there when this returns: systemctl waits for its READY=1."""
    systemctl("start", "exitd.service")
    return Client(SOCKET, ttrpc_beside(SOCKET))


def until(true: Callable[[], bool], what: str) -> None:
    """Looks again and again: none of what is waited for here can be polled."""
    end = time.monotonic() + LIMIT_SECONDS
    while not true():
        assert time.monotonic() < end, what
        time.sleep(0.02)


def status(pid: int, name: str) -> str:
    lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(line.split()[1] for line in lines if line.startswith(f"{name}:"))


def is_ready(pid: int, end: str) -> bool:
    if end == "thread":
        return status(pid, "State") == "Z"
    return bool(int(status(pid, "SigCgt"), 16) >> (signal.SIGUSR1 - 1) & 1)


def exec_shim(exec_id: str) -> int:
    """By the directory that it works in."""
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            is_its = os.readlink(entry / "cwd").endswith(f"/e/{exec_id}")
            if is_its and b"exitd-shim" in (entry / "cmdline").read_bytes():
                return int(entry.name)
        except OSError:  # it has ended meanwhile
            continue
    raise LookupError(exec_id)


def begun(client: Client, what: str, end: str) -> Victim:
    args = ARGS[end] if what == "container" else ["sleep", "100000"]
    made = client.start(client.create(pb.ContainerSpec(args=args, rootfs="/")).id)
    pid, shim, exec_id = made.init.pid, made.shim.pid, ""
    if what == "exec":
        exec_ = client.exec(made.id, pb.ExecSpec(args=ARGS[end]))
        pid, shim, exec_id = exec_.init.pid, exec_shim(exec_.id), exec_.id
    victim = Victim(made.id, exec_id, pid, shim, os.pidfd_open(pid))
    until(lambda: is_ready(pid, end), "it is not ready for its end")
    return victim


def keeper_pid() -> int:
    return int(systemctl("show", "--property", "MainPID", "--value", "exitd-keeper.service"))


def kill_witnesses(victims: list[Victim], first: str) -> None:
    """systemd starts the next keeper, which is none of their parents."""
    keeper = keeper_pid()
    shims = [victim.shim for victim in victims]
    for pid in [keeper, *shims] if first == "keeper" else [*shims, keeper]:
        os.kill(pid, signal.SIGKILL)
    for victim in victims:
        until(lambda: int(status(victim.pid, "PPid")) not in (victim.shim, keeper), "it has its old parent")  # noqa: B023
    until(lambda: keeper_pid() not in (0, keeper), "there is no other keeper")


def end_all(victims: list[Victim], end: str) -> None:
    for victim in victims:
        signal.pidfd_send_signal(victim.pidfd, NUMBERS[end])
    for victim in victims:
        poll = select.poll()
        poll.register(victim.pidfd, select.POLLIN)
        assert poll.poll(LIMIT_SECONDS * 1000), "it lives on"


def reaped(victims: list[Victim]) -> None:
    for victim in victims:
        until(lambda: not os.path.exists(f"/proc/{victim.pid}"), "it is not reaped")  # noqa: B023


def say(client: Client, victim: Victim) -> None:
    exit_ = client.begin_wait(victim.container, exec_id=victim.exec_id).result(LIMIT_SECONDS)
    assert exit_ is not None
    shown = {"exited": exit_.code, "signaled": exit_.signal, "unknown": exit_.cause}
    of_it = [each for each in client.exits(pb.ExitsRequest(id=victim.container)) if each.exec_id == victim.exec_id]
    print(json.dumps([exit_.kind, shown[exit_.kind], exit_.source, len(of_it)]), flush=True)


def main() -> None:
    what, first, daemon, end, count = sys.argv[1:]
    with connect() as client:
        victims = [begun(client, what, end) for _ in range(int(count))]
        if daemon == "there":
            kill_witnesses(victims, first)
            end_all(victims, end)
    if daemon != "there":
        systemctl("stop", "exitd.service")
        kill_witnesses(victims, first)
    if daemon == "away":
        end_all(victims, end)
        reaped(victims)
    with connect() as client:
        if daemon == "back":
            end_all(victims, end)
        for victim in victims:
            say(client, victim)
            client.remove(victim.container, force=True)


if __name__ == "__main__":
    main()
