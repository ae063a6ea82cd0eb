"""Where output is kept, on the command line: --log-driver, --log-opt and --log-mode of `run` and `create`."""

import os
from collections.abc import Iterable

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.cli import parse
from supervisor.model.errors import BadRequest

NO_LIMIT = ("0", "-1", "unlimited")


def log_spec(driver: str, options: Iterable[str], mode: str) -> pb.LogSpec | None:
    """Return None if no option was given. Raises BadRequest."""
    spec = pb.LogSpec(driver=driver, mode=mode)
    for word in options:
        _take(spec, *parse.pair(word, "--log-opt"))
    return spec if spec.ListFields() or spec.HasField("max_bytes") else None


def log_options(spec: pb.LogSpec) -> dict[str, str]:
    """Convert back, as docker shows them: the options that --log-opt and --log-mode would need."""
    said = {
        "max-size": spec.max_bytes,
        "max-file": spec.max_files if spec.max_bytes else 0,
        "path": spec.path,
        "max-buffer-size": spec.buffer_bytes,
        "mode": "" if spec.mode == "blocking" else spec.mode,
    }
    return {key: str(value) for key, value in said.items() if value}


def _take(spec: pb.LogSpec, key: str, value: str) -> None:
    match key:
        case "max-size":
            spec.max_bytes = 0 if value in NO_LIMIT else parse.size_bytes(value)
        case "max-file":
            if not value.isdecimal() or not int(value):
                raise BadRequest(f"--log-opt max-file={value}: must be a number of files, the current one included")
            spec.max_files = min(int(value), 2**32 - 1)
        case "path":
            if not value:
                raise BadRequest("--log-opt path=: must be the path of a file")
            spec.path = os.path.abspath(value)
        case "max-buffer-size":
            spec.buffer_bytes = parse.size_bytes(value)
        case _:
            allowed = "max-size=SIZE, max-file=N, path=FILE and max-buffer-size=SIZE"
            raise BadRequest(f"--log-opt {key}: there is no such option; there are {allowed}")
