"""Complaints about other shims, tried on exitd's alone: what holds an exit back, and what is missed."""

from tests.system import shimrig
from tests.system.daemonrig import until
from tests.system.shimrig import wait_readable


def test_orphans_that_live_on_do_not_hold_the_exit_back() -> None:
    with shimrig.rig() as rig:
        keeper = rig.keeper()
        script = "i=0; while [ $i -lt 30 ]; do setsid sleep 1000 </dev/null & i=$((i+1)); done; exit 5"
        run = keeper.make("orphans", rig.bundle("sh", "-c", script, host_pids=True))
        run.start()
        # The orphans hold the output, so the shim goes on for its drain limit: the fifo does not wait for that.
        assert wait_readable(run.fifo_fd)
        recorded = run.record()
        assert recorded is not None and recorded.code == 5
        assert len(shimrig.cgroup_pids(rig.cgroup)) == 30
        run.clean()
        shimrig.empty_cgroup(rig.cgroup)
        keeper.close()


def test_a_child_that_is_faster_than_its_parents_next_call_is_seen() -> None:
    """Every call around the birth of a child returns 100 ms late, so the child has ended by then."""
    with shimrig.rig() as rig:
        keeper = rig.keeper()
        calls = "vfork,signalfd4,poll"
        slow = rig.traced_shim("-q", "-e", f"trace={calls}", "-e", f"inject={calls}:delay_exit=100000")
        run = keeper.make("fast", rig.bundle("true"), shim=slow)
        run.start()
        assert run.ended()
        recorded = until(run.record, "no record")
        assert recorded is not None and recorded.code == 0
        run.clean()
        keeper.close()
