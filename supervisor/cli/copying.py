"""A container's output to ours."""

import os
import select
import sys
from typing import BinaryIO

from supervisor.api.answers import AnswerStream


def copy_log(log: AnswerStream) -> None:
    """Stream by stream."""
    for reply in log:
        target = sys.stderr.buffer if reply.stream == "stderr" else sys.stdout.buffer
        pour(target, reply.data)


def pour(file: BinaryIO, data: bytes) -> None:
    """All of it, now, behind what was printed before. BrokenPipeError when nobody reads any more."""
    file.flush()
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(file.fileno(), rest) :]
        except BlockingIOError:  # a terminal that somebody else has made so
            select.select([], [file], [])
