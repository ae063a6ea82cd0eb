"""How a request about images can fail, named for the caller's next move, and the wire code of each."""

from supervisor.errors import Code, ExitdError


class NoSuchImage(ExitdError):
    reason = "NO_SUCH_IMAGE"


class AmbiguousImage(ExitdError):
    """Several images fit the word; the text lists them."""

    reason = "AMBIGUOUS_IMAGE"


class ImageInUse(ExitdError):
    """Containers stand on the image; they are removed first."""

    reason = "IMAGE_IN_USE"


class BadImage(ExitdError):
    """The image is broken or hostile. The text names the file and the field or entry; nothing of it was kept."""

    reason = "BAD_IMAGE"


class WrongDigest(BadImage):
    """The content is not what its digest says."""

    reason = "WRONG_DIGEST"


class ImageTooLarge(ExitdError):
    """The image unpacks to more than the limits allow."""

    reason = "IMAGE_TOO_LARGE"


class ImageStoreFailed(ExitdError):
    """The disk refused (full, read-only, I/O error). What was begun has been taken back, the store is as before."""

    reason = "IMAGE_STORE_FAILED"


class ToolMissing(ExitdError):
    """A program this needs is not installed."""

    reason = "TOOL_MISSING"


class ToolFailed(ExitdError):
    """The program that was asked failed; its own words are in the text."""

    reason = "TOOL_FAILED"


CODES: dict[type[ExitdError], Code] = {
    NoSuchImage: Code.NOT_FOUND,
    AmbiguousImage: Code.INVALID_ARGUMENT,
    ImageInUse: Code.FAILED_PRECONDITION,
    BadImage: Code.INVALID_ARGUMENT,
    WrongDigest: Code.INVALID_ARGUMENT,
    ImageTooLarge: Code.RESOURCE_EXHAUSTED,
    ImageStoreFailed: Code.UNAVAILABLE,
    ToolMissing: Code.FAILED_PRECONDITION,
    ToolFailed: Code.FAILED_PRECONDITION,
}
