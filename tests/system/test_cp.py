"""`exitctl cp`: docker's rules, in and out, of containers that run and that rest; no path leads out of them."""

import contextlib
import io
import os
import pathlib
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator

import pytest

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.model.errors import BadRequest, NoSuchPath, WrongState
from tests.system.daemons import Daemon
from tests.system.exitctl import EXITCTL, Cli

WAITS = ("sh", "-c", "trap 'exit 0' TERM; while :; do sleep 60 & wait; done")
FILLS = """
mkdir -p /var/tmp/d/sub /var/tmp/empty; echo one >/var/tmp/d/one; echo two >/var/tmp/d/sub/two; ln -s sub /var/tmp/d/way
ln /var/tmp/d/one /var/tmp/d/again; mkfifo /var/tmp/d/fifo; ln -s / /var/tmp/d/root
ln -s ../../../../../etc/passwd /var/tmp/d/up
chown 12:34 /var/tmp/d/one; chmod 4750 /var/tmp/d/one; echo kept >/srv/file; exit 0
"""


@pytest.fixture(scope="module")
def cli(daemon: Daemon) -> Iterator[Cli]:
    """With a container that runs, `up`, and one that has ended, `over`; both have the same files."""
    cli = Cli(daemon)
    cli.ok("volume", "create", "data")
    mounts = ("-v", "data:/srv", "-v", "data:/mnt:ro")
    cli.background("up", *mounts, *WAITS)
    cli.ok("exec", "up", "sh", "-c", FILLS)
    assert cli.run("--name", "over", *mounts, "sh", "-c", FILLS).code == 0
    cli.until_status("over", "exited")
    yield cli
    cli.ok("rm", "-f", "up", "over")


both = pytest.mark.parametrize("name", ["up", "over"])


@both
def test_files_come_out_by_dockers_rules(cli: Cli, tmp_path: pathlib.Path, name: str) -> None:
    cli.ok("cp", "-q", f"{name}:/var/tmp/d/one", f"{tmp_path}/file")
    assert (tmp_path / "file").read_text() == "one\n"
    assert (tmp_path / "file").stat().st_mode & 0o7777 == 0o750 and (tmp_path / "file").stat().st_uid == 0
    cli.ok("cp", "-q", "-a", f"{name}:/var/tmp/d", str(tmp_path))
    made = tmp_path / "d"
    assert (made / "one").stat().st_ino == (made / "again").stat().st_ino
    facts = (made / "one").stat()
    assert (facts.st_mode & 0o7777, facts.st_uid, facts.st_gid) == (0o4750, 12, 34)
    assert os.readlink(made / "way") == "sub" and (made / "sub/two").read_text() == "two\n"
    cli.ok("cp", "-q", f"{name}:/var/tmp/d/.", f"{tmp_path}/new")
    assert sorted(os.listdir(tmp_path / "new")) == sorted(os.listdir(made))
    cli.ok("cp", "-q", "-L", f"{name}:/var/tmp/d/way", f"{tmp_path}/followed")
    assert os.listdir(tmp_path / "followed") == ["two"]
    for words, why in (
        ((f"{name}:/var/tmp/none", "."), "no /var/tmp/none in the container"),
        ((f"{name}:/var/tmp/d/one/", "."), "not a directory"),
        ((f"{name}:/var/tmp/d", f"{tmp_path}/file"), "is a directory, and"),
        ((f"{name}:/var/tmp/d/one", f"{tmp_path}/none/"), "there is no such directory"),
        (("/etc/hosts", "/tmp"), "which container?"),
    ):
        said = cli("cp", *words)
        assert said.code == 125 and why in said.err, said


@both
def test_files_go_in_by_dockers_rules(cli: Cli, tmp_path: pathlib.Path, name: str) -> None:
    (tmp_path / "in/deep").mkdir(parents=True)
    (tmp_path / "in/deep/file").write_text("into\n")
    os.chown(tmp_path / "in/deep/file", 12, 34)
    said = cli("cp", f"{tmp_path}/in", f"{name}:/var/tmp/empty")
    assert (said.code, said.err) == (0, "exitctl: copied 3 files and directories\n")
    cli.ok("cp", "-q", "-a", f"{tmp_path}/in/.", f"{name}:/var/tmp/new")
    back = tmp_path / "back"
    back.mkdir()
    for path, owner in (("empty/in/deep/file", 0), ("new/deep/file", 12)):
        cli.ok("cp", "-q", "-a", f"{name}:/var/tmp/{path}", f"{back}/file")
        assert (back / "file").read_text() == "into\n" and (back / "file").stat().st_uid == owner
    cli.ok("cp", "-q", f"{name}:/var/tmp/new/deep/file", f"{'over' if name == 'up' else 'up'}:/var/tmp/file")
    cli.ok("cp", "-q", f"{name}:/var/tmp/new/deep/file", f"{name}:/srv")
    assert (pathlib.Path(f"{cli.daemon.root}/v/data/data/file")).read_text() == "into\n"
    for words, why in (
        ((f"{tmp_path}/in", f"{name}:/var/tmp/new/deep/file"), "is a directory, and"),
        ((f"{tmp_path}/in/deep/file", f"{name}:/none/x"), "no /none"),
        ((f"{tmp_path}/in/deep/file", f"{name}:/mnt"), "read-only" if name == "over" else "Read-only"),
        ((f"{tmp_path}/none", f"{name}:/"), "no such file"),
    ):
        said = cli("cp", *words)
        assert said.code == 125 and why in said.err, said


@both
def test_no_path_leads_out_of_the_container(cli: Cli, name: str) -> None:
    """The root is that of this machine, but for what is mounted there."""
    with tempfile.NamedTemporaryFile(dir="/dev/shm") as outside, cli.daemon.client() as client:
        for way in ("/var/tmp/d/root", "/../../..", "/proc/1/root", "/proc/self/cwd"):
            with pytest.raises((NoSuchPath, WrongState)):
                client.stat_path(name, f"{way}{outside.name}", follow=True)
        with pytest.raises(WrongState, match="not on a disk"):
            list(client.copy_from("up", "/proc/version"))
        assert client.stat_path(name, "/var/tmp/d/up", follow=True).name == "up"
        with pytest.raises(BadRequest, match="path"):
            client.stat_path(name, "/a\0b")


HOSTILE = {
    "an absolute name": ("/var/tmp/x", tarfile.REGTYPE, ""),
    "a name with ..": ("../x", tarfile.REGTYPE, ""),
    "a name through a link": ("way/x", tarfile.REGTYPE, ""),
    "a hard link to what is not there": ("x", tarfile.LNKTYPE, "../../../etc/passwd"),
    "a file over a directory": ("sub", tarfile.REGTYPE, ""),
}


@both
@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_tar_is_refused_by_the_entrys_name(cli: Cli, what: str, name: str) -> None:
    text, kind, target = HOSTILE[what]
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        info = tarfile.TarInfo(text)
        info.type, info.linkname = kind, target
        tar.addfile(info)
    with cli.daemon.client() as client, pytest.raises((BadRequest, WrongState), match=text.rpartition("/")[2]):
        client.copy_to(name, "/var/tmp/d", iter([out.getvalue()]))


def test_a_tar_goes_in_and_out_by_standard_input_and_output(cli: Cli) -> None:
    def said(*words: str, data: bytes = b"") -> "subprocess.CompletedProcess[bytes]":
        command = [EXITCTL, "cp", "-q", *words]
        return subprocess.run(command, env=cli.environment, input=data, capture_output=True, timeout=60, check=False)

    out = said("up:/var/tmp/d", "-")
    with tarfile.open(fileobj=io.BytesIO(out.stdout)) as tar:
        names = tar.getnames()
    assert names[0] == "d" and {"d/one", "d/sub/two", "d/fifo", "d/way"} <= {*names}
    cli.ok("exec", "up", "mkdir", "/var/tmp/from")
    assert said("-", "up:/var/tmp/from", data=out.stdout).returncode == 0
    assert cli.ok("exec", "up", "cat", "/var/tmp/from/d/sub/two") == "two"
    torn = said("-", "up:/var/tmp/from", data=out.stdout[:700])
    assert torn.returncode == 125 and b"ends" in torn.stderr


def test_over_grpc_it_is_the_same(cli: Cli, tmp_path: pathlib.Path) -> None:
    cli.ok("--grpc", "cp", "-q", "up:/var/tmp/d", f"{tmp_path}/d")
    cli.ok("--grpc", "cp", "-q", f"{tmp_path}/d/one", "up:/var/tmp/one")
    assert cli.ok("exec", "up", "cat", "/var/tmp/one") == "one"
    with cli.daemon.client() as client, contextlib.closing(client):
        done = client.copy_to("up", "/var/tmp", iter([b""]))
        assert isinstance(done, pb.CopyDone) and done.entries == 0
