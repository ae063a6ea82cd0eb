"""What a shim's refusal means, by its code alone: the texts differ from shim to shim. Pure."""

from supervisor.model.errors import (
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
from supervisor.ttrpc.faults import CallFailed, Closed

MAKING = frozenset({"Create", "Exec"})
PLAIN: dict[int, type[ExitdError]] = {
    Code.INVALID_ARGUMENT: BadRequest,
    Code.DEADLINE_EXCEEDED: TimedOut,
    Code.PERMISSION_DENIED: NotPermitted,
    Code.RESOURCE_EXHAUSTED: Busy,
    Code.FAILED_PRECONDITION: WrongState,
    Code.UNIMPLEMENTED: Unsupported,
    Code.UNAVAILABLE: ShimFailed,
}


def refusal(method: str, id: str, exec_id: str, error: CallFailed) -> ExitdError:
    """Return the error, with the shim's own text. Codes without a clear meaning give RuntimeFailed: the Go shim answers
    most failures with 2."""
    whose = f"exec {exec_id} of {id}" if exec_id else id
    if isinstance(error, Closed):
        return ShimLost(f"{whose}: {method} has no answer, and whether it was done is not known: {error.text}", id=id)
    kind = _kind(method, exec_id, error.code)
    return kind(
        f"{whose}: {method}: {error.text or 'refused without a word'} (the shim's code {int(error.code)})", id=id
    )


def _kind(method: str, exec_id: str, code: int) -> type[ExitdError]:
    if code == Code.NOT_FOUND:
        if method == "Create":
            return RuntimeFailed  # something that it needs is missing
        if method == "Kill":
            return WrongState  # there is nothing to signal, whether or not the task is known
        return NoSuchExec if exec_id and method != "Exec" else NoSuchContainer
    if code == Code.ALREADY_EXISTS:
        return NameTaken if method in MAKING else WrongState
    return PLAIN.get(code, RuntimeFailed)
