"""What becomes of a container's output: facts, as those of `facts`, which has them in its Spec."""

from dataclasses import dataclass
from enum import StrEnum


class LogDriver(StrEnum):
    """What becomes of a container's output beside those who are attached."""

    CRI = "cri"
    JSON_FILE = "json-file"
    JOURNALD = "journald"
    NONE = "none"


class LogMode(StrEnum):
    """What a sink that does not keep up does to the container: holds its output up, or misses a part of it."""

    BLOCKING = "blocking"
    NON_BLOCKING = "non-blocking"


@dataclass(frozen=True, slots=True)
class LogSpec:
    """Where a container's output is kept. None, in a request only: as the daemon's configuration has it."""

    driver: LogDriver | None = LogDriver.CRI
    path: str = ""  # of the file; empty: in the container's own directory. In a request, relative to the pod's
    max_bytes: int | None = 0  # a file that would grow beyond is rotated first; 0: never
    max_files: int = 0  # kept then, the current one included; 0, in a request: as the configuration has it
    mode: LogMode = LogMode.BLOCKING
    buffer_bytes: int = 0  # for each sink that does not keep up; 0: as the shim has it

    @property
    def to_file(self) -> bool:
        return self.driver in (LogDriver.CRI, LogDriver.JSON_FILE)


@dataclass(frozen=True, slots=True)
class ForeignStreams:
    """Where a foreign client has a process's streams, beside the log and those who attach. The paths are the shim's to
    open, whenever one begins: of a fifo both ends, of a file its end. Empty: there is no such client."""

    out: str = ""  # a fifo, or a file that is there
    err: str = ""
    stdin: str = ""  # a fifo
    logger: tuple[str, ...] = ()  # a program that gets the output, instead of `out` and `err`
    logger_env: tuple[str, ...] = ()  # NAME=value, all that it gets
    uid: int = 0  # whose the pipes are that the process writes to and reads from
    gid: int = 0
