"""`node-shutdown`: what it asks for, and that it asks for nothing while the host stays up."""

from pathlib import Path

import pytest

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.runtime import hoststate
from tests.supervisor.cli.conftest import Exitctl
from tests.supervisor.cli.fake_daemon import FakeDaemon


@pytest.fixture(autouse=True)
def answer(daemon: FakeDaemon) -> None:
    daemon.answers.ShutDownNode = lambda _: pb.ShutDownNodeReply(ended=["c1", "c2"])


def systemctl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/systemctl").write_text(f"#!/bin/sh\n{script}\n")
    (tmp_path / "bin/systemctl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")


def test_all_are_stopped_within_the_time_given(daemon: FakeDaemon, exitctl: Exitctl) -> None:
    outcome = exitctl("node-shutdown", "--time", "20")
    assert (outcome.code, outcome.out, outcome.err) == (0, "2 containers have ended\n", "")
    assert [request.limit_seconds for request in daemon.asked_for(pb.ShutDownNodeRequest)] == [20]


def test_what_lives_on_is_named_and_the_command_fails(daemon: FakeDaemon, exitctl: Exitctl) -> None:
    daemon.answers.ShutDownNode = lambda _: pb.ShutDownNodeReply(ended=["c1"], left=["c2"])
    outcome = exitctl("node-shutdown")
    assert (outcome.code, outcome.err) == (1, "exitctl: c2 has not ended in 30 s\n")


@pytest.mark.parametrize(
    ("script", "asked"),
    [
        ('[ "$*" = is-system-running ] && echo stopping; exit 1', 1),
        ("echo running", 0),
        ("echo degraded; exit 1", 0),
        ("echo offline; exit 1", 0),
        ("exit 1", 0),
    ],
)
def test_if_it_must_be_stopping_nothing_is_stopped_in_any_other_state(
    daemon: FakeDaemon,
    exitctl: Exitctl,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    script: str,
    asked: int,
) -> None:
    systemctl(tmp_path, monkeypatch, script)
    outcome = exitctl("node-shutdown", "--if-stopping")
    assert (outcome.code, len(daemon.asked_for(pb.ShutDownNodeRequest))) == (0, asked)
    assert ("containers live on" in outcome.out) is not bool(asked)


def test_a_systemctl_that_hangs_or_is_not_there_is_no_shutdown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hoststate, "ANSWER_SECONDS", 0.05)
    systemctl(tmp_path, monkeypatch, "exec sleep 60")
    assert hoststate.system_state() == ""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert hoststate.system_state() == ""
