"""docs/shimv2.md: every command that stands behind a `$` is typed, and prints what the page says."""

import pathlib

from tests.system import pages
from tests.system.daemons import daemon
from tests.system.exitctl import Cli
from tests.system.pages import Session

PAGE = (pages.DOCS / "shimv2.md").read_text()


def test_the_commands_of_the_page_print_what_it_says(tmp_path: pathlib.Path) -> None:
    with daemon() as up:
        Session(Cli(up), tmp_path).play(PAGE)
        with up.client() as client:
            assert client.list(all_of_them=True) == ()  # the page clears up after itself
