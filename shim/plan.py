"""What one shim is to do: computed here, written once, obeyed by core/main.c."""

from dataclasses import dataclass

from shim import fields

PLAN_MAX_BYTES = 32768
COMMAND_MAX_WORDS = 47
ID_MAX_BYTES = 127


class BadPlan(ValueError):
    """The plan would not fit the core's bounds."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Paths are absolute or relative to the run directory; limits in milliseconds; "" stands for none."""

    id: str
    run: int
    create: tuple[str, ...]  # the runtime's create command, its program an absolute path
    remove: tuple[str, ...]  # its delete --force
    exec_id: str = ""
    pid_file: str = "pid"
    runtime_log: str = "runtime.log"
    log: str = ""
    oom: str = ""
    keeper: str = ""
    create_ms: int = 120_000
    remove_ms: int = 10_000
    drain_ms: int = 2_000


def encode(plan: Plan) -> bytes:
    """The bytes of the run directory's `plan` file; BadPlan when the core would refuse them."""
    for words in (plan.create, plan.remove):
        if not 0 < len(words) <= COMMAND_MAX_WORDS or not words[0].startswith("/"):
            raise BadPlan(f"a runtime command of {len(words)} words beginning with {words[:1]}")
    if not plan.id or max(len(plan.id.encode()), len(plan.exec_id.encode())) > ID_MAX_BYTES:
        raise BadPlan(f"id {plan.id!r} or exec id {plan.exec_id!r}: 1 to {ID_MAX_BYTES} bytes")
    scalars = ("pid_file", "runtime_log", "log", "oom", "keeper", "create_ms", "remove_ms", "drain_ms")
    data = fields.encode(
        "exitd-plan",
        [
            ("id", plan.id),
            ("run", plan.run),
            ("exec", plan.exec_id),
            *((name, getattr(plan, name)) for name in scalars),
            *(("create", word) for word in plan.create),
            *(("remove", word) for word in plan.remove),
        ],
    )
    if len(data) > PLAN_MAX_BYTES:
        raise BadPlan(f"plan of {len(data)} bytes, at most {PLAN_MAX_BYTES}")
    return data
