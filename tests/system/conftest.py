"""What holds for the system tests: short paths, because sockets lie below them (unix(7): 107 bytes)."""

import pathlib
import shutil
import tempfile
from collections.abc import Iterator

import pytest


@pytest.fixture
def tmp_path() -> Iterator[pathlib.Path]:
    """Instead of pytest's own, which is the longer the more of them run at once."""
    directory = pathlib.Path(tempfile.mkdtemp(prefix="exitd-t-"))
    yield directory
    if f" {directory}/" not in pathlib.Path("/proc/self/mountinfo").read_text():  # left to be looked at
        shutil.rmtree(directory, ignore_errors=True)
