"""Runtime commands: their argv, and how one is run with limits on time and output. The C launcher precedes each, so
that a command does not outlive the daemon that started it."""

import asyncio
import json
import os
import re
import select
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import lru_cache

from shim import programs
from shim.frozen import frozen
from shim.patterns import LatePattern
from shim.undo import undone_on_failure
from supervisor.model.errors import RuntimeFailed, RuntimeMissing, TimedOut
from supervisor.system import room
from supervisor.system.aside import Aside

MOST_OUTPUT_BYTES = 64 << 10
MOST_ERROR_CHARACTERS = 2000
MOST_LOG_CHARACTERS = 4 * MOST_ERROR_CHARACTERS  # of a log's end: what is read as JSON may be made to cost time
BRACKETS = frozenset("{}[], ")
DEATH_SECONDS = 2.0  # after it, a SIGKILLed command is left to be reaped later
SEARCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# runc would act on them. The launcher, which drops them from a command's environment, has the same list.
NOT_PASSED_ON = frozenset({"NOTIFY_SOCKET", "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES"})


@frozen
class CommandResult:
    """The result of a command: its return code (negative: the signal), and the first 64 KiB of each output."""

    returncode: int
    stdout: str
    stderr: str


@frozen
class ExecFiles:
    """The files that an exec's command reads and writes. `process` is in the form of config.json's `process`."""

    process: str
    pid: str
    log: str


@frozen
class Runtime:
    """The argv of every command of one OCI runtime. Paths are absolute: crun changes its directory before it uses
    them."""

    path: str
    root: str  # where the runtime keeps its state
    options: tuple[str, ...] = ()  # global arguments, before the command
    systemd_cgroup: bool = False
    create_options: tuple[str, ...] = ()  # further arguments for its create

    def create(self, bundle: str, pid_file: str, container_id: str, log: str, *, console: str = "") -> list[str]:
        """`console`: the socket that receives the master of the container's terminal, if it has one."""
        more = [*self.create_options, *(["--console-socket", console] if console else [])]
        return [*self._to(log), "create", "--bundle", bundle, "--pid-file", pid_file, *more, container_id]

    def exec(self, container_id: str, files: "ExecFiles", *, console: str = "") -> list[str]:
        """Return the command that begins an exec and ends. `console`: as in `create`."""
        terminal = ["--console-socket", console] if console else []
        named = ["--process", files.process, "--pid-file", files.pid]
        return [*self._to(files.log), "exec", *named, "--detach", *terminal, container_id]

    def start(self, container_id: str) -> list[str]:
        return [*self._to(), "start", container_id]

    def state(self, container_id: str) -> list[str]:
        """Return the command that prints the state, in JSON, as runtime-spec has it (runtime.md, State)."""
        return [*self._to(), "state", container_id]

    def kill(self, container_id: str, signal_number: int, *, everyone: bool = False) -> list[str]:
        """Return the command that signals init; with `everyone` all processes."""
        return [*self._to(), "kill", *(["--all"] if everyone else []), container_id, str(signal_number)]

    def delete(self, container_id: str) -> list[str]:
        """Return the command that removes the container; one that lives is killed first."""
        return [*self._to(), "delete", "--force", container_id]

    def pause(self, container_id: str) -> list[str]:
        return [*self._to(), "pause", container_id]

    def resume(self, container_id: str) -> list[str]:
        return [*self._to(), "resume", container_id]

    def update(self, container_id: str, resources: str) -> list[str]:
        """`resources`: a file with linux.resources of runtime-spec."""
        return [*self._to(), "update", "--resources", resources, container_id]

    def _to(self, log: str = "") -> list[str]:
        logging = ["--log", log, "--log-format", "json"] if log else []
        systemd = ["--systemd-cgroup"] if self.systemd_cgroup else []
        return [self.path, *self.options, "--root", self.root, *logging, *systemd]


def resolve(name: str) -> str:
    """Return the absolute path of a runtime, from a path or a name on PATH. Raises RuntimeMissing, which names the next
    step."""
    if "/" in name:
        if os.path.isabs(name) and os.path.isfile(name) and os.access(name, os.X_OK):
            return name
        raise RuntimeMissing(f"runtime {name}: no executable file there (give an absolute path)", runtime=name)
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:{SEARCH_PATH}") if name else None
    if not found:
        raise RuntimeMissing(f"runtime {name!r} is not on PATH: install it, or give its absolute path", runtime=name)
    return os.path.abspath(found)


@lru_cache(maxsize=1)
def _launcher() -> str:
    """Return the path of exitd-launch, which precedes every command. Raises FileNotFoundError, which names the next
    step."""
    return str(programs.find("exitd-launch"))


async def state(runtime: Runtime, container_id: str, looks: Aside, *, timeout_seconds: float) -> str:
    """Return the runtime's status of a container: creating, created, running, paused, stopped; or `absent`.

    runc and crun exit with 1 both for a container that does not exist and for their own failures. The directory ROOT/ID
    decides, which they make first and remove last. While it has no state file, a create is in progress or was killed:
    `creating`. A caller may have named ROOT: it is looked at by a thread of `looks`. Raises RuntimeFailed, TimedOut,
    Busy.
    """
    result = await run(runtime.state(container_id), timeout_seconds=timeout_seconds)
    if result.returncode == 0:
        return parse_state(result.stdout)
    path = os.path.join(runtime.root, container_id)
    try:
        names = await looks.at(path, lambda: os.listdir(path), timeout_seconds)
    except FileNotFoundError:
        return "absent"
    if not {"state.json", "status"} & set(names):  # runc's name, crun's name
        return "creating"
    raise RuntimeFailed(f"{runtime.path} cannot report the state of {container_id}: {last_error(result.stderr)}")


def parse_state(stdout: str) -> str:
    """Return the status in runtime-spec's state document. Raises RuntimeFailed when it is not one."""
    try:
        status = json.loads(stdout)["status"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise RuntimeFailed(f"the runtime's state is not the document it should be: {stdout[:200]!r}") from error
    if not isinstance(status, str):
        raise RuntimeFailed(f"the runtime's state has no word as its status: {status!r}")
    return status


def last_error(log_text: str) -> str:
    """Return the part of a runtime's log or stderr that a person needs: the last error, else the last line. For display
    only."""
    last = ""
    for message, is_error in _messages(log_text[-MOST_LOG_CHARACTERS:]):
        if message and (is_error or not last):
            last = message
    return last[:MOST_ERROR_CHARACTERS]


_TEXT_LINE = LatePattern(r'level=(?P<level>\w+) msg=(?P<message>"(?:[^"\\]|\\.)*"|\S+)')


def _messages(text: str) -> Iterator[tuple[str, bool]]:
    """Yield each message and whether it is an error: of JSON objects, which have a line each or several (crun 1.28), of
    logfmt lines, and any other line that has more than brackets as it is."""
    decoder, at = json.JSONDecoder(), 0
    while at < len(text):
        if text[at].isspace():
            at += 1
            continue
        newline = text.find("\n", at)
        end = newline if newline >= 0 else len(text)
        if text[at] == "{":
            try:
                entry, at = decoder.raw_decode(text, at)
            except (ValueError, RecursionError):
                pass
            else:
                if "msg" in entry:
                    yield str(entry["msg"]), entry.get("level") in ("error", "fatal")
                continue
        line = text[at:end].strip()
        if not BRACKETS.issuperset(line):
            yield _message(line)
        at = end


def _message(line: str) -> tuple[str, bool]:
    """Return the message of a logfmt line or any other, and whether it is an error."""
    found = _TEXT_LINE.search(line)
    if not found:
        return line, True
    message = found["message"]
    if message.startswith('"'):
        message = re.sub(r"\\(.)", r"\1", message[1:-1])
    return message, found["level"] in ("error", "fatal")


@frozen
class CommandInput:
    """What a command gets beside its words. `stdin_fd` below 0: an empty input. `environment` is added to exitd's own.
    `kept_fds` stay open in it. `alone`: what it leaves in its process group is killed when it has ended."""

    stdin_fd: int = -1
    environment: tuple[tuple[str, str], ...] = ()
    kept_fds: tuple[int, ...] = ()
    alone: bool = False
    most_bytes: int = MOST_OUTPUT_BYTES


NO_INPUT = CommandInput()


async def run(
    argv: Sequence[str],
    *,
    timeout_seconds: float,
    cwd: str | None = None,
    grace_ms: int = 0,
    given: CommandInput = NO_INPUT,
) -> CommandResult:
    """Run a command to its end. If exitd ends meanwhile, the command is killed, `grace_ms` later.

    Raises TimedOut after `timeout_seconds`, OSError when it cannot be executed, Busy when there is no room for its
    pipes or its process; in the last two cases it did not begin.

    The end is that of the command itself: a container's init inherits the outputs and may hold them open forever. After
    the limit, or if the caller is cancelled, the command and its process group get SIGKILL. One with a grace
    period is left to its launcher when the caller is cancelled: exitd is being stopped then, as if it was killed.
    """
    await room.wait_for(room.FOR_COMMAND, f"a command of {argv[0]}")
    try:
        command = _Command(argv, cwd, grace_ms, given)
    except OSError as error:
        if room.is_used_up(error):  # pids.max, say, which cannot be looked at beforehand
            raise room.busy(f"a command of {argv[0]}", error.strerror) from error
        raise
    try:
        async with asyncio.timeout(timeout_seconds):
            await command.ended.wait()
    except TimeoutError:
        raise TimedOut(f"{' '.join(argv)} did not end in {timeout_seconds:g} s", command=argv[0]) from None
    except asyncio.CancelledError:
        if grace_ms:
            command.leave()
        raise
    finally:
        await command.finish()
    return command.result()


class _Command:
    """A running command. Belongs to the event loop's thread: PDEATHSIG fires when the spawning thread ends."""

    def __init__(self, argv: Sequence[str], cwd: str | None, grace_ms: int, given: CommandInput) -> None:
        self._given = given
        grace = ("--grace", str(grace_ms)) if grace_ms else ()
        self._process = subprocess.Popen(
            [_launcher(), str(os.getpid()), *grace, *argv],
            cwd=cwd,
            env={**os.environ, **dict(given.environment)} if given.environment else None,
            stdin=given.stdin_fd if given.stdin_fd >= 0 else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            pass_fds=given.kept_fds,
        )
        self.ended = asyncio.Event()
        self._is_left = False
        self._loop = asyncio.get_running_loop()
        self._pipes = [pipe for pipe in (self._process.stdout, self._process.stderr) if pipe is not None]
        self._outputs = {pipe.fileno(): bytearray() for pipe in self._pipes}
        with undone_on_failure(self._abandon):
            for output_fd in self._outputs:
                os.set_blocking(output_fd, False)
            self._pidfd = os.pidfd_open(self._process.pid)
            with undone_on_failure(lambda: os.close(self._pidfd)):
                self._watch()

    async def finish(self) -> None:
        """Kill what has not ended, reap it, close everything. A later Popen reaps a command that cannot be killed."""
        try:
            if self._is_left:
                return
            if not self.ended.is_set():
                self._kill()
                async with asyncio.timeout(DEATH_SECONDS):
                    await self.ended.wait()
            elif self._given.alone:
                self._kill()
        except TimeoutError:
            pass
        finally:
            self._process.poll()
            for output_fd in self._outputs:
                self._read(output_fd)  # a pipe's whole content; more would be from another writer
            self._unwatch()
            self._close()

    def leave(self) -> None:
        """Let it go on by itself: `finish` closes everything, and kills nothing."""
        self._is_left = True

    def result(self) -> CommandResult:
        stdout, stderr = (bytes(kept).decode(errors="replace") for kept in self._outputs.values())
        return CommandResult(self._process.returncode, stdout, stderr)

    def _kill(self) -> None:
        """The group's number is the leader's pid, which is not reaped yet, so neither can be another's."""
        os.killpg(self._process.pid, signal.SIGKILL)

    def _abandon(self) -> None:
        """The command cannot be watched: end it, and close its pipes now rather than when the error is forgotten."""
        self._kill()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(DEATH_SECONDS)
        self._close()

    def _watch(self) -> None:
        """One set for all three, nested in the event loop: it is cheaper to watch there than in the loop itself."""
        self._epoll = select.epoll(flags=select.EPOLL_CLOEXEC)
        with undone_on_failure(self._epoll.close):
            self._epoll.register(self._pidfd, select.EPOLLIN | select.EPOLLET)
            for output_fd in self._outputs:
                self._epoll.register(output_fd, select.EPOLLIN)
            self._loop.add_reader(self._epoll.fileno(), self._turn)

    def _turn(self) -> None:
        for fd, _ in self._epoll.poll(0):
            if fd == self._pidfd:
                self.ended.set()
            elif not self._read(fd):
                self._epoll.unregister(fd)

    def _unwatch(self) -> None:
        self._loop.remove_reader(self._epoll.fileno())
        self._epoll.close()
        os.close(self._pidfd)

    def _close(self) -> None:
        for pipe in self._pipes:
            pipe.close()

    def _read(self, output_fd: int) -> bool:
        """Read what is there, and keep its beginning. Return False at its end."""
        kept = self._outputs[output_fd]
        try:
            chunk = os.read(output_fd, self._given.most_bytes)
        except BlockingIOError:
            return True
        kept += chunk[: self._given.most_bytes - len(kept)]
        return bool(chunk)
