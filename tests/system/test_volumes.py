"""Volumes: what a container leaves there the next one finds, and what an image has there the first one."""

import contextlib
import json
import os
import pathlib
import sqlite3

import pytest

from tests.supervisor.images.building import Made, entry, folder, tar
from tests.system import images
from tests.system.daemons import Daemon
from tests.system.exitctl import Cli
from tests.system.waits import until


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


def test_inspect_shows_what_is_mounted_and_where_that_is(cli: Cli, tmp_path: pathlib.Path) -> None:
    below = "src=data,dst=/b,volume-subpath=b"
    made = ("-v", f"{tmp_path}:/host:ro", "-v", "data:/mnt", "--mount", below, "--tmpfs", "/scratch")
    cli.ok("create", "--name", "shown", *made, "/", "true")
    shown = cli.ok("inspect", "-f", "{{range .Mounts}}{{.Type}} {{.Source}} {{.Destination}} {{.RW}}\n{{end}}", "shown")
    data = cli.ok("volume", "inspect", "-f", "{{.Mountpoint}}", "data")
    assert shown.splitlines() == [
        f"bind {tmp_path} /host false",
        f"volume {data} /mnt true",
        f"volume {data}/b /b true",
        "tmpfs  /scratch true",
    ]
    cli.ok("rm", "shown")
    cli.ok("volume", "rm", "data")


def test_a_path_in_a_volume_is_mounted_alone_and_leads_nowhere_else(cli: Cli) -> None:
    below = ("--mount", "src=data,dst=/mnt,volume-subpath=a/b")
    assert cli.run("--rm", *below, "touch", "/mnt/file").code == 0
    assert cli.run("--rm", "-v", "data:/srv", "sh", "-c", "ls /srv/a/b; ln -s /etc /srv/out").out == "file\n"
    assert cli.run("--rm", *below, "ls", "/mnt").out == "file\n"
    for path, said in (("a/../../..", "allowed is a relative path"), ("out", "mount at /mnt: the path 'out' of data")):
        refused = cli.run("--rm", "--mount", f"src=data,dst=/mnt,volume-subpath={path}", "ls", "/mnt")
        assert (refused.code, refused.out, said in refused.err) == (125, "", True), refused
    cli.ok("volume", "rm", "data")


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
    until(lambda: os.listdir(top) == [], f"left: {os.listdir(top)}")


def shelved(cli: Cli, directory: pathlib.Path) -> None:
    """Load `box:v`, whose /data belongs to a user, has a file, and is a volume of the image's."""
    data = (folder("data", uid=1000, gid=1000, mode=0o750), (entry("data/seed", uid=1000, gid=1000), b"of the image"))
    made = Made(
        [images.base_layer(), tar(*data)], {"Cmd": ["/bin/true"], "Env": ["PATH=/bin"], "Volumes": {"/data": {}}}
    )
    cli.ok("image", "load", "-q", str(images.layout(directory / "box", v=made)))


def test_a_new_volume_gets_what_the_image_has_once(cli: Cli, tmp_path: pathlib.Path) -> None:
    shelved(cli, tmp_path)
    top = pathlib.Path(f"{cli.daemon.root}/v")
    assert cli.ok("run", "--rm", "-v", "named:/data", "box:v", "cat", "/data/seed") == "of the image"
    facts = (top / "named/data").stat()
    assert (facts.st_uid, facts.st_gid, facts.st_mode & 0o7777) == (1000, 1000, 0o750)
    cli.ok("run", "--rm", "-v", "named:/data", "box:v", "rm", "/data/seed")
    assert cli.ok("run", "--rm", "-v", "named:/data", "box:v", "ls", "/data") == "", "not a second time"
    assert cli.ok("run", "--rm", "-v", "bare:/data:nocopy", "box:v", "ls", "/data") == ""
    assert cli.ok("run", "--rm", "--mount", "src=bare,dst=/data", "box:v", "ls", "/data") == "seed"
    for name in ("named", "bare"):
        cli.ok("volume", "rm", name)
    cli.ok("rmi", "box:v")


def test_a_fill_that_exitd_did_not_survive_is_done_anew_before_a_container_sees_it(
    cli: Cli, tmp_path: pathlib.Path
) -> None:
    shelved(cli, tmp_path)
    top = pathlib.Path(f"{cli.daemon.root}/v/half")
    cli.ok("volume", "create", "half")
    (top / "data/torn").touch()
    os.rename(top / "new", top / "filling")
    cli.daemon.restart()
    assert cli.ok("run", "--rm", "-v", "half:/data", "box:v", "ls", "/data") == "seed"
    cli.ok("volume", "rm", "half")
    cli.ok("rmi", "box:v")


def test_anonymous_volumes_go_with_their_container_when_that_is_asked_for(cli: Cli, tmp_path: pathlib.Path) -> None:
    shelved(cli, tmp_path)
    assert cli.ok("run", "--rm", "-v", "/more", "box:v", "ls", "/data") == "seed"
    assert cli.ok("volume", "ls", "-q") == "", "the image's and its own went with --rm"
    cli.ok("run", "--name", "one", "-v", "/more", "box:v", "touch", "/data/mine", "/more/mine")
    (first, second) = cli.ok("volume", "ls", "-q").split()
    assert cli.ok("volume", "ls", "--format", "{{.Anonymous}}") == "true\ntrue"
    cli.ok("start", "one")
    assert cli.ok("volume", "ls", "-q").split() == [first, second], "a container keeps its own"
    assert cli("volume", "rm", first).code == 125
    cli.ok("rm", "one")
    assert cli.ok("volume", "ls", "-q").split() == [first, second]
    assert cli.ok("system", "prune", "-f", "--volumes").splitlines()[:3] == ["Deleted Volumes:", first, second]
    cli.ok("run", "-d", "--name", "two", "box:v", "sleep", "600")
    cli.ok("rm", "-f", "-v", "two")
    assert cli.ok("volume", "ls", "-q") == ""
    failed = cli("run", "--name", "three", "box:v", "no-such-program")
    assert failed.code == 127 and cli.ok("volume", "ls", "-q") == "", failed
    assert cli.ok("run", "--rm", "--tmpfs", "/data", "box:v", "ls", "/data") == "", "mounted by the caller"
    pod = cli.ok("run", "-d", "--network", "none", "--annotation", "io.kubernetes.docker.type=podsandbox", "pause")
    cli.ok("run", "-d", "--pod", pod, "box:v", "sleep", "600")
    assert len(cli.ok("volume", "ls", "-q").split()) == 1
    cli.ok("rmp", "-f", pod)
    assert cli.ok("volume", "ls", "-q") == "", "as with the CRI"
    cli.ok("rmi", "box:v")


def test_no_volume_goes_while_a_damaged_container_may_use_it(cli: Cli) -> None:
    cli.run("--name", "odd", "-v", "kept:/mnt", "true")
    cli.daemon.kill(15)
    with contextlib.closing(sqlite3.connect(cli.daemon.root / "exitd.db")) as database:
        database.execute("UPDATE containers SET body = replace(body, '\"mounts\"', '\"mountz')")
        database.commit()
    cli.daemon.start()
    refused = cli("volume", "rm", "kept")
    assert (refused.code, "whose row is damaged" in refused.err) == (125, True), refused
    cli.ok("rm", "-f", "odd")
    assert cli.ok("volume", "rm", "kept") == "kept"
