"""A task as containerd sees it: its states, what may be asked in each, error codes, and replies. Pure."""

from collections.abc import Iterable, Mapping
from enum import StrEnum

from google.protobuf.any_pb2 import Any
from google.protobuf.timestamp_pb2 import Timestamp

from protos.containerd import process_pb2 as process
from protos.containerd import runc_pb2 as runc
from protos.containerd import task_pb2 as pb
from shim.frozen import frozen
from supervisor.model.errors import Code, ExitdError, WrongState, code_of
from supervisor.model.execs import Exec, ExecPhase
from supervisor.model.taskfacts import Stdio, TaskExec, Tombstone
from supervisor.model.values import UNKNOWN_NUMBER, Container, Exit, Phase, Unknown, fold
from supervisor.system import room
from supervisor.ttrpc.faults import CallFailed

REBOOTED = Unknown("host-rebooted")

CREATED, RUNNING, STOPPED, PAUSED = process.CREATED, process.RUNNING, process.STOPPED, process.PAUSED
# "created" until Start has returned. A container that is being removed counts as stopped.
STATUS = {
    Phase.CREATED: CREATED,
    Phase.STARTING: CREATED,
    Phase.RUNNING: RUNNING,
    Phase.PAUSED: PAUSED,
    Phase.EXITED: STOPPED,
    Phase.RESTARTING: STOPPED,
    Phase.REMOVING: STOPPED,
}


class Op(StrEnum):
    """Requests that depend on the state. All others are allowed in any state."""

    START = "start"
    DELETE = "delete"
    KILL = "kill"
    PAUSE = "pause"
    RESUME = "resume"
    EXEC = "exec"
    UPDATE = "update"


NOT_FOUND, WRONG = Code.NOT_FOUND, Code.UNKNOWN
# The error codes are those of other shims, since clients decide by them.
REFUSALS: Mapping[Op, Mapping[process.Status, Code]] = {
    Op.START: {RUNNING: WRONG, PAUSED: WRONG, STOPPED: WRONG},
    Op.DELETE: {RUNNING: WRONG, PAUSED: WRONG},
    Op.KILL: {STOPPED: NOT_FOUND},
    Op.PAUSE: {CREATED: WRONG, PAUSED: WRONG, STOPPED: WRONG},
    Op.RESUME: {CREATED: WRONG, RUNNING: WRONG, STOPPED: WRONG},
    Op.EXEC: {PAUSED: WRONG, STOPPED: WRONG},
    Op.UPDATE: {STOPPED: WRONG},
}
WORDS = {CREATED: "created", RUNNING: "running", STOPPED: "stopped", PAUSED: "paused"}
# Codes by which containerd decides; all others are "unknown" to it.
KNOWN = frozenset(
    {
        Code.CANCELLED,
        Code.INVALID_ARGUMENT,
        Code.NOT_FOUND,
        Code.ALREADY_EXISTS,
        Code.DEADLINE_EXCEEDED,
        Code.UNAVAILABLE,
        Code.UNIMPLEMENTED,
    }
)


@frozen
class TaskLook:
    """One process of a task at this moment: its init, or an exec's. `at_ns` 0: it has not ended."""

    status: process.Status
    pid: int
    code: int = 0
    at_ns: int = 0


def look(c: Container) -> TaskLook:
    """Describe init; it keeps its pid when it has ended."""
    known = c.init or (c.exit.init if c.exit is not None else None)
    pid = known.pid if known is not None else 0
    status = STATUS[c.phase]
    return ended(pid, c.exit) if status == STOPPED and c.exit is not None else TaskLook(status, pid)


def look_at_exec(fact: TaskExec, running: Exec | None, exit: Exit | None) -> TaskLook:
    """Describe an exec. One that was never started, or whose start has failed, is "created" and has no pid."""
    if exit is not None:
        return ended(exit.init.pid if exit.init is not None else 0, exit)
    if not fact.run_as or fact.error or running is None or running.phase is not ExecPhase.RUNNING:
        return TaskLook(CREATED, 0)
    return TaskLook(RUNNING, running.init.pid if running.init is not None else 0)


def unknown(now_ns: int) -> TaskLook:
    """Describe a process of whose end nothing is known."""
    return TaskLook(STOPPED, 0, UNKNOWN_NUMBER, now_ns)


def ended(pid: int, exit: Exit) -> TaskLook:
    return TaskLook(STOPPED, pid, fold(exit.status), exit.at_ns)


def of_tombstone(one: Tombstone) -> TaskLook:
    return TaskLook(STOPPED, one.pid, one.status, one.at_ns)


def is_of_another_boot(c: Container, boot_id: str) -> bool:
    """Return whether the host was rebooted since it ran, so that containerd no longer knows it."""
    return c.boot_id != boot_id or (c.exit is not None and c.exit.status == REBOOTED)


def is_there(c: Container | None) -> bool:
    """Return whether clients can see it: it was made, and is not the rest of a failed create."""
    failed = c is not None and c.phase is Phase.REMOVING and c.exit is None
    return c is not None and c.spec.task is not None and c.phase in STATUS and not failed


def is_sandbox(c: Container) -> bool:
    """Return whether it is a pod's pause container, made through containerd's Sandbox service."""
    return c.spec.task is not None and c.spec.pod is not None


def check(op: Op, status: process.Status, name: str) -> None:
    """Raises CallFailed when the request is not allowed in this state."""
    code = REFUSALS[op].get(status)
    if code is NOT_FOUND:
        raise CallFailed(code, f"{name}: process already finished: not found")
    if code is not None:
        raise CallFailed(code, f"{name}: cannot {op} a {WORDS[status]} process")


def no_task(id: str) -> CallFailed:
    return CallFailed(Code.NOT_FOUND, f"{id}: container not created: not found")


def no_exec(exec_id: str) -> CallFailed:
    return CallFailed(Code.NOT_FOUND, f"process does not exist {exec_id}: not found")


def failure_of(error: Exception) -> CallFailed | None:
    """Return the answer for a handler's error; None if the error is a bug."""
    if isinstance(error, CallFailed):
        return error
    error = room.refusal_of(error) or error
    if not isinstance(error, ExitdError):
        return None
    code = code_of(error)
    return CallFailed(code if code in KNOWN and not isinstance(error, WrongState) else WRONG, str(error))


# -- replies


def timestamp(ns: int) -> Timestamp | None:
    return Timestamp(seconds=ns // 10**9, nanos=ns % 10**9) if ns else None


def state_reply(id: str, exec_id: str, bundle: str, stdio: Stdio, seen: TaskLook) -> pb.StateResponse:
    """Return the answer of State; `stdio` are the client's own fields."""
    return pb.StateResponse(
        id=id,
        bundle=bundle,
        pid=seen.pid,
        status=seen.status,
        stdin=stdio.stdin,
        stdout=stdio.stdout,
        stderr=stdio.stderr,
        terminal=stdio.terminal,
        exit_status=seen.code,
        exited_at=timestamp(seen.at_ns),
        exec_id=exec_id,
    )


def wait_reply(seen: TaskLook) -> pb.WaitResponse:
    return pb.WaitResponse(exit_status=seen.code, exited_at=timestamp(seen.at_ns))


def delete_reply(seen: TaskLook) -> pb.DeleteResponse:
    return pb.DeleteResponse(pid=seen.pid, exit_status=seen.code, exited_at=timestamp(seen.at_ns))


def pids_reply(init: int, pids: Iterable[int], execs: Mapping[int, str]) -> pb.PidsResponse:
    """Never empty: containerd takes a task without processes for a leftover, and its exit would be lost."""
    found = tuple(pids) or (init,)
    return pb.PidsResponse(processes=[process.ProcessInfo(pid=pid, info=_details(execs.get(pid))) for pid in found])


def _details(exec_id: str | None) -> Any | None:
    if exec_id is None:
        return None
    message = runc.ProcessDetails(exec_id=exec_id)
    return Any(type_url=message.DESCRIPTOR.full_name, value=message.SerializeToString())
