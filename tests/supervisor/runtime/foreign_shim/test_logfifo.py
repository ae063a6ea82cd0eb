import asyncio
import os
import pathlib
import stat
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from supervisor.model.errors import ShimFailed
from supervisor.runtime.foreign_shim import logfifo
from supervisor.runtime.foreign_shim.logfifo import MOST_LINE_BYTES, MOST_LINES, Lines, LogFifo
from tests.supervisor.descriptors import held_now, opened_since


@pytest.fixture(autouse=True)
def nothing_stays_open() -> Iterator[None]:
    before = held_now()
    yield
    assert not opened_since(before)


def logged(directory: pathlib.Path, *chunks: bytes) -> list[tuple[str, str]]:
    """Level and words of what a shim's writing has made of our log."""

    async def write() -> None:
        fifo = LogFifo(str(directory), "c1")
        write_fd = os.open(directory / "log", os.O_WRONLY | os.O_NONBLOCK)
        for chunk in chunks:
            os.write(write_fd, chunk)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        os.close(write_fd)
        fifo.close()
        fifo.close()

    with capture_logs() as logs:
        asyncio.run(write())
    return [(each["log_level"], each.get("line", str(each.get("lines")))) for each in logs]


def test_a_fifo_is_made_that_a_shim_can_open_at_once(tmp_path: pathlib.Path) -> None:
    assert logged(tmp_path, b"hello\n") == [("debug", "hello")]
    mode = (tmp_path / "log").stat().st_mode
    assert stat.S_ISFIFO(mode) and stat.S_IMODE(mode) == 0o700


def test_after_a_restart_it_is_opened_again(tmp_path: pathlib.Path) -> None:
    logged(tmp_path)
    assert logged(tmp_path, b"again\n") == [("debug", "again")]


def test_what_goes_wrong_in_a_shim_is_logged_louder(tmp_path: pathlib.Path) -> None:
    lines = b'time="now" level=warning msg=a\nlevel=info msg="error"\n{"level":"error","msg":"b"}\nlevel=fatal x\n'
    assert [level for level, _ in logged(tmp_path, lines)] == ["warning", "debug", "warning", "warning"]


def test_a_flood_is_reported_in_part_and_counted(tmp_path: pathlib.Path) -> None:
    found = logged(tmp_path, *[b"x\n" * 1000] * 3)
    assert found == [("debug", "x")] * MOST_LINES + [("warning", str(3000 - MOST_LINES))]


def test_bytes_that_are_no_text_are_shown_as_such(tmp_path: pathlib.Path) -> None:
    assert logged(tmp_path, b"\xff\0\n") == [("debug", "�\0")]


def test_what_is_no_directory_has_no_log(tmp_path: pathlib.Path) -> None:
    async def open_it(path: str) -> None:
        LogFifo(path, "c1").close()

    with pytest.raises(ShimFailed, match="No such file"):
        asyncio.run(open_it(f"{tmp_path}/none"))
    (tmp_path / "log").symlink_to("/etc/passwd")
    with pytest.raises(ShimFailed):
        asyncio.run(open_it(str(tmp_path)))


def test_a_window_ends_and_another_one_begins(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logfifo, "WINDOW_SECONDS", 0.0)
    assert len(logged(tmp_path, b"a\n", b"b\n")) == 2


@given(st.lists(st.binary(max_size=50) | st.integers(1, 3).map(lambda n: b"x" * (n * MOST_LINE_BYTES - 1)), max_size=8))
def test_lines_are_the_same_however_the_bytes_are_cut(pieces: list[bytes]) -> None:
    data = b"".join(pieces) + b"\n"
    whole, cut = Lines(), Lines()
    expected = [line[:MOST_LINE_BYTES] for line in data.split(b"\n") if line[:MOST_LINE_BYTES].strip()]
    assert whole.feed(data) == expected
    assert [line for piece in [*pieces, b"\n"] for line in cut.feed(piece)] == expected


def test_a_line_without_an_end_takes_no_memory() -> None:
    lines = Lines()
    assert [len(line) for _ in range(100) for line in lines.feed(b"x" * 50_000)] == [MOST_LINE_BYTES]
    assert lines.feed(b"\nnext\n") == [b"next"]
