"""Commands that follow, while exitd is killed and started again."""

import json
import os
import pathlib
import signal

import pytest

from tests.system.daemons import Daemon, daemon
from tests.system.exitctl import Cli
from tests.system.waits import until


def waiters(made: Daemon) -> int:
    with made.client() as client:
        return int(client.info().settings["waiters"])


AWAY = "exitctl: exitd is away; waiting for it ...\n"


def followed(cli: Cli, out: pathlib.Path, err: pathlib.Path, *words: str) -> int:
    """The pid of `exitctl events`, whose output goes to files."""
    return begun(cli, out, err, "events", "--from-seq", "1", "--format", "jsonl", *words)


def begun(cli: Cli, out: pathlib.Path, err: pathlib.Path, *words: str) -> int:
    program = (*cli.program, *words)
    flags = os.O_WRONLY | os.O_CREAT
    return os.posix_spawnp(
        cli.program[0],
        program,
        cli.environment,
        file_actions=[(os.POSIX_SPAWN_OPEN, 1, out, flags, 0o600), (os.POSIX_SPAWN_OPEN, 2, err, flags, 0o600)],
    )


def test_events_go_on_after_a_restart_of_exitd_and_none_is_missed_or_comes_twice(tmp_path: pathlib.Path) -> None:
    out, err = tmp_path / "out", tmp_path / "err"
    with daemon() as made:
        cli = Cli(made)
        cli.run("true")
        pid = followed(cli, out, err)
        try:
            until(lambda: out.exists() and '"exit"' in out.read_text(), "the first exit")
            made.kill()
            until(lambda: err.read_text() == AWAY, "the command has noticed it")
            made.start()
            cli.run("true")
            until(lambda: out.read_text().count('"exit"') == 2, "the second exit")
        finally:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    shown = [json.loads(line)["Seq"] for line in out.read_text().splitlines()]
    assert shown == list(range(1, len(shown) + 1))
    assert err.read_text() == AWAY


def test_events_end_with_125_and_the_next_number_once_exitd_was_away_for_too_long(tmp_path: pathlib.Path) -> None:
    out, err = tmp_path / "out", tmp_path / "err"
    with daemon() as made:
        cli = Cli(made)
        cli.run("true")
        pid = followed(cli, out, err, "--reconnect-seconds", "0.2")
        until(lambda: out.exists() and '"exit"' in out.read_text(), "the first exit")
        made.kill()
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 125
        made.start()
    assert err.read_text().startswith(AWAY + "exitctl: the daemon went away; continue with: exitctl events --from-seq ")


@pytest.mark.parametrize("then", ["it ends meanwhile", "it is restarted and removed", "it ends later"])
def test_a_wait_goes_on_for_the_same_run_over_a_restart_of_exitd(tmp_path: pathlib.Path, then: str) -> None:
    out, err, go = tmp_path / "out", tmp_path / "err", tmp_path / "go"
    with daemon() as made:
        cli = Cli(made)
        script = "[ -e /mnt/go ] && exit 8; while [ ! -e /mnt/go ]; do sleep 0.01; done; exit 7"
        cli.ok("run", "-d", "--name", "web", "-v", f"{tmp_path}:/mnt", "--rootfs", "/", "sh", "-c", script)
        pid = begun(cli, out, err, "wait", "web")
        until(lambda: waiters(made) == 1, "the wait has begun")
        made.kill()
        until(lambda: err.read_text() == AWAY, "the command has noticed it")
        if then != "it ends later":
            go.touch()
        made.start()
        if then == "it is restarted and removed":
            assert cli.ok("wait", "web") == "7"
            cli.ok("start", "web")
            assert cli.ok("wait", "web") == "8"
            cli.ok("rm", "web")
        go.touch()
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert (out.read_text(), err.read_text()) == ("7\n", AWAY)


def test_a_wait_ends_with_125_once_exitd_was_away_for_too_long(tmp_path: pathlib.Path) -> None:
    out, err = tmp_path / "out", tmp_path / "err"
    with daemon() as made:
        cli = Cli(made)
        cli.background("web", "sleep", "100")
        pid = begun(cli, out, err, "wait", "--reconnect-seconds", "0.2", "web")
        until(lambda: waiters(made) == 1, "the wait has begun")
        made.kill()
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 125
        made.start()
    assert err.read_text().startswith(AWAY)
    assert out.read_text() == ""
