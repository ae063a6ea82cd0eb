"""`make compare-check` says what is missing, and what is wrong with a page."""

import os
import pathlib
import shutil
import subprocess
import sys

import compare_check
import pytest

from supervisor.compare.facts import encode
from tests.supervisor.compare.made_up import made_up

ROOT = pathlib.Path(__file__).resolve().parent.parent
URL = "file:///report.html"


def checked(tmp_path: pathlib.Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """On a machine that has no chromium."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for tool in ("sh", "dirname"):
        (tools / tool).symlink_to(shutil.which(tool) or f"/bin/{tool}")
    env = {**os.environ, "PATH": str(tools), "PYTHON": sys.executable}
    command = [str(ROOT / ".ci/compare-check"), *arguments]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)


def test_without_chromium_it_says_how_to_get_it(tmp_path: pathlib.Path) -> None:
    page = tmp_path / "report.html"
    page.write_text("<p>")
    done = checked(tmp_path, str(page))
    assert (done.returncode, done.stderr) == (2, "chromium: not found; apt-get install chromium\n")


def test_without_a_report_it_says_what_to_run_first(tmp_path: pathlib.Path) -> None:
    done = checked(tmp_path, str(tmp_path / "report.html"))
    assert (done.returncode, done.stderr) == (2, f"{tmp_path}/report.html: not there; `make compare` writes a report\n")


def test_data_that_are_no_report_are_reported() -> None:
    assert list(compare_check.of_data(encode(made_up(storm=10, rounds=1)))) == []
    assert list(compare_check.of_data(None)) == ["no data in it"]
    assert len(list(compare_check.of_data("{}"))) == 1


@pytest.mark.parametrize(
    ("method", "said", "complaint"),
    [
        ("Network.requestWillBeSent", {"request": {"url": f"{URL}#memory"}}, []),
        ("Network.requestWillBeSent", {"request": {"url": "http://a/b"}}, ["it asks for http://a/b"]),
        ("Runtime.exceptionThrown", {"exceptionDetails": {"text": "Uncaught"}}, ["a script fails: Uncaught"]),
        ("Runtime.consoleAPICalled", {"type": "log", "args": []}, []),
        ("Runtime.consoleAPICalled", {"type": "error", "args": []}, ["the console says: []"]),
        ("Log.entryAdded", {"entry": {"level": "error", "text": "blocked"}}, ["the browser says: blocked"]),
    ],
)
def test_what_the_browser_tells_is_a_complaint_where_it_is_one(
    method: str, said: dict[str, object], complaint: list[str]
) -> None:
    assert list(compare_check.of_events([(method, said)], URL)) == complaint
