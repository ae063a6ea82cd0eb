"""A way that cannot take part says why, and what is left is a report all the same."""

from collections.abc import Callable

from supervisor.compare.contest import Contest
from supervisor.compare.facts import decode, encode
from supervisor.compare.machine import Scratch
from supervisor.compare.plan import Plan
from supervisor.compare.way import Driver
from supervisor.compare.ways import WAYS


def refused(key: str) -> Callable[[Scratch], Driver]:
    def make(scratch: Scratch) -> Driver:
        raise RuntimeError(f"no {key}\n  on this machine")

    return make


def test_a_report_without_anybody_has_every_ways_reason_and_no_figures() -> None:
    said: list[str] = []
    contest = Contest(Scratch("", "", {}), Plan(), said.append, refused)
    contest.run()
    report = contest.report([("kernel", "6.18")])
    assert decode(encode(report)) == report
    assert [way.key for way in report.ways] == [way.key for way in WAYS]
    assert all(way.why_not == f"no {way.key} on this machine" or "not installed" in way.why_not for way in report.ways)
    assert (report.memory, report.latencies, report.storms, report.restarts, report.faults) == ((), (), (), (), ())
    assert len(said) == len(WAYS)


def test_only_the_ways_that_were_asked_for_are_in_the_report() -> None:
    contest = Contest(Scratch("", "", {}), Plan(ways=("containerd-runc",)), lambda _: None, refused)
    contest.run()
    assert [way.key for way in contest.report([]).ways] == ["containerd-runc"]
