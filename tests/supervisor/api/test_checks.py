"""Health checks between messages and facts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api import checks, requests
from supervisor.model import values as of_facts
from supervisor.model.errors import BadRequest
from supervisor.model.health import Health, ProbeResult
from supervisor.model.values import Exited, HealthSpec, HealthStatus, OnUnhealthy, Signaled, Spec, Unknown

NS = st.just(0) | st.integers(of_facts.MIN_NS, of_facts.MAX_NS)
SPECS = st.builds(
    HealthSpec,
    st.just(("",)) | st.just(()) | st.lists(st.text(max_size=3).filter(bool), max_size=3).map(tuple),
    NS,
    NS,
    st.integers(0, of_facts.RETRIES_MAX),
    NS,
    st.sampled_from([each for each in OnUnhealthy if each is not OnUnhealthy.END]),
)


@given(SPECS)
def test_a_check_comes_back_as_it_went(spec: HealthSpec) -> None:
    message = checks.check_message(spec)
    assert message is not None
    wire = pb.HealthSpec.FromString(message.SerializeToString())
    assert checks.check_of(wire, auto_remove=False) == spec


def spec_of(**fields: object) -> Spec:
    health = pb.HealthSpec(**fields)  # type: ignore[arg-type]
    return requests.spec_of(pb.ContainerSpec(rootfs="/", args=["a"], health=health))


def test_the_check_of_a_request_arrives_and_none_is_none() -> None:
    assert spec_of(args=["true"], on_failure="kill").health == HealthSpec(("true",), on_failure=OnUnhealthy.KILL)
    assert requests.spec_of(pb.ContainerSpec(rootfs="/", args=["a"])).health is None


@pytest.mark.parametrize(
    ("field", "fields"),
    [
        ("health.interval_ns", {"interval_ns": 999_999}),
        ("health.timeout_ns", {"timeout_ns": 86_400 * 10**9 + 1}),
        ("health.start_period_ns", {"start_period_ns": 2**63}),
        ("health.retries", {"retries": 2**31}),
        ("health.args", {"args": ["", "x"]}),
        ("health.on_failure", {"on_failure": "explode"}),
    ],
)
def test_these_are_refused_by_the_name_of_the_field(field: str, fields: dict[str, object]) -> None:
    with pytest.raises(BadRequest) as caught:
        spec_of(**fields)
    assert caught.value.metadata["field"] == field


def test_a_restart_of_what_is_to_be_removed_is_refused() -> None:
    for word in ("none", "kill", "stop"):
        checks.check_of(pb.HealthSpec(on_failure=word), auto_remove=True)
    with pytest.raises(BadRequest, match="exclude each other"):
        checks.check_of(pb.HealthSpec(on_failure="restart"), auto_remove=True)


def test_health_is_what_is_stored_and_the_results_are_what_this_daemon_has_seen() -> None:
    assert checks.health_message(None, None) is None
    stored = checks.health_message(HealthStatus.HEALTHY, None)
    assert stored == pb.Health(status="healthy")
    log = (
        ProbeResult(10**9 + 1, 2 * 10**9, Exited(0), b"\xff"),
        ProbeResult(1, 2, Signaled(9), timed_out=True),
        ProbeResult(1, 2, Unknown("\udcff")),
    )
    seen = Health(HealthSpec(("a",)), 0, 0, HealthStatus.STARTING, 7, log=log)
    message = checks.health_message(HealthStatus.UNHEALTHY, seen)
    assert message is not None
    assert (message.status, message.failing_streak) == ("unhealthy", 7)
    first, second, third = message.log
    assert (first.start.seconds, first.start.nanos, first.end.seconds, first.output) == (1, 1, 2, b"\xff")
    assert (first.kind, first.code, first.HasField("signal"), first.timed_out) == ("exited", 0, False, False)
    assert (second.kind, second.signal, second.HasField("code"), second.timed_out) == ("signaled", 9, False, True)
    assert (third.kind, third.cause) == ("unknown", "?")
