"""One attack: an exitd of its own in a directory of its own, lives, misfortunes, and the judge at the end."""

import contextlib
import errno
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field, replace

from protos.exitd.v1 import exitd_pb2 as pb
from shim import journal
from supervisor.api.client import Client
from supervisor.model.errors import ExitdError
from supervisor.monitor import probe
from tests.attack import judge, lives, misfortunes, tasks
from tests.attack.judge import Death, Row, Seen, Verdict
from tests.attack.lives import STEP_SECONDS, Interrupted, Life, Scene
from tests.attack.misfortunes import Fate
from tests.system.daemons import cgroups_of
from tests.system.processes import commands, cwd_of

STATE_SIZE, ROOT_SIZE = "64m", "512m"
SECONDS_EACH = 5.0  # for one step, for each life of a crowd: they share the machine
FIRST = 20  # so many lives of a crowd count for the misfortunes before the first exit
LEFT_SECONDS = 60.0  # for shims and keeper to tidy up
END_SECONDS = 30.0
RECORD_SECONDS = 2.0  # between two looks at the event log, which the daemon keeps only so long
ROOT = pathlib.Path(__file__).resolve().parents[2]
PLACE = re.compile(r"/(?:[\w.+-]+/)+")
# Into its cgroup before anything else of it runs.
BEGIN = 'if [ -n "$1" ]; then echo $$ >"$1/cgroup.procs"; fi; shift; exec "$@"'


@dataclass(frozen=True, slots=True)
class Plan:
    """With the same one the same lives and misfortunes are planned."""

    seed: int
    exits: int
    lives: tuple[str, ...] = lives.KINDS
    misfortunes: tuple[str, ...] = misfortunes.KINDS
    crowd: int = 12  # lives at once
    at_once: int = 3  # victims of one misfortune, at most
    hits: float = 0.5  # misfortunes for each exit, at most: on a slow machine lives come to their end, too
    small_pids: int = 0  # the highest one, in a namespace of its own; 0: the machine's
    runtime: str = "runc"  # of exitd's own containers, by name

    def due(self, exits: int) -> int:
        """How many misfortunes there may have been when so many exits are over: a few come at once, and the others as
        lives end, or a large crowd would meet hundreds before its first container is made."""
        return int((exits + min(self.crowd, FIRST)) * self.hits)


@dataclass(frozen=True, slots=True)
class Result:
    plan: Plan
    verdict: Verdict
    exits: dict[str, int]
    task_exits: int  # events of containerd's
    deaths: dict[str, int]
    misfortunes: dict[str, int]
    fallen: tuple[str, ...]  # how the daemon, or containerd, ended where nobody had killed it
    seconds: float
    lives: int
    interrupted: bool
    containerd: str = ""  # its version; none, or not recorded


@dataclass
class Exitd:
    """The daemon under attack; started again whenever it is found dead."""

    base: pathlib.Path
    cgroup: pathlib.Path | None
    runtime: str
    process: subprocess.Popen[bytes] | None = None
    fallen: list[str] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)

    @property
    def state(self) -> pathlib.Path:
        return self.base / "s"

    @property
    def root(self) -> pathlib.Path:
        return self.base / "r"

    def begin(self) -> None:
        program = (sys.executable, "-m", "supervisor", "--root", str(self.root), "--state", str(self.state))
        options = ("--default-network", "none", "--log-format", "json", "--debug", "--reconcile-seconds", "1")
        words = ("sh", "-c", BEGIN, "sh", str(self.cgroup or ""), *program, *options, "--runtime", self.runtime)
        with (self.base / "log").open("ab") as log:
            # A session of its own: a ctrl-c on the terminal is for the rig.
            self.process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=ROOT, start_new_session=True
            )

    def guard(self) -> None:
        """Until it is over: a dead one has a successor."""
        while not self.over.wait(0.1):
            status = self.process.poll() if self.process is not None else 0
            if status is not None:
                if status != -signal.SIGKILL:
                    self.fallen.append(f"status {status}: {self._last_line()}")
                self.begin()

    def _last_line(self) -> str:
        """Of the paths in it the last parts: results are kept, and are of no machine's places."""
        lines = (self.base / "log").read_text(errors="replace").splitlines()
        last = next((line for line in reversed(lines) if not line.startswith(misfortunes.NOTE)), "")
        return PLACE.sub(".../", last)[-500:]

    def pid(self) -> int:
        return self.process.pid if self.process is not None and self.process.poll() is None else 0

    def keeper(self) -> int:
        wanted = f"--state\0{self.state}\0".encode()
        for pid, command in commands():
            if b"exitd-keeper" in command.split(b"\0")[0] and wanted in command:
                return pid
        return 0

    def connect(self) -> Client:
        return Client(f"{self.state}/exitd.sock", f"{self.state}/exitd.ttrpc")

    def end(self) -> None:
        self.over.set()
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(END_SECONDS)


@contextlib.contextmanager
def place() -> Iterator[pathlib.Path]:
    """A directory with small file systems for state and root; all processes that work in it are ended with it."""
    base = pathlib.Path(tempfile.mkdtemp(prefix="exitd-a-"))
    (base / "truth").mkdir()
    for name, size in (("s", STATE_SIZE), ("r", ROOT_SIZE)):
        (base / name).mkdir(mode=0o700)
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size},mode=700", "tmpfs", base / name], check=True)
    try:
        yield base
    finally:
        for mounted in reversed(_mounts(base)):
            subprocess.run(["umount", "--lazy", mounted], check=False)
        shutil.rmtree(base, ignore_errors=True)


@contextlib.contextmanager
def limits(name: str) -> Iterator[pathlib.Path | None]:
    """A cgroup whose processes can be counted; None where there is no pids controller to be had."""
    path = next((top / name for top in _pids_tops()), None)
    if path is not None:
        path.mkdir()
    try:
        yield path
    finally:
        if path is not None:
            _wait(lambda: _is_removed(path), END_SECONDS)
            assert not path.exists(), (
                f"{path}: still busy; its processes: {(path / 'cgroup.procs').read_text().split()}"
            )


def _is_removed(path: pathlib.Path) -> bool:
    """Whether the cgroup could be removed: it may be busy although it shows no process."""
    try:
        path.rmdir()
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        return False
    return True


def _pids_tops() -> list[pathlib.Path]:
    top = pathlib.Path("/sys/fs/cgroup")
    if (top / "pids" / "cgroup.procs").exists():
        return [top / "pids"]
    control = top / "cgroup.subtree_control"
    return [top] if control.exists() and "pids" in control.read_text().split() else []


class Recorder:
    """Keeps the events of type exit: the daemon's own log has an end, and the attack may be longer."""

    def __init__(self, scene: Scene) -> None:
        self.scene, self.seq, self.exits, self.lost = scene, 0, list[pb.Exit](), list[str]()
        self.names: dict[str, str] = {}
        self.over = threading.Event()

    def run(self) -> None:
        while not self.over.wait(RECORD_SECONDS):
            with contextlib.suppress(ExitdError, Interrupted):
                self.look(self.scene.call(self._read))

    def end(self) -> None:
        """What has happened since; the thread has ended before."""
        self.look(self.scene.patiently(self._read, "the events are not read"))

    def look(self, replies: list[pb.EventsReply]) -> None:
        for reply in replies:
            if reply.HasField("lost"):
                self.lost.append(f"events {reply.lost} are lost")
            if reply.HasField("event") and reply.event.seq > self.seq:
                self.seq = reply.event.seq
                self.names[reply.event.id] = reply.event.name
                self.exits += [reply.event.exit] if reply.event.type == "exit" else []

    def _read(self, client: Client) -> list[pb.EventsReply]:
        return list(client.events(pb.EventsRequest(from_seq=self.seq + 1, no_follow=True)))


def attack(plan: Plan, log: pathlib.Path | None = None, say: Callable[[str], None] = print) -> Result:
    """Lives, misfortunes, and the verdict. Nothing of it stays but exitd's log, as `log`, and containerd's beside it.
    Needs root."""
    begun = time.monotonic()
    with place() as base, limits(base.name) as cgroup:
        daemon = Exitd(base, cgroup, plan.runtime)
        scene = Scene(daemon.connect, base / "truth", step_seconds=max(STEP_SECONDS, SECONDS_EACH * plan.crowd))
        own = (daemon.state, daemon.root, daemon.pid, daemon.keeper, cgroup)
        fate = Fate(*own, threading.Event(), lambda: plan.due(scene.ended), log=base / "log")
        try:
            daemon.begin()
            scene.patiently(lambda client: client.version(), "exitd does not begin")
            with _containerd(plan, daemon, fate) as containerd:
                try:
                    seen, count, interrupted = _fight(plan, Scenery(daemon, containerd), scene, fate, say)
                finally:
                    daemon.fallen += containerd.fallen if containerd is not None else []
                    if log is not None and containerd is not None:
                        shutil.copy(containerd.log, f"{log}.containerd")
        finally:
            daemon.end()
            _end_all(base, daemon.keeper())
            if log is not None:
                shutil.copy(base / "log", log)
    return Result(
        plan=plan,
        verdict=judge.judge(seen),
        exits=judge.counts(seen.ledger),
        task_exits=len(seen.task_exits),
        deaths=judge.deaths(seen.deaths),
        misfortunes=dict(sorted(Counter(fate.met).items())),
        fallen=tuple(daemon.fallen),
        seconds=round(time.monotonic() - begun, 1),
        lives=count,
        interrupted=interrupted,
        containerd=tasks.version() if lives.TASK in plan.lives else "",
    )


@contextlib.contextmanager
def _containerd(plan: Plan, daemon: Exitd, fate: Fate) -> Iterator[tasks.Attacked | None]:
    """None where no life is a task of containerd's."""
    if lives.TASK not in plan.lives:
        yield None
        return
    with tasks.attacked(daemon.base, daemon.state) as made:
        fate.of_containerd = made.victims
        yield made


@dataclass(frozen=True, slots=True)
class Scenery:
    """The daemons under attack, which are started again when they are found dead."""

    exitd: Exitd
    containerd: tasks.Attacked | None

    def guard(self) -> None:
        with ThreadPoolExecutor(3) as pool:
            guards = [pool.submit(self.exitd.guard)]
            if self.containerd is not None:
                guards += [pool.submit(self.containerd.guard), pool.submit(self.containerd.listen)]
            for each in guards:
                each.result()

    def own(self) -> set[int]:
        """Processes that are there as long as the attack is."""
        others = self.containerd.victims("containerd") if self.containerd is not None else []
        return {self.exitd.pid(), self.exitd.keeper(), *others}

    def end(self) -> None:
        self.exitd.over.set()
        if self.containerd is not None:
            self.containerd.over.set()


def _fight(
    plan: Plan, scenery: Scenery, scene: Scene, fate: Fate, say: Callable[[str], None]
) -> tuple[Seen, int, bool]:
    every, recorder = list(lives.planned(plan.seed, plan.exits, plan.lives)), Recorder(scene)
    trouble = misfortunes.planned(plan.seed, plan.misfortunes, plan.at_once, tasks=scenery.containerd is not None)
    with ThreadPoolExecutor(3) as pool:
        guard, record = pool.submit(scenery.guard), pool.submit(recorder.run)
        troubling = pool.submit(fate.run, trouble)
        try:
            interrupted = _live_all(scene, every, plan.crowd, scenery.containerd, say)
            for over, each in ((fate.over, troubling), (recorder.over, record)):
                over.set()
                each.result()
            scene.over = threading.Event()  # the last questions are asked even when the lives were cut short
            left = _clear(scene, scenery)
            recorder.end()
            seen = _seen(scene, recorder, fate, left)
            if (containerd := scenery.containerd) is not None:
                deaths = [*seen.deaths, *(Death("containerd", at) for at in containerd.ended)]
                seen = replace(seen, task_exits=containerd.ends(), deaths=deaths)
        finally:
            for over in (fate.over, recorder.over, scene.over):
                over.set()
            scenery.end()
        guard.result()
    return seen, len(every), interrupted


def _live_all(
    scene: Scene, every: list[Life], crowd: int, containerd: tasks.Attacked | None, say: Callable[[str], None]
) -> bool:
    """Many at once. True when they were interrupted."""
    kinds = {**lives.LIVES}
    if containerd is not None:
        kinds[lives.TASK] = lambda scene, life: tasks.live(scene, containerd, life)

    def one(life: Life) -> None:
        with contextlib.suppress(Interrupted):
            lives.live(scene, life, kinds[life.kind])
        with scene.lock:
            scene.ended += life.exits

    with ThreadPoolExecutor(crowd) as pool:
        futures = [pool.submit(one, life) for life in every]
        try:
            for count, future in enumerate(as_completed(futures), 1):
                future.result()
                if count % 1000 == 0:
                    say(f"{count} of {len(every)} lives, {len(scene.rows)} exits")
        except KeyboardInterrupt:
            scene.over.set()
            pool.shutdown(cancel_futures=True)
            return True
    return False


def _clear(scene: Scene, scenery: Scenery) -> list[str]:
    """Removes what the lives left, and returns what is there although no container is."""

    def cleared() -> bool:
        listed = scene.patiently(lambda client: client.list(all_of_them=True), "the containers are not listed")
        for container in listed:
            with contextlib.suppress(ExitdError):
                scene.call(lambda client: client.remove(container.id, force=True))  # noqa: B023
        return not listed

    if scenery.containerd is not None:
        scenery.containerd.empty()
    with contextlib.suppress(lives.Stuck):
        scene.until(cleared, "not all containers are removed")
    left: list[str] = []

    def tidy() -> bool:
        left[:] = _left(scene, scenery)
        return not left

    _wait(tidy, LEFT_SECONDS)
    return left


def _left(scene: Scene, scenery: Scenery) -> list[str]:
    daemon = scenery.exitd
    listed = scene.patiently(lambda client: client.list(all_of_them=True), "the containers are not listed")
    ids = {row.container_id for row in list(scene.rows.values())}
    found = [f"container {each.spec.name}" for each in listed]
    found += [f"process {line}" for line in _processes(daemon.base, scenery.own())]
    found += [f"mount {where}" for where in _mounts(daemon.base) if where not in (str(daemon.state), str(daemon.root))]
    found += [f"cgroup {path}" for path in cgroups_of(ids)]
    found += [f"directory {path}" for path in (*daemon.state.glob("c/*"), *daemon.root.glob("c/*"))]
    found += scenery.containerd.leavings() if scenery.containerd is not None else []
    found += [line for path in daemon.state.glob("keeper-*.journal") for line in _journal(path)]
    return found


def _journal(path: pathlib.Path) -> list[str]:
    """Its entries; one that cannot be read was left half made."""
    try:
        data = path.read_bytes()
        return [f"journal {path.name}: {entry}" for entry in journal.read(data).entries]
    except FileNotFoundError:
        return []
    except journal.BadJournal as error:
        return [f"journal {path.name} of {len(data)} bytes, {sum(map(bool, data))} not zero: {error}"]


def _seen(scene: Scene, recorder: Recorder, fate: Fate, left: list[str]) -> Seen:
    rows = scene.patiently(lambda client: list(client.exits(pb.ExitsRequest())), "the ledger is not read")
    scene.rows.update({row.SerializeToString(deterministic=True): row for row in rows})
    return Seen(
        truths=list(scene.noted()),
        ledger=[row_of(row) for row in scene.rows.values()],
        events=[row_of(row) for row in recorder.exits],
        answers=[row_of(row) for row in scene.answers],
        heard=scene.heard,
        failed=scene.failed,
        deaths=_named(fate.deaths, recorder.names),
        stands=fate.stands,
        spans=scene.spans,
        pauses=frozenset(scene.pauses),
        terminals=frozenset(scene.terminals),
        leftovers=left,
        stuck=[*scene.stuck, *recorder.lost],
        pidfd_tells=probe.pidfd().works,
    )


def row_of(exit_: pb.Exit) -> Row:
    return Row(
        life=exit_.name,
        container=exit_.container_id,
        run=exit_.run,
        exec_id=exit_.exec_id,
        ticks=exit_.init.started_ticks,
        kind=exit_.kind,
        number=exit_.code if exit_.HasField("code") else exit_.signal if exit_.HasField("signal") else None,
        cause=exit_.cause,
        reason=exit_.by.policy if exit_.by.policy == "container-exit" else exit_.reason,
        source=exit_.source,
    )


def _named(deaths: list[Death], names: dict[str, str]) -> list[Death]:
    """With the life for the container's id."""
    return [replace(death, life=names.get(death.life, death.life)) for death in deaths]


def _processes(base: pathlib.Path, own: set[int]) -> list[str]:
    """Whoever has this directory in its command line or works in it."""
    here = str(base)
    return [
        f"{pid}: {command.replace(bytes(1), b' ').decode(errors='replace')[:200]}"
        for pid, command in commands()
        if pid not in own and (f"{here}/".encode() in command or cwd_of(pid).startswith(here))
    ]


def _end_all(base: pathlib.Path, keeper: int) -> None:
    """Keeper, and whoever else was left: they are known by this attack's own directory, which has a random name."""
    for line in [f"{keeper}: keeper"] * bool(keeper) + _processes(base, {os.getpid()}):
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(line.split(":")[0]), signal.SIGKILL)


def _mounts(base: pathlib.Path) -> list[str]:
    words = (line.split(" ")[4] for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines())
    return [word for word in words if word.startswith(f"{base}/")]


def _wait(done: Callable[[], bool], seconds: float) -> None:
    """Returns at the latest after so many seconds: whoever calls looks for itself what came of it."""
    deadline, pause = time.monotonic() + seconds, threading.Event()
    while not done() and time.monotonic() < deadline:
        pause.wait(0.2)
