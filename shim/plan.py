"""What one shim is to do: computed here, written once, obeyed by core/main.c."""

from shim import fields
from shim.frozen import fields_of, frozen
from shim.patterns import LatePattern

PLAN_MAX_BYTES = 32768
COMMAND_MAX_WORDS = 71
ID_MAX_BYTES = 127
LIMIT_MAX_MS = 86_400_000
JOIN_MAX = 4
CGROUPS_MAX = 24
BUFFER_MIN_BYTES, BUFFER_BYTES, BUFFER_MAX_BYTES = 65_536, 1_048_576, 2**30
LOG_FILES_MAX = 1000
TTY_SIDE_MAX = 65_535
LOG_MODES = ("blocking", "non-blocking")
CONSOLE = "@console"  # as a word of `create`: the path of the socket that brings the shim the tty's master
NO_ESCAPE = LatePattern(r"[ !#-\[\]-~]*")  # printable ASCII that JSON takes as it is


class BadPlan(ValueError):
    """The plan would not fit the core's bounds."""


@frozen
class Plan:
    """Paths are absolute or relative to the run directory; limits in milliseconds; "" stands for none.

    Where pid file and log are absolute, as `create` names them too, the shim has the runtime write both in memory
    (core/answers.c).
    """

    id: str
    run: int
    create: tuple[str, ...]  # the runtime's create command, its program an absolute path; empty only with `follow`
    remove: tuple[str, ...]  # its delete --force; empty (an exec): nothing is removed at the end
    kill: tuple[str, ...] = ()  # before `remove`, for what init left behind
    exec_id: str = ""
    pid_file: str = "pid"
    runtime_log: str = "runtime.log"
    log: str = ""
    oom: str = ""
    memcg: str = ""  # the cgroup as the kernel's log names it, which is read when the counter at `oom` has gone
    keeper: str = ""
    join: tuple[str, ...] = ()  # links to the namespaces whose descriptors the shim is given, while `create` runs
    cgroup: tuple[str, ...] = ()  # its directories, where what is left dies when init has ended
    create_ms: int = 120_000
    remove_ms: int = 10_000
    drain_ms: int = 2_000
    rest_ms: int = 0  # from the report of the exit to `remove`, unless exitd says before that its clients know of it
    report_last: bool = False  # write the fifo when nothing is left to do, not when init ends
    tty: bool = False  # the output comes from a terminal's master, and the input goes there
    rows: int = 0  # the terminal's first size
    cols: int = 0
    json_log: str = ""  # `log` is the file in the CRI's format, this one in json-file's
    log_bytes: int = 0  # a log file that would grow beyond is rotated; 0: never
    log_files: int = 1  # how many are kept, the current one included
    sink_out: str = ""  # fifos of a foreign client
    sink_err: str = ""
    in_from: str = ""
    logger: tuple[str, ...] = ()  # a program that gets the output at its descriptors 3 and 4
    logger_env: tuple[str, ...] = ()  # NAME=value
    log_mode: str = "blocking"  # what a full buffer stops: the container, or with `non-blocking` nothing
    buffer: int = BUFFER_BYTES  # of each descriptor that the output is written to
    hold_ms: int = 0  # the output is not read before the first attach came, at most this long
    isulad: bool = False  # what core/isulad.c does
    resize: str = ""  # there: a fifo that a terminal's sizes come from
    limit_ms: int = 0  # there: of a command's life; 0: none
    handled: bool = False  # the runtime runs the program itself: that init has executed nothing says nothing
    follow: bool = False  # another's container: its streams are moved until it is said to have ended


DEFAULTS = {name: default for name, (_, default) in fields_of(Plan).items()}
LATER = (
    *("log_bytes", "log_files", "buffer", "hold_ms", "rows", "cols", "limit_ms"),
    *("json_log", "sink_out", "sink_err", "in_from", "log_mode", "resize", "memcg"),
)
SWITCHES = ("report_last", "tty", "isulad", "follow", "handled")
LISTS = ("join", "cgroup", "logger", "logger_env", "create", "kill", "remove")


def encode(plan: Plan) -> bytes:
    """The bytes of the run directory's `plan` file; BadPlan when the core would refuse them.

    What came after the first version is left out where it says nothing, so that an older core reads the rest.
    """
    _check_words(plan)
    _check_streams(plan)
    for id in (plan.id, plan.exec_id):
        if len(id) > ID_MAX_BYTES or not NO_ESCAPE.fullmatch(id):
            raise BadPlan(f"id {id!r}: at most {ID_MAX_BYTES} printable ASCII characters, no quote, no backslash")
    if not plan.id or not plan.pid_file or not 0 <= plan.run < 2**63:
        raise BadPlan(f"id {plan.id!r}, run {plan.run}, pid file {plan.pid_file!r}: all must be there")
    for limit in (plan.create_ms, plan.remove_ms, plan.drain_ms, plan.rest_ms, plan.hold_ms, plan.limit_ms):
        if not 0 <= limit <= LIMIT_MAX_MS:
            raise BadPlan(f"a limit of {limit} ms, at most a day")
    scalars = ("pid_file", "runtime_log", "log", "oom", "keeper", "create_ms", "remove_ms", "drain_ms", "rest_ms")
    data = fields.encode(
        "exitd-plan",
        [
            ("id", plan.id),
            ("run", plan.run),
            ("exec", plan.exec_id),
            *[(name, getattr(plan, name)) for name in scalars],
            *[(name, getattr(plan, name)) for name in LATER if getattr(plan, name) != DEFAULTS[name]],
            *[(name, 1) for name in SWITCHES if getattr(plan, name)],
            *[(name, word) for name in LISTS for word in getattr(plan, name)],
        ],
    )
    if len(data) > PLAN_MAX_BYTES:
        raise BadPlan(f"plan of {len(data)} bytes, at most {PLAN_MAX_BYTES}")
    return data


def _check_words(plan: Plan) -> None:
    """The commands, and what else stands more than once."""
    if not plan.create and not plan.follow:
        raise BadPlan("no command that creates the container")
    for words in filter(None, (plan.create, plan.remove, plan.kill, plan.logger)):
        if not 0 < len(words) <= COMMAND_MAX_WORDS or not words[0].startswith("/"):
            raise BadPlan(f"a command of {len(words)} words beginning with {words[:1]}")
    for name, paths, most in (("join", plan.join, JOIN_MAX), ("cgroup", plan.cgroup, CGROUPS_MAX)):
        if len(paths) > most or not all(path.startswith("/") for path in paths):
            raise BadPlan(f"{name} {paths}: at most {most} absolute paths")
    if len(plan.logger_env) > COMMAND_MAX_WORDS or not all(word.find("=") > 0 for word in plan.logger_env):
        raise BadPlan(f"logger_env {plan.logger_env}: at most {COMMAND_MAX_WORDS} of NAME=value")


def _check_streams(plan: Plan) -> None:
    bounds = (
        ("log_bytes", 0, 2**63 - 1),
        ("log_files", 1, LOG_FILES_MAX),
        ("buffer", BUFFER_MIN_BYTES, BUFFER_MAX_BYTES),
        ("rows", 0, TTY_SIDE_MAX),
        ("cols", 0, TTY_SIDE_MAX),
    )
    for name, least, most in bounds:
        if not least <= getattr(plan, name) <= most:
            raise BadPlan(f"{name} of {getattr(plan, name)}: {least} to {most}")
    if plan.log_mode not in LOG_MODES:
        raise BadPlan(f"log_mode {plan.log_mode!r}: one of {', '.join(LOG_MODES)}")
