"""exitd is killed, or stopped, at its system calls while a container is created, started, ends, is started again by its
policy and is removed; and everybody is killed at random while many containers live. Their codes are compared with what
they wrote down themselves."""

import contextlib
import os
import pathlib
import random
import re
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from shim import native
from supervisor.monitor.rundir import lock_holder
from tests.system import oracle
from tests.system.daemonrig import LIMIT_SECONDS, SCALE, Daemon, scaled, until
from tests.system.gates import killed
from tests.system.oracle import Revived, Subject

pytestmark = pytest.mark.observed()

SEED = 20_263
# What changes something outside of the process, or tells it to somebody.
CALLS = (
    *("mkdir", "mkdirat", "mknod", "mknodat", "fallocate", "openat", "rename", "unlink", "unlinkat", "rmdir"),
    *("mount", "umount2", "pwrite64", "write", "fdatasync", "fsync", "ftruncate", "flock", "vfork", "clone3"),
    *("sendmsg", "recvmsg", "epoll_ctl", "pidfd_open", "pidfd_send_signal", "kill", "wait4", "waitid", "close"),
)


@contextlib.contextmanager
def traced(daemon: Daemon, *options: str) -> Iterator[None]:
    """All threads that exitd has now are traced; none of the children it is going to have. It is up after the block:
    it may have come to a call that kills it when all was over."""
    threads = os.listdir(f"/proc/{daemon.pid}/task")
    words = [word for thread in threads for word in ("-p", thread)]
    tracer = subprocess.Popen(["strace", "-qq", *options, *words], stderr=subprocess.DEVNULL)
    try:
        until(lambda: all(_is_traced(daemon.pid, thread) for thread in threads), "strace does not attach")
        yield
    finally:
        tracer.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):  # told in the moment its own signal kills: it may hang
            tracer.wait(LIMIT_SECONDS / 10)
        tracer.kill()
        tracer.wait(LIMIT_SECONDS)
    oracle.Revived(daemon).revive()


def _is_traced(pid: int, thread: str) -> bool:
    try:
        status = pathlib.Path(f"/proc/{pid}/task/{thread}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True
    return "TracerPid:\t0\n" not in status


def two_runs(daemon: Daemon) -> Subject:
    """Two runs, the second one by the policy."""
    return oracle.observed(daemon, oracle.fresh_name(), restart="on-failure:1")


def learn(daemon: Daemon) -> list[tuple[str, int]]:
    return calls_of(daemon, lambda: oracle.whole_life(Revived(daemon), two_runs(daemon)))


def calls_of(daemon: Daemon, life: Callable[[], None], calls: tuple[str, ...] = CALLS) -> list[tuple[str, int]]:
    """Every call of one whole life, as strace counts them: by thread."""
    trace = daemon.base / "trace"
    with traced(daemon, "-o", str(trace), "-e", f"trace={','.join(calls)}"):
        life()
    by_thread = Counter(re.findall(r"^(\d+) +(\w+)\(", trace.read_text(), flags=re.M))
    most: dict[str, int] = {}
    for (_, call), count in by_thread.items():
        most[call] = max(most.get(call, 0), count)
    return [(call, number) for call, count in sorted(most.items()) for number in range(1, count + 1)]


def chosen(cases: list[tuple[str, int]], count: int) -> list[tuple[str, int]]:
    """All at full scale; else some of each call, the same every time."""
    if SCALE >= 1:
        return cases
    pick = random.Random(SEED)
    first = [pick.choice([case for case in cases if case[0] == call]) for call in dict(cases)]
    return pick.sample(first, min(count, len(first)))


def test_exitd_killed_at_any_system_call_of_a_containers_life_loses_invents_and_doubles_nothing(
    daemon: Daemon,
) -> None:
    said, deaths = Counter[str](), 0
    for call, number in chosen(learn(daemon), 9):
        case, up, before = two_runs(daemon), Revived(daemon), daemon.pid
        with traced(daemon, "-o", "/dev/null", "-e", f"trace={call}", "-e", f"inject={call}:signal=KILL:when={number}"):
            oracle.whole_life(up, case)
        deaths += daemon.pid != before
        with daemon.client() as client:
            said += oracle.judge(client, case, f"{call} {number}")
        oracle.nothing_left(daemon)
    print(deaths, dict(said))
    assert deaths and set(said) <= {"exited by record", "exited by keeper", "signaled by keeper"}, said


def test_exitd_stopped_at_any_system_call_of_a_containers_life_goes_on_where_it_was(daemon: Daemon) -> None:
    """Whoever asks waits meanwhile; the container and its shim do not."""
    said, stops = Counter[str](), 0
    for call, number in chosen(learn(daemon), 4):
        case, up = two_runs(daemon), Revived(daemon)
        with (
            traced(daemon, "-o", "/dev/null", "-e", f"trace={call}", "-e", f"inject={call}:signal=STOP:when={number}"),
            ThreadPoolExecutor(1) as pool,
        ):
            life = pool.submit(oracle.whole_life, up, case)
            stops += carry_on(daemon, life, f"{call} {number}")
            life.result(LIMIT_SECONDS)
        with daemon.client() as client:
            said += oracle.judge(client, case, f"{call} {number}")
        oracle.nothing_left(daemon)
    assert stops and set(said) == {"exited by record"}, said


def carry_on(daemon: Daemon, life: "Future[None]", case: str) -> int:
    """SIGCONT whenever it stands still (each thread has an n-th call of its own), until the life is over. How often.

    At each call a traced thread stands still for a moment: only what is seen again and again is a stop.
    """
    seen = Counter[str]()

    def look() -> bool:
        seen["still"] = seen["still"] + 1 if native.process_stat(daemon.pid)[0] in "Tt" else 0
        if seen["still"] % 20 == 19:
            os.kill(daemon.pid, signal.SIGCONT)
            seen["stops"] += 1
        return life.done()

    try:
        until(look, f"not over: {case}")
    finally:
        os.kill(daemon.pid, signal.SIGCONT)
    return seen["stops"]


def test_random_kills_among_many_restarting_containers_lose_invent_and_double_nothing(daemon: Daemon) -> None:
    pick, up = random.Random(SEED), Revived(daemon)
    subjects = [
        oracle.observed(daemon, oracle.fresh_name(), f"sleep 0.{pick.randrange(10)}", restart="always")
        for _ in range(scaled(200, least=10))
    ]
    for subject in subjects:
        oracle.created(up, subject)
        oracle.started(up, subject)
    for _ in range(scaled(600, least=30)):
        seq = up.patiently(lambda client: client.info().seq)
        victim = pick.choice(["daemon", "keeper", "shim", "shim", "shim"])
        for pid in [pick.choice(pids) for pids in [victims(daemon, victim)] if pids]:
            with contextlib.suppress(ProcessLookupError):
                killed(pid)
        up.revive()
        until(lambda: up.patiently(lambda client: client.info().seq) > seq, f"nothing happens after {victim}")  # noqa: B023
    for subject in subjects:
        up.patiently(lambda client: client.stop(subject.id, 0))  # noqa: B023
        oracle.over(up, subject)
    said = Counter[str]()
    with daemon.client() as client:
        for subject in subjects:
            said += oracle.judge(client, subject)
    print(dict(said))
    assert said["exited by record"] and said["exited by keeper"], said
    for subject in subjects:
        oracle.removed(up, subject)
    oracle.nothing_left(daemon)


def victims(daemon: Daemon, kind: str) -> list[int]:
    if kind == "shim":
        found = [lock_holder(str(path)) for path in (daemon.state / "c").glob("*/*")]
        return [holder.pid for holder in found if holder is not None]
    return [pid for pid in [daemon.pid if kind == "daemon" else daemon.keeper_pid()] if pid]
