"""Every way a request can fail, named for the caller's next move, and the table of their wire codes."""

from enum import IntEnum

MOST_TEXT, TEXT_BEGIN, TEXT_END = 4096, 3000, 1000  # of an error's text, in characters


class Code(IntEnum):
    """Canonical status codes (google.rpc.Code); gRPC and ttrpc share the numbers."""

    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14


class ExitdError(Exception):
    """Base of all errors. The text names the thing and the next step; `reason` is the stable identifier for programs.

    A text longer than MOST_TEXT characters, because it quotes the request, keeps its beginning and its end.
    """

    reason = "INTERNAL"
    is_answer = False  # True in exitctl, of an error that the daemon has named

    def __init__(self, text: str, **metadata: str) -> None:
        super().__init__(_readable(text))
        self.metadata = metadata


def _readable(text: str) -> str:
    if len(text) <= MOST_TEXT:
        return text
    return f"{text[:TEXT_BEGIN]} [{len(text) - TEXT_BEGIN - TEXT_END} more characters] {text[-TEXT_END:]}"


class BadRequest(ExitdError):
    """The request is invalid, whatever the state is."""

    reason = "BAD_REQUEST"


class NoSuchContainer(ExitdError):
    """No container has this id, the beginning of an id, or name."""

    reason = "NO_SUCH_CONTAINER"


class NoSuchExec(ExitdError):
    """Neither the container nor the ledger has an exec with this id."""

    reason = "NO_SUCH_EXEC"


class NoSuchProcess(ExitdError):
    """The process has ended, or its pid now belongs to another process."""

    reason = "NO_SUCH_PROCESS"


class NoSuchWatch(ExitdError):
    """Nothing is watched under this name."""

    reason = "NO_SUCH_WATCH"


class CannotWatch(ExitdError):
    """This kernel does not report how the processes of other programs end."""

    reason = "CANNOT_WATCH"


class CannotConfine(ExitdError):
    """No container can have a cgroup on this machine; the text has the cure."""

    reason = "CANNOT_CONFINE"


class AmbiguousId(ExitdError):
    """The prefix fits several ids."""

    reason = "AMBIGUOUS_ID"


class NameTaken(ExitdError):
    """Another container or pod has the name."""

    reason = "NAME_TAKEN"


class WrongState(ExitdError):
    """The request is valid, but not in the present state."""

    reason = "WRONG_STATE"


class CommandNotFound(ExitdError):
    """The container's command does not exist in its root file system (a shell's 127)."""

    reason = "COMMAND_NOT_FOUND"


class CommandNotExecutable(ExitdError):
    """The container's command exists but cannot be executed (a shell's 126)."""

    reason = "COMMAND_NOT_EXECUTABLE"


class RuntimeFailed(ExitdError):
    """The OCI runtime refused or failed; the text includes its own message."""

    reason = "RUNTIME_FAILED"


class RuntimeMissing(ExitdError):
    """The runtime program does not exist."""

    reason = "RUNTIME_MISSING"


class TimedOut(ExitdError):
    """A time limit has passed; the text says whether the work goes on or was undone."""

    reason = "TIMED_OUT"


class Compacted(ExitdError):
    """The events asked for are no longer kept."""

    reason = "COMPACTED"


class StoreFailed(ExitdError):
    """The database refused a commit (disk full, I/O error). No client was sent anything that is not stored."""

    reason = "STORE_FAILED"


class NotPermitted(ExitdError):
    """This caller may not do that."""

    reason = "NOT_PERMITTED"


class ShimFailed(ExitdError):
    """A shim or exitd-keeper could not be started or did not answer."""

    reason = "SHIM_FAILED"


class ShimLost(ExitdError):
    """The connection to a foreign shim has ended. This is not an exit: it does not say what became of the shim's
    processes."""

    reason = "SHIM_LOST"


class Unsupported(ExitdError):
    """This container's runtime does not support the operation."""

    reason = "UNSUPPORTED"


class Recovering(ExitdError):
    """exitd is still examining the container after a daemon start, and the time limit for waiting has passed."""

    reason = "RECOVERING"


class ShuttingDown(ExitdError):
    """The daemon is ending; its containers go on."""

    reason = "SHUTTING_DOWN"


class Busy(ExitdError):
    """The daemon has as much work of this kind as it accepts; the caller may try again."""

    reason = "BUSY"


class CannotStart(ExitdError):
    """The daemon itself cannot start (second instance, unusable directory, newer database)."""

    reason = "CANNOT_START"


class BadConfig(ExitdError):
    """The configuration file is invalid. The text has one line for each mistake, with file and line number."""

    reason = "BAD_CONFIG"


class NoSuchImage(ExitdError):
    """No image here has this name or id."""

    reason = "NO_SUCH_IMAGE"


class AmbiguousImage(ExitdError):
    """Several images fit the name; the text lists them."""

    reason = "AMBIGUOUS_IMAGE"


class ImageInUse(ExitdError):
    """Containers use the image; remove them first."""

    reason = "IMAGE_IN_USE"


class NoSuchVolume(ExitdError):
    """No volume has this name."""

    reason = "NO_SUCH_VOLUME"


class VolumeInUse(ExitdError):
    """Containers mount the volume; remove them first."""

    reason = "VOLUME_IN_USE"


class NoSuchPath(ExitdError):
    """The container has no such file or directory, as it sees its files."""

    reason = "NO_SUCH_PATH"


class NoSuchNetwork(ExitdError):
    """No configuration of that name is there; the text says where one goes."""

    reason = "NO_SUCH_NETWORK"


class BadImage(ExitdError):
    """The image is broken or hostile. The text names the file and the field or entry; nothing of it was kept."""

    reason = "BAD_IMAGE"


class WrongDigest(BadImage):
    """The content does not have the digest it was asked for by."""

    reason = "WRONG_DIGEST"


class ImageTooLarge(ExitdError):
    """The image unpacks to more than the limits allow."""

    reason = "IMAGE_TOO_LARGE"


class ImageStoreFailed(ExitdError):
    """The disk refused a write (full, read-only, I/O error). The work was undone, the store is as it was before."""

    reason = "IMAGE_STORE_FAILED"


class ToolMissing(ExitdError):
    """A program that this operation needs is not installed."""

    reason = "TOOL_MISSING"


class ToolFailed(ExitdError):
    """A program that exitd ran has failed; the text includes its own message."""

    reason = "TOOL_FAILED"


CODES: dict[type[ExitdError], Code] = {
    BadRequest: Code.INVALID_ARGUMENT,
    NoSuchContainer: Code.NOT_FOUND,
    NoSuchExec: Code.NOT_FOUND,
    NoSuchProcess: Code.NOT_FOUND,
    NoSuchWatch: Code.NOT_FOUND,
    CannotWatch: Code.FAILED_PRECONDITION,
    CannotConfine: Code.FAILED_PRECONDITION,
    AmbiguousId: Code.INVALID_ARGUMENT,
    NameTaken: Code.ALREADY_EXISTS,
    WrongState: Code.FAILED_PRECONDITION,
    CommandNotFound: Code.FAILED_PRECONDITION,
    CommandNotExecutable: Code.FAILED_PRECONDITION,
    RuntimeFailed: Code.FAILED_PRECONDITION,
    RuntimeMissing: Code.FAILED_PRECONDITION,
    TimedOut: Code.DEADLINE_EXCEEDED,
    Compacted: Code.OUT_OF_RANGE,
    StoreFailed: Code.UNAVAILABLE,
    NotPermitted: Code.PERMISSION_DENIED,
    ShimFailed: Code.UNAVAILABLE,
    ShimLost: Code.UNAVAILABLE,
    Unsupported: Code.UNIMPLEMENTED,
    Recovering: Code.UNAVAILABLE,
    ShuttingDown: Code.UNAVAILABLE,
    Busy: Code.RESOURCE_EXHAUSTED,
    CannotStart: Code.INTERNAL,
    BadConfig: Code.INVALID_ARGUMENT,
    NoSuchImage: Code.NOT_FOUND,
    AmbiguousImage: Code.INVALID_ARGUMENT,
    ImageInUse: Code.FAILED_PRECONDITION,
    NoSuchVolume: Code.NOT_FOUND,
    VolumeInUse: Code.FAILED_PRECONDITION,
    NoSuchPath: Code.NOT_FOUND,
    NoSuchNetwork: Code.NOT_FOUND,
    BadImage: Code.INVALID_ARGUMENT,
    WrongDigest: Code.INVALID_ARGUMENT,
    ImageTooLarge: Code.RESOURCE_EXHAUSTED,
    ImageStoreFailed: Code.UNAVAILABLE,
    ToolMissing: Code.FAILED_PRECONDITION,
    ToolFailed: Code.FAILED_PRECONDITION,
}


def code_of(error: ExitdError) -> Code:
    """Return the wire code of an error. A class that is missing in the table is a bug: INTERNAL."""
    return CODES.get(type(error), Code.INTERNAL)
