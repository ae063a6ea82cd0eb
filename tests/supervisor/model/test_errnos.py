"""supervisor/model/errnos.py: the words for an error in the state directory."""

import errno
import os
import pathlib

import pytest

from supervisor.model import errnos
from supervisor.model.errors import ShimFailed
from supervisor.runtime.foreign_shim import place


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.ENOSPC, "No space left on device; is the state directory full?"),
        (errno.EMFILE, "Too many open files; exitd has as many files open as it may"),
        (errno.ENFILE, "Too many open files in system; the machine has as many files open as it may"),
        (errno.EACCES, "Permission denied"),
    ],
)
def test_each_error_is_reported_with_what_it_means_and_only_a_full_disk_as_full(number: int, words: str) -> None:
    assert errnos.said(OSError(number, os.strerror(number))) == words


def test_a_path_that_is_not_there_is_not_reported_as_a_full_directory(tmp_path: pathlib.Path) -> None:
    with pytest.raises(ShimFailed, match=r"No such file or directory$"):
        place.lay_out(b"", str(tmp_path / "gone"), "box")
