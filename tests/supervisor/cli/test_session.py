"""run -i and -t from the terminal's side: exitctl on a real terminal, the daemon's side played."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.model import errors
from tests.supervisor.cli.conftest import Exitctl
from tests.supervisor.cli.fake_attach import LIMIT_SECONDS, Child, FakeAttach, Pty
from tests.supervisor.cli.fake_daemon import ID, FakeDaemon

RUN_IT = ("run", "-it", "--rootfs", "/", "sh")


# -- run -it


def test_every_key_goes_to_the_container_and_its_output_comes_as_it_is(
    daemon: FakeDaemon, attached: FakeAttach, pty: Pty, tmp_path: Path
) -> None:
    child = Child(tmp_path, *RUN_IT, pty=pty)
    pty.until_raw()
    pty.type(b"ls\r\x03\x1a\x04\x10x")
    assert attached.typed(8) == b"ls\r\x03\x1a\x04\x10x"
    attached.say(stdout=b"a\nb\r\n\x1b[1m")
    assert pty.shows(b"a\nb\r\n\x1b[1m")
    attached.end()
    assert child.ended() == (7, b"", b"")
    assert pty.modes() == pty.before
    assert not daemon.asked_for(pb.LogsRequest)


def test_it_is_attached_before_the_start_losing_nothing_with_the_size_of_the_terminal(
    daemon: FakeDaemon, attached: FakeAttach, pty: Pty, tmp_path: Path
) -> None:
    pty.resize(30, 100)
    child = Child(tmp_path, *RUN_IT, pty=pty)
    pty.until_raw()
    start = attached.starts[0]
    assert (start.id, start.stdin, start.stdout, start.stderr, start.lossless) == (ID, True, True, False, True)
    assert (start.size.rows, start.size.cols) == (30, 100)
    kinds = [type(request) for request in daemon.asked if not isinstance(request, pb.CreateContainerRequest)]
    assert kinds.index(pb.StartRequest) == len(kinds) - 1  # Wait and Attach were there before
    attached.end()
    assert child.ended()[0] == 7


def test_the_containers_terminal_follows_the_size_of_ours(
    daemon: FakeDaemon, attached: FakeAttach, pty: Pty, tmp_path: Path
) -> None:
    reported: list[tuple[int, int]] = []

    def resized(request: pb.ResizePtyRequest) -> pb.ResizePtyReply:
        reported.append((request.size.rows, request.size.cols))
        attached.end()
        return pb.ResizePtyReply()

    daemon.answers.ResizePty = resized
    child = Child(tmp_path, *RUN_IT, pty=pty)
    pty.until_raw()
    pty.resize(50, 132)
    child.signal(signal.SIGWINCH)
    assert child.ended()[0] == 7
    assert reported == [(50, 132)]


def test_the_detach_keys_leave_it_running_with_code_0_and_a_hint(
    daemon: FakeDaemon, attached: FakeAttach, pty: Pty, tmp_path: Path
) -> None:
    child = Child(tmp_path, *RUN_IT, pty=pty)
    pty.until_raw()
    pty.type(b"x\x10")
    assert attached.typed(1) == b"x"
    pty.type(b"\x11")
    hint = f"\nexitctl: detached, the container goes on; again: exitctl attach {ID[:12]}\n"
    assert child.ended() == (0, b"", hint.encode())
    assert pty.modes() == pty.before
    assert not daemon.asked_for(pb.KillRequest)


def test_detach_keys_can_be_chosen_and_there_may_be_none(
    daemon: FakeDaemon, attached: FakeAttach, pty: Pty, tmp_path: Path
) -> None:
    child = Child(tmp_path, "run", "-it", "--detach-keys", "a,ctrl-]", "--rootfs", "/", "sh", pty=pty)
    pty.until_raw()
    pty.type(b"\x10\x11a")
    assert attached.typed(2) == b"\x10\x11"
    pty.type(b"\x1d")
    assert child.ended()[0] == 0
    daemon.answers.Attach = again = FakeAttach()
    child = Child(tmp_path, "run", "-it", "--detach-keys", "", "--rootfs", "/", "sh", pty=pty)
    pty.until_raw()
    pty.type(b"\x10\x11")
    assert again.typed(2) == b"\x10\x11"
    again.end()
    assert child.ended()[0] == 7


def test_what_is_typed_just_before_the_detach_keys_arrives(
    daemon: FakeDaemon, attached: FakeAttach, pty: Pty, tmp_path: Path
) -> None:
    child = Child(tmp_path, *RUN_IT, pty=pty)
    pty.until_raw()
    pty.type(b"echo last\r\x10\x11")
    assert attached.typed(10) == b"echo last\r"
    assert child.ended()[0] == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT], ids=lambda number: number.name)
def test_a_signal_ends_exitctl_with_the_terminal_as_before_and_the_container_goes_on(
    daemon: FakeDaemon, attached: FakeAttach, pty: Pty, tmp_path: Path, number: signal.Signals
) -> None:
    child = Child(tmp_path, *RUN_IT, pty=pty)
    pty.until_raw()
    child.signal(number)
    assert child.ended() == (-number, b"", b"")
    assert pty.modes() == pty.before
    assert not daemon.asked_for(pb.KillRequest)


def test_with_sig_proxy_a_signal_goes_to_the_container_although_it_has_our_terminal(
    daemon: FakeDaemon, attached: FakeAttach, pty: Pty, tmp_path: Path
) -> None:
    child = Child(tmp_path, "run", "-it", "--sig-proxy", "--rootfs", "/", "sh", pty=pty)
    pty.until_raw()
    child.signal(signal.SIGTERM)
    assert daemon.killed.wait(LIMIT_SECONDS)
    attached.end()
    assert child.ended()[0] == 7
    assert daemon.asked_for(pb.KillRequest)[0].signal == "15"
    assert pty.modes() == pty.before


def test_a_daemon_that_goes_away_leaves_the_terminal_as_it_was(
    daemon: FakeDaemon, attached: FakeAttach, pty: Pty, tmp_path: Path
) -> None:
    def going(_: pb.WaitRequest) -> pb.WaitReply:
        raise errors.ShuttingDown("the daemon is shutting down")

    daemon.answers.Wait = going
    child = Child(tmp_path, "run", "--reconnect-seconds", "0", *RUN_IT[1:], pty=pty)
    pty.until_raw()
    attached.end()
    advice = f"exitctl: the daemon went away, the container goes on; ask later: exitctl wait {ID[:12]}\n"
    assert child.ended() == (125, b"", advice.encode())
    assert pty.modes() == pty.before


def test_sigint_from_outside_ends_exitctl_with_130_and_the_terminal_as_it_was(
    daemon: FakeDaemon, attached: FakeAttach, pty: Pty, tmp_path: Path
) -> None:
    child = Child(tmp_path, *RUN_IT, pty=pty)
    pty.until_raw()
    child.signal(signal.SIGINT)
    assert child.ended() == (130, b"", b"\n")  # click ends the line of a ^C
    assert pty.modes() == pty.before


def test_a_start_that_fails_never_makes_the_terminal_raw(
    daemon: FakeDaemon, attached: FakeAttach, pty: Pty, tmp_path: Path
) -> None:
    def refused(_: pb.StartRequest) -> pb.StartReply:
        assert not pty.is_raw()
        raise errors.CommandNotFound("no such command: nope")

    daemon.answers.Start = refused
    assert Child(tmp_path, *RUN_IT, pty=pty).ended() == (127, b"", b"exitctl: no such command: nope\n")
    assert pty.modes() == pty.before
    daemon.started.set()


def test_a_container_that_cannot_be_attached_to_is_not_started_and_rm_leaves_nothing(
    daemon: FakeDaemon, exitctl: Exitctl
) -> None:
    def refused(_: object) -> Iterator[pb.AttachReply]:
        raise errors.Busy("16 are attached already")

    daemon.answers.Attach = refused
    outcome = exitctl("run", "--rm", "-t", "--rootfs", "/", "sh")
    assert (outcome.code, outcome.err) == (125, "exitctl: 16 are attached already\n")
    assert daemon.asked_for(pb.RemoveRequest)[0].force and not daemon.asked_for(pb.StartRequest)
    daemon.started.set()


@pytest.mark.parametrize("words", [RUN_IT, ("exec", "-it", "web", "sh")])
def test_a_terminal_is_needed_for_t_with_i(
    daemon: FakeDaemon, exitctl: Exitctl, words: tuple[str, ...], tmp_path: Path
) -> None:
    child = Child(tmp_path, *words)
    assert child.ended() == (125, b"", b"exitctl: the input is not a terminal; leave -t out\n")
    assert not daemon.asked


def test_detached_from_the_beginning_no_terminal_is_needed(daemon: FakeDaemon, exitctl: Exitctl) -> None:
    outcome = exitctl("run", "-dit", "--rootfs", "/", "sh")
    assert (outcome.code, outcome.out) == (0, f"{ID}\n")
    spec = daemon.asked_for(pb.CreateContainerRequest)[0].spec
    assert spec.tty and spec.stdin


# -- run -i, run -t


def test_with_i_alone_input_goes_by_attach_and_its_end_is_the_containers_and_output_comes_from_the_log(
    daemon: FakeDaemon, attached: FakeAttach, tmp_path: Path
) -> None:
    data = os.urandom(300_000)
    (tmp_path / "in").write_bytes(data)

    def log_after_input(_: pb.LogsRequest) -> Iterator[pb.LogsReply]:
        assert attached.typed(len(data)) == data
        end = attached.asked.get(timeout=LIMIT_SECONDS)
        assert end is not None and end.close_stdin
        yield pb.LogsReply(data=b"out", stream="stdout")

    daemon.answers.Logs = log_after_input
    with open(tmp_path / "in", "rb") as file:
        child = Child(tmp_path, "run", "-i", "--rootfs", "/", "cat", stdin=file.fileno())
        assert child.ended() == (7, b"out", b"")
    start = attached.starts[0]
    assert (start.stdin, start.stdout, start.stderr) == (True, False, False)


def test_a_closed_stdin_is_an_empty_one(daemon: FakeDaemon, attached: FakeAttach, tmp_path: Path) -> None:
    def log_after_input(_: pb.LogsRequest) -> Iterator[pb.LogsReply]:
        end = attached.asked.get(timeout=LIMIT_SECONDS)
        assert end is not None and end.close_stdin
        yield pb.LogsReply(data=b"out", stream="stdout")

    daemon.answers.Logs = log_after_input
    script = 'exec "$0" -m supervisor.cli run -i --rootfs / cat <&-'
    done = subprocess.run(
        ["sh", "-c", script, sys.executable],
        env={**os.environ, "EXITD_STATE": str(tmp_path)}, capture_output=True, timeout=LIMIT_SECONDS, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (7, b"out")


def test_with_t_alone_output_comes_by_attach_and_signals_are_proxied(
    daemon: FakeDaemon, attached: FakeAttach, exitctl: Exitctl, tmp_path: Path
) -> None:
    child = Child(tmp_path, "run", "-t", "--rootfs", "/", "sh")
    assert daemon.started.wait(LIMIT_SECONDS)
    child.signal(signal.SIGINT)
    assert daemon.killed.wait(LIMIT_SECONDS)
    attached.say(stdout=b"x\r\n")
    attached.end()
    assert child.ended() == (7, b"x\r\n", b"")
    start = attached.starts[0]
    assert (start.stdin, start.stdout, start.stderr, start.lossless) == (False, True, False, True)


def test_without_a_log_to_read_output_comes_by_attach_and_none_is_lost(
    daemon: FakeDaemon, attached: FakeAttach, exitctl: Exitctl
) -> None:
    attached.say(stdout=b"out\n")
    attached.say(stderr=b"err\n")
    attached.end()
    outcome = exitctl("run", "--log-driver", "none", "--rootfs", "/", "sh")
    assert (outcome.code, outcome.out, outcome.err) == (7, "out\n", "err\n")
    start = attached.starts[0]
    assert (start.stdin, start.stdout, start.stderr, start.lossless) == (False, True, True, True)
    assert not daemon.asked_for(pb.LogsRequest)


def test_a_signal_is_not_proxied_when_that_is_asked_for(daemon: FakeDaemon, tmp_path: Path) -> None:
    child = Child(tmp_path, "run", "--no-sig-proxy", "--rootfs", "/", "sleep", "99")
    daemon.answers.Logs = lambda _: iter([daemon.killed.wait(LIMIT_SECONDS)])
    assert daemon.started.wait(LIMIT_SECONDS)
    child.signal(signal.SIGTERM)
    assert child.ended()[0] == -signal.SIGTERM
    assert not daemon.asked_for(pb.KillRequest)
    daemon.killed.set()
