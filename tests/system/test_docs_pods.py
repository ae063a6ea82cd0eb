"""docs/pods.md: every command on the page is typed, and prints what the page says."""

import pathlib
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.system import pagerig
from tests.system.clirig import Cli
from tests.system.daemonrig import NOTHING, Daemon, left, until
from tests.system.lives import daemon
from tests.system.pagerig import Session
from tests.system.test_pods_cli import MEMBER, RUNP, SANDBOX, SANDBOX_CONFIG

PAGE = (pagerig.DOCS / "pods.md").read_text()


@pytest.fixture
def up() -> Iterator[Daemon]:
    with daemon() as made:
        yield made


def test_the_commands_of_the_page_print_what_it_says(up: Daemon, tmp_path: pathlib.Path) -> None:
    Session(Cli(up), tmp_path).play(PAGE)
    with up.client() as client:
        assert client.list(all_of_them=True) == ()  # the page clears up after itself
    until(lambda: replace(left(up), descriptors=0) == NOTHING, f"left: {left(up)}")


def test_the_page_shows_the_founding_documents_command_lines_and_its_file() -> None:
    printed = {line.command: line.prints.strip() for line in pagerig.lines(PAGE)}
    pod = printed[f"exitctl {SANDBOX.format(image='pause', command='')}".strip()]
    assert f"exitctl {MEMBER.format(sandbox=pod, command='sleep 1000')}" in printed
    assert f"exitctl {RUNP}" in printed
    assert pagerig.files(PAGE)["sandbox-config.json"] == SANDBOX_CONFIG


@pytest.mark.parametrize(
    ("page", "why"),
    [
        ("```\n$ echo 7\n8\n```\n", "echo 7"),
        ("```\n$ echo 0123456789ab\nba9876543210\n$ echo 0123456789ac\nba9876543210\n```\n", "another id"),
        ("```\n$ echo 0123456789ab\nba9876543210\n$ echo 0123456789ab\nba9876543211\n```\n", "shown as another"),
        ("```\n$ cat note.json\n{}\n```\n", "note.json"),
        ("```\n$ printf '# '; read word; echo \"$word\"\n# yes\nno\n```\n", "read word"),
    ],
)
def test_a_page_that_says_something_else_is_found_out(tmp_path: pathlib.Path, page: str, why: str) -> None:
    with pytest.raises(AssertionError, match=why):
        Session(Cli(Daemon(tmp_path)), tmp_path).play(page)


def test_a_page_that_says_what_happens_is_believed(tmp_path: pathlib.Path) -> None:
    page = (
        '`note.json`:\n\n```json\n{"a": 1}\n```\n\n```\n$ cat note.json; echo up >&2\n{"a": 1}\nup\n'
        "$ echo 0123456789abcdef 3 seconds ago\nfedcba9876543210 12 seconds ago\n"
        "$ echo fedcba987654 | cut -c 1-4\n0123\n"
        "$ printf '# '; read word; echo \"$word\"\n# yes\nyes\n```\n"
    )
    Session(Cli(Daemon(tmp_path)), tmp_path).play(page)
