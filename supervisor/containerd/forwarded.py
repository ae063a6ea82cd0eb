"""How far each containerd has been sent its events, in a file: appended to after each answer, rewritten when it has
grown.

The file is in the state directory, since it must survive the daemon but not the host: containerd's tasks do not survive
a boot either. So nothing is flushed, and an entry costs microseconds. A file of another boot, or of another database
(with numbers beyond the newest), is ignored.
"""

import json
import os
from collections import defaultdict
from pathlib import Path

import structlog

from shim.undo import undone_on_failure
from supervisor.containerd.outbox import OutboxPlace

VERSION = 1
LINES = 1000  # appended at least, before the file is rewritten

log = structlog.get_logger(__name__)


class Forwarded:
    """`floors` and `places` by address; the address '' is that of the search for new addresses."""

    def __init__(self, path: str, boot_id: str, newest: int) -> None:
        """Raises OSError when the file cannot be made."""
        self.path = path
        self._head = {"exitd-forwarded": VERSION, "boot": boot_id}
        self.floors: dict[str, int] = {}
        self.places: defaultdict[str, dict[str, OutboxPlace]] = defaultdict(dict)
        if not self._load(newest):
            self.floors, self.places = {"": newest}, defaultdict(dict)
        self._fd, self._lines, self._most_lines = -1, 0, LINES
        self._write_anew()

    def note(self, address: str, floor: int, task: str = "", place: OutboxPlace | None = None) -> None:
        """Note an answer. What cannot be written is sent once more, should this daemon be killed."""
        entry: dict[str, object] = {"address": address, "floor": floor}
        if place is not None:
            entry |= _of(task, place)
        self._read(entry)
        try:
            if self._lines < self._most_lines:
                self._append(entry)
            else:
                self._write_anew()
        except OSError as error:
            self._lines = self._most_lines  # half a line may have been written: rewrite before anything is appended
            log.error("the note of containerd's events cannot be written", file=self.path, why=str(error))

    def close(self) -> None:
        os.close(self._fd)

    def _read(self, entry: dict[str, object]) -> None:
        match entry:
            case {"address": str(address), "floor": int(floor)}:
                self.floors[address] = floor
            case _:
                raise ValueError(f"{entry} has no address and floor")
        match entry:
            case {"task": str(task), "seq": int(seq), "exited": bool(exited), "dropped": bool(dropped)}:
                self.places[address][task] = OutboxPlace(seq, exited, dropped)

    def _load(self, newest: int) -> bool:
        """Return whether there is a file of this boot. An incomplete line, left by a kill, is skipped."""
        try:
            head, *lines = Path(self.path).read_text().split("\n")[:-1]
            if json.loads(head) != self._head:
                return False
        except FileNotFoundError:
            return False
        except ValueError as error:
            log.error("the note of containerd's events cannot be read: starting anew", file=self.path, why=str(error))
            return False
        for line in lines:
            try:
                self._read(json.loads(line))
            except ValueError as error:
                log.error("a line of the note of containerd's events cannot be read", file=self.path, why=str(error))
        return "" in self.floors and max(self.floors.values()) <= newest

    def _write_anew(self) -> None:
        entries = [{"address": address, "floor": floor} for address, floor in self.floors.items()]
        for address, floor in self.floors.items():
            kept = {t: place for t, place in self.places[address].items() if place.seq > floor or place.says_more}
            self.places[address] = kept
            entries += [{"address": address, "floor": floor} | _of(t, place) for t, place in kept.items()]
        new = f"{self.path}.new"
        os.makedirs(os.path.dirname(self.path), mode=0o700, exist_ok=True)
        fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        with undone_on_failure(lambda: os.close(fd)):
            _write(fd, [self._head, *entries])
            os.rename(new, self.path)
        if self._fd >= 0:
            os.close(self._fd)
        self._fd, self._lines, self._most_lines = fd, 0, LINES + 2 * len(entries)

    def _append(self, entry: dict[str, object]) -> None:
        _write(self._fd, [entry])
        self._lines += 1


def _of(task: str, place: OutboxPlace) -> dict[str, object]:
    return {"task": task, "seq": place.seq, "exited": place.exited, "dropped": place.dropped}


def _write(fd: int, entries: list[dict[str, object]]) -> None:
    data = "".join(json.dumps(entry) + "\n" for entry in entries).encode()
    while data:
        data = data[os.write(fd, data) :]
