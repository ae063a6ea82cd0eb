"""Many pods of three are started and torn down at once, in every way, while exitd is killed again and again."""

import contextlib
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from supervisor.api.client import Client, Unreachable
from supervisor.model.values import NEVER_STARTED
from tests.system import observedpods, oracle
from tests.system.daemons import Daemon
from tests.system.lives import ledger, word
from tests.system.observedpods import Pod
from tests.system.oracle import WHEN_TOLD, Revived
from tests.system.processes import killed
from tests.system.waits import LIMIT_SECONDS, scaled

SEED = int(os.environ.get("EXITD_SEED", "20266"))
AT_ONCE = 16  # lives under way
ANSWER_SECONDS = 10.0  # a look at all pods, with the machine as busy as can be
STEPS = 5
# How a pod can end, and the reasons its members give then when they have not ended by themselves.
WAYS: dict[str, set[str]] = {
    "by themselves": set(),
    "stop": {"stop"},
    "remove": {"kill"},
    "pause process killed": {"pause-exit"},
}


@dataclass
class Life:
    """One pod's, the way it is to end, and before which of its steps exitd is killed, if any."""

    pod: Pod
    way: str
    deadly: int = -1

    def live(self, up: Revived) -> int:
        """How often exitd was killed: the other lives are in the middle of something then."""
        deaths = 0
        for number, step in enumerate(
            (observedpods.ready, observedpods.begun, self.end, observedpods.stopped, observedpods.removed)
        ):
            if number == self.deadly:
                with contextlib.suppress(ProcessLookupError):  # another life was quicker
                    killed(up.daemon.pid)
                    deaths += 1
            if step is not observedpods.stopped or self.way != "remove":
                step(up, self.pod)
        return deaths

    def end(self, up: Revived, pod: Pod) -> None:
        if self.way == "by themselves":
            for member in pod.members:
                if observedpods.waits(member):
                    member.go()
        elif self.way == "pause process killed":
            killed(up.patiently(lambda client: client.inspect(pod.id)).init.pid)
        else:
            return
        for member in pod.members:
            oracle.over(up, member)


def crowd(daemon: Daemon, pick: random.Random) -> list[Life]:
    """Every member has a code of its own, as far as there are enough of them."""
    lives, count = [], scaled(200, least=12)
    deadly = pick.sample(range(count), max(5, count // 8))
    for number in range(count):
        codes = [1 + (2 * number + k) % 200 for k in (0, 1)]
        waits = [pick.choice([WHEN_TOLD, f"sleep 0.{pick.randrange(5)}"]) for _ in codes]
        pid = pick.choice(["own", "own", "pod"])
        members = [{"code": code, "before_end": wait, "pid": pid} for code, wait in zip(codes, waits, strict=True)]
        lives.append(Life(observedpods.observed(daemon, *members), pick.choice(list(WAYS))))
        if number in deadly:
            lives[-1].deadly = pick.randrange(STEPS)
    return lives


def keep_asking(up: Revived, done: threading.Event, ask: Callable[[Client], object]) -> list[float]:
    """How long each answer took, until `done`. A daemon that is killed meanwhile gives none."""
    took = []
    while not done.is_set():
        began = time.monotonic()
        try:
            up.call(ask)
        except Unreachable:
            continue
        took.append(time.monotonic() - began)
    return took


def test_many_pods_begun_and_ended_at_once_under_a_daemon_that_dies_all_the_time_lose_and_leave_nothing() -> None:
    print(f"seed {SEED}: EXITD_SEED={SEED} repeats it")
    with oracle.warm_daemon() as daemon:
        up, lives, done = Revived(daemon), crowd(daemon, random.Random(SEED)), threading.Event()
        with ThreadPoolExecutor(AT_ONCE + 1) as pool:
            asking = pool.submit(keep_asking, up, done, lambda client: client.pods())
            living = [pool.submit(each.live, up) for each in lives]
            try:
                deaths = sum(each.result(LIMIT_SECONDS * 10) for each in living)
            finally:
                done.set()
        took, said = asking.result(LIMIT_SECONDS), Counter[str]()
        with daemon.client() as client:
            for each in lives:
                said += observedpods.judge(client, each.pod, f"seed {SEED}, {each.way}")
                check_reasons(client, each)
        print(f"{deaths} deaths, {max(took):.3f} s at most for an answer, {dict(said)}")
        assert deaths and max(took) < ANSWER_SECONDS
        assert not any(words.startswith("unknown") for words in said), said
        oracle.nothing_left(daemon)


def check_reasons(client: Client, life: Life) -> None:
    """Who ended by itself says so with its code; the others say what was done to them."""
    for member in life.pod.members:
        code = next(iter(member.truth().values()), None)
        (row,) = ledger(client, member.id)
        by_itself = (word(row), row.reason) == (f"exited {code}", "self") or (
            code is None and row.cause == NEVER_STARTED
        )
        assert by_itself or row.reason in WAYS[life.way], f"seed {SEED}, {life}: {word(row)} {row.reason}, truth {code}"
