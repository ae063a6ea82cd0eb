"""What a failed call means to exitctl: the reason word in google.rpc.ErrorInfo, never the text, becomes the
daemon's own class of error again."""

import os
from collections.abc import Iterable, Mapping

from google.protobuf.any_pb2 import Any
from google.protobuf.message import DecodeError

from supervisor.model import errors
from supervisor.model.errors import Code, ExitdError

REASONS: Mapping[str, type[ExitdError]] = {cls.reason: cls for cls in errors.CODES}


class Unreachable(ExitdError):
    """No daemon answers on the socket."""

    reason = "UNREACHABLE"


def translate(code: int, text: str, details: Iterable[Any], path: str) -> ExitdError:
    """Return the daemon's own error for a failed call. `path` is the socket, for the words to a person."""
    named = _named(text, details)
    if named is not None:
        return named
    if code == Code.UNAVAILABLE:
        return Unreachable(f"no daemon answers on {path}: {_next_step(path)}")
    if code == Code.DEADLINE_EXCEEDED:
        return errors.TimedOut(f"the daemon on {path} did not answer in time; what was asked may still be going on")
    if code == Code.UNIMPLEMENTED:
        return ExitdError(f"the daemon on {path} does not know this request; is it older than this exitctl?")
    word = Code(code).name if code in Code._value2member_map_ else f"code {code}"
    return ExitdError(text or f"the daemon answered {word.lower().replace('_', ' ')}")


def _named(text: str, details: Iterable[Any]) -> ExitdError | None:
    """The error as the daemon named it, or None when it did not come from exitd's own code."""
    given = tuple(details)
    if not given:
        return None
    # A module of messages that a call which succeeds can do without.
    from google.rpc import error_details_pb2  # type: ignore[import-untyped]  # ships no py.typed

    info = error_details_pb2.ErrorInfo()
    try:
        found = any(detail.Unpack(info) for detail in given)
    except DecodeError:
        return None
    if not found or info.domain != "exitd":
        return None
    named = REASONS.get(info.reason, ExitdError)(text or info.reason)
    named.reason = info.reason  # a newer daemon may have words this client has no class for
    named.metadata = dict(info.metadata)
    named.is_answer = True
    return named


def _next_step(path: str) -> str:
    if not os.path.exists(path):
        return "start exitd, or name its state directory in EXITD_STATE (its socket: --address, EXITD_ADDRESS)"
    if not os.access(path, os.R_OK | os.W_OK):
        return "the socket belongs to root and the group exitd; run this as root"
    return "it is not running, or too busy to accept; start exitd or look at its log"
