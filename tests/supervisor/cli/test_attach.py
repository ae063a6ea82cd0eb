"""attach: who is attached, how it is left, and what is the container's own."""

import signal
from pathlib import Path
from typing import Any

import pytest

from protos.exitd.v1 import exitd_pb2 as pb
from tests.supervisor.cli.conftest import Exitctl
from tests.supervisor.cli.fake_attach import LIMIT_SECONDS, Child, FakeAttach, Pty
from tests.supervisor.cli.fake_daemon import ID, FakeDaemon, container


def running(daemon: FakeDaemon, **spec: Any) -> None:
    found = container(phase=pb.PHASE_RUNNING, spec=pb.ContainerSpec(name="web", **spec))
    daemon.answers.Inspect = lambda _: pb.InspectReply(container=found)
    daemon.started.set()


def test_attach_shows_both_streams_and_exits_with_the_containers_code(
    daemon: FakeDaemon, attached: FakeAttach, exitctl: Exitctl
) -> None:
    running(daemon)
    attached.say(stdout=b"out\n")
    attached.say(stderr=b"err\n")
    attached.end()
    outcome = exitctl("attach", "web")
    assert (outcome.code, outcome.out, outcome.err) == (7, "out\n", "err\n")
    start = attached.starts[0]
    assert (start.id, start.stdin, start.stdout, start.stderr, start.lossless) == (ID, False, True, True, False)
    assert daemon.asked_for(pb.WaitRequest)[0].run == 1


def test_attach_says_how_much_it_was_too_slow_for(daemon: FakeDaemon, attached: FakeAttach, exitctl: Exitctl) -> None:
    running(daemon)
    attached.say(dropped=5)
    attached.say(dropped=4096)
    attached.end()
    assert "4096 bytes of its output were dropped" in exitctl("attach", "web").err


def test_attach_gives_input_but_not_its_end(daemon: FakeDaemon, attached: FakeAttach, tmp_path: Path) -> None:
    running(daemon, stdin=True)
    (tmp_path / "in").write_bytes(b"hello\n")
    with open(tmp_path / "in", "rb") as file:
        child = Child(tmp_path, "attach", "web", stdin=file.fileno())
        assert attached.typed(6) == b"hello\n"
        assert attached.asked.get(timeout=LIMIT_SECONDS) is None  # its requests end, and nothing was closed
        attached.say(stdout=b"still here\n")
        attached.end()
        assert child.ended() == (7, b"still here\n", b"")


def test_attach_without_stdin_needs_no_terminal_and_gives_none(
    daemon: FakeDaemon, attached: FakeAttach, exitctl: Exitctl, tmp_path: Path
) -> None:
    running(daemon, stdin=True, tty=True)
    refused = Child(tmp_path, "attach", "web").ended()
    assert refused == (2, b"", b"exitctl: the input is not a terminal; use --no-stdin\n")
    attached.end()
    assert exitctl("attach", "--no-stdin", "web").code == 7
    assert not attached.starts[0].stdin


def test_attach_to_a_terminal_can_be_left_by_its_keys(
    daemon: FakeDaemon, attached: FakeAttach, pty: Pty, tmp_path: Path
) -> None:
    running(daemon, stdin=True, tty=True)
    child = Child(tmp_path, "attach", "--detach-keys", "ctrl-@", "web", pty=pty)
    pty.until_raw()
    pty.type(b"\0")
    code, _, err = child.ended()
    assert code == 0 and b"detached" in err
    assert pty.modes() == pty.before


def test_the_detach_keys_work_although_its_output_has_ended(
    daemon: FakeDaemon, attached: FakeAttach, pty: Pty, tmp_path: Path
) -> None:
    running(daemon, stdin=True, tty=True)
    daemon.started.clear()  # nobody reports an exit
    child = Child(tmp_path, "attach", "web", pty=pty)
    pty.until_raw()
    attached.end()
    assert attached.asked.get(timeout=LIMIT_SECONDS) is None
    pty.type(b"x")
    pty.type(b"\x10\x11")
    assert child.ended()[0] == 0
    daemon.started.set()


@pytest.mark.parametrize("option", ["--sig-proxy", "--no-sig-proxy"])
def test_attach_proxies_signals_as_it_is_told(
    daemon: FakeDaemon, attached: FakeAttach, tmp_path: Path, option: str
) -> None:
    running(daemon)
    child = Child(tmp_path, "attach", option, "web")
    attached.say(stdout=b"up\n")
    assert child.process.stdout is not None and child.process.stdout.readline() == b"up\n"
    child.signal(signal.SIGTERM)
    if option == "--sig-proxy":
        assert daemon.killed.wait(LIMIT_SECONDS)
        attached.end()
    assert child.ended()[0] == (7 if option == "--sig-proxy" else -signal.SIGTERM)
    assert len(daemon.asked_for(pb.KillRequest)) == (option == "--sig-proxy")


def test_attach_to_an_ended_container_is_refused_with_the_next_step(daemon: FakeDaemon, exitctl: Exitctl) -> None:
    outcome = exitctl("attach", "web")
    assert outcome.code == 125 and "exitctl start web" in outcome.err
    assert len(daemon.asked) == 1


def test_a_wrong_detach_key_is_refused_before_anything_is_asked(daemon: FakeDaemon, exitctl: Exitctl) -> None:
    assert exitctl("attach", "--detach-keys", "ctrl-1", "web").code == 2
    assert exitctl("run", "--detach-keys", "xy", "--rootfs", "/", "sh").code == 125
    assert not daemon.asked
