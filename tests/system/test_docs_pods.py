"""docs/pods.md: every command on the page is typed, and prints what the page says."""

import pathlib
from dataclasses import replace

import pytest

from tests.system import pages
from tests.system.daemons import NOTHING, Daemon, left
from tests.system.exitctl import Cli
from tests.system.pages import Session
from tests.system.test_pods_cli import MEMBER, RUNP, SANDBOX, SANDBOX_CONFIG
from tests.system.waits import until

PAGE = (pages.DOCS / "pods.md").read_text()


def test_the_commands_of_the_page_print_what_it_says(daemon: Daemon, tmp_path: pathlib.Path) -> None:
    Session(Cli(daemon), tmp_path).play(PAGE)
    with daemon.client() as client:
        assert client.list(all_of_them=True) == ()  # the page clears up after itself
    until(lambda: replace(left(daemon), descriptors=0) == NOTHING, f"left: {left(daemon)}")


def test_the_page_shows_the_founding_documents_command_lines_and_its_file() -> None:
    printed = {line.command: line.prints.strip() for line in pages.lines(PAGE)}
    pod = printed[f"exitctl {SANDBOX.format(image='pause', command='')}".strip()]
    assert f"exitctl {MEMBER.format(sandbox=pod, command='sleep 1000')}" in printed
    assert f"exitctl {RUNP}" in printed
    assert pages.files(PAGE)["sandbox-config.json"] == SANDBOX_CONFIG


@pytest.mark.parametrize(
    ("page", "why"),
    [
        ("```\n$ echo 7\n8\n```\n", "echo 7"),
        ("```\n$ echo 0123456789ab\nba9876543210\n$ echo 0123456789ac\nba9876543210\n```\n", "another id"),
        ("```\n$ echo 0123456789ab\nba9876543210\n$ echo 0123456789ab\nba9876543211\n```\n", "shown as another"),
        ("```\n$ cat note.json\n{}\n```\n", "note.json"),
        ("```\n$ printf '# '; read word; echo \"$word\"\n# yes\nno\n```\n", "read word"),
        ("```sh\nfalse\ntrue\n```\n", "false"),
        ("```sh\necho 7\n```\n\n```text\n8\n```\n", "echo 7"),
        ("```sh\necho 0123456789ab\n```\n\n```text\nba9876543210\nba9876543210\n```\n", "echo 0123456789ab"),
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
        "\n```sh\ncat >file <<'END'\none\n\ntwo\nEND\n```\n\n```sh\ncat file\necho fedcba987654\n```\n"
        "\n```text\none\n\ntwo\n0123456789ab\n```\n\nand so on\n\n```\n$ rm file\n```\n"
    )
    Session(Cli(Daemon(tmp_path)), tmp_path).play(page)
