"""What a health check is: a command that is run in a container now and then, and what follows when it goes on failing.

The fields, their defaults and what they mean are docker's (Dockerfile reference, HEALTHCHECK); what follows is podman's
(podman-run(1), --health-on-failure).
"""

from dataclasses import dataclass
from enum import StrEnum

SECOND_NS = 10**9
INTERVAL_NS, TIMEOUT_NS, RETRIES = 30 * SECOND_NS, 30 * SECOND_NS, 3
MIN_NS, MAX_NS = 10**6, 86_400 * SECOND_NS  # of every time of a check: a millisecond to a day
RETRIES_MAX = 2**31 - 1
SHELL = ("/bin/sh", "-c")  # what runs a check that is a line of shell


class OnUnhealthy(StrEnum):
    """What becomes of a container that is unhealthy.

    kill: SIGKILL, then the restart policy has its say. stop: as a user's stop, it stays stopped. restart: stop, then
    the next run whatever the policy says, with the policy's back-off.
    """

    NONE = "none"
    KILL = "kill"
    RESTART = "restart"
    STOP = "stop"


class HealthStatus(StrEnum):
    STARTING = "starting"
    HEALTHY = "healthy"
    UNHEALTHY = "unhealthy"


@dataclass(frozen=True, slots=True)
class HealthSpec:
    """In a request no args mean the image's check, one empty word no check at all, and 0 what the image says, or else
    the default. In a container everything is filled in."""

    args: tuple[str, ...] = ()
    interval_ns: int = 0  # from the container's start, or the end of a probe, to the next probe
    timeout_ns: int = 0  # a probe that takes longer is ended and has failed
    retries: int = 0  # this many failures in a row make it unhealthy
    start_period_ns: int = 0  # failures do not count before the first success, or until this long after the start
    on_failure: OnUnhealthy = OnUnhealthy.NONE

    @property
    def is_off(self) -> bool:
        return self.args == ("",)
