"""exitd's log as the journal gets it, read back from a real datagram socket; what becomes of what it does not take."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.system import journal
from supervisor.system.journal import JournalLogger
from tests.supervisor.descriptors import only

ENTRY = {"event": "exit", "level": "info", "timestamp": "2026", "container": "c0ffee" + "0" * 58, "status": "7"}


def decode(data: bytes) -> dict[str, str]:
    """As journald reads a datagram; ValueError when it would not."""
    found = {}
    while data:
        line, _, rest = data.partition(b"\n")
        name, equals, value = line.partition(b"=")
        if not equals:
            size = int.from_bytes(rest[:8], "little")
            value, rest = rest[8 : 8 + size], rest[8 + size :]
            if not rest.startswith(b"\n"):
                raise ValueError(name)
            rest = rest[1:]
        found[name.decode()] = value.decode()
        data = rest
    return found


@pytest.fixture
def journald(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "socket"))
        listening.settimeout(5)
        yield listening


def test_an_entry_has_its_container_and_priority_as_the_journal_names_them(
    journald: socket.socket, tmp_path: Path
) -> None:
    logger = JournalLogger(lambda line: pytest.fail(line), str(tmp_path / "socket"))
    logger.info(**ENTRY)
    logger.error(event="no", level="error", exception="Traceback\n  x")
    first, second = (decode(journald.recv(65536)) for _ in range(2))
    assert first == {
        "MESSAGE": f"exit container={ENTRY['container']} status=7",
        "PRIORITY": "6",
        "SYSLOG_IDENTIFIER": "exitd",
        "EXITD_EVENT": "exit",
        "CONTAINER_ID_FULL": ENTRY["container"],
        "CONTAINER_ID": "c0ffee000000",
        "EXITD_CONTAINER": ENTRY["container"],
        "EXITD_STATUS": "7",
    }
    assert (second["PRIORITY"], second["MESSAGE"]) == ("3", "no\nTraceback\n  x")
    logger.close()


@given(st.dictionaries(st.text(min_size=1), st.text() | st.integers() | st.none()))
def test_no_value_begins_a_field_of_its_own(entry: dict[str, object]) -> None:
    found = journal.fields(entry)
    assert all(name.isascii() and name == name.upper() and len(name) <= 64 for name in found)
    kept = {name: value.encode(errors="replace").decode() for name, value in found.items()}
    assert decode(journal.encode(found)) == kept


def test_what_the_journal_does_not_take_goes_to_stderr(journald: socket.socket, tmp_path: Path) -> None:
    """Its queue is full, and then it is not there at all; nothing waits."""
    lines: list[str] = []
    logger = JournalLogger(lines.append, str(tmp_path / "socket"))
    for _ in range(10_000):
        logger.info(**ENTRY)
        if lines:
            break
    assert json.loads(lines[0]) == ENTRY
    journald.close()
    logger.info(event="gone")
    assert json.loads(lines[1]) == {"event": "gone"}
    logger.close()


def test_without_a_descriptor_every_line_goes_to_stderr(tmp_path: Path) -> None:
    lines: list[str] = []
    with only(0):
        logger = JournalLogger(lines.append, str(tmp_path / "socket"))
    logger.info(event="few")
    assert [json.loads(line) for line in lines] == [{"event": "few"}]
    logger.close()


def test_stderr_is_the_journals_only_if_it_is_the_stream_that_systemd_names(tmp_path: Path) -> None:
    with (tmp_path / "file").open("w") as file:
        found = os.fstat(file.fileno())
        own = {journal.STREAM: f"{found.st_dev}:{found.st_ino}"}
        assert journal.is_stderr(own, file.fileno())
        assert not journal.is_stderr({journal.STREAM: f"{found.st_dev}:{found.st_ino + 1}"}, file.fileno())
        assert not journal.is_stderr({}, file.fileno())
    assert not journal.is_stderr(own, 999_999)


def test_exitd_takes_the_journal_where_its_stderr_is_and_falls_back_to_json(tmp_path: Path) -> None:
    """There is no journal's socket here, or one that takes it: then nothing is on stderr."""
    script = (
        "import os, sys; from supervisor.__main__ import _set_up_logs, _usual_log_format; import structlog;"
        "_set_up_logs(_usual_log_format(), debug=False); structlog.get_logger('x').info('hello', n=1);"
        "print(_usual_log_format())"
    )
    with (tmp_path / "err").open("w") as err:
        found = os.fstat(err.fileno())
        environment = {**os.environ, journal.STREAM: f"{found.st_dev}:{found.st_ino}"}
        words = [sys.executable, "-c", script]
        done = subprocess.run(words, env=environment, stdout=subprocess.PIPE, stderr=err, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "journald\n")
    said = (tmp_path / "err").read_text()
    assert said == "" if os.path.exists(journal.SOCKET) else json.loads(said)["event"] == "hello"
