"""Tasks that live at random in pods and alone, round by round, with a misfortune in many a round; the history of it is
for `history` to judge."""

import contextlib
import random
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from protos.exitd.v1 import exitd_pb2 as pb
from tests.system.containerd.history import Call, Doomed, History, Row, Struck, Told, Who
from tests.system.containerd.server import Containerd
from tests.system.containerd.tap import Tap, event
from tests.system.containerd.tasks import Pending, Program, Tasks
from tests.system.daemons import Daemon
from tests.system.processes import end_process, stopped
from tests.system.waits import until

KILL, TERM = 9, 15
MOMENT_SECONDS, STOP_SECONDS = 0.15, 1.2  # at most: until a misfortune comes, and how long exitd stands still
GROUPS = ("", "one", "one", "", "two", "one", "two", "", "one", "two")
# What befalls exitd, and what befalls somebody else in that time.
MISFORTUNES = [
    (outer, inner)
    for outer in ("", "exitd", "stop")
    for inner in ("", "containerd", "relay", "shim", "keeper")
    if outer or inner
]
LIVING = ("created", "running", "paused", "stopped")


@dataclass
class Life:
    """One task, as far as is known. `ended`: who is to end, whose Wait is still to be answered."""

    program: Program
    state: str = "none"
    execs: dict[str, str] = field(default_factory=dict)
    waits: dict[Who, Pending] = field(default_factory=dict)
    ended: list[Who] = field(default_factory=list)
    number: int = 0

    @property
    def who(self) -> Who:
        return Who(self.program.id)

    def deeds(self) -> list[str]:
        """What can be done to it now; the likelier the more often it is named."""
        match self.state:
            case "none":
                return ["create"]
            case "created":
                return ["start"]
            case "paused":
                return ["resume", "resume", "state"]
            case "stopped":
                return ["delete", "delete", "state"]
            case "running":
                word = {"added": "start exec", "running": "end exec", "ended": "delete exec"}
                found = [word[state] for state in self.execs.values() if state in word] * 2
                return [*found, "pause", "state", "end", *(["exec", "exec"] if not found else [])]
        return []


class Chance:
    """`shim`: the runtime that the tap has made."""

    def __init__(self, containerd: Containerd, tap: Tap, seed: int) -> None:
        self.containerd, self.tap, self.pick = containerd, tap, random.Random(seed)
        self.daemon: Daemon = containerd.with_exitd()
        self.client, self.recorder = Tasks(containerd), containerd.events()
        self.lives = [
            Life(Program.make(containerd, str(tap.shim), group and f"{group}-{seed}", number))
            for number, group in enumerate(GROUPS)
        ]
        for life in self.lives:
            life.program.rootfs = self.client.mounts(life.program.id)
        self.calls: list[Call] = []
        self.published: list[Told] = []
        self.struck: list[Struck] = []
        self.doomed: list[Doomed] = []
        self._shim = 0

    def close(self) -> None:
        """Of what containerd serves; nothing is asked any more."""
        self.recorder.__exit__(None, None, None)
        self.client.close()

    def history(self) -> History:
        return History(
            tuple(self.calls),
            self.tap.told,
            tuple(self.published),
            tuple(self.struck),
            tuple(self.doomed),
            tuple(self._ledger()),
        )

    def settle(self) -> None:
        """Returns when containerd has been told everything: exitd may be waiting for it to take events again."""
        deleted = {call.who.task for call in self.calls if call.verb == "delete" and not call.error}

        def told() -> bool:
            return deleted <= {one.who.task for one in self.tap.told if one.topic == "delete" and one.is_taken}

        until(told, "containerd is not told of every deletion")

    def story(self) -> str:
        """All that was, in its order."""
        lines = [(one.begun, str(one)) for one in self.calls] + [(one.begun, str(one)) for one in self.struck]
        lines += [(one.at, str(one)) for one in self.tap.told]
        lines += [(one.at, f"published: {one}") for one in self.published]
        lines += [(one.at, str(one)) for one in self.doomed]
        return "\n".join(f"{at:.3f} {words}" for at, words in sorted(lines))

    # -- rounds

    def live(self, rounds: int, misfortunes: int) -> None:
        """Then whatever is left comes to its end."""
        fates: list[tuple[str, str]] = self.pick.sample(MISFORTUNES, misfortunes)
        at = dict(zip(self.pick.sample(range(2, rounds), misfortunes), fates, strict=True))
        for number in range(rounds):
            self.round(*at.get(number, ("", "")))
        for _ in range(2 * rounds):
            if not any(life.deeds() for life in self.lives):
                return
            self.round("", "", hurry=True)
        raise AssertionError(f"not over: {[(life.who, life.state, life.execs) for life in self.lives]}")

    def round(self, outer: str, inner: str, hurry: bool = False) -> None:
        victims = self._victims(inner)
        picked = [(life, self._deed(life, victims, inner, hurry)) for life in self.lives]
        pending = [(life, deed, self._begin(life, deed)) for life, deed in picked if deed]
        self._befall(outer, inner, victims, [one for _, _, one in pending if one is not None])
        if inner == "relay":
            self._orphan(victims)
        for life, deed, one in pending:
            self._over(life, deed, one)
        for life in self.lives:
            self._hear(life)
        for life in self.lives:
            if life.state == "doubtful":
                self._finish(life)

    def _victims(self, inner: str) -> list[Life]:
        """The tasks of one relay, or one that runs."""
        if inner == "relay":
            groups = sorted({life.program.group for life in self.lives if life.state in LIVING})
            group = self.pick.choice(groups) if groups else ""
            return [life for life in self.lives if life.program.group == group and life.state in LIVING]
        running = [life for life in self.lives if life.state in ("running", "paused")]
        if inner != "shim" or not running:
            return []
        self._shim = self._shim_of(victim := self.pick.choice(running))
        return [victim]

    def _deed(self, life: Life, victims: list[Life], inner: str, hurry: bool) -> str:
        """Empty: nothing. Not those whose outcome a misfortune leaves to chance by contract."""
        deeds = life.deeds()
        if hurry:
            deeds = [deed for deed in deeds if deed not in ("exec", "pause", "state")]
        mates = {victim.program.group for victim in victims} if inner == "relay" else set()
        barred = {"create", "delete"} if life.program.group in mates else set[str]()
        barred |= {"start exec"} if life in victims and inner == "shim" else set()
        deeds = [deed for deed in deeds if deed not in barred]
        return self.pick.choice(deeds) if deeds and (hurry or self.pick.random() < 0.7) else ""

    # -- what is asked

    def _begin(self, life: Life, deed: str) -> Pending | None:
        who, begin = life.who, self.client.begin
        match deed:
            case "create":
                return begin("create", who, rootfs=life.program.rootfs)
            case "exec":
                life.number += 1
                name = f"e{life.number}"
                return begin("exec", Who(who.task, name), spec=life.program.exec_spec(name, 100 + life.number))
            case "start exec":
                return begin("start", self._exec(life, "added"))
            case "delete exec":
                return begin("delete exec", self._exec(life, "ended"))
            case "end exec":
                return self._end(life, self._exec(life, "running"), 100 + life.number)
            case "end":
                return self._end(life, who, life.program.own)
        return begin(deed, who)

    def _exec(self, life: Life, state: str) -> Who:
        return Who(life.program.id, next(name for name, there in life.execs.items() if there == state))

    def _end(self, life: Life, who: Who, own: int) -> Pending | None:
        """By its own doing, by SIGTERM or by SIGKILL."""
        life.ended.append(who)
        by = self.pick.choice((0, TERM, KILL))
        if not by:
            self.doomed.append(Doomed(time.time(), who, own))
            life.program.go(who.exec)
            return None
        code = life.program.term if by == TERM and not who.exec else 128 + by
        self.doomed.append(Doomed(time.time(), who, code))
        return self.client.begin("kill", who, signal=by)

    # -- what befalls them

    def _moment(self, pending: list[Pending], most: float = MOMENT_SECONDS) -> None:
        """Any one, before all are answered."""
        left, over = [len(pending)], threading.Event()

        def answered(_: Any) -> None:
            left[0] -= 1
            if not left[0]:
                over.set()

        for one in pending:
            one.future.add_done_callback(answered)
        over.wait(self.pick.random() * most)

    def _befall(self, outer: str, inner: str, victims: list[Life], pending: list[Pending]) -> None:
        if outer or inner:
            self._moment(pending)
        begun, daemon = time.time(), self.daemon
        if outer == "exitd":
            daemon.kill()
            self._moment(pending)
            self._strike(inner, victims)
            self._moment(pending)
            daemon.start()
        elif outer == "stop":
            with stopped(daemon.pid):
                self._strike(inner, victims)
                self._moment(pending, STOP_SECONDS)
        else:
            self._strike(inner, victims)
        if outer:
            self.struck.append(Struck(begun, time.time(), outer))

    def _strike(self, what: str, victims: list[Life]) -> None:
        begun, tasks = time.time(), frozenset(life.program.id for life in victims)
        match what:
            case "containerd":
                self.containerd.restart()
                self.close()
                self.client, self.recorder = Tasks(self.containerd), self.containerd.events()
            case "relay" if victims:
                for pid in self._relays({life.program.group for life in victims}):
                    end_process(pid)
            case "shim" if victims:
                end_process(self._shim)
            case "keeper" if self.daemon.keeper_pid():
                end_process(self.daemon.keeper_pid())
            case _:  # there is none
                return
        self.struck.append(Struck(begun, time.time(), what, tasks))

    # -- what is answered

    def _over(self, life: Life, deed: str, one: Pending | None) -> None:
        if one is None or life.state == "gone":
            self.calls += [one.call()] if one is not None else []
            return
        self.calls.append(call := one.call())
        who, exec = one.who, one.who.exec
        if call.error and deed != "state":
            life.ended = [other for other in life.ended if other != who]  # nobody knows whether it is to
            if exec:
                life.execs[exec] = "doubtful"
            else:
                life.state = "doubtful"
            return
        match deed:
            case "create":
                life.state = "created"
            case "start" | "start exec":
                life.program.up(exec)
                life.waits[who] = self.client.begin("wait", who)
                if exec:
                    life.execs[exec] = "running"
                else:
                    life.state = "running"
            case "exec":
                life.execs[exec] = "added"
            case "pause" | "resume":
                life.state = "paused" if deed == "pause" else "running"
            case "delete exec":
                del life.execs[exec]
            case "delete":
                life.state = "deleted"

    def _hear(self, life: Life) -> None:
        """The Waits of those that are to end; and those that a containerd has not lived to answer, asked once more."""
        if life.state == "running" and life.who in life.ended:
            life.ended += [who for who in life.waits if who not in life.ended]  # all that it takes along
        for who in [who for who, one in life.waits.items() if who in life.ended or one.future.done()]:
            while True:
                self.calls.append(call := life.waits.pop(who).call())
                if not (call.error and self._is_lost(call)) or life.state in ("doubtful", "gone"):
                    break
                life.waits[who] = self.client.begin("wait", who)
                if who not in life.ended:
                    break
            if not call.error and who.exec:
                life.execs[who.exec] = "ended"
            elif not call.error and life.state in LIVING:
                life.state = "stopped"
        life.ended.clear()

    def _is_lost(self, call: Call) -> bool:
        return History(struck=tuple(self.struck)).is_lost(call)

    def _finish(self, life: Life) -> None:
        """How far it has come is not known: it is ended in any case."""
        self.doomed.append(Doomed(time.time(), life.who, 128 + KILL))
        for verb, fields in (("resume", {}), ("kill", {"signal": KILL, "all": True}), ("wait", {}), ("delete", {})):
            self.calls.append(self.client.begin(verb, life.who, **fields).call())
        self.calls += [one.call() for one in life.waits.values()]
        life.state = "deleted"

    def _orphan(self, victims: list[Life]) -> None:
        """Their relay is dead: containerd says how they ended."""
        for life in victims:
            self.recorder.wait(id := life.program.id, "/tasks/delete")
            heard = [event(one.topic, one.data) for one in self.recorder.settled().of(id)]
            own = [one for one in heard if one.who == life.who and one.topic in ("exit", "delete")]
            sent = sum(one.topic == "exit" for one in self.tap.told if one.who == life.who)
            self.published += own[-2:] if len(own) - 2 <= sent else own
            life.state = "gone"
            life.ended += life.waits

    def _relays(self, groups: set[str]) -> list[int]:
        """Each was begun for one of its tasks, perhaps one that has gone."""
        ids = [life.program.id for life in self.lives if life.program.group in groups]
        return [pid for id in ids for pid in self.containerd.shims(id)]

    def _shim_of(self, life: Life) -> int:
        with self.daemon.client() as client:
            found = client.list(all_of_them=True)
        return next(one.shim.pid for one in found if one.spec.name == life.program.id)

    def _ledger(self) -> Iterator[Row]:
        """Execs have names of their own there: they are known by their pids."""
        execs = {(one.who.task, one.pid): one.who for one in self.tap.told if one.topic == "exec-started"}
        ids = {life.program.id for life in self.lives}
        with self.daemon.client() as client:
            for row in client.exits(pb.ExitsRequest()):
                if row.namespace == self.containerd.namespace and row.name in ids:
                    number = {"exited": row.code, "signaled": 128 + row.signal}.get(row.kind)
                    who = Who(row.name) if not row.exec_id else execs.get((row.name, row.init.pid))
                    if who is not None:  # else containerd was never told of it
                        yield Row(who, number)


@contextlib.contextmanager
def chance(containerd: Containerd, seed: int) -> Iterator[Chance]:
    """Whatever goes wrong in the block is reported with all that was before."""
    with Tap(containerd.base / f"tap-{seed}", f"{containerd.address}.ttrpc") as tap:
        made = Chance(containerd, tap, seed)
        try:
            yield made
        except Exception as error:
            error.add_note(f"EXITD_SEED={seed}\n{made.story()}")
            raise
        finally:
            made.close()
