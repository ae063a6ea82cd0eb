"""One session with a container or an exec: attached, followed to its end or left, and its exit code."""

import os
import sys
from contextlib import ExitStack, suppress
from types import TracebackType
from typing import Self

import click

from protos.exitd.v1 import exitd_pb2 as pb
from shim.frozen import frozen
from supervisor.api.answers import AnswerStream, Waiting, status_of
from supervisor.api.attachment import Attachment
from supervisor.api.client import Client, Unreachable
from supervisor.cli import keys
from supervisor.cli.app import complain
from supervisor.cli.copying import copy_log, pour
from supervisor.cli.input import STDIN, Input
from supervisor.cli.proxy import SignalProxy
from supervisor.cli.shape import number_of
from supervisor.cli.signals import Signals
from supervisor.cli.spoken import SHORT_ID, size
from supervisor.cli.terminal import Raw, Resizes, size_of
from supervisor.model.errors import BadRequest, ExitdError, NoSuchContainer, ShuttingDown
from supervisor.model.status import Unknown

GONE = (Unreachable, ShuttingDown)
STDOUT = 1
OOM = "oom"  # the reason of an exit

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
    """The container or exec of the session."""

    id: str
    run: int
    exec_id: str = ""


@frozen
class Manner:
    """The options of the session."""

    tty: bool = False  # it has a terminal
    interactive: bool = False  # exitctl's input goes to it
    detach_keys: bytes = b""
    proxy: bool | None = None  # None: pass signals on, unless exitctl's terminal is its terminal
    closes_stdin: bool = True  # the end of exitctl's input closes its stdin
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


def terminal_of(manner: Manner) -> int:
    """Return the descriptor of the terminal whose size counts, if it is one."""
    return STDIN if manner.raw else STDOUT


class TerminalSession:
    """`with TerminalSession(...)` attaches and waits. Call `begin` once it runs, then `follow`, and after the block
    `code`.

    Until `begin` the terminal is unchanged: Ctrl-C ends a start that hangs. Messages wait for the end of the session.
    """

    def __init__(self, client: Client, target: SessionTarget, manner: Manner) -> None:
        self._client = client
        self._target = target
        self._manner = manner
        self._stack = ExitStack()
        self._waiting: Waiting | None = None
        self._log: AnswerStream | None = None
        self._attachment: Attachment | None = None
        self._signals = Signals()
        self._proxy: SignalProxy | None = None
        self._size: tuple[int, int] | None = None
        self._detached = False
        self._dropped = 0
        self._late: list[str] = []
        self._exit: pb.Exit | None = None

    def __enter__(self) -> Self:
        """Request wait and output before the start: with --rm, the container may be removed at the moment it ends."""
        target, manner = self._target, self._manner
        with ExitStack() as stack:
            self._waiting = self._client.begin_wait(target.id, run=target.run, exec_id=target.exec_id)
            stack.callback(self._waiting.cancel)
            if manner.by_log:
                self._log = self._client.logs(pb.LogsRequest(id=target.id, follow=True, run=target.run))
                stack.callback(self._log.cancel)
            stack.enter_context(self._signals)
            if not manner.raw if manner.proxy is None else manner.proxy:
                self._proxy = SignalProxy(self._signals, self._kill, self._let_go)
                stack.callback(self._proxy.end)
                self._proxy.begin()
            if manner.interactive or not manner.by_log:
                self._attachment = stack.enter_context(self._attach())
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()
        if self._detached:
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
        if manner.raw:
            self._stack.enter_context(Raw(STDIN, self._signals, self._let_go))
        if manner.tty:
            self._stack.enter_context(Resizes(terminal_of(manner), self._signals, self._resize, self._size))
        if manner.interactive and self._attachment is not None:
            closes = manner.closes_stdin and not manner.tty
            leave_by = manner.detach_keys if manner.raw else b""
            self._stack.enter_context(Input(self._attachment, detach_keys=leave_by, detach=self._detach, closes=closes))

    def follow(self) -> None:
        """Copy its output until its end, or until it is left. Raises Unreachable when its end cannot be learned."""
        try:
            self._copy()
        except GONE:
            pass  # the wait reports it, too
        except ExitdError as error:  # printed, but it does not hide the exit
            self._late.append(f"its output cannot be followed: {error}")
        if not self._detached:
            self._exit = self._end()

    def code(self) -> int:
        """Return 0 if it was left, otherwise its code; prints the cause if that is unknown, or if memory was."""
        exit_ = self._exit
        if exit_ is None and self._detached:
            return 0
        if exit_ is None or isinstance(status_of(exit_), Unknown):
            complain(f"how it ended is unknown: {(exit_ and exit_.cause) or 'no exit was recorded'}")
        if exit_ is not None and exit_.reason == OOM:
            limit = exit_.oom.limit_bytes
            complain(f"it was killed for memory{f': its limit was {size(limit)}' if limit else ''}")
        return number_of(exit_)

    @property
    def was_left(self) -> bool:
        """Return whether the detach keys were pressed: it goes on."""
        return self._detached

    @property
    def reason(self) -> str:
        """Return why it ended, as the daemon names it."""
        return self._exit.reason if self._exit is not None else ""

    def _attach(self) -> Attachment:
        manner = self._manner
        self._size = size_of(terminal_of(self._manner)) if manner.tty else None
        return self._client.attach(
            self._target.id,
            exec_id=self._target.exec_id,
            stdin=manner.interactive,
            stdout=not manner.by_log,
            stderr=not manner.by_log and not manner.tty,
            lossless=manner.lossless,
            size=self._size,
        )

    def _copy(self) -> None:
        if self._log is not None:
            copy_log(self._log)
            return
        for reply in self._attachment or ():
            match reply.WhichOneof("item"):
                case "stdout":
                    pour(sys.stdout.buffer, reply.stdout)
                case "stderr":
                    pour(sys.stderr.buffer, reply.stderr)
                case "dropped":
                    self._dropped = reply.dropped

    def _end(self) -> pb.Exit | None:
        """Return the exit of that run; from the ledger if the container was removed before the request arrived."""
        assert self._waiting is not None
        target = self._target
        try:
            return self._waiting.result()
        except NoSuchContainer:
            ledger = self._client.exits(pb.ExitsRequest(id=target.id))
            return next((e for e in ledger if e.run == target.run and e.exec_id == target.exec_id), None)
        except GONE as error:
            again = f"the container goes on; ask later: exitctl wait {target.id[:SHORT_ID]}"
            if target.exec_id:
                again = f"the exec goes on; ask later: exitctl exits --id {target.id[:SHORT_ID]}"
            raise Unreachable(f"the daemon went away, {again}") from error

    def _kill(self, signal: str) -> None:
        self._client.kill(self._target.id, signal, exec_id=self._target.exec_id)

    def _resize(self, rows: int, columns: int) -> None:
        with suppress(ExitdError):  # it has ended, or the daemon is gone: reading its output reports that
            self._client.resize(self._target.id, rows, columns, exec_id=self._target.exec_id)

    def _let_go(self) -> None:
        """Stop waiting for output. Callable from any thread."""
        for source in (self._log, self._attachment):
            if source is not None:
                source.cancel()

    def _detach(self) -> None:
        """Called in the input's thread."""
        again = f"exitctl attach {self._target.id[:SHORT_ID]}"
        what = "the exec goes on" if self._target.exec_id else f"the container goes on; again: {again}"
        self._late.append(f"detached, {what}")
        self._detached = True
        assert self._attachment is not None and self._waiting is not None
        self._attachment.leave()
        self._let_go()
        self._waiting.cancel()
