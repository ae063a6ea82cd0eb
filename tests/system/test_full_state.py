"""A state directory without a free byte: what can begin no more leaves nothing behind."""

import contextlib
import pathlib
import subprocess
from collections.abc import Iterator

from shim import programs
from tests.system import lives
from tests.system.daemonrig import LIMIT_SECONDS
from tests.system.test_storage import fill


@contextlib.contextmanager
def small(options: str = "size=1m,mode=700") -> Iterator[pathlib.Path]:
    """A directory for a state directory, on a file system of its own."""
    with lives.directory() as base:
        (path := base / "s").mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "exitd-test", str(path)], check=True)
        try:
            yield path
        finally:
            subprocess.run(["umount", str(path)], check=True)


def test_a_keeper_that_has_no_room_for_its_journal_leaves_none() -> None:
    with small() as state:
        (state / "keeper.lock").touch()
        fill(state / "ballast")
        words = [str(programs.find("exitd-keeper")), "--state", str(state), "--stay"]
        assert subprocess.run(words, timeout=LIMIT_SECONDS, check=False).returncode == 1
        assert list(state.glob("keeper-*.journal")) == []
