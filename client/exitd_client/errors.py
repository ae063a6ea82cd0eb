"""Every way a call can fail, by the reason word that exitd sends with it (google.rpc.ErrorInfo), never by its text."""

from collections.abc import Iterable, Mapping

__all__ = [
    "AmbiguousId",
    "AmbiguousImage",
    "BadConfig",
    "BadImage",
    "BadRequest",
    "Busy",
    "CannotConfine",
    "CannotStart",
    "CannotWatch",
    "CommandNotExecutable",
    "CommandNotFound",
    "Compacted",
    "ExitdError",
    "ImageInUse",
    "ImageStoreFailed",
    "ImageTooLarge",
    "NameTaken",
    "NeverEnded",
    "NoSuchContainer",
    "NoSuchExec",
    "NoSuchImage",
    "NoSuchProcess",
    "NoSuchVolume",
    "NoSuchWatch",
    "NotPermitted",
    "OutputTooLong",
    "Recovering",
    "RuntimeFailed",
    "RuntimeMissing",
    "ShimFailed",
    "ShimLost",
    "ShuttingDown",
    "StoreFailed",
    "TimedOut",
    "ToolFailed",
    "ToolMissing",
    "Unreachable",
    "Unsupported",
    "VolumeInUse",
    "WrongDigest",
    "WrongState",
]


class ExitdError(Exception):
    """A call has failed. The text is for a person; `reason` is the stable word, and `metadata` has its details.

    A reason that this client does not know, of a newer exitd, is an ExitdError itself.
    """

    reason = "INTERNAL"

    def __init__(self, text: str, metadata: Mapping[str, str] | None = None) -> None:
        super().__init__(text)
        self.metadata = dict(metadata or {})


class Unreachable(ExitdError):
    """No exitd answers on the socket, or it went away."""

    reason = "UNREACHABLE"


class TimedOut(ExitdError):
    """The time limit has passed, here or in exitd. What was asked may still be going on."""

    reason = "TIMED_OUT"


class NeverEnded(ExitdError):
    """What was waited for is there, but has no end: the container was removed before it ever ran."""

    reason = "NEVER_ENDED"


class OutputTooLong(ExitdError):
    """An exec wrote more than the caller takes. It was killed."""

    reason = "OUTPUT_TOO_LONG"


class BadRequest(ExitdError):
    """The request is invalid in every state. `metadata["field"]` may name the field."""

    reason = "BAD_REQUEST"


class NoSuchContainer(ExitdError):
    reason = "NO_SUCH_CONTAINER"


class NoSuchExec(ExitdError):
    reason = "NO_SUCH_EXEC"


class NoSuchProcess(ExitdError):
    reason = "NO_SUCH_PROCESS"


class NoSuchWatch(ExitdError):
    reason = "NO_SUCH_WATCH"


class CannotWatch(ExitdError):
    """The kernel does not report how other programs' processes end."""

    reason = "CANNOT_WATCH"


class CannotConfine(ExitdError):
    """No container can have a cgroup on this machine."""

    reason = "CANNOT_CONFINE"


class AmbiguousId(ExitdError):
    """The beginning of an id fits several."""

    reason = "AMBIGUOUS_ID"


class NameTaken(ExitdError):
    reason = "NAME_TAKEN"


class WrongState(ExitdError):
    """The request is valid, but not in the present state."""

    reason = "WRONG_STATE"


class CommandNotFound(ExitdError):
    reason = "COMMAND_NOT_FOUND"


class CommandNotExecutable(ExitdError):
    reason = "COMMAND_NOT_EXECUTABLE"


class RuntimeFailed(ExitdError):
    """The OCI runtime refused; the text has its words."""

    reason = "RUNTIME_FAILED"


class RuntimeMissing(ExitdError):
    reason = "RUNTIME_MISSING"


class Compacted(ExitdError):
    """The events from that number on are no longer kept."""

    reason = "COMPACTED"


class StoreFailed(ExitdError):
    """exitd's disk refuses; nothing was reported that is not stored."""

    reason = "STORE_FAILED"


class NotPermitted(ExitdError):
    reason = "NOT_PERMITTED"


class ShimFailed(ExitdError):
    reason = "SHIM_FAILED"


class ShimLost(ExitdError):
    """The connection to another's shim has ended. This is no exit."""

    reason = "SHIM_LOST"


class Unsupported(ExitdError):
    reason = "UNSUPPORTED"


class Recovering(ExitdError):
    """exitd still examines the container after its own start; ask again."""

    reason = "RECOVERING"


class ShuttingDown(ExitdError):
    reason = "SHUTTING_DOWN"


class Busy(ExitdError):
    """exitd has as much work of this kind as it accepts; ask again."""

    reason = "BUSY"


class CannotStart(ExitdError):
    reason = "CANNOT_START"


class BadConfig(ExitdError):
    reason = "BAD_CONFIG"


class NoSuchImage(ExitdError):
    reason = "NO_SUCH_IMAGE"


class AmbiguousImage(ExitdError):
    reason = "AMBIGUOUS_IMAGE"


class ImageInUse(ExitdError):
    reason = "IMAGE_IN_USE"


class NoSuchVolume(ExitdError):
    reason = "NO_SUCH_VOLUME"


class VolumeInUse(ExitdError):
    reason = "VOLUME_IN_USE"


class BadImage(ExitdError):
    reason = "BAD_IMAGE"


class WrongDigest(BadImage):
    reason = "WRONG_DIGEST"


class ImageTooLarge(ExitdError):
    reason = "IMAGE_TOO_LARGE"


class ImageStoreFailed(ExitdError):
    reason = "IMAGE_STORE_FAILED"


class ToolMissing(ExitdError):
    """A program that exitd needs for this is not installed."""

    reason = "TOOL_MISSING"


class ToolFailed(ExitdError):
    reason = "TOOL_FAILED"


def _all(classes: Iterable[type[ExitdError]]) -> dict[str, type[ExitdError]]:
    found: dict[str, type[ExitdError]] = {}
    for each in classes:
        found |= {each.reason: each} | _all(each.__subclasses__())
    return found


REASONS: Mapping[str, type[ExitdError]] = _all(ExitdError.__subclasses__())
AWAY = (Unreachable, ShuttingDown)  # exitd is not there now, and may be soon


def named(reason: str, text: str, metadata: Mapping[str, str]) -> ExitdError:
    """Return the error for a reason word."""
    error = REASONS.get(reason, ExitdError)(text or reason, metadata)
    error.reason = reason
    return error
