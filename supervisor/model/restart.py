"""What follows the end of a run, by docker's words and docker's back-off, as a pure function.

| policy | the next run begins when | not when |
|---|---|---|
| no | never | |
| always | the run ended; after a reboot even if a user had stopped it | a user stopped it |
| unless-stopped | the run ended; after a reboot | a user stopped it |
| on-failure[:n] | the run failed, at most n times in a row of restarts | code 0; a user stopped it |

Rules by exit code stand before the policy, the first that fits decides: `exit in 42,43 => no`, `exit not in 0 =>
restart` (as in Kubernetes' KEP-5307). They speak of the folded number: the code, or 128 + signal.

A restart by a rule neither takes a retry from on-failure:n nor gives one back.

Before both stands a health check: one that says `restart` restarts what it has ended, and what one that says `stop`
has ended counts as stopped by a user.

The node's shutdown ends a run as its reboot does: nothing follows before the next boot, and then policy and rules see
an unknown end, whatever number the program has left.

An unknown end counts as a failure, and fits no rule. The delay before the next run is 100 ms, doubled at each restart
up to 60 s, and 100 ms again after a run of 10 s or longer (docker's numbers; the last two can be set). That long run
does not give on-failure:n its retries back (as in docker); a start by the user does: it clears `failures` and
`delay_ns` of the container.
"""

import re
from collections.abc import Iterable

from shim.frozen import frozen
from shim.patterns import LatePattern
from supervisor.model.errors import BadRequest
from supervisor.model.values import (
    LIVE,
    Action,
    BootTime,
    Container,
    Exited,
    ExitStatus,
    OnUnhealthy,
    Phase,
    Policy,
    Reason,
    RestartPolicy,
    RestartRule,
    Unknown,
    fold,
)

DELAY_MIN_NS = 100 * 10**6
RETRIES_MAX = 2**31 - 1
RULES_MAX = 20  # as in KEP-5307
REBOOTED = "host-rebooted"
MAX_NUMBER = 255
_RULE = LatePattern(
    r"exit\s+(?P<negated>not\s+)?in\s+(?P<numbers>\d{1,3}(\s*,\s*\d{1,3})*)\s*=>\s*(?P<action>no|restart)", re.ASCII
)


@frozen
class Backoff:
    """The delay before a restart: DELAY_MIN_NS, doubled each time up to `max_ns`; reset by a run of at least
    `reset_after_ns`."""

    max_ns: int = 60 * 10**9
    reset_after_ns: int = 10 * 10**9

    def after(self, used_ns: int, ran_ns: int | None) -> int:
        """Return the next delay in ns. `used_ns` is the previous one; `ran_ns` the length of the run, None if not
        known."""
        if ran_ns is not None and ran_ns >= self.reset_after_ns:
            return min(DELAY_MIN_NS, self.max_ns)
        return min(max(used_ns * 2, DELAY_MIN_NS), self.max_ns)


DOCKERS = Backoff()


@frozen
class RunEnded:
    """Nothing follows before a caller asks for it."""


@frozen
class RemoveNow:
    """The container is removed now: it was to be removed at its end."""


@frozen
class RestartAt:
    """The next run begins at `at`, `delay_ns` from now. Both numbers are kept in the container for the next
    decision."""

    at: BootTime
    delay_ns: int
    failures: int


Decision = RunEnded | RestartAt | RemoveNow


def decide(
    container: Container, status: ExitStatus, now: BootTime, ran_ns: int | None, backoff: Backoff = DOCKERS
) -> Decision:
    """Return what follows this end. `container` is as before the end; `ran_ns` is the run's length, None if not
    known."""
    if container.stopped_by_user or not _wants(container, status):
        return no_more(container)
    return _restart(container, status, now, backoff.after(container.delay_ns, ran_ns))


def by_health(container: Container, now: BootTime, ran_ns: int | None, backoff: Backoff = DOCKERS) -> Decision | None:
    """Return what follows when the health check has ended the run; None: the same as for any end. As a rule does, it
    comes before the policy and uses no retry."""
    if container.stopped_by_user or not _restarts_by_health(container):
        return None
    delay_ns = backoff.after(container.delay_ns, ran_ns)
    return RestartAt(now.later(delay_ns), delay_ns, container.failures)


def put_off(container: Container, now: BootTime, backoff: Backoff = DOCKERS) -> RestartAt | None:
    """Return when a planned run comes that the host did not take because it goes down; no further retry is used. None
    for a run that a caller has begun."""
    if container.stopped_by_user or not container.restart_count:
        return None
    delay_ns = backoff.after(container.delay_ns, None)
    return RestartAt(now.later(delay_ns), delay_ns, container.failures)


def after_reboot(container: Container, now: BootTime, backoff: Backoff = DOCKERS) -> Decision:
    """Return what follows a reboot of the host, which ends every run. Back-off begins anew, retries do not."""
    status = _status_over_reboot(container)
    if status is None or (container.stopped_by_user and container.spec.restart.policy is not Policy.ALWAYS):
        return no_more(container)
    if container.phase is not Phase.RESTARTING and not _wants(container, status):
        return no_more(container)
    delay_ns = backoff.after(0, None)
    if container.phase is Phase.RESTARTING:  # decided and counted before the reboot; only the time is new
        return RestartAt(now.later(delay_ns), delay_ns, container.failures)
    return _restart(container, status, now, delay_ns)


def parse(text: str, *, auto_remove: bool = False) -> RestartPolicy:
    """Parse no | always | on-failure[:n] | unless-stopped; empty means no. Raises BadRequest."""
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


def parse_rules(texts: Iterable[str], *, auto_remove: bool = False) -> tuple[RestartRule, ...]:
    """Parse rules of the form `exit [not] in N[,N...] => no|restart`. Raises BadRequest."""
    rules = tuple(map(_rule, texts))
    if len(rules) > RULES_MAX:
        raise BadRequest(f"{len(rules)} restart rules; at most {RULES_MAX} are taken: put numbers into one rule")
    if auto_remove and any(rule.action is Action.RESTART for rule in rules):
        raise BadRequest("a restart rule that restarts and automatic removal exclude each other; drop one of them")
    return rules


def format_rule(rule: RestartRule) -> str:
    """Return the text that `parse_rules` reads."""
    numbers = ",".join(map(str, rule.numbers))
    return f"exit {'not ' if rule.negated else ''}in {numbers} => {rule.action.value}"


def _rule(text: str) -> RestartRule:
    match = _RULE.fullmatch(text.strip())
    if not match:
        raise BadRequest(f"restart rule {text!r}: write 'exit in 42,43 => no' or 'exit not in 0 => restart'")
    numbers = tuple(int(number) for number in match["numbers"].replace(" ", "").split(","))
    if max(numbers) > MAX_NUMBER:
        raise BadRequest(f"restart rule {text!r}: exit codes are 0 to {MAX_NUMBER}")
    return RestartRule(numbers, Action(match["action"]), bool(match["negated"]))


def format(policy: RestartPolicy) -> str:
    """Return the text that `parse` reads."""
    limited = policy.policy is Policy.ON_FAILURE and policy.max_retries > 0
    return f"{policy.policy.value}:{policy.max_retries}" if limited else policy.policy.value


def _restarts_by_health(container: Container) -> bool:
    return container.spec.health is not None and container.spec.health.on_failure is OnUnhealthy.RESTART


def wants_revival(container: Container) -> bool:
    """Return whether rules and policy would have restarted an ended member if its sandbox had still been there.

    A member that ended with its sandbox has no exit code of its own and used no retry: only the kind of policy counts.
    """
    last = container.exit
    if container.phase is not Phase.EXITED or container.stopped_by_user or last is None:
        return False
    if container.run > last.key.run:  # the newest run could not be made
        return _wants(container, Unknown(container.error))
    if last.started_ns is None and last.key.run == 1:  # made, but not started by a caller; later runs are made to start
        return False
    if last.reason is Reason.PAUSE_EXIT:
        always = container.spec.restart.policy in (Policy.ALWAYS, Policy.UNLESS_STOPPED)
        return always or (container.spec.restart.policy is Policy.ON_FAILURE and _failed(last.status))
    if last.reason is Reason.NODE_SHUTDOWN:
        return _wants(container, Unknown(REBOOTED))
    if last.reason is Reason.HEALTH and _restarts_by_health(container):
        return True
    return _wants(container, last.status)


def rule_for(rules: Iterable[RestartRule], status: ExitStatus) -> RestartRule | None:
    """Return the first rule that fits. Rules are about numbers, so none fits an unknown end."""
    if isinstance(status, Unknown):
        return None
    return next((rule for rule in rules if (fold(status) in rule.numbers) is not rule.negated), None)


def _wants(container: Container, status: ExitStatus) -> bool:
    rule = rule_for(container.spec.restart_rules, status)
    if rule is not None:
        return rule.action is Action.RESTART
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
    if rule_for(container.spec.restart_rules, status) is not None:
        failures = container.failures
    return RestartAt(now.later(delay_ns), delay_ns, failures)


def no_more(container: Container) -> Decision:
    """Return the decision that no further run begins by itself."""
    return RemoveNow() if container.spec.auto_remove else RunEnded()


def _status_over_reboot(container: Container) -> ExitStatus | None:
    """Return how the newest run ended; None for a container that was never started, which a reboot does not start."""
    if container.phase in LIVE and container.phase is not Phase.CREATED:
        return Unknown(REBOOTED)
    last = container.exit
    if last is not None and last.reason is Reason.NODE_SHUTDOWN and last.key.run == container.run:
        return Unknown(REBOOTED) if last.started_ns is not None else None
    return last.status if last is not None else None


def _retries(number: str) -> int:
    if not (number.isascii() and number.isdigit() and len(number) <= 10 and int(number) <= RETRIES_MAX):
        raise BadRequest(f"on-failure:{number} is no number of retries; write on-failure:3, or on-failure for no limit")
    return int(number)
