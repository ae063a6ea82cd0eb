"""The plan of a run, as a foreign client's streams change it."""

import pytest

from shim import plan
from supervisor.model.values import ForeignStreams
from supervisor.monitor import kmsg
from supervisor.runtime.oci import runplan

WANTED = plan.Plan(id="box", run=1, create=("/runc",), remove=(), drain_ms=runplan.DRAIN_MS, logger=("/journald",))


def test_without_a_foreign_client_the_plan_is_as_it_was() -> None:
    assert runplan.with_foreign(WANTED, ForeignStreams()) is WANTED


def test_a_clients_paths_take_the_place_of_the_logs_program() -> None:
    made = runplan.with_foreign(WANTED, ForeignStreams(out="/out", err="/err", stdin="/in"))
    assert (made.sink_out, made.sink_err, made.in_from, made.logger) == ("/out", "/err", "/in", ())
    made = runplan.with_foreign(WANTED, ForeignStreams(stdin="/in"))
    assert (made.in_from, made.logger) == ("/in", WANTED.logger)


def test_a_clients_program_takes_its_place_too() -> None:
    foreign = ForeignStreams(stdin="/in", logger=("/logger", "a", "b"), logger_env=("A=b",))
    made = runplan.with_foreign(WANTED, foreign)
    assert (made.logger, made.logger_env, made.in_from) == (("/logger", "a", "b"), ("A=b",), "/in")
    assert (made.sink_out, made.sink_err) == ("", "")


def test_whoever_reads_or_writes_the_last_of_the_output_has_time_for_it() -> None:
    streams = (ForeignStreams(stdin="/in"), ForeignStreams(out="/out"), ForeignStreams(logger=("/logger",)))
    drains = [runplan.with_foreign(WANTED, each).drain_ms for each in streams]
    assert drains == [1_000, 8_000, 10_000]
    assert [runplan.leaves_seconds(each) for each in streams] == [2, 9, 11]


@pytest.mark.parametrize(
    ("cgroup", "knows", "path"),
    [
        ("system.slice:exitd:box", True, "/system.slice/exitd-box.scope"),
        ("system.slice:exitd:box", False, ""),  # a shim in a pid namespace of its own reads the numbers of others
        ("/exitd/box", True, ""),  # only exitd removes that one, and its counter is read
    ],
)
def test_the_shim_of_a_scope_reads_the_kernels_log(
    cgroup: str, knows: bool, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kmsg, "has_the_logs_numbers", lambda: knows)
    assert runplan.memcg(cgroup) == path
