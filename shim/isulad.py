"""isulad-shim's contract, so that iSulad's daemon could start exitd-shim in its place: argv, environment and
process.json in, the plan of one shim out.

Taken over: the arguments, the two log variables, the state directory as working directory and its files (`exit_fifo`,
`pid`, `log.json`, `attach.sock`, a runtime root of the container's own), the runtime's command lines, 120 s for the
set-up, the exit status, and the order in which it ends: kill, reap, delete, and only then four bytes into `exit_fifo`,
because that daemon kills a shim that has written the code. Clients' fifos, terminals, the json-file log with its
rotation, attaching, and commands in a running container, with their time limit and their code on stdout. What is more:
the exit record is written before init is reaped, and `pid` appears only when the shim needs its directory no more.

Where it differs, and what is not taken over, docs/shims.md says.
"""

import json
import posixpath
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from shim import plan
from shim.frozen import frozen, replace

LOG_PATH, LOG_LEVEL = "ISULAD_SHIIM_LOG_PATH", "ISULAD_SHIIM_LOG_LEVEL"  # the double I is iSulad's
RAMDISK = "ISULAD_RAMDISK"
# The daemon's own, and none of a runtime's business; a runtime with systemd's socket would wait for systemd.
NOT_PASSED_ON = (LOG_PATH, LOG_LEVEL, "NOTIFY_SOCKET")
DOCUMENT, RUNTIME_LOG, PID_FILE, FIFO = "process.json", "log.json", "pid", "exit_fifo"
SET_UP_MS = 120_000
MADE = "pid.new"  # the runtime writes it; the shim has read it when it is there as `pid`
EXECS = "exec"  # in a container's state directory; each of its commands has a directory there
LEAST_LOG_BYTES, LEAST_LOG_FILES = 4096, 2
MOST_RUNTIME_ARGS = 50
WITHOUT_ROOT = "kata-runtime"  # keeps its state where it wants
USAGE = "usage: python -m shim ID BUNDLE RUNTIME [info [TIMEOUT]], in the container's state directory"

Which = Callable[[str], str | None]


class Refused(Exception):
    """What was asked for is incomplete or cannot be done. The text names the field and the next step."""


@frozen
class Call:
    """The arguments. The log level has no meaning any more; the timeout is for commands in a running container."""

    id: str
    bundle: str
    runtime: str  # a path, or a name on PATH
    timeout_seconds: int = 0


@frozen
class Process:
    """What process.json says, as far as it matters here."""

    exit_fifo: str
    runtime: str = ""  # the runtime's name among iSulad's, not its path
    runtime_args: tuple[str, ...] = ()
    systemd_cgroup: bool = False
    no_pivot_root: bool = False
    log_path: str = ""
    log_bytes: int = 0  # 0: no bound
    log_files: int = LEAST_LOG_FILES  # the current one included
    owner: tuple[int, int] = (0, 0)  # of the pipes that init gets
    exec: bool = False  # a command in a container that runs
    terminal: bool = False
    size: tuple[int, int] = (0, 0)  # its rows and columns
    open_stdin: bool = False  # a client may attach and write
    stdin: str = ""  # fifos of a client; "" for none
    stdout: str = ""
    stderr: str = ""
    resize: str = ""


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
            raise Refused(f"{name} is not set: iSulad's daemon sets it, and any other starter must")
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
    return Process(
        exit_fifo=_text(document, "exit_fifo"),
        runtime=_text(document, "runtime"),
        runtime_args=_texts(document, "runtimeArgs"),
        systemd_cgroup=_flag(document, "systemdCgroup"),
        no_pivot_root=_flag(document, "noPivotRoot"),
        log_path=_text(document, "logPath"),
        log_bytes=_log_bytes(_whole(document, "logMaxsize")),
        log_files=min(max(_whole(document, "logMaxfile"), LEAST_LOG_FILES), plan.LOG_FILES_MAX),
        owner=(_number(document, "rootUID"), _number(document, "rootGID")),
        exec=_flag(document, "exec"),
        terminal=_flag(document, "terminal"),
        size=_size(document),
        open_stdin=_flag(document, "open_stdin"),
        stdin=_text(document, "isuladStdin"),
        stdout=_text(document, "isuladStdout"),
        stderr=_text(document, "isuladStderr"),
        resize=_text(document, "resizeFifo"),
    )


def plan_of(call: Call, process: Process, environ: Mapping[str, str], cwd: str, which: Which) -> plan.Plan:
    """What the shim of one container, or of one command in it, is to do. Refused; `which` finds a program on PATH."""
    _check(process, cwd)
    program = which(call.runtime)
    if program is None:
        raise Refused(f"RUNTIME {call.runtime}: no such program; install it, or give its path")
    state = posixpath.dirname(posixpath.dirname(cwd)) if process.exec else cwd
    root = [] if process.runtime == WITHOUT_ROOT else ["--root", f"{state}/{process.runtime}"]
    logging = ["--log", f"{cwd}/{RUNTIME_LOG}", "--log-format", "json"]
    logged = (program, *process.runtime_args, *logging, *root)
    made = ("--pid-file", f"{cwd}/{MADE}", *(("--console-socket", plan.CONSOLE) if process.terminal else ()), call.id)
    wanted = plan.Plan(
        id=call.id,
        run=1,
        create=(),
        remove=(),
        pid_file=MADE,
        runtime_log=RUNTIME_LOG,
        create_ms=SET_UP_MS,
        report_last=True,
        tty=process.terminal,
        rows=process.size[0],
        cols=process.size[1],
        sink_out=process.stdout,
        sink_err=process.stderr,
        in_from=process.stdin,
        isulad=True,
        resize=process.resize,
    )
    if process.exec:
        return replace(
            wanted,
            create=(*logged, "exec", "-d", "--process", f"{cwd}/{DOCUMENT}", *made),
            exec_id=posixpath.basename(cwd),
            limit_ms=call.timeout_seconds * 1000,
        )
    no_pivot = ["--no-pivot"] if process.no_pivot_root or environ.get(RAMDISK) else []
    cgroup = ["--systemd-cgroup"] if process.systemd_cgroup else []
    return replace(
        wanted,
        create=(*logged, *cgroup, "create", "--bundle", call.bundle, *no_pivot, *made),
        kill=(program, *process.runtime_args, *root, "kill", "--all", call.id, "SIGKILL"),
        remove=(*logged, "delete", "--force", call.id),
        json_log=process.log_path,
        log_bytes=process.log_bytes,
        log_files=process.log_files,
    )


def _check(process: Process, cwd: str) -> None:
    """Refused when something lacks that there must be."""
    if not process.exec and not process.exit_fifo:
        raise Refused(f"{DOCUMENT}: field 'exit_fifo' is missing")
    if process.exec and posixpath.basename(posixpath.dirname(cwd)) != EXECS:
        raise Refused(f"{cwd}: a command's directory must be STATE/{EXECS}/EXEC-ID")
    if not process.runtime or "/" in process.runtime or process.runtime in (".", ".."):
        raise Refused(f"{DOCUMENT}: field 'runtime' is {process.runtime!r}, must be the runtime's name")
    if len(process.runtime_args) > MOST_RUNTIME_ARGS:
        raise Refused(f"{DOCUMENT}: {len(process.runtime_args)} runtimeArgs, at most {MOST_RUNTIME_ARGS}")


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


_WORDS = {str: "text", bool: "true or false", int: "a whole number", list: "a list", dict: "an object"}


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


def _whole(document: Mapping[str, Any], name: str) -> int:
    value: int = _field(document, name, int, 0)
    return value


def _log_bytes(size: int) -> int:
    """iSulad's own bounds; what is none, or no size, is no bound."""
    return min(max(size, LEAST_LOG_BYTES), 2**63 - 1) if size > 0 else 0


def _size(document: Mapping[str, Any]) -> tuple[int, int]:
    """A terminal's rows and columns, zeros where there are none or no possible ones."""
    console = _field(document, "consoleSize", dict, {})
    rows, cols = _whole(console, "height"), _whole(console, "width")
    possible = 0 < rows <= plan.TTY_SIDE_MAX and 0 < cols <= plan.TTY_SIDE_MAX
    return (rows, cols) if possible else (0, 0)


def _texts(document: Mapping[str, Any], name: str) -> tuple[str, ...]:
    values = _field(document, name, list, [])
    for value in values:
        if not isinstance(value, str):
            raise Refused(f"{DOCUMENT}: field {name!r} holds {value!r}, must be texts")
    return tuple(values)
