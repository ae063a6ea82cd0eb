"""What the shim of a run is told to do, and what its failure means to the caller."""

import os
from collections.abc import Callable
from dataclasses import dataclass

from shim import launch, plan
from supervisor import rundir
from supervisor.config import Limits
from supervisor.errors import ExitdError, RuntimeFailed, ShimFailed, TimedOut
from supervisor.facts import Container
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


def encode(container: Container, own: bundle.Bundle, rt: runtime.Runtime, place: Place) -> bytes:
    """The plan of the container's current run."""
    path = rundir.path_of(place.state, container.id, container.run)
    create = rt.create(own.path, f"{path}/{rundir.PID_FILE}", container.id, f"{path}/{rundir.RUNTIME_LOG}")
    return plan.encode(
        plan.Plan(
            id=container.id,
            run=container.run,
            create=tuple(create),
            remove=tuple(rt.delete(container.id)),
            log=bundle.log_path(place.root, container.id),
            join=tuple(bundle.links(container, place.state).values()),
            oom=cgroups.oom_counter_path(own.cgroups_path) or "",
            keeper=f"{place.state}/{launch.SOCKET_NAME}",
            create_ms=int(place.create_seconds * 1000),
            drain_ms=DRAIN_MS,
            rest_ms=REST_MS,
        )
    )


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
