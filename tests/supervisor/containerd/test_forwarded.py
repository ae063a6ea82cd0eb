"""How far containerd has been told, on file."""

import os
from pathlib import Path

import pytest

from supervisor.containerd import forwarded
from supervisor.containerd.forwarded import Forwarded
from supervisor.containerd.outbox import OutboxPlace

HEAD = b'{"exitd-forwarded": 1, "boot": "boot"}\n'


def opened(tmp_path: Path, *, boot: str = "boot", newest: int = 100) -> Forwarded:
    return Forwarded(str(tmp_path / "shimv2" / "forwarded"), boot, newest)


def test_without_a_file_all_there_is_counts_as_told(tmp_path: Path) -> None:
    noted = opened(tmp_path, newest=7)
    assert noted.floors == {"": 7}
    assert not any(noted.places.values())
    noted.close()


def test_what_was_noted_is_found_again(tmp_path: Path) -> None:
    first = opened(tmp_path)
    first.note("/a", 10, "c1", OutboxPlace(12, exited=True))
    first.note("/a", 11, "c2", OutboxPlace(13))
    first.note("/b\n", 3, "c3", OutboxPlace(3, dropped=True))
    first.close()
    noted = opened(tmp_path)
    assert noted.floors == {"": 100, "/a": 11, "/b\n": 3}
    assert noted.places["/a"] == {"c1": OutboxPlace(12, exited=True), "c2": OutboxPlace(13)}
    assert noted.places["/b\n"] == {"c3": OutboxPlace(3, dropped=True)}
    noted.close()


@pytest.mark.parametrize(("boot", "newest"), [("next", 100), ("boot", 9)], ids=["another boot", "another database"])
def test_what_was_noted_elsewhere_is_nothing(tmp_path: Path, boot: str, newest: int) -> None:
    first = opened(tmp_path)
    first.note("/a", 10)
    first.close()
    noted = opened(tmp_path, boot=boot, newest=newest)
    assert noted.floors == {"": newest}
    noted.close()


def test_cut_off_at_any_byte_it_says_what_was_noted_before(tmp_path: Path) -> None:
    path = tmp_path / "shimv2" / "forwarded"
    first = opened(tmp_path)
    for seq in (101, 102, 103):
        first.note("/a", seq - 1, "c1", OutboxPlace(seq))
    first.close()
    whole = path.read_bytes()
    lines = whole.splitlines(keepends=True)
    for cut in range(len(lines[0]) + len(lines[1]), len(whole) + 1):
        path.write_bytes(whole[:cut])
        noted = opened(tmp_path, newest=200)
        noted_ones = whole[:cut].count(b"\n") - 2
        assert noted.places["/a"] == ({"c1": OutboxPlace(100 + noted_ones)} if noted_ones else {})
        noted.close()


@pytest.mark.parametrize("garbage", [b"", b"\0" * 50, b"{}\n", b"\xff\n", HEAD, b"[1]\n"], ids=repr)
def test_a_file_that_is_none_of_ours_is_begun_anew(tmp_path: Path, garbage: bytes) -> None:
    opened(tmp_path).close()
    (tmp_path / "shimv2" / "forwarded").write_bytes(garbage)
    noted = opened(tmp_path, newest=5)
    assert noted.floors == {"": 5}
    noted.close()


def test_a_line_that_is_damaged_costs_nothing_but_itself(tmp_path: Path) -> None:
    opened(tmp_path).close()
    path = tmp_path / "shimv2" / "forwarded"
    lines = [b'{"address": "", "floor": 4}', b"\0\0", b'{"floor": 4}', b'["x"]', b'{"address": "/a", "floor": 3}', b""]
    path.write_bytes(HEAD + b"\n".join(lines))
    noted = opened(tmp_path)
    assert noted.floors == {"": 4, "/a": 3}
    noted.close()


def test_the_file_does_not_grow_with_what_is_passed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forwarded, "LINES", 20)
    noted = opened(tmp_path)
    noted.note("/a", 100, "gone", OutboxPlace(100, exited=True))
    for seq in range(101, 1000):
        noted.note("/a", seq, f"c{seq}", OutboxPlace(seq))
    noted.close()
    path = tmp_path / "shimv2" / "forwarded"
    assert path.read_bytes().count(b"\n") < 40
    again = opened(tmp_path, newest=1000)
    assert again.floors["/a"] == 999
    assert again.places["/a"]["gone"] == OutboxPlace(100, exited=True)
    again.close()


def test_what_cannot_be_written_is_written_with_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    noted = opened(tmp_path)

    write = os.write

    def full(fd: int, data: bytes) -> int:
        monkeypatch.undo()
        write(fd, data[:7])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    noted.note("/a", 3, "c1", OutboxPlace(4))
    noted.note("/a", 4, "c1", OutboxPlace(5))
    noted.close()
    again = opened(tmp_path)
    assert again.places["/a"] == {"c1": OutboxPlace(5)}
    again.close()
