"""Named volumes: what a container leaves there the next one finds."""

import json
import os
import pathlib

import pytest

from tests.system.daemons import Daemon
from tests.system.exitctl import Cli


@pytest.fixture
def cli(daemon: Daemon) -> Cli:
    return Cli(daemon)


def test_a_volume_outlives_its_containers_and_is_removed_by_its_name(cli: Cli) -> None:
    assert cli.run("--rm", "-v", "data:/mnt", "sh", "-c", "echo once >/mnt/file").code == 0
    assert cli.run("--rm", "-v", "data:/srv:ro", "cat", "/srv/file").out == "once\n"
    assert cli.run("--rm", "-v", "data:/srv:ro", "sh", "-c", "echo >/srv/file").code == 2
    assert cli.ok("volume", "ls", "-q") == "data"
    (shown,) = json.loads(cli.ok("volume", "inspect", "data"))
    assert (shown["Name"], shown["Containers"]) == ("data", [])
    assert (pathlib.Path(shown["Mountpoint"]) / "file").read_text() == "once\n"
    assert cli.ok("volume", "ls", "--format", "{{.Name}} {{.Driver}}") == "data local"
    assert cli.ok("volume", "inspect", "--format", "{{.Mountpoint}}", "data") == shown["Mountpoint"]
    assert cli.ok("volume", "rm", "data") == "data"
    assert cli.ok("volume", "ls", "-q") == ""
    assert os.listdir(f"{cli.daemon.root}/v") == []


def test_one_in_use_is_kept_whether_or_not_its_container_runs(cli: Cli) -> None:
    cli.run("--name", "user", "--mount", "src=data,dst=/mnt", "true")
    assert cli.ok("volume", "create", "other") == "other"
    refused = cli("volume", "rm", "data")
    assert (refused.code, "volume data is in use by" in refused.err) == (125, True), refused
    assert cli.ok("volume", "prune", "--force") == "other"
    assert cli.ok("volume", "ls", "-q") == "data"
    row = cli.ok("volume", "ls").splitlines()[1].split()
    assert (row[0], row[-1]) == ("data", "1")
    cli.ok("rm", "user")
    assert cli.ok("volume", "rm", "data") == "data"


def test_what_is_no_volume_is_refused_by_its_name(cli: Cli) -> None:
    for words in (("rm", "none"), ("inspect", "none")):
        said = cli("volume", *words)
        assert (said.code, "no volume none" in said.err) == (125, True), said
    assert cli("volume", "rm", "-f", "none").code == 0
    said = cli("volume", "create", "a/b")
    assert (said.code, "the name of a volume" in said.err) == (125, True), said


def test_a_removal_that_was_cut_off_is_completed_by_the_next_exitd(cli: Cli) -> None:
    cli.ok("volume", "create", "data")
    top = pathlib.Path(f"{cli.daemon.root}/v")
    os.rename(top / "data", top / ".gone-0")
    cli.daemon.kill()
    cli.daemon.start()
    cli.ok("volume", "create", "after")  # waits for no removal, so this does
    cli("volume", "rm", "after")
    assert os.listdir(top) == []
