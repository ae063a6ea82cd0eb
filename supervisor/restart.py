"""What follows the end of a run, by docker's words and docker's back-off, as a pure function.

| policy | the next run begins when | not when |
|---|---|---|
| no | never | |
| always | the run ended; after a reboot even if a user had stopped it | a user stopped it |
| unless-stopped | the run ended; after a reboot | a user stopped it |
| on-failure[:n] | the run failed, at most n times in a row of restarts | code 0; a user stopped it |

An unknown end counts as a failure. The delay before the next run is 100 ms, doubled at each restart up to 60 s, and
100 ms again after a run of 10 s or longer. That long run does not give on-failure:n its retries back (as in docker);
a start by the user does: it clears `failures` and `delay_ns` of the container.
"""

from dataclasses import dataclass

from supervisor.errors import BadRequest
from supervisor.facts import LIVE, BootTime, Container, Exited, ExitStatus, Phase, Policy, RestartPolicy, Unknown

DELAY_MIN_NS = 100 * 10**6
DELAY_MAX_NS = 60 * 10**9
RESET_AFTER_NS = 10 * 10**9
RETRIES_MAX = 2**31 - 1
REBOOTED = "host-rebooted"


@dataclass(frozen=True, slots=True)
class Ended:
    """Nothing follows until somebody asks."""


@dataclass(frozen=True, slots=True)
class RemoveNow:
    """The container was to be removed once it ends."""


@dataclass(frozen=True, slots=True)
class RestartAt:
    """The next run begins at `at`, `delay_ns` from now; the two numbers go into the container for the next decision."""

    at: BootTime
    delay_ns: int
    failures: int


Decision = Ended | RestartAt | RemoveNow


def decide(container: Container, status: ExitStatus, now: BootTime, ran_ns: int | None) -> Decision:
    """What follows this end. `container` is as before the end; `ran_ns` is the run's length, None when not known."""
    if container.stopped_by_user or not _wants(container, status):
        return _no_more(container)
    long_run = ran_ns is not None and ran_ns >= RESET_AFTER_NS
    return _restart(container, status, now, DELAY_MIN_NS if long_run else _next_delay(container.delay_ns))


def after_reboot(container: Container, now: BootTime) -> Decision:
    """What follows a reboot of the host, under which every run ended. Back-off begins anew, retries do not."""
    status = _status_over_reboot(container)
    if status is None or (container.stopped_by_user and container.spec.restart.policy is not Policy.ALWAYS):
        return _no_more(container)
    if container.phase is not Phase.RESTARTING and not _wants(container, status):
        return _no_more(container)
    if container.phase is Phase.RESTARTING:  # decided and counted before the reboot; only the moment is new
        return RestartAt(BootTime(now.boot_id, now.ns + DELAY_MIN_NS), DELAY_MIN_NS, container.failures)
    return _restart(container, status, now, DELAY_MIN_NS)


def parse(text: str, *, auto_remove: bool = False) -> RestartPolicy:
    """no | always | on-failure[:n] | unless-stopped; empty means no. Raises BadRequest."""
    word, colon, number = text.partition(":")
    try:
        policy = Policy(word or "no")
    except ValueError as error:
        words = ", ".join(each.value for each in Policy)
        raise BadRequest(f"restart policy {word!r} does not exist; choose one of {words}") from error
    if colon and policy is not Policy.ON_FAILURE:
        raise BadRequest(f"restart policy {word} takes no number; only on-failure does")
    if auto_remove and policy is not Policy.NO:
        raise BadRequest(f"restart policy {word} and automatic removal exclude each other; drop one of them")
    return RestartPolicy(policy, _retries(number) if colon else 0)


def format(policy: RestartPolicy) -> str:
    """The text that `parse` reads."""
    limited = policy.policy is Policy.ON_FAILURE and policy.max_retries > 0
    return f"{policy.policy.value}:{policy.max_retries}" if limited else policy.policy.value


def _wants(container: Container, status: ExitStatus) -> bool:
    match container.spec.restart:
        case RestartPolicy(Policy.ALWAYS | Policy.UNLESS_STOPPED):
            return True
        case RestartPolicy(Policy.ON_FAILURE, limit):
            return _failed(status) and (limit == 0 or container.failures < limit)
    return False


def _failed(status: ExitStatus) -> bool:
    return status != Exited(0)


def _restart(container: Container, status: ExitStatus, now: BootTime, delay_ns: int) -> RestartAt:
    failures = container.failures + 1 if _failed(status) else 0
    return RestartAt(BootTime(now.boot_id, now.ns + delay_ns), delay_ns, failures)


def _next_delay(used_ns: int) -> int:
    return min(max(used_ns * 2, DELAY_MIN_NS), DELAY_MAX_NS)


def _no_more(container: Container) -> Decision:
    return RemoveNow() if container.spec.auto_remove else Ended()


def _status_over_reboot(container: Container) -> ExitStatus | None:
    """How the newest run ended; None for a container that was made and never started, which a reboot does not start."""
    if container.phase in LIVE and container.phase is not Phase.CREATED:
        return Unknown(REBOOTED)
    return container.exit.status if container.exit is not None else None


def _retries(number: str) -> int:
    if not (number.isascii() and number.isdigit() and len(number) <= 10 and int(number) <= RETRIES_MAX):
        raise BadRequest(f"on-failure:{number} is no number of retries; write on-failure:3, or on-failure for no limit")
    return int(number)
