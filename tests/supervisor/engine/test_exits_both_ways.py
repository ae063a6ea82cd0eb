"""The short way of an end and the long one: of the same container and the same report comes the same, byte for byte.

One world has a ring and takes the short way wherever it may. The other has the ring switched off, as the configuration
can have it, and takes the long way with every end. All else is the same in both: the containers, the reports, the
clock, who witnesses and who takes part.
"""

import asyncio
import contextlib
import random
import sqlite3
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api import replies
from supervisor.api.servicers import ContainerServicer
from supervisor.daemon import ReadyReplies
from supervisor.engine.exits import ENDS_TOGETHER, Exits, SecondWitness
from supervisor.engine.participants import Participant
from supervisor.engine.runs import Runs
from supervisor.model import evidence, lifecycle, restart
from supervisor.model.errors import WrongState
from supervisor.model.limits import Change
from supervisor.model.networks import Attached
from supervisor.model.restart import Backoff
from supervisor.model.taskfacts import Task
from supervisor.model.values import (
    NEVER_STARTED,
    Action,
    Asked,
    BootTime,
    By,
    Container,
    Event,
    Exit,
    Exited,
    ExitStatus,
    HealthSpec,
    HealthStatus,
    HookStage,
    Names,
    OnUnhealthy,
    Phase,
    Pod,
    Policy,
    ProbeMarks,
    Process,
    Reason,
    Report,
    RestartPolicy,
    RestartRule,
    RunKey,
    Signaled,
    Source,
    Spec,
    Termination,
    TimeLimit,
    Unknown,
)
from supervisor.monitor.kernellog import KnownKills
from supervisor.store.database import Transaction
from tests.supervisor import happenings
from tests.supervisor.engine.callers import services_of
from tests.supervisor.engine.test_operations import Admits
from tests.supervisor.fakes import FakeClock, World, until
from tests.supervisor.happenings import INIT, POLICY, SECOND, SHIM, USER

AT_ONCE = 400  # ends of one turn: the ring has room for as many
POD, POD_OVER = "p" * 8, "q" * 8  # a pause container that runs, and one that has ended
AT_NS = 5_099 * SECOND
NOW = happenings.moment()


# -- one world, and what can be seen of it


class StillClock(FakeClock):
    def now_ns(self) -> int:
        return NOW.now_ns

    def boottime_ns(self) -> int:
        return NOW.boot.ns


class KernelsWord(SecondWitness):
    """`more`: by container, how many kills the log has beside those of the report. `long`: those for which there is
    more to read than can be read at once."""

    def __init__(self) -> None:
        self.more: dict[str, int] = {}
        self.long: set[str] = set()

    async def weigh(self, container: Container, report: Report, known: KnownKills) -> Report:
        return self._weighed(container, report, known)

    def weigh_at_once(self, container: Container, report: Report, known: KnownKills) -> Report | None:
        return None if container.id in self.long else self._weighed(container, report, known)

    def _weighed(self, container: Container, report: Report, known: KnownKills) -> Report:
        more = self.more.get(container.id, 0) if not known.asked_kill else 0
        return replace(report, oom_kills=report.oom_kills + known.reported + more) if more else report


class Sees(Participant):
    """What is shown, and what has been put into the ring."""

    def __init__(self, w: World) -> None:
        self._world = w
        self.with_exec: set[str] = set()
        self.short = list[RunKey]()
        self.ready = set[RunKey]()  # whose message was there when it could be sent
        self.shown: dict[str, list[tuple[Container, bytes]]] = {}

    def being_stored(self, exit: Exit) -> None:
        self.short.append(exit.key)

    def changed(self, container: Container) -> None:
        message = replies.exit_message(container.exit) if container.exit else pb.Exit()
        if container.exit is not None and message is replies.exit_message(container.exit):
            self.ready.add(container.exit.key)
        self.shown.setdefault(container.id, []).append((container, encoded(pb.WaitReply(exit=message))))

    def delays_end(self, container_id: str) -> bool:
        return container_id in self.with_exec

    async def before_end(self, container_id: str) -> None:
        """The end of its exec is stored before its own."""
        if container_id in self.with_exec:
            c = self._world.node.containers[container_id]
            await self._world.node.note(*lifecycle.events(c, NOW, "exec_ended"))


class OneWay(World):
    """Its ends take the short way where they may, or none does."""

    def __init__(self, directory: Path, *, short: bool) -> None:
        super().__init__(directory)
        if not short:
            self.store._ring_ends._slow_seconds = lambda: 0.0
        self.path = directory / "exitd.db"
        self.clock = StillClock()
        self.node.clock = self.clock
        self.node.backoff = lambda: Backoff(max_ns=20 * SECOND, reset_after_ns=5 * SECOND)
        self.node.going_down = True  # what is planned stays planned
        self.kernel, self.sees = KernelsWord(), Sees(self)
        self.exits = Exits(self.node, self.kernel)
        self.runs = Runs(self.node, self.exits)
        self.join(ReadyReplies(), self.sees)
        self.manager.gates["delete"] = asyncio.Event()
        found = services_of(self, Admits())
        self.servicer = ContainerServicer(found.containers, found.pods, found.execs, None)  # type: ignore[arg-type]
        self.waits: dict[str, asyncio.Task[bytes]] = {}
        self.told = list[pb.Event]()

    async def put(self, containers: list[Container]) -> None:
        """As a daemon that has taken them over."""
        await self.store.commit(Transaction(tuple(containers)), patient=True)
        for c in containers:
            self.node.containers[c.id] = c
            self.waits[c.id] = asyncio.create_task(self.wait(c))

    async def wait(self, c: Container) -> bytes:
        try:
            return encoded(await self.servicer.Wait(pb.WaitRequest(id=c.id, run=c.run), USER))
        except WrongState as error:  # a run that is none of those that can end
            return str(error).encode()

    async def listen(self) -> None:
        async for item in await self.events.subscribe():
            assert isinstance(item, Event)
            self.told.append(replies.event_message(item))

    async def stored(self) -> None:
        """Until all ends are in the database, and before anything is cleaned up."""
        node = self.node
        await until(lambda: not (node.pending or node._in_ring or node._being_written or self.exits._ready))

    async def cleaned(self) -> None:
        self.manager.gates["delete"].set()
        await until(lambda: not self.node.background)

    async def found_cleaned(self) -> dict[str, object]:
        """The same when all is cleaned up. Threads remove containers, so their removals have no order among them."""
        found = await self.found()
        del found["table events"]
        events = [replace(each, seq=0) for each in await self.store.events_after(0, 10_000)]
        found["events"] = {id: [each for each in events if each.id == id] for id in {each.id for each in events}}
        told = [pb.Event.FromString(encoded(each)) for each in self.told]
        for each in told:
            each.ClearField("seq")
        found["told"] = {id: [encoded(each) for each in told if each.id == id] for id in {each.id for each in told}}
        return found

    async def found(self) -> dict[str, object]:
        """Everything that there is of ends. Two dictionaries are compared, so that a failure names what differs."""
        node, exits = self.node, self.exits
        await until(lambda: len(self.told) == self.store.last_seq())
        await asyncio.sleep(0)
        return {
            **{f"table {name}": rows for name, rows in tables(self.path)},
            "containers": dict(node.containers),
            "order": [c.id for c in await self.store.load()],
            "ledger": await self.store.exits(limit=10_000),
            "events": await self.store.events_after(0, 10_000),
            "counts": sorted(map(repr, await self.store.counts())),
            "shown": {id: [*shown] for id, shown in self.sees.shown.items()},
            "told": [encoded(each) for each in self.told],
            "waits": {id: task.result() if task.done() else None for id, task in self.waits.items()},
            "pending": (node.pending, node._after_ends, node._in_ring, node._being_written),
            "exits": (exits._held, exits._ready, exits._since, exits._is_ending),
            "durations": (exits.seen.now(), sum(exits.stored.now().counts), sum(node.cleanups.now().counts)),
            "turns": sorted(id for id, turn in node._turns.items() if turn.is_taken),
            "waiting": len(node.containers.changes),
            "runtime": (sorted(self.manager.calls), sorted(self.manager.discarded)),
            "void": self.store._void,
        }


def encoded(message: pb.WaitReply | pb.Event) -> bytes:
    return message.SerializeToString(deterministic=True)


def tables(path: Path) -> Iterator[tuple[str, list[tuple[object, ...]]]]:
    """Every table, without the marks of the ring."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for name in sorted(names):
            rows = connection.execute(f"SELECT * FROM {name}").fetchall()
            yield name, sorted((row for row in rows if not str(row[0]).startswith("ring-")), key=repr)


@contextlib.asynccontextmanager
async def one_way(directory: Path, *, short: bool) -> AsyncIterator[OneWay]:
    w = OneWay(directory, short=short)
    listening = asyncio.create_task(w.listen())
    try:
        yield w
    finally:
        for task in (listening, *w.waits.values()):
            task.cancel()
        await w.close()


# -- an end, and in the middle of what it comes


Coming = Callable[[OneWay, "Case"], Awaitable[None]]


@dataclass(frozen=True)
class Case:
    """A container, the report of its end, and how that comes in. `more`: memory kills that the kernel's log has
    beside."""

    container: Container
    report: Report
    coming: Coming
    more: int = 0

    @property
    def key(self) -> RunKey:
        return RunKey(self.container.id, self.container.run)

    @property
    def is_ordinary(self) -> bool:
        """Whether it is to take the short way. What `Exits._is_ordinary` asks for, in other words."""
        c = self.container
        simple = c.phase is Phase.RUNNING and c.spec.pid in ("own", "host") and c.damaged == ""
        return simple and self.report.source is Source.RECORD and self.coming in (alone, twice, twice_at_once)

    def numbered(self, number: int) -> "Case":
        """Of exitd's own, and of others' that exitd has adopted."""
        c = self.container
        id = f"{number:064x}" if number % 3 else f"task-{number}"
        earlier = replace(c.exit, key=RunKey(id, c.run - 1)) if c.exit is not None and c.run > 1 else None
        return replace(self, container=replace(c, id=id, spec=replace(c.spec, name=f"n{number}"), exit=earlier))


async def alone(w: OneWay, case: Case) -> None:
    w.exits.exit_seen(case.key, case.report)


async def twice(w: OneWay, case: Case) -> None:
    """Once more when it is stored, with another code."""
    w.exits.exit_seen(case.key, case.report)
    await w.stored()
    w.exits.exit_seen(case.key, replace(case.report, status=Exited(99)))


async def twice_at_once(w: OneWay, case: Case) -> None:
    """The same report again, before anything is done with it."""
    for _ in range(2):
        w.exits.exit_seen(case.key, case.report)


async def of_an_earlier_run(w: OneWay, case: Case) -> None:
    w.exits.exit_seen(replace(case.key, run=case.key.run - 1), case.report)


async def with_an_exec(w: OneWay, case: Case) -> None:
    w.sees.with_exec.add(case.key.container)
    w.exits.exit_seen(case.key, case.report)


async def an_exec_is_begun(w: OneWay, case: Case) -> None:
    """After the end was found ordinary, and before it is stored."""
    w.exits.exit_seen(case.key, case.report)
    w.sees.with_exec.add(case.key.container)


async def is_paused_meanwhile(w: OneWay, case: Case) -> None:
    w.exits.exit_seen(case.key, case.report)
    w.node.containers[case.key.container] = replace(case.container, phase=Phase.PAUSED)


async def with_processes_left(w: OneWay, case: Case) -> None:
    w.manager.left_behind = 2
    w.exits.exit_seen(case.key, case.report)
    await w.stored()
    w.manager.left_behind = 0


async def with_a_cgroup_that_cannot_be_read(w: OneWay, case: Case) -> None:
    w.manager.fails["end_rest"] = [OSError(5, "no")]
    w.exits.exit_seen(case.key, case.report)
    await w.stored()
    w.manager.fails["end_rest"] = []


async def while_a_start_is_stored(w: OneWay, case: Case) -> None:
    with w.exits.held_back(case.key.container):
        w.exits.exit_seen(case.key, case.report)


async def while_a_stop_is_stored(w: OneWay, case: Case) -> None:
    """Its reason is the stop's, whatever was asked before."""
    asked = lifecycle.EndAsked(happenings.STOP, until=NOW.boot.later(SECOND))
    step = asyncio.create_task(w.node.apply(case.key.container, asked, patient=True))
    await asyncio.sleep(0)
    w.exits.exit_seen(case.key, case.report)
    with contextlib.suppress(WrongState):  # what does not live is not stopped
        await step


async def with_a_long_log(w: OneWay, case: Case) -> None:
    w.kernel.long.add(case.key.container)
    w.exits.exit_seen(case.key, case.report)


COMINGS: tuple[Coming, ...] = (
    *(alone, twice, twice_at_once, of_an_earlier_run, with_an_exec, an_exec_is_begun, is_paused_meanwhile),
    *(
        with_processes_left,
        with_a_cgroup_that_cannot_be_read,
        while_a_start_is_stored,
        while_a_stop_is_stored,
        with_a_long_log,
    ),
)


# -- both ways


def pauses() -> list[Container]:
    """Of the pods whose members are among the cases. The one that has ended did so beside its members."""
    pod = Pod(name="pod", namespace="ns", memory_bytes=32 << 20)
    runs = replace(happenings.container(), id=POD, spec=Spec(name="pod", pod=pod), change=None)
    ended = happenings.container(Phase.EXITED)
    exit = replace(happenings.exit_of(1), key=RunKey(POD_OVER, 1), at_ns=AT_NS - 3 * SECOND)
    spec = Spec(name="pod-over", pod=replace(pod, name="", memory_bytes=0))
    return [runs, replace(ended, id=POD_OVER, spec=spec, exit=exit, change=None)]


async def driven(directory: Path, cases: list[Case], *, short: bool) -> tuple[dict[str, object], set[RunKey]]:
    """What there is of these ends, as soon as they are stored and again when all is cleaned up; and which of them the
    ring was given."""
    async with one_way(directory, short=short) as w:
        await w.put([*pauses(), *(case.container for case in cases)])
        w.kernel.more = {case.key.container: case.more for case in cases}
        together = [case for case in cases if case.is_ordinary and case.coming is alone]
        others = [case for case in cases if not case.is_ordinary or case.coming is not alone]
        for first in range(0, len(together), AT_ONCE):
            for case in together[first : first + AT_ONCE]:
                await alone(w, case)
            await w.stored()
        for case in others:  # one after the other: they need not be stored in the order in which they come
            await case.coming(w, case)
            await w.stored()
        found = {f"stored: {what}": value for what, value in (await w.found()).items()}
        await w.cleaned()
        found |= {f"cleaned: {what}": value for what, value in (await w.found_cleaned()).items()}
        if short:
            assert w.sees.short == [*dict.fromkeys(w.sees.short)]
            assert w.sees.ready >= set(w.sees.short), "a message was not ready"
        return found, set(w.sees.short)


def same_both_ways(directory: Path, cases: list[Case]) -> dict[str, object]:
    """Return what both worlds have."""
    for name in ("short", "long"):
        (directory / name).mkdir()
    with capture_logs() as short_logs:
        short, by_ring = asyncio.run(driven(directory / "short", cases, short=True))
    with capture_logs() as long_logs:
        long, by_none = asyncio.run(driven(directory / "long", cases, short=False))
    assert by_none == set()
    assert by_ring == {case.key for case in cases if case.is_ordinary}
    assert short.keys() == long.keys()
    for what, value in short.items():
        assert value == long[what], what
    assert ends_logged(short_logs) == ends_logged(long_logs)
    return short


def ends_logged(logs: list[Any]) -> list[str]:
    return sorted(repr(sorted(line.items())) for line in logs if line["event"] == "exit")


# -- which ends there are


STATUSES: tuple[ExitStatus, ...] = (
    *(Exited(0), Exited(3), Exited(128 + 9), Exited(128 + 15)),
    *(Signaled(9), Signaled(15), Signaled(11, core=True), Signaled(64)),
    *(Unknown("empty-record"), Unknown(evidence.MONITORS_KILLED), Unknown("fifo-number-only", 128 + 9)),
    Unknown(NEVER_STARTED),
)
ASKED = (
    None,
    *(Asked(reason, USER, 15) for reason in Reason),
    *(Asked(Reason.KILL, USER, signal) for signal in (9, 10)),
    Asked(Reason.STOP, POLICY, 9),
)
RULES = restart.parse_rules(["exit in 3,137 => no", "exit not in 0 => restart"])
FOLLOWS: tuple[Spec, ...] = (
    *(Spec(name="web", restart=restart.parse(each)) for each in ("no", "always", "on-failure:2", "unless-stopped")),
    Spec(name="web", auto_remove=True),
    Spec(name="web", restart=RestartPolicy(Policy.ON_FAILURE), restart_rules=RULES),
)


def rest(chosen: random.Random, status: ExitStatus, asked: Asked | None, spec: Spec) -> Case:
    """All else that a step looks at, or leaves as it is, each by chance."""
    pick = chosen.choice
    spec = replace(
        spec,
        namespace=pick(("default", "team")),
        image=pick(("", "docker.io/library/busybox")),
        names=pick((Names(), Names(), Names("ns", "pod-7", "app", "img"))),
        memory_bytes=pick((0, 16 << 20, 64 << 20)),
        sandbox=pick(("", "", POD, POD_OVER, "gone")),
        pod=pick((None, None, None, Pod(name="own", memory_bytes=1 << 20))),
        pid=pick(("own", "host")),
        runtime_type=pick(("", "", "io.containerd.kata.v2")),
        task=pick((None, None, Task("/b", address="/a", courier="7/9"))),
        stop_signal=pick((15, 10)),
        init=pick((False, True)),
        health=pick((None, *(HealthSpec(("x",), on_failure=on) for on in OnUnhealthy))),
    )
    run = pick((1, 1, 2, 5))
    oom_told = pick((0, 0, 2))
    container = Container(
        "c1",
        spec,
        Phase.RUNNING,
        run,
        NOW.now_ns,
        init=INIT,
        shim=pick((SHIM, None)),
        started_ns=pick((None, AT_NS - 30 * SECOND, AT_NS + SECOND, AT_NS + 3600 * SECOND)),
        started_boot_ns=pick((None, 10 * SECOND, 99 * SECOND)),
        exit=pick((None, happenings.exit_of(1))),
        asked=asked,
        stopped_by_user=pick((False, False, True)),
        restart_count=pick((0, 3)),
        failures=pick((0, 1, 2)),
        delay_ns=pick((0, SECOND, 50 * SECOND)),
        restart_at=pick((None, BootTime("boot", SECOND))),
        clean=False,
        boot_id=pick(("boot", "an earlier one")),
        error=pick(("", "before")),
        sandbox_run=pick((0, 1)),
        oom_told=oom_told,
        health=pick((None, *HealthStatus)),
        start_key=pick(("", "r/1/1")),
        start_unseen=pick((False, False, True)),
        change=pick((None, Change(pids_limit=5))),
        changed=pick(((), ("pids_limit",))),
        probes=pick((ProbeMarks(), ProbeMarks(liveness=HealthStatus.UNHEALTHY))),
        post_start=pick(tuple(HookStage)),
        ending=pick((None, Termination(run, BootTime("boot", 101 * SECOND), HookStage.BEGUN))),
        deadline=pick((None, TimeLimit(BootTime("boot", 200 * SECOND), 9 * SECOND))),
        evicted=pick(("", "volume x took 2 bytes")),
        networks=pick(((), (Attached("net", "eth0", addresses=("10.1.0.2/16",)),))),
    )
    report = Report(
        status,
        Source.RECORD,
        pick((INIT, INIT, Process(77, 5), None)),
        AT_NS,
        oom_kills=pick((0, oom_told, 3)),
        at_is_found=pick((False, False, True)),
        counted=pick((True, False)),
        began=pick((True, None, False)),
        unseen=pick((False, False, True)),
    )
    return Case(container, report, alone, more=pick((0, 0, 1)))


def grid() -> list[Case]:
    """Every status with every request to end and every word about what follows."""
    chosen = random.Random(1)
    whole = product(STATUSES, ASKED, FOLLOWS)
    return [rest(chosen, *each).numbered(number) for number, each in enumerate(whole)]


def test_every_status_every_request_and_every_policy_come_to_the_same_both_ways(tmp_path: Path) -> None:
    cases = grid()
    assert all(case.is_ordinary for case in cases) and len(cases) > ENDS_TOGETHER
    found = same_both_ways(tmp_path, cases)
    ledger = found["stored: ledger"]
    assert isinstance(ledger, list) and len(ledger) == len(cases)
    assert {exit.reason for exit in ledger} == set(Reason)
    assert {exit.decision for exit in ledger} == {"ended", "restart", "remove"}


def shaped(case: Case, number: int, **changes: Any) -> Case:
    """The case with other fields of the container, its spec or the report."""
    c, report = case.container, case.report
    spec = replace(c.spec, pid=changes.pop("pid", c.spec.pid), sandbox=changes.pop("sandbox", c.spec.sandbox))
    report = replace(report, source=changes.pop("source", report.source))
    coming = changes.pop("coming", case.coming)
    return replace(case, container=replace(c, spec=spec, **changes), report=report, coming=coming).numbered(number)


SHAPES: tuple[dict[str, Any], ...] = (
    *({"coming": each} for each in COMINGS),
    *({"source": each} for each in Source),
    *({"phase": each} for each in Phase),
    *({"pid": pid, "sandbox": pod} for pid in ("own", "pod", "host") for pod in (POD, POD_OVER, "gone", "")),
    {"damaged": "a field"},
)


def test_what_is_not_ordinary_takes_the_long_way_in_both_and_comes_to_the_same(tmp_path: Path) -> None:
    """Each with a kill that nobody has asked for, which a pod's end may explain, with one that was asked for, and with
    a code."""
    chosen, always = random.Random(2), FOLLOWS[1]
    ends = ((Signaled(9), None), (Signaled(9), happenings.KILL), (Exited(3), None))
    cases = [
        shaped(rest(chosen, status, asked, always), number, **shape)
        for number, ((status, asked), shape) in enumerate(product(ends, SHAPES))
    ]
    ledger = same_both_ways(tmp_path, cases)["stored: ledger"]
    assert isinstance(ledger, list) and {exit.source for exit in ledger} == set(Source)
    assert any(exit.reason is Reason.PAUSE_EXIT for exit in ledger) and any(exit.left_behind for exit in ledger)


CODES, SIGNALS = st.integers(0, 255), st.integers(1, 64)
ANY_STATUS = st.one_of(
    CODES.map(Exited),
    st.builds(Signaled, SIGNALS, st.booleans()),
    st.builds(Unknown, st.sampled_from((*sorted(evidence.WITNESSLESS), "gone", NEVER_STARTED)), st.none() | CODES),
)
ANY_ASKED = st.none() | st.builds(Asked, st.sampled_from(Reason), st.sampled_from((USER, POLICY, By())), SIGNALS)
ANY_RULES = st.lists(
    st.builds(RestartRule, st.lists(CODES, min_size=1, max_size=3).map(tuple), st.sampled_from(Action), st.booleans()),
    max_size=3,
).map(tuple)
ANY_FOLLOWS = st.builds(
    Spec,
    name=st.just("web"),
    restart=st.builds(RestartPolicy, st.sampled_from(Policy), st.integers(0, 3)),
    restart_rules=ANY_RULES,
    auto_remove=st.booleans(),
)
ANY_SHAPE = st.sampled_from((*({} for _ in SHAPES), *SHAPES))  # every other one is ordinary
ANY_CASE = st.builds(
    lambda shape, *of: shaped(rest(*of), 0, **shape),
    ANY_SHAPE,
    *(st.randoms(use_true_random=False), ANY_STATUS, ANY_ASKED, ANY_FOLLOWS),
)


@settings(max_examples=15)
@given(cases=st.lists(ANY_CASE, min_size=1, max_size=ENDS_TOGETHER + 10))
def test_any_ends_come_to_the_same_both_ways(cases: list[Case]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        same_both_ways(Path(directory), [case.numbered(number) for number, case in enumerate(cases)])
