"""A page of the documentation as a session: its files are there, its commands are typed, their output is compared.

What stands after a `$` in a code block is a command, what stands below it is what it prints. A block of `sh` is pasted
as a whole, and works; it prints the block of `text` below it, if there is one. A block of JSON or YAML below a line
with the name of a file is that file. A command with lines below it that begin with `# `, a shell's prompt, is typed on
a terminal, and what stands after the prompts as well: `^P` is a control key, and an empty line before the first prompt
is the return key.
"""

import contextlib
import pathlib
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.supervisor.cli.fake_attach import Pty
from tests.system.exitctl import EXITCTL, SECONDS, Cli
from tests.system.waits import until

DOCS = pathlib.Path(__file__).parents[2] / "docs"
OF_NETWORK = ("A pod with a published port", "A published port")  # sections of the quick start
BLOCK = re.compile(r"^```\n(\$ .*?)^```$|^```sh\n(.*?)^```$(?:\n\n^```text\n(.*?)^```$)?", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"^`([\w.-]+)`:\n\n```(?:json|yaml)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
OPAQUE = re.compile(r"\b[0-9a-f]{12,64}\b|(?<=:\[)\d+(?=\])")  # ids and their beginnings, numbers of namespaces
TYPED = re.compile(r"^# (.+)$", re.MULTILINE)
SHORT = 12
AGE = r"(?:Less than a second|About a minute|\d+ (?:seconds?|minutes))"
DIFFERS = (  # from one machine and minute to the next
    (re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z"), "TIME"),
    (re.compile(r"\[\d\d/\w{3}/\d{4} [\d:]+\]"), "[TIME]"),
    (re.compile(rf"{AGE} ago"), "AGO"),
    (re.compile(rf"Up {AGE}"), "Up"),
    (re.compile(r"[\d.]+ (?:us|ms|s) after"), "LATER"),
    (re.compile(r"in process \d+"), "in process PID"),
    (re.compile(r" +"), " "),
)


@dataclass(frozen=True)
class Line:
    command: str
    prints: str
    is_pasted: bool = False  # a script of several lines
    is_shown: bool = True  # what it prints


def lines(page: str) -> Iterator[Line]:
    """In the order of the page."""
    for found in BLOCK.finditer(page):
        block, script, shown = found.groups()
        if script is not None:
            yield Line(script, shown or "", is_pasted=True, is_shown=shown is not None)
            continue
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, prints = part.partition("\n")
            yield Line(command, prints)


def files(page: str) -> dict[str, str]:
    return dict(FILE.findall(page))


def section(page: str, title: str) -> str:
    """What stands below that heading, up to the next one of its level."""
    _, heading, below = page.partition(f"\n## {title}\n")
    assert heading, f"no section {title!r}"
    return below.partition("\n## ")[0]


@dataclass
class Session:
    """A shell of one person in one directory. Shown ids stand for real ones, one for one."""

    cli: Cli
    directory: pathlib.Path
    real: dict[str, str] = field(default_factory=dict)
    shell: tuple[str, ...] = ("bash", "-c")

    def play(self, page: str) -> None:
        for name, text in files(page).items():
            (self.directory / name).write_text(text)
        for line in lines(page):
            if line.is_pasted:
                self._paste(line)
                continue
            command = OPAQUE.sub(lambda found: self._real(found[0]), line.command)
            keys = typed(line.prints)
            printed = self.type_on_terminal(command, keys) if keys else self.type(command)
            assert plain(printed) == plain(line.prints), f"$ {line.command}\n{printed}"
            self._compare_ids(line, printed)

    def _paste(self, line: Line) -> None:
        """Every command of it must succeed."""
        printed = self.type(f"set -e\n{line.command}\necho worked")
        assert printed.endswith("worked\n"), f"{line.command}\n{printed}"
        if line.is_shown:
            printed = printed.removesuffix("worked\n")
            assert plain(printed) == plain(line.prints), f"{line.command}\n{printed}"
            self._compare_ids(line, printed)

    def _compare_ids(self, line: Line, printed: str) -> None:
        for shown, real in zip(OPAQUE.findall(line.prints), OPAQUE.findall(printed), strict=True):
            self._meet(shown, real, line)

    @property
    def environment(self) -> dict[str, str]:
        path = f"{pathlib.Path(EXITCTL).parent}:{self.cli.environment['PATH']}"
        return {**self.cli.environment, "LC_ALL": "C.UTF-8", "PATH": path}

    def type(self, command: str) -> str:
        """Both outputs, as a terminal shows them."""
        done = subprocess.run(
            [*self.shell, command],
            cwd=self.directory,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=2 * SECONDS,
        )
        return done.stdout

    def type_on_terminal(self, command: str, keys: list[str]) -> str:
        """All that the terminal shows. Control keys have no echo and are noted where they were pressed."""
        with contextlib.closing(Pty()) as pty:
            process = subprocess.Popen(
                [*self.shell, command],
                cwd=self.directory,
                env=self.environment,
                stdin=pty.slave,
                stdout=pty.slave,
                stderr=pty.slave,
            )
            screen = Screen(pty, process)
            try:
                for key in keys:
                    screen.press(key)
                until(screen.is_over, f"$ {command} does not end")
            finally:
                process.kill()
                process.wait(SECONDS)
            return screen.text.replace("\r\n", "\n")

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


@dataclass
class Screen:
    """What a terminal has shown so far, and who is on it."""

    pty: Pty
    process: "subprocess.Popen[bytes]"
    text: str = ""
    answered: int = 0  # so much of the text had come when something was pressed

    def press(self, keys: str) -> None:
        """A line at the next prompt, control keys there, or just return (no keys) where there is none yet."""
        if not keys:
            until(self.pty.is_raw, "the terminal is not raw")
        else:
            until(self._is_prompt, f"no prompt for {keys!r}")
        if keys.startswith("^"):
            self.text += keys
            self.pty.type(bytes(ord(letter) - ord("@") for letter in keys[1::2]))
        else:
            self.pty.type(f"{keys}\r".encode())
        self.answered = len(self.text)

    def is_over(self) -> bool:
        """The program has ended, and all of it was read."""
        ended, before = self.process.poll() is not None, self.text
        return self._look() == before and ended

    def _is_prompt(self) -> bool:
        return self._look()[self.answered :].endswith("# ")

    def _look(self) -> str:
        self.text += self.pty.shown()
        return self.text


def typed(prints: str) -> list[str]:
    """What is pressed on a terminal, one prompt's after the other; nothing when there is no prompt."""
    keys = TYPED.findall(prints)
    return ["", *keys] if keys and prints.startswith("\n") else keys


def plain(text: str) -> str:
    """Without what differs; an id is as long as it was shown."""
    text = OPAQUE.sub(lambda found: f"ID{len(found[0])}" if len(found[0]) > SHORT else "ID", text)
    for pattern, word in DIFFERS:
        text = pattern.sub(word, text)
    return text
