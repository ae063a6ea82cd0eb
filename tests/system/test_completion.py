"""zsh and fish complete words of exitctl's by its own scripts. (bash does in tests/supervisor/cli/test_complete.py.)"""

import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.system.exitctl import Cli

EXITCTL = pathlib.Path(sys.executable).with_name("exitctl")
SECONDS = 60.0
TERMINAL = "import pty, sys; sys.exit(pty.spawn(sys.argv[1:]))"
SWAP = "Memory and swap together; -1: no limit; default: as --memory, so no swap."


@pytest.fixture
def full(cli: Cli, shelf: pathlib.Path, no_image_left: None) -> Iterator[Cli]:
    """Of a daemon with two containers, of which one has ended, and an image."""
    cli.background("web", "sleep", "1000")
    cli.run("--name", "worker", "true")
    cli.ok("image", "load", "-i", str(shelf / "0.tar"), "--name", "tiny:1")
    yield cli
    cli.ok("rm", "-f", "web", "worker")
    cli.ok("image", "rm", "tiny:1")


def played(cli: Cli, *words: str, keys: str = "") -> list[str]:
    """What a shell has printed that finds exitctl, and exitctl the daemon."""
    environment = {**cli.environment, "PATH": f"{EXITCTL.parent}:{os.environ['PATH']}", "TERM": "dumb"}
    done = subprocess.run(words, input=keys, env=environment, capture_output=True, text=True, timeout=SECONDS)
    assert done.stderr == ""
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    ("typed", "proposed"),
    [
        ("rm w", ["web", "worker"]),
        ("exec -it w", ["web"]),
        ("image rm t", ["tiny:1"]),
        ("run --memory-s", [f"--memory-swap\t{SWAP}"]),
    ],
)
def test_fish_completes_with_the_script(full: Cli, typed: str, proposed: list[str]) -> None:
    script = f'exitctl completion fish | source; complete -C "exitctl {typed}"'
    assert [line.strip() for line in played(full, "fish", "--no-config", "-c", script)] == proposed


@pytest.mark.parametrize(
    ("typed", "line"),
    [
        ("rm wo", "rm worker"),
        ("exec -it w", "exec -it web"),
        ("image rm t", "image rm tiny:1"),
        ("run --memory-s", "run --memory-swap"),
        ("inspectp", "inspectp"),
    ],
)
def test_zsh_completes_with_the_script(full: Cli, typed: str, line: str) -> None:
    """On a terminal: the whole line, as Tab has left it, is made the words of an echo."""
    begin = 'autoload -U compinit; compinit -u -D; eval "$(exitctl completion zsh)"'
    keys = f"{begin}\nexitctl {typed}\t\x01echo SA''ID \nexit\n"
    lines = played(full, sys.executable, "-c", TERMINAL, "zsh", "-f", "-i", keys=keys)
    assert [each.split()[1:] for each in lines if each.startswith("SAID ")] == [["exitctl", *line.split()]], lines
