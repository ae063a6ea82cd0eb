"""The namespaces that members of a pod share, held by descriptors, since a path through a pid could become another's.

namespaces(7), proc_pid_ns(5).
"""

import os

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
    return (*network, "ipc", "uts", *(("pid",) if spec.pid == "pod" else ()))


def links(directory: str, kinds: tuple[str, ...]) -> dict[str, str]:
    """Return the paths at which the container's shim will link each namespace, and which its configuration names."""
    return {kind: f"{directory}/ns-{FILES[kind]}" for kind in kinds}


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
