"""Everything at once and nothing in order: many short lives, names used again at once, ends that overtake starts."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from supervisor.api.client import Client
from supervisor.model.errors import ExitdError, NameTaken, NoSuchContainer, WrongState
from tests.system import lives
from tests.system.daemons import Daemon, left, remove_all, spec, warm_up
from tests.system.lives import ended, events, last_exit, ledger, types, word
from tests.system.waits import LIMIT_SECONDS, scaled, until

pytestmark = pytest.mark.grpc  # a hundred calls share a connection, and leave none behind


@pytest.fixture
def client(daemon: Daemon) -> Iterator[Client]:
    """Whatever a test does: afterwards the machine is as it was before."""
    with daemon.client() as made:
        warm_up(made)
        before = left(daemon)
        yield made
        remove_all(made)
        until(lambda: left(daemon).shims == 0, "shims")
        until(lambda: left(daemon).descriptors <= before.descriptors, f"{left(daemon)}, before: {before}")
        after = left(daemon)
        assert (after.zombies, after.mounts, after.run_directories, after.bundles) == (
            before.zombies,
            before.mounts,
            before.run_directories,
            before.bundles,
        )


def together(*calls: Callable[[], object]) -> list[object]:
    """All calls at once; an error of exitd's is a result like others."""
    gate = threading.Barrier(len(calls))

    def one(call: Callable[[], object]) -> object:
        gate.wait()
        try:
            return call()
        except ExitdError as error:
            return error

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(one, calls))


def test_a_thousand_short_lives_a_hundred_at_a_time_all_end_with_0_as_recorded(client: Client) -> None:
    with ThreadPoolExecutor(100) as pool:
        exits = list(pool.map(lambda _: lives.run(client, "true")[1], range(scaled(1000, 100))))
    assert Counter((word(e), e.source, e.reason) for e in exits) == {("exited 0", "record", "self"): len(exits)}


def test_an_exit_followed_at_once_by_a_start_gives_every_run_its_own_code(client: Client) -> None:
    container, first = lives.run(client, "sh", "-c", "exit 3")
    found = [first]
    for _ in range(scaled(1000) - 1):
        waiting = client.begin_wait(container, condition="next-exit")
        client.start(container)
        found.append(ended(waiting.result(LIMIT_SECONDS)))
    assert [(e.run, e.code, e.source) for e in found] == [(n, 3, "record") for n in range(1, len(found) + 1)]
    assert [(e.run, e.code) for e in ledger(client, container)] == [(e.run, e.code) for e in found]
    assert types(client, container) == ["create", *["start", "exit"] * len(found)]


def test_a_name_is_free_as_soon_as_rm_has_returned(client: Client) -> None:
    for code in range(scaled(1000)):
        container, exit_ = lives.run(client, "sh", "-c", f"exit {code % 256}", name="again")
        client.remove(container, force=False)
        assert exit_.code == code % 256


def test_a_name_is_free_as_soon_as_rm_of_a_running_container_has_returned(client: Client) -> None:
    for _ in range(scaled(1000)):
        client.remove(lives.up(client, name="again").id, force=True)


def test_run_rm_a_thousand_times_under_one_name_keeps_the_code_for_who_waits_and_for_who_asks_later(
    client: Client,
) -> None:
    for number in range(scaled(1000)):
        container = client.create(spec("sh", "-c", f"exit {number % 256}", name="again", auto_remove=True)).id
        first, removed = client.begin_wait(container), client.begin_wait(container, condition="removed")
        client.start(container)
        # Nobody waited for the removal: whoever creates under the same name does not see the one that is going.
        codes = {ended(first.result(LIMIT_SECONDS)).code, ended(last_exit(client, container)).code}
        assert codes == {number % 256}
        if number % 5 == 0:
            assert ended(removed.result(LIMIT_SECONDS)).code == number % 256
        removed.cancel()


def test_of_many_creates_under_one_name_one_succeeds(client: Client) -> None:
    results = together(*[lambda: client.create(spec("true", name="one"))] * 10)
    assert Counter(isinstance(result, NameTaken) for result in results) == {True: 9, False: 1}


def test_many_starts_of_one_container_are_one_start(client: Client) -> None:
    container = client.create(spec("sleep", "1000")).id
    results = together(*[lambda: client.start(container)] * 10)
    assert {type(result) for result in results} <= {type(client.inspect(container)), WrongState}
    assert types(client, container) == ["create", "start"]
    client.remove(container, force=True)


def test_stop_kill_and_remove_at_once_end_it_once(client: Client) -> None:
    for _ in range(scaled(200, 5)):
        container = lives.up(client).id
        remove = partial(client.remove, container, force=True)
        together(partial(client.stop, container, 5), partial(client.kill, container, "KILL"), remove, remove)
        with pytest.raises(NoSuchContainer):
            client.inspect(container)
        (exit_,) = ledger(client, container)
        assert exit_.reason in ("stop", "kill")
        assert types(client, container).count("exit") == 1


def test_started_comes_before_exited_however_short_the_run(client: Client) -> None:
    containers = [lives.run(client, "true")[0] for _ in range(scaled(400))]
    for container in containers:
        assert types(client, container) == ["create", "start", "exit"]
        first, second, third = events(client, container)
        assert first.seq < second.seq < third.seq


def test_an_init_killed_before_start_is_an_exit_and_wakes_who_waits(daemon: Daemon, client: Client) -> None:
    container = client.create(spec("true"))
    waiting = client.begin_wait(container.id)
    client.kill(container.id, "KILL")
    exit_ = ended(waiting.result(LIMIT_SECONDS))
    assert (word(exit_), exit_.source, exit_.reason) == ("unknown never-started", "record", "kill")
    assert types(client, container.id) == ["create", "kill", "exit"]
    again = client.begin_wait(container.id, condition="next-exit")
    client.start(container.id)
    assert word(ended(again.result(LIMIT_SECONDS))) == "exited 0"


def test_a_start_that_comes_after_the_end_of_a_created_init_is_answered(client: Client) -> None:
    """Whichever is first: the start gets its answer, and the end is reported once."""
    for _ in range(scaled(200, 10)):
        container = client.create(spec("sleep", "1000")).id
        together(partial(client.start, container), partial(client.kill, container, "KILL"))
        waiting = client.begin_wait(container, run=1)
        assert word(ended(waiting.result(LIMIT_SECONDS))) in ("signaled 9", "unknown never-started")
        assert [e.run for e in ledger(client, container)] == [1]
        client.remove(container, force=True)
