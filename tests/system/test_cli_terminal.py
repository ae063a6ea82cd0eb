"""exitctl run -i -t, attach and exec as a person uses them: on a terminal, with real containers."""

import os
import pathlib
import re
import signal
import subprocess
from collections.abc import Iterator

import pytest

from tests.supervisor.cli.fake_attach import Pty
from tests.system.daemons import Daemon
from tests.system.exitctl import SECONDS, Cli, Said, over
from tests.system.waits import scaled, until

LOOP = "while :; do sleep 0.05; done"
OBEDIENT = f'trap "echo told; exit 12" TERM INT; echo up; {LOOP}'
SHELL = "export PS1='% '; exec sh"


@pytest.fixture(scope="module", params=["ttrpc", "grpc"])
def cli(request: pytest.FixtureRequest, daemon: Daemon) -> Cli:
    return over(request.param, daemon)


def on_terminal(cli: Cli, pty: Pty, *words: str) -> "subprocess.Popen[str]":
    """exitctl, all three ends on the terminal."""
    return subprocess.Popen(
        [*cli.program, *words],
        stdin=pty.slave,
        stdout=pty.slave,
        stderr=subprocess.PIPE,
        text=True,
        env=cli.environment,
    )


def seen(pty: Pty, pattern: str) -> None:
    """Reads what the terminal shows until the pattern is in it."""
    shown = ""

    def look() -> bool:
        nonlocal shown
        shown += pty.shown()
        return re.search(pattern, shown) is not None

    until(look, f"{pattern!r} is not on the screen")


def ended(process: "subprocess.Popen[str]", pty: Pty) -> tuple[int, str]:
    """(code, stderr); the terminal must be as it was."""
    _, err = process.communicate(timeout=SECONDS)
    assert pty.modes() == pty.before
    return process.returncode, err


def with_input(cli: Cli, data: bytes, *words: str) -> tuple[int, bytes, bytes]:
    done = subprocess.run([*cli.program, *words], input=data, capture_output=True, env=cli.environment, timeout=SECONDS)
    return done.returncode, done.stdout, done.stderr


# -- run -it


def test_run_it_gives_the_container_this_terminal(cli: Cli, pty: Pty) -> None:
    pty.resize(31, 97)
    process = on_terminal(cli, pty, "run", "--rm", "-it", "--rootfs", "/", "sh", "-c", SHELL)
    seen(pty, "% ")
    pty.type(b"tty; stty size; echo $((6*7))\r")
    seen(pty, r"/dev/(pts/\d+|console)\r\n31 97\r\n42\r\n")
    pty.type(b"exit 9\r")
    assert ended(process, pty) == (9, "")


def test_keys_that_would_stop_exitctl_are_the_containers(cli: Cli, pty: Pty) -> None:
    process = on_terminal(cli, pty, "run", "--rm", "-it", "--rootfs", "/", "sh", "-c", OBEDIENT)
    seen(pty, "up")
    pty.type(b"\x03")
    seen(pty, "told")
    assert ended(process, pty) == (12, "")


def test_a_new_size_of_the_terminal_reaches_the_container(cli: Cli, pty: Pty) -> None:
    script = f'trap "stty size; exit 4" WINCH; echo up; {LOOP}'
    process = on_terminal(cli, pty, "run", "--rm", "-it", "--rootfs", "/", "sh", "-c", script)
    seen(pty, "up")
    pty.resize(50, 132)
    process.send_signal(signal.SIGWINCH)
    seen(pty, "50 132")
    assert ended(process, pty) == (4, "")


def test_a_container_can_be_left_and_come_back_to(cli: Cli, pty: Pty) -> None:
    process = on_terminal(cli, pty, "run", "-it", "--name", "left", "--rootfs", "/", "sh", "-c", SHELL)
    seen(pty, "% ")
    pty.type(b"A=kept\r\x10\x11")
    code, err = ended(process, pty)
    assert code == 0 and "exitctl attach" in err
    assert cli.field("left", ".State.Status") == "running"
    process = on_terminal(cli, pty, "attach", "--detach-keys", "ctrl-]", "left")
    pty.until_raw()
    pty.type(b"echo =$A=\r")
    seen(pty, "=kept=")
    pty.type(b"\x1d")
    assert ended(process, pty)[0] == 0
    process = on_terminal(cli, pty, "attach", "left")
    pty.until_raw()
    pty.type(b"exit 3\r")
    assert ended(process, pty)[0] == 3
    assert cli.ok("wait", "left") == "3"
    said = cli("attach", "left")
    assert said.code == 125 and "exitctl start left" in said.err
    cli.ok("rm", "left")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL], ids=lambda number: number.name)
def test_the_container_goes_on_when_exitctl_is_ended(cli: Cli, pty: Pty, number: signal.Signals) -> None:
    process = on_terminal(cli, pty, "run", "-it", "--name", "alone", "--rootfs", "/", "sh", "-c", OBEDIENT)
    seen(pty, "up")
    pty.until_raw()
    process.send_signal(number)
    process.communicate(timeout=SECONDS)
    assert process.returncode == -number
    assert (pty.modes() == pty.before) == (number != signal.SIGKILL)
    assert cli.field("alone", ".State.Status") == "running"
    cli.ok("kill", "-s", "TERM", "alone")
    assert cli.ok("wait", "alone") == "12"
    cli.ok("rm", "alone")


def test_the_terminal_is_given_back_when_the_daemon_is_killed_and_the_container_is_there_afterwards(
    cli: Cli, pty: Pty
) -> None:
    once = ("--reconnect-seconds", "0")
    process = on_terminal(cli, pty, "run", *once, "-it", "--name", "outlives", "--rootfs", "/", "sh", "-c", SHELL)
    seen(pty, "% ")
    pty.type(b"B=kept\r")
    seen(pty, "% $")
    cli.daemon.kill()
    try:
        code, err = ended(process, pty)
    finally:
        cli.daemon.start()
    assert code == 125 and "the container goes on" in err and err.count("\n") == 1
    process = on_terminal(cli, pty, "attach", "outlives")
    pty.until_raw()
    pty.type(b"echo =$B=; exit 5\r")
    seen(pty, "=kept=")
    assert ended(process, pty) == (5, "")
    cli.ok("rm", "outlives")


def test_a_terminal_goes_on_over_a_restart_of_exitd_and_what_was_typed_meanwhile_is_typed_once(
    cli: Cli, pty: Pty
) -> None:
    process = on_terminal(cli, pty, "run", "--rm", "-it", "--rootfs", "/", "sh", "-c", SHELL)
    seen(pty, "% ")
    pty.type(b"N=0\r")
    seen(pty, "% $")
    cli.daemon.kill()
    try:
        pty.type(b"N=$((N+1)); echo =$N=; exit 5\r")
    finally:
        cli.daemon.start()
    seen(pty, "=1=\r\n")
    assert ended(process, pty) == (5, "exitctl: exitd is away; waiting for it ...\n")


def test_a_start_that_fails_leaves_terminal_and_list_as_they_were(cli: Cli, pty: Pty) -> None:
    process = on_terminal(cli, pty, "run", "-it", "--name", "nope", "--rootfs", "/", "no-such-command")
    code, err = ended(process, pty)
    assert code == 127 and "no-such-command" in err
    assert "nope" not in cli.ok("ps", "-a", "--format", "{{.Name}}")


# -- run -i, run -t, no log


def test_what_goes_in_comes_out_byte_for_byte(cli: Cli) -> None:
    data = os.urandom(scaled(30 << 20, least=1 << 20))
    code, out, err = with_input(cli, data, "run", "--rm", "-i", "--rootfs", "/", "cat")
    assert (code, err) == (0, b"")
    assert out == data


def test_the_end_of_the_input_is_the_containers_end_of_file(cli: Cli) -> None:
    assert with_input(cli, b"one\ntwo", "run", "--rm", "-i", "--rootfs", "/", "wc", "-c") == (0, b"7\n", b"")
    assert with_input(cli, b"", "run", "--rm", "-i", "--rootfs", "/", "sh", "-c", "cat; exit 6") == (6, b"", b"")


def test_without_i_the_container_has_no_input_of_ours(cli: Cli) -> None:
    assert with_input(cli, b"secret", "run", "--rm", "--rootfs", "/", "cat") == (0, b"", b"")


def test_every_line_comes_through_a_terminal(cli: Cli) -> None:
    last = scaled(1_000_000, least=30_000)
    said = cli.run("--rm", "-t", "seq", "1", str(last))
    assert (said.code, said.err) == (0, "")
    assert said.out.count("\n") == last
    assert said.out.splitlines() == [str(number) for number in range(1, last + 1)]


def test_output_that_is_not_logged_comes_complete(cli: Cli) -> None:
    last = scaled(1_000_000, least=30_000)
    script = f"seq 1 {last}; seq 1 {last} >&2; printf end; exit 5"
    said = cli.run("--rm", "--log-driver", "none", "sh", "-c", script)
    lines = "".join(f"{number}\n" for number in range(1, last + 1))
    assert said == Said(5, lines + "end", lines)


@pytest.mark.parametrize("options", [(), ("--log-driver", "json-file"), ("--log-driver", "none"), ("-t",)])
def test_output_of_a_run_that_ends_at_once_is_complete(cli: Cli, options: tuple[str, ...]) -> None:
    for _ in range(3):
        assert cli.run("--rm", *options, "echo", "here") == Said(0, "here\n", "")


# -- attach


def test_all_who_are_attached_see_the_same_and_can_type(cli: Cli) -> None:
    ticking = "(while :; do echo tick; sleep 0.05; done) &"  # who sees one is attached
    script = f'{ticking} while read line; do echo "<$line>"; [ "$line" = end ] && exit 8; done'
    cli.ok("run", "-d", "-i", "--name", "shared", "--rootfs", "/", "sh", "-c", script)
    typing = [with_pipes(cli, "attach", "shared") for _ in range(2)]
    everybody = [*typing, with_pipes(cli, "attach", "--no-stdin", "shared")]
    for client in everybody:
        assert client.stdout is not None and client.stdout.readline() == "tick\n"
    for number, client in enumerate(typing):
        assert client.stdin is not None
        client.stdin.write(f"{number}\n")
        client.stdin.flush()
        assert [next_line(each) for each in everybody] == [f"<{number}>\n"] * 3
    assert typing[0].stdin is not None and typing[1].stdin is not None
    typing[1].stdin.close()  # only its own end of the input
    typing[0].stdin.write("end\n")
    typing[0].stdin.flush()
    assert [next_line(each) for each in everybody] == ["<end>\n"] * 3
    for client in everybody:
        with client:
            assert client.wait(SECONDS) == 8
    cli.ok("rm", "shared")


def test_who_does_not_read_holds_nobody_up_and_is_told_what_was_missed(cli: Cli) -> None:
    script = 'while read line && [ "$line" != go ]; do echo "$line"; done; seq 1 2000000; exit 2'
    cli.ok("run", "-d", "-i", "--name", "loud", "--rootfs", "/", "sh", "-c", script)
    client = with_pipes(cli, "attach", "loud")
    assert client.stdin is not None and client.stdout is not None
    client.stdin.write("here\n")
    client.stdin.flush()
    assert client.stdout.readline() == "here\n"
    client.send_signal(signal.SIGSTOP)
    assert with_input(cli, b"go\n", "attach", "loud")[0] == 2
    client.send_signal(signal.SIGCONT)
    _, err = client.communicate(timeout=SECONDS)
    assert client.returncode == 2
    assert re.fullmatch(r"exitctl: \d+ bytes of its output were dropped: .*\n", err)
    assert cli.ok("logs", "--tail", "1", "loud") == "2000000"
    cli.ok("rm", "loud")


def with_pipes(cli: Cli, *words: str) -> "subprocess.Popen[str]":
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [*cli.program, *words], stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=cli.environment
    )


def next_line(process: "subprocess.Popen[str]") -> str:
    """That is no tick."""
    assert process.stdout is not None
    return next(line for line in process.stdout if line != "tick\n")


@pytest.mark.parametrize("option", ["--sig-proxy", "--no-sig-proxy"])
def test_a_signal_to_attach_goes_to_the_container_or_not(cli: Cli, option: str) -> None:
    cli.background("signalled", "sh", "-c", f"{OBEDIENT[: -len(LOOP)]} while :; do echo again; sleep 0.05; done")
    process = cli.begin("attach", option, "signalled")
    assert process.stdout is not None and process.stdout.readline() == "again\n"
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=SECONDS)
    assert process.returncode == (12 if option == "--sig-proxy" else -signal.SIGTERM)
    running = cli.field("signalled", ".State.Status") == "running"
    assert running == (option == "--no-sig-proxy")
    cli.ok("rm", "-f", "signalled")


# -- exec


@pytest.fixture(scope="module")
def target(cli: Cli) -> Iterator[str]:
    cli.background("target", "-e", "FROM=container", "sleep", "600")
    yield "target"
    cli.ok("rm", "-f", "target")


@pytest.mark.parametrize("code", [0, 1, 124, 255])
def test_exec_exits_with_the_execs_own_code(cli: Cli, target: str, code: int) -> None:
    said = cli("exec", target, "sh", "-c", f"echo out; echo err >&2; exit {code}")
    assert said == Said(code, "out\n", "err\n")


def test_exec_exits_with_128_and_the_signal_that_ended_it(cli: Cli, target: str) -> None:
    assert cli("exec", target, "sh", "-c", "kill -SEGV $$").code == 128 + signal.SIGSEGV


def test_exec_says_126_and_127_as_a_shell_does(cli: Cli, target: str) -> None:
    for code, path in ((127, "no-such-command"), (127, "/no/such/command"), (126, "/etc/passwd")):
        said = cli("exec", target, path)
        assert (said.code, said.out) == (code, "") and path in said.err


def test_exec_has_the_environment_directory_and_user_it_was_given(cli: Cli, target: str) -> None:
    script = 'echo "$A|$FROM|$PWD|$(id -u)"'
    options = ("-e", "A=b=c", "-w", "/usr", "-u", "nobody")
    assert cli.ok("exec", *options, target, "sh", "-c", script) == "b=c|container|/usr|65534"


def test_exec_gives_input_and_its_end(cli: Cli, target: str) -> None:
    data = os.urandom(1 << 20)
    assert with_input(cli, data, "exec", "-i", target, "cat") == (0, data, b"")
    assert with_input(cli, b"secret", "exec", target, "cat") == (0, b"", b"")


def test_exec_on_a_terminal(cli: Cli, target: str, pty: Pty) -> None:
    pty.resize(20, 70)
    process = on_terminal(cli, pty, "exec", "-it", target, "sh", "-c", SHELL)
    seen(pty, "% ")
    pty.type(b"stty size; echo $FROM; exit 7\r")
    seen(pty, "20 70\r\ncontainer\r\n")
    assert ended(process, pty) == (7, "")


def test_an_exec_can_be_left_alone(cli: Cli, target: str, pty: Pty, tmp_path: pathlib.Path) -> None:
    process = on_terminal(cli, pty, "exec", "-it", target, "sh", "-c", SHELL)
    seen(pty, "% ")
    pty.type(b"\x10\x11")
    assert ended(process, pty)[0] == 0
    exec_id = cli.ok("exec", "-d", target, "sh", "-c", "sleep 600")
    assert re.fullmatch(r"[0-9a-f-]{8,64}", exec_id)


def test_an_exec_that_takes_too_long_is_ended_with_all_it_has_started(cli: Cli, target: str) -> None:
    said = cli("exec", "--timeout", "0.5", target, "sh", "-c", "sleep 4321 & sleep 4321")
    assert said.code == 124 and said.err == "exitctl: the exec was ended by its timeout of 0.5 s\n"
    assert "sleep 4321" not in cli.ok("exec", target, "ps", "ax", "-o", "args")


def test_a_signal_to_exec_goes_to_the_exec(cli: Cli, target: str) -> None:
    process = cli.begin("exec", target, "sh", "-c", OBEDIENT)
    assert process.stdout is not None and process.stdout.readline() == "up\n"
    process.send_signal(signal.SIGINT)
    assert (process.communicate(timeout=SECONDS), process.returncode) == (("told\n", ""), 12)


def test_exec_in_what_does_not_run_is_refused(cli: Cli) -> None:
    assert cli("exec", "nobody", "true").code == 125
    cli.ok("create", "--name", "unstarted", "--rootfs", "/", "true")
    said = cli("exec", "unstarted", "true")
    assert said.code == 125 and "unstarted" in said.err
    cli.ok("rm", "unstarted")


def test_output_of_an_exec_that_ends_at_once_is_complete(cli: Cli, target: str) -> None:
    for _ in range(5):
        assert cli.ok("exec", target, "echo", "here") == "here"
