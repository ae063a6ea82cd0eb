"""What only the kernel reports to exitd, and what exitd reports of each end: a line of JSON each.

witness.py WHAT FIRST DAEMON END COUNT

WHAT     container | exec: of exitd's own, with shim and keeper killed; pid | runc-root: processes that exitd only
         watches, each one by its pid, or as runc's containers of one directory, the first of which is there already
FIRST    shim | keeper: which of the two is killed first; nobody, for what is only watched
DAEMON   there: exitd is there all the time; back: it is stopped meanwhile, and there again when the end comes; away:
         it is stopped meanwhile, and started again after the end
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
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api.client import Client, ttrpc_beside

SOCKET = "/run/exitd/exitd.sock"
EXITCTL = "/opt/exitd/bin/exitctl"
RUNC_ROOT = "/run/watched"
ROOTFS = "/mnt"  # the machine's own: runc cannot change its root to the one that it has
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


def until(true: Callable[[], object], what: str) -> None:
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


def stranger(end: str) -> int:
    """A process that systemd reaps: its parent has ended."""
    words = ["sh", "-c", '"$@" >/dev/null 2>&1 & echo $!', "sh", *ARGS[end]]
    return int(subprocess.run(words, check=True, timeout=LIMIT_SECONDS, stdout=subprocess.PIPE, text=True).stdout)


def runc(*words: str) -> None:
    command, nothing = ["runc", "--root", RUNC_ROOT, "--systemd-cgroup", *words], subprocess.DEVNULL
    subprocess.run(command, check=True, timeout=LIMIT_SECONDS, stdin=nothing, stdout=nothing, stderr=nothing)


def runc_run(id: str, end: str) -> int:
    """A container of runc's, by hand. Returns the pid of its init."""
    if not os.path.ismount(ROOTFS):
        subprocess.run(["mount", "--bind", "/", ROOTFS], check=True, timeout=LIMIT_SECONDS)
    with tempfile.TemporaryDirectory() as bundle:
        runc("spec", "--bundle", bundle)
        path = pathlib.Path(bundle, "config.json")
        config = json.loads(path.read_text())
        config["root"] = {"path": ROOTFS, "readonly": True}
        config["process"].update(terminal=False, args=ARGS[end])
        config["linux"]["cgroupsPath"] = f"system.slice:watched:{id}"
        path.write_text(json.dumps(config))
        runc("run", "--detach", "--bundle", bundle, id)
    return int(json.loads(pathlib.Path(RUNC_ROOT, id, "state.json").read_text())["init_process_pid"])


def watch(*words: str) -> None:
    subprocess.run([EXITCTL, "watch", "--detach", *words], check=True, timeout=LIMIT_SECONDS, stdout=subprocess.DEVNULL)


def watched(client: Client, what: str, end: str, count: int) -> list[Victim]:
    victims = []
    for number in range(1, count + 1):
        if what == "pid":
            pid = stranger(end)
            watch(str(pid))
            name = f"{pid}@pid"
        else:
            pid = runc_run(f"watched-{number}", end)
            name = f"watched-{number}@{RUNC_ROOT}"
            if number == 1:
                watch("--runc-root", RUNC_ROOT)
        victims.append(Victim(name, "", pid, 0, os.pidfd_open(pid)))
    for victim in victims:
        until(lambda: is_ready(victim.pid, end), "it is not ready for its end")  # noqa: B023
    until(lambda: sum(each.processes for each in client.watches()) == count, "not all are watched")
    caught_up(client)
    return victims


def caught_up(client: Client) -> None:
    """exitd has read all events of before: that of an end has come which came later. It reads every 50 ms, and a first
    thread that leaves in the same reading in which the end comes makes the end unknown (procevents.py)."""
    pid = stranger("signal")
    watch(str(pid))
    os.kill(pid, signal.SIGKILL)
    until(lambda: list(client.exits(pb.ExitsRequest(id=f"{pid}@pid"))), "the end of another is not told")


def unwatched(client: Client, what: str, victims: list[Victim]) -> None:
    """Without a directory's watch, none is left: those of pids end with them."""
    if what == "runc-root":
        for victim in victims:
            runc("delete", "--force", victim.container.partition("@")[0])
        client.end_watch(RUNC_ROOT)
    assert not client.watches(), "a watch is left"


def keeper_pid() -> int:
    return int(systemctl("show", "--property", "MainPID", "--value", "exitd-keeper.service"))


def kill_witnesses(victims: list[Victim], first: str) -> None:
    """systemd starts the next keeper, which is none of their parents."""
    if first == "nobody":
        return
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


def exits_of(client: Client, victim: Victim) -> list[pb.Exit]:
    found = client.exits(pb.ExitsRequest(id=victim.container))
    return [each for each in found if (each.exec_id, each.init.pid) == (victim.exec_id, victim.pid)]


def told(client: Client, victim: Victim) -> pb.Exit:
    """Nobody waits by a call for what is only watched."""
    if not victim.shim:
        until(lambda: exits_of(client, victim), "its end is not told")
        return exits_of(client, victim)[0]
    exit_ = client.begin_wait(victim.container, exec_id=victim.exec_id).result(LIMIT_SECONDS)
    assert exit_ is not None
    return exit_


def say(client: Client, victims: list[Victim]) -> None:
    """How often each is reported is looked at when all are."""
    for victim, exit_ in [(victim, told(client, victim)) for victim in victims]:
        shown = {"exited": exit_.code, "signaled": exit_.signal, "unknown": exit_.cause}
        line = [exit_.kind, shown[exit_.kind], exit_.source, len(exits_of(client, victim))]
        print(json.dumps(line), flush=True)


def main() -> None:
    what, first, daemon, end, count = sys.argv[1:]
    is_own = what in ("container", "exec")
    os.makedirs(RUNC_ROOT, exist_ok=True)
    with connect() as client:
        if is_own:
            victims = [begun(client, what, end) for _ in range(int(count))]
        else:
            victims = watched(client, what, end, int(count))
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
        say(client, victims)
        if not is_own:
            return unwatched(client, what, victims)
        for victim in victims:
            client.remove(victim.container, force=True)


if __name__ == "__main__":
    main()
