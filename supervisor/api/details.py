"""An error as it is carried: canonical code, text, and google.rpc.ErrorInfo, in ttrpc's answer or gRPC's trailing
metadata. Pure.

Source: https://google.aip.dev/193 and google/rpc/error_details.proto.
"""

from google.protobuf.any_pb2 import Any
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped]  # ships no py.typed

from shim.frozen import frozen
from supervisor.model.errors import Code, ExitdError, code_of

KEY = "grpc-status-details-bin"
DOMAIN = "exitd"
INTERNAL_TEXT = "internal error"

# A gRPC client may refuse trailing metadata beyond 8 KiB and then reports that instead of the error. The text travels
# twice: percent-encoded (up to three times its size) and in base64.
_TEXT_BYTES = 900
_VALUE_BYTES = 150
_VALUES = 4


@frozen
class Refusal:
    """Why a call is refused, as the peer gets it."""

    code: Code
    text: str
    info: Any  # holds an ErrorInfo

    @property
    def details(self) -> bytes:
        """Return a serialized google.rpc.Status."""
        status: bytes = status_pb2.Status(code=self.code, message=self.text, details=[self.info]).SerializeToString()
        return status


def refusal(error: ExitdError) -> Refusal:
    """Return the refusal for a named error, with its reason and metadata, shortened to what fits."""
    metadata = dict(list(error.metadata.items())[:_VALUES])
    return _refusal(code_of(error), str(error), error.reason, metadata)


def internal() -> Refusal:
    """Return the refusal for a bug: the peer learns no more than that. The log has everything."""
    return _refusal(Code.INTERNAL, INTERNAL_TEXT, ExitdError.reason, {})


def _refusal(code: Code, text: str, reason: str, metadata: dict[str, str]) -> Refusal:
    text = shorten(text, _TEXT_BYTES)
    short = {shorten(key, _VALUE_BYTES): shorten(value, _VALUE_BYTES) for key, value in metadata.items()}
    detail = Any()
    detail.Pack(error_details_pb2.ErrorInfo(reason=reason, domain=DOMAIN, metadata=short))
    return Refusal(code, text, detail)


def shorten(text: str, size_bytes: int) -> str:
    """Return at most `size_bytes` of UTF-8: the beginning and the end, for both say something. Never a torn
    character."""
    raw = text.encode("utf-8", "replace")
    if len(raw) <= size_bytes:
        return raw.decode()
    half = (size_bytes - len(" ... ")) // 2
    return f"{raw[:half].decode(errors='ignore')} ... {raw[-half:].decode(errors='ignore')}"
