"""Where a container's output is kept: message to fact, checked, and back. Pure."""

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api.values import one_of
from supervisor.model.errors import BadRequest
from supervisor.model.values import LogDriver, LogMode, LogSpec

LEFT_OPEN = LogSpec(driver=None, max_bytes=None)
MIN_FILE_BYTES = 4096  # what is smaller would be rotated with every few lines
MAX_FILES = 100  # a reader of a log has all of them open
MIN_BUFFER_BYTES, MAX_BUFFER_BYTES = 65_536, 2**30
MAX_PATH_BYTES = 1024
_MAX_NUMBER = 2**63 - 1


def log_of(message: pb.LogSpec) -> LogSpec:
    """Return the log that the caller asks for. What is left open stays open: the node fills it in. Raises BadRequest,
    which names the field."""
    spec = LogSpec(
        driver=LogDriver(one_of("log.driver", message.driver, tuple(LogDriver))) if message.driver else None,
        path=_path(message.path),
        max_bytes=message.max_bytes if message.HasField("max_bytes") else None,
        max_files=_within("log.max_files", message.max_files, 1, MAX_FILES),
        mode=LogMode(one_of("log.mode", message.mode or LogMode.BLOCKING, tuple(LogMode))),
        buffer_bytes=_within("log.buffer_bytes", message.buffer_bytes, MIN_BUFFER_BYTES, MAX_BUFFER_BYTES),
    )
    _within("log.max_bytes", spec.max_bytes or 0, MIN_FILE_BYTES, _MAX_NUMBER)
    for_files = {"path": spec.path, "max_bytes": spec.max_bytes, "max_files": spec.max_files}
    if given := [name for name, value in for_files.items() if value and not _may_write_files(spec)]:
        raise BadRequest(
            f"log.{given[0]}: the log driver {spec.driver} writes no file; choose cri or json-file",
            field=f"log.{given[0]}",
        )
    return spec


def log_message(spec: LogSpec) -> pb.LogSpec:
    """Return the message of a log, as `log_of` reads it."""
    return pb.LogSpec(
        driver=spec.driver or "",
        path=spec.path,
        max_bytes=spec.max_bytes,
        max_files=spec.max_files,
        mode=spec.mode,
        buffer_bytes=spec.buffer_bytes,
    )


def _may_write_files(spec: LogSpec) -> bool:
    return spec.driver is None or spec.to_file


def _path(text: str) -> str:
    """Absolute, or below the log directory of a member's pod."""
    parts = text.removeprefix("/").split("/")
    if text and (not {"", ".", ".."}.isdisjoint(parts) or "\n" in text or len(text.encode()) > MAX_PATH_BYTES):
        raise BadRequest(
            f"log.path {text[:100]!r}: allowed is the path of a file, without '.', '..' and '//' in it, "
            f"of at most {MAX_PATH_BYTES} bytes",
            field="log.path",
        )
    return text


def _within(field: str, value: int, least: int, most: int) -> int:
    if value and not least <= value <= most:
        raise BadRequest(f"{field} {value}: allowed is 0 or {least} to {most}", field=field)
    return value
