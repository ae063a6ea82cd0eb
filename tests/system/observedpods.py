"""Pods whose members write down how they end, and the comparison with what exitd says of all their containers."""

import contextlib
import pathlib
import signal
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from protos.exitd.v1 import exitd_pb2 as pb
from shim import native
from supervisor.api.client import Client
from supervisor.model.errors import ExitdError, NameTaken
from supervisor.monitor.rundir import created, lock_holder
from tests.system import oracle
from tests.system.daemons import Daemon
from tests.system.lives import ledger, word
from tests.system.oracle import WHEN_TOLD, Revived, Subject
from tests.system.waits import LIMIT_SECONDS, until

READY, NOT_READY = "SANDBOX_READY", "SANDBOX_NOTREADY"
# What the pause program can end with: SIGTERM ends it with 0, and no test sends it anything else but SIGKILL.
PAUSE_ENDS = {"exited 0", f"signaled {signal.SIGKILL:d}"}


@dataclass
class Pod:
    """A pod under observation. Members find it by its name."""

    name: str
    spec: pb.ContainerSpec
    members: list[Subject] = field(default_factory=list)
    id: str = ""


def observed(daemon: Daemon, *members: dict[str, Any], **fields: Any) -> Pod:
    """`members`: what each has besides; by default they wait to be told and end with 43, 53, ..."""
    name = oracle.fresh_name()
    pod = Pod(name, pb.ContainerSpec(image="pause", name=name, **fields))
    for number, extra in enumerate(members):
        has: dict[str, Any] = {"before_end": WHEN_TOLD, "code": 43 + 10 * number, "stop_timeout_seconds": 0, **extra}
        pod.members.append(oracle.observed(daemon, f"{name}-{number}", sandbox=name, **has))
    return pod


def ready(up: Revived, pod: Pod) -> None:
    """Run, whatever is killed meanwhile: asked until there is one that is Ready, and never two."""
    refused = Counter[str]()

    def ask() -> bool:
        try:
            pod.id = up.call(lambda client: client.run_pod(pod.spec)).id
        except NameTaken:
            known = up.patiently(lambda client: oracle.by_name(client, pod.name))
            pod.id = known.id if known is not None else ""
            if known is not None and known.phase in (pb.PHASE_CREATED, pb.PHASE_EXITED):
                with contextlib.suppress(ExitdError):
                    up.call(lambda client: client.start(pod.id))
        except ExitdError as error:
            refused[f"{type(error).__name__}: {error}"] += 1
            return False
        return bool(pod.id) and state(up, pod) == READY

    try:
        until(ask, f"{pod.name} does not become ready", LIMIT_SECONDS * 2)
    except AssertionError as error:
        error.add_note(str(refused))
        raise


def state(up: Revived, pod: Pod) -> str:
    """Empty when it has gone."""
    return up.patiently(lambda client: next((p.state for p in client.pods() if p.id == pod.id), ""))


def begun(up: Revived, pod: Pod) -> None:
    """Its members run and have noted it, but for one whose start was broken off in the middle (see oracle.judge)."""
    for member in pod.members:
        oracle.created(up, member)
        oracle.started(up, member)
    for member in pod.members:
        until(lambda m=member: m.truth() or oracle.phase(up, m) == pb.PHASE_EXITED, f"{member.name} does not begin")  # type: ignore[misc]


def run(up: Revived, pod: Pod) -> None:
    """Ready, and its members run."""
    ready(up, pod)
    begun(up, pod)


def pause_of(daemon: Daemon, pod: Pod) -> int:
    """The pid of its pause process."""
    with daemon.client() as client:
        return client.inspect(pod.id).init.pid


def waits(member: Subject) -> bool:
    """To be told to end."""
    return WHEN_TOLD in member.spec.args and None in member.truth().values()


def stopped(up: Revived, pod: Pod) -> None:
    def ask() -> bool:
        with contextlib.suppress(ExitdError):
            up.call(lambda client: client.stop_pod(pod.id, 0))
        return state(up, pod) in (NOT_READY, "") and all(
            oracle.phase(up, member) in (0, pb.PHASE_EXITED) for member in pod.members if member.id
        )

    until(ask, f"{pod.name} is not stopped", LIMIT_SECONDS * 2)


def removed(up: Revived, pod: Pod) -> None:
    """With its members, which are not asked to go one by one."""

    def ask() -> bool:
        with contextlib.suppress(ExitdError):
            up.call(lambda client: client.remove_pod(pod.id, force=True))
        return all(oracle.phase(up, Subject("", pathlib.Path(), pod.spec, id)) == 0 for id in ids(pod))

    until(ask, f"{pod.name} is not removed", LIMIT_SECONDS * 2)


def ids(pod: Pod) -> list[str]:
    return [id for id in (pod.id, *(member.id for member in pod.members)) if id]


def judge(client: Client, pod: Pod, case: str = "") -> Counter[str]:
    """Of every container of the pod: nothing invented, lost, doubled. Returns the answers, counted."""
    said = judge_pause(client, pod.id, case)
    for member in pod.members:
        if member.id:
            said += oracle.judge(client, member, case)
    return said


def judge_pause(client: Client, id: str, case: str = "") -> Counter[str]:
    """It writes nothing down: what it can end with is known instead."""
    rows = ledger(client, id)
    about = f"{case} pause {id[:12]}: {[(row.run, word(row), row.source, row.reason) for row in rows]}"
    assert len({row.run for row in rows}) == len(rows), f"duplicated: {about}"
    assert len({(row.init.pid, row.init.started_ticks) for row in rows}) == len(rows), f"one init twice: {about}"
    for row in rows:
        known = word(row) in PAUSE_ENDS and row.source != "none"
        assert known or (row.kind == "unknown" and row.cause), f"invented: {about}"
    oracle.agree(client, id, rows, about)
    return Counter(f"{oracle.kind(row)} by {row.source}" for row in rows)


def reasons(client: Client, subject: Subject) -> list[str]:
    """Why each of its runs ended, in their order."""
    return [row.reason for row in ledger(client, subject.id)]


def newest_run(daemon: Daemon) -> pathlib.Path:
    """Of the container that was made last: `<state>/c/<id>/<run>`."""
    return max((daemon.state / "c").glob("*/*"), key=lambda path: path.stat().st_ctime_ns)


def init_in(run_directory: pathlib.Path) -> int:
    """As the shim noted it; or the runtime, in the shim's file system in memory, before its create has returned."""

    def noted() -> int:
        if (init := created(str(run_directory))) is not None:
            return init.pid
        shim = lock_holder(str(run_directory))
        files = pathlib.Path(f"/proc/{shim.pid}/fd").glob("*/pid") if shim is not None else ()
        return int(next((path.read_text() for path in files), "") or 0)

    return until(noted, f"no init in {run_directory}")


def executed(init: int) -> None:
    """Its program has begun. The runtime's start may return a moment before that: who is killed then never began."""
    until(lambda: native.has_executed(init, native.process_stat(init)[2]), f"{init} does not execute its program")
