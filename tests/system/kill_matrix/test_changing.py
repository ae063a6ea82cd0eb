"""exitd, the runtime or the container is killed while a container gets other limits; exitd also while it gets another
name and is stopped. Afterwards what is stored is what is in force."""

import contextlib
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.model.errors import ExitdError
from tests.system import limits, oracle
from tests.system.daemons import Daemon, spec
from tests.system.kill_matrix.calls import killed_at_each
from tests.system.kill_matrix.table import Case, cases, row
from tests.system.lives import ledger, types
from tests.system.oracle import Revived
from tests.system.processes import killed
from tests.system.runtimes import Gates
from tests.system.waits import LIMIT_SECONDS, until

OLD, NEW = (
    {"memory": str(64 << 20), "cpu": "50000", "pids": "50"},
    {"memory": str(80 << 20), "cpu": "75000", "pids": "60"},
)
FIELDS = {"memory_bytes": 64 << 20, "cpu_limit_milli": 500}


def update(id: str) -> pb.UpdateRequest:
    return pb.UpdateRequest(id=id, memory_bytes=80 << 20, cpu_limit_milli=750, pids_limit=60, restart="no")


def looked_up(up: Revived, id: str) -> pb.Container:
    until(lambda: not up.patiently(lambda client: client.inspect(id)).recovering, "its look-up")
    return up.patiently(lambda client: client.inspect(id))


def in_force(up: Revived, id: str) -> dict[str, str]:
    """What is stored, which is what the kernel has."""
    found = limits.stored(looked_up(up, id))
    has = limits.limits_of(id)
    assert found == {name: has[name] for name in found}, (found, has)
    return found


@pytest.mark.parametrize("case", cases("update"), ids=str)
def test_whoever_is_killed_in_an_update_what_is_stored_is_what_is_in_force(
    daemon: Daemon, gates: Gates, case: Case
) -> None:
    up = Revived(daemon)
    with daemon.client() as client:
        fields = {**FIELDS, "rights": pb.RightsSpec(pids_limit=50), "runtime": str(gates.runtime)}
        id = client.create(spec("sleep", "1000", **fields)).id
        init = client.start(id).init.pid
    gates.close(case.moment)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(up.call, lambda client: client.update(update(id)))
        command = gates.reached(case.moment)
        killed({"exitd": daemon.pid, "runtime": command, "init": init}[case.victim])
        gates.open()
        error = asked.exception(LIMIT_SECONDS)
    up.revive()
    with daemon.client() as client:
        if case.victim == "init":
            assert error is None and limits.stored(client.inspect(id)) == NEW
            assert ledger(client, id)[-1].signal == 9
            client.start(id)
        # exitd finishes what it had begun; what the runtime did not do is taken back.
        assert in_force(up, id) == (OLD if case.victim == "runtime" else NEW)
        assert types(client, id).count("update") == (case.victim != "runtime")
        client.update(update(id))
        assert in_force(up, id) == NEW
        client.remove(id, force=True)


@dataclass
class Changed:
    """What is left to see of a container that is gone."""

    names: tuple[str, str]
    shown: pb.Container
    holders: list[str]  # of either name
    events: list[str]
    ends: list[pb.Exit]


def life(daemon: Daemon) -> Changed:
    """Each change is asked for once; the answer may be lost."""
    up, names = Revived(daemon), (oracle.fresh_name(), oracle.fresh_name())
    subject = oracle.observed(daemon, names[0], oracle.WHEN_TOLD, rights=pb.RightsSpec(pids_limit=50), **FIELDS)
    oracle.created(up, subject)
    oracle.started(up, subject)
    for change in (
        lambda client: client.rename(subject.id, names[1]),
        lambda client: client.update(update(subject.id)),
    ):
        with contextlib.suppress(ExitdError):
            up.call(change)
    assert in_force(up, subject.id) in (OLD, NEW)
    up.patiently(lambda client: client.stop(subject.id, 0, "QUIT"))
    changed = Changed(
        names,
        up.patiently(lambda client: client.inspect(subject.id)),
        [each.id for each in up.patiently(lambda client: client.list(all_of_them=True)) if each.spec.name in names],
        up.patiently(lambda client: types(client, subject.id)),
        up.patiently(lambda client: ledger(client, subject.id)),
    )
    oracle.removed(up, subject)
    return changed


def judge(daemon: Daemon, changed: Changed, case: str) -> Counter[str]:
    name, (exit_,) = changed.shown.spec.name, changed.ends
    assert name in changed.names and changed.holders == [changed.shown.id], case
    assert (exit_.reason, exit_.kind, exit_.signal, exit_.name) == ("stop", "signaled", 9, name), case
    renamed, updated = name == changed.names[1], limits.stored(changed.shown) == NEW
    assert (changed.events.count("rename"), changed.events.count("update")) == (renamed, updated), case
    with daemon.client() as client:
        for each in changed.names:  # free, whichever it had
            client.remove(client.create(spec("true", name=each)).id, force=True)
    oracle.nothing_left(daemon)
    return Counter([f"renamed {renamed}, updated {updated}"])


def test_exitd_killed_at_any_system_call_of_changes_leaves_the_old_or_the_new_and_nothing_between(
    daemon: Daemon,
) -> None:
    said = killed_at_each(
        daemon, row("changes, at calls").count, lambda: life(daemon), lambda lived, case: judge(daemon, lived, case)
    )
    assert "renamed True, updated True" in said, said
