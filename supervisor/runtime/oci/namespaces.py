"""The namespaces that members of a pod share, held by descriptors, since a path through a pid could become another's.

namespaces(7), proc_pid_ns(5).
"""

import contextlib
import os
from collections.abc import Iterator
from typing import Protocol

from supervisor.model.errors import WrongState
from supervisor.model.values import Process, Spec
from supervisor.monitor import epoll

FILES = {"network": "net", "ipc": "ipc", "uts": "uts", "pid": "pid"}  # the OCI configuration's name: the kernel's


def joined(spec: Spec) -> tuple[str, ...]:
    """Return what the container joins of its pod's pause container, in the OCI configuration's names; none without a
    pod."""
    if not spec.sandbox:
        return ()
    network = () if spec.network == "host" else ("network",)
    ipc = () if spec.ipc == "host" else ("ipc",)
    return (*network, *ipc, "uts", *(("pid",) if spec.pid == "pod" else ()))


def links(directory: str, kinds: tuple[str, ...]) -> dict[str, str]:
    """Return the paths at which the container's shim will link each namespace, and which its configuration names."""
    return {kind: f"{directory}/ns-{FILES[kind]}" for kind in kinds}


class PauseWatch(Protocol):
    """What is known of the run of a pause container. `init_fd` is below 0 while there is none."""

    @property
    def init(self) -> Process | None: ...
    @property
    def init_fd(self) -> int: ...


@contextlib.contextmanager
def opened(spec: Spec, pause: PauseWatch | None) -> Iterator[list[int]]:
    """A descriptor of each namespace that the container takes from its pod, for the length of the block; none without
    a pod. Raises WrongState when the run of the pause container that it was to join is over, or there was none."""
    kinds = joined(spec)
    if not kinds:
        yield []
        return
    if pause is None or pause.init is None or pause.init_fd < 0:
        raise WrongState(f"the pod {spec.sandbox[:12]} has no pause process to join; start it first")
    found = open_all(pause.init, pause.init_fd, kinds)
    try:
        yield found
    finally:
        for fd in found:
            os.close(fd)


def open_all(process: Process, pidfd: int, kinds: tuple[str, ...]) -> list[int]:
    """Return a descriptor for each namespace; the caller closes them. `pidfd` is of `process`. Raises WrongState when
    the process has ended.

    The pid can become another's only after the process has ended and been reaped. So if the process is alive after the
    last open, all descriptors are its own.
    """
    found: list[int] = []
    try:
        for kind in kinds:
            found.append(os.open(f"/proc/{process.pid}/ns/{FILES[kind]}", os.O_RDONLY))
        if epoll.read_ready(pidfd):
            raise ProcessLookupError
    except OSError as error:
        for fd in found:
            os.close(fd)
        raise WrongState("the pod's pause container has ended; start the pod again") from error
    return found


def network_of(state: str, container_id: str, run: int) -> str:
    """Return where the network namespace of a run is bound that exitd makes before the run."""
    return f"{state}/netns/{container_id}-{run}"


def users_of(network: str) -> str:
    """Return where the user namespace is bound to which this network namespace belongs."""
    return f"{network}.user"
