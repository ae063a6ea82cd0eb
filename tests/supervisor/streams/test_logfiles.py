"""The files of one log, read as one: every line once and in order, however and whenever they are rotated."""

import itertools
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from supervisor.model.errors import WrongState
from supervisor.streams import logfiles, logline
from supervisor.streams.logfiles import Chain
from supervisor.streams.logline import Tail, Window
from tests.supervisor.descriptors import held_now, opened_since
from tests.supervisor.streams.test_logline import PIECES, line, text

DATED = "log.20261121-2300"


def drain(chain: Chain) -> bytes:
    seen, more = b"", True
    while more:
        more, items = chain.read()
        seen += text(items)
    return seen


def read(path: Path) -> bytes:
    chain = Chain(str(path), logline.cri)
    try:
        return drain(chain)
    finally:
        chain.close()


def tail(path: Path, lines: int) -> bytes:
    chain = Chain(str(path), logline.cri)
    try:
        list(chain.skipping_to(Tail(lines, Window())))
        return drain(chain)
    finally:
        chain.close()


@pytest.fixture(autouse=True)
def no_descriptor_is_left() -> Iterator[None]:
    before = held_now()
    yield
    assert not opened_since(before)


# -- split into files


def parts_of(data: bytes, cuts: list[int]) -> list[bytes]:
    """A log's lines divided after some of them."""
    lines = [each + b"\n" for each in data.split(b"\n")[:-1]]
    at = sorted({min(cut, len(lines)) for cut in cuts})
    return [b"".join(lines[low:high]) for low, high in zip([0, *at], [*at, len(lines)], strict=True)]


@given(PIECES, st.lists(st.integers(0, 20), max_size=6), st.booleans())
def test_a_log_in_any_number_of_files_reads_back_byte_for_byte(
    pieces: list[tuple[bytes, bytes, bytes]], cuts: list[int], dated: bool
) -> None:
    parts = parts_of(b"".join(line(payload, tag, stream) for stream, tag, payload in pieces), cuts)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "log"
        path.write_bytes(parts[-1])
        for number, part in enumerate(parts[-2::-1], 1):
            name = f"{DATED}{99 - number}" if dated else f"log.{number}"
            (path.parent / name).write_bytes(part)
        for stranger in ("log.0", "log.gz", "log.1.gz", "log.tmp", "blog.1", f"{DATED}00.gz"):
            (path.parent / stranger).write_bytes(line(b"of somebody else"))
        assert read(path) == b"".join(payload + (b"\n" if tag == b"F" else b"") for _, tag, payload in pieces)


@given(PIECES, st.lists(st.integers(0, 20), max_size=4), st.integers(min_value=0, max_value=25))
def test_the_tail_is_what_the_last_lines_are_made_of_wherever_the_files_divide_them(
    pieces: list[tuple[bytes, bytes, bytes]], cuts: list[int], lines: int
) -> None:
    # One stream: the output is a text, and its last lines are known. A last piece may be empty: still a line begun.
    parts = [payload + (b"\n" if tag == b"F" else b"") for _, tag, payload in pieces]
    groups: list[bytes] = []
    fresh = True
    for (_, tag, _), part in zip(pieces, parts, strict=True):
        if fresh:
            groups.append(b"")
        groups[-1] += part
        fresh = tag == b"F"
    files = parts_of(b"".join(line(payload, tag) for _, tag, payload in pieces), cuts)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "log"
        for number, file in enumerate(reversed(files)):
            (path.with_name(f"log.{number}") if number else path).write_bytes(file)
        assert tail(path, lines) == b"".join(groups[len(groups) - lines :] if lines <= len(groups) else groups)


def test_the_tail_of_a_big_log_reads_only_its_end(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with path.open("wb") as log:
        log.write(line(b"first"))
        log.truncate(1 << 40)  # a hole that nobody could read through
        log.seek(1 << 40)
        log.write(b"\n" + b"".join(line(b"%d" % number) for number in range(20_000)))
    (tmp_path / "log.1").write_bytes(line(b"older than what could not be read"))
    assert tail(path, 3) == b"19997\n19998\n19999\n"
    assert tail(path, 15_000).startswith(b"5000\n5001\n")
    assert tail(path, 30_000).startswith(b"0\n1\n")


def test_a_line_still_being_written_is_no_line_of_the_tail(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(line(b"one") + line(b"two") + line(b"three")[:-2])
    assert tail(tmp_path / "log", 1) == b"two\n"


def test_a_log_that_is_empty_or_not_there_has_an_empty_tail(tmp_path: Path) -> None:
    assert tail(tmp_path / "log", 5) == b""
    (tmp_path / "log").write_bytes(b"")
    assert tail(tmp_path / "log", 5) == b""


def test_what_is_no_plain_file_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "log"
    os.mkfifo(path)
    (tmp_path / "secret").write_bytes(line(b"secret"))
    (tmp_path / "log.1").symlink_to(tmp_path / "secret")
    assert read(path) == b""
    path.unlink()
    path.symlink_to(tmp_path / "secret")
    with pytest.raises(WrongState, match="links are not followed"):
        read(path)


# -- rotated under the reader's eyes


class Writer:
    """A shim that writes numbered lines, and whoever rotates its log. Each rotation is a list of single steps, between
    which anything may be looked at."""

    def __init__(self, path: Path, most_files: int = 1000) -> None:
        self.path = path
        self.most_files = most_files
        self.written = 0
        self._dates = 0
        self._fd = self._new()

    def _new(self) -> int:
        return os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def write(self, lines: int) -> None:
        os.write(self._fd, b"".join(line(b"%d" % (self.written + each)) for each in range(lines)))
        self.written += lines

    def output(self) -> bytes:
        return b"".join(b"%d\n" % number for number in range(self.written))

    def _name(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}") if number else self.path

    def rotation(self) -> Iterator[None]:
        """exitd-shim's own."""
        gap = next((n for n in range(1, self.most_files - 1) if not self._name(n).exists()), self.most_files - 1)
        for number in range(gap, 0, -1):
            self._name(number - 1).rename(self._name(number))
            yield
        self.reopen()
        yield

    def kubelets(self) -> Iterator[None]:
        """Moved away, written on, and only then reopened."""
        self.path.rename(self.path.with_name(f"{DATED}{self._dates:02}"))
        self._dates += 1
        yield
        self.write(1)
        yield
        self.reopen()
        yield

    def logrotates(self) -> Iterator[None]:
        """The new file is there before the shim has heard of it."""
        self.path.rename(self.path.with_name(f"{DATED}{self._dates:02}"))
        self._dates += 1
        self.path.touch()
        yield
        self.write(1)
        yield
        self.reopen()
        yield

    def reopen(self) -> None:
        os.close(self._fd)
        self._fd = self._new()

    def taken_back(self, keep: int) -> Iterator[None]:
        """What a replacement shim does with a batch that was not finished: cut off, and written again."""
        cut = self.path.read_bytes().splitlines(keepends=True)
        kept = b"".join(cut[:keep])
        os.truncate(self.path, len(kept))
        yield
        os.write(self._fd, b"".join(cut[keep:]))
        yield

    def close(self) -> None:
        os.close(self._fd)


def steps_of(rotations: list[str]) -> st.SearchStrategy[list[tuple[str, int]]]:
    return st.lists(
        st.one_of(
            st.tuples(st.sampled_from(["write", "taken_back"]), st.integers(1, 5)),
            st.tuples(st.sampled_from(rotations), st.just(0)),
        ),
        max_size=14,
    )


BY_NUMBER = steps_of(["rotation"])


@settings(deadline=None)
@given(BY_NUMBER | steps_of(["kubelets", "logrotates"]), st.data())
def test_a_follower_that_looks_at_any_moment_of_any_rotation_sees_every_line_once_and_in_order(
    steps: list[tuple[str, int]], data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        writer = Writer(Path(directory) / "log")
        chain = Chain(str(writer.path), logline.cri)
        seen = b""
        try:
            for name, number in steps:
                made = getattr(writer, name)(*([number] if number else []))
                for _ in made or (None,):
                    if data.draw(st.booleans()):
                        seen += drain(chain)
            assert seen + drain(chain) == writer.output()
            assert read(writer.path) == writer.output()
        finally:
            chain.close()
            writer.close()


@settings(deadline=None)
@given(BY_NUMBER, st.integers(2, 4), st.data())
def test_of_what_is_no_longer_kept_a_slow_follower_misses_whole_files_and_doubles_nothing(
    steps: list[tuple[str, int]], most_files: int, data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        writer = Writer(Path(directory) / "log", most_files)
        chain = Chain(str(writer.path), logline.cri)
        seen = b""
        try:
            for name, number in steps:
                made = getattr(writer, name)(*([number] if number else []))
                for _ in made or (None,):
                    if data.draw(st.booleans()):
                        seen += drain(chain)
            numbers = list(map(int, (seen + drain(chain)).split()))
            assert numbers == sorted(set(numbers))
            left = read(writer.path)
            assert b"".join(b"%d\n" % number for number in numbers).endswith(left)
        finally:
            chain.close()
            writer.close()


@pytest.mark.parametrize("rotations", [1, 2])
@pytest.mark.parametrize("opened", range(6))
@pytest.mark.parametrize("steps", range(1, 12, 2))
def test_a_rotation_while_the_files_are_being_opened_costs_no_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rotations: int, opened: int, steps: int
) -> None:
    writer = Writer(tmp_path / "log")
    for _ in range(3):
        writer.write(3)
        list(writer.rotation())
    writer.write(3)
    under_way = itertools.chain.from_iterable(writer.rotation() for _ in range(rotations))
    meddle(monkeypatch, opened, lambda: [next(under_way, None) for _ in range(steps)])
    chain = Chain(str(writer.path), logline.cri)
    monkeypatch.undo()
    list(under_way)
    writer.write(3)
    assert drain(chain) == writer.output()
    chain.close()
    writer.close()


def test_the_oldest_file_that_is_deleted_once_it_is_open_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = Writer(tmp_path / "log", most_files=3)
    for _ in range(2):
        writer.write(3)
        list(writer.rotation())
    writer.write(3)
    meddle(monkeypatch, 3, lambda: list(writer.rotation()))
    chain = Chain(str(writer.path), logline.cri)
    monkeypatch.undo()
    writer.write(3)
    assert not writer.path.with_name("log.3").exists()
    assert drain(chain) == writer.output()
    chain.close()
    writer.close()


@settings(deadline=None)
@given(st.sampled_from([2, 3, 4, 1000]), st.lists(st.integers(0, 9), max_size=40), st.integers(0, 3))
def test_rotations_with_output_between_any_two_openings_put_no_line_out_of_order(
    most_files: int, meanwhile: list[int], begun: int
) -> None:
    """A writer so fast, or a reader so slow, that the log is rotated several times while its files are opened."""
    with tempfile.TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as monkeypatch:
        writer = Writer(Path(directory) / "log", most_files)
        steps = written_and_rotated(writer)
        for _ in range(begun):
            writer.write(3)
            list(writer.rotation())
        turns = iter(meanwhile)
        meddle(monkeypatch, None, lambda: list(itertools.islice(steps, next(turns, 0))))
        chain = Chain(str(writer.path), logline.cri)
        seen = b""
        try:
            for _ in range(4):
                seen += drain(chain)
                list(itertools.islice(steps, next(turns, 0)))
            monkeypatch.undo()
            while next(steps) != "over":  # the rotation that was under way
                pass
            writer.write(1)
            numbers = list(map(int, (seen + drain(chain)).split()))
        finally:
            chain.close()
            writer.close()
        assert numbers == sorted(set(numbers))
        assert numbers[-1] == writer.written - 1
        if most_files == 1000:
            assert len(numbers) == writer.written


def written_and_rotated(writer: Writer) -> Iterator[str]:
    while True:
        writer.write(2)
        yield "written"
        for _ in writer.rotation():
            yield "step"
        yield "over"


def meddle(monkeypatch: pytest.MonkeyPatch, opened: int | None, act: Callable[[], object]) -> None:
    """Something happens when so many files have been opened; None: before each."""
    real = logfiles._open
    count = iter(range(1000))

    def opening(path: str, named: logfiles.Named) -> logfiles.LogFile | None:
        if opened in (None, next(count)):
            act()
        return real(path, named)

    monkeypatch.setattr(logfiles, "_open", opening)


def test_a_log_cut_short_and_begun_anew_is_read_from_its_beginning_wherever_reading_was(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(line(b"first") + line(b"second"))
    for lines in (None, 0, 1):
        chain = Chain(str(path), logline.cri)
        if lines is not None:
            list(chain.skipping_to(Tail(lines, Window())))
        drain(chain)
        os.truncate(path, 0)
        assert drain(chain) == b""
        path.write_bytes(line(b"new"))
        assert drain(chain) == b"new\n"
        chain.close()
        path.write_bytes(line(b"first") + line(b"second"))


def test_a_file_removed_by_hand_does_not_bring_the_older_ones_again(tmp_path: Path) -> None:
    path = tmp_path / "log"
    (tmp_path / "log.1").write_bytes(line(b"one"))
    os.utime(tmp_path / "log.1", ns=(1, 1))
    path.write_bytes(line(b"two"))
    chain = Chain(str(path), logline.cri)
    assert drain(chain) == b"one\ntwo\n"
    path.unlink()
    path.write_bytes(line(b"three"))
    assert drain(chain) == b"three\n"
    chain.close()


def test_files_of_both_kinds_are_in_the_order_in_which_they_were_written(tmp_path: Path) -> None:
    for at, name in enumerate(("log.2", f"{DATED}00", "log.1", f"{DATED}01", "log")):
        (tmp_path / name).write_bytes(line(b"%d" % at))
        os.utime(tmp_path / name, ns=(at, at))
    assert read(tmp_path / "log") == b"0\n1\n2\n3\n4\n"


def test_an_unfinished_line_at_the_end_of_a_rotated_file_does_not_spoil_the_next(tmp_path: Path) -> None:
    (tmp_path / "log.1").write_bytes(line(b"one") + line(b"torn")[:-3])
    (tmp_path / "log").write_bytes(line(b"two"))
    assert read(tmp_path / "log") == b"one\ntwo\n"
