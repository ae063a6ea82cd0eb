"""What containers use, and the verbs around their lives in docker's words: stats, start -a, stop -s, prune, ps."""

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator

import pytest

from supervisor.cli.stats import CLEAR, CLEAR_REST, HOME, PRESSURES
from supervisor.runtime.oci import cgroups
from tests.supervisor.cli.fake_attach import Pty
from tests.system.daemons import Daemon
from tests.system.exitctl import EXITCTL, SECONDS, Cli
from tests.system.lives import ledger
from tests.system.waits import until

BUSY = "while :; do :; done"
MIB = 1 << 20


@pytest.fixture(scope="module")
def cli(daemon: Daemon) -> Iterator[Cli]:
    """With a container that works without a pause, one that holds memory, and one on the host's network."""
    cli = Cli(daemon)
    cli.background("busy", "--pids-limit", "30", "sh", "-c", BUSY)
    cli.background("holds", "--memory", "64m", "sh", "-c", 'x=$(head -c 20000000 /dev/zero | tr "\\0" x); sleep 1000')
    cli.background("hosts", "--network", "host", "sleep", "1000")
    yield cli
    cli.ok("rm", "-f", "busy", "holds", "hosts")


def test_stats_shows_what_each_uses_as_the_kernel_counts_it(cli: Cli) -> None:
    until(lambda: _used(cli, "holds") > 19 * MIB, "it holds its memory")
    shown = {each["Name"]: each for each in json.loads(cli.ok("stats", "--no-stream", "-i", "0.3", "--format", "json"))}
    assert set(shown) == {"busy", "holds", "hosts"}
    busy, holds, hosts = (shown[name] for name in ("busy", "holds", "hosts"))
    assert float(busy["CPUPerc"].rstrip("%")) > 1 and float(hosts["CPUPerc"].rstrip("%")) < 1
    assert busy["PIDs"] == hosts["PIDs"] == "1"
    assert holds["MemUsage"].endswith(" / 64 MiB") and 30 < float(holds["MemPerc"].rstrip("%")) <= 100
    assert hosts["NetIO"] == "--" and busy["NetIO"] == "0 bytes / 0 bytes"
    assert re.fullmatch(r"[\d.]+ \w+ / [\d.]+ \w+", busy["BlockIO"])
    has_pressure = cgroups.mode() is cgroups.Mode.V2 and os.path.exists("/proc/pressure/cpu")
    assert {busy[name] != "--" for name in PRESSURES} == {has_pressure}


def _used(cli: Cli, name: str) -> int:
    with cli.daemon.client() as client:
        (one,) = client.stats((name,))
        return one.memory_bytes


def test_stats_of_some_is_of_those_and_of_all_has_those_that_do_not_run(cli: Cli) -> None:
    cli.ok("create", "--name", "idle", "--rootfs", "/", "true")
    words = ("stats", "--no-stream", "-i", "0.1", "--format")
    assert cli.ok(*words, "{{.Name}} {{.PIDs}}", "busy", "idle") == "busy 1\nidle --"
    assert "idle" not in cli.ok(*words, "{{.Name}}") and "idle" in cli.ok(*words, "{{.Name}}", "--all")
    whole = cli.field("busy", ".Id")
    assert cli.ok(*words, "{{.ID}}", "--no-trunc", "busy") == whole
    assert cli("stats", "--no-stream", "nobody").code == 125
    cli.ok("rm", "idle")


def test_live_stats_are_drawn_anew_in_their_place_and_end_with_an_interrupt(cli: Cli, pty: Pty) -> None:
    process = subprocess.Popen(
        [EXITCTL, "stats", "-i", "0.1"], env=cli.environment, stdin=pty.slave, stdout=pty.slave, stderr=pty.slave
    )
    seen: list[str] = []
    until(lambda: seen.append(pty.shown()) or "".join(seen).count(HOME) > 2, "it is not drawn anew")  # type: ignore[func-returns-value]
    process.send_signal(signal.SIGINT)
    assert process.wait(SECONDS) == 130
    clear, first, *_ = "".join(seen).split(HOME)
    assert clear == CLEAR and first.endswith(CLEAR_REST) and "busy" in first and "CPU %" in first


def test_stats_that_are_no_table_on_a_terminal_go_on_line_after_line(cli: Cli) -> None:
    process = cli.begin("stats", "--no-reset", "-i", "0.1", "--format", "{{.Name}}", "busy")
    assert process.stdout is not None
    assert [process.stdout.readline() for _ in range(3)] == ["busy\n"] * 3
    process.terminate()
    process.communicate(timeout=SECONDS)


# -- start, stop


def test_an_attached_start_shows_the_output_of_its_own_run_and_has_its_code(cli: Cli) -> None:
    cli.ok("create", "--name", "speaks", "--rootfs", "/", "sh", "-c", "echo out; echo err >&2; exit 3")
    for _ in range(2):
        said = cli("start", "-a", "speaks")
        assert (said.code, said.out, said.err) == (3, "out\n", "err\n")
    assert cli("start", "--attach", "--no-sig-proxy", "--detach-keys", "ctrl-x", "speaks").code == 3
    assert cli.field("speaks", ".Exitd.Run") == "3"
    assert cli("start", "-a", "speaks", "busy").code == 2
    cli.ok("rm", "speaks")


def test_an_attached_start_of_one_that_runs_shows_it_from_now_on(cli: Cli) -> None:
    cli.background(
        "runs", "sh", "-c", "trap 'echo told; exit 4' TERM; echo up; while :; do echo tick; sleep 0.05; done"
    )
    until(lambda: cli.ok("logs", "runs").startswith("up"), "it is up")
    process = cli.begin("start", "-a", "runs")
    assert process.stdout is not None
    assert process.stdout.readline() == "tick\n"  # it is attached: what comes from now on is shown
    cli.ok("stop", "-t", "30", "runs")
    out, _ = process.communicate(timeout=SECONDS)
    assert process.returncode == 4
    assert out.endswith("told\n") and "up" not in out
    cli.ok("rm", "runs")


def test_an_interactive_start_sends_its_input(cli: Cli) -> None:
    cli.ok("create", "-i", "--name", "echoes", "--rootfs", "/", "cat")
    done = subprocess.run(
        [EXITCTL, "start", "-i", "echoes"], env=cli.environment, input=b"hello", capture_output=True, timeout=SECONDS
    )
    assert (done.returncode, done.stdout) == (0, b"hello")
    cli.ok("rm", "echoes")


def test_a_stop_by_another_signal_is_a_stop(cli: Cli) -> None:
    cli.background("obeys", "sh", "-c", "trap 'exit 5' QUIT; while :; do sleep 0.05; done")
    until(lambda: cli.ok("top", "obeys", "-o", "pid,caught").split()[-1] != "0" * 16, "the trap is set")
    cli.ok("restart", "-s", "QUIT", "-t", "60", "obeys")
    until(lambda: "obeys" in cli.ok("ps", "--format", "{{.Name}}"), "it is up again")
    cli.ok("stop", "--signal", "9", "-t", "60", "obeys")
    with cli.daemon.client() as client:
        ends = ledger(client, cli.field("obeys", ".Id"))
    assert [(end.kind, end.reason) for end in ends] == [("exited", "stop"), ("signaled", "stop")]
    assert cli("stop", "-s", "NOPE", "busy").code == 125
    cli.ok("rm", "-v", "obeys")


# -- prune


def test_a_prune_removes_what_does_not_run_and_what_it_is_asked_for(cli: Cli) -> None:
    for name, words in {"old": (), "kept": ("--label", "keep=yes"), "labelled": ("--label", "tier=a")}.items():
        assert cli.run("--name", name, *words, "true").code == 0
    assert "old" in cli.ok("ps", "-a", "--format", "{{.Name}}")
    assert cli("container", "prune", "--filter", "color=red").code == 2
    assert cli("container", "prune", "-f", "--filter", "until=1h").out == "Total reclaimed space: 0 bytes\n"
    labelled = cli.field("labelled", ".Id")
    removed = cli.ok("container", "prune", "--force", "--filter", "label=tier=a").splitlines()
    assert removed[0] == labelled and removed[1].startswith("Total reclaimed space: ") and len(removed) == 2
    asked = subprocess.run(
        [EXITCTL, "container", "prune"], env=cli.environment, input=b"n\n", capture_output=True, timeout=SECONDS
    )
    assert asked.returncode == 0 and b"Go on?" in asked.stderr and asked.stdout == b""
    cli.ok("container", "prune", "-f", "--filter", "label!=keep")
    assert sorted(cli.ok("ps", "-a", "--format", "{{.Name}}").split()) == ["busy", "holds", "hosts", "kept"]
    cli.ok("container", "rm", "kept")


# -- ps


def test_ps_lists_the_newest_first_and_so_many(cli: Cli) -> None:
    for name, code in (("first", 0), ("second", 3)):
        assert cli.run("--name", name, "-l", f"code={code}", "sh", "-c", f"exit {code}").code == code

    def names(*words: str) -> list[str]:
        return cli.ok("ps", "--format", "{{.Names}}", *words).split()

    assert names() == ["hosts", "holds", "busy"]
    assert names("-a") == ["second", "first", "hosts", "holds", "busy"]
    assert names("-l") == ["second"] == names("--latest")
    assert names("-n", "4") == ["second", "first", "hosts", "holds"] and names("--last", "0") == []
    assert names("-f", "exited=3") == ["second"] and names("-f", "exited=0") == ["first"]
    assert names("-a", "-f", "before=hosts") == ["holds", "busy"] and names("-a", "-f", "since=first") == ["second"]
    assert names("-f", "network=host") == ["hosts"] and names("-f", "volume=none") == []
    assert names("-a", "-f", "ancestor=busybox") == []
    assert "no container nobody" in cli("ps", "-f", "before=nobody").err
    assert cli.ok("ps", "-l", "--format", '{{.Label "code"}}') == "3"
    assert "IMAGE" in cli.ok("ps").splitlines()[0].split()
    cli.ok("rm", "first", "second")


# -- health


def test_a_health_check_runs_when_it_is_asked_for_and_its_result_counts(cli: Cli) -> None:
    check = ("--health-cmd", "echo looked; test -e /tmp/well", "--health-interval", "1h", "--health-retries", "2")
    cli.background("patient", *check, "sleep", "1000")
    failed = cli("healthcheck", "run", "patient")
    assert failed.code == 1 and failed.err.startswith("looked\n") and "starting" in failed.err
    assert "unhealthy" in cli("healthcheck", "run", "patient").err
    assert cli.field("patient", ".State.Health.Status") == "unhealthy"
    cli.ok("exec", "patient", "touch", "/tmp/well")
    well = cli("healthcheck", "run", "patient")
    assert (well.code, well.err) == (0, "looked\n")
    assert cli.field("patient", ".State.Health.Status") == "healthy"
    cli.ok("pause", "patient")
    assert cli("healthcheck", "run", "patient").code == 125
    cli.ok("rm", "-f", "patient")
    assert "no health check" in cli("healthcheck", "run", "busy").err
