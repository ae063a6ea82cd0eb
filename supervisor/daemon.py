"""exitd put together: directories, locks, the pieces in their order, and their end in the reverse one."""

import asyncio
import contextlib
import fcntl
import gc
import os
import resource
import signal
import stat
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import structlog

from shim import programs
from supervisor import __version__, probe, reconcile, recovery, sdnotify
from supervisor.api.callers import Callers
from supervisor.api.server import ApiServer
from supervisor.clock import SystemClock
from supervisor.errors import CannotStart
from supervisor.events import EventLog
from supervisor.facts import Phase, Source
from supervisor.inotify import Inotify
from supervisor.keeper import Keeper
from supervisor.monitor import Monitor
from supervisor.node import Node
from supervisor.oci import cgroups
from supervisor.oci.native import NativeContainers, Place
from supervisor.operations import Operations, Settings
from supervisor.store import Store
from supervisor.views import Info

STATE_PATH_LIMIT = 64  # sockets and run directories below it must fit unix(7)'s 108 bytes
GRACE_SECONDS = 5.0

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Evidence:
    """Which sources work here; told by `info`, filled in once the probes have run."""

    found: dict[Source, probe.Result]


@contextlib.contextmanager
def claimed(directory: str, mode: int) -> Iterator[None]:
    """The directory, ours alone: made if need be, owned by us, and locked as long as this process lives.

    A gRPC server takes a live socket from its owner without a word, so the lock comes before everything.
    """
    try:
        os.makedirs(directory, mode=mode, exist_ok=True)
        open_to_others = _open_to_others(os.path.realpath(directory))
    except OSError as error:
        raise CannotStart(f"{directory}: {error.strerror}; choose another with --root or --state") from error
    if open_to_others:
        raise CannotStart(f"{open_to_others} must belong to uid {os.geteuid()} and be writable by nobody else")
    try:
        lock_fd = os.open(f"{directory}/exitd.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise CannotStart(f"{directory}/exitd.lock: {error.strerror}; it must be a file of ours") from error
    try:
        _lock(lock_fd, directory)
        yield
    finally:
        os.close(lock_fd)


def _open_to_others(directory: str) -> str:
    """The directory, or whichever above it, in which somebody else could put or replace things; empty: none.

    In a sticky one above it, like /tmp, they can replace only their own.
    """
    found = os.stat(directory)
    if found.st_uid != os.geteuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return directory
    for parent in Path(directory).parents:
        found = os.stat(parent)
        loose = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not found.st_mode & stat.S_ISVTX
        if found.st_uid not in (0, os.geteuid()) or loose:
            return str(parent)
    return ""


def _lock(fd: int, directory: str) -> None:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise CannotStart(
            f"another exitd has {directory}; stop it, or give this one its own --root and --state"
        ) from error


def complete_stdio() -> None:
    """Descriptors 0 to 2 are there, and nothing that is opened later can be taken for one of them."""
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(fd, True)
    os.close(fd)
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115 - as long as the process


def prepare_process() -> None:
    """What must not be inherited: ignored and blocked signals, a strange working directory, a low file limit."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.chdir("/")
    os.umask(0o022)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def check(settings: Settings) -> None:
    """CannotStart, before anything is touched."""
    for name, path in (("--root", settings.root), ("--state", settings.state)):
        if not os.path.isabs(path):
            raise CannotStart(f"{name} {path}: must be an absolute path")
    if os.path.realpath(settings.root) == os.path.realpath(settings.state):
        raise CannotStart(f"--root and --state are both {settings.root}; each needs a directory of its own")
    if len(os.fsencode(settings.state)) > STATE_PATH_LIMIT:
        raise CannotStart(f"--state {settings.state}: at most {STATE_PATH_LIMIT} bytes, its sockets' paths are limited")
    for name in ("exitd-shim", "exitd-keeper", "exitd-launch"):
        try:
            programs.find(name)
        except FileNotFoundError as error:
            raise CannotStart(str(error)) from error


async def serve(settings: Settings, inotify: Inotify) -> None:
    """The daemon's life, from the store to the last word. Containers outlive it."""
    zombie = probe.zombie()
    evidence = Evidence({Source.ZOMBIE: zombie})
    store = Store(Path(settings.root) / "exitd.db")
    clock = SystemClock()
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(store.close)
        events = EventLog(store, clock)
        stack.callback(events.close)
        inotify.start()
        stack.callback(inotify.close)
        monitor = Monitor()
        stack.callback(monitor.close)
        keeper = Keeper(
            settings.state, str(programs.find("exitd-keeper")), lambda: manager.news(), may_start=settings.starts_keeper
        )
        stack.callback(keeper.close)
        place = Place(settings.root, settings.state, settings.runtime_seconds)
        manager = NativeContainers(place, monitor, keeper, zombie=zombie.works)
        stack.callback(manager.close)
        node = Node(store, events, manager, clock)
        stack.push_async_callback(node.close)
        await recovery.recover(node)
        about = partial(_info, settings, node, keeper, evidence)
        await _serve_api(stack, settings, node, Operations(node, manager, settings, about), inotify)
        node.spawn(_probe_rest(evidence, settings.state))
        node.spawn(reconcile.forever(node, manager, settings, settings.reconcile_seconds))
        gc.freeze()  # what has been imported and loaded by now stays; collections need not look at it again
        await _until_told_to_stop()
        sdnotify.stopping()


async def _serve_api(
    stack: contextlib.AsyncExitStack, settings: Settings, node: Node, operations: Operations, inotify: Inotify
) -> None:
    callers = Callers(f"{settings.state}/caller.sock")
    await callers.start()
    stack.push_async_callback(callers.stop)
    api = ApiServer(f"{settings.state}/exitd.sock", operations, inotify, callers)
    await api.start()
    stack.push_async_callback(api.stop, GRACE_SECONDS)
    node.on_health = api.health.set
    sdnotify.ready(f"{len(node.containers)} containers")
    log.info("serving", address=api.path, containers=len(node.containers), recovering=len(node.recovering))


async def _until_told_to_stop() -> None:
    told = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told.set)
    await told.wait()
    log.info("stopping; containers live on")


async def _probe_rest(evidence: Evidence, state: str) -> None:
    """Tens of milliseconds of children and files: not in the way of the first call."""
    evidence.found = await asyncio.get_running_loop().run_in_executor(None, probe.evidence, state)


def _info(settings: Settings, node: Node, keeper: Keeper, evidence: Evidence) -> Info:
    running = sum(c.phase in (Phase.RUNNING, Phase.PAUSED) for c in node.containers.values())
    return Info(
        version=__version__,
        root=settings.root,
        state=settings.state,
        boot_id=node.clock.boot_id(),
        default_runtime=settings.default_runtime,
        cgroup=cgroups.mode().value,
        evidence=tuple((source.value, result.works) for source, result in evidence.found.items()),
        containers=len(node.containers),
        running=running,
        pid=os.getpid(),
        keeper=keeper.process,
        pending_commits=len(node.pending),
        seq=node.events.last_seq,
        state_file_system=probe.file_system(settings.state),
        settings=(("flush_seconds", f"{node.store.flush_seconds:.6f}"), ("waiters", str(len(node.changes)))),
    )
