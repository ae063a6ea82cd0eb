"""Whatever is typed: each verb of exitctl and the daemon itself answer nonsense with words and a code of their own, and
nothing of it stays. The verbs and options are those that click has: one that comes is tried, too."""

import contextlib
import os
import pathlib
import socket
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import click
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.__main__ import main as exitd
from supervisor.api.client import Client
from supervisor.cli.__main__ import exitctl
from supervisor.cli.app import OF_A_CONTAINER
from supervisor.model.errors import ExitdError
from tests.system import daemons, lives, tinyroot, warm
from tests.system.daemons import Daemon, left, remove_all
from tests.system.exitctl import SECONDS
from tests.system.processes import processes_of
from tests.system.waits import SCALE, scaled, until

NOT_TYPED = {
    "node-shutdown": "ends all containers, and no other one begins until exitd is started again",
    "live": "shows ends until it is left",
    "compare": "measures this machine for minutes",
}
# Of verbs that would wait, or ask the network: words besides, after which they do not.
WITH = {
    "stats": ("--no-stream",),
    "events": ("--no-follow",),
    "watch": ("--detach",),
    "run": ("--pull", "never"),
    "create": ("--pull", "never"),
}
TO_THE_END = ("wait", "attach", "logs")  # of a container: not of one that goes on
# What exitctl itself reads or writes, as cat would: a fifo that nobody else opens is waited for.
IN_PERSON = ("play", "runp", "--output", "--cidfile", "--env-file", "--label-file", "--pidfile", "--security-opt")
NO_NAMES = ("image pull",)  # of images that there may be: it would ask for them
USAGE, OWN_FAILURE = 2, 125
# Numbers, texts of other kinds, and too much; a newline, an escape sequence, what turns text around, no UTF-8.
TEXTS = [
    "",
    " ",
    "-",
    "--",
    "-1",
    "0",
    "9",
    "1.5",
    "nan",
    "inf",
    "1e400",
    "9" * 400,
    "99999999999",
    "x" * 10_000,
    "a=b",
    "=",
]
TEXTS += [
    "\x1b[2J",
    "a\nb",
    "\u202e",
    "ä€😀",
    "\udcff",
    "..",
    "a/b",
    "a:b:c",
    "{{",
    "{{.Nope}}",
    "{{range .}}",
    "%s",
    "*",
    "10m",
    "1g",
]
FILES = ("fifo", "directory", "loop", "empty", "noise", "missing", "socket", "text/below")
NOISE = bytes(range(256)) * 64
CODES = {0, 1, USAGE, 124, OWN_FAILURE, 126, 127, 130}  # 130: a question had no answer
LIVES = "trap 'exit 3' TERM; while :; do sleep 0.05; done"


def verbs(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    """Each verb below this command, by its words."""
    if not isinstance(command, click.Group):
        yield " ".join(path), command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        below = command.get_command(context, name)
        assert below is not None
        yield from verbs(below, (*path, name))


VERBS = {path: command for path, command in verbs(exitctl) if path not in NOT_TYPED}


NO_LIMITS: Mapping[str, float] = {}
AT_ONCE = {"supervisor.daemon.LOCK_SECONDS": 0.0}  # its lock is not waited for


@dataclass
class World:
    """A daemon with a container that runs and one that has ended, and a directory to type commands in."""

    daemon: Daemon
    client: Client
    directory: pathlib.Path
    had: set[str]
    root: str  # of the two, and small: `export` writes all of it

    def settle(self) -> None:
        """All that a command has made, begun or ended is as before."""
        now = {container.spec.name: container for container in self.client.list(all_of_them=True)}
        for name, container in now.items():
            is_in_phase = container.phase == {"up": pb.PHASE_RUNNING, "ended": pb.PHASE_EXITED}.get(name, -1)
            if not is_in_phase or container.spec.rootfs != self.root:  # another has got the name
                with contextlib.suppress(ExitdError):
                    self.client.remove(container.id, force=True)
                now = {key: each for key, each in now.items() if key != name}
        if "up" not in now:
            lives.up(self.client, "sh", "-c", LIVES, name="up", rootfs=self.root)
        if "ended" not in now:
            lives.run(self.client, "true", name="ended", rootfs=self.root)
        for name in set(os.listdir(self.directory)) - self.had:  # by --cidfile
            os.unlink(self.directory / name)
        for watch in self.client.watches():
            self.client.end_watch(watch.target)
        for volume in self.client.volumes():
            self.client.remove_volume(volume.name)

    def type(self, program: str, words: list[str], limits: Mapping[str, float] = NO_LIMITS) -> tuple[int, str]:
        """Return the code, and all that it printed."""
        kept = {key: value for key, value in os.environ.items() if not key.startswith("EXITD_")}
        environment = {**kept, "EXITD_STATE": str(self.daemon.state), "PYTHONUTF8": "1"}
        before = os.getcwd()
        os.chdir(self.directory)
        try:
            code, out, err = warm.run(f"odd {program}", (program,), words, environment, SECONDS, limits)
        except subprocess.TimeoutExpired:
            pytest.fail(
                f"{program} {shown(words)} does not end; if it may wait, WITH has words after which it does not"
            )
        finally:
            os.chdir(before)
        said, complaint = (out + err).decode(errors="replace"), err.decode(errors="replace")
        assert "Traceback (most recent" not in complaint and "internal error" not in complaint, (
            f"{shown(words)}: {complaint[-3000:]}"
        )
        is_mute = "exists" in words[:2]  # its code says it all
        assert code == 0 or said or is_mute, f"{shown(words)}: {code}, without a word"
        return code, said


def shown(words: list[str]) -> list[str]:
    return [word if len(word) < 200 else f"{word[:5]}...{len(word)}" for word in words]


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with daemons.directory() as directory, socket.socket(socket.AF_UNIX) as listener:
        os.mkfifo(directory / "fifo")
        (directory / "directory").mkdir()
        (directory / "loop").symlink_to("loop")
        (directory / "empty").touch()
        (directory / "noise").write_bytes(NOISE)
        (directory / "text").write_text("a\n")
        listener.bind(str(directory / "socket"))
        with daemons.daemon() as daemon, daemon.client() as client:
            daemon.warm(client)
            before = left(daemon)
            root = tinyroot.make(daemon.base / "root")
            made = World(daemon, client, directory, set(os.listdir(directory)), str(root))
            yield made
            made.settle()
            assert (directory / "noise").read_bytes() == NOISE and set(os.listdir(directory)) == made.had
            remove_all(client)
            until(lambda: left(daemon) == before, f"left behind: {left(daemon)}, not {before}")
            own = (f"{daemon.pid}:", f"{daemon.keeper_pid()}:")
            until(lambda: all(line.startswith(own) for line in processes_of(daemon.base)), "processes are left")


def some(count: int) -> settings:
    return settings(
        max_examples=scaled(count, least=20),
        derandomize=SCALE < 1,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        database=None,
    )


def odd(draw: st.DrawFn, directory: pathlib.Path, place: str) -> str:
    """A word: a text, or a path by which something else is found than was meant. `place`: the verb or option that it
    comes after."""
    file = st.sampled_from([name for name in FILES if name != "fifo" or place not in IN_PERSON]).map(
        lambda name: draw(st.sampled_from((name, str(directory / name))))
    )
    return draw(st.sampled_from(TEXTS) | file | st.sampled_from(("up", "ended", "true", "/dev/zero", "/dev/null", "/")))


def typed(draw: st.DrawFn, command: click.Command, directory: pathlib.Path, without: str = "") -> list[str]:
    """Up to three of its options, each with an odd word, some of them twice."""
    options = [each for each in command.params if isinstance(each, click.Option) and each.name != without]
    words: list[str] = []
    for option in draw(st.lists(st.sampled_from(options), max_size=3)) if options else ():
        for _ in range(draw(st.sampled_from((1, 1, 1, 2)))):
            words.append(draw(st.sampled_from((*option.opts, *option.secondary_opts))))
            if not (option.is_flag or option.count):
                words += [odd(draw, directory, option.opts[-1]) for _ in range(option.nargs)]
    return words


def arguments(draw: st.DrawFn, path: str, command: click.Command, directory: pathlib.Path) -> list[str]:
    """In the place of its arguments: what they are meant to be, or odd words."""
    wanted = [each for each in command.params if isinstance(each, click.Argument)]
    if path in NO_NAMES:
        return draw(st.sampled_from((["", "/"], ["\x1b[2J"], ["A"], [])))
    is_odd: bool = draw(st.booleans())
    if wanted and is_odd:
        found = [odd(draw, directory, path) for _ in range(draw(st.sampled_from((1, 1, 2))))]
        return [word for word in found if path.split()[-1] not in TO_THE_END or word != "up"]
    if path.removeprefix("container ") in ("run", "create"):
        return ["--rootfs", "/", "true"]
    names = ["up", "true"] if path.split()[-1] == "exec" else ["ended"]
    return names if any(each.required or each.metavar in ("ID", "ID...") for each in wanted) else []


@st.composite
def commands(draw: st.DrawFn, directory: pathlib.Path) -> tuple[str, list[str]]:
    path = draw(st.sampled_from([*VERBS]))
    command = VERBS[path]
    words = [
        *typed(draw, command, directory, "latest" if path.split()[-1] in (*TO_THE_END, "start") else ""),
        *WITH.get(path.split()[-1], ()),
        *arguments(draw, path, command, directory),
    ]
    return path, words


def test_whatever_is_typed_at_exitctl_is_done_or_refused_in_words(world: World) -> None:
    @some(12_000)
    @given(commands(world.directory))
    def type_(command: tuple[str, list[str]]) -> None:
        path, words = command
        world.settle()
        code, said = world.type("exitctl", [*path.split(), *words])
        assert code in CODES, f"{path} {shown(words)}: {code}: {said[-2000:]}"
        if code and said.startswith("Usage:"):
            assert code == (OWN_FAILURE if path.removeprefix("container ") in OF_A_CONTAINER else USAGE), (
                path,
                shown(words),
            )

    type_()
    assert world.client.version()


@st.composite
def flags(draw: st.DrawFn, directory: pathlib.Path) -> list[str]:
    return typed(draw, exitd, directory)


def test_whatever_is_typed_at_exitd_is_refused_in_words_beside_one_that_runs(world: World) -> None:
    """Its directories are held, and the last ones count: none begins, whatever the flags."""
    own = ["--root", str(world.daemon.root), "--state", str(world.daemon.state)]

    @some(3000)
    @given(flags(world.directory))
    def type_(words: list[str]) -> None:
        code, said = world.type("exitd", [*words, *own], AT_ONCE)
        assert code in (0, 1, USAGE), f"{shown(words)}: {code}: {said[-2000:]}"

    type_()
    assert world.client.version()


def test_what_is_not_typed_is_a_verb() -> None:
    known = {path for path, _ in verbs(exitctl)}
    assert NOT_TYPED.keys() | WITH.keys() | {*NO_NAMES, *TO_THE_END} <= known
