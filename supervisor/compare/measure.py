"""The measurements, the same steps for every way: memory, latencies, a restart and a storm, the fault matrix."""

import contextlib
import os
import signal
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from shim.frozen import frozen
from supervisor.compare import truth
from supervisor.compare.facts import Fault, Memory
from supervisor.compare.gate import CODE, Gates, open_gate
from supervisor.compare.group import ProcessGroup
from supervisor.compare.harness import NOTICE_SECONDS, WayNotice, few_at_once, private_of, timed
from supervisor.compare.machine import SLEEP, pss_kb, state_of, until, wait_readable
from supervisor.compare.way import NO_ANSWER_SECONDS, Driver, WayAnswer, WayContainer, WayPod, verdict, words_of
from supervisor.model.values import Exited, ExitStatus, Signaled

SETTLE_SECONDS = 0.1
STOPPED_SECONDS = 0.5
KILLED, ENDED = Signaled(signal.SIGKILL), Exited(CODE)
ACTS = ("kill", "stop")


class Untrue(RuntimeError):
    """A way said something else than what has happened, where that is no part of what is measured."""


@dataclass(slots=True)
class Entrant:
    """A way that takes part."""

    key: str
    driver: Driver
    gates: Gates
    new_id: Callable[[], str]
    group: ProcessGroup
    pods: list[WayPod] = field(default_factory=list)

    def start(self, members: int) -> WayPod:
        return self.started(self.driver.prepare(self.new_id(), [SLEEP] * members))

    def started(self, prepared: object) -> WayPod:
        pod = self.driver.start(prepared)
        self.pods.append(pod)
        return pod

    def end(self, pod: WayPod) -> None:
        self.driver.end(pod)
        self.pods.remove(pod)

    def start_many(self, members: Sequence[int]) -> list[WayPod]:
        return few_at_once(self.start, members)

    def end_many(self, pods: Sequence[WayPod]) -> None:
        few_at_once(self.end, pods)


def memory(entrant: Entrant, members: int, pods: int) -> Memory:
    """Return what stays with pods that only sleep. What is needed only once is there since the first pod."""
    driver = entrant.driver
    time.sleep(SETTLE_SECONDS)
    daemons = driver.daemons()
    before, kernel_before = private_of(daemons), entrant.group.kernel_kb()
    made = entrant.start_many([members] * pods)
    time.sleep(SETTLE_SECONDS)
    grown, kernel = private_of(daemons) - before, entrant.group.kernel_kb()
    beside = [driver.beside(pod) for pod in made]
    # podman puts its monitors into cgroups of their own.
    counted = {pid for pids in beside for pid in pids} <= set(entrant.group.pids())
    found = Memory(
        entrant.key,
        members,
        processes=round(statistics.median(map(len, beside))),
        private_kb=tuple(float(private_of(pids)) for pids in beside),
        pss_kb=tuple(float(sum(map(pss_kb, pids))) for pids in beside),
        daemon_kb=grown / pods,
        kernel_kb=None if kernel is None or kernel_before is None or not counted else (kernel - kernel_before) / pods,
    )
    entrant.end_many(made)
    return found


def latency(entrant: Entrant) -> tuple[float, float]:
    """Return milliseconds: from asking for a pod of one until both run, and from killing its member until the client
    that waits knows."""
    prepared = entrant.driver.prepare(entrant.new_id(), [SLEEP])
    start, pod = timed(lambda: entrant.started(prepared))
    notice = WayNotice(entrant.driver.begin_wait(pod.members[0]))
    time.sleep(SETTLE_SECONDS)
    begun = _kill(pod.members[0])
    _expect(notice.result(), KILLED)
    entrant.end(pod)
    return start, (notice.at - begun) * 1000


def _kill(container: WayContainer) -> float:
    """When (time.perf_counter)."""
    at = time.perf_counter()
    container.kill()
    return at


def _expect(answer: WayAnswer, wanted: ExitStatus) -> None:
    if verdict(wanted, answer) != "right":
        raise Untrue(f"{answer.words} is reported of {words_of(wanted)}")


@frozen
class TryAgain:
    """One restart of the daemon: milliseconds until it knew of all, and the verdicts on those that ended meanwhile."""

    ms: float
    verdicts: tuple[str, ...]


def crowd(entrant: Entrant, pods: int, members: int, meanwhile: int) -> tuple[TryAgain | None, tuple[float, ...]]:
    """Return a restart among all of them, with a pod whose members end while the daemon is away (None: this way has no
    daemon); then a storm, all members of the others killed at once: milliseconds until each notice."""
    made = entrant.start_many([members] * pods)
    alive = [member for pod in made for member in pod.members]
    again = _restart(entrant, alive, meanwhile)
    storm = _storm(entrant, alive)
    entrant.end_many(made)
    return again, storm


def _restart(entrant: Entrant, alive: Sequence[WayContainer], meanwhile: int) -> TryAgain | None:
    driver = entrant.driver
    gates = [entrant.gates.make() for _ in range(meanwhile)]
    pod = entrant.started(driver.prepare(entrant.new_id(), [work for _, work in gates]))
    if not driver.kill_daemon():
        for path, _ in gates:
            open_gate(path)
        entrant.end(pod)
        return None
    for (path, _), member in zip(gates, pod.members, strict=True):
        open_gate(path)
        wait_readable(member.pidfd, "an end while the daemon is away")
    begun = time.perf_counter()
    driver.start_daemon()
    until(lambda: driver.answers_for(alive), "the daemon's word for all that live", NOTICE_SECONDS, step=0.005)
    took = (time.perf_counter() - begun) * 1000
    answers = [driver.answer(member) for member in pod.members]
    true = [truth.end_of(member, ENDED) for member in pod.members]
    entrant.end(pod)
    return TryAgain(took, tuple(map(verdict, true, answers)))


def _storm(entrant: Entrant, members: Sequence[WayContainer]) -> tuple[float, ...]:
    """Milliseconds of each notice, in the order they came."""
    notices = [WayNotice(entrant.driver.begin_wait(member)) for member in members]
    time.sleep(SETTLE_SECONDS)
    begun = time.perf_counter()
    for member in members:
        _kill(member)
    for notice in notices:
        _expect(notice.result(), KILLED)
    return tuple(sorted((notice.at - begun) * 1000 for notice in notices))


def faults(entrant: Entrant) -> Iterator[Fault]:
    """Kill and stop everybody who could be missing, just as a container ends, and yield what came of it."""
    pod = entrant.start(1)
    victims = list(entrant.driver.victims(pod))
    entrant.end(pod)
    for victim in victims:
        for act in ACTS:
            yield _fault(entrant, victim, act)


def _fault(entrant: Entrant, victim: str, act: str) -> Fault:
    """The victim is stopped, so that it is certain to miss the end; then it is killed, or goes on a second later."""
    driver = entrant.driver
    path, work = entrant.gates.make()
    pod = entrant.started(driver.prepare(entrant.new_id(), [work]))
    member = pod.members[0]
    with _stopped(driver.victims(pod)[victim]) as pidfd:
        open_gate(path)
        wait_readable(member.pidfd, f"the end of {member.id}")
        if act == "kill":
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            wait_readable(pidfd, f"the end of {victim}")
        else:
            time.sleep(STOPPED_SECONDS)
    driver.start_daemon()
    answer = driver.answer(member, NO_ANSWER_SECONDS)
    true = truth.end_of(member, ENDED)
    entrant.end(pod)
    return Fault(entrant.key, victim, act, words_of(true), answer.words, verdict(true, answer))


@contextlib.contextmanager
def _stopped(pid: int) -> Iterator[int]:
    """Its pidfd; it goes on afterwards, if it is still there."""
    pidfd = os.pidfd_open(pid)
    try:
        signal.pidfd_send_signal(pidfd, signal.SIGSTOP)
        until(lambda: state_of(pid) in "Tt", f"{pid} to stop")
        yield pidfd
    finally:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(pidfd, signal.SIGCONT)
        os.close(pidfd)
