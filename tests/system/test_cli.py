"""exitctl as a person uses it: containers are run, stopped, killed, restarted and removed, on a real daemon."""

import hashlib
import json
import os
import pathlib
import re
import signal
import sys

import pytest

from tests.system.daemons import Daemon
from tests.system.exitctl import Cli, over
from tests.system.waits import until

FAULT = "import ctypes; ctypes.string_at(0)"
OBEDIENT = 'trap "echo told; exit 12" TERM; echo up; while :; do sleep 0.05; done'
MEBIBYTE = 1 << 20


@pytest.fixture(scope="module", params=["ttrpc", "grpc"])
def cli(request: pytest.FixtureRequest, daemon: Daemon) -> Cli:
    return over(request.param, daemon)


# -- run


@pytest.mark.parametrize("code", [0, 1, 7, 125, 137, 255])
def test_run_exits_with_the_containers_own_code(cli: Cli, code: int) -> None:
    said = cli.run("--rm", "sh", "-c", f"exit {code}")
    assert (said.code, said.out, said.err) == (code, "", "")


def test_run_exits_with_128_and_the_signal_that_ended_the_container(cli: Cli) -> None:
    assert cli.run("--rm", os.path.realpath(sys.executable), "-c", FAULT).code == 128 + signal.SIGSEGV


def test_run_exits_with_126_for_what_cannot_be_executed_and_leaves_no_container(cli: Cli) -> None:
    for path in ("/etc/passwd", "/tmp"):
        said = cli.run("--name", "no-program", path)
        assert (said.code, said.out) == (126, ""), said
        assert path in said.err
    assert "no-program" not in cli.ok("ps", "-a", "--format", "{{.Name}}")


def test_run_exits_with_127_for_what_is_not_there_and_leaves_no_container(cli: Cli) -> None:
    for path in ("no-such-command", "/no/such/command"):
        said = cli.run("--name", "no-command", path)
        assert (said.code, said.out) == (127, ""), said
        assert path in said.err
    assert "no-command" not in cli.ok("ps", "-a", "--format", "{{.Name}}")


def test_dockers_spelling_is_read_and_what_exitd_lacks_is_refused_before_anything_is_made(cli: Cli) -> None:
    said = cli(
        "container", "run", "--rm=true", "--tty=false", "--net=none", "-e=CODE=7", "/", "sh", "-c", 'exit "$CODE"'
    )
    assert (said.code, said.out, said.err) == (7, "", "")
    refused = cli("run", "--name", "published", "--network", "nowhere", "-p", "80:80", "--rm", "/", "true")
    assert (refused.code, refused.out) == (125, "") and "no network nowhere is configured" in refused.err
    refused = cli("run", "--name", "published", "--network-alias", "db", "--rm", "/", "true")
    assert (refused.code, refused.out) == (125, "") and "by address" in refused.err
    assert "published" not in cli.ok("container", "ls", "-a", "--format", "{{.Name}}")


@pytest.mark.parametrize(
    "words",
    [
        ("--rootfs", "/no/such/directory", "true"),
        ("--rootfs", "/", "--runtime", "no-such-runtime", "true"),
        ("--rootfs", "/", "--user", "no-such-user", "true"),
        ("--rootfs", "/", "--memory", "much", "true"),
        ("--rootfs", "/", "--restart", "sometimes", "true"),
        ("--rootfs", "/", "--no-such-option", "true"),
        ("--rootfs", "/"),
        ("true",),
    ],
)
def test_run_exits_with_125_for_a_failure_of_its_own_and_says_which(cli: Cli, words: tuple[str, ...]) -> None:
    before = cli.ok("ps", "-aq")
    said = cli("run", *words)
    assert (said.code, said.out) == (125, "")
    assert said.err and "Traceback" not in said.err
    assert cli.ok("ps", "-aq") == before


def test_run_prints_all_of_stdout_and_all_of_stderr_each_on_its_own(cli: Cli) -> None:
    """More than any pipe holds, on both at once, and the last line without a newline."""
    loud = f"head -c {MEBIBYTE} /dev/zero | tr '\\0' O; echo o-end"
    also = f"head -c {MEBIBYTE} /dev/zero | tr '\\0' E >&2; printf e-end >&2"
    said = cli.run("--rm", "sh", "-c", f"({loud}) & ({also}) & wait; exit 3")
    assert said.code == 3
    assert _digest(said.out) == _digest("O" * MEBIBYTE + "o-end\n")
    assert _digest(said.err) == _digest("E" * MEBIBYTE + "e-end")


@pytest.mark.parametrize("separator", [(), ("--",)])
def test_options_of_the_command_are_the_commands_with_and_without_a_separator(
    cli: Cli, separator: tuple[str, ...]
) -> None:
    said = cli.run("--rm", *separator, "echo", "-n", "--rm", "-d", "--", "x")
    assert (said.code, said.out) == (0, "--rm -d -- x")


def test_environment_directory_and_user_are_the_callers_choice(cli: Cli) -> None:
    script = 'echo "$A|$PWD|$(id -u):$(id -g)|$(hostname)"'
    options = ("-e", "A=b=c", "-w", "/usr", "-u", "nobody", "--hostname", "h1")
    assert cli.run("--rm", *options, "sh", "-c", script).out == "b=c|/usr|65534:65534|h1\n"


def test_a_bundle_is_taken_as_it_is(cli: Cli, tmp_path: pathlib.Path) -> None:
    """Another container's bundle on the same root file system, with a command and an annotation of its own."""
    cli.ok("create", "--name", "lender", "--rootfs", "/", "true")
    config = json.loads(pathlib.Path(cli.field("lender", ".Exitd.Bundle"), "config.json").read_text())
    config["process"]["args"] = ["sh", "-c", "echo bundled; exit 21"]
    config["linux"].pop("cgroupsPath")
    (tmp_path / "config.json").write_text(json.dumps(config))
    said = cli("run", "--rm", "--bundle", str(tmp_path))
    assert (said.code, said.out) == (21, "bundled\n"), said
    cli.ok("rm", "lender")


def test_a_signal_sent_to_run_reaches_the_container(cli: Cli) -> None:
    process = cli.begin("run", "--rm", "--rootfs", "/", "sh", "-c", OBEDIENT)
    assert process.stdout is not None and process.stdout.readline() == "up\n"
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (12, "told\n", "")


def test_rm_removes_the_container_at_its_end_and_the_ledger_keeps_the_exit(cli: Cli) -> None:
    assert cli.run("--rm", "--name", "brief", "sh", "-c", "exit 9").code == 9
    until(lambda: "brief" not in cli.ok("ps", "-a", "--format", "{{.Name}}"), "brief is still there")
    assert "brief, run 1, exited 9." in cli.ok("why", "brief")
    assert "brief" in cli.ok("exits", "--since", "1m")


def test_the_cidfile_has_the_id_alone_and_an_existing_one_is_refused(cli: Cli, tmp_path: pathlib.Path) -> None:
    file = tmp_path / "cid"
    assert cli.run("--cidfile", str(file), "--name", "filed", "true").code == 0
    assert file.read_text() == cli.field("filed", ".Id")
    said = cli.run("--cidfile", str(file), "true")
    assert said.code == 125 and str(file) in said.err
    cli.ok("rm", "filed")


def test_run_detached_and_create_print_the_full_id_alone(cli: Cli) -> None:
    for words in (("run", "-d"), ("create",)):
        container = cli.ok(*words, "--rootfs", "/", "sleep", "60")
        assert re.fullmatch(r"[0-9a-f]{64}", container)
        assert cli.ok("rm", "-f", container) == container


def test_a_name_is_one_containers_at_a_time_and_free_again_at_once(cli: Cli) -> None:
    first = cli.background("only", "sleep", "60")
    said = cli.run("--name", "only", "true")
    assert said.code == 125 and first[:12] in said.err
    cli.ok("rm", "-f", "only")
    assert cli.run("--name", "only", "sh", "-c", "exit 4").code == 4
    cli.ok("rm", "only")


def test_a_container_outlives_the_daemon_and_run_says_how_to_ask_for_its_code_later(cli: Cli) -> None:
    process = cli.begin("run", "--reconnect-seconds", "0", "--name", "survivor", "--rootfs", "/", "sh", "-c", OBEDIENT)
    assert process.stdout is not None and process.stdout.readline() == "up\n"
    cli.daemon.kill()
    try:
        _, err = process.communicate(timeout=30)
    finally:
        cli.daemon.start()
    assert process.returncode == 125
    advice = re.search(r"exitctl wait (\w+)", err)
    assert advice is not None and err.count("\n") == 1, err
    cli.ok("kill", "-s", "TERM", "survivor")
    assert cli.ok("wait", advice[1]) == "12"
    cli.ok("rm", "survivor")


# -- the life of a container, step by step


def test_create_start_wait_and_start_again(cli: Cli) -> None:
    cli.ok("create", "--name", "twice", "--rootfs", "/", "sh", "-c", "echo here; exit 5")
    assert cli.field("twice", ".State.Status") == "created"
    for run in ("1", "2"):
        assert cli.ok("start", "twice") == "twice"
        assert cli.ok("wait", "twice") == "5"
        assert cli.field("twice", ".Exit.Run") == run
    assert cli.ok("logs", "twice") == "here\nhere"
    assert cli.ok("rm", "twice") == "twice"


def test_wait_prints_one_line_per_id_in_the_order_of_the_arguments(cli: Cli) -> None:
    slow = cli.background("slow", "sh", "-c", OBEDIENT)
    cli.background("quick", "sh", "-c", "exit 3")
    until(lambda: cli.ok("logs", "slow") == "up", "it has set no trap")
    waiting = cli.begin("wait", "slow", "quick", slow[:12])
    assert cli.ok("wait", "quick") == "3"
    cli.ok("kill", "-s", "15", "slow")
    out, err = waiting.communicate(timeout=30)
    assert (waiting.returncode, out, err) == (0, "12\n3\n12\n", "")
    said = cli("wait", "--exit-code", "quick")
    assert (said.code, said.out) == (3, "3\n")
    cli.ok("rm", "slow", "quick")


def test_wait_gives_124_when_its_time_is_over_and_the_container_goes_on(cli: Cli) -> None:
    cli.background("patient", "sleep", "60")
    said = cli("wait", "--timeout", "0.1", "patient")
    assert (said.code, said.out) == (124, "") and "patient" in said.err
    assert cli.field("patient", ".State.Running") == "true"
    cli.ok("rm", "-f", "patient")


def test_stop_asks_first_and_kills_after_the_grace_period(cli: Cli) -> None:
    following = cli.begin("run", "--name", "obedient", "--rootfs", "/", "sh", "-c", OBEDIENT)
    assert following.stdout is not None and following.stdout.readline() == "up\n"
    assert cli.ok("stop", "obedient") == "obedient"
    assert (following.communicate(timeout=30)[0], following.returncode) == ("told\n", 12)
    cli.background("deaf", "sleep", "60")  # the first process of a pid namespace does not hear what it does not catch
    assert cli.ok("stop", "-t", "1", "deaf") == "deaf"
    assert cli.ok("wait", "obedient", "deaf") == f"12\n{128 + signal.SIGKILL}"
    for name in ("obedient", "deaf"):
        assert cli.field(name, ".Exit.Reason") == "stop"
        assert cli.ok("stop", name) == name  # again: nothing to do, and no error
    cli.ok("rm", "obedient", "deaf")


@pytest.mark.parametrize("word", ["USR1", "SIGUSR1", "10"])
def test_kill_sends_the_signal_by_any_of_its_names(cli: Cli, word: str) -> None:
    cli.background("target", "sh", "-c", 'trap "exit 31" USR1; touch /tmp/up; while :; do sleep 0.05; done')
    pid = cli.field("target", ".State.Pid")
    until(lambda: pathlib.Path(f"/proc/{pid}/root/tmp/up").exists(), "its trap is not set")
    cli.ok("kill", "-s", word, "target")
    assert cli.ok("wait", "target") == "31"
    assert cli.field("target", ".Exit.Reason") == "self"  # USR1 informs; it was the program that chose to end
    assert cli("kill", "target").code == 125
    cli.ok("rm", "target")


def test_restart_ends_the_run_and_begins_the_next(cli: Cli) -> None:
    cli.background("again", "sleep", "60")
    first = cli.field("again", ".State.Pid")
    assert cli.ok("restart", "-t", "0", "again") == "again"
    assert cli.field("again", ".State.Status") == "running"
    assert cli.field("again", ".State.Pid") != first
    assert cli.field("again", ".Exitd.Run") == "2"
    cli.ok("rm", "-f", "again")


def test_pause_stops_it_and_unpause_lets_it_go_on(cli: Cli) -> None:
    cli.background("cold", "sh", "-c", OBEDIENT)
    cli.ok("pause", "cold")
    assert (cli.field("cold", ".State.Status"), cli.field("cold", ".State.Paused")) == ("paused", "true")
    cli.ok("unpause", "cold")
    cli.until_status("cold", "running")
    cli.ok("rm", "-f", "cold")


def test_rm_refuses_a_running_container_unless_forced(cli: Cli) -> None:
    cli.background("busy", "sleep", "60")
    said = cli("rm", "busy")
    assert said.code == 125 and "force" in said.err
    assert cli.ok("rm", "-f", "busy") == "busy"
    assert cli("rm", "busy").code == 125
    assert cli("rm", "-f", "busy").code == 0


def test_the_restart_policy_is_obeyed_and_counted(cli: Cli) -> None:
    container = cli.ok("run", "-d", "--name", "stubborn", "--restart", "on-failure:2", "--rootfs", "/", "false")
    until(lambda: cli.field("stubborn", ".Exitd.Run") == "3", "no third run")
    cli.until_status("stubborn", "exited")
    assert cli.field("stubborn", ".RestartCount") == "2"
    rows = [json.loads(line) for line in cli.ok("exits", "--id", container, "--format", "jsonl").splitlines()]
    assert [row["Decision"] for row in rows] == ["restart", "restart", "ended"]
    cli.ok("rm", "stubborn")


def test_a_container_killed_for_memory_says_so(cli: Cli) -> None:
    said = cli.run("--name", "greedy", "-m", "32m", "tail", "/dev/zero")
    assert said.code == 128 + signal.SIGKILL
    assert (cli.field("greedy", ".State.OOMKilled"), cli.field("greedy", ".Exit.Reason")) == ("true", "oom")
    assert "Its limit was 32 MiB" in cli.ok("why", "greedy")
    cli.ok("rm", "greedy")


def _digest(text: str) -> str:
    return f"{len(text)} {hashlib.sha256(text.encode()).hexdigest()}"
