"""supervisor/cli/stage.py: what is known of an exitd that does not come up."""

import subprocess
import sys

TRIED = """
from supervisor.cli.stage import Stage, StageFailed
stage = Stage()
try:
    (stage.base / "root").write_text("a file in the place of the directory")
    assert stage.log() == ""
    stage.raise_daemon()
except StageFailed as error:
    print(error)
    print(stage.log())
finally:
    stage.clear()
"""


def test_an_exitd_that_does_not_come_up_leaves_its_reason_in_the_log() -> None:
    """In a process of its own, which becomes a subreaper."""
    done = subprocess.run([sys.executable, "-c", TRIED], capture_output=True, text=True, timeout=60)
    how, log = done.stdout.split("\n", 1)
    assert how.startswith("exitd ended with ") and how.endswith(" instead of answering")
    assert log.startswith("exitd: ")
