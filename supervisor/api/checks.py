"""Health checks between messages and facts. Pure."""

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api.values import bad, clean, timestamp
from supervisor.model.errors import BadRequest
from supervisor.model.health import Health, ProbeAnswer, ProbeResult
from supervisor.model.values import (
    MAX_NS,
    MIN_NS,
    RETRIES_MAX,
    Exited,
    HealthSpec,
    HealthStatus,
    OnUnhealthy,
    Signaled,
    Unknown,
)

ON_FAILURE = {each.value: each for each in OnUnhealthy if each is not OnUnhealthy.END}


def check_of(message: pb.HealthSpec, *, auto_remove: bool) -> HealthSpec:
    """Return the check that the caller asks for. Raises BadRequest."""
    for field in ("interval_ns", "timeout_ns", "start_period_ns"):
        value = getattr(message, field)
        if value and not MIN_NS <= value <= MAX_NS:
            raise bad(f"health.{field}", str(value), f"0 or {MIN_NS} (1 ms) to {MAX_NS} (a day)")
    if message.retries > RETRIES_MAX:
        raise bad("health.retries", str(message.retries), f"at most {RETRIES_MAX}")
    if len(message.args) > 1 and not message.args[0]:
        raise bad("health.args", "", "a command, or one empty word for no check")
    return HealthSpec(
        tuple(message.args),
        message.interval_ns,
        message.timeout_ns,
        message.retries,
        message.start_period_ns,
        _on_failure(message.on_failure, auto_remove),
    )


def _on_failure(word: str, auto_remove: bool) -> OnUnhealthy:
    try:
        action = ON_FAILURE[word or "none"]
    except KeyError as error:
        raise bad("health.on_failure", word, " or ".join(ON_FAILURE)) from error
    if action is OnUnhealthy.RESTART and auto_remove:
        raise BadRequest("health.on_failure restart and automatic removal exclude each other; drop one of them")
    return action


def check_message(spec: HealthSpec | None) -> pb.HealthSpec | None:
    """Return the message of a check, as `check_of` reads it."""
    if spec is None:
        return None
    return pb.HealthSpec(
        args=spec.args,
        interval_ns=spec.interval_ns,
        timeout_ns=spec.timeout_ns,
        retries=spec.retries,
        start_period_ns=spec.start_period_ns,
        on_failure=spec.on_failure.value,
    )


def health_message(status: HealthStatus | None, seen: Health | None) -> pb.Health | None:
    """Return the message of the stored status, with what this daemon has seen."""
    if status is None:
        return None
    if seen is None:
        return pb.Health(status=status.value)
    return pb.Health(status=status.value, failing_streak=seen.failing_streak, log=map(result_message, seen.log))


def result_message(result: ProbeResult) -> pb.HealthResult:
    message = pb.HealthResult(
        start=timestamp(result.start_ns),
        end=timestamp(result.end_ns),
        timed_out=result.timed_out,
        output=result.output,
    )
    match result.status:
        case Exited(code):
            message.MergeFrom(pb.HealthResult(kind="exited", code=code))
        case Signaled(number, _):
            message.MergeFrom(pb.HealthResult(kind="signaled", signal=number))
        case Unknown(cause, _):
            message.MergeFrom(pb.HealthResult(kind="unknown", cause=clean(cause)))
        case ProbeAnswer(good):
            message.kind = "passed" if good else "failed"
    return message
