"""Complaints about other shims, tried on exitd's alone: what holds an exit back, and what is missed."""

from tests.system import keepers
from tests.system.processes import cgroup_pids, empty_cgroup
from tests.system.waits import until, wait_readable


def test_orphans_that_live_on_do_not_hold_the_exit_back() -> None:
    with keepers.node() as node:
        keeper = node.keeper()
        script = "i=0; while [ $i -lt 30 ]; do setsid sleep 1000 </dev/null & i=$((i+1)); done; exit 5"
        run = keeper.make("orphans", node.bundle("sh", "-c", script, host_pids=True))
        run.start()
        # The orphans hold the output, so the shim goes on for its drain limit: the fifo does not wait for that.
        assert wait_readable(run.fifo_fd)
        recorded = run.record()
        assert recorded is not None and recorded.code == 5
        assert len(cgroup_pids(node.cgroup)) == 30
        run.clean()
        empty_cgroup(node.cgroup)
        keeper.close()


def test_a_child_that_is_faster_than_its_parents_next_call_is_seen() -> None:
    """Every call around the birth of a child returns 100 ms late, so the child has ended by then."""
    with keepers.node() as node:
        keeper = node.keeper()
        calls = "vfork,signalfd4,poll"
        slow = node.traced_shim("-q", "-e", f"trace={calls}", "-e", f"inject={calls}:delay_exit=100000")
        run = keeper.make("fast", node.bundle("true"), shim=slow)
        run.start()
        assert run.ended()
        recorded = until(run.record, "no record")
        assert recorded is not None and recorded.code == 0
        run.clean()
        keeper.close()
