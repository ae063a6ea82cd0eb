"""A shim's logs on a real runc: two formats, rotated, opened anew, on disks that are full."""

import errno
import itertools
import os
import pathlib
from collections.abc import Iterator

import pytest

from shim import native
from tests.system.keepers import Keeper, Node
from tests.system.streams import attached, control, finish, json_texts, make, rotated, texts
from tests.system.waits import until, wait_readable

COUNT = "seq 1 30000"
COUNTED = b"".join(b"%d\n" % i for i in range(1, 30001))


def sizes(path: pathlib.Path) -> dict[str, int]:
    return {each.name.removeprefix(path.name): each.stat().st_size for each in path.parent.glob(f"{path.name}*")}


def test_both_formats_have_every_character_and_the_last_line_without_its_end(node: Node, keeper: Keeper) -> None:
    path = node.directory / "box-json.log"
    text = 'ä€😀"\\ \t' * 3000
    bundle = node.bundle("/bin/sh", "-c", f"{COUNT}; cat /text; printf 'no end'; printf oops >&2")
    (bundle / "rootfs/text").write_text(text)
    run = make(keeper, "box", bundle, json_log=str(path))
    run.start()
    assert wait_readable(run.shim_pidfd)
    wanted = COUNTED.decode() + text + "no end"
    assert json_texts(path.read_bytes()) == wanted
    assert json_texts(path.read_bytes(), "stderr") == "oops"
    assert texts((run.directory / "log").read_bytes()).decode() == wanted
    finish(node, keeper, run)


def test_the_begin_of_a_character_at_the_very_end_is_shown_as_one_that_is_none(node: Node, keeper: Keeper) -> None:
    path = node.directory / "box-json.log"
    run = make(keeper, "box", node.bundle("/bin/sh", "-c", r"printf 'x\342\202'"), json_log=str(path), log="")
    run.start()
    assert wait_readable(run.shim_pidfd)
    assert json_texts(path.read_bytes()) == "x\ufffd"
    finish(node, keeper, run)


@pytest.mark.parametrize("limit", [30_000, 300_000])
def test_no_line_is_lost_across_rotation_and_no_file_is_too_long(node: Node, keeper: Keeper, limit: int) -> None:
    path, json_path = node.directory / "box.log", node.directory / "box-json.log"
    bundle = node.bundle("/bin/sh", "-c", f"{COUNT}; {COUNT} >&2")
    run = make(
        keeper, "box", bundle, log=str(path), json_log=str(json_path), log_bytes=limit, log_files=1000
    )  # fmt: skip
    run.start()
    assert wait_readable(run.shim_pidfd)
    for stream in ("stdout", "stderr"):
        assert texts(rotated(path), stream) == COUNTED
        assert json_texts(rotated(json_path), stream) == COUNTED.decode()
    # One batch is never divided: of lines this short it may become more than such a small file is to hold.
    most = limit if limit >= 300_000 else 100_000
    assert len(sizes(path)) > 5 and max(sizes(path).values()) <= most
    assert len(sizes(json_path)) > 5 and max(sizes(json_path).values()) <= most
    finish(node, keeper, run)


@pytest.mark.parametrize("files", [1, 2, 4])
def test_no_more_files_are_kept_than_asked_for_and_those_are_the_last(node: Node, keeper: Keeper, files: int) -> None:
    path = node.directory / "box.log"
    bundle = node.bundle("/bin/sh", "-c", COUNT)
    run = make(keeper, "box", bundle, log=str(path), log_bytes=100_000, log_files=files)
    run.start()
    assert wait_readable(run.shim_pidfd)
    found = sizes(path)
    assert found.keys() == {"", *(f".{n}" for n in range(1, files))}
    # The last rotation may be just over: the newest file has one line or many, each older one is full but for a batch.
    assert all(found[f".{n}"] > 50_000 for n in range(1, files))
    kept = texts(rotated(path, files))
    assert kept and COUNTED.endswith(kept)
    finish(node, keeper, run)


def test_a_rotation_begins_at_the_first_gap_that_a_killed_one_has_left(node: Node, keeper: Keeper) -> None:
    path = node.directory / "box.log"
    for number in (1, 3):
        path.with_name(f"box.log.{number}").write_text(f"old {number}\n")
    path.write_bytes(b"2026-01-01T00:00:00.000000000Z stdout F x\n" * 1000)
    run = make(keeper, "box", node.bundle("/bin/sh", "-c", "echo new"), log=str(path), log_bytes=42_010, log_files=4)
    run.start()
    assert wait_readable(run.shim_pidfd)
    assert texts(path.read_bytes()) == b"new\n"
    assert path.with_name("box.log.1").stat().st_size == 42_000
    assert [path.with_name(f"box.log.{n}").read_text() for n in (2, 3)] == ["old 1\n", "old 3\n"]
    finish(node, keeper, run)


def test_a_log_that_somebody_moves_is_opened_anew_on_request(node: Node, keeper: Keeper) -> None:
    path = node.directory / "box.log"
    run = make(
        keeper, "box", node.bundle("/bin/sh", "-c", "while read line; do echo $line; done"), log=str(path), stdin=True
    )
    run.start()
    with attached(run, "in,out") as client:
        for number in range(4):
            client.write(b"%d\n" % number)
            client.read_until(b"\n")
            path.rename(node.directory / f"moved{number}")
            client.control.ok("reopen-log")
        client.control.ok("close-stdin")
        client.read_to_end()
    assert wait_readable(run.shim_pidfd)
    assert [texts((node.directory / f"moved{n}").read_bytes()) for n in range(4)] == [b"%d\n" % n for n in range(4)]
    assert path.read_bytes() == b""
    finish(node, keeper, run)


def test_a_log_that_cannot_be_opened_anew_goes_on_in_the_old_file(node: Node, keeper: Keeper) -> None:
    directory = node.directory / "logs"
    directory.mkdir()
    run = make(
        keeper, "box", node.bundle("/bin/sh", "-c", "echo one; read go; echo two"), log=f"{directory}/log", stdin=True
    )  # fmt: skip
    run.start()
    with attached(run, "in") as client:
        until((directory / "log").exists, "the log")
        directory.rename(node.directory / "moved")
        assert client.control.refused("reopen-log") == errno.ENOENT
        client.write(b"\n")
        assert wait_readable(run.shim_pidfd)
    assert texts((node.directory / "moved/log").read_bytes()) == b"one\ntwo\n"
    finish(node, keeper, run)


def test_a_symbolic_link_in_the_place_of_a_log_is_not_followed(node: Node, keeper: Keeper) -> None:
    path, goal = node.directory / "box.log", node.directory / "goal"
    goal.write_text("")
    path.symlink_to(goal)
    run = make(keeper, "box", node.bundle("/bin/sh", "-c", "echo x; read go"), log=str(path), stdin=True)
    run.start()
    with control(run) as other:
        until(lambda: other.count("lost"), "the loss is counted")
        other.ok("close-stdin")
    assert wait_readable(run.shim_pidfd)
    assert goal.read_text() == ""
    finish(node, keeper, run)


@pytest.fixture
def small_disk(node: Node) -> Iterator[pathlib.Path]:
    """A file system of 1 MB for logs."""
    path = node.directory / "logs"
    path.mkdir()
    native.mount("tmpfs", str(path), "tmpfs", 0, "size=1m,mode=700")
    yield path
    native.unmount(str(path))


def test_on_a_full_disk_the_container_runs_on_and_writing_resumes_with_room(
    node: Node, keeper: Keeper, small_disk: pathlib.Path
) -> None:
    path, filler = small_disk / "log", small_disk / "filler"
    filler.write_bytes(bytes(700_000))
    script = f"{COUNT}; read go; echo after; read go; exit 43"
    run = make(keeper, "box", node.bundle("/bin/sh", "-c", script), log=str(path), stdin=True)
    with attached(run, "in,out") as client:
        run.start()
        client.read_until(b"\n30000\n")
        lost = client.control.count("lost")
        assert lost > 100_000
        filler.unlink()
        client.write(b"\n")
        client.read_until(b"after\n")
        assert client.control.count("lost") == lost
        client.write(b"\n")
        client.read_to_end()
    assert wait_readable(run.shim_pidfd)
    lines = path.read_bytes().splitlines()
    assert lines[-1].endswith(b" stdout F after")
    numbers = [line.split(b" ")[3] for line in lines[:-2]]
    assert all(int(b) == int(a) + 1 for a, b in itertools.pairwise(numbers[:1000]))
    written = run.record()
    assert written is not None and written.code == 43
    finish(node, keeper, run)


def test_a_rotated_log_on_a_small_disk_never_stops_the_container(
    node: Node, keeper: Keeper, small_disk: pathlib.Path
) -> None:
    bundle = node.bundle("/bin/sh", "-c", f"{COUNT}; {COUNT}; {COUNT}; exit 43")
    run = make(keeper, "box", bundle, log=f"{small_disk}/log", log_bytes=400_000, log_files=2)
    run.start()
    assert wait_readable(run.shim_pidfd)
    written = run.record()
    assert written is not None and written.code == 43
    assert (3 * COUNTED).endswith(texts(rotated(small_disk / "log")))
    assert os.path.getsize(small_disk / "log")
    finish(node, keeper, run)
