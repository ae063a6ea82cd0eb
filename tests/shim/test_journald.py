"""exitd-journald: every byte of a container's output in the journal, and a journal that is not there stops nobody."""

import contextlib
import fcntl
import os
import pathlib
import signal
import socket
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shim import programs
from shim._native import ffi, lib

LIMIT_SECONDS = 20.0
ID = "0123456789abcdef" * 4
LABELS = {"CONTAINER_ID": ID, "CONTAINER_NAME": "web"}
BYTES = st.binary(max_size=300) | st.lists(st.sampled_from([b"\n", b"x", b"long line ", b"\0", b"\xff"])).map(b"".join)
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=40)


def fields_of(datagram: bytes) -> list[tuple[str, bytes]]:
    """A datagram as journald reads it (systemd.io/JOURNAL_NATIVE_PROTOCOL)."""
    found = []
    while datagram:
        line, _, rest = datagram.partition(b"\n")
        key, equals, value = line.partition(b"=")
        if not equals:
            size = int.from_bytes(rest[:8], "little")
            value, end, rest = rest[8 : 8 + size], rest[8 + size : 9 + size], rest[9 + size :]
            assert len(value) == size and end == b"\n"
        found.append((key.decode("ascii"), value))
        datagram = rest
    return found


# -- framing


@given(BYTES, st.integers(-12, 12))
@example(b"\n", 0)
@example(b"=", 0)
@example(b"\n" * 256, 0)
def test_any_value_comes_back_out_of_its_field_or_nothing_is_written(value: bytes, spare: int) -> None:
    needed = len(b"KEY") + len(value) + 2 + 8 * (b"\n" in value)
    room = max(needed + spare, 0)
    out = ffi.new("char[]", b"\xee" * (room + 8))
    used = lib.entry_field(out, room, b"KEY", ffi.from_buffer(value), len(value))
    assert bytes(ffi.buffer(out, room + 8))[room:] == b"\xee" * 8
    if room < needed:
        assert used == 0
    else:
        assert (used, fields_of(bytes(ffi.buffer(out, used)))) == (needed, [("KEY", value)])


@given(BYTES, st.booleans())
def test_a_piece_is_a_line_or_all_there_is(data: bytes, no_more: bool) -> None:
    piece, buffer = ffi.new("struct piece *"), ffi.from_buffer(data)
    eaten = lib.entry_cut(buffer, len(data), no_more, piece)
    line, newline, _ = data.partition(b"\n")
    if newline or (no_more and data):
        assert eaten == len(line + newline)
        assert (bytes(ffi.buffer(piece.text, piece.size)), bool(piece.partial)) == (line, not newline)
    else:
        assert eaten == 0


@given(BYTES, TEXT, TEXT, TEXT, st.sampled_from([3, 6]), st.booleans())
def test_an_entry_says_whose_output_it_is(
    text: bytes, tag: str, id: str, name: str, priority: int, partial: bool
) -> None:
    kept = [ffi.new("char[]", each.encode()) for each in (tag, id, name)]
    labels, piece = ffi.new("struct labels *", kept), ffi.new("struct piece *")
    source = ffi.from_buffer(text)
    piece.text, piece.size, piece.priority, piece.partial = source, len(text), priority, partial
    out = ffi.new("char[]", 4096)
    found = fields_of(bytes(ffi.buffer(out, lib.entry_format(out, 4096, labels, piece))))
    assert found == [
        ("MESSAGE", text),
        ("PRIORITY", b"%d" % priority),
        ("SYSLOG_IDENTIFIER", tag.encode()),
        *([("CONTAINER_ID_FULL", id.encode()), ("CONTAINER_ID", id.encode()[:12])] if id else []),
        *([("CONTAINER_NAME", name.encode())] if name else []),
        *([("CONTAINER_PARTIAL_MESSAGE", b"true")] if partial else []),
    ]


@given(BYTES, st.integers(0, 400))
def test_an_entry_is_whole_or_not_there(text: bytes, room: int) -> None:
    kept = [ffi.new("char[]", each) for each in (b"tag", b"id", b"name")]
    labels, piece, source = ffi.new("struct labels *", kept), ffi.new("struct piece *"), ffi.from_buffer(text)
    piece.text, piece.size, piece.priority = source, len(text), 6
    out = ffi.new("char[]", b"\xee" * (room + 8))
    used = lib.entry_format(out, room, labels, piece)
    assert bytes(ffi.buffer(out, room + 8))[room:] == b"\xee" * 8
    assert used == 0 or len(fields_of(bytes(ffi.buffer(out, used)))) == 6


def test_the_longest_piece_with_the_longest_labels_fits_into_a_datagram() -> None:
    label = ffi.new("char[]", b"\n" * (lib.LABEL_MAX - 1))
    labels, piece = ffi.new("struct labels *", [label] * 3), ffi.new("struct piece *")
    text = ffi.new("char[]", b"x" * lib.PIECE_MAX)
    piece.text, piece.size, piece.partial = text, lib.PIECE_MAX, 1
    assert lib.entry_format(ffi.new("char[]", lib.DATAGRAM_MAX), lib.DATAGRAM_MAX, labels, piece) > lib.PIECE_MAX


# -- the program


@dataclass
class Journal:
    """A socket where journald's would be."""

    directory: pathlib.Path
    entries: list[dict[str, bytes]] = field(default_factory=list)

    @property
    def path(self) -> str:
        return str(self.directory / "socket")

    def open(self) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.settimeout(LIMIT_SECONDS)
        self.socket.bind(self.path)

    def close(self) -> None:
        self.socket.close()
        os.unlink(self.path)

    def next(self) -> dict[str, bytes]:
        pairs = fields_of(self.socket.recv(65536))
        found = dict(pairs)
        assert len(found) == len(pairs)
        return found

    def queued(self) -> int:
        """How many entries nobody has read."""
        self.socket.setblocking(False)
        count = 0
        with contextlib.suppress(BlockingIOError):
            while self.socket.recv(65536):
                count += 1
        return count


@pytest.fixture
def journal() -> Iterator[Journal]:
    with tempfile.TemporaryDirectory(prefix="exitd-") as directory:  # a socket's path has 107 bytes
        made = Journal(pathlib.Path(directory))
        made.open()
        yield made
        made.socket.close()


@dataclass
class Logger:
    """exitd-journald with a pipe at 3 and 4, and our end of what it has at 5."""

    words: list[str]
    environment: dict[str, str]
    slots: tuple[int, ...] = (3, 4, 5)

    def __enter__(self) -> "Logger":
        (out, self.out), (err, self.err), (self.ready, ready), (self.said, said) = (os.pipe() for _ in range(4))
        theirs = dict(zip((3, 4, 5, 2), (out, err, ready, said), strict=True))
        copies = {slot: fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 20) for slot, fd in theirs.items()}
        actions = [(os.POSIX_SPAWN_DUP2, fd, slot) for slot, fd in copies.items() if slot in (2, *self.slots)]
        program = str(programs.find("exitd-journald"))
        self.pid = os.posix_spawn(program, ["exitd-journald", *self.words], self.environment, file_actions=actions)
        for fd in (*theirs.values(), *copies.values()):
            os.close(fd)
        self.ended = False
        return self

    def __exit__(self, *_: object) -> None:
        if not self.ended:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        for fd in (self.out, self.err, self.ready, self.said):
            if fd >= 0:
                os.close(fd)

    def close(self) -> None:
        for fd in (self.out, self.err):
            if fd >= 0:
                os.close(fd)
        self.out = self.err = -1

    def end(self) -> tuple[int, str]:
        """Its exit status and its last words, once its input has ended."""
        self.close()
        said = b"".join(iter(lambda: os.read(self.said, 4096), b""))
        _, status = os.waitpid(self.pid, 0)
        self.ended = True
        return os.waitstatus_to_exitcode(status), said.decode()


def test_both_streams_are_in_the_journal_with_their_priority_and_their_container(journal: Journal) -> None:
    with Logger([journal.path], LABELS) as logger:
        assert os.read(logger.ready, 1) == b""
        os.write(logger.out, b"hello\n\nworld\n")
        texts = [journal.next() for _ in range(3)]
        assert [each["MESSAGE"] for each in texts] == [b"hello", b"", b"world"]
        assert texts[0] == {
            "MESSAGE": b"hello",
            "PRIORITY": b"6",
            "SYSLOG_IDENTIFIER": b"web",
            "CONTAINER_ID_FULL": ID.encode(),
            "CONTAINER_ID": ID[:12].encode(),
            "CONTAINER_NAME": b"web",
        }
        os.write(logger.err, b"oops\n")
        found = journal.next()
        assert (found["MESSAGE"], found["PRIORITY"]) == (b"oops", b"3")
        assert logger.end() == (0, "")


def test_a_tag_stands_for_the_name_and_the_id_where_there_is_neither(journal: Journal) -> None:
    for environment, expected in (({**LABELS, "CONTAINER_TAG": "t"}, b"t"), ({"CONTAINER_ID": ID}, ID.encode())):
        with Logger([journal.path], environment) as logger:
            os.write(logger.out, b"x\n")
            assert journal.next()["SYSLOG_IDENTIFIER"] == expected
            assert logger.end() == (0, "")


def test_long_lines_any_bytes_and_a_last_line_without_newline_come_out_as_they_were(journal: Journal) -> None:
    sent = b"\0\xff\x1b[0m" + b"x" * 40_000 + b"\n" + b"y" * lib.PIECE_MAX + b"\n" + b"tail"
    with Logger([journal.path], LABELS) as logger:
        os.write(logger.out, sent)
        logger.close()
        found = b""
        while len(found) < len(sent):
            entry = journal.next()
            assert len(entry["MESSAGE"]) <= lib.PIECE_MAX
            found += entry["MESSAGE"] + (b"" if "CONTAINER_PARTIAL_MESSAGE" in entry else b"\n")
        assert found == sent
        assert logger.end() == (0, "")


def test_without_a_journal_it_is_ready_reads_on_and_counts_what_is_lost(journal: Journal) -> None:
    journal.close()
    journal.open()
    journal.close()
    with Logger([journal.path], LABELS) as logger:
        assert os.read(logger.ready, 1) == b""
        for _ in range(1000):
            os.write(logger.out, b"z" * 999 + b"\n")
        assert logger.end() == (1, "exitd-journald: 1000 messages lost, the last one: No such file or directory\n")


def test_a_journal_that_takes_nothing_stops_the_container_for_a_second_and_not_for_each_line(journal: Journal) -> None:
    with Logger([journal.path], LABELS) as logger:
        for _ in range(3000):
            os.write(logger.out, b"z" * 999 + b"\n")
        status, said = logger.end()
    assert status == 1
    assert said == f"exitd-journald: {3000 - journal.queued()} messages lost, the last one: {os.strerror(11)}\n"


def test_a_journal_that_was_full_gets_the_output_again_once_it_takes_some(journal: Journal) -> None:
    with Logger([journal.path], LABELS) as logger:
        for _ in range(3000):
            os.write(logger.out, b"z" * 999 + b"\n")
        taken = journal.queued()
        journal.socket.settimeout(LIMIT_SECONDS)
        found = b""
        while found != b"again":
            os.write(logger.out, b"again\n")
            found = journal.next()["MESSAGE"]
        assert taken > 0


def test_a_journal_that_is_started_anew_gets_what_comes_then(journal: Journal) -> None:
    with Logger([journal.path], LABELS) as logger:
        os.write(logger.out, b"first\n")
        assert journal.next()["MESSAGE"] == b"first"
        journal.close()
        journal.open()
        os.write(logger.out, b"second\n")
        assert journal.next()["MESSAGE"] == b"second"
        assert logger.end() == (0, "")


@pytest.mark.parametrize("slots", [(3, 5), (3,), (4, 5)])
def test_a_descriptor_that_was_not_placed_is_a_stream_that_has_ended(journal: Journal, slots: tuple[int, ...]) -> None:
    with Logger([journal.path], LABELS, slots) as logger:
        os.write(logger.out if 3 in slots else logger.err, b"alone\n")
        assert journal.next()["MESSAGE"] == b"alone"
        assert logger.end() == (0, "")


@pytest.mark.parametrize(
    ("words", "environment"), [(["a", "b"], {}), (["x" * 108], {}), ([], {"CONTAINER_NAME": "x" * 1024})]
)
def test_a_bad_call_ends_with_3(words: list[str], environment: dict[str, str]) -> None:
    with Logger(words, environment) as logger:
        status, said = logger.end()
        assert status == 3 and said.startswith("usage: ")
