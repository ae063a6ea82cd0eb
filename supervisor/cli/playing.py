"""Makes the pods of a Play on the daemon, in order, and removes all of them if one fails or the user interrupts."""

import os
import signal
import stat
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType, TracebackType
from typing import Any, Self

from protos.exitd.v1 import exitd_pb2 as pb
from shim.frozen import frozen
from supervisor.api.answers import Waiting, status_of
from supervisor.api.client import Client, Unreachable
from supervisor.cli.app import complain
from supervisor.cli.fetch import fetch_image, patience
from supervisor.cli.manifest.container import PodMember, Pull
from supervisor.cli.manifest.kube import HostPath, Play, PodPlan
from supervisor.cli.past import last_words
from supervisor.cli.spoken import SHORT_ID, outcome
from supervisor.images import index, reference
from supervisor.images.facts import Image
from supervisor.model.errors import BadRequest, ExitdError, NoSuchContainer, NoSuchImage, ShuttingDown, TimedOut
from supervisor.model.values import Exited

BREAKING_OFF = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
NO_ANSWER = (Unreachable, TimedOut, ShuttingDown)  # the request may have been executed


class InitFailed(ExitdError):
    """An init container did not end with 0, and its policy does not restart it."""

    reason = "INIT_FAILED"


@frozen
class Played:
    """A pod that runs: its id, and those of its containers in the order of the file, without init containers."""

    id: str
    containers: tuple[str, ...]


class Interruption:
    """Signals that ask for an end. What is being made is finished first, so that it can be removed; waiting ends at
    once, and so does everything at the second signal."""

    def __init__(self) -> None:
        self._count = 0
        self._waiting = False
        self._former: dict[int, Any] = {}

    def __enter__(self) -> Self:
        for number in BREAKING_OFF:
            if signal.getsignal(number) != signal.SIG_IGN:  # nohup stays nohup
                self._former[number] = signal.signal(number, self._noticed)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._former.items():
            signal.signal(number, handler)

    def _noticed(self, _: int, __: FrameType | None) -> None:
        self._count += 1
        if self._waiting or self._count > 1:
            raise KeyboardInterrupt

    def check(self) -> None:
        """Called between two steps. Raises KeyboardInterrupt after a signal."""
        if self._count:
            raise KeyboardInterrupt

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """For calls that take long and leave nothing half-made."""
        self._waiting = True
        try:
            self.check()
            yield
        finally:
            self._waiting = False


class Playing:
    """One play. `init_seconds` limits the init containers of one pod together; None: no limit."""

    def __init__(self, client: Client, interruption: Interruption, init_seconds: float | None) -> None:
        self._client = client
        self._interruption = interruption
        self._init_seconds = init_seconds
        self._begun: list[tuple[PodPlan, str]] = []  # with the pod's id, empty while it is not known

    def play(self, wanted: Play) -> tuple[Played, ...]:
        """Make everything, or nothing: what cannot be removed again is reported. Raises ExitdError,
        KeyboardInterrupt."""
        images = self._fetch(wanted)
        for path in (path for pod in wanted.pods for path in pod.host_paths):
            prepare(path)
        for volume in wanted.volumes:  # which stay, whatever becomes of the play: they may have been there before
            self._client.create_volume(volume)
        with ExitStack() as undo:
            undo.callback(self.take_back)
            played = tuple(self._pod(pod, images) for pod in wanted.pods)
            undo.pop_all()
        return played

    def stop(self) -> None:
        """Stop the pods, with the grace period of each container."""
        for plan, pod_id in self._begun:
            try:
                self._client.stop_pod(pod_id)
            except ExitdError as error:
                complain(f"the pod {plan.name} could not be stopped: {error}")

    def take_back(self) -> None:
        """Remove what was made, the newest first."""
        while self._begun:
            plan, pod_id = self._begun[-1]
            try:
                pod_id = pod_id or self._made(plan)
                if pod_id:
                    self._client.remove_pod(pod_id, force=True)
            except NoSuchContainer:
                pass  # another client has removed it
            except ExitdError as error:
                complain(f"the pod {plan.name} may still be there ({error}); remove it with: {_removal(plan, pod_id)}")
            except KeyboardInterrupt:
                for left, left_id in self._begun:
                    complain(f"the pod {left.name} stays; remove it with: {_removal(left, left_id)}")
                raise
            self._begun.pop()

    @property
    def sidecars(self) -> frozenset[str]:
        """The names of those whose ends are not the play's."""
        return frozenset(name for plan, _ in self._begun for name in plan.pause.pod.sidecars)

    def wait(self) -> tuple[pb.Exit, ...]:
        """Return the exits of all members, once all have ended for good."""
        found: list[pb.Exit] = []
        for _, pod_id in self._begun:
            pending = self._client.begin_wait(pod_id)
            with self._interruption.waiting():
                found += pending.reply().members
        return tuple(found)

    def _fetch(self, wanted: Play) -> dict[tuple[str, Pull], str]:
        """Return the ids of the store's images, before anything is made."""
        needs = {(m.spec.image, m.pull): m for pod in wanted.pods for m in (*pod.inits, *pod.members)}
        with self._interruption.waiting():
            return {key: self._image(member) for key, member in needs.items()}

    def _image(self, member: PodMember) -> str:
        try:
            return self._found_or_fetched(member)
        except ExitdError as error:
            raise _located(error, member.where) from error

    def _found_or_fetched(self, member: PodMember) -> str:
        word = member.spec.image
        if member.pull is Pull.NOTHING:
            asked = pb.ContainerSpec(image=word)
            fetch_image(self._client, asked)
            return asked.image_id
        if member.pull is Pull.MISSING:
            try:
                return index.find(self._stored(), reference.Stored(word, reference.as_name(word))).id
            except NoSuchImage:
                pass
        with patience(f"pulling {word}"):
            return self._client.pull_image(f"docker://{word}").id

    def _stored(self) -> tuple[Image, ...]:
        return tuple(Image(i.id, i.digest, tuple(i.names), (), i.created) for i in self._client.images())

    def _pod(self, plan: PodPlan, images: dict[tuple[str, Pull], str]) -> Played:
        self._interruption.check()
        pod = self._run(plan)
        made = {
            id(member): self._create(pod, member, images)
            for member in (*plan.inits, *plan.members)
            if not (plan.inits and _looks_into_volumes(member))
        }

        def container(member: PodMember) -> pb.Container:
            return made.get(id(member)) or self._create(pod, member, images)

        deadline = None if self._init_seconds is None else time.monotonic() + self._init_seconds
        for member in plan.inits:
            if member.sidecar:
                self._begin_sidecar(container(member), deadline)
            else:
                self._finish(container(member), deadline)
        members = [container(member) for member in plan.members]
        for each in members:
            self._interruption.check()
            self._client.start(each.id)
        return Played(pod.id, tuple(each.id for each in members))

    def _run(self, plan: PodPlan) -> pb.Pod:
        """After a missing answer the pod may exist: it is looked for when everything is removed."""
        try:
            pod = self._client.run_pod(plan.pause)
        except (*NO_ANSWER, KeyboardInterrupt):
            self._begun.append((plan, ""))
            raise
        self._begun.append((plan, pod.id))
        return pod

    def _made(self, plan: PodPlan) -> str:
        """Return the id of this plan's pod, by its unique uid; empty if there is none."""
        found = (pod.id for pod in self._client.pods() if pod.spec.uid == plan.pause.pod.uid)
        return next(found, "")

    def _create(self, pod: pb.Pod, member: PodMember, images: dict[tuple[str, Pull], str]) -> pb.Container:
        self._interruption.check()
        spec = pb.ContainerSpec()
        spec.CopyFrom(member.spec)
        spec.sandbox, spec.image_id = pod.id, images[member.spec.image, member.pull]
        try:
            made = self._client.create(spec)
        except ExitdError as error:
            raise _explained(error, member) from error
        if _depends_on(made.spec) != _depends_on(spec):
            raise BadRequest(f"{member.where}: this exitd is older than exitctl, and has ignored a field; restart it")
        return made

    def _begin_sidecar(self, sidecar: pb.Container, deadline: float | None) -> None:
        """Start it, and wait until it has begun to work, as its startup probe and its hook say."""
        name = sidecar.spec.name
        seq = self._client.info().seq
        changes = self._client.events(pb.EventsRequest(from_seq=seq + 1, filters=[f"id={sidecar.id}"]))
        late = threading.Timer(_left(deadline), changes.cancel) if deadline is not None else None
        try:
            if late is not None:
                late.start()
            self._client.start(sidecar.id)
            with self._interruption.waiting():
                while not (now := self._client.inspect(sidecar.id)).probes.started and now.HasField("probes"):
                    if now.phase in (pb.PHASE_EXITED, pb.PHASE_REMOVING):
                        raise InitFailed(f"sidecar {name} has ended and is not started again")
                    if next(changes, None) is None:
                        raise InitFailed(f"sidecar {name} had not begun to work in time; --init-timeout sets the limit")
        except NoSuchContainer as error:
            raise InitFailed(f"sidecar {name} was removed before it had begun to work") from error
        finally:
            if late is not None:
                late.cancel()
            changes.cancel()

    def _finish(self, init: pb.Container, deadline: float | None) -> None:
        """Start it, and wait until it has ended with 0. Its policy may restart it until then."""
        waiting = self._client.begin_wait(init.id, run=init.run or 1)
        try:
            self._client.start(init.id)
            while (exit_ := self._next_exit(init, waiting, deadline)) and exit_.decision == "restart":
                complain(f"init container {init.spec.name} ended with {outcome(exit_)} and is started again")
                waiting = self._client.begin_wait(init.id, run=exit_.run + 1)
        finally:
            waiting.cancel()
        if exit_ is None:
            raise InitFailed(f"init container {init.spec.name} was removed before it had ended")
        if status_of(exit_) != Exited(0):
            words = "".join(f"\n  {line}" for line in last_words(self._client, init.id))
            raise InitFailed(f"init container {init.spec.name} ended with {outcome(exit_)}; its last words: {words}")

    def _next_exit(self, init: pb.Container, waiting: Waiting, deadline: float | None) -> pb.Exit | None:
        left = None if deadline is None else _left(deadline)
        try:
            with self._interruption.waiting():
                return waiting.result(left)
        except TimedOut as error:
            name = init.spec.name
            raise InitFailed(f"init container {name} had not ended in time; --init-timeout sets the limit") from error


def _looks_into_volumes(member: PodMember) -> bool:
    """Return whether it mounts paths in volumes, which those before it may have to make first."""
    return any(mount.sub_path for mount in member.spec.mounts)


def _depends_on(spec: pb.ContainerSpec) -> tuple[object, ...]:
    """Return what the container would be another one without: an earlier exitd ignores it."""
    return spec.address_mark, [mount.sub_path for mount in spec.mounts]


def _left(deadline: float) -> float:
    return max(0.0, deadline - time.monotonic())


def prepare(path: HostPath) -> None:
    """Make the path, or check it, as its type demands. Raises BadRequest."""
    try:
        match path.kind:
            case "DirectoryOrCreate":
                os.makedirs(path.path, mode=0o755, exist_ok=True)
            case "FileOrCreate":
                os.close(os.open(path.path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOCTTY, 0o644))
        mode = os.stat(path.path).st_mode
    except OSError as error:
        raise BadRequest(f"{path.where}: {path.path}: {error.strerror}") from error
    fits = {
        "Directory": stat.S_ISDIR,
        "DirectoryOrCreate": stat.S_ISDIR,
        "File": stat.S_ISREG,
        "FileOrCreate": stat.S_ISREG,
        "Socket": stat.S_ISSOCK,
    }.get(path.kind)
    if fits is not None and not fits(mode):
        raise BadRequest(f"{path.where}: {path.path} is there, and no {path.kind.removesuffix('OrCreate')}")


def _explained(error: ExitdError, member: PodMember) -> ExitdError:
    """Return the error in the manifest's words where the daemon names a field of its API."""
    place = member.places.get(error.metadata.get("field", ""))
    if place is None:
        return _located(error, member.where)
    return _with_text(error, f"{place}: the user of {member.spec.name} is root; give it a runAsUser, as in 1000")


def _located(error: ExitdError, where: str) -> ExitdError:
    """Return the same error, with the place in the file that it comes from."""
    return _with_text(error, f"{where}: {error}")


def _with_text(error: ExitdError, text: str) -> ExitdError:
    located = type(error)(text)
    located.reason, located.metadata = error.reason, error.metadata
    return located


def _removal(plan: PodPlan, pod_id: str) -> str:
    return f"exitctl rmp -f {pod_id[:SHORT_ID] or plan.name}"
