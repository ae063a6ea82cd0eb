"""Images made of containers, and archives of images: what was written is in them, and nothing half is ever listed."""

import json
import os
import pathlib
import re
import subprocess
import tarfile
from collections.abc import Iterator

import pytest

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.model.errors import BadRequest, WrongState
from tests.system import images
from tests.system.daemons import Daemon
from tests.system.exitctl import Cli
from tests.system.waits import until

WRITES = """
cd /; echo mine >old/stays; rm cache/new; mkdir -p new/dir; echo x >new/dir/file; rm -r turns; mkdir turns
echo y >turns/own; mkdir -m 1777 moved; echo later >moved/file
"""
STAYS = f"{WRITES.strip()}; trap 'exit 0' TERM; while :; do read x </dev/null; done"
CHANGES = [
    "C /cache", "D /cache/new", "A /moved", "A /moved/file", "A /new", "A /new/dir", "A /new/dir/file", "C /old",
    "C /old/stays", "C /turns", "D /turns/inside", "A /turns/own",
]  # fmt: skip


@pytest.fixture(scope="module")
def cli(daemon: Daemon, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cli]:
    """With the image `app` and a container `up` on it that has written."""
    cli = Cli(daemon)
    shelf = images.layout(tmp_path_factory.mktemp("shelf") / "box", app=images.app())
    cli.ok("image", "load", "-q", str(shelf))
    cli.ok("run", "-d", "--name", "up", "-u", "root", "-e", "MORE=1", "--entrypoint", "sh", "box:app", "-c", STAYS)
    until(lambda: cli("exec", "up", "cat", "/moved/file").out == "later\n", "it has written")
    yield cli
    cli.ok("rm", "-f", "up")


def test_a_diff_names_what_was_added_changed_and_deleted(cli: Cli) -> None:
    assert cli.ok("diff", "up").splitlines() == CHANGES
    assert json.loads(cli.ok("diff", "--format", "json", "up"))[0] == {"Kind": "C", "Path": "/cache"}


def test_an_export_is_the_root_without_what_is_mounted(cli: Cli, tmp_path: pathlib.Path) -> None:
    cli.ok("export", "-o", f"{tmp_path}/up.tar", "up")
    with tarfile.open(tmp_path / "up.tar") as tar:
        found = {name.removeprefix("./"): tar.getmember(name) for name in tar.getnames()}
        own = tar.extractfile("./old/stays")
        assert own is not None and own.read() == b"mine\n"
    assert "cache/new" not in found and found["moved"].mode == 0o1777
    assert not [name for name in found if name.startswith("proc/")]
    assert os.listdir(tmp_path) == ["up.tar"]


def test_an_image_of_a_container_has_its_files_and_what_it_was_started_with(cli: Cli) -> None:
    made = cli.ok(
        *("commit", "-c", 'CMD ["cat", "/old/stays", "/moved/file"]', "-c", "ENV COLOR=red", "-c", "LABEL own=1"),
        *("-m", "a patch", "-a", "me", "-q", "up", "mine:1"),
    )
    assert cli.field("up", ".State.Status") == "running"
    assert cli.ok("run", "--rm", "mine:1") == "mine\nlater"
    looks = ("run", "--rm", "--entrypoint", "sh", "mine:1", "-c", "echo $COLOR $MORE; ls /turns; ls /cache")
    assert cli.ok(*looks) == "red 1\nown"
    (shown,) = json.loads(cli.ok("image", "inspect", "mine:1"))
    assert (shown["Id"], shown["RepoTags"], shown["Author"]) == (made, ["mine:1"], "me")
    assert len(shown["RootFS"]["Layers"]) == 4 and shown["Config"]["Labels"] == {
        "made": "by hand",
        "own": "1",
        "tier": "image",
    }
    assert cli.ok("image", "inspect", "-f", "{{.Config.Cmd}}", "mine:1") == "[cat /old/stays /moved/file]"
    newest = cli.ok("image", "history", "--format", "{{.ID}} {{.CreatedBy}} {{.Comment}}", "mine:1").splitlines()[0]
    assert newest == f"{made.removeprefix('sha256:')[:12]} exitctl commit a patch"
    assert cli.ok("image", "history", "-q", "--no-trunc", "mine:1").splitlines()[0] == made
    again = cli.ok("commit", "--no-pause", "--pause", "up")
    assert again.startswith("sha256:") and again != made
    assert cli.ok("image", "prune", "-f").splitlines()[:2] == ["Deleted Images:", f"deleted: {again}"]


def test_a_commit_of_what_cannot_be_is_refused_by_name(cli: Cli) -> None:
    cli.run("--name", "plain", "true")
    with cli.daemon.client() as client:
        with pytest.raises(WrongState, match=r"plain stands on no image .* exitctl export plain"):
            client.commit(pb.CommitRequest(id="plain"))
        for change in (
            "RUN x",
            "CMD",
            "CMD [1]",
            "ENV A",
            "EXPOSE x",
            "VOLUME x",
            "STOPSIGNAL x",
            "LABEL 'a",
            "x" * 9000,
        ):
            with pytest.raises(BadRequest, match="change"):
                client.commit(pb.CommitRequest(id="up", changes=[change]))
        with pytest.raises(BadRequest, match="not an image's name"):
            client.commit(pb.CommitRequest(id="up", name="A B"))
        assert client.inspect("up").phase == pb.PHASE_RUNNING
    cli.ok("rm", "plain")


def test_names_are_given_taken_and_looked_up(cli: Cli) -> None:
    cli.ok("tag", "box:app", "other:1", "other:2")
    assert cli("image", "exists", "other:2").code == 0 and cli("image", "exists", "none").code == 1
    assert cli.ok("image", "untag", "box:app", "other:2") == "Untagged: other:2"
    refused = cli("untag", "box:app", "other:2")
    assert refused.code == 125 and "has no name other:2" in refused.err
    assert cli("image", "exists", "other:2").code == 1
    assert cli.ok("rmi", "other:1") == "Untagged: other:1"
    said = cli("image", "inspect", "none")
    assert (said.code, "no image 'none'" in said.err) == (125, True)


def test_what_is_saved_is_loaded_again_here_and_by_skopeo(cli: Cli, tmp_path: pathlib.Path) -> None:
    cli.ok("image", "tag", "box:app", "saved:1")
    cli.ok("save", "-o", f"{tmp_path}/one.tar", "saved:1")
    ids = cli.ok("image", "load", "-q", "--name", "back:1", f"{tmp_path}/one.tar")
    says = images.WHAT_APP_SAYS.format("by image")
    said = cli("run", "--rm", "back:1")
    assert (said.code, said.out) == (7, says), "whiteouts, owners and configuration are the same"
    cli.ok("image", "save", "--format", "docker-archive", "-o", f"{tmp_path}/two.tar", "back:1")
    assert cli.ok("image", "load", "-q", "--name", "third:1", f"{tmp_path}/two.tar") == ids, "the same once more"
    for source in ("oci-archive:{}:saved:1", "docker-archive:{}:saved:1"):
        words = ["skopeo", "inspect", "--raw", source.format(tmp_path / "one.tar")]
        looked = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
        assert looked.returncode == 0, looked.stderr
    with tarfile.open(tmp_path / "one.tar") as tar:
        names = tar.getnames()
    assert names[:3] == ["oci-layout", "index.json", "manifest.json"]
    cli.ok("rmi", "saved:1", "back:1", "third:1")


def test_unused_images_go_by_their_filters(cli: Cli, tmp_path: pathlib.Path) -> None:
    shelf = images.layout(tmp_path / "shelf", one=images.plain(1), two=images.plain(2))
    cli.ok("image", "load", "-q", str(shelf))
    assert cli.ok("image", "prune", "-f") == "Total reclaimed space: 0 bytes"
    assert "shelf" not in cli.ok("image", "prune", "-af", "--filter", "label=none=1")
    assert "shelf" not in cli.ok(
        "image", "prune", "-af", "--filter", "until=1h", "--filter", "label!=none", "--filter", "label=x"
    )
    refused = cli("image", "prune", "--filter", "x=y")
    assert refused.code == 2 and "allowed is until=TIME" in refused.err
    cli.run("--name", "ended", "true")
    out = cli.ok("system", "prune", "-af", "--volumes", "--filter", "label!=none").splitlines()
    assert (
        "Deleted Containers:" in out and "untagged: shelf:one" in out and re.match("Total reclaimed space: ", out[-1])
    )
    assert cli("image", "exists", "shelf:one").code == 1 and cli("image", "exists", "box:app").code == 0


def test_a_commit_that_exitd_does_not_survive_leaves_nothing_frozen(cli: Cli) -> None:
    """Its mark is written before the container is frozen, and read by the next exitd."""
    cli.ok("pause", "up")
    container = cli.field("up", ".Id")
    (cli.daemon.root / "c" / container / "frozen-for-commit").touch()
    cli.daemon.restart()
    cli.until_status("up", "running")
    until(lambda: not (cli.daemon.root / "c" / container / "frozen-for-commit").exists(), "its mark")
    cli.ok("pause", "up")
    cli.daemon.restart()
    assert cli.field("up", ".State.Status") == "paused", "a pause of the user's stays"
    made = cli.ok("commit", "-q", "up")
    assert cli.field("up", ".State.Status") == "paused"
    cli.ok("unpause", "up")
    cli.ok("rmi", made)


def test_a_stop_beside_a_commit_is_heard_and_a_container_is_removed_after_the_commit_of_it(cli: Cli) -> None:
    fills = "i=0; while [ $i -lt 300 ]; do cat /bin/sh; i=$((i+1)); done >/file"
    script = f"{fills}; trap 'exit 0' TERM; echo x >/done; while :; do read x </dev/null; done"
    cli.ok("run", "-d", "--name", "big", "-u", "root", "--entrypoint", "sh", "box:app", "-c", script)
    until(lambda: cli("exec", "big", "cat", "/done").code == 0, "it has written")
    for each in [cli.begin("commit", "-q", "big", "big:0") for _ in range(2)]:  # one after another
        out, err = each.communicate(timeout=60)
        assert each.returncode == 0, err
    committing = cli.begin("commit", "-q", "big", "big:0")
    until(lambda: committing.poll() is not None or cli.field("big", ".State.Status") == "paused", "the commit")
    cli.ok("stop", "-s", "TERM", "-t", "300", "big")
    assert cli.field("big", ".State.ExitCode") == "0", "the program has heard the stop signal"
    out, err = committing.communicate(timeout=60)
    assert committing.returncode == 0, err
    cli.ok("rmi", "big:0")
    cli.ok("start", "big")
    committing = cli.begin("commit", "-q", "big", "big:1")
    removed = cli("rm", "-f", "big")
    out, err = committing.communicate(timeout=60)
    assert removed.code == 0, removed
    if committing.returncode == 0:
        assert cli.ok("run", "--rm", "--entrypoint", "sh", "big:1", "-c", "cat /done") == "x"
        cli.ok("rmi", "big:1")
    else:
        assert "big" in err and out == ""


def test_a_torn_export_never_has_the_files_name(cli: Cli, tmp_path: pathlib.Path) -> None:
    refused = cli("export", "-o", f"{tmp_path}/none/x.tar", "up")
    assert refused.code == 125 and "No such file" in refused.err
    assert cli("export", "-o", f"{tmp_path}/x.tar", "nothing").code == 125
    assert os.listdir(tmp_path) == []
