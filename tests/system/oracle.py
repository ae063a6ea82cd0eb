"""Containers that write down for themselves how each of their runs ends, and the comparison with what exitd says.

Every run notes its start time in clock ticks (proc(5), field 22: with the container a run's name that nobody else gives
out) when it begins, and beside its code just before it ends. So a code in the ledger is true, or it is invented.
"""

import contextlib
import errno
import itertools
import os
import pathlib
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from protos.exitd.v1 import exitd_pb2 as pb
from shim import journal
from supervisor.api.client import Client, Unreachable
from supervisor.model.errors import ExitdError, NameTaken, NoSuchContainer
from supervisor.model.values import NEVER_STARTED
from supervisor.monitor import probe
from tests.system.daemons import Daemon, cgroups_of, daemon, spec, warm_up
from tests.system.lives import events, ledger
from tests.system.processes import processes_of, zombies_of
from tests.system.waits import LIMIT_SECONDS, until

T = TypeVar("T")
NUMBERS = itertools.count()

# $1: what to do before the end. $2: the first run's code; every run's is one more than that of the run before it.
SCRIPT = """set -- "$1" "$2" $(cat /proc/$$/stat)
ticks=${24}
echo "$ticks begun" >>/mnt/truth
code=$(($2 + $(grep -c begun /mnt/truth) - 1))
eval "$1"
echo "$ticks $code" >>/mnt/truth
exit $code"""
AT_ONCE = ":"
WHEN_TOLD = "read line </mnt/go"
# What is said of a run whose shim and keeper were killed: a kernel from 6.15 on knows its end, an older one reports it
# while exitd listens. The newer one says it to exitd, and to the next keeper if the shim has found that one before.
BY_KERNEL = {
    "exited by zombie",
    *(("exited by pidfd", "exited by keeper") if probe.pidfd().works else ("exited by procevents", "unknown by none")),
}


@dataclass
class Subject:
    """One container under observation, and where it leaves the truth about itself."""

    name: str
    directory: pathlib.Path
    spec: pb.ContainerSpec
    id: str = ""

    def go(self) -> None:
        """The run that waits to be told ends now."""
        until(self._told, f"{self.name} does not wait to be told")

    def _told(self) -> bool:
        """A fifo without a reader cannot be opened for writing only."""
        try:
            fd = os.open(self.directory / "go", os.O_WRONLY | os.O_NONBLOCK)
        except OSError as error:
            assert error.errno == errno.ENXIO
            return False
        os.close(fd)
        return True

    def truth(self) -> dict[int, int | None]:
        """By start time: the code, or None for a run that began and did not come to its end by itself."""
        found: dict[int, int | None] = {}
        with contextlib.suppress(FileNotFoundError):
            for line in (self.directory / "truth").read_text().splitlines():
                ticks, word = line.split()
                found[int(ticks)] = None if word == "begun" else int(word)
        return found


def observed(daemon: Daemon, name: str, before_end: str = AT_ONCE, code: int = 43, **fields: object) -> Subject:
    directory = daemon.base / "truth" / name
    directory.mkdir(parents=True)
    os.mkfifo(directory / "go")
    mounts = [pb.Mount(source=str(directory), destination="/mnt")]
    return Subject(
        name, directory, spec("sh", "-c", SCRIPT, "sh", before_end, str(code), name=name, mounts=mounts, **fields)
    )


@dataclass
class Revived:
    """A daemon that is started again whenever somebody finds it dead. Calls may come from several threads."""

    daemon: Daemon
    lock: threading.Lock = field(default_factory=threading.Lock)

    def call(self, ask: Callable[[Client], T]) -> T:
        """Unreachable when the daemon died under it; it is up again then."""
        try:
            with self.daemon.client() as client:
                return ask(client)
        except Unreachable:
            self.revive()
            raise

    def patiently(self, ask: Callable[[Client], T]) -> T:
        """For questions: asked again of the next daemon."""
        while True:
            with contextlib.suppress(Unreachable):
                return self.call(ask)

    def revive(self) -> None:
        with self.lock:
            process = self.daemon.process
            assert process is not None
            with contextlib.suppress(Exception):
                process.wait(0.2)
            if process.poll() is not None:
                self.daemon.start()


def by_name(client: Client, name: str) -> pb.Container | None:
    listed = client.list(all_of_them=True, filters=(f"name={name}",))  # which takes parts of names
    return next((each for each in listed if each.spec.name == name), None)


def created(up: Revived, subject: Subject) -> None:
    """Created, whatever is killed meanwhile: asked until there is one, and never two."""

    def ask() -> bool:
        try:
            subject.id = up.call(lambda client: client.create(subject.spec)).id
        except NameTaken:
            known = up.patiently(lambda client: by_name(client, subject.name))
            # One that is being made may come to nothing yet, and one that has is about to go.
            made = known is not None and known.phase not in (pb.PHASE_CREATING, pb.PHASE_REMOVING)
            subject.id = known.id if known is not None and made else ""
        except ExitdError:
            return False
        return bool(subject.id)

    until(ask, f"{subject.name} is not created", LIMIT_SECONDS * 2)


def phase(up: Revived, subject: Subject) -> int:
    """0 when it has gone."""

    def ask(client: Client) -> int:
        try:
            return client.inspect(subject.id).phase
        except NoSuchContainer:
            return 0

    return up.patiently(ask)


def started(up: Revived, subject: Subject) -> None:
    """Started once; what ended before it could be is left as it is."""

    def ask() -> bool:
        if phase(up, subject) == pb.PHASE_CREATED:
            with contextlib.suppress(ExitdError):
                up.call(lambda client: client.start(subject.id))
        return phase(up, subject) != pb.PHASE_CREATED

    until(ask, f"{subject.name} is not started", LIMIT_SECONDS * 2)


def over(up: Revived, subject: Subject) -> None:
    until(lambda: phase(up, subject) in (0, pb.PHASE_EXITED), f"{subject.name} does not end", LIMIT_SECONDS * 2)


def removed(up: Revived, subject: Subject) -> None:
    def ask() -> bool:
        with contextlib.suppress(ExitdError):
            up.call(lambda client: client.remove(subject.id, force=True))
        return phase(up, subject) == 0

    until(ask, f"{subject.name} is not removed", LIMIT_SECONDS * 2)


def whole_life(up: Revived, subject: Subject) -> None:
    created(up, subject)
    started(up, subject)
    over(up, subject)
    removed(up, subject)


def judge(client: Client, subject: Subject, case: str = "") -> Counter[str]:
    """Invented 0, lost 0, duplicated 0, by ledger, event log, Wait and Inspect alike. Returns the answers, counted."""
    truth, rows = subject.truth(), ledger(client, subject.id)
    said = [(row.run, row.init.started_ticks, _words(row)) for row in rows]
    about = f"{case} {subject.name}: truth {truth}, said {said}"
    assert len({row.run for row in rows}) == len(rows), f"duplicated: {about}"
    for row in rows:
        real = truth.get(row.init.started_ticks)
        if row.cause == NEVER_STARTED:
            assert row.init.started_ticks not in truth, f"it had begun: {about}"
        if row.kind == "exited":
            assert real == row.code and row.source != "none", f"invented: {about}"
        elif row.kind == "signaled":  # the only signal that tests send
            # It may come between the last note and the end.
            by_somebody = real is None or row.reason in ("kill", "stop", "pause-exit")
            assert by_somebody and row.signal == signal.SIGKILL, f"invented: {about}"
        else:
            assert row.cause and not row.HasField("code") and not row.HasField("signal"), f"no cause: {about}"
    seen = [row.init.started_ticks for row in rows]
    assert all(seen.count(ticks) == 1 for ticks in truth), f"lost: {about}"
    agree(client, subject.id, rows, about)
    return Counter(f"{kind(row)} by {row.source}" for row in rows)


def kind(row: pb.Exit) -> str:
    """What never began is not unknown for want of a witness."""
    return NEVER_STARTED if row.cause == NEVER_STARTED else row.kind


def agree(client: Client, id: str, rows: list[pb.Exit], about: str) -> None:
    """Event log, Wait and Inspect say what the ledger says."""
    told = [event.exit for event in events(client, id) if event.type == "exit"]
    assert sorted(told, key=_run) == sorted(rows, key=_run), f"the event log differs: {about}, {told}"
    for row in rows:
        assert client.begin_wait(id, run=row.run).result(LIMIT_SECONDS) == row, f"wait differs: {about}"
    with contextlib.suppress(NoSuchContainer):
        assert not rows or client.inspect(id).exit == max(rows, key=_run), f"inspect differs: {about}"


def _run(row: pb.Exit) -> int:
    return row.run


def _words(row: pb.Exit) -> str:
    return f"{row.kind} {row.code or row.signal or row.cause} by {row.source}"


def leaks(daemon: Daemon, client: Client) -> list[str]:
    """What there is on the machine of this daemon's containers, none of which exists any more."""
    keeper = daemon.keeper_pid()
    own = (f"{daemon.pid}:", f"{keeper}:")
    found = [f"container {container.spec.name}" for container in client.list(all_of_them=True)]
    found += [line for line in processes_of(daemon.base) if not line.startswith(own)]
    found += [
        line for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines() if f" {daemon.base}/" in line
    ]
    ids = {event.id for event in events(client)}
    found += map(str, cgroups_of(ids))
    found += [str(path) for path in (*(daemon.state / "c").glob("*"), *(daemon.root / "c").glob("*"))]
    found += [f"zombie {pid}" for pid in zombies_of({daemon.pid, keeper})]
    found += [f"exitd holds {link}" for link in _links(daemon.pid) if _is_of_a_run(link, str(daemon.state))]
    found += [f"exitd-keeper holds {link}" for link in _links(keeper) if _is_of_a_run(link, "/")]
    for path in daemon.state.glob("keeper-*.journal"):
        found += [f"journal: {entry}" for entry in journal.read(path.read_bytes()).entries]
    return found


def nothing_left(daemon: Daemon) -> None:
    """Waits for it: shims and keeper tidy up in their own time."""
    found: list[str] = []
    with daemon.client() as client:
        try:
            until(lambda: not found.clear() and not found.extend(leaks(daemon, client)) and not found, "left")  # type: ignore[func-returns-value]
        except AssertionError as error:
            raise AssertionError(f"left: {found}") from error


def _is_of_a_run(link: str, state: str) -> bool:
    """Pidfds, pipes, and files of run directories. The journal, locks and sockets are the program's own."""
    own = link.endswith((".journal", ".lock", ".log", "/dev/null")) or link.startswith(("socket:", "/memfd:"))
    return not own and ("pidfd" in link or link.startswith("pipe:") or link.startswith(f"{state}/c/"))


def _links(pid: int) -> Iterator[str]:
    names = []
    with contextlib.suppress(FileNotFoundError):
        names = os.listdir(f"/proc/{pid}/fd") if pid else []
    for name in names:
        with contextlib.suppress(FileNotFoundError):
            if int(name) > 2:
                yield os.readlink(f"/proc/{pid}/fd/{name}")


def fresh_name() -> str:
    return f"case{next(NUMBERS)}"


@contextlib.contextmanager
def warm_daemon(*extra: str, **how: Any) -> Iterator[Daemon]:
    """A daemon that compares and repairs five times a second, and has had its first container."""
    with daemon(extra=("--reconcile-seconds", "0.2", *extra), **how) as made:
        with made.client() as client:
            warm_up(client)
        yield made


def clear(daemon: Daemon) -> None:
    """After a test: one that failed must not be the next one's failure too."""
    up = Revived(daemon)
    up.revive()
    for container in up.patiently(lambda client: client.list(all_of_them=True)):
        removed(up, Subject(container.spec.name, daemon.base, container.spec, container.id))


def begun(daemon: Daemon, before_end: str = WHEN_TOLD, code: int = 43, **fields: object) -> Subject:
    """A container that runs and has noted it."""
    subject = observed(daemon, fresh_name(), before_end, code, **fields)
    with daemon.client() as client:
        subject.id = client.create(subject.spec).id
        client.start(subject.id)
    until(subject.truth, f"{subject.name} does not begin")
    return subject


def inspect(daemon: Daemon, subject: Subject) -> pb.Container:
    with daemon.client() as client:
        return client.inspect(subject.id)


def shim_of(daemon: Daemon, subject: Subject) -> int:
    return inspect(daemon, subject).shim.pid


@contextlib.contextmanager
def down(daemon: Daemon) -> Iterator[None]:
    """For the block there is no daemon."""
    daemon.kill()
    yield
    daemon.start()


def begin_all(up: Revived, subjects: Iterable[Subject]) -> None:
    """Created and started one by one, whatever is killed meanwhile."""
    for subject in subjects:
        created(up, subject)
        started(up, subject)


def stop_and_judge(up: Revived, subjects: Sequence[Subject]) -> Counter[str]:
    """Of those that start again whenever they end. All are judged, and then removed."""
    for subject in subjects:
        up.patiently(lambda client: client.stop(subject.id, 0))  # noqa: B023
        over(up, subject)
    said = Counter[str]()
    with up.daemon.client() as client:
        for subject in subjects:
            said += judge(client, subject)
    print(dict(said))
    for subject in subjects:
        removed(up, subject)
    return said


def end_and_judge(daemon: Daemon, *subjects: Subject) -> list[str]:
    """Waits for the end of all, judges and removes them; what was said, one line each run, sorted."""
    up, said = Revived(daemon), list[str]()
    for subject in subjects:
        over(up, subject)
        with daemon.client() as client:
            said += judge(client, subject).elements()
        removed(up, subject)
    nothing_left(daemon)
    return sorted(said)
