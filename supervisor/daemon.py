"""Puts exitd together: directories, locks, and the parts in their order; ends them in the reverse order."""

import asyncio
import contextlib
import fcntl
import gc
import hashlib
import os
import resource
import signal
import socket
import stat
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from shim import later, programs
from shim.frozen import mutable
from shim.names import STATE_PATH_LIMIT
from supervisor import __version__
from supervisor.api import replies, sockets
from supervisor.api.callers import Callers
from supervisor.api.calls import Methods
from supervisor.api.files import FileServicer
from supervisor.api.health import HealthService
from supervisor.api.server import ApiServer
from supervisor.api.servicers import (
    ChangeServicer,
    ContainerServicer,
    DaemonServicer,
    ImageServicer,
    NetworkServicer,
    PodServicer,
    RecordServicer,
    ShutdownServicer,
    StatsServicer,
    UsageServicer,
    VolumeServicer,
    methods_of,
)
from supervisor.api.streams import StreamServicer
from supervisor.api.watches import WatchServicer
from supervisor.config.reload import Configuration, Reloads
from supervisor.config.settings import CgroupDriver, Config, Limits
from supervisor.containerd import adapter, liveusage
from supervisor.containerd.execs import TaskExecs
from supervisor.engine import reconcile, recovery
from supervisor.engine.admission import Admission, uses_systemd
from supervisor.engine.diskusages import DiskUsages
from supervisor.engine.execlife import Execs
from supervisor.engine.exits import Exits, SecondWitness
from supervisor.engine.fileservice import FileService
from supervisor.engine.idranges import IdRanges
from supervisor.engine.imageservice import ImageService, pause_directory, pause_root
from supervisor.engine.networkservice import NetworkService
from supervisor.engine.node import Node
from supervisor.engine.operations import Settings
from supervisor.engine.participants import Participant
from supervisor.engine.reconcile import ReconcileParts
from supervisor.engine.runs import Runs
from supervisor.engine.services import services_over
from supervisor.engine.sizewatch import SizeWatch
from supervisor.engine.statsservice import StatsService
from supervisor.engine.streamservice import StreamService
from supervisor.engine.unknownruns import UnknownRuns
from supervisor.engine.volumefill import VolumeFill
from supervisor.engine.volumeservice import VolumeService
from supervisor.external.containerdtasks import ContainerdTasks
from supervisor.external.observer import Observer
from supervisor.external.runcroot import RuncRoot
from supervisor.external.watchlist import WatchList, WatchSource
from supervisor.external.watchservice import WatchService
from supervisor.images.documents import host_platform
from supervisor.images.facts import ImageLimits as ImageLimits
from supervisor.images.store import Images
from supervisor.metrics.serving import MetricsPages
from supervisor.metrics.sources import Parts as MetricsParts
from supervisor.model.errors import CannotStart, ExitdError
from supervisor.model.restart import Backoff
from supervisor.model.storage import StorageKind
from supervisor.model.values import Container, Exit, Phase, Report, Source
from supervisor.model.views import Info
from supervisor.model.watched import Kind, Target
from supervisor.monitor import kernellog, kernelword, ownership, probe
from supervisor.monitor.earlyholds import EarlyHolds
from supervisor.monitor.epoll import Monitor
from supervisor.monitor.keeper import Keeper
from supervisor.monitor.kernellog import KnownKills
from supervisor.monitor.kernelword import KernelWord
from supervisor.monitor.kmsg import KernelLog
from supervisor.runtime.foreign_shim import family
from supervisor.runtime.managers import ContainerRuntimes, ExecRuntimes, ForeignShims
from supervisor.runtime.oci import cgroups, delegation, layertrial
from supervisor.runtime.oci.execs import NativeExecs
from supervisor.runtime.oci.native import NativeContainers
from supervisor.runtime.oci.runplan import Place
from supervisor.runtime.oci.watching import Watching
from supervisor.store.database import Store
from supervisor.store.events import EventLog
from supervisor.store.groupcommit import ROOM_BYTES
from supervisor.system import late, systemd, threads, watchdog
from supervisor.system.clock import SystemClock
from supervisor.system.inotify import Inotify
from supervisor.system.watchdog import Watchdog

if TYPE_CHECKING:
    from supervisor.api.containerd import Containerd

LOCK_SECONDS = 5.0  # for the lock of a child of a killed exitd, which is about to execute its program
LOCK_RETRY_SECONDS = 0.02
GRACE_SECONDS = 5.0
LOOK_UP_SECONDS = 10.0  # after that, what the start has put off is loaded beside the look-ups

log = structlog.get_logger(__name__)


@mutable
class Evidence:
    """Which sources work here, for `info`; filled in once the probes have run."""

    found: dict[Source, probe.Capability]


@contextlib.contextmanager
def claimed(directory: str, mode: int) -> Iterator[None]:
    """Claim the directory for as long as this process lives: made if missing, owned by this user, open to others no
    further than `mode`, and locked. Raises CannotStart.

    A gRPC server silently takes a live socket from its owner, so the lock comes before everything.
    """
    try:
        os.makedirs(directory, mode=mode, exist_ok=True)
        open_to_others = _open_to_others(os.path.realpath(directory))
    except OSError as error:
        raise CannotStart(f"{directory}: {error.strerror}; choose another with --root or --state") from error
    if open_to_others:
        raise CannotStart(f"{open_to_others} must belong to uid {os.geteuid()} and be writable only by that user")
    try:
        lock_fd = os.open(f"{directory}/exitd.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise CannotStart(f"{directory}/exitd.lock: {error.strerror}; it must be a file of exitd's") from error
    try:
        _lock(lock_fd, directory)
        narrow(os.path.realpath(directory), mode)
        yield
    finally:
        os.close(lock_fd)


def _open_to_others(directory: str) -> str:
    """Return the directory, or the one above it, in which another user could create or replace files; empty if there is
    none.

    In a sticky directory above it, like /tmp, users can replace only their own files.
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


def narrow(directory: str, mode: int) -> None:
    """Remove permissions beyond `mode`, which an earlier exitd or the directory's maker has left. Raises
    CannotStart."""
    try:
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            found = stat.S_IMODE(os.fstat(fd).st_mode)
            if found & ~mode:
                os.fchmod(fd, found & mode)
        finally:
            os.close(fd)
    except OSError as error:
        raise CannotStart(f"{directory}: {error.strerror}; exitd could not set its mode to {mode:o}") from error


def narrow_containers(root: str) -> None:
    """Remove permissions that an earlier exitd left open to all users: a pod's members write below these as any user.
    Raises CannotStart."""
    top = f"{root}/c"
    try:
        below = [f"{top}/{name}" for name in os.listdir(top)]
    except FileNotFoundError:
        return
    except OSError as error:
        raise CannotStart(f"{top}: {error.strerror}; exitd could not look at it") from error
    for path in (top, *below, *(f"{each}/volumes" for each in below)):
        if _is_open_directory(path):
            narrow(path, 0o700)


def _is_open_directory(path: str) -> bool:
    """Return whether it is a directory, no link, that others than its owner have a right in."""
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return False
    return stat.S_ISDIR(mode) and bool(mode & 0o7077)


def _lock(fd: int, directory: str) -> None:
    """Lock the directory. A child of a killed exitd has its descriptors, and so its lock, until it executes its
    program: that is waited for. Raises CannotStart when the lock stays taken."""
    deadline = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError as error:
            if time.monotonic() > deadline:
                raise CannotStart(
                    f"another exitd has {directory}; stop it, or give this one its own --root and --state"
                ) from error
        time.sleep(LOCK_RETRY_SECONDS)


def complete_stdio() -> None:
    """Make sure that descriptors 0 to 2 are open, so that no file opened later gets one of their numbers."""
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(fd, True)
    os.close(fd)
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115 - as long as the process


def prepare_process() -> None:
    """Undo what must not be inherited: ignored and blocked signals, a foreign working directory, a low file limit. Set
    what holds for all threads."""
    threads.give_back_large()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    signal.signal(signal.SIGHUP, lambda *_: None)  # a reload requested while the start is still reading everything
    os.chdir("/")
    os.umask(0o022)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def check(settings: Settings) -> None:
    """Raises CannotStart, before anything is touched."""
    for name, path in (("--root", settings.root), ("--state", settings.state)):
        if not os.path.isabs(path):
            raise CannotStart(f"{name} {path}: must be an absolute path")
    if os.path.realpath(settings.root) == os.path.realpath(settings.state):
        raise CannotStart(f"--root and --state are both {settings.root}; each needs a directory of its own")
    if len(os.fsencode(settings.state)) > STATE_PATH_LIMIT:
        raise CannotStart(f"--state {settings.state}: at most {STATE_PATH_LIMIT} bytes, its sockets' paths are limited")
    for name in ("exitd-shim", "exitd-keeper", "exitd-launch", "exitd-pause"):
        try:
            programs.find(name)
        except FileNotFoundError as error:
            raise CannotStart(str(error)) from error


async def serve(settings: Settings, configuration: Configuration, inotify: Inotify) -> None:
    """Run the daemon, from opening the store to the last message. Containers outlive it."""
    passed = systemd.given(frozenset({"ttrpc"}))  # before the first child
    watchdog_seconds = watchdog.limit_seconds()
    asyncio.get_running_loop().set_default_executor(threads.pool(threads.usual(), "exitd"))
    narrow_containers(settings.root)
    _warn_of_cgroups(settings.now().cgroup_driver)
    evidence = Evidence(probe.by_one_child())
    zombie, pidfd = evidence.found[Source.ZOMBIE], evidence.found[Source.PIDFD]
    store = Store(
        Path(settings.root) / "exitd.db",
        room_bytes=ROOM_BYTES,
        slow_seconds=lambda: settings.now().limits.ring_flush_seconds,
    )
    clock = SystemClock()
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(store.close)
        events = EventLog(store, clock)
        stack.callback(events.close)
        inotify.start()
        stack.callback(inotify.close)
        monitor = Monitor()
        stack.callback(monitor.close)
        kernel = kernelword.chosen(settings.now().kernel_witness, monitor, "" if pidfd.works else pidfd.detail)
        stack.callback(kernel.close)
        executions = kernelword.executions(settings.now().kernel_witness, monitor, kernel)
        stack.callback(executions.close)
        keeper = Keeper(
            settings.state,
            str(programs.find("exitd-keeper")),
            lambda: watching.news(),
            may_start=settings.starts_keeper,
            on_lost=lambda: watching.keeper_lost(),
        )
        stack.callback(keeper.close)
        fill = VolumeFill()
        stack.callback(fill.close)
        place = Place(settings.root, settings.state, lambda: settings.now().limits, fill=fill)
        early = EarlyHolds(kernel)
        stack.callback(early.close)
        watching = Watching(monitor, keeper, inotify, zombie=zombie.works, kernel=kernel, early=early)
        stack.callback(watching.close)
        native = NativeContainers(place, watching, ownership.owner(settings.root, settings.state))

        def make_family() -> "family.ForeignFamily":
            parts = (place, monitor, inotify, keeper, native.prepared)
            return family.ForeignFamily(*parts, zombie=zombie.works, kernel=kernel, executions=executions, early=early)

        foreign = ForeignShims(make_family)
        stack.push_async_callback(foreign.close)
        manager = ContainerRuntimes(native, foreign)
        kernel_log = KernelLog()
        stack.callback(kernel_log.close)
        health = HealthService()
        node = Node(
            store,
            events,
            manager,
            clock,
            report_health=partial(_report_health, health),
            backoff=lambda: _backoff(settings.now().limits),
        )
        second_witness = KernelsCount(kernel_log, manager)
        exits = Exits(node, second_witness)
        networks = NetworkService(node, settings.now, settings.root, settings.state)
        runs = Runs(node, exits, networks.attach)
        execs = Execs(node, ExecRuntimes(NativeExecs(place, watching), foreign), second_witness)
        stack.push_async_callback(node.close)
        images, layers = await asyncio.gather(
            asyncio.to_thread(_open_images, settings), asyncio.to_thread(layertrial.try_layer, settings.root)
        )
        image_service = ImageService(images)
        stack.push_async_callback(image_service.close)
        _warn_of_layers(layers, settings.now())
        refusal = "" if layers.works else f"{layers.detail}; {layers.cure}"
        ids = IdRanges(node.containers, settings.now, settings.root)
        admission = Admission(node.containers, image_service, settings.now, refusal, networks, ids)
        services = services_over(runs, manager, execs, admission, settings)
        stack.callback(services.prober.close)
        stack.callback(services.pod_keeper.close)
        stack.callback(services.shutdown.close)
        asides = adapter.Asides()
        task_execs = TaskExecs(node, services.execs, execs, asides)
        relays = adapter.Relays(node.spawn, settings.state, asides)
        tasks = adapter.Tasks(node, task_execs, settings.state, asides, relays)
        file_service = FileService(node, services.containers, image_service, settings)
        volume_service = VolumeService(settings.root, node.containers)
        held = recovery.HeldBefore(node, execs, early)
        node.join(
            *(tasks, runs, execs, services.ending, services.hooks, services.pod_keeper, services.prober),
            *(services.changing, image_service, volume_service, file_service, services.last_words, networks, ids),
            *(held, ReadyReplies()),
        )
        tasks.begin()
        damaged = await recovery.load(node, settings.state)
        if any(container.spec.runtime_type for container in node.containers.values()):
            await foreign.get().registry.serve()
        await execs.load(settings.state)
        held.begin()
        await networks.load()
        await execs.find_rest()
        image_service.hold_only(
            {c.id: c.spec.image_id for c in node.containers.values() if c.spec.image_id},
            undecided={c.id for c in node.containers.values() if c.damaged and not c.spec.image_id},
        )
        node.spawn(volume_service.sweep())
        node.spawn(file_service.thaw_left())
        reloads = Reloads(configuration, inotify)
        streams = StreamService(node, settings.state, services.execs.target, manager.orders, services.last_words)
        observer, watches = _watch_service(node, monitor, inotify, kernel_log, kernel, zombie_readable=zombie.works)
        stack.push_async_callback(watches.close)
        await watches.load()
        why_not_ready = partial(_why_not_ready, node, health)
        asked = MetricsParts(node, exits, keeper, observer, watches, lambda: settings.now().metrics, why_not_ready)
        metrics = MetricsPages(asked)
        stack.push_async_callback(metrics.close)
        methods = methods_of(
            ContainerServicer(services.containers, services.pods, services.execs, streams),
            ChangeServicer(services.changing),
            RecordServicer(services.containers, inotify),
            DaemonServicer(partial(_info, configuration, node, keeper, evidence, kernel, layers), metrics.text),
            PodServicer(services.pods),
            ImageServicer(image_service),
            VolumeServicer(volume_service),
            NetworkServicer(networks),
            StatsServicer(StatsService(node.containers, manager, clock, liveusage.measure)),
            FileServicer(file_service),
            UsageServicer(DiskUsages(node.containers, image_service, settings.root)),
            StreamServicer(streams),
            WatchServicer(watches),
            ShutdownServicer(services.shutdown),
        )
        machine = host_platform()
        sandboxes = adapter.SandboxPlace(
            pause_directory(settings.root), (machine.os, machine.architecture, machine.variant)
        )
        parts = adapter.AdapterParts(
            runs, manager, services, execs, task_execs, streams, settings.state, asides, relays, sandboxes
        )
        await adapter.serve(stack, parts, inotify)
        look_up = partial(recovery.look_up, runs, damaged)
        await _serve_api(stack, settings, node, methods, health, look_up, ttrpc=passed.get("ttrpc"))
        if watchdog_seconds:
            dog = Watchdog(watchdog_seconds, lambda: store.loop_flushing_seconds, lambda: _status(node))
            stack.callback(dog.close)
            dog.start()
        services.pod_keeper.look_at_all()
        node.spawn(services.pod_keeper.forever(lambda: settings.now().limits.reconcile_seconds))
        node.spawn(SizeWatch(node, settings.root).forever())
        if settings.now().watch_node:
            node.spawn(watches.watch_node())
        if where := settings.now().metrics.listen:
            node.spawn(metrics.serve(where, sockets.admit_group))
        networks.begin()
        node.spawn(keeper.greet())
        node.spawn(reloads.forever())
        node.spawn(_probe_rest(evidence, settings.state, node))
        unknown_runs = UnknownRuns(runs, settings.state)
        unknown_runs.begin(inotify)
        node.spawn(reconcile.forever(ReconcileParts(runs, manager, settings, unknown_runs, execs.keys, networks.look)))
        gc.freeze()  # what has been imported and loaded by now stays; collections need not look at it again
        gc.enable()
        await _until_told_to_stop()
        systemd.stopping()
        services.last_words.stop()
        image_service.stop()


def _warn_of_cgroups(driver: CgroupDriver) -> None:
    """Log what containers will lack, and why, before the first of them is refused."""
    try:
        unusable = delegation.unusable()
        lacking = {} if unusable else delegation.lacking()
    except OSError as error:
        log.warning("cgroups cannot be looked at", why=str(error))
        return
    if unusable:
        log.warning("no container can be made", why=unusable.why, cure=unusable.cure)
    for controller, refusal in lacking.items():
        log.warning("containers cannot be limited", by=controller, why=refusal.why, cure=refusal.cure)
    is_systemds = uses_systemd(CgroupDriver.AUTO) and cgroups.mode() is cgroups.Mode.V2 and delegation.is_whole()
    if driver is CgroupDriver.CGROUPFS and is_systemds:
        why = "systemd owns the tree in which exitd makes its containers' cgroups"
        log.warning("two write in one tree of cgroups", why=why, cure="cgroup_driver = auto or systemd")


def _warn_of_layers(layers: probe.Capability, config: Config) -> None:
    """Log where writable layers are instead, before the first container gets one there."""
    if not layers.works:
        instead = "containers write to memory" if config.storage is StorageKind.DISK else "--storage disk is refused"
        log.warning("no writable layer can be on disk", so=instead, why=layers.detail, cure=layers.cure)


async def _serve_api(
    stack: contextlib.AsyncExitStack,
    settings: Settings,
    node: Node,
    methods: Methods,
    health: HealthService,
    look_up: Callable[[], None],
    *,
    ttrpc: socket.socket | None,
) -> None:
    callers = Callers(f"{settings.state}/caller.sock")
    await callers.start()
    stack.push_async_callback(callers.stop)
    api = ApiServer(f"{settings.state}/exitd.sock", methods, callers, ttrpc or f"{settings.state}/exitd.ttrpc", health)
    await api.start_ttrpc()
    look_up()  # calls about a container that comes late wait for its look-up; all others are answered meanwhile
    await api.start()
    stack.push_async_callback(api.stop, GRACE_SECONDS)
    systemd.ready(_status(node))
    log.info("serving", address=api.path, containers=len(node.containers), recovering=len(node.containers.recovering))


def _status(node: Node) -> str:
    """One line for `systemctl status`."""
    return f"{len(node.containers)} containers"


def _report_health(health: HealthService, serving: bool) -> None:
    """The line for the service manager is sent by a thread: one that does not read must not hold up exitd."""
    health.set(serving)
    status = "serving" if serving else "not serving: a commit is refused or takes long, ends wait for the disk"
    asyncio.get_running_loop().run_in_executor(None, systemd.notify, f"STATUS={status}")


class ReadyReplies(Participant):
    """What clients are waiting for is built while the disk is writing."""

    def being_stored(self, exit: Exit) -> None:
        replies.make_ready(exit)


class KernelsCount(SecondWitness):
    """Asks the kernel's log when the counter of the container's cgroup leaves a question. Without the log the report is
    stored as it is."""

    def __init__(self, kernel_log: KernelLog, manager: ContainerRuntimes) -> None:
        self._log = kernel_log
        self._manager = manager

    async def weigh(self, container: Container, report: Report, known: KnownKills) -> Report:
        inner = self._inner(container)
        return report if inner is None else await self._log.weigh(report, inner, known)

    def weigh_at_once(self, container: Container, report: Report, known: KnownKills) -> Report | None:
        if not kernellog.is_wanted(report, known):
            return report
        inner = self._inner(container)
        return report if inner is None else self._log.weigh_at_once(report, inner, known)

    def _inner(self, container: Container) -> str | None:
        try:
            return cgroups.inside_or_nowhere(self._manager.cgroup_of(container))
        except (ExitdError, OSError) as error:
            log.warning("the kernel's log is not asked for memory kills", container=container.id, why=str(error))
            return None


def _watch_service(
    node: Node, monitor: Monitor, inotify: Inotify, kernel_log: KernelLog, kernel: KernelWord, *, zombie_readable: bool
) -> tuple[Observer, WatchService]:
    """What exitd watches and does not run."""
    watches = WatchList()
    observer = Observer(
        *(node.store, node.events, node.clock, node.storing, monitor, inotify, watches),
        zombie_readable=zombie_readable,
        kernel=kernel,
        owns=lambda process: any(c.init == process for c in node.containers.values()),
        second_witness=kernel_log.weigh,
    )
    sources: dict[Kind, Callable[[Target], WatchSource]] = {
        Kind.CONTAINERD: lambda target: ContainerdTasks(target, _containerd, observer),
        Kind.RUNC_ROOT: lambda target: RuncRoot(
            target, inotify, observer.observe, observer.missed, observer.lacks_names, observer.name
        ),
    }
    return observer, WatchService(observer, watches, node.store, node.clock, sources, kernel.trouble)


def _containerd(socket: str) -> "Containerd":
    from supervisor.api.containerd import Containerd  # imports grpc, which a daemon that watches none does not await

    return Containerd(socket)


def _why_not_ready(node: Node, health: HealthService) -> str:
    if node.containers.recovering:
        return f"{len(node.containers.recovering)} containers are still being looked up"
    return "" if health.serving else "ends are known that cannot be stored"


def _backoff(limits: Limits) -> Backoff:
    return Backoff(round(limits.restart_max_seconds * 1e9), round(limits.restart_reset_seconds * 1e9))


def _open_images(settings: Settings) -> Images:
    limits = settings.now().limits
    pause = pause_root(settings.root, str(programs.find("exitd-pause")))
    return Images(settings.root, pause=pause, limits=ImageLimits(limits.image_gib << 30, limits.image_files))


async def _until_told_to_stop() -> None:
    asked = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, asked.set)
    await asked.wait()
    log.info("stopping; containers live on")


async def _probe_rest(evidence: Evidence, state: str, node: Node) -> None:
    """Run the other probes in the background: tens of milliseconds of children and files must not delay the first
    call. What the start has put off is loaded when the containers have been looked up."""
    run = asyncio.get_running_loop().run_in_executor
    evidence.found = await run(None, probe.evidence, state, evidence.found)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(LOOK_UP_SECONDS):
            for looked_up in tuple(node.containers.recovering.values()):
                await looked_up.wait()
    await run(None, load_rest)


def load_rest() -> None:
    """Load what must be there before descriptors have run out: hashlib, which goes on without those of its functions
    whose files it cannot open then, for as long as this process lives; and exitd's own modules, whose files an upgrade
    replaces below this process."""
    hashlib.sha256(hashlib.blake2b().digest())
    for name in late.MODULES:
        try:
            later.load(name)
        except (ImportError, OSError) as error:
            log.warning("a module could not be loaded; its first use tries again", module=name, why=str(error))


def _info(
    configuration: Configuration,
    node: Node,
    keeper: Keeper,
    evidence: Evidence,
    kernel: KernelWord,
    layers: probe.Capability,
) -> Info:
    now = configuration.now()
    running = sum(c.phase in (Phase.RUNNING, Phase.PAUSED) for c in node.containers.values())
    return Info(
        version=__version__,
        root=now.root,
        state=now.state,
        boot_id=node.clock.boot_id(),
        default_runtime=now.default_runtime,
        cgroup=cgroups.mode().value,
        evidence=tuple((source.value, result.works) for source, result in evidence.found.items()),
        containers=len(node.containers),
        running=running,
        pid=os.getpid(),
        keeper=keeper.process,
        pending_commits=len(node.pending),
        seq=node.events.last_seq,
        state_file_system=probe.file_system(now.state),
        settings=(
            ("cgroup_driver", "systemd" if uses_systemd(now.cgroup_driver) else "cgroupfs"),
            ("kernel_witness", kernel.witness.value),
            ("storage", str(now.storage if layers.works else StorageKind.TMPFS)),
            *(() if layers.works else (("storage_refusal", f"{layers.detail}; {layers.cure}"),)),
            ("flush_seconds", f"{node.store.flush_seconds:.6f}"),
            ("waiters", str(len(node.containers.changes))),
            ("subscribers", str(node.events.subscribers)),
        ),
        configuration=configuration.settings(),
    )
