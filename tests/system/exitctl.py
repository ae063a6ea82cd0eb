"""The real exitctl beside a real exitd."""

import os
import pathlib
import subprocess
import sys
from dataclasses import dataclass, field

from tests.system import warm
from tests.system.daemons import Daemon
from tests.system.waits import until

EXITCTL = str(pathlib.Path(sys.executable).with_name("exitctl"))
SECONDS = 30.0
TAKES_LONG = "; this may take minutes\n"  # how it announces an image that is not there in a moment


@dataclass(frozen=True)
class Said:
    code: int
    out: str
    err: str


@dataclass
class Cli:
    """exitctl as a person has it, for one daemon; `environment` as that person's shell has it. The `program` speaks
    ttrpc unless it has an option of its own."""

    daemon: Daemon
    environment: dict[str, str] = field(default_factory=dict)
    program: tuple[str, ...] = (EXITCTL,)

    def __post_init__(self) -> None:
        kept = {key: value for key, value in os.environ.items() if not key.startswith("EXITD_")}
        self.environment = {**kept, "EXITD_STATE": str(self.daemon.state), **self.environment}

    def __call__(self, *words: str) -> Said:
        """From beginning to end, without a start of its own, see warm. As it is installed it is what `begin`, the
        terminals and the pages of the documentation start. On a busy machine anything may take long."""
        code, out, err = warm.run("exitctl", ("exitctl",), words, self.environment, SECONDS)
        complaints = [line for line in _text(err).splitlines(keepends=True) if not line.endswith(TAKES_LONG)]
        return Said(code, _text(out), "".join(complaints))

    def ok(self, *words: str) -> str:
        """What it printed, without the last newline; it must have worked and not complained."""
        said = self(*words)
        assert (said.code, said.err) == (0, ""), f"{words}: {said}"
        return said.out.removesuffix("\n")

    def begin(self, *words: str) -> "subprocess.Popen[str]":
        """The program as it is installed."""
        return subprocess.Popen(
            [*self.program, *words],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="surrogateescape",
        )

    def run(self, *words: str) -> Said:
        """A container on the host's own files."""
        return self("run", "--rootfs", "/", *words)

    def background(self, name: str, *words: str) -> str:
        return self.ok("run", "-d", "--name", name, "--rootfs", "/", *words)

    def field(self, container: str, path: str) -> str:
        return self.ok("inspect", "-f", f"{{{{{path}}}}}", container)

    def until_status(self, container: str, status: str) -> None:
        until(lambda: self.field(container, ".State.Status") == status, f"{container} is not {status}")


def _text(output: bytes) -> str:
    """As `begin` reads it."""
    return output.decode(errors="surrogateescape").replace("\r\n", "\n").replace("\r", "\n")


def over(transport: str, daemon: Daemon) -> Cli:
    return Cli(daemon, program=(EXITCTL, "--grpc") if transport == "grpc" else (EXITCTL,))
