"""Commands that follow, while exitd is killed and started again."""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.system.daemons import Daemon, daemon
from tests.system.exitctl import Cli
from tests.system.waits import LIMIT_SECONDS, until


def waiters(made: Daemon) -> int:
    with made.client() as client:
        return int(client.info().settings["waiters"])


AWAY = "exitctl: exitd is away; waiting for it ...\n"


def followed(cli: Cli, out: pathlib.Path, err: pathlib.Path, *words: str) -> int:
    """The pid of `exitctl events`, whose output goes to files."""
    return begun(cli, out, err, "events", "--from-seq", "1", "--format", "jsonl", *words)


def begun(cli: Cli, out: pathlib.Path, err: pathlib.Path, *words: str) -> int:
    program = (*cli.program, *words)
    flags = os.O_WRONLY | os.O_CREAT
    return os.posix_spawnp(
        cli.program[0],
        program,
        cli.environment,
        file_actions=[(os.POSIX_SPAWN_OPEN, 1, out, flags, 0o600), (os.POSIX_SPAWN_OPEN, 2, err, flags, 0o600)],
    )


def test_events_go_on_after_a_restart_of_exitd_and_none_is_missed_or_comes_twice(tmp_path: pathlib.Path) -> None:
    out, err = tmp_path / "out", tmp_path / "err"
    with daemon() as made:
        cli = Cli(made)
        cli.run("true")
        pid = followed(cli, out, err)
        try:
            until(lambda: out.exists() and '"exit"' in out.read_text(), "the first exit")
            made.kill()
            until(lambda: err.read_text() == AWAY, "the command has noticed it")
            made.start()
            cli.run("true")
            until(lambda: out.read_text().count('"exit"') == 2, "the second exit")
        finally:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    shown = [json.loads(line)["Seq"] for line in out.read_text().splitlines()]
    assert shown == list(range(1, len(shown) + 1))
    assert err.read_text() == AWAY


def test_events_end_with_125_and_the_next_number_once_exitd_was_away_for_too_long(tmp_path: pathlib.Path) -> None:
    out, err = tmp_path / "out", tmp_path / "err"
    with daemon() as made:
        cli = Cli(made)
        cli.run("true")
        pid = followed(cli, out, err, "--reconnect-seconds", "0.2")
        until(lambda: out.exists() and '"exit"' in out.read_text(), "the first exit")
        made.kill()
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 125
        made.start()
    assert err.read_text().startswith(AWAY + "exitctl: the daemon went away; continue with: exitctl events --from-seq ")


@pytest.mark.parametrize("then", ["it ends meanwhile", "it is restarted and removed", "it ends later"])
def test_a_wait_goes_on_for_the_same_run_over_a_restart_of_exitd(tmp_path: pathlib.Path, then: str) -> None:
    out, err, go = tmp_path / "out", tmp_path / "err", tmp_path / "go"
    with daemon() as made:
        cli = Cli(made)
        script = "[ -e /mnt/go ] && exit 8; while [ ! -e /mnt/go ]; do sleep 0.01; done; exit 7"
        cli.ok("run", "-d", "--name", "web", "-v", f"{tmp_path}:/mnt", "--rootfs", "/", "sh", "-c", script)
        pid = begun(cli, out, err, "wait", "web")
        until(lambda: waiters(made) == 1, "the wait has begun")
        made.kill()
        until(lambda: err.read_text() == AWAY, "the command has noticed it")
        if then != "it ends later":
            go.touch()
        made.start()
        if then == "it is restarted and removed":
            assert cli.ok("wait", "web") == "7"
            cli.ok("start", "web")
            assert cli.ok("wait", "web") == "8"
            cli.ok("rm", "web")
        go.touch()
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert (out.read_text(), err.read_text()) == ("7\n", AWAY)


def test_a_wait_ends_with_125_once_exitd_was_away_for_too_long(tmp_path: pathlib.Path) -> None:
    out, err = tmp_path / "out", tmp_path / "err"
    with daemon() as made:
        cli = Cli(made)
        cli.background("web", "sleep", "100")
        pid = begun(cli, out, err, "wait", "--reconnect-seconds", "0.2", "web")
        until(lambda: waiters(made) == 1, "the wait has begun")
        made.kill()
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 125
        made.start()
    assert err.read_text().startswith(AWAY)
    assert out.read_text() == ""


@dataclass
class Command:
    """One of exitctl's, whose output goes to files."""

    process: "subprocess.Popen[bytes]"
    out: pathlib.Path
    err: pathlib.Path

    def ended(self) -> tuple[int, str, str]:
        code = self.process.wait(LIMIT_SECONDS)
        return code, self.out.read_bytes().decode(), self.err.read_bytes().decode()

    def has_shown(self, text: str) -> None:
        until(lambda: text in self.out.read_text(), f"{text!r} is not in {self.out.name}")

    def has_noticed(self) -> None:
        """That exitd is away."""
        until(lambda: self.err.read_text() == AWAY, f"{self.err.name} does not say that exitd is away")


@contextlib.contextmanager
def command(cli: Cli, directory: pathlib.Path, *words: str, typed: bool = False) -> Iterator[Command]:
    name = f"{words[0]}-{len(list(directory.iterdir()))}"
    out, err = directory / f"{name}.out", directory / f"{name}.err"
    with out.open("wb") as to, err.open("wb") as wrong:
        stdin = subprocess.PIPE if typed else subprocess.DEVNULL
        process = subprocess.Popen([*cli.program, *words], env=cli.environment, stdin=stdin, stdout=to, stderr=wrong)
    try:
        yield Command(process, out, err)
    finally:
        process.kill()
        process.wait(LIMIT_SECONDS)
        if process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()


AT = "until_there() { while [ ! -e /mnt/$1 ]; do sleep 0.02; done; }; "
MANY = "i=0; while [ $i -lt 5000 ]; do echo line $i; i=$((i+1)); done; printf last"
LINES = "".join(f"line {number}\n" for number in range(5000)) + "last"


def test_every_command_that_follows_shows_each_byte_once_and_the_true_code_although_exitd_is_killed(
    tmp_path: pathlib.Path,
) -> None:
    """What each has shown before exitd is killed, what came while it was away, and what came after."""
    shared, files = tmp_path / "mnt", tmp_path / "files"
    shared.mkdir()
    files.mkdir()
    data = os.urandom(1 << 20)
    patient = ("--reconnect-seconds", str(LIMIT_SECONDS))
    volume = ("-v", f"{shared}:/mnt", "--rootfs", "/")
    three = "while [ ! -e /mnt/go ]; do printf .; sleep 0.02; done; echo one; until_there away; echo two; "
    three = f"{AT} {three} echo wrong >&2; until_there back; echo three"
    with daemon() as made, contextlib.ExitStack() as stack:
        cli = Cli(made)

        def begin(*words: str, typed: bool = False) -> Command:
            return stack.enter_context(command(cli, files, *words, typed=typed))

        for name in ("followed", "attached"):
            cli.ok("run", "-d", "--name", name, *volume, "sh", "-c", f"{three}; exit 9")
        cli.ok("run", "-d", "--name", "host", *volume, "sleep", "1000")
        removed = begin("run", "--rm", *volume, "sh", "-c", f"{AT} echo one; until_there away; {MANY}; exit 7")
        terminal = begin("run", "-t", *patient, *volume, "sh", "-c", f"{AT} echo one; until_there away; {MANY}; exit 8")
        piped = begin("run", "-i", *volume, "sh", "-c", "echo one; sha256sum", typed=True)
        attached, logs = begin("attach", *patient, "attached"), begin("logs", *patient, "-ft", "followed")
        script = f"{AT} echo one; until_there away; echo two; until_there back; exit 6"
        exec_ = begin("exec", *patient, "host", "sh", "-c", script)
        for each in (removed, terminal, piped, exec_):
            each.has_shown("one")
        attached.has_shown(".")
        (shared / "go").touch()
        for each in (attached, logs):
            each.has_shown("one")
        assert piped.process.stdin is not None
        piped.process.stdin.write(data[: len(data) // 2])
        made.kill()
        for each in (removed, terminal, piped, attached, logs, exec_):
            each.has_noticed()
        (shared / "away").touch()
        until(lambda: _written(made, "last") == 2, "they do not end")
        made.start()
        piped.process.stdin.write(data[len(data) // 2 :])
        piped.process.stdin.close()
        assert removed.ended() == (7, f"one\n{LINES}", AWAY)
        assert terminal.ended() == (8, f"one\n{LINES}".replace("\n", "\r\n"), AWAY)
        summed = subprocess.run(["sha256sum"], input=data, capture_output=True, check=True).stdout.decode()
        assert piped.ended() == (0, f"one\n{summed}", AWAY)
        attached.has_shown("two")
        (shared / "back").touch()
        code, out, err = attached.ended()
        assert (code, out.lstrip("."), err) == (9, "one\ntwo\nthree\n", f"{AWAY}wrong\n")
        code, out, err = logs.ended()
        lines = [line.split(" ", 1)[1].lstrip(".") for line in out.splitlines()]
        assert (code, lines) == (0, ["one", "two", "three"])
        assert (err.removeprefix(AWAY).split(" ", 1)[1], err.count("\n")) == ("wrong\n", 2)
        missed = "exitctl: 4 bytes that it wrote while exitd was away were not shown\n"
        assert exec_.ended() == (6, "one\n", f"{AWAY}{missed}")
        assert [row["Status"] for row in map(json.loads, _rows(cli)) if row["Names"] == "host"]
        assert len(_rows(cli)) == 5  # all but the one that was to be removed


def _rows(cli: Cli) -> list[str]:
    return cli.ok("ps", "-a", "--format", "jsonl").splitlines()


def _written(made: Daemon, last: str) -> int:
    """How many logs end so."""
    return sum(path.read_text().endswith(f" P {last}\n") for path in made.root.glob("c/*/container.log"))


def test_the_third_ctrl_c_leaves_with_130_and_a_hint_also_while_exitd_is_away(tmp_path: pathlib.Path) -> None:
    with daemon() as made, contextlib.ExitStack() as stack:
        cli = Cli(made)
        deaf = ("sh", "-c", "trap '' INT; echo one; while :; do sleep 0.1; done")
        commands = [
            stack.enter_context(command(cli, tmp_path, "run", *words, "--rootfs", "/", *deaf))
            for words in ((), ("--sig-proxy=false",))
        ]
        for each in commands:
            each.has_shown("one")
        made.kill()
        for each, presses in zip(commands, (3, 1), strict=True):
            each.has_noticed()
            for _ in range(presses):
                each.process.send_signal(signal.SIGINT)
                until(lambda each=each: not _pending(each.process.pid), "the signal does not come")  # type: ignore[misc]
        for each in commands:
            code, _, err = each.ended()
            assert (code, err.count("left by ctrl-c, the container goes on; again: exitctl attach ")) == (130, 1)
        made.start()
        assert len(_rows(cli)) == 2


def _pending(pid: int) -> bool:
    """Whether a signal has not been taken yet: two of a kind are one until then."""
    try:
        status = pathlib.Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False
    return any(line.startswith("ShdPnd:") and int(line.split()[1], 16) for line in status.splitlines())
