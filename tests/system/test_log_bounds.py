"""Logs have a bound unless somebody has said otherwise; a container keeps what it was made with."""

import contextlib
import json
import pathlib
import sqlite3
from collections.abc import Iterator

import pytest

from tests.system import daemons
from tests.system.daemons import Daemon
from tests.system.exitctl import Cli

FILE_BYTES = 10 << 20
WRITES = "seq 1 2000000"  # some 15 MB, and with the time and the stream of each line 100 MB


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    with daemons.daemon() as made:
        yield made


def sizes(exitctl: Cli, name: str) -> list[int]:
    path = pathlib.Path(exitctl.field(name, ".LogPath"))
    return sorted(each.stat().st_size for each in path.parent.glob(f"{path.name}*"))


@pytest.mark.parametrize("driver", ["cri", "json-file"])
def test_a_log_is_five_files_of_ten_mib_and_ends_with_the_last_line(daemon: Daemon, driver: str) -> None:
    exitctl = Cli(daemon)
    assert exitctl.run("-d", "--name", "many", "--log-driver", driver, "sh", "-c", WRITES).code == 0
    assert exitctl.ok("wait", "many") == "0"
    assert exitctl.ok("logs", "--tail", "1", "many") == "2000000"
    found = sizes(exitctl, "many")
    assert len(found) == 5 and found[-1] < FILE_BYTES + (1 << 20) and found[1] > FILE_BYTES // 2


@pytest.mark.parametrize("size", ["0", "-1"])
def test_a_size_of_none_is_no_bound(daemon: Daemon, size: str) -> None:
    exitctl = Cli(daemon)
    words = ("-d", "--name", "one", "--log-opt", f"max-size={size}", "sh", "-c", "seq 1 400000")
    assert exitctl.run(*words).code == 0
    assert exitctl.ok("wait", "one") == "0"
    (found,) = sizes(exitctl, "one")
    assert found > FILE_BYTES


def test_a_container_of_an_earlier_exitd_keeps_its_log_whole(daemon: Daemon) -> None:
    """Its row says 0, which was the default."""
    exitctl = Cli(daemon)
    script = "[ ! -e /var/tmp/mark ] || seq 1 400000; touch /var/tmp/mark"
    assert exitctl.run("--name", "old", "sh", "-c", script).code == 0
    container = exitctl.field("old", ".Id")
    daemon.kill(15)
    with contextlib.closing(sqlite3.connect(daemon.root / "exitd.db")) as database:
        (text,) = database.execute("SELECT body FROM containers WHERE id = ?", (container,)).fetchone()
        body = json.loads(text)
        body["spec"]["log"]["max_bytes"] = 0
        database.execute("UPDATE containers SET body = ? WHERE id = ?", (json.dumps(body), container))
        database.commit()
    daemon.start()
    exitctl.ok("start", "old")
    assert exitctl.ok("wait", "--condition", "exited", "old") == "0"
    (found,) = sizes(exitctl, "old")
    assert found > FILE_BYTES
