"""Pages for newcomers: every command that stands behind a `$` is typed, and prints what the page says.

One exitd for all of them, as one person would read them one after the other."""

import pathlib

import pytest

from tests.system import images, pages
from tests.system.daemons import Daemon, remove_all
from tests.system.exitctl import Cli
from tests.system.pages import Session

PAGES = ("quickstart.md", "troubleshooting.md", "docker-to-exitctl.md")
NEVER_TYPED = "docker://busybox"  # the tests have no registry


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An image of a layout, in place of the registry's."""
    place = images.layout(tmp_path_factory.mktemp("box"), busybox=images.plain())
    return f"oci:{place}:busybox"


@pytest.mark.parametrize("name", PAGES)
def test_the_commands_of_the_page_print_what_it_says(
    daemon: Daemon, box: str, tmp_path: pathlib.Path, name: str
) -> None:
    page = (pages.DOCS / name).read_text().replace(NEVER_TYPED, box)
    assert list(pages.lines(page)), "a page without commands is checked by nothing"
    with daemon.client() as client:
        try:
            Session(Cli(daemon), tmp_path).play(page)
            assert client.list(all_of_them=True) == ()  # the page clears up after itself
        finally:
            remove_all(client)
            images.clear(daemon)
