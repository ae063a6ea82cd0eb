"""The soak itself: lives through a real daemon and a real runtime, and a look at everything when none is under way.

One container lives all the time, as some do on any node; so the keeper has something to keep and is the same process
from the first sample to the last. Each end is compared with what its program was made to end with.
"""

import os
import pathlib
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from protos.exitd.v1 import exitd_pb2 as pb
from shim.frozen import frozen
from supervisor.api.client import Client
from supervisor.compare.machine import pss_kb
from tests.system import daemons, execs, lives
from tests.system.daemons import Daemon
from tests.system.processes import commands, cwd_of, descriptors_of, private_kb, zombies_of
from tests.system.waits import until

AT_ONCE = 6  # lives of a crowd
CROWD_EVERY, POD_EVERY, EXECS_EVERY, KILL_EVERY = 4, 10, 3, 5  # of the steps
EXECS = 2
DATABASE = ("exitd.db", "exitd.db-wal", "exitd.ring")


class WrongEnd(Exception):
    """An end was reported otherwise than its program was made to end; the text says both."""


@frozen
class Plan:
    """`lives` or `hours`, whichever comes first; 0 for no such limit. A sample is taken every so many lives, the first
    after `warm_up`: what is loaded and cached once is loaded by then."""

    lives: int
    hours: float
    every: int
    warm_up: int


@frozen
class Sample:
    """What there was after so many lives."""

    lives: int
    seconds: float
    daemon_private_kb: float
    daemon_pss_kb: float
    daemon_fds: float
    daemon_threads: float
    keeper_private_kb: float
    keeper_pss_kb: float
    keeper_fds: float
    keeper_threads: float
    shims: float
    run_directories: float
    bundles: float
    cgroups: float
    mounts: float
    zombies: float
    database_kb: float


@frozen
class Result:
    """A whole soak. `ends`: of containers, pods' members and execs, each as it was to be."""

    plan: Plan
    samples: tuple[Sample, ...]
    lives: int
    ends: int
    seconds: float


@dataclass
class _Soak:
    """What is under way."""

    daemon: Daemon
    client: Client
    ids: set[str] = field(default_factory=set)  # of every container and pod there has been
    lives: int = 0
    ends: int = 0
    began: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began


def soak(plan: Plan, seen: Callable[[Sample], None] = lambda sample: None, runtime: str = "runc") -> Result:
    """Run it with this OCI runtime. `seen` has each sample at once. Raises WrongEnd, and whatever a life fails with."""
    words = ("--runtime", runtime)
    with daemons.daemon(forked=False, extra=words) as daemon, daemon.client() as client:  # a forked one shares memory
        state = _Soak(daemon, client, {lives.up(client, "sleep", "infinity").id})
        keeper = until(daemon.keeper_pid, "there is no keeper")
        samples = []
        for sample in _samples(state, plan):
            assert daemon.keeper_pid() == keeper, "another keeper: its figures go on from nothing"
            samples.append(sample)
            seen(sample)
        return Result(plan, tuple(samples), state.lives, state.ends, round(state.seconds, 1))


def _samples(state: _Soak, plan: Plan) -> Iterator[Sample]:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        step, due = 0, plan.warm_up
        while not _is_over(state, plan):
            _step(state, pool, step)
            step += 1
            if state.lives >= due:
                yield look(state)
                due = state.lives + plan.every


def _is_over(state: _Soak, plan: Plan) -> bool:
    done = bool(plan.lives) and state.lives >= plan.lives
    return done or (bool(plan.hours) and state.seconds >= plan.hours * 3600)


def _step(state: _Soak, pool: ThreadPoolExecutor, step: int) -> None:
    """One life, or a pod, or a crowd; the last two are several."""
    if step % POD_EVERY == POD_EVERY - 1:
        made = [_pod(state.client, step)]
    elif step % CROWD_EVERY == CROWD_EVERY - 1:
        made = list(pool.map(lambda number: _life(state.client, number), range(step, step + AT_ONCE)))
    else:
        made = [_life(state.client, step)]
    for ids, ends in made:
        state.ids |= ids
        state.lives += len(ids)
        state.ends += ends


def _life(client: Client, number: int) -> tuple[set[str], int]:
    """A container that ends by itself, or is killed, some with execs before. Its id, and how many ends there were."""
    code = number % 100
    if number % KILL_EVERY and number % EXECS_EVERY:
        id, exit_ = lives.run(client, "sh", "-c", f"exit {code}")
        _is(exit_, f"exited {code}")
        client.remove(id, force=False)
        return {id}, 1
    id, ends = lives.up(client).id, 1
    if number % EXECS_EVERY == 0:
        for each in range(EXECS):
            _is(execs.script(client, id, f"exit {each + code}"), f"exited {each + code}")
        ends += EXECS
    client.kill(id, "SIGKILL")
    _is(lives.last_exit(client, id), "signaled 9")
    client.remove(id, force=False)
    return {id}, ends


def _pod(client: Client, number: int) -> tuple[set[str], int]:
    """A pod whose one member ends by itself; the pause container ends with the pod."""
    code = number % 100
    pod = client.run_pod(pb.ContainerSpec(image="pause", name=f"pod{number}"))
    member, exit_ = lives.run(client, "sh", "-c", f"exit {code}", sandbox=pod.id)
    _is(exit_, f"exited {code}")
    client.remove_pod(pod.id, force=True)
    return {pod.id, member}, 1


def _is(exit_: pb.Exit, wanted: str) -> None:
    if (said := lives.word(exit_)) != wanted:
        raise WrongEnd(f"{exit_.name}, run {exit_.run}: {said}, not {wanted}")


def look(state: _Soak) -> Sample:
    """What there is, once it no longer changes: some of what is undone is undone after the answer, and the keeper reaps
    at its own pace."""
    seen = [_counts(state)]

    def settled() -> bool:
        seen.append(_counts(state))
        return seen[-1] == seen[-2] and not seen[-1].zombies

    until(settled, "what there is goes on changing, or a zombie stays")
    daemon, keeper, there = state.daemon.pid, state.daemon.keeper_pid(), seen[-1]
    os.truncate(state.daemon.log, 0)  # of lives that went well; it would fill the disk
    return Sample(
        lives=state.lives,
        seconds=round(state.seconds, 1),
        daemon_private_kb=private_kb(daemon),
        daemon_pss_kb=pss_kb(daemon),
        daemon_fds=there.daemon_fds,
        daemon_threads=_threads(daemon),
        keeper_private_kb=private_kb(keeper),
        keeper_pss_kb=pss_kb(keeper),
        keeper_fds=there.keeper_fds,
        keeper_threads=_threads(keeper),
        shims=there.shims,
        run_directories=there.run_directories,
        bundles=there.bundles,
        cgroups=there.cgroups,
        mounts=there.mounts,
        zombies=there.zombies,
        database_kb=_database_kb(state.daemon.root),
    )


@frozen
class _Counts:
    daemon_fds: int
    keeper_fds: int
    shims: int
    run_directories: int
    bundles: int
    cgroups: int
    mounts: int
    zombies: int


def _counts(state: _Soak) -> _Counts:
    daemon, base = state.daemon, str(state.daemon.base)
    parents = {daemon.pid, daemon.keeper_pid()}
    shims = (pid for pid, command in commands() if command.startswith(b"exitd-shim\0"))
    return _Counts(
        daemon_fds=descriptors_of(daemon.pid),
        keeper_fds=descriptors_of(daemon.keeper_pid()),
        shims=sum(cwd_of(pid).startswith(base) for pid in shims),
        run_directories=len(list(daemon.state.glob("c/*/*"))),
        bundles=len(list((daemon.root / "c").glob("*"))),
        cgroups=len(daemons.cgroups_of(state.ids)),
        mounts=pathlib.Path("/proc/self/mountinfo").read_text().count(f" {base}/"),
        zombies=len(zombies_of(parents)),
    )


def _threads(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/task"))


def _database_kb(root: pathlib.Path) -> float:
    """Database, its log, and the ring of ends."""
    return sum((root / name).stat().st_size for name in DATABASE if (root / name).exists()) / 1024
