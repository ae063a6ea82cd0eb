"""supervisor/system/background.py: how long what has failed is left alone before it is tried again."""

import itertools

from supervisor.system.background import pauses


def test_each_failure_is_followed_by_its_own_pause_and_the_last_pause_is_repeated() -> None:
    assert list(itertools.islice(pauses((1.0, 5.0, 30.0)), 5)) == [1.0, 5.0, 30.0, 30.0, 30.0]
    assert list(itertools.islice(pauses((0.1,)), 3)) == [0.1, 0.1, 0.1]
