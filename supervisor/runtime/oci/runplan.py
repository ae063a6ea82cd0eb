"""The plan for a run's shim, and what the shim's failure means to the caller."""

import errno
import os
from collections.abc import Callable
from typing import Any, TypeVar

from shim import launch, names, plan, programs
from shim.frozen import field, frozen, replace
from supervisor.config.settings import Limits
from supervisor.model.errors import ExitdError, RuntimeFailed, ShimFailed, TimedOut
from supervisor.model.values import Container, ForeignStreams, LogDriver
from supervisor.monitor import kmsg, rundir
from supervisor.runtime.oci import bundle, cgroups, command, runtime, volumes
from supervisor.system.aside import Aside

SHIM_SECONDS = 5.0  # for the shim's own work, in addition to its runtime's
DRAIN_MS = 1_000
FOREIGN_DRAIN_MS = 8_000  # clients on a busy machine read slowly; containerd gives a delete 10 s
LOGGER_DRAIN_MS = 10_000  # for a logger program, which must also write the output
PROGRAMS_AT_ONCE = 32  # directories and containers in which programs are looked at
SOURCES_AT_ONCE = 32  # paths on which file systems may hang
CLEAR_SECONDS = 120.0  # a volume of many files takes its time
REST_MS = 500  # the runtime's delete waits so long for exitd to say that clients have their answers

T = TypeVar("T")


def _clearing() -> Aside:
    return Aside(limit_seconds=CLEAR_SECONDS, reserve=True)


def _sources() -> Aside:
    return Aside(SOURCES_AT_ONCE)


def _programs() -> Aside:
    return Aside(PROGRAMS_AT_ONCE, reserve=True)


@frozen
class Place:
    """Where this daemon keeps things, and the present time limits of its runtimes."""

    root: str
    state: str
    limits: Callable[[], Limits] = Limits
    making: Aside = field(default_factory=Aside)  # for what is read and mounted before a run
    filling: Aside = field(default_factory=Aside)  # the same where there are volumes, whose first fill takes long
    sources: Aside = field(default_factory=_sources)  # for looks at what callers have mounted by its path
    looking: Aside = field(default_factory=Aside)  # for what is read in running containers
    programs: Aside = field(default_factory=_programs)  # for looks at runtimes, and at what an init executes
    clearing: Aside = field(default_factory=_clearing)  # for what is removed after a run

    fill: volumes.Fill = lambda source_fd, into_fd: None  # a new volume, of what the image has there

    @property
    def runtime_seconds(self) -> float:
        """The limit of one command of a runtime, in seconds, as it is configured now."""
        return self.limits().runtime_seconds

    @property
    def create_seconds(self) -> float:
        """The limit of a runtime's create, in seconds, as it is configured now."""
        return self.limits().create_seconds


def runtime_root(container: Container, place: Place) -> str:
    """Return where the runtime keeps the state of the container's current run."""
    own = f"{rundir.path_of(place.state, container.id, container.run)}/{names.RUNTIME_ROOT}"
    return container.spec.runtime_root or own


def runtime_id(container: Container) -> str:
    """Return the runtime's name for the container: in a shared runtime root, the name that its other users know."""
    return container.spec.name if container.spec.runtime_root else container.id


async def at_runtime(container: Container, place: Place, work: Callable[[], T]) -> T:
    """Return what `work` returns, a look at the container's runtime, within the limit of a runtime command. Raises what
    it raises; TimedOut and Busy if a caller has named the path of the runtime."""
    return await place.programs.at(container.spec.runtime, work, place.runtime_seconds)


async def runtime_of(container: Container, place: Place, cgroup: str) -> runtime.Runtime:
    """Return the runtime of the container's current run. Raises RuntimeMissing; TimedOut and Busy if a caller has named
    its path."""
    named = container.spec.runtime_path or container.spec.runtime
    return runtime.Runtime(
        await at_runtime(container, place, lambda: runtime.resolve(named)),
        runtime_root(container, place),
        container.spec.runtime_options,
        systemd_cgroup=cgroups.is_scope(cgroup),
        create_options=container.spec.create_options,
    )


def encode(container: Container, own: bundle.Bundle, rt: runtime.Runtime, place: Place) -> bytes:
    """Encode the plan of the container's current run."""
    path = rundir.path_of(place.state, container.id, container.run)
    files = (f"{path}/{names.PID_FILE}", runtime_id(container), f"{path}/{names.RUNTIME_LOG}")
    create = rt.create(own.path, *files, console=plan.CONSOLE if container.spec.tty else "")
    wanted = plan.Plan(
        id=container.id,
        run=container.run,
        create=tuple(create),
        tty=container.spec.tty,
        remove=tuple(rt.delete(runtime_id(container))),
        pid_file=files[0],
        runtime_log=files[2],
        join=tuple(bundle.links(container, place.state).values()),
        cgroup=() if own.own_pids else cgroups.directories(own.cgroups_path)[: plan.CGROUPS_MAX],
        oom=cgroups.oom_counter_path(own.cgroups_path) or "",
        memcg=memcg(own.cgroups_path),
        keeper=f"{place.state}/{launch.SOCKET_NAME}",
        create_ms=int(place.create_seconds * 1000),
        drain_ms=DRAIN_MS,
        handled=not own.executes,
        rest_ms=REST_MS,
    )
    return plan.encode(with_foreign(with_log(wanted, container, place.root), container.spec.foreign))


def memcg(cgroups_path: str) -> str:
    """Return a scope's: systemd removes it, and its counter of memory kills, with its last process."""
    is_known = cgroups.is_scope(cgroups_path) and kmsg.has_the_logs_numbers()
    return f"/{cgroups.inside(cgroups_path)}" if is_known else ""


def drain_ms(foreign: ForeignStreams) -> int:
    """Return how long a shim waits for the end of the output, once the process has ended."""
    if foreign.logger:
        return LOGGER_DRAIN_MS
    return FOREIGN_DRAIN_MS if foreign.out or foreign.err else DRAIN_MS


def leaves_seconds(foreign: ForeignStreams) -> float:
    """Return the time after which its shim must have left once the process has ended."""
    return drain_ms(foreign) / 1000 + 1


def with_foreign(wanted: plan.Plan, foreign: ForeignStreams) -> plan.Plan:
    """Return the plan with the streams of a foreign client. They replace a logger program of the log, since only one of
    them gets a stream. The plan is in the run directory: a replacement shim reads it, and uses the same streams."""
    if foreign == ForeignStreams():
        return wanted
    wanted = replace(wanted, in_from=foreign.stdin, drain_ms=drain_ms(foreign))
    if foreign.logger:
        return replace(wanted, logger=foreign.logger, logger_env=foreign.logger_env)
    if foreign.out or foreign.err:
        return replace(wanted, sink_out=foreign.out, sink_err=foreign.err, logger=(), logger_env=())
    return wanted


def with_log(wanted: plan.Plan, container: Container, root: str) -> plan.Plan:
    """Return the plan with the output's log. Raises ShimFailed when the logger program is missing."""
    log, path = container.spec.log, bundle.log_path(root, container)
    said: dict[str, Any] = {"log_mode": log.mode.value, "buffer": log.buffer_bytes or plan.BUFFER_BYTES}
    if log.max_bytes:
        said |= {"log_bytes": log.max_bytes, "log_files": max(1, log.max_files)}
    match log.driver:
        case LogDriver.JSON_FILE:
            said["json_log"] = path
        case LogDriver.JOURNALD:
            said |= {"logger": (_journald(),), "logger_env": _journal_fields(container)}
        case LogDriver.CRI | None:
            said["log"] = path
    return replace(wanted, **said)


def _journald() -> str:
    try:
        return str(programs.find("exitd-journald"))
    except FileNotFoundError as error:
        raise ShimFailed(str(error)) from error


def _journal_fields(container: Container) -> tuple[str, ...]:
    """Return what the logger adds to every line."""
    return f"CONTAINER_ID={container.id}", f"CONTAINER_NAME={container.spec.name}"


def blame(own: bundle.Bundle, container: Container, status: launch.Failed | None, create_seconds: float) -> ExitdError:
    """Return why there is no init: by stage and errno, or by a look into the root; the runtime's messages are only
    quoted."""
    if status is None:
        return ShimFailed(f"exitd-shim of {container.id} died during create; try again")
    verb, words = f"{container.spec.runtime} create", runtime.last_error(status.text)
    if failure := blame_stage(verb, status, create_seconds):
        return failure
    wanted = bundle.command_in(own.document, container.spec.ids)
    return RuntimeFailed(f"{verb}: {words}") if wanted is None else command.blame(wanted, words)


def blame_stage(verb: str, status: launch.Failed, limit_seconds: float) -> ExitdError | None:
    """Return None if the runtime itself refused: then a look into the root says more."""
    if status.stage != "runtime":
        words = runtime.last_error(status.text)
        return RuntimeFailed(f"{verb}: {status.stage}: {os.strerror(status.errno)}. {words}")
    if status.errno == errno.ETIMEDOUT:
        return TimedOut(f"{verb} did not end in {limit_seconds:g} s")
    return None
