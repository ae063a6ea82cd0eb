"""The whole comparison: all ways opened, each measurement in turns, a way that fails left out, and the report."""

import contextlib
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from functools import partial

from supervisor.compare import machine, measure, truth
from supervisor.compare.facts import CompareReport, Fault, Latency, Memory, Restart, Storm
from supervisor.compare.gate import Gates
from supervisor.compare.harness import at_once, in_turn, private_of
from supervisor.compare.measure import Entrant, TryAgain
from supervisor.compare.plan import Plan
from supervisor.compare.way import Driver
from supervisor.compare.ways import WAYS, here, maker
from supervisor.runtime.oci import cgroups

Say = Callable[[str], None]
Make = Callable[[str], Callable[[machine.Scratch], Driver]]
PIDFD = "the kernel's own word over a pidfd (PIDFD_GET_INFO)"
MADE = "what each container was made to end with; the kernel reports it since Linux 6.15"
VERDICTS = ("right", "unknown", "wrong", "lost")
REST_SECONDS = 0.5  # of a look at what others use of the processors


class Contest:
    """A comparison under way: what is found grows here. `ways` is complete from the beginning."""

    def __init__(self, scratch: machine.Scratch, plan: Plan, say: Say, make: Make = maker) -> None:
        self._scratch, self._plan, self._say, self._make = scratch, plan, say, make
        self._ids = itertools.count(1)
        self._entrants: dict[str, Entrant] = {}
        self._ways = {way.key: way for way in WAYS if not plan.ways or way.key in plan.ways}
        self._daemons: dict[str, int] = {}  # private kB, after a first pod
        self._memory: list[Memory] = []
        self._samples: dict[tuple[str, str, str], list[float]] = {}
        self._storms: dict[str, list[tuple[float, ...]]] = {}
        self._agains: dict[str, list[TryAgain]] = {}
        self._faults: list[Fault] = []
        self._rest: list[float] = []

    def run(self) -> None:
        """Measure all of it. Each way that is open is closed at the end, also after an interrupt."""
        try:
            self._open()
            if not self._entrants:
                return
            for members in self._plan.sizes:
                self._turn(f"memory of pods of {members}", partial(self._measure_memory, members=members))
            for number in range(self._plan.rounds):
                self._turn(f"latencies, idle, round {number + 1}", self._idle_latencies, number)
                with machine.busy_cores():
                    self._turn(f"latencies, busy, round {number + 1}", lambda one: self._latencies(one, "busy"), number)
                self._turn(f"restart and storm, round {number + 1}", self._crowd, number)
            self._together("faults", lambda one: self._faults.extend(measure.faults(one)))
        finally:
            for key in list(self._entrants):
                self._close(key)

    def report(self, conditions: Iterable[tuple[str, str]]) -> CompareReport:
        """Return the report of the ways that came to the end; the others have their reason."""
        good = {key for key, way in self._ways.items() if not way.why_not}
        return CompareReport(
            conditions=(*conditions, *self._looks(), ("private memory of the daemons", self._sizes(good))),
            ways=tuple(self._ways.values()),
            memory=tuple(one for one in self._memory if one.way in good),
            latencies=tuple(
                Latency(*kind, ms=tuple(values)) for kind, values in self._samples.items() if kind[0] in good
            ),
            storms=tuple(
                Storm(key, len(rounds[0]), tuple(rounds)) for key, rounds in self._storms.items() if key in good
            ),
            restarts=tuple(self._restart(key, found) for key, found in self._agains.items() if key in good),
            faults=tuple(one for key in self._ways if key in good for one in self._faults if one.way == key),
            rest=tuple(self._rest),
        )

    def _open(self) -> None:
        """One pod each, so that whatever is needed only once is there, and a way that cannot says so now."""
        for key, way in list(self._ways.items()):
            self._ways[key] = here(way)
            if self._ways[key].why_not:
                self._say(f"{key}: {self._ways[key].why_not}")
                continue
            with self._left_out(key, "opening it"):
                driver = self._make(key)(self._scratch)
                entrant = Entrant(key, driver, Gates(self._scratch, key), partial(self._new_id, key), driver.group)
                self._entrants[key] = entrant
                entrant.end(entrant.start(1))
                self._daemons[key] = private_of(driver.daemons())

    def _new_id(self, key: str) -> str:
        return f"{key}-{next(self._ids)}"

    def _turn(self, what: str, step: Callable[[Entrant], None], number: int = 0) -> None:
        self._say(what)
        for key in in_turn(list(self._entrants), number):
            with self._left_out(key, what):
                step(self._entrants[key])

    def _together(self, what: str, step: Callable[[Entrant], None]) -> None:
        """All of them at once: nothing of it is timed."""
        self._say(what)

        def one(entrant: Entrant) -> None:
            with self._left_out(entrant.key, what):
                step(entrant)

        at_once(one, list(self._entrants.values()))

    @contextlib.contextmanager
    def _left_out(self, key: str, what: str) -> Iterator[None]:
        """A way that fails takes no part any more; the others do."""
        try:
            yield
        except Exception as error:  # whatever a way does wrong is its own affair, and stands in the report
            words = " ".join(str(error).split()) or type(error).__name__
            self._ways[key] = replace(self._ways[key], why_not=words if what == "opening it" else f"{what}: {words}")
            self._say(f"{key} is left out: {self._ways[key].why_not}")
            self._close(key)

    def _close(self, key: str) -> None:
        entrant = self._entrants.pop(key, None)
        if entrant is None:
            return
        try:
            for pod in list(entrant.pods):
                entrant.end(pod)
        except Exception as error:  # what it leaves is ended at the end of all
            self._say(f"{key}: {error}")
        try:
            entrant.driver.close()
        except Exception as error:
            self._say(f"{key}: {error}")

    def _measure_memory(self, one: Entrant, members: int) -> None:
        self._memory.append(measure.memory(one, members, self._plan.pods))

    def _idle_latencies(self, one: Entrant) -> None:
        """Look at the machine first: the ways have nothing to do then, and what uses a processor is not ours."""
        self._rest.append(machine.idle_share(REST_SECONDS))
        self._latencies(one, "idle")

    def _latencies(self, one: Entrant, load: str) -> None:
        for _ in range(self._plan.samples):
            start, exit_ = measure.latency(one)
            for what, value in (("start", start), ("exit", exit_)):
                self._samples.setdefault((one.key, what, load), []).append(value)

    def _crowd(self, one: Entrant) -> None:
        again, storm = measure.crowd(one, self._plan.pods, self._plan.containers, self._plan.meanwhile)
        self._storms.setdefault(one.key, []).append(storm)
        if again is not None:
            self._agains.setdefault(one.key, []).append(again)

    def _looks(self) -> Iterator[tuple[str, str]]:
        """Yield the conditions that are known only at the end."""
        yield "load average after", machine.load()
        if self._rest:
            least, most = (round(100 * share) for share in (min(self._rest), max(self._rest)))
            yield "idle between measurements", f"{least} to {most} % of all processors, {len(self._rest)} looks"

    def _sizes(self, good: Collection[str]) -> str:
        return ", ".join(f"{key} {kb / 1024:.0f} MB" for key, kb in self._daemons.items() if kb and key in good)

    def _restart(self, key: str, found: list[TryAgain]) -> Restart:
        verdicts = [verdict for again in found for verdict in again.verdicts]
        counts = {word: verdicts.count(word) for word in VERDICTS}
        live = self._plan.pods * self._plan.containers
        return Restart(key, live, tuple(again.ms for again in found), len(verdicts), **counts)


def conditions(scratch: machine.Scratch, plan: Plan) -> list[tuple[str, str]]:
    """Return what a reader must know to judge the figures."""
    about = machine.facts(scratch)
    return [
        *((name, value) for name, value in about.items() if value != "absent"),
        ("cgroups", cgroups.mode().value),
        ("load average before", machine.load()),
        ("pods", f"{plan.pods} at a time, of up to {plan.containers} members"),
        ("rounds", f"{plan.rounds}, of {plan.samples} samples each"),
        ("start", "a pod of pause and one member, asked for until both run"),
        ("exit", "the member's init killed until a client that waits knows"),
        ("busy", machine.BUSY_WORDS),
        ("restart", "from the daemon's exec until it answers for every container that it runs"),
        (
            "truth",
            PIDFD if truth.kernel_reports() else MADE,
        ),
    ]
