"""Every cell of the table of a task's states, the codes, and the replies."""

import errno

import pytest

from protos.containerd import runc_pb2
from supervisor.containerd import tasks
from supervisor.containerd.tasks import CREATED, PAUSED, RUNNING, STOPPED, Op, TaskLook
from supervisor.model import errors
from supervisor.model.errors import Code, ExitdError
from supervisor.model.execs import Exec, ExecPhase, ExecSpec
from supervisor.model.taskfacts import Stdio, Task, TaskExec, Tombstone
from supervisor.model.values import (
    By,
    Container,
    Exit,
    Exited,
    ExitStatus,
    Oom,
    Phase,
    Process,
    Reason,
    RunKey,
    Signaled,
    Source,
    Spec,
    Unknown,
)
from supervisor.ttrpc.faults import CallFailed

INIT = Process(40, 4)
ALLOWED = 0
# Rows: created, running, paused, stopped. Numbers are the codes of refusals.
TABLE = {
    Op.START: (ALLOWED, 2, 2, 2),
    Op.DELETE: (ALLOWED, 2, 2, ALLOWED),
    Op.KILL: (ALLOWED, ALLOWED, ALLOWED, 5),
    Op.PAUSE: (2, ALLOWED, 2, 2),
    Op.RESUME: (2, 2, ALLOWED, 2),
    Op.EXEC: (ALLOWED, ALLOWED, 2, 2),
    Op.UPDATE: (ALLOWED, ALLOWED, ALLOWED, 2),
}


def exit_with(status: ExitStatus, init: Process | None = INIT) -> Exit:
    key = RunKey("c", 1)
    return Exit(key, "box", "ns", status, Source.RECORD, Reason.SELF, By(), Oom(), 5_000_000_007, None, init, "ended")


def container(phase: Phase, init: Process | None = INIT, exit: Exit | None = None) -> Container:
    return Container("c", Spec("box", namespace="ns", task=Task("/b")), phase, 1, 1, init=init, exit=exit)


@pytest.mark.parametrize("op", Op)
def test_what_may_be_asked_in_which_state_is_what_other_shims_allow(op: Op) -> None:
    found = []
    for status in (CREATED, RUNNING, PAUSED, STOPPED):
        try:
            tasks.check(op, status, "box")
            found.append(ALLOWED)
        except CallFailed as error:
            found.append(error.code)
    assert tuple(found) == TABLE[op]


def test_every_operation_has_a_row() -> None:
    assert set(tasks.REFUSALS) == set(TABLE) == set(Op)


@pytest.mark.parametrize(
    ("phase", "status"),
    [
        (Phase.CREATED, CREATED),
        (Phase.STARTING, CREATED),
        (Phase.RUNNING, RUNNING),
        (Phase.PAUSED, PAUSED),
    ],
)
def test_a_living_task_has_a_pid_and_no_end(phase: Phase, status: int) -> None:
    assert tasks.look(container(phase)) == TaskLook(status, 40)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("status", "code"),
    [(Exited(43), 43), (Signaled(9), 137), (Unknown("monitors-killed"), 255), (Unknown("x", 3), 255)],
)
def test_one_that_has_ended_keeps_its_pid_and_an_unknown_end_is_255(status: ExitStatus, code: int) -> None:
    for phase in (Phase.EXITED, Phase.REMOVING):
        c = container(phase, None, exit_with(status))
        assert tasks.look(c) == TaskLook(STOPPED, 40, code, 5_000_000_007)


def test_a_task_is_seen_from_its_create_to_its_delete() -> None:
    assert not tasks.is_there(None)
    assert not tasks.is_there(container(Phase.CREATING, None))
    assert not tasks.is_there(container(Phase.REMOVING, None))  # of a create that has failed
    assert not tasks.is_there(Container("c", Spec("box"), Phase.RUNNING, 1, 1))  # nobody asked for it by containerd
    for phase in (Phase.CREATED, Phase.STARTING, Phase.RUNNING, Phase.PAUSED, Phase.EXITED):
        assert tasks.is_there(container(phase))
    assert tasks.is_there(container(Phase.REMOVING, None, exit_with(Exited(0))))


def test_an_exec_is_created_until_its_start_has_come_to_something() -> None:
    fact, key = TaskExec("c", "e", "{}", run_as="x"), RunKey("c", 1, "x")

    def exec_in(phase: ExecPhase) -> Exec:
        return Exec(key, ExecSpec(("sh",)), phase, "box", "ns", "boot", init=INIT)

    assert tasks.look_at_exec(TaskExec("c", "e", "{}"), None, None) == TaskLook(CREATED, 0)
    assert tasks.look_at_exec(fact, exec_in(ExecPhase.CREATING), None) == TaskLook(CREATED, 0)
    assert tasks.look_at_exec(fact, exec_in(ExecPhase.RUNNING), None) == TaskLook(RUNNING, 40)
    assert tasks.look_at_exec(fact, None, exit_with(Exited(3))) == TaskLook(STOPPED, 40, 3, 5_000_000_007)
    failed = TaskExec("c", "e", "{}", run_as="x", error="no such program")
    assert tasks.look_at_exec(failed, None, None) == TaskLook(CREATED, 0)


def errors_of_ours() -> list[type[ExitdError]]:
    return [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, ExitdError)]


@pytest.mark.parametrize("kind", errors_of_ours())
def test_every_error_has_a_code_that_containerd_knows(kind: type[ExitdError]) -> None:
    failure = tasks.failure_of(kind("why"))
    assert failure is not None and failure.text == "why"
    assert failure.code in {2, 3, 4, 5, 6, 12, 14}


def test_the_codes_that_clients_decide_by() -> None:
    for error, code in (
        (errors.NameTaken("x"), Code.ALREADY_EXISTS),
        (errors.NoSuchContainer("x"), Code.NOT_FOUND),
        (errors.WrongState("x"), Code.UNKNOWN),
        (errors.RuntimeFailed("x"), Code.UNKNOWN),
        (errors.StoreFailed("x"), Code.UNAVAILABLE),
        (errors.BadRequest("x"), Code.INVALID_ARGUMENT),
        (CallFailed(Code.FAILED_PRECONDITION, "x"), Code.FAILED_PRECONDITION),
    ):
        failure = tasks.failure_of(error)
        assert failure is not None and failure.code == code
    assert tasks.failure_of(RuntimeError("a bug")) is None
    busy = tasks.failure_of(OSError(errno.EMFILE, "Too many open files"))
    assert busy is not None and busy.code == Code.UNKNOWN and "Too many open files" in busy.text
    assert tasks.failure_of(OSError(errno.EACCES, "no")) is None


def test_a_state_says_what_the_client_had_said() -> None:
    stdio = Stdio("/i", "/o", "/e", True)
    reply = tasks.state_reply("box", "x", "/b", stdio, TaskLook(STOPPED, 40, 3, 5_000_000_007))
    assert (reply.id, reply.exec_id, reply.bundle) == ("box", "x", "/b")
    assert (reply.stdin, reply.stdout, reply.stderr, reply.terminal) == ("/i", "/o", "/e", True)
    assert (reply.exited_at.seconds, reply.exited_at.nanos) == (5, 7)
    assert not tasks.state_reply("box", "", "/b", stdio, TaskLook(RUNNING, 40)).HasField("exited_at")


def test_an_end_has_the_same_time_in_every_reply() -> None:
    seen = TaskLook(STOPPED, 40, 3, 5_000_000_007)
    one = tasks.of_tombstone(Tombstone("ns", "box", "", "r/1/3", 40, 3, 5_000_000_007, "boot", 1))
    assert one == seen
    assert tasks.wait_reply(seen).exited_at == tasks.delete_reply(seen).exited_at
    assert tasks.delete_reply(TaskLook(CREATED, 0)).SerializeToString() == b""


def test_there_is_always_a_process_in_the_list() -> None:
    (retained,) = tasks.pids_reply(40, (), {}).processes
    assert retained.pid == 40 and not retained.HasField("info")
    init, other = tasks.pids_reply(40, (40, 50), {50: "e"}).processes
    assert init.pid == 40 and not init.HasField("info")
    assert other.info.type_url == "containerd.runc.v1.ProcessDetails"
    assert runc_pb2.ProcessDetails.FromString(other.info.value).exec_id == "e"
