"""Options of exitctl that need a real container to show what they do."""

import pathlib

import pytest

from tests.system.exitctl import SECONDS, Cli
from tests.system.waits import until


def test_nothing_can_be_written_into_a_read_only_root(cli: Cli) -> None:
    assert cli.run("--rm", "--read-only", "sh", "-c", "echo > /here").code != 0
    assert cli.run("--rm", "sh", "-c", "echo > /here").code == 0
    made = cli.ok("create", "--read-only", "--rootfs", "/", "sh", "-c", "echo > /here || exit 3")
    cli.ok("start", made)
    assert cli.ok("wait", made) == "3"
    cli.ok("rm", made)


@pytest.mark.parametrize("verb", ["run", "create"])
def test_the_pid_file_has_the_first_process(cli: Cli, tmp_path: pathlib.Path, verb: str) -> None:
    path, detached = tmp_path / "pid", ["-d"] if verb == "run" else []
    made = cli.ok(verb, *detached, "--pidfile", str(path), "--rootfs", "/", "sleep", "100")
    assert path.read_text().strip() == cli.field(made, ".State.Pid")
    cli.ok("rm", "-f", made)
    assert cli(verb, *detached, "--pidfile", "/none/pid", "--rootfs", "/", "sleep", "100").code == 125


def test_a_wait_for_the_removal_and_one_for_the_next_exit_answer_then(cli: Cli) -> None:
    made = cli.background("again", "sh", "-c", "sleep 100")
    removed = cli.begin("wait", "--condition", "removed", made)
    upcoming = cli.begin("wait", "--condition", "next-exit", made)
    with cli.daemon.client() as client:
        until(lambda: client.info().settings["waiters"] == "2", "both wait")
    cli.ok("kill", made)
    assert upcoming.communicate(timeout=SECONDS)[0] == "137\n"
    assert removed.poll() is None
    cli.ok("rm", made)
    assert removed.communicate(timeout=SECONDS)[0] == "137\n"


def test_events_end_at_the_time_that_was_asked_for(cli: Cli) -> None:
    cli.run("--rm", "--name", "early", "true")
    assert "early" in cli.ok("events", "--from-seq", "1", "--until", "0s")
    assert cli.ok("events", "--from-seq", "1", "--until", "2001-01-01T00:00:00Z") == ""
