"""docs/containers.md: every command on the page is typed, and prints what the page says."""

import pathlib
from dataclasses import replace

from tests.system import pages
from tests.system.daemons import NOTHING, Daemon, left
from tests.system.exitctl import Cli
from tests.system.pages import Session
from tests.system.waits import until

PAGE = (pages.DOCS / "containers.md").read_text()


def test_the_commands_of_the_page_print_what_it_says(daemon: Daemon, tmp_path: pathlib.Path) -> None:
    Session(Cli(daemon), tmp_path).play(PAGE)
    with daemon.client() as client:
        assert client.list(all_of_them=True) == ()  # the page clears up after itself
    until(lambda: replace(left(daemon), descriptors=0) == NOTHING, f"left: {left(daemon)}")
