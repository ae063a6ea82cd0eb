"""Two runtimes under one containerd, compared: what ctr says, and what containerd sends its subscribers meanwhile."""

import itertools
import re
import signal
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from tests.supervisor.cli.fake_attach import Pty
from tests.system.containerd.events import Event, Recorder
from tests.system.containerd.server import EXITD, RUNC, Box, Containerd, Said
from tests.system.waits import LIMIT_SECONDS, until

# What containerd brings along is the truth; ours is held against it.
TRUTH, OURS = RUNC, EXITD

Scenario = Callable[[Box], object]


def outcome(containerd: Containerd, runtime: str, scenario: Scenario) -> tuple[Any, list[Any]]:
    """What the scenario returns, and the events of each of its containers."""
    before = set(containerd.keys)
    try:
        with containerd.events() as events:
            value = scenario(containerd.box(runtime, scenario.__name__.strip("_").replace("_", "-")))
            ids = sorted(containerd.keys - before)
            told = [_settled(events, id) for id in ids]
        containerd.left_is()
        assert not containerd.wanted("container", "ls", "-q")
    finally:
        containerd.clear()  # for the next one, when this one has failed
    return _plain(value, containerd, ids), [_plain(list(_normal(one)), containerd, ids) for one in told]


def _settled(events: Recorder, id: str) -> list[Event]:
    """Its events, up to the last one; a shim may send them later than it answers."""
    if events.settled().of(id):
        events.wait(id, "/tasks/delete")
    return events.settled().of(id)


def _normal(events: list[Event]) -> Iterator[tuple[str, dict[str, object]]]:
    """Processes by their order of appearance instead of their pids, no times, and no memory kills: of those,
    containerd's own shim reports again and again, or late, or now and then not at all."""
    pids: dict[int, int] = {}
    numbers = itertools.count(1)
    for event in events:
        if event.topic != "/tasks/oom":
            fields = {**event.fields}
            if "pid" in fields:
                fields["pid"] = pids.setdefault(fields["pid"], next(numbers))
            if "exited_at" in fields:
                fields["exited_at"] = event.seconds - 5 < fields["exited_at"] <= event.seconds
            for mount in fields.get("rootfs", ()):
                mount["options"] = sorted(option.partition("=")[0] for option in mount["options"])
            yield event.topic, fields


def _plain(value: Any, containerd: Containerd, ids: list[str]) -> Any:
    """Without what differs from one run to the next: names, directories, fifos."""
    match value:
        case str():
            for number, id in enumerate(ids):
                value = value.replace(id, f"ID{number}")
            value = value.replace(str(containerd.base), "BASE").replace(containerd.own, "OWN")
            return re.sub(r"fifo/\d+", "fifo/N", re.sub(r'^time="[^"]+"', "TIME", value))
        case dict():
            return {_plain(key, containerd, ids): _plain(one, containerd, ids) for key, one in value.items()}
        case Said():
            return Said(value.code, _plain(value.out, containerd, ids), _plain(value.err, containerd, ids))
        case Shown():
            return Shown(value.code, _plain(value.text, containerd, ids), value.restored)
        case list() | tuple():
            return [_plain(one, containerd, ids) for one in value]
    return value


def agree(ours: Any, truth: Any) -> bool:
    """Of outputs, the end may be missing in the truth: on a busy machine containerd's own runtime cuts it off."""
    match ours, truth:
        case Said(), Said():
            return ours.code == truth.code and ours.out.startswith(truth.out) and ours.err.startswith(truth.err)
        case bytes(), bytes():
            return ours.startswith(truth)
        case Shown(), Shown():
            same = (ours.code, ours.restored) == (truth.code, truth.restored)
            return same and ours.text.startswith(truth.text)
        case dict(), dict():
            return ours.keys() == truth.keys() and all(agree(one, truth[key]) for key, one in ours.items())
        case (list(), list()) | (tuple(), tuple()):
            return len(ours) == len(truth) and all(map(agree, ours, truth))
    return bool(ours == truth)


def require(box: Box, fact: bool, what: object) -> None:
    """A fact about a container's output: ours has all of it, every time."""
    assert fact or box.runtime == TRUTH, what


def reason(said: Said) -> tuple[int, str]:
    """Its code, and of a failure the word for it, which is the error's kind; what is before that is the runtime's own
    text."""
    return said.code, said.err.rstrip().rpartition(": ")[2] if said.code else said.out + said.err


class Shown(NamedTuple):
    """Code, everything that was shown, and whether the terminal is as it was."""

    code: int
    text: str
    restored: bool


class Screen:
    """ctr on a terminal."""

    def __init__(self, containerd: Containerd, *words: str, size: tuple[int, int] = (24, 80)) -> None:
        self.pty, self.text = Pty(), ""
        self.pty.resize(*size)
        slave = self.pty.slave
        self.process = containerd.begin(*words, stdin=slave, stdout=slave, stderr=slave)

    def until(self, text: str) -> "Screen":
        def look() -> bool:
            self.text += self.pty.shown()
            return text in self.text

        until(look, f"{text!r} is not on the screen")
        return self

    def resize(self, rows: int, columns: int, text: str) -> "Screen":
        """Until this text comes. The kernel tells the foreground of a session, which this terminal is not of: so ctr is
        told here; again and again, because it listens only after it has passed on the first size."""
        self.pty.resize(rows, columns)

        def look() -> bool:
            self.process.send_signal(signal.SIGWINCH)
            self.text += self.pty.shown()
            return text in self.text

        until(look, f"{text!r} is not on the screen")
        return self

    def ended(self) -> "Shown":
        code = self.process.wait(LIMIT_SECONDS)
        while shown := self.pty.shown():
            self.text += shown
        restored = self.pty.modes() == self.pty.before
        self.pty.close()
        return Shown(code, self.text, restored)
