"""From a Create to a container of exitd's: its spec, its root file system, and the note in its bundle."""

import asyncio
import contextlib
import json
import os
import re

import structlog

from protos.containerd import task_pb2 as pb
from shim import fields
from shim.frozen import field, frozen, replace
from shim.patterns import LatePattern
from supervisor.containerd import mounts, options, sandbox, sockets, stdio
from supervisor.containerd.callers import Caller
from supervisor.containerd.standing import place_of
from supervisor.containerd.tasks import STOPPED, TaskLook
from supervisor.model import names
from supervisor.model.errors import BadRequest, Code, ExitdError, ShimFailed, TimedOut
from supervisor.model.taskfacts import RootMount, Stdio, Task
from supervisor.model.values import (
    NO_NAMES,
    UNKNOWN_NUMBER,
    Container,
    ForeignStreams,
    LogDriver,
    LogSpec,
    Names,
    Phase,
    Process,
    Spec,
    fold,
)
from supervisor.monitor.rundir import path_of
from supervisor.runtime.oci import cgroups, rootfs
from supervisor.runtime.oci import spec as oci_spec
from supervisor.system import regular, room
from supervisor.system.aside import Aside
from supervisor.ttrpc.faults import CallFailed

WORD = "exitd.task"  # in the bundle: the relay reads it, and its `delete`
POD_FILE = "exitd."  # and one of sandbox.FILES: in a sandbox's bundle, for its members
MOST_BYTES, MOST_PID = 1 << 16, 1 << 22
MOST_RELAYS = 4  # whose sockets are looked at in one moment: each waits for the lock that a beginning relay has
MOST_AT_ONCE = 32  # tasks on one file system that hangs take a place each, and leave some to others
_ID = LatePattern(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}", re.ASCII)  # wider than containerd's own 76 characters

log = structlog.get_logger(__name__)


@frozen
class Asides:
    """Where the file systems behind containerd's paths are waited for: by task, and separately, so that a source that
    hangs in a mount does not keep a bundle from being read, nor a file of options that hangs either of them."""

    asked: Aside = field(default_factory=lambda: Aside(MOST_AT_ONCE))  # files that a Create or an Exec names
    mounts: Aside = field(default_factory=lambda: Aside(MOST_AT_ONCE, reserve=True))  # root file systems
    bundles: Aside = field(default_factory=lambda: Aside(MOST_AT_ONCE, reserve=True))  # the notes in bundles
    relays: Aside = field(default_factory=lambda: Aside(MOST_RELAYS, reserve=True))  # the lock at their sockets


async def spec_of(request: pb.CreateTaskRequest, caller: Caller, asides: Asides) -> Spec:
    """Build the Spec for a Create. Raises BadRequest, CallFailed for what exitd does not support, TimedOut when a file
    that the request names hangs."""
    checked_id(request.id, "a task")
    checked_bundle(request.bundle)
    mounts.check(request.rootfs)
    if request.checkpoint:
        raise CallFailed(Code.UNIMPLEMENTED, "restore from a checkpoint is not implemented")
    asked = await _options(request, caller, asides)
    for note in asked.notes:
        log.warning("option not understood", task=request.id, namespace=caller.namespace, note=note)
    words = Stdio(request.stdin, request.stdout, request.stderr, request.terminal)
    streams = await settled(asides, words, caller.namespace, request.id, (asked.io_uid, asked.io_gid))
    root = mounts.read(request.rootfs)

    def read() -> tuple[Names, str]:
        return _names(request.bundle), sockets.of_bundle(request.bundle)

    called, socket = await asides.bundles.run(f"reading {request.bundle}", read, request.bundle)
    return Spec(
        name=request.id,
        namespace=caller.namespace,
        bundle=request.bundle,
        runtime=asked.binary,
        log=LogSpec(LogDriver.NONE),
        tty=request.terminal,
        stdin=bool(streams.stdin),
        foreign=streams,
        create_options=asked.create_words,
        runtime_root=_root_of(asked.root, caller.namespace),
        shim_cgroup=_cgroup_of(asked.shim_cgroup),
        task=_task(request.bundle, root, words, caller, socket),
        names=called,
    )


def _names(bundle: str) -> Names:
    """Return what CRI calls the task; no names where its configuration cannot be read, as who makes the bundle will
    report."""
    try:
        document = json.loads(rootfs.read_bundle(bundle)[0])
        return names.of_annotations(document["annotations"])
    except (ExitdError, OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return NO_NAMES


def checked_id(id: str, whose: str) -> str:
    """Check a task's or an exec's id as containerd makes them, since files and cgroups get that name. Raises
    BadRequest."""
    if not _ID.fullmatch(id):
        raise BadRequest(f"{whose} needs an id: {id[:100]!r} is none; at most 128 letters, digits, '_', '.' and '-'")
    return id


def checked_bundle(path: str) -> str:
    """Raises BadRequest."""
    return _checked_path(path, "the bundle of a task")


def _checked_path(path: str, what: str) -> str:
    """Raises BadRequest."""
    if not os.path.isabs(path) or "\0" in path or len(os.fsencode(path)) > options.MOST_PATH_BYTES:
        raise BadRequest(
            f"{what} is {path[:100]!r}; it must be an absolute path of at most {options.MOST_PATH_BYTES} bytes"
        )
    return path


async def as_member(spec: Spec, pause: Container, asides: Asides) -> Spec:
    """Return the spec of a task in a sandbox: it joins the pod, and gets what its own configuration does not mount.
    Raises CallFailed when the sandbox has ended, BadRequest for a bundle that cannot be read, TimedOut."""
    assert pause.spec.task is not None
    if pause.phase not in (Phase.RUNNING, Phase.PAUSED):
        raise CallFailed(Code.FAILED_PRECONDITION, f"{spec.name}: its sandbox {pause.spec.name} does not run")
    of_pod = pause.spec.task.bundle

    def look() -> Spec:
        document = oci_spec.parse_bundle(*rootfs.read_bundle(spec.bundle))
        paths = {name: f"{of_pod}/{POD_FILE}{name}" for name in sandbox.FILES}
        there = {name: path for name, path in paths.items() if os.path.isfile(path)}
        return replace(spec, sandbox=pause.id, mounts=sandbox.mounts_of(document, there))

    return await asides.bundles.run(f"reading the configuration of {spec.name}", look, spec.bundle)


def _root_of(root: str, namespace: str) -> str:
    """Return where the runtime keeps the task's state, as containerd's own runtime has it. Raises BadRequest."""
    if not root:
        return ""
    _checked_path(root, "runtime options: Root")
    return f"{os.path.normpath(root)}/{namespace}"


def _cgroup_of(path: str) -> str:
    """Return the cgroup for the task's shims. Raises BadRequest for a path that leads out of the hierarchy, or
    nowhere."""
    if ".." in path.split("/") or "\0" in path or len(os.fsencode(path)) > options.MOST_PATH_BYTES:
        wanted = f"a path without '..' of at most {options.MOST_PATH_BYTES} bytes"
        raise BadRequest(f"runtime options: ShimCgroup is {path[:100]!r}; it must be {wanted}")
    name = path.strip("/")
    if name and not cgroups.existing(f"/{name}"):
        raise BadRequest(f"runtime options: ShimCgroup is {path!r}, and no such cgroup exists; make it first")
    return f"/{name}" if name else ""


async def put_shims(container: Container, caller: Caller) -> None:
    """Move the relay and the shim of a new task to the cgroup that its client named for them. Raises ShimFailed."""
    wanted = container.spec.shim_cgroup
    relay = Process(caller.hello.pid, caller.hello.started)
    shims = [relay] if container.shim is None else [relay, container.shim]
    for process in shims if wanted else ():
        try:
            await asyncio.to_thread(cgroups.join, wanted, process)
        except OSError as error:
            raise ShimFailed(f"ShimCgroup {wanted}: process {process.pid}: {error.strerror}") from error


def _task(bundle: str, root: tuple[RootMount, ...], words: Stdio, caller: Caller, socket: str) -> Task:
    hello, score = caller.hello, oom_score_of(caller.by.pid or 0)
    return Task(bundle, root, words, hello.relay, hello.address, caller.key, score, hello.courier, socket)


def oom_score_of(relay: int) -> int:
    """Return the oom_score_adj of the process that containerd has started for the task, which the task inherits if its
    configuration sets none, as with containerd's own runtime. Raises ShimFailed when that process, and so the caller,
    is gone."""
    try:
        with open(f"/proc/{relay}/oom_score_adj", encoding="ascii") as file:
            return int(file.read())
    except OSError as error:
        raise ShimFailed(f"the OOM score of the relay, process {relay}: {error.strerror}") from error


async def settled(
    asides: Asides, words: Stdio, namespace: str, id: str, owner: tuple[int, int] = (0, 0)
) -> ForeignStreams:
    """Settle the streams in a thread. `id`: the container's, or the exec's. Raises BadRequest, TimedOut."""
    asked = stdio.Words(namespace, id, words.stdin, words.stdout, words.stderr, words.terminal)
    wanted = stdio.parse(asked, owner)
    return await asides.asked.run(f"the look at the streams of {id}", lambda: stdio.settle(wanted), f"{namespace}/{id}")


async def _options(request: pb.CreateTaskRequest, caller: Caller, asides: Asides) -> options.TaskOptions:
    """Read the options in a thread: parsing TOML and opening a file may take long."""
    asked = await asyncio.to_thread(options.parse, request.options if request.HasField("options") else None)
    if not asked.config_path:
        return asked
    what, whose = f"runtime options: reading {asked.config_path}", f"{caller.namespace}/{request.id}"
    return await asides.asked.run(what, lambda: _with_file(asked), whose)


def _with_file(asked: options.TaskOptions) -> options.TaskOptions:
    path = _checked_path(asked.config_path, "runtime options: ConfigPath")
    try:
        text = regular.read(path, most_bytes=options.MOST_BYTES + 1)
    except OSError as error:
        raise BadRequest(f"runtime options: {path}: {error.strerror}") from error
    return options.with_config(asked, text, path)


# -- the root file system


async def mount(container: Container, asides: Asides) -> None:
    """Mount the root file system before the create; what is mounted there already is from a create that a crash
    interrupted. Raises BadRequest, ShimFailed, TimedOut when a source hangs. `unmount` waits its turn behind a mount
    that was given up."""
    task = container.spec.task
    if task is not None and task.rootfs:
        asked, where = task.rootfs, _rootfs(task)
        await asides.mounts.run(f"mounting {where}", lambda: mounts.mount_all(asked, where), container.id)


async def unmount(container: Container, asides: Asides) -> None:
    """Unmount it when nothing of the task runs, and leave an empty directory. Repeatable. Raises ShimFailed,
    TimedOut."""
    task = container.spec.task
    if task is not None and task.rootfs:
        where = _rootfs(task)

        def work() -> tuple[str, ...]:
            points = mounts.unmount_all(where)
            mounts.clear(where)
            return points

        points = await asides.mounts.run(f"unmounting {where}", work, container.id)
        for point in points:
            log.warning("mount was busy, detached", container=container.id, point=point)


def _rootfs(task: Task) -> str:
    return f"{task.bundle}/rootfs"


# -- the note in the bundle


async def leave_word(container: Container, state: str, asides: Asides) -> None:
    """Note the task's init. Raises ShimFailed when the note cannot be written, TimedOut when the bundle hangs."""
    pairs = _word(container, state)
    if pairs:
        await _leave(container, pairs, asides)


async def leave_end(container: Container, state: str, asides: Asides) -> None:
    """Add to the note how the task ended, before its record and its row are removed: the relay reads it there while
    exitd is away, and a containerd that dies before it has the answer to its Delete calls `delete` of the relay
    afterwards. Only done if the note is of this very run: a bundle that is gone, or belongs to another task by now,
    needs none. Failures and a bundle that hangs are only logged."""
    task, exit_, pairs = container.spec.task, container.exit, _word(container, state)
    if task is None or exit_ is None or not pairs:
        return
    name = (("namespace", container.spec.namespace), ("id", container.spec.name))
    end = (("code", fold(exit_.status)), ("at_ns", exit_.at_ns), ("oom_kills", exit_.oom.kills))
    try:
        word = await _word_of(task, asides)
        is_of_run = word is not None and word.get("directory") == path_of(state, container.id, container.run)
        if word is not None and is_of_run and not word.get("at_ns"):
            await _leave(container, (*pairs, *name, *end), asides)
    except (ShimFailed, TimedOut, OSError, fields.BadMessage) as error:
        log.warning("the end is not in the bundle", container=container.id, why=str(error))


def _word(container: Container, state: str) -> tuple[tuple[str, str | int], ...]:
    known = container.init or (container.exit.init if container.exit is not None else None)
    if container.spec.task is None or known is None:
        return ()
    directory = path_of(state, container.id, container.run)
    init = (("pid", known.pid), ("started", known.started_ticks))
    return (("directory", directory), *init, ("state", place_of(state, container)))


async def _leave(container: Container, pairs: tuple[tuple[str, str | int], ...], asides: Asides) -> None:
    assert container.spec.task is not None
    bundle, data = container.spec.task.bundle, fields.encode("task", pairs)
    path = f"{bundle}/{WORD}"
    try:
        await asides.bundles.run(f"writing {path}", lambda: write(path, data), bundle)
    except OSError as error:
        raise ShimFailed(f"{path}: {error.strerror}") from error


async def is_forgotten(container: Container, asides: Asides, new_bundle: str = "") -> bool:
    """Return whether containerd certainly no longer knows this task, which has ended.

    containerd makes a task's bundle before it asks for the task, and removes it after it has deleted the task; on most
    hosts a reboot removes the bundle. So a bundle that is missing, or has the note of another run, is proof. If the
    namespace's directory of bundles is missing, too, its mount may be missing: that proves nothing. `new_bundle`: of a
    task that is being created now; if it is at the same path and has no note, containerd has just made it. What cannot
    be read, or hangs, proves nothing.
    """
    task = container.spec.task
    if task is None or container.phase is not Phase.EXITED:
        return False
    try:
        found = await _word_of(task, asides)
        is_gone = found is None and await _is_gone_alone(task, asides)
    except (TimedOut, OSError, fields.BadMessage):
        return False
    is_made_anew = new_bundle.rstrip("/") == task.bundle.rstrip("/")
    if found is None:
        return is_made_anew or is_gone
    if not (directory := found.get("directory")):
        return is_made_anew
    return not directory.endswith(f"/c/{container.id}/{container.run}")


async def _word_of(task: Task, asides: Asides) -> fields.Message | None:
    """Raises TimedOut, and as `_word_in`."""
    return await asides.bundles.run(f"reading {task.bundle}/{WORD}", lambda: _word_in(task.bundle), task.bundle)


async def _is_gone_alone(task: Task, asides: Asides) -> bool:
    """Return whether the directory around the bundle, which is gone, still exists. Raises TimedOut."""
    around = os.path.dirname(task.bundle.rstrip("/"))
    return await asides.bundles.run(f"listing {around}", lambda: _is_listed(around), task.bundle)


def _word_in(bundle: str) -> fields.Message | None:
    """Return the note in a bundle; one without a field where there is no note, None without a bundle."""
    try:
        data = regular.read(f"{bundle}/{WORD}", most_bytes=MOST_BYTES)
    except FileNotFoundError:
        return fields.Message("task", 1, ()) if _is_there(bundle) else None
    return fields.decode(data, "task")


def _is_there(path: str) -> bool:
    """Raises OSError when that is not known."""
    try:
        os.stat(path)
    except FileNotFoundError:
        return False
    return True


def _is_listed(directory: str) -> bool:
    """Return whether the directory exists and can be read."""
    try:
        os.listdir(directory)
    except OSError:
        return False
    return True


def write(path: str, data: bytes, mode: int = 0o600) -> None:
    """Write a whole file, or none. Raises OSError."""
    made = f"{path}.new"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(made)  # left by an exitd that died while writing
    with open(os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, mode), "wb") as file:
        file.write(data)
    os.rename(made, path)


async def read_end(bundle: str, namespace: str, id: str, asides: Asides) -> TaskLook | None:
    """Return what `leave_end` has noted about this task in its bundle; None if there is nothing, or nothing that can be
    decoded. Raises TimedOut when the bundle hangs: the end may be in it. Waits for a descriptor where there is none."""
    path = f"{bundle}/{WORD}"
    try:
        data = await room.retry(
            lambda: asides.bundles.run(
                f"reading {path}", lambda: regular.read(path, most_bytes=MOST_BYTES, follow=False), bundle
            )
        )
        word = fields.decode(data, "task")
        pid, code, at_ns = (word.number(key) for key in ("pid", "code", "at_ns"))
    except (OSError, fields.BadMessage):
        return None
    if (word.get("namespace"), word.get("id")) != (namespace, id):
        return None
    return (
        TaskLook(STOPPED, pid, code, at_ns) if pid <= MOST_PID and code <= UNKNOWN_NUMBER and at_ns < 1 << 63 else None
    )
