"""`exitctl image` and IMAGE of `run`, over a real channel to a daemon with canned answers."""

import io
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.cli import fetch
from supervisor.cli.image import image_documents
from supervisor.model import errors
from tests.supervisor.cli.conftest import Exitctl
from tests.supervisor.cli.fake_daemon import FakeDaemon

HEX = "ab12" * 16
ID = f"sha256:{HEX}"
NOW_NS = 1_700_000_000 * 10**9
TWO = pb.Image(
    id=ID,
    digest="sha256:" + "d" * 64,
    names=["docker.io/library/busybox:1.36", "localhost:5000/me/box:latest"],
    size_bytes=5 << 20,
    created="2023-11-14T21:13:20.123456789Z",
    users=["c1"],
)
NAMELESS = pb.Image(id="sha256:" + "0" * 64, size_bytes=10)


@pytest.fixture
def store(daemon: FakeDaemon) -> FakeDaemon:
    daemon.answers.ListImages = lambda _: pb.ListImagesReply(images=[TWO, NAMELESS])
    daemon.answers.LoadImage = lambda _: pb.LoadImageReply(images=[TWO, NAMELESS])
    daemon.answers.PullImage = lambda _: pb.PullImageReply(image=TWO)
    daemon.answers.ImportImage = lambda _: pb.ImportImageReply(image=NAMELESS)
    daemon.answers.RemoveImage = lambda request: pb.RemoveImageReply(names=[request.word], ids=[ID])
    return daemon


def refused(error: errors.ExitdError) -> Any:
    def answer(_: object) -> None:
        raise error

    return answer


def test_ls_has_a_line_for_each_name_in_dockers_columns(store: FakeDaemon, exitctl: Exitctl) -> None:
    lines = [line.split("   ") for line in exitctl("image", "ls").out.splitlines()]
    cells = [[cell.strip() for cell in line if cell.strip()] for line in lines]
    assert cells[0] == ["REPOSITORY", "TAG", "IMAGE ID", "CREATED", "SIZE"]
    assert cells[1][:3] == ["docker.io/library/busybox", "1.36", HEX[:12]]
    assert cells[2][:2] == ["localhost:5000/me/box", "latest"]
    assert cells[3] == ["<none>", "<none>", "0" * 12, "N/A", "10 bytes"]
    assert cells[1][4] == "5 MiB"


def test_ls_prints_ids_alone_once_each_whole_or_short(store: FakeDaemon, exitctl: Exitctl) -> None:
    assert exitctl("image", "ls", "-q").out.split() == [HEX[:12], "0" * 12]
    assert exitctl("image", "ls", "-q", "--no-trunc").out.split() == [ID, NAMELESS.id]


def test_ls_speaks_json_and_templates(store: FakeDaemon, exitctl: Exitctl) -> None:
    (first, *_) = json.loads(exitctl("image", "ls", "--format", "json").out)
    assert (first["ID"], first["Repository"], first["Tag"]) == (ID, "docker.io/library/busybox", "1.36")
    assert (first["Users"], first["SizeBytes"], first["Digest"]) == (["c1"], 5 << 20, TWO.digest)
    names = exitctl("image", "ls", "--format", "{{.Repository}}:{{.Tag}}").out.splitlines()
    assert names == [*TWO.names, "<none>:<none>"]


@pytest.mark.parametrize(
    ("created", "said"),
    [
        ("2023-11-14T21:13:20Z", "About an hour ago"),
        ("", "N/A"),
        ("0001-01-01T00:00:00Z", "N/A"),
        ("0001-01-01T00:00:00+09:00", "N/A"),
        ("last week", "N/A"),
    ],
)
def test_an_age_is_reported_only_where_the_image_has_one(created: str, said: str) -> None:
    (document,) = image_documents(pb.Image(id=ID, created=created), NOW_NS, whole=False)
    assert document["CreatedSince"] == said


@pytest.mark.parametrize(
    ("words", "word"),
    [
        (("x.tar",), "HERE/x.tar"),
        (("-i", "x.tar"), "HERE/x.tar"),
        (("oci:dir:tag",), "oci:HERE/dir:tag"),
        (("docker-archive:/a.tar",), "docker-archive:/a.tar"),
    ],
)
def test_load_names_files_as_the_daemon_can_find_them(
    store: FakeDaemon,
    exitctl: Exitctl,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    words: tuple[str, ...],
    word: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    outcome = exitctl("image", "load", *words)
    assert outcome.out.splitlines() == [f"Loaded image: {name}" for name in TWO.names] + [
        f"Loaded image ID: {NAMELESS.id}"
    ]
    assert store.asked[-1].word == word.replace("HERE", str(tmp_path))
    assert exitctl("image", "load", "-q", *words).out.split() == [TWO.id, NAMELESS.id]


def test_load_gives_the_one_image_another_name(store: FakeDaemon, exitctl: Exitctl) -> None:
    assert exitctl("image", "load", "--name", "me:2", "x.tar").code == 0
    assert store.asked[-1].name == "me:2"


def test_load_and_import_read_standard_input_and_keep_nothing_of_it(
    store: FakeDaemon, exitctl: Exitctl, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    spool, seen = tmp_path / "spool", []
    spool.mkdir()
    monkeypatch.setenv("TMPDIR", str(spool))
    for words, field in ((("load",), "word"), (("load", "-"), "word"), (("import", "-", "me"), "path")):
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"tar"), isatty=lambda: False))
        method = "LoadImage" if words[0] == "load" else "ImportImage"
        answer = getattr(store.answers, method)

        def look(request: Any, answer: Any = answer, field: str = field) -> Any:
            seen.append(Path(getattr(request, field)).read_bytes())
            return answer(request)

        setattr(store.answers, method, look)
        assert exitctl("image", *words).code == 0
        setattr(store.answers, method, answer)
    assert seen == [b"tar"] * 3
    assert os.listdir(spool) == []


def test_a_terminal_is_not_read(store: FakeDaemon, exitctl: Exitctl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: True))
    outcome = exitctl("image", "load")
    assert outcome.code == 2 and "pipe it in" in outcome.err
    assert not store.asked


def test_pull_and_import_print_the_id_and_complete_what_they_name(
    store: FakeDaemon, exitctl: Exitctl, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert exitctl("image", "pull", "busybox").out == f"{ID}\n"
    assert (store.asked[-1].name, store.asked[-1].if_missing) == ("docker://busybox:latest", False)
    exitctl("image", "pull", "oci:l:t")
    assert store.asked[-1].name == f"oci:{tmp_path}/l:t"
    assert exitctl("image", "import", "r.tar", "me:1").out == f"{NAMELESS.id}\n"
    assert (store.asked[-1].path, store.asked[-1].name) == (f"{tmp_path}/r.tar", "me:1")


def test_rm_says_what_went_and_goes_on_after_what_it_may_not_remove(store: FakeDaemon, exitctl: Exitctl) -> None:
    def remove(request: pb.RemoveImageRequest) -> pb.RemoveImageReply:
        if request.word == "used":
            raise errors.ImageInUse("image used is in use by c1")
        return pb.RemoveImageReply(names=[request.word], ids=[ID])

    store.answers.RemoveImage = remove
    outcome = exitctl("image", "rm", "used", "a:1")
    assert (outcome.code, outcome.out) == (125, f"Untagged: a:1\nDeleted: {ID}\n")
    assert outcome.err == "exitctl: image used is in use by c1\n"


def test_rm_with_force_does_not_mind_what_is_not_there_and_minds_what_is_in_use(
    store: FakeDaemon, exitctl: Exitctl
) -> None:
    store.answers.RemoveImage = refused(errors.NoSuchImage("no image"))
    assert (exitctl("image", "rm", "x").code, exitctl("image", "rm", "-f", "x").code) == (125, 0)
    store.answers.RemoveImage = refused(errors.ImageInUse("in use"))
    assert exitctl("image", "rm", "-f", "x").code == 125

    store.answers.RemoveImage = refused(errors.NoSuchImage("no image"))
    assert exitctl("image", "rm", "--ignore", "x").code == 0


def test_rm_of_all_asks_for_each_and_for_no_name(store: FakeDaemon, exitctl: Exitctl) -> None:
    assert exitctl("image", "rm", "--all").code == 0
    assert [each.word for each in store.asked_for(pb.RemoveImageRequest)] == [TWO.id, NAMELESS.id]
    for words in ((), ("--all", "x")):
        outcome = exitctl("image", "rm", *words)
        assert outcome.code == 2 and "which images? Name some, or all of them with --all" in outcome.err


def test_inspect_shows_those_that_there_are_and_fails_for_the_others(store: FakeDaemon, exitctl: Exitctl) -> None:
    def inspect(request: pb.InspectImageRequest) -> pb.InspectImageReply:
        if request.word == "none":
            raise errors.NoSuchImage("no image none")
        return pb.InspectImageReply(image=TWO if request.word == "two" else NAMELESS, config=b"{}")

    store.answers.InspectImage = inspect
    outcome = exitctl("image", "inspect", "two", "none", "other")
    assert [each["Id"] for each in json.loads(outcome.out)] == [TWO.id, NAMELESS.id]
    assert (outcome.code, outcome.err) == (125, "exitctl: no image none\n")
    assert exitctl("image", "inspect", "two").code == 0
    head, row = exitctl("image", "inspect", "--format", "table", "two").out.splitlines()
    assert (head.split(), row.split()) == (["ID", "NAMES", "SIZE"], [TWO.id, *TWO.names, str(TWO.size_bytes)])


def test_tag_gives_the_image_each_of_the_names(store: FakeDaemon, exitctl: Exitctl) -> None:
    store.answers.TagImage = lambda _: pb.TagImageReply(image=TWO)
    assert exitctl("image", "tag", "busybox", "me:1", "me:2").code == 0
    assert [(each.word, each.name) for each in store.asked] == [("busybox", "me:1"), ("busybox", "me:2")]
    assert store.client().tag_image("busybox", "me:3") == TWO


def test_what_podman_says_besides_changes_no_archive(store: FakeDaemon, exitctl: Exitctl, tmp_path: Path) -> None:
    store.answers.SaveImages = lambda _: iter([pb.ArchiveReply(data=b"tar")])
    assert exitctl("image", "save", "-m", "--quiet", "-o", str(tmp_path / "tar"), "a", "b").code == 0
    assert (tmp_path / "tar").read_bytes() == b"tar"
    assert list(store.asked_for(pb.SaveImagesRequest)[0].words) == ["a", "b"]


@pytest.mark.parametrize("word", ["docker://busybox", "oci:/l:t", "docker-archive:/x.tar"])
def test_run_has_the_image_fetched_before_it_asks_for_a_container(
    store: FakeDaemon, exitctl: Exitctl, word: str
) -> None:
    assert exitctl("run", word, "true").code == 7
    pull, create = store.asked[0], store.asked[1]
    assert isinstance(pull, pb.PullImageRequest) and pull.if_missing
    assert isinstance(create, pb.CreateContainerRequest)
    assert (create.spec.image_id, list(create.spec.args)) == (ID, ["true"])
    assert create.spec.image == pull.name


@pytest.mark.parametrize("word", ["pause", "/", "busybox", HEX[:12]])
def test_what_the_daemon_has_is_not_fetched(store: FakeDaemon, exitctl: Exitctl, word: str) -> None:
    exitctl("create", word, "true")
    assert isinstance(store.asked[0], pb.CreateContainerRequest)
    assert (store.asked[0].spec.image, store.asked[0].spec.image_id) == (word, "")


def missing_once(store: FakeDaemon) -> None:
    """The store has no image of that name; once one was pulled, containers are made as ever."""
    made = store.answers.CreateContainer

    def create(request: pb.CreateContainerRequest) -> Any:
        if not request.spec.image_id:
            raise errors.NoSuchImage("no image 'x'")
        return made(request)

    store.answers.CreateContainer = create
    store.answers.InspectImage = refused(errors.NoSuchImage("no image 'x'"))


@pytest.mark.parametrize(
    ("word", "pulled"),
    [
        ("busybox", "docker://busybox:latest"),
        ("docker.io/library/alpine:3.20", "docker://docker.io/library/alpine:3.20"),
        ("quay.io/x/y", "docker://quay.io/x/y:latest"),
    ],
)
@pytest.mark.parametrize("options", [(), ("--pull", "missing"), ("--replace", "--name", "web")])
def test_a_name_that_the_store_has_not_is_pulled_and_kept_as_it_was_written(
    store: FakeDaemon, exitctl: Exitctl, word: str, pulled: str, options: tuple[str, ...]
) -> None:
    missing_once(store)
    assert exitctl("create", *options, word, "true").code == 0
    (pull,) = store.asked_for(pb.PullImageRequest)
    assert (pull.name, pull.if_missing) == (pulled, True)
    last = store.asked_for(pb.CreateContainerRequest)[-1]
    assert (last.spec.image, last.spec.image_id) == (word, ID)
    assert last.replace == ("--replace" in options)


@pytest.mark.parametrize(
    "words", [("--pull", "never", "busybox"), ("sha256:" + HEX,), ("--pull", "never", "docker://busybox")]
)
def test_what_is_to_be_of_the_store_or_is_no_name_is_not_pulled(
    store: FakeDaemon, exitctl: Exitctl, words: tuple[str, ...]
) -> None:
    missing_once(store)
    outcome = exitctl("create", *words, "true")
    assert (outcome.code, outcome.err) == (125, "exitctl: no image 'x'\n")
    assert not store.asked_for(pb.PullImageRequest)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (errors.ToolFailed("skopeo could not pull x: refused"), "no image 'x'; and skopeo could not pull x: refused\n"),
        (
            errors.ToolMissing("skopeo is not installed (Debian: skopeo)"),
            "no image 'x'; and none can be pulled: skopeo is not installed (Debian: skopeo); exitctl image load FILE",
        ),
    ],
)
def test_a_name_that_nobody_has_is_reported_with_both_reasons(
    store: FakeDaemon, exitctl: Exitctl, error: errors.ExitdError, words: str
) -> None:
    missing_once(store)
    store.answers.PullImage = refused(error)
    outcome = exitctl("run", "busybox", "true")
    assert outcome.code == 125 and words in outcome.err


def test_an_image_that_cannot_be_had_is_reported_and_no_container_is_made(store: FakeDaemon, exitctl: Exitctl) -> None:
    store.answers.PullImage = refused(errors.ToolFailed("skopeo could not pull x: refused"))
    outcome = exitctl("run", "docker://x", "true")
    assert (outcome.code, outcome.err) == (125, "exitctl: skopeo could not pull x: refused\n")
    assert not store.asked_for(pb.CreateContainerRequest)


def test_whoever_waits_long_for_an_image_is_told_what_for(
    store: FakeDaemon, exitctl: Exitctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported = threading.Event()
    monkeypatch.setattr(fetch, "QUIET_SECONDS", 0.01)

    def complain(text: str) -> None:
        print(text, file=sys.stderr, flush=True)
        reported.set()

    monkeypatch.setattr(fetch, "complain", complain)

    def slow(_: object) -> pb.PullImageReply:
        assert reported.wait(10)
        return pb.PullImageReply(image=TWO)

    store.answers.PullImage = slow
    outcome = exitctl("image", "pull", "x")
    assert (outcome.code, outcome.out) == (0, f"{ID}\n")
    assert "pulling docker://x:latest" in outcome.err


@pytest.mark.parametrize(
    ("words", "method"), [(("pull", "-q", "x"), "PullImage"), (("import", "--quiet", "r.tar", "x"), "ImportImage")]
)
def test_who_wants_quiet_is_not_told_that_it_takes_long(
    store: FakeDaemon, exitctl: Exitctl, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], method: str
) -> None:
    monkeypatch.setattr(fetch, "QUIET_SECONDS", 0.0)
    answer = getattr(store.answers, method)

    def slow(request: Any) -> Any:
        for timer in [each for each in threading.enumerate() if isinstance(each, threading.Timer)]:
            timer.join(10)
        return answer(request)

    setattr(store.answers, method, slow)
    outcome = exitctl("image", *words)
    assert (outcome.code, outcome.err) == (0, "")


def test_ctrl_c_leaves_the_pull_to_the_daemon_and_says_so(store: FakeDaemon, tmp_path: Path) -> None:
    asked, go_on = threading.Event(), threading.Event()

    def slow(_: object) -> pb.PullImageReply:
        asked.set()
        assert go_on.wait(60)
        return pb.PullImageReply(image=TWO)

    store.answers.PullImage = slow
    command = [sys.executable, "-m", "supervisor.cli", "run", "--rm", "docker://x", "true"]
    environment = {**os.environ, "EXITD_STATE": str(tmp_path), "PYTHONPATH": str(Path(__file__).parents[3])}
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
        assert asked.wait(60)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    go_on.set()
    assert process.returncode == 130
    assert "exitd goes on" in err and "image ls" in err
    assert not store.asked_for(pb.CreateContainerRequest)
