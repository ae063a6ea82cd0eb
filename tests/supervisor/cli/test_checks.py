"""Health checks on the command line: what is asked for, and what is shown."""

import json

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.cli import shape, spoken
from supervisor.cli.checks import CheckWords, check_spec
from supervisor.model.errors import BadRequest
from tests.supervisor.cli.conftest import Exitctl
from tests.supervisor.cli.fake_daemon import FakeDaemon

AT = Timestamp(seconds=1_700_000_000)
SECOND = 10**9


@pytest.mark.parametrize(
    ("text", "args"),
    [
        ("curl -f x | grep y", ["/bin/sh", "-c", "curl -f x | grep y"]),
        ('["curl", "-f x"]', ["curl", "-f x"]),
        ("[ -e /ready ]", ["/bin/sh", "-c", "[ -e /ready ]"]),
        ('["curl", 1]', ["/bin/sh", "-c", '["curl", 1]']),
        ("[]", ["/bin/sh", "-c", "[]"]),
        ("", []),
    ],
)
def test_a_check_is_a_line_for_the_shell_or_a_json_list_of_words(text: str, args: list[str]) -> None:
    message = check_spec(CheckWords(text, health_retries="1"))
    assert message is not None and list(message.args) == args


def test_without_any_word_the_image_decides() -> None:
    assert check_spec(CheckWords()) is None


@pytest.mark.parametrize("words", [CheckWords(no_healthcheck=True), CheckWords("none")])
def test_a_check_can_be_switched_off(words: CheckWords) -> None:
    assert check_spec(words) == pb.HealthSpec(args=[""])


@pytest.mark.parametrize(
    "words",
    [
        CheckWords("true", no_healthcheck=True),
        CheckWords("none", health_retries="3"),
        CheckWords(health_interval="5 minutes"),
        CheckWords(health_timeout="-1"),
        CheckWords(health_start_period="soon"),
        CheckWords(health_retries="0"),
        CheckWords(health_retries="-1"),
        CheckWords(health_retries="many"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_the_option(words: CheckWords) -> None:
    with pytest.raises(BadRequest, match=r"--(no-)?health"):
        check_spec(words)


def test_every_option_reaches_the_daemon(daemon: FakeDaemon, exitctl: Exitctl) -> None:
    words = ["--health-cmd", "true", "--health-interval", "5s", "--health-timeout=1m30s", "--health-retries=4"]
    words += ["--health-start-period", "0.5s", "--health-on-failure", "restart"]
    assert exitctl("create", *words, "--rootfs", "/", "sh").code == 0
    assert exitctl("run", "-d", "--no-healthcheck", "--rootfs", "/", "sh").code == 0
    first, second = (request.spec.health for request in daemon.asked_for(pb.CreateContainerRequest))
    assert first == pb.HealthSpec(
        args=["/bin/sh", "-c", "true"],
        interval_ns=5 * SECOND,
        timeout_ns=90 * SECOND,
        retries=4,
        start_period_ns=SECOND // 2,
        on_failure="restart",
    )
    assert second == pb.HealthSpec(args=[""])


def container(status: str = "", phase: pb.Phase = pb.PHASE_RUNNING) -> pb.Container:
    made = pb.Container(id="c" * 64, phase=phase, run=1, created_at=AT, started_at=AT)
    if status:
        made.health.CopyFrom(pb.Health(status=status, failing_streak=2))
    return made


@pytest.mark.parametrize(
    ("status", "text"),
    [
        ("", "Up 5 minutes"),
        ("starting", "Up 5 minutes (health: starting)"),
        ("healthy", "Up 5 minutes (healthy)"),
        ("unhealthy", "Up 5 minutes (unhealthy)"),
    ],
)
def test_ps_says_the_health_of_what_runs(status: str, text: str) -> None:
    assert spoken.status(container(status), (1_700_000_000 + 300) * SECOND) == text


def test_ps_of_what_is_paused_says_just_that() -> None:
    assert spoken.status(container("healthy", pb.PHASE_PAUSED), 1_700_000_000 * SECOND).endswith("(Paused)")


def test_inspect_has_the_check_and_its_results_in_dockers_shape() -> None:
    made = container("unhealthy")
    made.spec.health.CopyFrom(pb.HealthSpec(args=["a", "b"], interval_ns=1, timeout_ns=2, retries=3, start_period_ns=4))
    made.spec.health.on_failure = "stop"
    made.health.log.add(start=AT, end=AT, kind="exited", code=1, output=b"no\xff")
    made.health.log.add(start=AT, end=AT, kind="signaled", signal=9, timed_out=True)
    made.health.log.add(start=AT, end=AT, kind="unknown", cause="gone")
    document = json.loads(json.dumps(shape.container_document(made)))
    assert document["Config"]["Healthcheck"] == {
        "Test": ["CMD", "a", "b"],
        "Interval": 1,
        "Timeout": 2,
        "StartPeriod": 4,
        "Retries": 3,
        "OnFailure": "stop",
    }
    health = document["State"]["Health"]
    assert (health["Status"], health["FailingStreak"]) == ("unhealthy", 2)
    assert [each["ExitCode"] for each in health["Log"]] == [1, 137, 255]
    assert health["Log"][0]["Output"] == "no\N{REPLACEMENT CHARACTER}"
    assert health["Log"][0]["Start"] == "2023-11-14T22:13:20Z"
    assert [each["TimedOut"] for each in health["Log"]] == [False, True, False]
    assert health["Log"][2]["Exit"] == {"Kind": "unknown", "Code": None, "Signal": None, "Cause": "gone"}


def test_inspect_of_what_has_no_check_has_none() -> None:
    document = shape.container_document(container())
    assert document["State"]["Health"] is None and document["Config"]["Healthcheck"] is None  # type: ignore[index]
