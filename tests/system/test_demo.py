"""The demonstration reports seven true codes, and leaves nothing behind however it ends."""

import contextlib
import os
import pathlib
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

DEMO = (sys.executable, "-m", "supervisor.cli.demo")
SECONDS = 60.0
# What a shell has that never heard of exitd's environment.
BARE = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "NO_COLOR": "1", "LANG": "C.UTF-8"}


@dataclass(frozen=True)
class Played:
    code: int
    text: str

    @property
    def base(self) -> str:
        found = re.search(r"/tmp/exitd-demo-\w+", self.text)
        assert found is not None, self.text
        return found[0]


def play(*words: str, until: str = "", number: int = 0) -> Played:
    """Runs it to its end; at the line that contains `until` it is sent the signal."""
    text = ""
    process = subprocess.Popen(
        words or DEMO, env=BARE, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert process.stdout is not None
    for line in process.stdout:
        text += line
        if until and until in line:
            process.send_signal(number)
            until = ""
    return Played(process.wait(SECONDS), text)


def left(base: str) -> list[str]:
    """Every process, mount and directory of a stage that is gone."""
    mounts = [line for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines() if base in line]
    return [*mounts, *processes(base), *([base] if os.path.exists(base) else [])]


def processes(base: str) -> Iterator[str]:
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            command = (entry / "cmdline").read_bytes().decode(errors="replace")
            if base in command or base in os.readlink(entry / "cwd"):
                yield f"{entry.name} {command!r}"


def test_seven_exits_are_reported_with_their_true_codes_and_nothing_is_left() -> None:
    played = play()
    assert played.code == 0, played.text
    for line in (
        r"^code +7 +- +self +record .* exit 7: right$",
        r"^fault +139 +11 SIGSEGV +self +record .* SIGSEGV: right$",
        r"^memory +137 +9 SIGKILL +oom +record .* SIGKILL: right$",
        r"^shim-killed +43 +- +self +keeper .* exit 43: right$",
        r"^shim-stopped +13 +- +self +zombie .* exit 13: right$",
        r"^exitd-killed +21 +- +self +record .* exit 21: right$",
        r"^both-killed +32 +- +self +keeper .* exit 32: right$",
        r"each of them exactly once",
        r"its log has 1048576 bytes, the same ones",
        r"nothing is left",
    ):
        assert re.search(line, played.text, re.MULTILINE), f"{line} is not in:\n{played.text}"
    assert "\x1b" not in played.text
    assert left(played.base) == []


@pytest.mark.parametrize(
    ("line", "number"),
    [
        ("exitd runs", signal.SIGINT),
        ("shim-stopped: kill", signal.SIGTERM),
        ("then the shim of both-killed", signal.SIGINT),
    ],
)
def test_an_interrupted_demo_leaves_nothing(line: str, number: int) -> None:
    played = play(until=line, number=number)
    assert played.code == 128 + signal.SIGINT, played.text
    assert "What exitd says" not in played.text
    assert left(played.base) == []


AT_THE_SECOND_START = """
from supervisor.cli import demo, stage
answers, came = stage.Stage._answers, []
def interrupted(self):
    if self.back_ns and not came:
        came.append(True)
        raise KeyboardInterrupt
    return answers(self)
stage.Stage._answers = interrupted
demo.main()
"""


def test_one_that_is_interrupted_before_exitd_answers_again_leaves_nothing() -> None:
    played = play(sys.executable, "-c", AT_THE_SECOND_START)
    assert played.code == 128 + signal.SIGINT, played.text
    assert "nothing is left" in played.text
    assert left(played.base) == []


def test_a_code_that_is_not_what_the_container_was_made_to_be_fails_the_demo() -> None:
    """The truth of one part is planted wrong: the demo must not call that right."""
    planted = "demo.PARTS = (dataclasses.replace(demo.PARTS[0], truth=demo.Exited(8)), *demo.PARTS[1:])"
    played = play(sys.executable, "-c", f"import dataclasses\nfrom supervisor.cli import demo\n{planted}\ndemo.main()")
    assert played.code == 1, played.text
    assert re.search(r"^code +7 .* exit 8: WRONG$", played.text, re.MULTILINE)
    assert "6 of 7 exits reported correctly; WRONG: code" in played.text
    assert left(played.base) == []


def test_a_reader_that_goes_away_does_not_keep_the_demo_from_clearing_up() -> None:
    with subprocess.Popen(DEMO, env=BARE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        text = "".join(iter(process.stdout.readline, "\n"))  # doctor's part
        text += process.stdout.readline()
        process.stdout.close()
        process.wait(SECONDS)
    assert left(Played(process.returncode, text).base) == []
