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
    "NoSuchNetwork",
    "NoSuchPath",
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
    """No container has this id, the beginning of an id, or name."""

    reason = "NO_SUCH_CONTAINER"


class NoSuchExec(ExitdError):
    """The container has no exec with this id, nor has the ledger."""

    reason = "NO_SUCH_EXEC"


class NoSuchProcess(ExitdError):
    """The process has ended, or its pid now belongs to another."""

    reason = "NO_SUCH_PROCESS"


class NoSuchWatch(ExitdError):
    """Nothing is watched under this name."""

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
    """Another container or pod has the name; `replace` removes it first."""

    reason = "NAME_TAKEN"


class WrongState(ExitdError):
    """The request is valid, but not in the present state."""

    reason = "WRONG_STATE"


class CommandNotFound(ExitdError):
    """The container has no such program (a shell's 127)."""

    reason = "COMMAND_NOT_FOUND"


class CommandNotExecutable(ExitdError):
    """The program is there and cannot be executed (a shell's 126)."""

    reason = "COMMAND_NOT_EXECUTABLE"


class RuntimeFailed(ExitdError):
    """The OCI runtime refused; the text has its words."""

    reason = "RUNTIME_FAILED"


class RuntimeMissing(ExitdError):
    """The program of the OCI runtime does not exist."""

    reason = "RUNTIME_MISSING"


class Compacted(ExitdError):
    """The events from that number on are no longer kept."""

    reason = "COMPACTED"


class StoreFailed(ExitdError):
    """exitd's disk refuses; nothing was reported that is not stored."""

    reason = "STORE_FAILED"


class NotPermitted(ExitdError):
    """exitd does not permit this caller to do that."""

    reason = "NOT_PERMITTED"


class ShimFailed(ExitdError):
    """A shim or its keeper could not be started, or did not answer."""

    reason = "SHIM_FAILED"


class ShimLost(ExitdError):
    """The connection to another's shim has ended. This is no exit."""

    reason = "SHIM_LOST"


class Unsupported(ExitdError):
    """The container's runtime does not support that."""

    reason = "UNSUPPORTED"


class Recovering(ExitdError):
    """exitd still examines the container after its own start; ask again."""

    reason = "RECOVERING"


class ShuttingDown(ExitdError):
    """exitd is ending; its containers go on, and the next one answers."""

    reason = "SHUTTING_DOWN"


class Busy(ExitdError):
    """exitd has as much work of this kind as it accepts; ask again."""

    reason = "BUSY"


class CannotStart(ExitdError):
    """exitd itself cannot start; the text has the cure."""

    reason = "CANNOT_START"


class BadConfig(ExitdError):
    """The configuration file is invalid; the text has a line for each mistake."""

    reason = "BAD_CONFIG"


class NoSuchImage(ExitdError):
    """No image has this name or id here."""

    reason = "NO_SUCH_IMAGE"


class AmbiguousImage(ExitdError):
    """Several images fit the name; the text lists them."""

    reason = "AMBIGUOUS_IMAGE"


class ImageInUse(ExitdError):
    """Containers use the image; the text names some."""

    reason = "IMAGE_IN_USE"


class NoSuchVolume(ExitdError):
    """No volume has this name."""

    reason = "NO_SUCH_VOLUME"


class VolumeInUse(ExitdError):
    """Containers use the volume; the text names some."""

    reason = "VOLUME_IN_USE"


class NoSuchPath(ExitdError):
    """The container has no such file or directory, as it sees its files."""

    reason = "NO_SUCH_PATH"


class NoSuchNetwork(ExitdError):
    """No network of that name is configured; the text says where a configuration goes."""

    reason = "NO_SUCH_NETWORK"


class BadImage(ExitdError):
    """The image is broken or hostile; the text names the file, and nothing of it was kept."""

    reason = "BAD_IMAGE"


class WrongDigest(BadImage):
    """The content does not have the digest that it was asked for by."""

    reason = "WRONG_DIGEST"


class ImageTooLarge(ExitdError):
    """The image unpacks to more than the configuration permits (`limits.image_gib`, `limits.image_files`)."""

    reason = "IMAGE_TOO_LARGE"


class ImageStoreFailed(ExitdError):
    """The disk refused a write; the store of images is as it was before."""

    reason = "IMAGE_STORE_FAILED"


class ToolMissing(ExitdError):
    """A program that exitd needs for this is not installed."""

    reason = "TOOL_MISSING"


class ToolFailed(ExitdError):
    """A program that exitd ran for this has failed; the text has its words."""

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
