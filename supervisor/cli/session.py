"""One session with a container or an exec: attached, followed to its end or left, and its exit code."""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from types import TracebackType
from typing import Self

import click

from protos.exitd.v1 import exitd_pb2 as pb
from shim.frozen import frozen
from supervisor.api.answers import Waiting, status_of
from supervisor.api.attachment import Attachment
from supervisor.api.client import Client, Unreachable
from supervisor.cli import keys
from supervisor.cli.app import complain
from supervisor.cli.away import GONE, PATIENCE_SECONDS, await_return
from supervisor.cli.copying import copy_log, pour
from supervisor.cli.input import STDIN, Input
from supervisor.cli.logfollow import FollowedLog
from supervisor.cli.missed import MissedOutput, show_missed
from supervisor.cli.proxy import SignalProxy
from supervisor.cli.sending import Sender
from supervisor.cli.shape import number_of
from supervisor.cli.signals import JOIN_SECONDS, Signals
from supervisor.cli.spoken import SHORT_ID, size
from supervisor.cli.terminal import Raw, Resizes, size_of
from supervisor.model.errors import BadRequest, ExitdError, NoSuchContainer, WrongState
from supervisor.model.status import Unknown

STDOUT = 1
CRI, LEAKY = "cri", "non-blocking"
NEVER_ROTATED = 2  # the one file is always fewer
OOM = "oom"  # the reason of an exit
LEFT_BY_SIGNAL = 130  # 128 + SIGINT
QUEUED_BYTES = 64 * 1024  # of input that waits to be sent
TYPED_BYTES = 16 << 20  # of what was typed, so that the detach keys behind it are found

detach_keys = click.option(
    "--detach-keys", metavar="KEYS", default=keys.DEFAULT,
    help=f"Keys that detach from its terminal and leave it running; default {keys.DEFAULT}, '' for none.",
)  # fmt: skip
sig_proxy = click.option(
    "--sig-proxy/--no-sig-proxy", default=None,
    help="Pass signals on to it; default: yes, unless its terminal is this one.",
)  # fmt: skip


@frozen
class SessionTarget:
    """The container or exec of the session. `log_files`: at most so many has its log, from which every byte of its
    output can be taken; 0: there is no such log."""

    id: str
    run: int
    exec_id: str = ""
    log_files: int = 0


@frozen
class Manner:
    """The options of the session."""

    tty: bool = False  # it has a terminal
    interactive: bool = False  # exitctl's input goes to it
    detach_keys: bytes = b""
    proxy: bool | None = None  # None: pass signals on, unless exitctl's terminal is its terminal
    closes_stdin: bool = True  # the end of exitctl's input closes its stdin
    patience: float = PATIENCE_SECONDS  # that exitd may be away
    by_log: bool = False  # output comes from the log: complete from the beginning, and it never waits for exitctl
    lossless: bool = True  # it waits for exitctl if that is slow; otherwise output is dropped

    @property
    def raw(self) -> bool:
        return self.tty and self.interactive

    def check(self, otherwise: str) -> None:
        """Raise BadRequest, with `otherwise` as the way out, if a terminal is missing. Call it before anything is
        made."""
        if self.raw and not os.isatty(STDIN):
            raise BadRequest(f"the input is not a terminal; {otherwise}")


def log_files(spec: pb.LogSpec) -> int:
    """Return how many files the log of a container may have, if every byte of its output can be taken from it; else 0:
    JSON does not hold every byte, a log that does not hold up its container may miss some, and a file that the caller
    names may have more in it."""
    if spec.driver != CRI or spec.path or spec.mode == LEAKY:
        return 0
    return spec.max_files if spec.max_bytes else NEVER_ROTATED


def terminal_of(manner: Manner) -> int:
    """Return the descriptor of the terminal whose size counts, if it is one."""
    return STDIN if manner.raw else STDOUT


class TerminalSession:
    """`with TerminalSession(...)` attaches and waits. Call `begin` once it runs, then `follow`, and after the block
    `code`.

    Until `begin` the terminal is unchanged: Ctrl-C ends a start that hangs. Messages wait for the end of the session.
    When exitd goes away, the session goes on where it was once it is back.
    """

    def __init__(self, client: Client, target: SessionTarget, manner: Manner) -> None:
        self._client = client
        self._target = target
        self._manner = manner
        self._stack = ExitStack()
        self._waiting: Waiting | None = None
        self._log: FollowedLog | None = None
        self._attachment: Attachment | None = None
        self._sender: Sender | None = None
        self._signals = Signals()
        self._proxy: SignalProxy | None = None
        self._size: tuple[int, int] | None = None
        self._left_with: int | None = None  # the code, once it was left
        self._over = False  # nothing more is waited for
        self._dropped = 0
        self._missed = MissedOutput()
        self._late: list[str] = []
        self._exit: pb.Exit | None = None

    def __enter__(self) -> Self:
        """Request wait and output before the start: with --rm, the container may be removed at the moment it ends."""
        target, manner = self._target, self._manner
        with ExitStack() as stack:
            self._waiting = self._wait()
            stack.callback(self._end_calls)
            if manner.by_log:
                request = pb.LogsRequest(id=target.id, follow=True, run=target.run)
                self._log = FollowedLog(self._client, request, manner.patience, self._say)
            stack.enter_context(self._signals)
            if not manner.raw if manner.proxy is None else manner.proxy:
                self._proxy = SignalProxy(self._signals, self._kill, self._let_go, self._leave_by_signal)
                stack.callback(self._proxy.end)
                self._proxy.begin()
            if manner.interactive:
                most_bytes = TYPED_BYTES if manner.raw else QUEUED_BYTES
                self._sender = Sender(most_bytes, closes=manner.closes_stdin and not manner.tty)
            if manner.interactive or not manner.by_log:
                self._attach()
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over = True
        self._stack.close()
        if self._left_with is not None:
            print(file=sys.stderr)  # the cursor is behind the last output
        for text in self._late:
            complain(text)
        if self._dropped:
            complain(f"{self._dropped} bytes of its output were dropped: they came faster than they were read here")

    def begin(self) -> None:
        """Call it when it runs."""
        manner = self._manner
        if self._proxy is not None:
            self._proxy.started()
        elif manner.proxy is False and not manner.raw:
            self._stack.enter_context(self._signals.calling((signal.SIGINT,), lambda _: self._leave_by_signal()))
        if manner.raw:
            self._stack.enter_context(Raw(STDIN, self._signals, self._let_go))
        if manner.tty:
            self._stack.enter_context(Resizes(terminal_of(manner), self._signals, self._resize, self._size))
        if self._sender is not None:
            leave_by = manner.detach_keys if manner.raw else b""
            self._stack.enter_context(Input(self._sender, detach_keys=leave_by, detach=self._detach))
            self._stack.callback(self._end_calls)  # so that a container that does not read blocks nothing
        if manner.interactive and manner.by_log:
            minding = threading.Thread(target=self._mind_input, name="minder", daemon=True)
            self._stack.callback(minding.join, JOIN_SECONDS)
            self._stack.callback(self._end_calls)
            minding.start()

    def follow(self) -> None:
        """Copy its output until its end, or until it is left. Raises Unreachable when its end cannot be learned."""
        try:
            self._copy()
        except GONE:
            pass  # the wait reports it, too
        except ExitdError as error:  # printed, but it does not hide the exit
            self._late.append(f"its output cannot be followed: {error}")
        if self._left_with is None:
            self._exit = self._end()

    def code(self) -> int:
        """Return its code, or that of being left: 0 by the detach keys, 130 by signals. Prints the cause if the code is
        unknown, or if memory was."""
        exit_ = self._exit
        if exit_ is None and self._left_with is not None:
            return self._left_with
        if exit_ is None or isinstance(status_of(exit_), Unknown):
            complain(f"how it ended is unknown: {(exit_ and exit_.cause) or 'no exit was recorded'}")
        if exit_ is not None and exit_.reason == OOM:
            limit = exit_.oom.limit_bytes
            complain(f"it was killed for memory{f': its limit was {size(limit)}' if limit else ''}")
        return number_of(exit_)

    @property
    def was_left(self) -> bool:
        """Return whether it goes on: the detach keys were pressed, or signals had no effect."""
        return self._left_with is not None

    @property
    def reason(self) -> str:
        """Return why it ended, as the daemon names it."""
        return self._exit.reason if self._exit is not None else ""

    # -- calls to exitd

    def _wait(self) -> Waiting:
        return self._client.begin_wait(self._target.id, run=self._target.run, exec_id=self._target.exec_id)

    def _attach(self) -> None:
        """Attach, again or for the first time. Raises ExitdError."""
        manner = self._manner
        self._size = size_of(terminal_of(self._manner)) if manner.tty else None
        attachment = self._client.attach(
            self._target.id,
            exec_id=self._target.exec_id,
            stdin=manner.interactive,
            stdout=not manner.by_log,
            stderr=not manner.by_log and not manner.tty,
            lossless=manner.lossless,
            counted=True,
            size=self._size,
        )
        self._attachment = attachment
        if self._over:
            attachment.cancel()
        if self._sender is not None and not self._sender.attach(attachment):
            self._late.append("what was typed while exitd went away may not have come to it")

    def _return(self, error: ExitdError, say: Callable[[str], None]) -> None:
        await_return(self._client, self._manner.patience, error, say=say, over=lambda: self._over)

    def _say(self, text: str) -> None:
        """A raw terminal is the container's: what exitctl has to say waits for the end."""
        if not self._manner.raw:
            complain(text)
        elif text not in self._late:
            self._late.append(text)

    def _end_calls(self) -> None:
        """End every call to exitd. Repeatable, and callable from any thread."""
        self._over = True
        for source in (self._log, self._attachment, self._waiting):
            if source is not None:
                source.cancel()

    # -- its output

    def _copy(self) -> None:
        if self._log is not None:
            copy_log(self._log)
            return
        for reply in self._replies(self._say):
            match reply.WhichOneof("item"):
                case "stdout":
                    self._missed.count(reply)
                    pour(sys.stdout.buffer, reply.stdout)
                case "stderr":
                    self._missed.count(reply)
                    pour(sys.stderr.buffer, reply.stderr)
                case "dropped":
                    self._missed.lose_count()
                    self._dropped = reply.dropped

    def _mind_input(self) -> None:
        """In a thread: the replies of an attachment that only carries input."""
        with suppress(ExitdError):  # the follower of the log reports it
            for _ in self._replies(lambda _: None):
                pass

    def _replies(self, say: Callable[[str], None]) -> Iterator[pb.AttachReply]:
        """Yield the replies of one attachment after the other. Raises ExitdError."""
        assert self._attachment is not None
        self._missed.begin(self._attachment.started)
        while True:
            try:
                for reply in self._attachment:
                    if self._sender is not None and reply.stdin_taken:
                        self._sender.taken(reply.stdin_taken)
                    yield reply
                return
            except GONE as error:
                if self._over or not self._attached_again(error, say):
                    return

    def _attached_again(self, error: ExitdError, say: Callable[[str], None]) -> bool:
        """Attach again once exitd is back, and show what came meanwhile. Return False if it has ended by then. Raises
        `error` once exitd was away for too long; ExitdError."""
        while True:
            self._return(error, say)
            try:
                self._attach()
                break
            except GONE as again:
                error = again
            except (WrongState, NoSuchContainer):
                self._show_missed(None)
                return False
        assert self._attachment is not None
        self._show_missed(self._attachment.started)
        return True

    def _show_missed(self, now: pb.AttachStarted | None) -> None:
        if self._manner.by_log:
            return
        target = self._target
        words = show_missed(self._client, (target.id, target.run, target.log_files), self._missed, now)
        if words:
            self._say(words)

    # -- its end

    def _end(self) -> pb.Exit | None:
        """Return the exit of that run; from the ledger if the container was removed before the request arrived."""
        target = self._target
        while True:
            assert self._waiting is not None
            try:
                return self._waiting.result()
            except NoSuchContainer:
                ledger = self._client.exits(pb.ExitsRequest(id=target.id))
                return next((e for e in ledger if e.run == target.run and e.exec_id == target.exec_id), None)
            except GONE as error:
                try:
                    self._return(error, self._say)
                    self._waiting = self._wait()
                except GONE:
                    if self._left_with is not None:
                        return None
                    again = f"the container goes on; ask later: exitctl wait {target.id[:SHORT_ID]}"
                    if target.exec_id:
                        again = f"the exec goes on; ask later: exitctl exits --id {target.id[:SHORT_ID]}"
                    raise Unreachable(f"the daemon went away, {again}") from error

    # -- what comes in between, in other threads

    def _kill(self, signal_: str) -> None:
        """Send it, once exitd is back if it is away. Raises ExitdError."""
        while True:
            try:
                return self._client.kill(self._target.id, signal_, exec_id=self._target.exec_id)
            except GONE as error:
                self._return(error, lambda _: None)

    def _resize(self, rows: int, columns: int) -> None:
        with suppress(ExitdError):  # it has ended, or the daemon is gone: reading its output reports that
            self._client.resize(self._target.id, rows, columns, exec_id=self._target.exec_id)

    def _let_go(self) -> None:
        """Stop waiting for output. Callable from any thread."""
        self._over = True
        for source in (self._log, self._attachment):
            if source is not None:
                source.cancel()

    def _detach(self) -> None:
        """Called in the input's thread."""
        self._leave(0, "detached")
        assert self._attachment is not None
        self._attachment.leave()
        self._end_calls()

    def _leave_by_signal(self) -> None:
        """Called in the signals' thread."""
        self._leave(LEFT_BY_SIGNAL, "left by ctrl-c")
        self._end_calls()

    def _leave(self, code: int, how: str) -> None:
        again = f"exitctl attach {self._target.id[:SHORT_ID]}"
        what = "the exec goes on" if self._target.exec_id else f"the container goes on; again: {again}"
        self._late.append(f"{how}, {what}")
        self._left_with = code
