"""Terminals, attaching and health checks of containers under containerd's own shim for runc: as under exitd's."""

import re
import signal

from tests.supervisor.cli.fake_attach import Pty
from tests.system.exitctl import Cli
from tests.system.foreign_shims import RUNC
from tests.system.test_cli_terminal import SHELL, ended, on_terminal, seen
from tests.system.waits import until

LOOP = "while :; do sleep 0.05; done"


def test_a_terminal_has_its_size_and_each_new_one(cli: Cli, pty: Pty) -> None:
    pty.resize(31, 97)
    script = f"trap 'stty size' WINCH; trap 'exit 4' INT; stty size; echo up; {LOOP}"
    process = on_terminal(cli, pty, "run", "--rm", "-it", "--runtime", RUNC, "--rootfs", "/", "sh", "-c", script)
    seen(pty, r"31 97\r\n(.*\n)*up")
    pty.resize(50, 132)
    process.send_signal(signal.SIGWINCH)
    seen(pty, "50 132")
    pty.type(b"\x03")
    assert ended(process, pty)[0] == 4


def test_it_can_be_left_and_come_back_to_also_under_the_next_exitd(cli: Cli, pty: Pty) -> None:
    words = ("run", "-it", "--name", "left", "--runtime", RUNC, "--rootfs", "/", "sh", "-c", SHELL)
    process = on_terminal(cli, pty, *words)
    seen(pty, "% ")
    pty.type(b"A=kept\r\x10\x11")
    assert ended(process, pty)[0] == 0
    cli.daemon.restart()
    process = on_terminal(cli, pty, "attach", "left")
    pty.until_raw()
    pty.type(b"echo =$A=\r")
    seen(pty, "=kept=")
    pty.type(b"exit 5\r")
    assert ended(process, pty)[0] == 5
    cli.ok("rm", "left")


def test_its_health_is_asked_by_execs_and_a_sick_one_is_ended(cli: Cli) -> None:
    check = ("--health-cmd", "exit 1", "--health-interval", "100ms", "--health-retries", "2")
    cli.background("sick", *check, "--health-on-failure", "kill", "--runtime", RUNC, "sleep", "1000")
    assert cli.ok("wait", "sick") == "137"
    assert re.search("its health check had failed", cli.ok("why", "sick"))
    until(lambda: cli.field("sick", ".State.Status") == "exited", "it is not shown")
    cli.ok("rm", "sick")
