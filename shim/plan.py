"""What one shim is to do: computed here, written once, obeyed by core/main.c."""

import re
from dataclasses import dataclass

from shim import fields

PLAN_MAX_BYTES = 32768
COMMAND_MAX_WORDS = 71
ID_MAX_BYTES = 127
LIMIT_MAX_MS = 86_400_000
JOIN_MAX = 4
NO_ESCAPE = re.compile(r"[ !#-\[\]-~]*")  # printable ASCII that JSON takes as it is


class BadPlan(ValueError):
    """The plan would not fit the core's bounds."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Paths are absolute or relative to the run directory; limits in milliseconds; "" stands for none."""

    id: str
    run: int
    create: tuple[str, ...]  # the runtime's create command, its program an absolute path
    remove: tuple[str, ...]  # its delete --force
    kill: tuple[str, ...] = ()  # before `remove`, for whoever init left behind
    exec_id: str = ""
    pid_file: str = "pid"
    runtime_log: str = "runtime.log"
    log: str = ""
    oom: str = ""
    keeper: str = ""
    join: tuple[str, ...] = ()  # links to the namespaces whose descriptors the shim is given, while `create` runs
    create_ms: int = 120_000
    remove_ms: int = 10_000
    drain_ms: int = 2_000
    rest_ms: int = 0  # between the report of the exit and `remove`: whoever waits is being told at that moment
    report_last: bool = False  # write the fifo when nothing is left to do, not when init ends


def encode(plan: Plan) -> bytes:
    """The bytes of the run directory's `plan` file; BadPlan when the core would refuse them."""
    for words in (plan.create, plan.remove, *((plan.kill,) if plan.kill else ())):
        if not 0 < len(words) <= COMMAND_MAX_WORDS or not words[0].startswith("/"):
            raise BadPlan(f"a runtime command of {len(words)} words beginning with {words[:1]}")
    for id in (plan.id, plan.exec_id):
        if len(id) > ID_MAX_BYTES or not NO_ESCAPE.fullmatch(id):
            raise BadPlan(f"id {id!r}: at most {ID_MAX_BYTES} printable ASCII characters, no quote, no backslash")
    if not plan.id or not plan.pid_file or not 0 <= plan.run < 2**63:
        raise BadPlan(f"id {plan.id!r}, run {plan.run}, pid file {plan.pid_file!r}: all must be there")
    for limit in (plan.create_ms, plan.remove_ms, plan.drain_ms, plan.rest_ms):
        if not 0 <= limit <= LIMIT_MAX_MS:
            raise BadPlan(f"a limit of {limit} ms, at most a day")
    if len(plan.join) > JOIN_MAX or not all(path.startswith("/") for path in plan.join):
        raise BadPlan(f"join {plan.join}: at most {JOIN_MAX} absolute paths")
    scalars = ("pid_file", "runtime_log", "log", "oom", "keeper", "create_ms", "remove_ms", "drain_ms", "rest_ms")
    data = fields.encode(
        "exitd-plan",
        [
            ("id", plan.id),
            ("run", plan.run),
            ("exec", plan.exec_id),
            *((name, getattr(plan, name)) for name in scalars),
            *(("join", path) for path in plan.join),
            *([("report_last", 1)] if plan.report_last else ()),
            *(("create", word) for word in plan.create),
            *(("kill", word) for word in plan.kill),
            *(("remove", word) for word in plan.remove),
        ],
    )
    if len(data) > PLAN_MAX_BYTES:
        raise BadPlan(f"plan of {len(data)} bytes, at most {PLAN_MAX_BYTES}")
    return data
