"""exec: its options, its exit codes, its terminal."""

import signal
from pathlib import Path

import pytest

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.model import errors
from tests.supervisor.cli.conftest import Exitctl
from tests.supervisor.cli.fake_attach import LIMIT_SECONDS, Child, FakeAttach, Pty
from tests.supervisor.cli.fake_daemon import ID, FakeDaemon, exit_of

EXEC = "feed" * 16


def made_exec(request: pb.ExecRequest) -> pb.ExecReply:
    return pb.ExecReply(exec=pb.Exec(id=EXEC, container_id=ID, run=3, spec=request.spec, phase="running"))


def test_exec_asks_for_all_it_was_told(daemon: FakeDaemon, exitctl: Exitctl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINE", "1")
    daemon.answers.Exec = made_exec
    words = ("-d", "-i", "-t", "-e", "A=b", "--env", "MINE", "-u", "nobody", "-w", "/tmp", "--timeout", "1.5")
    outcome = exitctl("exec", *words, "web", "sh", "-c", "exit 1")
    assert (outcome.code, outcome.out, outcome.err) == (0, f"{EXEC}\n", "")
    request = daemon.asked_for(pb.ExecRequest)[0]
    spec = request.spec
    assert (request.id, list(spec.args), list(spec.env)) == ("web", ["sh", "-c", "exit 1"], ["A=b", "MINE=1"])
    assert (spec.user, spec.cwd, spec.timeout_seconds, spec.attach) == ("nobody", "/tmp", 1.5, False)
    assert spec.tty and spec.stdin and not daemon.asked_for(pb.AttachStart)


@pytest.mark.parametrize(
    ("exit_", "code", "reported"),
    [
        (exit_of(kind="exited", code=0), 0, ""),
        (exit_of(kind="exited", code=3), 3, ""),
        (exit_of(kind="signaled", signal=15, reason="kill"), 143, ""),
        (exit_of(kind="signaled", signal=9, reason="timeout"), 124, "the exec was ended by its timeout of 2 s"),
        (exit_of(kind="unknown", cause="monitors-killed"), 255, "how it ended is unknown: monitors-killed"),
    ],
)
def test_exec_exits_with_the_execs_own_code(
    daemon: FakeDaemon, attached: FakeAttach, exitctl: Exitctl, exit_: pb.Exit, code: int, reported: str
) -> None:
    daemon.answers.Exec = made_exec
    daemon.started.set()
    daemon.exit = exit_
    attached.say(stdout=b"out\n")
    attached.say(stderr=b"err\n")
    attached.end()
    outcome = exitctl("exec", "--timeout", "2", "web", "true")
    assert (outcome.code, outcome.out) == (code, "out\n")
    assert outcome.err == "err\n" + (f"exitctl: {reported}\n" if reported else "")
    start, wait = attached.starts[0], daemon.asked_for(pb.WaitRequest)[0]
    assert (start.id, start.exec_id, start.stdin, start.stderr, start.lossless) == (ID, EXEC, False, True, True)
    assert (wait.id, wait.exec_id, wait.run) == (ID, EXEC, 3)
    assert daemon.asked_for(pb.ExecRequest)[0].spec.attach


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.CommandNotFound("no such command: nope"), 127),
        (errors.CommandNotExecutable("/etc/passwd cannot be executed"), 126),
        (errors.WrongState("web is paused"), 125),
    ],
)
def test_an_exec_that_cannot_be_made_has_the_shells_number(
    daemon: FakeDaemon, exitctl: Exitctl, error: errors.ExitdError, code: int
) -> None:
    def refused(_: pb.ExecRequest) -> pb.ExecReply:
        raise error

    daemon.answers.Exec = refused
    outcome = exitctl("exec", "web", "nope")
    assert (outcome.code, outcome.err) == (code, f"exitctl: {error}\n")


def test_exec_on_a_terminal(daemon: FakeDaemon, attached: FakeAttach, pty: Pty, tmp_path: Path) -> None:
    daemon.answers.Exec = made_exec
    daemon.started.set()
    child = Child(tmp_path, "exec", "-it", "web", "sh", pty=pty)
    pty.until_raw()
    size = daemon.asked_for(pb.ExecRequest)[0].spec.size
    assert (size.rows, size.cols) == (24, 80)
    pty.type(b"\x10\x11")
    code, _, err = child.ended()
    assert (code, err) == (0, b"\nexitctl: detached, the exec goes on\n")
    assert pty.modes() == pty.before


def test_the_detach_keys_of_an_exec_can_be_chosen(
    daemon: FakeDaemon, attached: FakeAttach, pty: Pty, tmp_path: Path
) -> None:
    daemon.answers.Exec = made_exec
    daemon.started.set()
    child = Child(tmp_path, "exec", "-it", "--detach-keys", "a,ctrl-]", "web", "sh", pty=pty)
    pty.until_raw()
    pty.type(b"\x10\x11a")
    assert attached.typed(2) == b"\x10\x11"
    pty.type(b"\x1d")
    assert child.ended()[0] == 0


def test_a_signal_to_exec_goes_to_the_exec_and_the_end_of_its_input_too(
    daemon: FakeDaemon, attached: FakeAttach, tmp_path: Path
) -> None:
    daemon.answers.Exec = made_exec
    daemon.started.set()
    child = Child(tmp_path, "exec", "-i", "web", "cat")
    end = attached.asked.get(timeout=LIMIT_SECONDS)
    assert end is not None and end.close_stdin
    child.signal(signal.SIGINT)
    assert daemon.killed.wait(LIMIT_SECONDS)
    attached.end()
    assert child.ended()[0] == 7
    kill = daemon.asked_for(pb.KillRequest)[0]
    assert (kill.id, kill.exec_id, kill.signal) == (ID, EXEC, "2")
