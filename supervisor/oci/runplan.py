"""What the shim of a run is told to do, and what its failure means to the caller."""

import os
from collections.abc import Callable
from dataclasses import dataclass, replace

from shim import launch, plan, programs
from supervisor import rundir
from supervisor.config import Limits
from supervisor.errors import ExitdError, RuntimeFailed, ShimFailed, TimedOut
from supervisor.facts import Container
from supervisor.logspecs import LogDriver
from supervisor.oci import bundle, cgroups, command, runtime

DRAIN_MS = 1_000
REST_MS = 6  # the runtime's delete would take the cores from those who are being told of the exit


@dataclass(frozen=True, slots=True)
class Place:
    """Where this daemon keeps things, and how long its runtimes may take at this moment."""

    root: str
    state: str
    limits: Callable[[], Limits] = Limits

    @property
    def runtime_seconds(self) -> float:
        return self.limits().runtime_seconds

    @property
    def create_seconds(self) -> float:
        return self.limits().create_seconds


def runtime_of(container: Container, place: Place, cgroup: str) -> runtime.Runtime:
    """The runtime of the container's current run."""
    path = rundir.path_of(place.state, container.id, container.run)
    return runtime.Runtime(
        runtime.resolve(container.spec.runtime_path or container.spec.runtime),
        f"{path}/{rundir.RUNTIME_ROOT}",
        container.spec.runtime_options,
        systemd_cgroup=cgroups.is_scope(cgroup),
    )


def encode(container: Container, own: bundle.Bundle, rt: runtime.Runtime, place: Place) -> bytes:
    """The plan of the container's current run."""
    path = rundir.path_of(place.state, container.id, container.run)
    files = (f"{path}/{rundir.PID_FILE}", container.id, f"{path}/{rundir.RUNTIME_LOG}")
    create = rt.create(own.path, *files, console=plan.CONSOLE if container.spec.tty else "")
    wanted = plan.Plan(
        id=container.id,
        run=container.run,
        create=tuple(create),
        tty=container.spec.tty,
        remove=tuple(rt.delete(container.id)),
        join=tuple(bundle.links(container, place.state).values()),
        oom=cgroups.oom_counter_path(own.cgroups_path) or "",
        keeper=f"{place.state}/{launch.SOCKET_NAME}",
        create_ms=int(place.create_seconds * 1000),
        drain_ms=DRAIN_MS,
        rest_ms=REST_MS,
    )
    return plan.encode(with_log(wanted, container, place.root))


def with_log(wanted: plan.Plan, container: Container, root: str) -> plan.Plan:
    """The plan with what becomes of the output. ShimFailed when the logger program is missing."""
    log, path = container.spec.log, bundle.log_path(root, container)
    wanted = replace(wanted, log_mode=log.mode.value, buffer=log.buffer_bytes or plan.BUFFER_BYTES)
    if log.max_bytes:
        wanted = replace(wanted, log_bytes=log.max_bytes, log_files=max(1, log.max_files))
    match log.driver:
        case LogDriver.JSON_FILE:
            return replace(wanted, json_log=path)
        case LogDriver.JOURNALD:
            return replace(wanted, logger=(_journald(),), logger_env=_journal_fields(container))
        case LogDriver.NONE:
            return wanted
    return replace(wanted, log=path)


def _journald() -> str:
    try:
        return str(programs.find("exitd-journald"))
    except FileNotFoundError as error:
        raise ShimFailed(str(error)) from error


def _journal_fields(container: Container) -> tuple[str, ...]:
    """What the logger puts beside every line."""
    return f"CONTAINER_ID={container.id}", f"CONTAINER_NAME={container.spec.name}"


def blame(own: bundle.Bundle, container: Container, status: launch.Failed | None, create_seconds: float) -> ExitdError:
    """Why there is no init: by stage and error number, or by a look into the root; never by the runtime's words, which
    are only quoted."""
    if status is None:
        return ShimFailed(f"exitd-shim of {container.id} died during create; try again")
    words = runtime.last_error(status.text)
    if status.stage == "runtime" and status.errno == 110:  # ETIMEDOUT
        return TimedOut(f"{container.spec.runtime} create did not end in {create_seconds:g} s")
    if status.stage != "runtime":
        return RuntimeFailed(f"{container.spec.runtime} create: {status.stage}: {os.strerror(status.errno)}. {words}")
    if own.command is None:
        return RuntimeFailed(f"{container.spec.runtime} create: {words}")
    return command.blame(own.command, words)
