"""How much is measured follows from a few numbers."""

from supervisor.compare.plan import QUICK, Plan, decode, encode


def test_a_plan_goes_to_the_process_that_measures_and_comes_out_the_same() -> None:
    for plan in (Plan(), QUICK, Plan(1, 2, 3, 4, ("exitd-runc", "conmon"))):
        assert decode(encode(plan)) == plan


def test_memory_is_looked_at_in_pods_up_to_the_size_asked_for() -> None:
    assert Plan(containers=10).sizes == (0, 1, 2, 4, 8)
    assert Plan(containers=2).sizes == (0, 1, 2)


def test_some_end_while_the_daemon_is_away_and_be_it_one() -> None:
    assert Plan().meanwhile == 5
    assert Plan(pods=1, containers=1).meanwhile == 1
