"""Logs as a person meets them: kept by each driver, rotated under load, read across the files, real containers all."""

import json
import os
import pathlib
import re
import signal
from collections.abc import Iterator

import pytest

from tests.system.daemons import daemon
from tests.system.exitctl import Cli
from tests.system.waits import until

LINES = 20_000


def numbers(first: int, last: int) -> str:
    """As seq prints them."""
    return "".join(f"{number}\n" for number in range(first, last + 1))


NUMBERS = numbers(1, LINES)
SMALL = ("--log-opt", "max-size=64k", "--log-opt", "max-file=100")
STAMP = re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z ", re.MULTILINE)
BOTH = "seq 1 500; seq 501 1000 >&2; printf end; printf err >&2"


@pytest.fixture(scope="module")
def cli(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cli]:
    config = tmp_path_factory.mktemp("etc") / "config.toml"
    config.write_text('log_driver = "json-file"\nlog_max_size = "4096"\nlog_max_files = 2\n')
    with daemon(extra=("--config", str(config))) as made:
        yield Cli(made)


def files_of(cli: Cli, name: str) -> list[pathlib.Path]:
    """The current one first."""
    path = pathlib.Path(cli.field(name, ".LogPath"))
    numbered = sorted(path.parent.glob(f"{path.name}.*"), key=lambda each: int(each.suffix[1:]))
    return [path, *numbered]


@pytest.mark.parametrize("driver", ["cri", "json-file"])
def test_a_log_that_is_rotated_under_load_is_followed_and_read_back_whole(cli: Cli, driver: str) -> None:
    said = cli.run("--name", driver, "--log-driver", driver, *SMALL, "seq", "1", str(LINES))
    assert (said.code, said.err) == (0, "")
    assert said.out == NUMBERS  # followed meanwhile
    files = files_of(cli, driver)
    assert 5 < len(files) <= 100
    assert cli.ok("logs", driver) + "\n" == NUMBERS
    assert cli.ok("logs", "--tail", "3000", driver).split() == NUMBERS.split()[-3000:]
    assert cli("logs", "-f", driver).out == NUMBERS
    cli.ok("rm", driver)


def test_only_so_many_files_are_kept_and_the_newest_lines_are_in_them(cli: Cli) -> None:
    cli.run("--name", "few", "--log-driver", "cri", *SMALL[:2], "--log-opt", "max-file=3", "seq", "1", str(LINES))
    assert len(files_of(cli, "few")) == 3
    _, *kept = cli.ok("logs", "few").split()  # the first line's beginning may be in a file that is gone
    assert kept == NUMBERS.split()[-len(kept) :]
    cli.ok("rm", "few")


def test_what_a_container_leaves_open_is_as_the_configuration_has_it(cli: Cli) -> None:
    cli.run("--name", "default", "seq", "1", "3000")
    files = files_of(cli, "default")
    assert (len(files), files[0].name) == (2, "container-json.log")
    kept = [json.loads(line) for file in reversed(files) for line in file.read_text().splitlines()]
    text = "".join(each["log"] for each in kept)
    assert (numbers(1, 3000).endswith(text), len(kept) > 10) == (True, True)
    assert {(each["stream"], *each) for each in kept} == {("stdout", "log", "stream", "time")}
    cli.ok("rm", "default")


@pytest.mark.parametrize("driver", ["cri", "json-file"])
def test_both_streams_come_out_as_they_went_in_to_the_last_piece_of_a_line(cli: Cli, driver: str) -> None:
    said = cli.run("--name", "both", "--log-driver", driver, *SMALL, "sh", "-c", BOTH)
    out, err = numbers(1, 500) + "end", numbers(501, 1000) + "err"
    assert (said.code, said.out, said.err) == (0, out, err)
    again = cli("logs", "both")
    assert (again.out, again.err) == (out, err)
    stamped = cli("logs", "-t", "both")
    assert (STAMP.sub("", stamped.out), STAMP.sub("", stamped.err)) == (out, err)
    assert len(STAMP.findall(stamped.out)) == 501
    cli.ok("rm", "both")


def test_a_span_of_time_begins_and_ends_where_it_says(cli: Cli, tmp_path: pathlib.Path) -> None:
    """What the shim reads at once has one time: each line is written when the one before is in the log."""
    script = "for line in one two three; do echo $line; until [ -e /mnt/$line ]; do sleep 0.01; done; done"
    cli.background("span", "-v", f"{tmp_path}:/mnt", "sh", "-c", script)
    for line in ("one", "two", "three"):
        until(lambda: line in cli.ok("logs", "span"), f"no line {line}")  # noqa: B023 - it is over in this turn
        (tmp_path / line).touch()
    assert cli.ok("wait", "span") == "0"
    stamps = [line.split()[0] for line in cli.ok("logs", "--timestamps", "span").splitlines()]
    assert stamps == sorted(stamps)
    assert cli.ok("logs", "--since", stamps[1], "span") == "two\nthree"
    assert cli.ok("logs", "--until", stamps[2], "span") == "one\ntwo"
    assert cli.ok("logs", "-f", "--until", stamps[1], "span") == "one"
    assert cli.ok("logs", "--since", stamps[1], "--until", stamps[2], "--tail", "9", "span") == "two"
    assert cli.ok("logs", "--since", "2100-01-01", "span") == ""
    cli.ok("rm", "span")


def test_following_until_a_time_ends_with_the_container_still_running(cli: Cli) -> None:
    cli.background("stays", "sh", "-c", "echo up; exec sleep 1000")
    until(lambda: cli.ok("logs", "stays") == "up", "it does not come up")
    assert cli.ok("logs", "-f", "--until", "2000-01-01", "stays") == ""
    assert cli.ok("logs", "-f", "--until", "0s", "stays") == "up"
    assert cli.ok("ps", "--filter", "name=stays", "--format", "{{.Name}}") == "stays"
    cli.ok("rm", "-f", "stays")


def test_a_path_of_ones_own_is_written_rotated_and_left_alone(cli: Cli, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "web.log"
    words = ("--log-driver", "cri", "--log-opt", f"path={path}", *SMALL)
    cli.run("--name", "own", *words, "seq", "1", str(LINES))
    assert cli.field("own", ".LogPath") == str(path)
    assert (tmp_path / "web.log.1").exists()
    assert cli.ok("logs", "own") + "\n" == NUMBERS
    taken = cli.run("--name", "thief", *words, "true")
    assert (taken.code, taken.err) == (125, f"exitctl: log path {path} is that of own already\n")
    cli.ok("rm", "own")
    assert path.exists() and path.stat().st_uid == 0


def test_a_path_that_others_could_bend_is_refused_before_anything_is_made(cli: Cli, tmp_path: pathlib.Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("as it was")
    (tmp_path / "link.log").symlink_to(secret)
    said = cli.run("--name", "bent", "--log-driver", "cri", "--log-opt", f"path={tmp_path}/link.log", "echo", "x")
    assert (said.code, said.out) == (125, "")
    assert said.err == f"exitctl: log path {tmp_path}/link.log: it is a link, and links are not followed\n"
    assert "bent" not in cli.ok("ps", "-a", "--format", "{{.Name}}")
    assert secret.read_text() == "as it was"


def test_a_link_that_is_put_there_later_is_neither_written_nor_read_through(cli: Cli, tmp_path: pathlib.Path) -> None:
    path, secret = tmp_path / "web.log", tmp_path / "secret"
    secret.write_text("as it was\n")
    words = ("--log-driver", "cri", "--log-opt", f"path={path}")
    cli.run("--name", "later", *words, "echo", "x")
    path.unlink()
    path.symlink_to(secret)
    cli.ok("start", "later")
    assert cli.ok("wait", "later") == "0"
    assert secret.read_text() == "as it was\n"
    said = cli("logs", "later")
    assert (said.code, said.err) == (125, f"exitctl: the log {path} is a link, and links are not followed; remove it\n")
    cli.ok("rm", "later")


def test_a_log_that_the_kubelet_moves_and_has_reopened_loses_nothing(cli: Cli) -> None:
    script = "echo 1; while [ ! -e /go ]; do sleep 0.01; done; seq 2 2000"
    name = "kube"
    cli.ok("run", "-d", "--name", name, "--log-driver", "cri", "--log-opt", "max-size=0", "/", "sh", "-c", script)
    following = cli.begin("logs", "-f", name)
    until(lambda: cli.ok("logs", name) == "1", "it does not come up")
    path = files_of(cli, name)[0]
    path.rename(path.with_name(f"{path.name}.20261121-230000"))
    with cli.daemon.client() as client:
        client.reopen_log(name)
        until(path.exists, "no new file")
        pid = client.inspect(name).init.pid
    pathlib.Path(f"/proc/{pid}/root/go").touch()
    expected = numbers(1, 2000)
    assert following.communicate(timeout=30)[0] == expected
    assert cli.ok("logs", name) + "\n" == expected
    cli.ok("rm", name)


@pytest.mark.parametrize("driver", ["cri", "json-file"])
def test_a_follower_sees_every_line_once_while_one_shim_after_the_other_is_killed(cli: Cli, driver: str) -> None:
    script = "i=0; until [ -e /stop ]; do seq $((i * 500 + 1)) $((i * 500 + 500)); sleep 0.01; i=$((i + 1)); done"
    words = ("--log-driver", driver, "--log-opt", "max-size=512k", "--log-opt", "max-file=100")
    cli.ok("run", "-d", "--name", "often", *words, "/", "sh", "-c", script)
    following = cli.begin("logs", "-f", "often")
    with cli.daemon.client() as client:
        for _ in range(5):
            pid = client.inspect("often").shim.pid
            os.kill(pid, signal.SIGKILL)
            until(lambda pid=pid: client.inspect("often").shim.pid not in (0, pid), "no replacement")  # type: ignore[misc]
        pathlib.Path(f"/proc/{client.inspect('often').init.pid}/root/stop").touch()
    seen = following.communicate(timeout=30)[0]
    assert seen == numbers(1, seen.count("\n"))
    assert seen.count("\n") >= 2500
    assert cli.ok("logs", "often") + "\n" == seen
    assert cli.ok("wait", "often") == "0"
    cli.ok("rm", "often")


def test_who_keeps_no_log_says_so_and_its_output_still_comes(cli: Cli) -> None:
    said = cli.run("--name", "mute", "--log-driver", "none", "seq", "1", str(LINES))
    assert (said.code, said.out, said.err) == (0, NUMBERS, "")
    assert cli.field("mute", ".LogPath") == ""
    asked = cli("logs", "mute")
    next_step = "see what it writes from now on: exitctl attach mute"
    assert (asked.code, asked.err) == (125, f"exitctl: mute keeps no log (log driver none); {next_step}\n")
    assert cli("why", "mute").code == 0
    cli.ok("rm", "mute")


def test_what_makes_no_sense_is_refused_in_its_own_words(cli: Cli) -> None:
    for words, why in (
        (("--log-driver", "syslog"), "log.driver 'syslog': allowed is cri or json-file or journald or none"),
        (("--log-mode", "fast"), "log.mode 'fast': allowed is blocking or non-blocking"),
        (("--log-opt", "max-size=1"), "log.max_bytes 1: allowed is 0 or 4096 to"),
        (("--log-driver", "none", "--log-opt", "path=/x/y"), "log.path: the log driver none writes no file"),
        (("--log-opt", "path=/no/such/x.log"), "there is no directory /no/such; make it first"),
    ):
        said = cli.run("--name", "wrong", *words, "true")
        assert said.code == 125
        assert why in said.err


def test_a_slow_reader_of_a_log_holds_nobody_up(cli: Cli) -> None:
    cli.run("--name", "big", "--log-driver", "cri", "--log-opt", "max-size=0", "seq", "1", str(10 * LINES))
    reader = cli.begin("logs", "big")  # whose output nobody takes
    assert cli.ok("logs", "--tail", "1", "big") == str(10 * LINES)
    assert reader.communicate(timeout=60) == (numbers(1, 10 * LINES), "")
    cli.ok("rm", "big")
