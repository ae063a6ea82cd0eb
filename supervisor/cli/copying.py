"""Copies a container's output to exitctl's."""

import os
import select
import sys
from collections.abc import Iterable
from typing import BinaryIO

from protos.exitd.v1 import exitd_pb2 as pb


def copy_log(log: Iterable[pb.LogsReply]) -> None:
    """Copy stdout to stdout, stderr to stderr."""
    for reply in log:
        target = sys.stderr.buffer if reply.stream == "stderr" else sys.stdout.buffer
        pour(target, reply.data)


def pour(file: BinaryIO, data: bytes) -> None:
    """Write everything at once, after what was printed before. Raises BrokenPipeError when the reader is gone."""
    file.flush()
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(file.fileno(), rest) :]
        except BlockingIOError:  # another process has made the terminal non-blocking
            select.select([], [file], [])
