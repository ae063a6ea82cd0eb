"""docs/images.md: what stands there after a `$` is typed, and what is printed is what stands below it."""

import pathlib
import re
import subprocess

from tests.system.daemons import Daemon
from tests.system.exitctl import EXITCTL, SECONDS, Cli

PAGE = pathlib.Path(__file__).parents[2] / "docs/images.md"
BLOCK = re.compile(r"^```\n(.*?)^```$", re.MULTILINE | re.DOTALL)
DIFFERS = (  # from one machine and minute to the next
    (re.compile(r"\b[0-9a-f]{12}(?:[0-9a-f]{52})?\b"), "ID"),
    (re.compile(r"(?:Less than a second|About a minute|\d+ (?:seconds?|minutes)) ago"), "AGO"),
    (re.compile(r"[\d.]+ [KM]iB"), "SIZE"),
    (re.compile(r" +"), " "),
)


def typed_and_printed() -> list[tuple[str, str]]:
    """Each command with the lines below it, in the order of the page."""
    blocks = [block for block in BLOCK.findall(PAGE.read_text()) if block.startswith("$ ")]
    return [
        (command, text)
        for part in re.split(r"^\$ ", "".join(blocks), flags=re.MULTILINE)[1:]
        for command, _, text in [part.partition("\n")]
    ]


def plain(text: str) -> str:
    for pattern, word in DIFFERS:
        text = pattern.sub(word, text)
    return text


def test_the_commands_of_the_page_print_what_it_says(daemon: Daemon, tmp_path: pathlib.Path) -> None:
    environment = {**Cli(daemon).environment, "LC_ALL": "C.UTF-8"}
    environment["PATH"] = f"{pathlib.Path(EXITCTL).parent}:{environment['PATH']}"
    ids: dict[str, str] = {}
    for command, expected in typed_and_printed():
        for shown, real in ids.items():
            command = command.replace(shown, real)
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=tmp_path,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SECONDS * 2,
        )
        assert plain(done.stdout) == plain(expected), command
        ids |= dict(zip(re.findall(DIFFERS[0][0], expected), re.findall(DIFFERS[0][0], done.stdout), strict=True))


def test_the_page_shows_every_way_to_name_an_image() -> None:
    text = PAGE.read_text()
    for way in ("`pause`", "`/DIR`", "`oci:DIR[:TAG]`", "`docker-archive:FILE[:NAME]`", "`docker://NAME`"):
        assert way in text
    assert len(typed_and_printed()) > 20
