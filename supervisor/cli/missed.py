"""What a container wrote while exitd was away and no client was attached: taken from its log, or said to be missing."""

import sys

from protos.exitd.v1 import exitd_pb2 as pb
from shim.frozen import frozen
from supervisor.api.client import Client
from supervisor.cli.copying import pour
from supervisor.cli.spoken import SHORT_ID
from supervisor.model.errors import ExitdError

STREAMS = ("stdout", "stderr")


@frozen
class Stretch:
    """A part of each stream, by bytes from the run's first. `to` None: until the end."""

    begins: dict[str, int]
    to: dict[str, int] | None = None

    def cut(self, stream: str, at: int, data: bytes) -> bytes:
        """Return the part of `data`, which begins at byte `at` of the stream, that is in the stretch."""
        first = max(0, self.begins[stream] - at)
        last = len(data) if self.to is None else max(0, min(len(data), self.to[stream] - at))
        return data[first:last]

    def is_behind(self, counts: dict[str, int]) -> bool:
        """Return whether all of it has come, if so much of each stream has."""
        return self.to is not None and all(counts[stream] >= self.to[stream] for stream in STREAMS)

    @property
    def size_bytes(self) -> int | None:
        """Return how much it is; None if that is not known."""
        return None if self.to is None else sum(self.to[stream] - self.begins[stream] for stream in STREAMS)


class MissedOutput:
    """Counts what has come over attachments, and says what has not. Pure."""

    def __init__(self) -> None:
        self._counts: dict[str, int] | None = None  # None: the shim does not count

    def begin(self, started: pb.AttachStarted) -> None:
        self._counts = _counts_of(started)

    def count(self, reply: pb.AttachReply) -> None:
        if self._counts is not None:
            self._counts["stdout"] += len(reply.stdout)
            self._counts["stderr"] += len(reply.stderr)

    def lose_count(self) -> None:
        """Some output was dropped, at a place that is not known."""
        self._counts = None

    def until(self, now: pb.AttachStarted | None) -> Stretch | None:
        """Return what was missed when attached again, or None: the run has ended. None: that is not known."""
        before, self._counts = self._counts, None if now is None else _counts_of(now)
        if before is None or (now is not None and self._counts is None):
            return None
        if self._counts is None:
            return Stretch(before)
        # A count that is smaller than before is no position: a shim has been replaced that had no room to note it.
        return Stretch(before, {name: max(before[name], self._counts[name]) for name in STREAMS})


def _counts_of(started: pb.AttachStarted) -> dict[str, int] | None:
    return {"stdout": started.stdout_bytes, "stderr": started.stderr_bytes} if started.counted else None


def show_missed(
    client: Client, target: tuple[str, int, int], missed: MissedOutput, now: pb.AttachStarted | None
) -> str:
    """Show what came while exitd was away. Return what is to be said if that is not possible. `target`: container, run,
    and how many files its log may have, 0 for none."""
    stretch = missed.until(now)
    container, run, log_files = target
    if stretch is not None and stretch.size_bytes == 0:
        return ""
    if stretch is not None and log_files and run == 1 and _from_log(client, container, log_files, stretch):
        return ""
    count = stretch.size_bytes if stretch is not None else None
    words = "what it" if count is None else f"{count} bytes that it"
    where = f"; its log may have them: exitctl logs {container[:SHORT_ID]}" if log_files else ""
    return f"{words} wrote while exitd was away were not shown{where}"


def _from_log(client: Client, container: str, log_files: int, stretch: Stretch) -> bool:
    """Copy the stretch from the log of a first run, whose first byte is the log's. Return False if it is not there."""
    counts = dict.fromkeys(STREAMS, 0)
    shown = False
    try:
        log = client.logs(pb.LogsRequest(id=container, follow=True, run=1, positions=True))
        try:
            for reply in log:
                if reply.HasField("position") and not shown and reply.files >= log_files:
                    return False  # the first of them may have been deleted by rotation
                data = stretch.cut(reply.stream, counts[reply.stream], reply.data) if reply.data else b""
                if data:
                    shown = True
                    pour(sys.stderr.buffer if reply.stream == "stderr" else sys.stdout.buffer, data)
                if reply.data:
                    counts[reply.stream] += len(reply.data)
                if stretch.is_behind(counts):
                    return True
        finally:
            log.cancel()
    except ExitdError:
        return False
    return stretch.to is None
