"""A page of the documentation as a session: its files are there, its commands are typed, their output is compared.

What stands after a `$` in a code block is a command, what stands below it is what it prints. A block of JSON or YAML
below a line with the name of a file is that file.
"""

import pathlib
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.system.clirig import EXITCTL, SECONDS, Cli

DOCS = pathlib.Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r"^```\n(\$ .*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"^`([\w.-]+)`:\n\n```(?:json|yaml)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
OPAQUE = re.compile(r"\b[0-9a-f]{12,64}\b|(?<=:\[)\d+(?=\])")  # ids and their beginnings, numbers of namespaces
SHORT = 12
AGE = r"(?:Less than a second|About a minute|\d+ (?:seconds?|minutes))"
DIFFERS = (  # from one machine and minute to the next
    (re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z"), "TIME"),
    (re.compile(rf"{AGE} ago"), "AGO"),
    (re.compile(rf"Up {AGE}"), "Up"),
    (re.compile(r"[\d.]+ (?:us|ms|s) after"), "LATER"),
    (re.compile(r" +"), " "),
)


@dataclass(frozen=True)
class Line:
    command: str
    prints: str


def lines(page: str) -> Iterator[Line]:
    """In the order of the page."""
    for block in BLOCK.findall(page):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, prints = part.partition("\n")
            yield Line(command, prints)


def files(page: str) -> dict[str, str]:
    return dict(FILE.findall(page))


@dataclass
class Session:
    """A shell of one person in one directory. Shown ids stand for real ones, one for one."""

    cli: Cli
    directory: pathlib.Path
    real: dict[str, str] = field(default_factory=dict)

    def play(self, page: str) -> None:
        for name, text in files(page).items():
            (self.directory / name).write_text(text)
        for line in lines(page):
            printed = self.type(OPAQUE.sub(lambda found: self._real(found[0]), line.command))
            assert plain(printed) == plain(line.prints), f"$ {line.command}"
            for shown, real in zip(OPAQUE.findall(line.prints), OPAQUE.findall(printed), strict=True):
                self._meet(shown, real, line)

    def type(self, command: str) -> str:
        """Both outputs, as a terminal shows them."""
        environment = {**self.cli.environment, "LC_ALL": "C.UTF-8"}
        environment["PATH"] = f"{pathlib.Path(EXITCTL).parent}:{environment['PATH']}"
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self.directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=2 * SECONDS,
        )
        return done.stdout

    def _real(self, shown: str) -> str:
        return self.real.get(shown[:SHORT], shown)[: len(shown)]

    def _meet(self, shown: str, real: str, line: Line) -> None:
        """The same every time it is shown, and another than all others."""
        known = self.real.get(shown[:SHORT])
        if known is None:
            assert real not in self.real.values(), f"{shown} is an id that was shown as another, after $ {line.command}"
        else:
            assert known[:SHORT] == real[:SHORT], f"{shown} is another id than before, after $ {line.command}"
        if len(real) > len(known or ""):
            self.real[shown[:SHORT]] = real


def plain(text: str) -> str:
    """Without what differs; an id is as long as it was shown."""
    text = OPAQUE.sub(lambda found: f"ID{len(found[0])}" if len(found[0]) > SHORT else "ID", text)
    for pattern, word in DIFFERS:
        text = pattern.sub(word, text)
    return text
