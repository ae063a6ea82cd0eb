"""Pages of the documentation: every command that stands behind a `$` is typed, and prints what the page says; one that
stands alone is typed, and works.

One exitd for all of them, as one person would read them one after the other."""

import pathlib
import re
from collections.abc import Iterator

import pytest

from tests.system import images, pages
from tests.system.daemons import Daemon, remove_all
from tests.system.exitctl import Cli
from tests.system.pages import Session

ROOT = pages.DOCS.parent
PAGES = (
    *("README.md", "docs/quickstart.md", "docs/troubleshooting.md", "docs/docker-to-exitctl.md", "docs/cli.md"),
    "docs/streams.md",
)
ALONE = ("docs/templates.md", "docs/seccomp.md", "docs/configuration.md", "docs/operations.md")
NEVER_TYPED = "docker://busybox"  # the tests have no registry
FOLLOWS = "exitctl events --from-seq 1"  # for ever
PROFILE = '{"defaultAction": "SCMP_ACT_ALLOW"}'


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An image of a layout, in place of the registry's."""
    place = images.layout(tmp_path_factory.mktemp("box"), busybox=images.plain())
    return f"oci:{place}:busybox"


@pytest.fixture
def session(daemon: Daemon, tmp_path: pathlib.Path) -> Iterator[Session]:
    yield Session(Cli(daemon), tmp_path)
    with daemon.client() as client:
        remove_all(client)
    images.clear(daemon)


@pytest.mark.parametrize("name", PAGES)
def test_the_commands_of_the_page_print_what_it_says(daemon: Daemon, session: Session, box: str, name: str) -> None:
    page = (ROOT / name).read_text().replace(NEVER_TYPED, box)
    if name == "docs/quickstart.md":  # tests/system/test_docs_networks.py types these, where there is a network
        for title in pages.OF_NETWORK:
            page = page.replace(pages.section(page, title), "")
    assert list(pages.lines(page)), "a page without commands is checked by nothing"
    session.play(page)
    with daemon.client() as client:
        assert client.list(all_of_them=True) == ()  # the page clears up after itself


@pytest.mark.parametrize("name", ALONE)
def test_the_commands_that_stand_alone_work(session: Session, name: str) -> None:
    (session.directory / "profile.json").write_text(PROFILE)
    session.type("exitctl run --name web -e A=1 --label tier=front / true")
    typed = re.findall(r"^(exitctl .*?)(?: +#.*)?$", (ROOT / name).read_text(), re.MULTILINE)
    commands = [line for line in typed if not re.match(r"exitctl \w+ (?:adopts|starts)", line)]
    assert commands
    for command in commands:
        whole = command.replace(FOLLOWS, f"{FOLLOWS} --no-follow")
        printed = session.type(f"{whole} && echo worked" if "echo $?" not in whole else f"{whole}; echo worked")
        assert printed.endswith("worked\n") and "exitctl: " not in printed, f"{command}: {printed}"
