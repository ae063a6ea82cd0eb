"""Runs a shim v2 binary: `-v`, `start`, `delete`, each to its end and within a limit."""

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence

import structlog

from shim import programs
from shim.frozen import frozen
from shim.undo import undone_on_failure
from supervisor.model.errors import BadRequest, RuntimeMissing, ShimFailed, TimedOut
from supervisor.runtime.foreign_shim.binary import (
    Address,
    Deleted,
    Era,
    Shim,
    delete_words,
    environment,
    era_of,
    read_delete_output,
    read_start_output,
    shown,
    start_input,
    start_words,
)
from supervisor.system.aside import Aside

START_SECONDS = 30.0
DELETE_SECONDS = 15.0  # on a machine that does much else: what it is killed over stays, in the runtime's own state
ERA_SECONDS = 10.0
HELD_SECONDS = 5.0  # for a pipe that a program which ended well has left open in a child
DEATH_SECONDS = 2.0  # after it, a SIGKILLed process is left to be reaped later
MOST_OUTPUT_BYTES = 64 << 10

log = structlog.get_logger(__name__)
_eras: dict[tuple[str, int, int], Era] = {}  # by path, time of last change and size


@frozen
class Said:
    """How a run has ended (negative: by that signal), the first 64 KiB of stdout, and the last of stderr."""

    code: int
    out: bytes
    err: bytes = b""


async def start(shim: Shim, bundle: str, options: bytes, looks: Aside, *, seconds: float = START_SECONDS) -> Address:
    """Return the address of a shim, a new one or that of its group. `options`: a serialized Any. `looks`: threads that
    look at the binary, whose path a caller may have named.

    Raises ShimFailed with the shim's own message, RuntimeMissing, TimedOut, BadRequest.
    """
    _check(shim, bundle)
    async with _limit(seconds, f"{shim.binary} start"):
        era = await era_at(shim, looks)
        said = await _start(shim, bundle, start_input(shim, era, options))
        if said.code != 0 and era is Era.UNKNOWN:
            again = await _start(shim, bundle, start_input(shim, Era.BOOTSTRAP, options))
            said = again if again.code == 0 else said
    if said.code != 0:
        raise ShimFailed(f"{shim.binary} start of {shim.id} has failed ({_ended(said)}): {shown(said.out)}")
    return read_start_output(said.out)


async def delete(shim: Shim, bundle: str, *, seconds: float = DELETE_SECONDS) -> Deleted | None:
    """Remove what is left of the task. Return the end that the shim reports; None if it reports none, which is logged.

    Raises ShimFailed when it has failed, so that something may be left; RuntimeMissing, TimedOut, BadRequest.
    """
    _check(shim, bundle)
    words, variables = delete_words(shim, bundle), environment(shim, os.environ)
    async with _limit(seconds, f"{shim.binary} delete"):
        said = await _run(_Program(words, variables, bundle, apart=True))
    if said.code != 0:
        output = shown(said.err) or shown(said.out)
        raise ShimFailed(f"{shim.binary} delete of {shim.id} has failed ({_ended(said)}): {output}")
    deleted = read_delete_output(said.out)
    if deleted is None:
        output = shown(said.err) or shown(said.out)
        log.warning("a shim's delete reports no end", id=shim.id, binary=shim.binary, how=_ended(said), output=output)
    elif said.err:
        log.debug("a shim's delete has said more", id=shim.id, binary=shim.binary, output=shown(said.err))
    return deleted


async def era_at(shim: Shim, looks: Aside) -> Era:
    """Return what `start` expects, by `-v`, asked once for each state of the file. Raises RuntimeMissing, TimedOut,
    Busy."""
    try:
        found = await looks.at(shim.binary, lambda: os.stat(shim.binary))
    except OSError as error:
        raise RuntimeMissing(f"{shim.binary}: {error.strerror}; is the runtime still installed?") from error
    key = (shim.binary, found.st_mtime_ns, found.st_size)
    if key not in _eras:
        try:
            async with asyncio.timeout(ERA_SECONDS):
                said = await _run(_Program([shim.binary, "-v"], environment(shim, os.environ), "/"))
            _eras[key] = era_of(said.out.decode(errors="replace")) if said.code == 0 else Era.UNKNOWN
        except TimeoutError:
            log.warning("a shim does not report its version", binary=shim.binary, seconds=ERA_SECONDS)
            _eras[key] = Era.UNKNOWN
    return _eras[key]


def _check(shim: Shim, bundle: str) -> None:
    """Some shims look for their files beside the bundle, under the id."""
    if not os.path.isabs(bundle) or os.path.basename(bundle) != shim.id:
        raise BadRequest(f"the bundle {bundle} of {shim.id} must be an absolute path that ends in the id")


@contextlib.asynccontextmanager
async def _limit(seconds: float, what: str) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise TimedOut(f"{what} did not end in {seconds:g} s, and was killed") from None


async def _start(shim: Shim, bundle: str, stdin: bytes) -> Said:
    return await _run(_Program(start_words(shim), environment(shim, os.environ), bundle, stdin))


async def _run(program: "_Program") -> Said:
    """Run it until it and its output have ended. It is killed if the caller is cancelled."""
    try:
        await program.ended.wait()
        if program.code() == 0:
            # A shim that starts another one may let that one report here that it is ready.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(HELD_SECONDS):
                    await program.silent.wait()
    finally:
        await program.finish()
    return program.said()


class _Program:
    """One program in its own process group. stdout and stderr are one pipe, as containerd has it for a start, or
    `apart`. Belongs to the event loop's thread: when exitd dies, the program is killed with it."""

    def __init__(
        self, words: Sequence[str], variables: Mapping[str, str], cwd: str, stdin: bytes = b"", *, apart: bool = False
    ) -> None:
        try:
            with _input(stdin) as given:
                self._process = subprocess.Popen(
                    [programs.find("exitd-launch"), str(os.getpid()), *words],
                    cwd=cwd,
                    env=variables,
                    stdin=given,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE if apart else subprocess.STDOUT,
                    process_group=0,
                )
        except OSError as error:
            raise ShimFailed(f"cannot run {words[0]} in {cwd}: {error.strerror or error}") from error
        self.ended, self.silent = asyncio.Event(), asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._pipes = [pipe for pipe in (self._process.stdout, self._process.stderr) if pipe is not None]
        self._kept = {pipe.fileno(): bytearray() for pipe in self._pipes}
        self._open = set(self._kept)
        with undone_on_failure(self._end):
            self._pidfd = os.pidfd_open(self._process.pid)
        with undone_on_failure(self._abandon):
            self._loop.add_reader(self._pidfd, self.ended.set)
            for output_fd in self._kept:
                os.set_blocking(output_fd, False)
                self._loop.add_reader(output_fd, self._read, output_fd)

    def code(self) -> int | None:
        return self._process.poll()

    def said(self) -> Said:
        return Said(self._process.returncode, *map(bytes, self._kept.values()))

    async def finish(self) -> None:
        """Kill what has not ended, reap it, close everything. A later Popen reaps a program that cannot be killed."""
        try:
            if self.code() is None:
                # The group's number is the leader's pid, which is not reaped yet, so neither can be another's.
                os.killpg(self._process.pid, signal.SIGKILL)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(DEATH_SECONDS):
                        await self.ended.wait()
        finally:
            self.code()
            self._close()

    def _read(self, output_fd: int) -> None:
        """Read what is there, and keep the first MOST_OUTPUT_BYTES of it; of a separate stderr the last ones."""
        kept = self._kept[output_fd]
        try:
            chunk = os.read(output_fd, MOST_OUTPUT_BYTES)
        except BlockingIOError:
            return
        if not chunk:
            self._loop.remove_reader(output_fd)
            self._open.discard(output_fd)
            if not self._open:
                self.silent.set()
        if self._process.stderr is not None and output_fd == self._process.stderr.fileno():
            kept += chunk
            del kept[:-MOST_OUTPUT_BYTES]
        else:
            kept += chunk[: MOST_OUTPUT_BYTES - len(kept)]

    def _close(self) -> None:
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        for output_fd in tuple(self._open):
            self._read(output_fd)  # a pipe's whole content; more would be from another writer
            self._loop.remove_reader(output_fd)
        self._close_pipes()

    def _abandon(self) -> None:
        """End a program that cannot be watched, which has just begun."""
        self._kill()
        self._close()

    def _end(self) -> None:
        """The same for one without a pidfd."""
        self._kill()
        self._close_pipes()

    def _kill(self) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(DEATH_SECONDS)

    def _close_pipes(self) -> None:
        for pipe in self._pipes:
            pipe.close()


@contextlib.contextmanager
def _input(data: bytes) -> Iterator[int]:
    """Yield a descriptor with `data` in a file, to which no writer is needed."""
    input_fd = os.memfd_create("stdin") if data else os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if data:
            os.write(input_fd, data)
            os.lseek(input_fd, 0, os.SEEK_SET)
        yield input_fd
    finally:
        os.close(input_fd)


def _ended(said: Said) -> str:
    return f"signal {-said.code}" if said.code < 0 else f"exit code {said.code}"
