"""What an update makes of a spec."""

import pytest

from supervisor.model.changes import applied, limits_in
from supervisor.model.errors import BadRequest
from supervisor.model.limits import NO_SWAP_LIMIT, Change, ContainerLimits
from supervisor.model.rights import Rights
from supervisor.model.values import Pod, Policy, RestartPolicy, Spec

MIB = 1 << 20
LIMITED = Spec(
    name="web",
    memory_bytes=64 * MIB,
    cpu_limit_milli=500,
    limits=ContainerLimits(
        memory_reservation_bytes=32 * MIB, memory_swap_bytes=96 * MIB, cpu_shares=7, cpuset_cpus="0", cpuset_mems="0"
    ),
    rights=Rights(pids_limit=9, cap_add=("CAP_BPF",)),
    restart=RestartPolicy(Policy.ALWAYS),
)


def test_what_is_not_named_stays_and_what_is_named_is_what_it_says() -> None:
    assert applied(LIMITED, Change()) == LIMITED
    changed = applied(LIMITED, Change(memory_bytes=80 * MIB, cpuset_cpus="", pids_limit=0, restart="on-failure:2"))
    assert (changed.memory_bytes, changed.limits.memory_swap_bytes) == (80 * MIB, 96 * MIB)
    assert (changed.limits.cpuset_cpus, changed.limits.cpuset_mems, changed.limits.cpu_shares) == ("", "0", 7)
    assert changed.rights == Rights(pids_limit=0, cap_add=("CAP_BPF",))
    assert changed.restart == RestartPolicy(Policy.ON_FAILURE, 2)
    assert (changed.name, changed.cpu_limit_milli) == ("web", 500)


def test_without_a_memory_limit_there_is_no_limit_of_swap_either() -> None:
    assert applied(LIMITED, Change(memory_bytes=0)).limits.memory_swap_bytes is None
    assert applied(LIMITED, Change(memory_swap_bytes=0)).limits.memory_swap_bytes is None
    assert applied(LIMITED, Change(memory_swap_bytes=NO_SWAP_LIMIT)).limits.memory_swap_bytes == NO_SWAP_LIMIT


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (Change(memory_bytes=16 * MIB), "memory_reservation_bytes"),
        (Change(memory_bytes=100 * MIB), "memory_swap_bytes"),
        (Change(memory_swap_bytes=63 * MIB), "memory_swap_bytes"),
        (Change(memory_bytes=0, memory_swap_bytes=64 * MIB), "memory_swap_bytes"),
    ],
)
def test_values_that_contradict_those_that_stay_are_refused_by_name(change: Change, field: str) -> None:
    with pytest.raises(BadRequest, match=field):
        applied(LIMITED, change)


def test_a_policy_that_contradicts_automatic_removal_is_refused() -> None:
    with pytest.raises(BadRequest):
        applied(Spec(name="web", auto_remove=True), Change(restart="always"))


def test_a_pods_limits_are_its_own_and_other_limits_are_its_containers() -> None:
    pause = Spec(name="pause", pod=Pod(memory_bytes=9 * MIB, pids_limit=9))
    changed = applied(pause, Change(memory_bytes=0, cpu_limit_milli=250, restart="always"))
    assert changed.pod == Pod(memory_bytes=0, pids_limit=9, cpu_limit_milli=250)
    assert (changed.memory_bytes, changed.cpu_limit_milli) == (0, 0)
    assert changed.restart == RestartPolicy(Policy.ALWAYS)
    with pytest.raises(BadRequest, match="cpu_shares: a pod has"):
        applied(pause, Change(cpu_shares=5))


def test_the_limit_of_swap_follows_that_of_memory_and_the_policy_is_no_limit() -> None:
    assert limits_in(Change(restart="no")) == ()
    assert limits_in(Change(memory_bytes=0, pids_limit=0)) == ("memory_bytes", "pids_limit", "memory_swap_bytes")
    assert limits_in(Change(memory_bytes=1, memory_swap_bytes=2)) == ("memory_bytes", "memory_swap_bytes")
