"""exitd is killed at its system calls while a liveness probe ends a container that does not heed the stop signal: the
end is completed with its reason, its hook is begun once at most, and the next run is not hit."""

import pathlib
import tempfile
from dataclasses import dataclass

import pytest

from protos.exitd.v1 import exitd_pb2 as pb
from tests.system import oracle
from tests.system.daemons import Daemon, spec
from tests.system.kill_matrix.calls import calls_of, chosen, hit_at
from tests.system.kill_matrix.table import row
from tests.system.lives import types
from tests.system.oracle import Revived
from tests.system.waits import until

pytestmark = pytest.mark.observed()
DEAF = "echo >>/mnt/runs; trap 'echo term >>/mnt/said' TERM; while :; do sleep 0.02; done"
# The first run alone is: however late the sign is taken away, the second one is well.
SICK = "test ! -e /mnt/sick || test $(wc -l </mnt/runs) -gt 1"


@dataclass(frozen=True)
class Patient:
    id: str
    share: pathlib.Path

    def said(self) -> list[str]:
        path = self.share / "said"
        return path.read_text().split() if path.exists() else []


def well(up: Revived) -> Patient:
    """One that runs, and whose probe has succeeded."""
    share = pathlib.Path(tempfile.mkdtemp(prefix="share-", dir=up.daemon.base))
    probe = pb.ProbeSpec(args=["sh", "-c", SICK], interval_ns=10**8, timeout_ns=20 * 10**9, failures=1)
    probe.grace_seconds = 1
    wanted = spec(
        *("sh", "-c", DEAF),
        restart="always",
        probes=pb.ProbesSpec(liveness=probe),
        hooks=pb.HooksSpec(pre_stop=pb.HookSpec(args=["sh", "-c", "echo pre >>/mnt/said"])),
        mounts=[pb.Mount(source=str(share), destination="/mnt")],
    )
    with up.daemon.client() as client:
        id = client.create(wanted).id
        client.start(id)
        until(lambda: client.inspect(id).probes.liveness.status == "healthy", "no probe has succeeded")
    return Patient(id, share)


def ended(up: Revived, patient: Patient) -> None:
    """From the first sign of sickness to the second run."""
    (patient.share / "sick").touch()
    # Once that is stored no probe begins any more in this run. What it hears before SIGKILL depends on how long exitd
    # was away.
    until(lambda: "health" in up.patiently(lambda client: types(client, patient.id)), "no end begun")
    (patient.share / "sick").unlink()

    def is_back() -> bool:
        now = up.patiently(lambda client: client.inspect(patient.id))
        return now.run > 1 and now.phase == pb.PHASE_RUNNING and not now.recovering

    until(is_back, "no second run")


def judge(up: Revived, patient: Patient, case: str) -> None:
    with up.daemon.client() as client:
        (only,) = client.exits(pb.ExitsRequest(id=patient.id))
        assert (only.run, only.signal, only.reason, only.by.policy) == (1, 9, "health", "liveness-probe"), case
        assert patient.said().count("pre") <= 1, case
        assert client.inspect(patient.id).run >= 2, case  # more where exitd was killed while it made one
        client.remove(patient.id, force=True)


def test_exitd_killed_at_any_system_call_of_an_end_by_a_probe_completes_it_and_hits_no_other_run(
    daemon: Daemon,
) -> None:
    up, deaths = Revived(daemon), 0
    first = well(up)
    calls = calls_of(daemon, lambda: ended(up, first))
    judge(up, first, "the first")
    for call in chosen(calls, row("an end by a probe, at calls").count):
        patient, before = well(up), daemon.pid
        with hit_at(daemon, call):
            ended(up, patient)
        deaths += daemon.pid != before
        judge(up, patient, f"{call[0]} {call[1]}")
    assert deaths, "no kill came in time"
    oracle.nothing_left(daemon)
