"""Recovers what it can from a container's or an exec's row that cannot be decoded. Pure.

Each field that can be read by itself is kept; the rest comes from the columns, the ledger, the run directory and the
event log. The result is an ordinary container, marked as damaged: it is watched, reported and removed like others, but
it is never started again, and none of its processes is ended before a caller asks for that.
"""

import re
from collections.abc import Collection, Mapping
from typing import Any

from shim.frozen import frozen, replace
from shim.patterns import LatePattern
from supervisor.model.execs import Exec, ExecPhase, ExecSpec
from supervisor.model.values import Container, Exit, Phase, Pod, Process, RunKey, Spec
from supervisor.store import codec
from supervisor.store.codec import Damaged

ID = LatePattern(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,199}", re.ASCII)
TASKS = "containerd/"  # comes before the namespace of a containerd task
# Fields of a spec that would act on a guess.
NEVER_TAKEN = ("restart", "auto_remove", "restart_rules", "health", "probes", "hooks")
OF_A_RUN = ("init", "started_ns", "sandbox_run", "waits_in")
MOST_REASONS = 3
SHIM_PROGRAM = LatePattern(r"containerd-shim-([a-z0-9-]+)-(v[0-9]+)")


@frozen
class Remains:
    """What exists of the container beside its row. Runs are numbers, 0 if there is none.

    `init` and `shim_program` (empty: exitd's own) belong to the run of the newest run directory. `logged_run` is the
    newest run in the event log, `last` the newest exit of the container itself in the ledger; `is_pod`: other
    containers are members of it.
    """

    run_directory: int = 0
    init: Process | None = None
    shim_program: str = ""
    logged_run: int = 0
    last: Exit | None = None
    is_pod: bool = False


def is_possible(row: Damaged) -> bool:
    """Return whether its id can be a container's, since a path is made of it."""
    return ID.fullmatch(row.id) is not None


def is_possible_exec(row: Damaged) -> bool:
    """Return whether an exec's row can be one: its run's number and its own id are parts of a path."""
    return 0 < row.run < codec.MOST and ID.fullmatch(row.exec_id) is not None


def container(row: Damaged, remains: Remains, boot_id: str) -> Container:
    """Return the container that the row most probably was. `boot_id` is the present boot's."""
    row = replace(row, namespace=_text(row.namespace), name=_text(row.name))
    found, why = _readable(row)
    spec, why_spec = _spec(row, remains, found)
    if why_spec:
        why.pop("spec", None)  # reported field by field
    run = _run(found, remains)
    phase = _phase(found, run, remains)
    init = remains.init if remains.run_directory == run else None
    if found.get("run", run) != run:  # the rest of the row is from an earlier run than the directory
        found = {name: value for name, value in found.items() if name not in OF_A_RUN}
    known: dict[str, Any] = {name: found[name] for name in ("started_ns", "sandbox_run", "waits_in") if name in found}
    return Container(
        row.id,
        spec,
        phase,
        run,
        int(str(found.get("created_ns", 0))),
        init=_process(found, "init") or init,
        shim=None,
        exit=remains.last,
        clean=False,
        boot_id=boot_id if remains.run_directory else str(found.get("boot_id", boot_id)),
        damaged=_words(row, why if "" in why else {**why, **why_spec}),
        **known,
    )


def exec_(row: Damaged, init: Process | None, owner: Container, boot_id: str) -> Exec:
    """Return the exec that the row most probably was. `init` is the process that its directory names."""
    found, why = codec.readable(Exec, row.body)
    spec = found.get("spec")
    key = RunKey(row.id, row.run, row.exec_id)
    return Exec(
        key,
        spec if isinstance(spec, ExecSpec) else ExecSpec(("?",)),
        ExecPhase.RUNNING,
        owner.spec.name,
        owner.spec.namespace,
        str(found.get("boot_id", boot_id)),
        pod=owner.id if owner.spec.pod else owner.spec.sandbox,
        init=_process(found, "init") or init,
        error=_words(row, why),
    )


def _readable(row: Damaged) -> tuple[dict[str, object], dict[str, str]]:
    """Return the readable fields, without impossible numbers."""
    found, why = codec.readable(Container, row.body)
    for name, least in (("run", 1), ("created_ns", 0), ("started_ns", 0), ("sandbox_run", 0)):
        value = found.get(name)
        if isinstance(value, int) and not least <= value < codec.MOST:
            del found[name]
            why[name] = "no such number"
    if _process(found, "init") is None and found.pop("init", None) is not None:
        why["init"] = "no process"
    return found, why


def _spec(row: Damaged, remains: Remains, found: Mapping[str, object]) -> tuple[Spec, dict[str, str]]:
    whole = found.get("spec")
    fields, why = codec.readable(Spec, codec.part(row.body, "spec")) if not isinstance(whole, Spec) else ({}, {})
    kept: dict[str, Any] = {name: value for name, value in fields.items() if name not in NEVER_TAKEN}
    blank = Spec(row.name)
    if isinstance(whole, Spec):
        never: dict[str, Any] = {name: getattr(blank, name) for name in NEVER_TAKEN}
        spec = replace(whole, **never)
    else:
        spec = Spec(**{**kept, "name": row.name})
    namespace = row.namespace.removeprefix(TASKS) if spec.task is not None else row.namespace
    spec = replace(spec, name=row.name or row.id[:12], namespace=namespace)
    if remains.is_pod and spec.pod is None:
        spec = replace(spec, pod=Pod(spec.name))
    if remains.shim_program and not spec.runtime_type:
        spec = replace(spec, runtime_path=remains.shim_program, runtime_type=_type_of(remains.shim_program))
    return spec, {f"spec.{name}" if name else "spec": each for name, each in why.items()}


def _type_of(program: str) -> str:
    """Return io.containerd.NAME.vN for containerd-shim-NAME-vN (containerd, runtime/v2/README.md)."""
    found = SHIM_PROGRAM.fullmatch(program.rpartition("/")[2])
    return f"io.containerd.{found[1]}.{found[2]}" if found else "io.containerd.unknown.v2"


def _run(found: Mapping[str, object], remains: Remains) -> int:
    """Return the row's run, unless there is a directory of a later one, which was made after something was stored."""
    run = found.get("run")
    known = run if isinstance(run, int) else max(remains.logged_run, remains.last.key.run if remains.last else 0, 1)
    return max(known, remains.run_directory)


def _phase(found: Mapping[str, object], run: int, remains: Remains) -> Phase:
    """Return the phase. The ledger says whether the run has ended. A run with no event and no files has not begun."""
    phase = found.get("phase")
    if phase is Phase.REMOVING:
        return Phase.REMOVING
    if found.get("run", run) != run:
        phase = None  # of an earlier run
    if remains.last is not None and remains.last.key.run >= run:
        return Phase.EXITED
    if phase in (Phase.EXITED, Phase.RESTARTING):
        return Phase.EXITED
    if phase is Phase.CREATING and not (remains.run_directory == run and remains.init):
        return Phase.CREATING
    if phase is Phase.CREATED:
        return Phase.CREATED
    begun = remains.run_directory == run or remains.logged_run >= run or phase is not None
    return Phase.RUNNING if begun else Phase.EXITED


def _process(found: Mapping[str, object], name: str) -> Process | None:
    process = found.get(name)
    return process if isinstance(process, Process) and codec.is_process(process) else None


def _text(name: str) -> str:
    """Return the text in a form that can be stored: after damage it may not be UTF-8."""
    return name if codec.is_text(name) else ascii(name)[1:-1]


def _words(row: Damaged, why: Mapping[str, str]) -> str:
    reasons = [f"{name}: {each}" if name else each for name, each in why.items()]
    more = f" and {len(reasons) - MOST_REASONS} more" if len(reasons) > MOST_REASONS else ""
    return f"its row cannot be read ({'; '.join(reasons[:MOST_REASONS]) or row.why}{more})"


def pods(containers: Collection[Container], damaged: Collection[Damaged]) -> frozenset[str]:
    """Return the ids that others, damaged ones included, name as their pod."""
    whole = {c.spec.sandbox for c in containers}
    parts = {str(codec.part(codec.part(row.body, "spec"), "sandbox") or "") for row in damaged}
    return frozenset(whole | parts) - {""}
