"""Counts of ends, by what they have in common."""

from hypothesis import given
from hypothesis import strategies as st

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.cli import tally
from supervisor.cli.spoken import moment
from supervisor.cli.tally import Tally

ENDS = (
    pb.Exit(
        kind="exited",
        code=0,
        reason="self",
        names=pb.Names(namespace="a", pod="p", container="c", image="i"),
        at=moment(5),
    ),
    pb.Exit(
        kind="exited",
        code=3,
        reason="self",
        names=pb.Names(namespace="a", pod="p", container="d", image="i"),
        at=moment(9),
    ),
    pb.Exit(kind="signaled", signal=9, reason="oom", names=pb.Names(namespace="a", pod="q", image="i"), at=moment(7)),
    pb.Exit(kind="signaled", signal=15, reason="stop", name="alone", at=moment(1)),
    pb.Exit(kind="unknown", cause="host-rebooted", name="alone", at=moment(2)),
    pb.Exit(kind="exited", code=1, exec_id="e", name="alone", at=moment(3)),
)


def test_each_end_of_a_container_is_counted_once_the_most_frequent_first() -> None:
    assert tally.tallies(ENDS, "pod") == [
        Tally("-", ends=2, signaled=1, unknown=1, last_ns=2),
        Tally("a/p", ends=2, ok=1, failed=1, last_ns=9),
        Tally("a/q", ends=1, oom=1, last_ns=7),
    ]
    assert [(each.name, each.ends) for each in tally.tallies(ENDS, "image")] == [("i", 3), ("-", 2)]
    assert [each.name for each in tally.tallies(ENDS, "container")] == ["alone", "-", "c", "d"]
    assert [each.name for each in tally.tallies(ENDS, "reason")] == ["self", "-", "oom", "stop"]
    assert [each.name for each in tally.tallies(ENDS, "namespace")] == ["a", "-"]


@given(st.lists(st.sampled_from(ENDS)), st.sampled_from([*tally.KEYS]))
def test_the_kinds_add_up_to_the_ends(ends: list[pb.Exit], key: str) -> None:
    found = tally.tallies(ends, key)
    assert sum(each.ends for each in found) == sum(not each.exec_id for each in ends)
    for each in found:
        assert each.ends == each.ok + each.failed + each.signaled + each.oom + each.unknown
        assert len(tally.row(each)) == len(tally.headings(key))
        assert tally.document(each, key)["Ends"] == each.ends
