"""isulad-shim's contract, so that iSulad's daemon could start exitd-shim in its place: argv, environment and
process.json in, the plan of one shim out.

Taken over: the arguments, the two log variables, the state directory as working directory and its files (`exit_fifo`,
`pid`, `log.json`, a runtime root of the container's own), the runtime's command lines, 120 s for the set-up, the exit
status, and the order in which it ends: kill, reap, delete, and only then four bytes into `exit_fifo`, because that
daemon kills a shim that has told the code. What is more: the exit record is written before anybody reaps.

Not taken over yet: commands in a running container (`exec`), terminals, attached streams; asking for one of them is
refused. Stdin is empty. Output is written in CRI format beside the log that process.json names, as `<logPath>.cri`,
because that log's readers expect another format; without a `logPath` it is read and dropped. CONTAINER_ACTION is not
set for the codes 129 and 130.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shim import plan

LOG_PATH, LOG_LEVEL = "ISULAD_SHIIM_LOG_PATH", "ISULAD_SHIIM_LOG_LEVEL"  # the double I is iSulad's
RAMDISK = "ISULAD_RAMDISK"
# The daemon's own, and none of a runtime's business; a runtime with systemd's socket would wait for systemd.
NOT_PASSED_ON = (LOG_PATH, LOG_LEVEL, "NOTIFY_SOCKET")
DOCUMENT, RUNTIME_LOG, PID_FILE, FIFO = "process.json", "log.json", "pid", "exit_fifo"
SET_UP_MS = 120_000
STREAMS = ("isuladStdin", "isuladStdout", "isuladStderr")
MOST_RUNTIME_ARGS = 50
WITHOUT_ROOT = "kata-runtime"  # keeps its state where it wants
USAGE = "usage: python -m shim ID BUNDLE RUNTIME [info [TIMEOUT]], in the container's state directory"

Which = Callable[[str], str | None]


class Refused(Exception):
    """What was asked for is incomplete or cannot be done. The text names the field and the next step."""


@dataclass(frozen=True, slots=True)
class Call:
    """The arguments. The log level has no meaning any more; the timeout is for commands in a running container."""

    id: str
    bundle: str
    runtime: str  # a path, or a name on PATH
    timeout_seconds: int = 0


@dataclass(frozen=True, slots=True)
class Process:
    """What process.json says, as far as it matters here. `asks` are its fields that nobody can serve yet."""

    exit_fifo: str
    runtime: str = ""  # the runtime's name among iSulad's, not its path
    runtime_args: tuple[str, ...] = ()
    systemd_cgroup: bool = False
    no_pivot_root: bool = False
    log_path: str = ""
    owner: tuple[int, int] = (0, 0)  # of the pipes that init gets
    asks: tuple[str, ...] = ()


def call_of(argv: Sequence[str]) -> Call:
    """`argv` without the program's own name. Refused."""
    if not 3 <= len(argv) <= 5:
        raise Refused(f"{len(argv)} arguments: {USAGE}")
    timeout = argv[4] if len(argv) == 5 else "0"
    if not (timeout.isascii() and timeout.isdigit()):
        raise Refused(f"TIMEOUT {timeout!r}: must be whole seconds")
    for name, word in zip(("ID", "BUNDLE", "RUNTIME"), argv, strict=False):
        if not word:
            raise Refused(f"{name} is empty: {USAGE}")
    return Call(argv[0], argv[1], argv[2], int(timeout))


def log_fifo_of(environ: Mapping[str, str]) -> str:
    """Where the daemon reads what shims have to say. Refused when one of the two variables is missing."""
    for name in (LOG_PATH, LOG_LEVEL):
        if not environ.get(name):
            raise Refused(f"{name} is not set: iSulad's daemon sets it, and whoever else starts this must")
    scheme, separator, path = environ[LOG_PATH].partition(":")
    if (scheme, separator) != ("fifo", ":") or not path.startswith("/"):
        raise Refused(f"{LOG_PATH}={environ[LOG_PATH]}: must be fifo: and an absolute path")
    return path


def process_of(data: bytes) -> Process:
    """process.json, read. Refused names the line, or the field that is missing or of another type."""
    try:
        document = json.loads(data)
    except json.JSONDecodeError as error:
        raise Refused(f"{DOCUMENT}, line {error.lineno} column {error.colno}: {error.msg}") from error
    except (UnicodeDecodeError, RecursionError) as error:
        raise Refused(f"{DOCUMENT}: {error}") from error
    if not isinstance(document, dict):
        raise Refused(f"{DOCUMENT}: must be an object")
    for name in ("cwd", "args"):
        if not document.get(name):
            raise Refused(f"{DOCUMENT}: field {name!r} is missing")
    _text(document, "cwd")
    _texts(document, "args")
    asks = tuple(name for name in ("exec", "terminal") if _flag(document, name))
    return Process(
        exit_fifo=_text(document, "exit_fifo"),
        runtime=_text(document, "runtime"),
        runtime_args=_texts(document, "runtimeArgs"),
        systemd_cgroup=_flag(document, "systemdCgroup"),
        no_pivot_root=_flag(document, "noPivotRoot"),
        log_path=_text(document, "logPath"),
        owner=(_number(document, "rootUID"), _number(document, "rootGID")),
        asks=asks + tuple(name for name in STREAMS if _text(document, name)),
    )


def plan_of(call: Call, process: Process, environ: Mapping[str, str], cwd: str, which: Which) -> plan.Plan:
    """What the shim of one container is to do. Refused; `which` finds a program on PATH."""
    if process.asks:
        raise Refused(
            f"{DOCUMENT}: field {process.asks[0]!r}: commands in a running container, terminals and attached streams "
            "are not supported yet; start the container detached and without a terminal"
        )
    if not process.exit_fifo:
        raise Refused(f"{DOCUMENT}: field 'exit_fifo' is missing")
    if not process.runtime or "/" in process.runtime or process.runtime in (".", ".."):
        raise Refused(f"{DOCUMENT}: field 'runtime' is {process.runtime!r}, must be the runtime's name")
    if len(process.runtime_args) > MOST_RUNTIME_ARGS:
        raise Refused(f"{DOCUMENT}: {len(process.runtime_args)} runtimeArgs, at most {MOST_RUNTIME_ARGS}")
    program = which(call.runtime)
    if program is None:
        raise Refused(f"RUNTIME {call.runtime}: no such program; install it, or give its path")
    root = [] if process.runtime == WITHOUT_ROOT else ["--root", f"{cwd}/{process.runtime}"]
    logging = ["--log", f"{cwd}/{RUNTIME_LOG}", "--log-format", "json"]
    logged = (program, *process.runtime_args, *logging, *root)
    no_pivot = ["--no-pivot"] if process.no_pivot_root or environ.get(RAMDISK) else []
    cgroup = ["--systemd-cgroup"] if process.systemd_cgroup else []
    return plan.Plan(
        id=call.id,
        run=1,
        create=(
            *(*logged, *cgroup, "create", "--bundle", call.bundle, *no_pivot),
            *("--pid-file", f"{cwd}/{PID_FILE}", call.id),
        ),
        kill=(program, *process.runtime_args, *root, "kill", "--all", call.id, "SIGKILL"),
        remove=(*logged, "delete", "--force", call.id),
        pid_file=PID_FILE,
        runtime_log=RUNTIME_LOG,
        log=f"{process.log_path}.cri" if process.log_path else "",
        create_ms=SET_UP_MS,
        report_last=True,
    )


def environment_of(environ: Mapping[str, str]) -> dict[str, str]:
    """What the shim, and so the runtime and its hooks, get of the daemon's."""
    return {name: value for name, value in environ.items() if name not in NOT_PASSED_ON}


def encoded(wanted: plan.Plan) -> bytes:
    """The plan's bytes; Refused when it does not fit the shim's bounds."""
    try:
        return plan.encode(wanted)
    except ValueError as error:
        raise Refused(f"the shim cannot take this: {error}") from error


def _field(document: Mapping[str, Any], name: str, kind: type, absent: object) -> Any:
    """iSulad writes null, or nothing at all, for what is not set."""
    value = document.get(name)
    if value is None:
        return absent
    if type(value) is not kind:
        raise Refused(f"{DOCUMENT}: field {name!r} is {value!r}, must be {_WORDS[kind]}")
    return value


_WORDS = {str: "text", bool: "true or false", int: "a whole number", list: "a list"}


def _text(document: Mapping[str, Any], name: str) -> str:
    value: str = _field(document, name, str, "")
    return value


def _flag(document: Mapping[str, Any], name: str) -> bool:
    value: bool = _field(document, name, bool, False)
    return value


def _number(document: Mapping[str, Any], name: str) -> int:
    value: int = _field(document, name, int, 0)
    if not 0 <= value < 2**32 - 1:
        raise Refused(f"{DOCUMENT}: field {name!r} is {value}, must be the number of a user or group")
    return value


def _texts(document: Mapping[str, Any], name: str) -> tuple[str, ...]:
    values = _field(document, name, list, [])
    for value in values:
        if not isinstance(value, str):
            raise Refused(f"{DOCUMENT}: field {name!r} holds {value!r}, must be texts")
    return tuple(values)
