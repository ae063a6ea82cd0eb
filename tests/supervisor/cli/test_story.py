"""supervisor/cli/story.py: one end in plain sentences."""

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.cli import story
from supervisor.model.values import Reason, Source

START = Timestamp(seconds=1_700_000_000)
AT = Timestamp(seconds=1_700_000_004)


def exit_of(**fields: object) -> pb.Exit:
    base = pb.Exit(name="web", run=2, source="record", reason="self", at=AT, started_at=START, decision="ended")
    base.MergeFrom(pb.Exit(**fields))  # type: ignore[arg-type]
    return base


def test_a_code_is_reported_with_witness_time_and_policy() -> None:
    text = story.of(exit_of(kind="exited", code=7), pb.Container(run=2), ["one", "two"])
    assert text.startswith("web, run 2, exited 7.\n")
    assert "Its shim, the parent process" in text
    assert "4 s after its start" in text
    assert "No client asked for it" in text
    assert "It has no restart policy: nothing starts it again." in text
    assert text.endswith("    | one\n    | two\n")


def test_an_oom_kill_names_the_victim_and_the_limit() -> None:
    text = story.of(
        exit_of(kind="signaled", signal=9, reason="oom", oom=pb.Oom(init=True, kills=1, limit_bytes=64 << 20)), None, []
    )
    assert "signal 9 (SIGKILL)" in text
    assert "because the memory limit was reached" in text
    assert "main process" in text
    assert "64 MiB" in text


def test_no_limit_is_said_to_be_reached_where_none_is_known() -> None:
    killed = exit_of(kind="signaled", signal=9, reason="oom", oom=pb.Oom(init=True, kills=1))
    text = story.of(killed, None, [])
    assert "limit was reached" not in text
    assert "The kernel killed it because memory had run out." in text


def test_a_killed_child_is_not_reported_as_the_main_process() -> None:
    text = story.of(exit_of(kind="exited", code=0, oom=pb.Oom(kills=2)), None, [])
    assert "2 other processes of it killed, not the main one" in text


def test_of_an_unknown_end_nobody_says_which_process_the_memory_kill_hit() -> None:
    unknown = {"kind": "unknown", "cause": "shim-number-only", "number": 137, "oom": pb.Oom(kills=1)}
    text = story.of(exit_of(reason="oom", **unknown), None, [])
    assert "137 is the number of the signal that the kernel sends for that" in text
    assert "one process of it killed; whether the main one was among them is not known" in text


def test_the_caller_is_named_by_uid_and_pid() -> None:
    text = story.of(exit_of(kind="signaled", signal=15, reason="stop", by=pb.By(uid=0, pid=99)), None, [])
    assert "It was asked to stop, by user 0 in process 99." in text


def test_an_unknown_end_says_why_and_that_its_number_proves_nothing() -> None:
    text = story.of(exit_of(kind="unknown", cause="monitors-killed", number=137, source="none"), None, [])
    assert "how is unknown" in text
    assert "137 was seen, which proves nothing" in text
    assert "was found ended" in text


def test_an_end_that_was_only_found_is_not_dated_as_if_it_had_been_seen() -> None:
    found = exit_of(kind="exited", code=7, source="pidfd", at_is_found=True)
    assert "It was found ended at 2023" in story.of(found, None, [])
    assert "It ended at 2023" in story.of(exit_of(kind="exited", code=7, source="pidfd"), None, [])


@pytest.mark.parametrize(("count", "who"), [(1, "One process"), (2, "2 processes")])
def test_whom_nobody_could_kill_is_part_of_the_story(count: int, who: str) -> None:
    text = story.of(exit_of(kind="exited", code=0, left_behind=count), None, [])
    assert f"{who} that it left in its cgroup had not died half a second after SIGKILL" in text
    assert "left in its cgroup" not in story.of(exit_of(kind="exited", code=0), None, [])


def test_a_code_above_128_is_not_mistaken_for_a_signal() -> None:
    assert "its own code, not a signal" in story.of(exit_of(kind="exited", code=137), None, [])


@pytest.mark.parametrize("source", list(Source))
def test_every_source_is_explained(source: Source) -> None:
    assert story.WITNESSES[source] in story.of(exit_of(kind="exited", code=0, source=str(source)), None, [])


@pytest.mark.parametrize("reason", list(Reason))
def test_every_reason_is_explained(reason: Reason) -> None:
    assert reason in story.REASONS


def test_words_from_a_newer_daemon_are_reported_as_they_are() -> None:
    text = story.of(exit_of(kind="melted", source="oracle", reason="boredom", decision="frame"), None, [])
    assert "oracle" in text and "boredom" in text and "frame" in text


def test_a_coming_restart_is_reported_with_its_time() -> None:
    waiting = pb.Container(run=2, phase=pb.PHASE_RESTARTING, restart_at=AT, spec=pb.ContainerSpec(restart="always"))
    text = story.of(exit_of(kind="exited", code=1, decision="restart"), waiting, [])
    assert "The restart policy (always) starts it again." in text
    assert "Run 3 is due at" in text


def test_a_rule_that_decided_is_named_and_not_the_policy() -> None:
    container = pb.Container(run=2, spec=pb.ContainerSpec(restart="always"))
    text = story.of(exit_of(kind="exited", code=42, rule="exit in 42 => no"), container, [])
    assert "The restart rule 'exit in 42 => no' does not start it again." in text and "policy" not in text
    text = story.of(exit_of(kind="exited", code=42, rule="exit in 42 => restart", decision="restart"), None, [])
    assert "The restart rule 'exit in 42 => restart' starts it again." in text


@pytest.mark.parametrize(
    ("on_failure", "decision", "words"),
    [
        ("restart", "restart", "The health check (on failure restart) starts it again."),
        ("stop", "ended", "The health check (on failure stop) does not start it again."),
        ("kill", "restart", "The restart policy (always) starts it again."),
    ],
)
def test_a_health_check_that_decided_is_named_and_not_the_policy(on_failure: str, decision: str, words: str) -> None:
    spec = pb.ContainerSpec(restart="always", health=pb.HealthSpec(on_failure=on_failure))
    ended = exit_of(kind="exited", code=0, reason="health", by=pb.By(policy="health"), decision=decision)
    text = story.of(ended, pb.Container(run=2, spec=spec), [])
    assert words in text
    assert "exitd ended it because its health check had failed.\n" in text


def test_log_lines_cannot_steer_the_terminal() -> None:
    assert "\x1b" not in story.of(exit_of(kind="exited", code=0), None, ["\x1b[2J"])


def test_a_container_without_an_end_says_so() -> None:
    waiting = pb.Container(phase=pb.PHASE_CREATED, spec=pb.ContainerSpec(name="web"), error="boom")
    assert story.not_ended(waiting, 0) == "web has not ended yet (Created). Its last error: boom.\n"


def test_what_is_only_watched_has_no_shim_and_was_not_removed() -> None:
    watched = pb.Exit(container_id="c0ffee@/run/runc", name="web", run=1, kind="exited", code=7, source="pidfd", at=AT)
    text = story.of(watched, None, [])
    assert text.startswith("web (c0ffee@/run/runc), run 1, exited 7.\n")
    assert "exitd only watched it: the kernel itself reported" in text
    assert "Shim" not in text and "removed" not in text
    away = pb.Exit(container_id="c0ffee@/run/runc", kind="unknown", cause="watcher-away", source="none", at=AT)
    assert "exitd was not running when it ended" in story.of(away, None, [])


def test_a_policy_whose_restarts_are_used_up_gave_up() -> None:
    child = pb.Container(run=2, restart_count=2, spec=pb.ContainerSpec(restart="on-failure:2"))
    assert "The restart policy (on-failure:2) gave up after 2 restarts." in story.of(
        exit_of(kind="exited", code=1), child, []
    )
    assert "gave up" not in story.of(exit_of(kind="exited", code=0), child, [])
    assert "gave up" not in story.of(exit_of(kind="signaled", signal=15, reason="stop"), child, [])


@pytest.mark.parametrize(
    ("policy", "end", "words"),
    [
        ("on-failure:2", {"code": 0}, "The restart policy (on-failure:2) does not start again what exited 0."),
        ("on-failure", {"code": 1}, "The restart policy (on-failure) does not start it again."),
        ("always", {"code": 1, "reason": "stop"}, "(always) does not start again what was stopped on request."),
        ("always", {"code": 1, "reason": "node-shutdown"}, "(always) starts nothing again before the next boot."),
        ("no", {"code": 1, "reason": "kill"}, "It has no restart policy: nothing starts it again."),
    ],
)
def test_why_nothing_follows_is_said_in_plain_words(policy: str, end: dict[str, object], words: str) -> None:
    container = pb.Container(run=2, spec=pb.ContainerSpec(restart=policy))
    assert words in story.of(exit_of(kind="exited", **end), container, [])


def test_of_a_removed_container_no_policy_is_made_up() -> None:
    text = story.of(exit_of(kind="exited", code=1), None, [])
    assert "It was not started again." in text and "policy" not in text
    assert "The restart policy starts it again." in story.of(
        exit_of(kind="exited", code=1, decision="restart"), None, []
    )


@pytest.mark.parametrize(
    ("reason", "policy", "words"),
    [
        ("pause-exit", "pause-exit", "exitd stopped it because the pause container of its pod had ended.\n"),
        ("node-shutdown", "node-shutdown", "exitd stopped it because the node was shutting down.\n"),
        ("timeout", "timeout", "exitd killed it because its time limit had passed.\n"),
        ("stop", "last-member", "It was asked to stop, by exitd: the last member of its pod had ended.\n"),
        ("stop", "quite-new", "It was asked to stop, by exitd's rule quite-new.\n"),
    ],
)
def test_what_exitd_asked_for_itself_has_its_cause(reason: str, policy: str, words: str) -> None:
    assert words in story.of(exit_of(kind="signaled", signal=9, reason=reason, by=pb.By(policy=policy)), None, [])


def test_one_restart_is_one() -> None:
    child = pb.Container(run=2, restart_count=1, spec=pb.ContainerSpec(restart="on-failure:1"))
    assert "gave up after 1 restart." in story.of(exit_of(kind="exited", code=1), child, [])


def test_a_policy_that_says_more_than_the_reason_is_named_instead() -> None:
    for reason, policy, words in (
        ("health", "liveness-probe", "its liveness probe had failed too often"),
        ("health", "startup-probe", "its startup probe had failed too often"),
        ("health", "post-start", "its postStart hook had failed"),
        ("timeout", "active-deadline", "the time of its pod (activeDeadlineSeconds) was over"),
    ):
        ended = exit_of(kind="exited", code=0, reason=reason, by=pb.By(policy=policy))
        assert f"exitd ended it because {words}.\n" in story.of(ended, None, [])
