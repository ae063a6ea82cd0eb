"""exitd's own log in the journal, with fields: systemd's native protocol (systemd.io/JOURNAL_NATIVE_PROTOCOL).

`journalctl CONTAINER_ID_FULL=...` then shows what exitd says of a container beside what the container wrote, and
PRIORITY is right. Nothing here waits: what the journal does not take at once goes to stderr, as JSON.
"""

import json
import os
import re
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress

SOCKET = "/run/systemd/journal/socket"
STREAM = "JOURNAL_STREAM"  # systemd.exec(5): device and inode of a stderr that is the journal's
PRIORITIES = {"critical": 2, "error": 3, "warning": 4, "info": 6, "debug": 7}  # syslog(3)
SHORT_ID = 12
MOST_VALUE = 16 * 1024  # characters of one field; a datagram that is too long would not be taken
MOST_NAME = 64
_NOT_A_NAME = re.compile(r"[^A-Z0-9_]")

Entry = Mapping[str, object]


def is_stderr(environment: Mapping[str, str] = os.environ, fd: int = 2) -> bool:
    """Return whether stderr goes to the journal, and not to where a starter of this process has put it since."""
    try:
        found = os.fstat(fd)
    except OSError:
        return False
    return environment.get(STREAM) == f"{found.st_dev}:{found.st_ino}"


def fields(entry: Entry) -> dict[str, str]:
    """Return the journal's fields of one entry of structlog: the event and all values as the message, and each value
    as a field of its own, EXITD_NAME."""
    values = {name: value for name, value in entry.items() if name not in ("event", "level", "timestamp", "exception")}
    words = (f"{name}={value}" for name, value in values.items())
    message = " ".join([str(entry.get("event", "")), *words])
    trace = entry.get("exception")
    found = {
        "MESSAGE": f"{message}\n{trace}" if trace else message,
        "PRIORITY": str(PRIORITIES.get(str(entry.get("level")), PRIORITIES["info"])),
        "SYSLOG_IDENTIFIER": "exitd",
        "EXITD_EVENT": str(entry.get("event", "")),
    }
    if isinstance(container := values.get("container"), str):
        found |= {"CONTAINER_ID_FULL": container, "CONTAINER_ID": container[:SHORT_ID]}
    found |= {f"EXITD_{_NOT_A_NAME.sub('_', name.upper())}"[:MOST_NAME]: str(value) for name, value in values.items()}
    return {name: value[:MOST_VALUE] for name, value in found.items()}


def encode(found: Mapping[str, str]) -> bytes:
    """Return the datagram. A value with a newline has its length before it, so that it begins no other field."""
    parts = []
    for name, value in found.items():
        data = value.encode(errors="replace")
        if b"\n" in data:
            parts.append(name.encode() + b"\n" + len(data).to_bytes(8, "little") + data + b"\n")
        else:
            parts.append(name.encode() + b"=" + data + b"\n")
    return b"".join(parts)


class JournalLogger:
    """A logger for structlog whose last processor leaves the entry as it is. One for the whole process."""

    def __init__(self, otherwise: Callable[[str], object], path: str = SOCKET) -> None:
        """`otherwise`: takes a line that the journal does not take, and every line if there is no descriptor for it."""
        self._otherwise = otherwise
        self._path = path
        self._socket: socket.socket | None = None
        with suppress(OSError):
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)

    def msg(self, **entry: object) -> None:
        if self._socket is not None:
            with suppress(OSError):
                self._socket.sendto(encode(fields(entry)), self._path)
                return
        self._otherwise(json.dumps(entry, default=repr) + "\n")

    log = debug = info = warn = warning = error = critical = exception = fatal = failure = msg

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
