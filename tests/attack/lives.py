"""The lives under attack: what each is planned to be, by the seed alone, and how it is lived through the API."""

import contextlib
import pathlib
import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api.client import Client, Unreachable
from supervisor.model.errors import ExitdError, NameTaken, NoSuchContainer, TimedOut
from tests.attack.judge import Failed, Heard, Truth
from tests.system.daemons import spec

T = TypeVar("T")
STEP_SECONDS = 120.0  # for one step of a life, through all misfortunes, where not many live at once
PAUSE_SECONDS = 0.1  # between two questions
WAIT_SECONDS = 20.0  # one question for an end

# $1: what to do before the end. $2: the code; of a container's second run it is one more, and so on. $3: "-" for a run
# of the container, else the token of the exec. The note precedes the end: a code in the ledger is true or invented.
SCRIPT = """before_end=$1 code=$2 who=$3
read -r stat </proc/$$/stat
set -- $stat
ticks=${22}
echo "$who $ticks begun" >>/mnt/truth
trap 'echo "$who $ticks $?" >>/mnt/truth' EXIT
[ "$who" != - ] || code=$((code + $(grep -c '^- .* begun' /mnt/truth) - 1))
end() { exit $code; }
eval "$before_end"
end"""
RUN = "-"
FOR_EVER = "sleep 1000"
UNTIL_TERM = "trap end TERM; sleep 1000 & wait"
KINDS = ("short", "long", "killed", "stopped", "restarted", "execs", "pod", "terminal")
TASK = "task"  # containerd's
WEIGHTS = {
    **{"short": 4, "long": 3, "killed": 2, "stopped": 2, "restarted": 3, "execs": 4, "pod": 2, "terminal": 2},
    TASK: 4,
}


@dataclass(frozen=True, slots=True)
class Life:
    """One planned life. `count` is how many restarts, execs, or members it has."""

    number: int
    kind: str
    code: int
    seconds: float
    count: int

    @property
    def name(self) -> str:
        return f"life{self.number}"

    @property
    def exits(self) -> int:
        several = self.kind in ("restarted", "execs", "pod") or (self.kind == TASK and self.code % 2 == 0)
        return 1 + self.count if several else 1


def planned(seed: int, exits: int, kinds: tuple[str, ...] = KINDS) -> Iterator[Life]:
    """Lives with so many exits together, unless misfortune keeps some from beginning; the same each time."""
    total = number = 0
    while total < exits:
        pick = random.Random(f"{seed} life {number}")
        (kind,) = pick.choices(kinds, [WEIGHTS[each] for each in kinds])
        life = Life(number, kind, pick.randrange(1, 100), round(pick.uniform(0.1, 2.0), 2), pick.randrange(1, 5))
        total, number = total + life.exits, number + 1
        yield life


class Interrupted(Exception):
    """The attack is to end before its time."""


class Stuck(Exception):
    """A step did not come to an end within its limit; its text names it."""


@dataclass
class Scene:
    """What all lives share: the way to the daemon, and the notes for the judge."""

    connect: Callable[[], Client]
    truths: pathlib.Path
    step_seconds: float = STEP_SECONDS
    over: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)
    failed: list[Failed] = field(default_factory=list)
    answers: list[pb.Exit] = field(default_factory=list)
    heard: list[Heard] = field(default_factory=list)
    rows: dict[bytes, pb.Exit] = field(default_factory=dict)
    spans: dict[str, tuple[float, float]] = field(default_factory=dict)
    pauses: set[str] = field(default_factory=set)
    terminals: set[tuple[str, str]] = field(default_factory=set)
    stuck: list[str] = field(default_factory=list)
    ended: int = 0  # exits of the lives that are over, as planned

    def call(self, ask: Callable[[Client], T]) -> T:
        """One question. ExitdError as the daemon answers; Unreachable when it died, or is not up."""
        if self.over.is_set():
            raise Interrupted
        with self.connect() as client:
            return ask(client)

    def pause(self) -> None:
        self.over.wait(PAUSE_SECONDS)

    def patiently(self, ask: Callable[[Client], T], what: str) -> T:
        """For questions: asked again until there is an answer. NoSuchContainer is one."""
        deadline = time.monotonic() + self.step_seconds
        while True:
            try:
                return self.call(ask)
            except NoSuchContainer:
                raise
            except ExitdError as error:
                if time.monotonic() > deadline:
                    raise Stuck(f"{what}: {error}") from error
                self.pause()

    def until(self, done: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + self.step_seconds
        while not done():
            if time.monotonic() > deadline:
                raise Stuck(what)
            self.pause()

    def noted(self) -> Iterator[Truth]:
        """What all programs noted. A last line without its end was never finished."""
        for path in self.truths.glob("*/truth"):
            yield from truths_of(path.parent.name, path.read_text())


def truths_of(life: str, text: str) -> list[Truth]:
    found: dict[tuple[str, int], int | None] = {}
    for line in text.splitlines():
        token, ticks, word = line.split()
        found[token, int(ticks)] = None if word == "begun" else int(word)
    return [Truth(life, "" if token == RUN else token, ticks, code) for (token, ticks), code in found.items()]


def live(scene: Scene, life: Life, how: Callable[[Scene, Life], None]) -> None:
    """From its creation to its removal. What does not come to an end is noted as stuck."""
    scene.spans[life.name] = (time.monotonic(), float("inf"))
    try:
        how(scene, life)
    except Stuck as error:
        scene.stuck.append(f"{life.kind} {life.name}: {error}")


class Box:
    """One container of a life, by its name."""

    def __init__(self, scene: Scene, name: str, made: pb.ContainerSpec) -> None:
        self.scene, self.name, self.spec, self.id = scene, name, made, ""
        scene.spans[name] = (time.monotonic(), float("inf"))

    @classmethod
    def of(cls, scene: Scene, name: str, before_end: str, code: int, **fields: object) -> "Box":
        """A container that notes its end."""
        directory = scene.truths / name
        directory.mkdir(exist_ok=True)
        mounts = [pb.Mount(source=str(directory), destination="/mnt")]
        return cls(
            scene, name, spec("sh", "-c", SCRIPT, "sh", before_end, str(code), RUN, name=name, mounts=mounts, **fields)
        )

    def begin(self) -> None:
        self.scene.until(self._made, f"{self.name} is not created")
        self.scene.until(self._started, f"{self.name} is not started")

    def _made(self) -> bool:
        """Asked until there is one, and never two: one that came to be under a dying daemon is found by its name."""
        try:
            self.id = self.scene.call(lambda client: self._create(client))
        except NameTaken:
            self.id = self.known()
        except ExitdError:
            return False
        return bool(self.id)

    def _create(self, client: Client) -> str:
        return client.create(self.spec).id

    def known(self) -> str:
        """One that is being made may come to nothing yet, and one that has is about to go."""
        listed = self.scene.patiently(
            lambda client: client.list(all_of_them=True, filters=(f"name={self.name}",)), f"{self.name} is not listed"
        )
        between = (pb.PHASE_CREATING, pb.PHASE_REMOVING)
        named = [each for each in listed if each.spec.name == self.name]  # the filter takes parts of names
        return next((each.id for each in named if each.phase not in between), "")

    def phase(self) -> int:
        """0 when it has gone."""
        try:
            return self.scene.patiently(lambda client: client.inspect(self.id), f"{self.name} is not inspected").phase
        except NoSuchContainer:
            return 0

    def _started(self) -> bool:
        if self.phase() == pb.PHASE_CREATED:
            with contextlib.suppress(ExitdError):
                self.scene.call(lambda client: client.start(self.id))
        return self.phase() != pb.PHASE_CREATED

    def end(self) -> None:
        """By itself; a client waits for it."""

        def ended() -> bool:
            with contextlib.suppress(ExitdError):
                exit_ = self.scene.call(lambda client: client.begin_wait(self.id).result(WAIT_SECONDS))
                self.scene.answers.extend([exit_] if exit_ is not None else [])
            return self.phase() in (0, pb.PHASE_EXITED)

        self.scene.until(ended, f"{self.name} does not end")

    def ask(self, order: Callable[[Client], object], what: str) -> None:
        """Ordered until it has ended, whatever the answers are."""

        def ended() -> bool:
            with contextlib.suppress(ExitdError):
                self.scene.call(order)
            return self.phase() in (0, pb.PHASE_EXITED)

        self.scene.until(ended, f"{self.name} does not end after {what}")

    def kill(self) -> None:
        self.ask(lambda client: client.kill(self.id, "KILL"), "kill")

    def remove(self) -> None:
        """Its rows are kept first: the daemon's ledger has an end, and the attack may be longer."""
        self.keep()

        def gone() -> bool:
            with contextlib.suppress(ExitdError):
                self.scene.call(lambda client: client.remove(self.id, force=True))
            return self.phase() == 0

        self.scene.until(gone, f"{self.name} is not removed")
        self.keep()
        begun, _ = self.scene.spans[self.name]
        self.scene.spans[self.name] = (begun, time.monotonic())

    def keep(self) -> None:
        rows = self.scene.patiently(
            lambda client: list(client.exits(pb.ExitsRequest(id=self.id))), f"{self.name} has no ledger"
        )
        self.scene.rows.update({row.SerializeToString(deterministic=True): row for row in rows})


def short(scene: Scene, life: Life) -> None:
    box = Box.of(scene, life.name, ":", life.code)
    box.begin()
    box.end()
    box.remove()


def long(scene: Scene, life: Life) -> None:
    box = Box.of(scene, life.name, f"sleep {life.seconds}", life.code)
    box.begin()
    box.end()
    box.remove()


def terminal(scene: Scene, life: Life) -> None:
    box = Box.of(scene, life.name, f"echo up; sleep {life.seconds}; echo down", life.code, tty=True, stdin=True)
    scene.terminals.add((life.name, ""))
    box.begin()
    box.end()
    box.remove()


def killed(scene: Scene, life: Life) -> None:
    box = Box.of(scene, life.name, FOR_EVER, life.code)
    box.begin()
    scene.over.wait(life.seconds / 2)
    box.kill()
    box.remove()


def stopped(scene: Scene, life: Life) -> None:
    box = Box.of(scene, life.name, UNTIL_TERM, life.code)
    box.begin()
    scene.over.wait(life.seconds / 2)
    box.ask(lambda client: client.stop(box.id, 2), "stop")
    box.remove()


def restarted(scene: Scene, life: Life) -> None:
    box = Box.of(scene, life.name, f"sleep {life.seconds / 10:.2f}", life.code, restart=f"on-failure:{life.count}")
    box.begin()
    box.end()
    box.remove()


def execs(scene: Scene, life: Life) -> None:
    """Every second one is ended by its container's end."""
    box = Box.of(scene, life.name, FOR_EVER, life.code)
    box.begin()
    for number in range(life.count):
        last = number == life.count - 1 and life.code % 2 == 0
        _exec(box, f"e{number}", life, last=last)
    box.kill()
    box.remove()


def _exec(box: Box, token: str, life: Life, *, last: bool) -> None:
    """Asked for once: an answer that did not come leaves open whether it ran, the next one has a token of its own."""
    before = FOR_EVER if last else f"sleep {life.seconds / 4:.2f}"
    words, tty = ("sh", "-c", SCRIPT, "sh", before, str(life.code), token), life.code % 3 == 0
    box.scene.terminals |= {(box.name, token)} if tty else set()
    try:
        made = box.scene.call(lambda client: client.exec(box.id, pb.ExecSpec(args=words, tty=tty)))
    except (Unreachable, TimedOut):
        return
    except ExitdError:
        box.scene.failed.append(Failed(box.name, token))
        return
    if not last:
        box.scene.until(lambda: _has_ended(box, made.id), f"exec {made.id} of {box.name} does not end")


def _has_ended(box: Box, exec_id: str) -> bool:
    """One that the daemon no longer has has ended, too: the ledger says how."""
    try:
        exit_ = box.scene.call(lambda client: client.begin_wait(box.id, exec_id=exec_id).result(WAIT_SECONDS))
    except (Unreachable, TimedOut):
        return False
    except ExitdError:
        return not any(each.id == exec_id for each in _inspected(box))
    box.scene.answers.extend([exit_] if exit_ is not None else [])
    return True


def _inspected(box: Box) -> list[pb.Exec]:
    try:
        return list(box.scene.patiently(lambda client: client.inspect(box.id), f"{box.name} is not inspected").execs)
    except NoSuchContainer:
        return []


class PauseBox(Box):
    """A pod's pause container, which notes nothing."""

    def _create(self, client: Client) -> str:
        return client.run_pod(self.spec).id

    def _started(self) -> bool:
        """Members need one that runs."""
        if self.phase() in (pb.PHASE_CREATED, pb.PHASE_EXITED):
            with contextlib.suppress(ExitdError):
                self.scene.call(lambda client: client.start(self.id))
        return self.phase() == pb.PHASE_RUNNING

    def remove(self) -> None:
        self.keep()

        def gone() -> bool:
            with contextlib.suppress(ExitdError):
                self.scene.call(lambda client: client.remove_pod(self.id, force=True))
            return self.phase() == 0

        self.scene.until(gone, f"the pod {self.name} is not removed")
        self.keep()


def pod(scene: Scene, life: Life) -> None:
    """Some members end by themselves, the last one with its pod."""
    pause = PauseBox(scene, life.name, pb.ContainerSpec(image="pause", name=life.name))
    scene.pauses.add(life.name)
    pause.begin()
    members = [_member(pause, life, number) for number in range(life.count)]
    for member in members:
        member.begin()
    for member in members[:-1]:
        member.end()
    pause.remove()
    for member in members:
        member.remove()


def _member(pause: Box, life: Life, number: int) -> Box:
    last = number == life.count - 1
    before = FOR_EVER if last else f"sleep {life.seconds / 2:.2f}"
    fields = {"sandbox": pause.id, "stop_timeout_seconds": 1}
    return Box.of(pause.scene, f"{life.name}m{number}", before, life.code + number, **fields)


LIVES: dict[str, Callable[[Scene, Life], None]] = {
    "short": short,
    "long": long,
    "killed": killed,
    "stopped": stopped,
    "restarted": restarted,
    "execs": execs,
    "pod": pod,
    "terminal": terminal,
}
