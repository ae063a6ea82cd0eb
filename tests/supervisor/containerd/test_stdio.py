"""The words of a task's streams, and what there must be on the disk before its shim may open them."""

import os
import pathlib

import pytest

from supervisor.containerd import stdio
from supervisor.containerd.stdio import WantedStdio, Words
from supervisor.model.errors import BadRequest
from supervisor.model.values import ForeignStreams


def parse(stdin: str = "", stdout: str = "", stderr: str = "") -> WantedStdio:
    return stdio.parse(Words("k8s.io", "box", stdin, stdout, stderr))


@pytest.mark.parametrize("word", ["", "/dev/null"])
def test_nothing_is_opened_where_nobody_listens(word: str) -> None:
    assert parse(word, word, word) == WantedStdio(ForeignStreams())


def test_a_path_and_a_fifo_uri_mean_the_same() -> None:
    wanted = WantedStdio(ForeignStreams(out="/f/out", err="/f/err", stdin="/f/in"))
    assert parse("/f/in", "/f/out", "/f/err") == wanted
    assert parse("fifo:///f/in", "fifo:///f/out", "fifo:///f/err") == wanted


def test_a_path_without_a_scheme_is_taken_as_it_stands() -> None:
    assert parse(stdout="/f/a%20b?c#d").streams.out == "/f/a%20b?c#d"
    assert parse(stdout="fifo:///f/a%20b").streams.out == "/f/a b"


def test_stderr_may_be_left_out() -> None:
    assert parse(stdout="/f/out") == WantedStdio(ForeignStreams(out="/f/out"))


def test_a_terminal_has_one_output() -> None:
    words = Words("k8s.io", "box", "/f/in", "/f/out", "/f/err", terminal=True)
    assert stdio.parse(words) == WantedStdio(ForeignStreams(out="/f/out", stdin="/f/in"))


def test_both_streams_may_go_to_one_file() -> None:
    assert parse(stdout="file:///log/a", stderr="file:///log/a") == WantedStdio(
        ForeignStreams(out="/log/a", err="/log/a"), ("/log/a",)
    )


@pytest.mark.parametrize("scheme", ["binary", "binary-v2"])
def test_a_program_gets_its_arguments_in_pairs_and_two_variables(scheme: str) -> None:
    word = f"{scheme}:///usr/bin/logger?id=a%20b&empty&id=second"
    wanted = ForeignStreams(
        logger=("/usr/bin/logger", "id", "a b", "empty", ""),
        logger_env=("CONTAINER_ID=box", "CONTAINER_NAMESPACE=k8s.io"),
    )
    assert parse(stdout=word, stderr=word) == parse(stdout=word) == WantedStdio(wanted)


def test_the_owner_of_the_pipes_goes_with_them() -> None:
    found = stdio.parse(Words("ns", "box", stdout="/f/out"), (1000, 1001)).streams
    assert (found.uid, found.gid) == (1000, 1001)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ({"stdout": "ttrpc+unix:///s?streaming_id=x"}, r"stdout .*ttrpc\+unix"),
        ({"stdout": "npipe:////./pipe/x"}, "npipe"),
        ({"stderr": "http://host/x"}, "stderr .*http"),
        ({"stdin": "file:///in"}, "stdin .*file"),
        ({"stdin": "binary:///in"}, "stdin .*binary"),
        ({"stdout": "relative"}, "absolute"),
        ({"stdout": "file://host/x"}, "absolute"),
        ({"stdout": "file:///a%00b"}, "absolute"),
        ({"stdout": "/a\0b"}, "zero byte"),
        ({"stdin": "/" + "a" * 4096}, "4096 characters"),
        ({"stdout": "/f/out", "stderr": "binary:///usr/bin/logger"}, "stderr"),
        ({"stdout": "binary:///a", "stderr": "binary:///b"}, "stderr"),
        ({"stdout": "binary:///a?" + "&".join(f"k{n}=v" for n in range(36))}, "at most 35"),
    ],
)
def test_what_cannot_be_is_refused_by_name(words: dict[str, str], says: str) -> None:
    with pytest.raises(BadRequest, match=says):
        parse(**words)


def test_a_file_is_made_with_its_directories_and_kept_when_it_is_there(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "a" / "b" / "out.log"
    wanted = parse(stdout=f"file://{path}", stderr=f"file://{path}")
    assert stdio.settle(wanted) == wanted.streams
    assert path.stat().st_mode & 0o777 == 0o644 & ~current_umask()
    path.write_text("before")
    stdio.settle(wanted)
    assert path.read_text() == "before"


def current_umask() -> int:
    os.umask(mask := os.umask(0o022))
    return mask


def test_a_fifo_is_looked_at_and_not_opened(tmp_path: pathlib.Path) -> None:
    fifos = [str(tmp_path / name) for name in ("in", "out", "err")]
    for path in fifos:
        os.mkfifo(path)
    assert stdio.settle(parse(*fifos)) == parse(*fifos).streams


def test_a_link_is_followed_before_the_shim_which_follows_none(tmp_path: pathlib.Path) -> None:
    os.mkfifo(tmp_path / "real")
    (tmp_path / "link").symlink_to("real")
    assert stdio.settle(parse(stdout=f"{tmp_path}/link")).out == f"{tmp_path}/real"


def test_a_fifo_in_the_place_of_a_file_does_not_hold_the_caller(tmp_path: pathlib.Path) -> None:
    os.mkfifo(tmp_path / "log")
    with pytest.raises(BadRequest, match="log"):
        stdio.settle(parse(stdout=f"file://{tmp_path}/log"))


def test_what_is_not_there_or_is_nothing_to_write_to_is_refused(tmp_path: pathlib.Path) -> None:
    for wanted in (parse(stdout=f"{tmp_path}/nothing"), parse(stderr=str(tmp_path)), parse(stdin="/dev/zero")):
        with pytest.raises(BadRequest):
            stdio.settle(wanted)
    (tmp_path / "file").write_text("")
    assert stdio.settle(parse(stdout=f"{tmp_path}/file")).out == f"{tmp_path}/file"
    with pytest.raises(BadRequest, match="fifo"):
        stdio.settle(parse(stdin=f"{tmp_path}/file"))
    with pytest.raises(BadRequest, match="no program"):
        stdio.settle(parse(stdout=f"binary://{tmp_path}/file"))
