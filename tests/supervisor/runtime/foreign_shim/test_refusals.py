import pytest

from supervisor.model.errors import (
    CODES,
    BadRequest,
    Busy,
    Code,
    ExitdError,
    NameTaken,
    NoSuchContainer,
    NoSuchExec,
    NotPermitted,
    RuntimeFailed,
    ShimFailed,
    ShimLost,
    TimedOut,
    Unsupported,
    WrongState,
)
from supervisor.runtime.foreign_shim.refusals import refusal
from supervisor.ttrpc.faults import CallFailed, Closed

METHODS = (
    *("Create", "Start", "State", "Wait", "Kill", "Exec", "Delete", "Pids", "Pause", "Resume", "Update", "Stats"),
    *("ResizePty", "CloseIO", "Connect", "Shutdown"),
)


@pytest.mark.parametrize(
    "method, exec_id, code, error",
    [
        *(("State", "", 5, NoSuchContainer), ("State", "e", 5, NoSuchExec), ("Exec", "e", 5, NoSuchContainer)),
        *(("Kill", "", 5, WrongState), ("Kill", "e", 5, WrongState), ("Create", "", 5, RuntimeFailed)),
        *(("Create", "", 6, NameTaken), ("Exec", "e", 6, NameTaken), ("Start", "", 6, WrongState)),
        *(("Delete", "", 9, WrongState), ("Kill", "e", 9, WrongState), ("Start", "", 2, RuntimeFailed)),
        *(("Update", "", 12, Unsupported), ("Update", "", 3, BadRequest), ("State", "", 4, TimedOut)),
        *(("State", "", 7, NotPermitted), ("State", "", 8, Busy), ("State", "", 14, ShimFailed)),
        *(("State", "", 13, RuntimeFailed), ("State", "", 77, RuntimeFailed), ("State", "", 1, RuntimeFailed)),
    ],
)
def test_a_refusal_is_known_by_its_code(method: str, exec_id: str, code: int, error: type[ExitdError]) -> None:
    found = refusal(method, "c1", exec_id, CallFailed(code, "in its words"))
    assert type(found) is error
    assert "in its words" in str(found) and str(code) in str(found) and "c1" in str(found)


@pytest.mark.parametrize("method", METHODS)
def test_every_refusal_is_a_named_error_whatever_it_says(method: str) -> None:
    for code in range(1, 20):
        for text in ("", "container not running", "not found", "does not exist"):
            kinds = {type(refusal(method, "c1", exec_id, CallFailed(code, text))) for exec_id in ("", "e1")}
            assert kinds <= CODES.keys() and len({CODES[kind] for kind in kinds}) == 1


@pytest.mark.parametrize("method", METHODS)
def test_a_lost_connection_is_no_refusal_and_no_exit(method: str) -> None:
    assert type(refusal(method, "c1", "", Closed())) is ShimLost
    assert type(refusal(method, "c1", "", CallFailed(Code.UNAVAILABLE, "busy"))) is ShimFailed
