"""A soak of few lives: each end is as it was made, what is there is seen, and none of it stays but the database's rows.

Too few for memory, threads and descriptors, which grow until everything is in use for the first time: for `make soak`.
"""

import pytest

from tests.soak import report, stub
from tests.soak.regression import Verdict
from tests.soak.run import AT_ONCE, POD_EVERY, Plan, soak
from tests.system.waits import SCALE, scaled

LIVES = scaled(500, least=POD_EVERY + 2 * AT_ONCE)
OF_THE_ONE_THAT_LIVES = ("shims", "run_directories", "bundles")
STAYS = {*OF_THE_ONE_THAT_LIVES, "cgroups", "mounts", "zombies", "keeper_fds", "keeper_threads"}


@pytest.mark.timeout(600 if SCALE == 1 else 120)
@pytest.mark.parametrize("runtime", ["runc", stub.NAME])
def test_lives_that_have_ended_leave_nothing_that_grows(runtime: str) -> None:
    with stub.runtime(runtime) as path:
        result = soak(Plan(LIVES, hours=0, every=1, warm_up=1), runtime=path)
    first = result.samples[0]
    assert result.lives >= LIVES and result.ends > LIVES
    assert all(getattr(first, name) == 1 for name in OF_THE_ONE_THAT_LIVES), first
    assert (first.cgroups >= 1) == (runtime != stub.NAME) and first.mounts >= 1 and first.zombies == 0, (
        "what lives is not seen"
    )
    assert first.database_kb > 0 and first.daemon_pss_kb > 1000 and first.daemon_threads >= 1
    verdicts = {row.figure.name: row.verdict for row in report.judged(result)}
    assert {verdicts[name] for name in STAYS} == {Verdict.FLAT}, verdicts
    assert {getattr(each, name) for each in result.samples for name in OF_THE_ONE_THAT_LIVES} == {1}
