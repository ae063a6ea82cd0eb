"""Converts --memory-reservation, --memory-swap, --cpu-shares, --cpuset-*, --oom-score-adj, --shm-size, --device and
--sysctl, in docker's words, to parts of a request."""

import os
from collections.abc import Iterable

from protos.exitd.v1 import exitd_pb2 as pb
from shim.frozen import frozen
from supervisor.cli import parse
from supervisor.model.errors import BadRequest
from supervisor.model.limits import NO_SWAP_LIMIT

MOST_SHARES = 2**32 - 1  # that a request can hold; the daemon knows the kernel's limits


@frozen
class LimitWords:
    """The options about limits and devices, literally."""

    memory_reservation: str = ""
    memory_swap: str = ""
    cpu_shares: int | None = None
    cpu_period: int | None = None
    cpu_quota: int | None = None
    cpuset_cpus: str = ""
    cpuset_mems: str = ""
    oom_score_adj: int | None = None
    shm_size: str = ""
    device: tuple[str, ...] = ()
    sysctl: tuple[str, ...] = ()


def limits_spec(words: LimitWords) -> pb.LimitsSpec | None:
    """Return None if no option was given. Raises BadRequest."""
    found = pb.LimitsSpec(
        memory_reservation_bytes=parse.size_of(
            f"--memory-reservation {words.memory_reservation}", words.memory_reservation
        ),
        memory_swap_bytes=_swap(words.memory_swap),
        cpu_shares=_shares(words.cpu_shares),
        cpuset_cpus=words.cpuset_cpus,
        cpuset_mems=words.cpuset_mems,
        oom_score_adj=words.oom_score_adj,
        shm_bytes=parse.size_of(f"--shm-size {words.shm_size}", words.shm_size),
    )
    return found if found.ListFields() else None


def cpu_limit_milli(cpus: str, words: LimitWords) -> int:
    """Return the thousandths of a CPU that --cpus names, or the share that is --cpu-quota in --cpu-period; 0 for no
    limit. Raises BadRequest."""
    if words.cpu_quota is None and words.cpu_period is None:
        return parse.cpus_milli(cpus) if cpus else 0
    if cpus:
        raise BadRequest("--cpus and --cpu-quota exclude each other: both are the limit of CPU time")
    if words.cpu_quota is None:
        raise BadRequest(f"--cpu-period {words.cpu_period}: means nothing without --cpu-quota; write --cpus")
    if words.cpu_quota <= 0:  # as with docker: no limit
        return 0
    period = 100_000 if not words.cpu_period else words.cpu_period
    if period < 0 or not (milli := words.cpu_quota * 1000 // period):
        raise BadRequest(f"--cpu-quota {words.cpu_quota}, --cpu-period {period}: no part of a CPU; write --cpus 0.5")
    return milli


def devices(words: Iterable[str]) -> list[pb.HostDevice]:
    """Return the devices of `SRC[:DST][:rwm]`. Raises BadRequest."""
    return [_device(word) for word in words]


def device_word(device: pb.HostDevice) -> dict[str, str]:
    """Return a device as `docker inspect` shows it."""
    return {"PathOnHost": device.source, "PathInContainer": device.path, "CgroupPermissions": device.access}


def _device(word: str) -> pb.HostDevice:
    source, *rest = word.split(":")
    access = rest.pop() if rest and not rest[-1].startswith("/") else None
    if not source or len(rest) > 1 or (access is not None and not (access and {*access} <= {*"rwm"})):
        raise BadRequest(f"--device {word}: write SRC[:DST][:rwm], as in /dev/fuse or /dev/sdc:/dev/xvdc:r")
    return pb.HostDevice(source=os.path.abspath(source), path=rest[0] if rest else "", access=access or "")


def _swap(text: str) -> int | None:
    """0 leaves it open, as with docker."""
    if text == str(NO_SWAP_LIMIT):
        return NO_SWAP_LIMIT
    return parse.size_of(f"--memory-swap {text}", text) or None


def _shares(number: int | None) -> int:
    if number is not None and not 0 <= number <= MOST_SHARES:
        raise BadRequest(f"--cpu-shares {number}: write a number from 2 to 262144")
    return number or 0
