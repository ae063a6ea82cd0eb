"""Tasks of a containerd of the attack's own: made and ended by ctr while containerd, relays and exitd are killed."""

import contextlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from itertools import count

import grpc
from google.protobuf.timestamp_pb2 import Timestamp

from protos.exitd.v1 import exitd_pb2 as pb
from tests.attack.judge import Heard, TaskExit
from tests.attack.lives import FOR_EVER, RUN, SCRIPT, Life, Scene
from tests.system.containerd.events import Event, Recorder
from tests.system.containerd.history import Who
from tests.system.containerd.server import EXITD, IMAGE, Containerd
from tests.system.containerd.tasks import Tasks
from tests.system.processes import cgroups_below

GUARD_SECONDS = 0.2
FORGET_SECONDS = 30.0
ANEW_SECONDS = 10.0  # between two of its ends for the sake of a bundle
TRIES = 10  # of a delete, before that
GONE = ""  # the state of a task that is not there


def version() -> str:
    """Of the containerd that PATH leads to, as "1.6.20": without what its builders have added."""
    said = subprocess.run(["containerd", "--version"], check=True, capture_output=True, text=True, timeout=30).stdout
    return re.split(r"[~+-]", said.split()[2])[0].removeprefix("v")


@dataclass
class Attacked(Containerd):
    """containerd, started again whenever it is found dead; `state` is that of the attacked exitd."""

    state: pathlib.Path = pathlib.Path()
    over: threading.Event = field(default_factory=threading.Event)
    fallen: list[str] = field(default_factory=list)
    recorders: list[Recorder] = field(default_factory=list)  # of its events, one for each containerd that there was
    ended: list[float] = field(default_factory=list)  # when it ended by itself, or by `begin_anew`

    def guard(self) -> None:
        while not self.over.wait(GUARD_SECONDS):
            if self.process is not None and self.process.poll() is not None:
                if self.process.returncode != -signal.SIGKILL:
                    self.fallen.append(f"containerd: status {self.process.returncode}")
                    self.ended.append(time.monotonic())
                with contextlib.suppress(AssertionError, OSError):  # killed once more: seen the next time
                    self.start()

    def listen(self) -> None:
        """Until it is over: the events of each containerd that there is, from when it takes a subscription."""
        while not self.over.is_set():
            with contextlib.suppress(AssertionError, grpc.RpcError), self.events() as recorder:
                self.recorders.append(recorder)
                while not (recorder.has_ended or self.over.wait(GUARD_SECONDS)):
                    pass
            self.over.wait(GUARD_SECONDS)

    def ends(self) -> list[TaskExit]:
        """Of tasks and execs, as they were published until now."""
        events = [event for recorder in self.recorders for event in recorder.all()]
        return [_task_exit(event) for event in events if event.topic == "/tasks/exit"]

    def victims(self, kind: str) -> list[int]:
        """Pids: of containerd itself, or of relays."""
        if kind == "relay":
            return sorted(self.shims())
        alive = self.process is not None and self.process.poll() is None
        return [self.pid] if alive else []

    @property
    def bundles(self) -> pathlib.Path:
        return self.base / "s" / "io.containerd.runtime.v2.task" / self.namespace

    def empty(self) -> None:
        """No task, no container, no bundle. Half-made tasks first: containerd deletes none whose container is gone. One
        that a killed containerd was removing the next one passes over."""
        bundles = list(self.bundles.glob("*"))
        for path in bundles:
            self.forget(path.name)
        self.clear()
        for path in bundles:
            if path.name.startswith("."):
                shutil.rmtree(path, ignore_errors=True)

    def forget(self, name: str) -> bool:
        """A containerd that is killed in the middle of a create leaves a bundle and its shim, whichever that is. The
        next one keeps them, does not list them, and makes no task of that name until they are deleted. Returns whether
        nothing of it is there any more."""
        # In a thread that may be left: where no thread can be begun, gRPC can hang for ever.
        deleting = threading.Thread(target=self._delete, args=(name,), daemon=True)
        with contextlib.suppress(RuntimeError):
            deleting.start()
            deleting.join(FORGET_SECONDS)
        return not (self.bundles / name).exists()

    def _delete(self, name: str) -> None:
        client = Tasks(self)
        try:
            client.begin("delete", Who(name)).call()
        finally:
            client.close()

    def begin_anew(self, name: str) -> None:
        """When a relay has gone, containerd calls its program's `delete`, once. If that is killed too, containerd keeps
        the bundle, lists no task, and calls it when it begins again: so it is ended here, and its guard begins it.

        It renames a bundle before it removes it. Where one that was killed has left an earlier bundle under that name,
        no containerd can ever remove this one, and the containerd removes the earlier one."""
        shutil.rmtree(self.bundles / f".{name}", ignore_errors=True)
        if self.process is not None and not (self.ended and time.monotonic() - self.ended[-1] <= ANEW_SECONDS):
            self.ended.append(time.monotonic())
            self.process.kill()

    def leavings(self) -> list[str]:
        left = self.left().without("fifos", "processes", "rows", "cgroups")
        found = [f"{kind} {each}" for kind, found in asdict(left).items() for each in found]
        return found + [f"cgroup {path}" for path in cgroups_below(self.cgroup)]

    def _environment(self) -> dict[str, str]:
        path = f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"
        return {**os.environ, "PATH": path, "EXITD_STATE": str(self.state)}


def _task_exit(event: Event) -> TaskExit:
    """A task's own end has its name for an id."""
    fields = event.fields
    id = str(fields.get("id", ""))
    is_exec = id != event.container
    return TaskExit(event.container, is_exec, id, int(fields.get("pid", 0)), int(fields.get("exit_status", 0)))


@contextlib.contextmanager
def attacked(base: pathlib.Path, state: pathlib.Path) -> Iterator[Attacked]:
    """One that runs and has its image, in a directory of `base`; nothing of it is left."""
    (place := base / f"c-{base.name}").mkdir(mode=0o711)  # its name is that of a cgroup and of a namespace, too
    made = Attacked(place, state=state)
    made.fifos.mkdir()
    try:
        made.start().import_images()
        yield made
    finally:
        made.over.set()
        made.end()
        shutil.rmtree(place, ignore_errors=True)


class TaskBox:
    """One task of a life, by its name: what ctr is asked until it is so, whoever dies meanwhile."""

    def __init__(self, scene: Scene, containerd: Attacked, life: Life, before_end: str) -> None:
        self.scene, self.containerd, self.life, self.name = scene, containerd, life, life.name
        self.began = time.time()
        self.words = ("sh", "-c", SCRIPT, "sh", before_end, str(life.code), RUN)
        (directory := scene.truths / self.name).mkdir(exist_ok=True)
        self.mount = ("--mount", f"type=bind,src={directory},dst=/mnt,options=rbind:rw")
        containerd.keys.add(self.name)

    def ctr(self, *words: str) -> tuple[int, str]:
        """Its status, and what it says is wrong."""
        try:
            said = self.containerd.ctr(*words)
        except subprocess.TimeoutExpired:
            return -1, "it does not answer"
        return said.code, said.err

    def state(self) -> str | None:
        """None: nobody answers."""
        try:
            said = self.containerd.ctr("task", "ls")
        except subprocess.TimeoutExpired:
            return None
        rows = [line.split() for line in said.out.splitlines()[1:]]
        return next((row[2] for row in rows if row[0] == self.name), GONE) if said.code == 0 else None

    def has_begun(self) -> bool:
        return (self.scene.truths / self.name / "truth").exists()

    def begin(self) -> None:
        self.scene.until(self._begun, f"the task {self.name} does not begin")

    def _begun(self) -> bool:
        """What a killed containerd has left of it half made is removed first."""
        if self.has_begun():
            return True
        state = self.state()
        if state == GONE:
            if not self.containerd.forget(self.name) and (self.containerd.bundles / f".{self.name}").exists():
                self.containerd.begin_anew(self.name)
            self.ctr("container", "rm", self.name)
            self.ctr("snapshot", "rm", self.name)
            self.ctr("run", "-d", "--null-io", "--runtime", EXITD, *self.mount, IMAGE, self.name, *self.words)
        elif state in ("CREATED", "UNKNOWN", "STOPPED") and not self.has_begun():
            self.ctr("task", "rm", "-f", self.name)
        return self.has_begun()

    def end(self) -> None:
        self.scene.until(lambda: self.state() in ("STOPPED", GONE), f"the task {self.name} does not end")

    def exec(self, token: str, before_end: str) -> None:
        """Asked for once. What ctr returns without a complaint is the exec's code."""
        words = ("sh", "-c", SCRIPT, "sh", before_end, str(self.life.code), token)
        fifos = ("--fifo-dir", str(self.containerd.fifos))
        self._hear(token, *self.ctr("task", "exec", *fifos, "--exec-id", token, self.name, *words))

    def _hear(self, token: str, code: int, wrong: str) -> None:
        """A ctr that complains, or that was killed itself (a ctrl-c on the terminal is for it, too), says nothing."""
        if code >= 0 and not wrong:
            self.scene.heard.append(Heard(self.name, token, code))

    def remove(self) -> None:
        tries = count(1)

        def gone() -> bool:
            self._hear("", *self.ctr("task", "rm", "-f", self.name))
            if self.state() != GONE:
                return False
            # Half made, it would stay: containerd deletes no task whose container is gone.
            if self.containerd.forget(self.name):
                self.ctr("container", "rm", self.name)
                return f"\n{self.name}\n" not in f"\n{self.containerd.ctr('container', 'ls', '-q').out}"
            if next(tries) % TRIES == 0:
                self.containerd.begin_anew(self.name)
            return False

        self.scene.until(gone, f"the task {self.name} is not removed")
        self.keep()
        begun, _ = self.scene.spans[self.name]
        self.scene.spans[self.name] = (begun, time.monotonic())

    def keep(self) -> None:
        request = pb.ExitsRequest(since=Timestamp(seconds=int(self.began) - 1))
        rows = self.scene.patiently(lambda client: list(client.exits(request)), f"{self.name} has no ledger")
        mine = [row for row in rows if row.name == self.name]
        self.scene.rows.update({row.SerializeToString(deterministic=True): row for row in mine})


def live(scene: Scene, containerd: Attacked, life: Life) -> None:
    """It ends by itself, or by SIGKILL; its execs end before, or with it."""
    killed = life.code % 2 == 0
    box = TaskBox(scene, containerd, life, FOR_EVER if killed else f"sleep {life.seconds}")
    box.begin()
    for number in range(life.count if killed else 0):
        box.exec(f"e{number}", f"sleep {life.seconds / 4:.2f}")
    if not killed:
        box.end()
    box.remove()
