"""What one containerd has still to be told: order, crashes, and what is given up."""

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from supervisor.containerd import outbox
from supervisor.containerd.outbox import Outbox, OutboxPlace
from supervisor.model.values import Event, Unknown
from tests.supervisor.containerd.taskevents import ADDRESS, ended, life, published, unpublished, wanted

LIVES = ("create", "create", "start", "start")


def numbered(events: list[Event]) -> list[Event]:
    return [replace(event, seq=n) for n, event in enumerate(events, 1)]


def fresh(floor: int = 0, places: dict[str, OutboxPlace] | None = None) -> Outbox:
    return Outbox(ADDRESS, floor, places or {})


def all_sent(box: Outbox, task: str) -> list[str]:
    kinds = []
    while (event := box.next(task)) is not None:
        kinds.append(event.type)
        box.sent(event)
    return kinds


def test_a_task_is_reported_in_the_order_of_the_log() -> None:
    box = fresh()
    for event in numbered(life("c1", late=True)):
        box.take(event)
    assert all_sent(box, "c1") == ["create", "start", "exec_added", "exec", "exit", "oom", "exit", "remove"]
    assert len(box) == 0


def test_a_task_does_not_wait_for_another() -> None:
    box = fresh()
    one, other = published("create", "a", seq=1), published("create", "b", seq=2)
    box.take(one)
    box.take(other)
    assert box.sent(other) == OutboxPlace(2)
    assert box.next("a") is one
    assert box.floor == 0
    box.sent(one)
    assert box.floor == 2


def test_the_tasks_of_one_relay_form_one_queue() -> None:
    box = fresh()
    events = [
        published(kind, id, courier="7/77", seq=n) for n, (kind, id) in enumerate(zip(LIVES, "abab", strict=True), 1)
    ]
    for event in events:
        box.take(event)
    assert not box.is_settled("7/77", 4)
    for number, event in enumerate(events, 1):
        assert box.next("7/77") is event
        assert box.next(event.id) is None
        assert box.sent(events[-1]) is None or number == len(events)
        box.sent(event)
        assert box.floor == number
    assert box.is_settled("7/77", 4)
    assert not box.is_settled("7/77", 5)


def test_an_exit_or_a_drop_takes_nothing_away_from_others_in_the_queue() -> None:
    box = fresh()
    for n, (kind, id) in enumerate((("exit", "a"), ("start", "b"), ("oom", "a"), ("oom", "b"), ("remove", "a")), 1):
        box.take(published(kind, id, courier="7/77", seq=n))
    first = box.next("7/77")
    assert first is not None and box.sent(first) == OutboxPlace(1, exited=True)
    assert len(box) == 3
    box.drop("b")
    left = box.next("7/77")
    assert left is not None and (left.type, left.id, len(box)) == ("remove", "a", 1)


def test_what_is_not_of_this_address_or_of_no_task_is_passed_over() -> None:
    box = fresh()
    box.take(unpublished(seq=1))
    box.take(published("create", address="/other", seq=2))
    assert (len(box), box.floor) == (0, 2)


def test_what_was_reported_before_is_not_reported_again_whatever_comes_from_the_log() -> None:
    box = fresh(0, {"c1": OutboxPlace(2)})
    for event in numbered(life("c1", execs=0)):
        box.take(event)
    assert all_sent(box, "c1") == ["oom", "exit", "remove"]


def test_an_exec_that_ends_after_init_is_passed_over_even_by_the_next_daemon() -> None:
    box = fresh(5, {"c1": OutboxPlace(4, exited=True)})
    box.take(published("exit", exec="e", seq=6))
    box.take(published("remove", seq=7))
    assert all_sent(box, "c1") == ["remove"]


def test_an_exec_that_ends_after_inits_end_was_sent_is_passed_over() -> None:
    box = fresh()
    exit = published("exit", seq=1)
    box.take(exit)
    assert box.sent(exit) == OutboxPlace(1, exited=True)
    box.take(published("exit", exec="e", seq=2))
    box.take(published("remove", seq=3))
    assert all_sent(box, "c1") == ["remove"]


def test_a_dropped_task_is_not_reported_any_more_not_even_by_the_next_daemon() -> None:
    box = fresh()
    box.take(published("create", seq=1))
    place = box.drop("c1")
    box.take(published("exit", seq=2))
    again = fresh(0, {"c1": place})
    for event in (published("create", seq=1), published("exit", seq=2)):
        again.take(event)
    assert len(box) == len(again) == 0
    assert again.take(published("remove", seq=3)) == OutboxPlace(3)


def test_a_task_that_is_dropped_while_its_event_is_under_way_stays_dropped() -> None:
    box = fresh()
    event = published("create", seq=1)
    box.take(event)
    place = box.drop("c1")
    assert box.sent(event) is None
    assert box.places == {"c1": place}


def test_a_deletion_that_containerd_reports_of_itself_takes_what_was_not_reported_with_it() -> None:
    box = fresh()
    box.take(published("exit", seq=1))
    assert box.take(published("remove", silent=True, seq=2)) == OutboxPlace(2)
    assert len(box) == 0


def test_the_ends_of_another_boot_are_not_reported() -> None:
    box = fresh()
    box.take(replace(published("exit", seq=1), exit=ended(status=Unknown("host-rebooted"))))
    assert len(box) == 0


def test_what_the_log_no_longer_has_is_given_up() -> None:
    box = fresh()
    for event in (published("create", seq=1), published("start", seq=2), published("create", "c2", seq=3)):
        box.take(event)
    assert box.forget_before(3) == 2
    assert (len(box), box.next("c1"), box.floor) == (1, None, 2)


def test_it_is_full_at_its_limit_and_has_room_after_an_answer() -> None:
    box = fresh()
    for n in range(1, outbox.ROOM + 1):
        assert box.has_room
        box.take(published("oom", seq=n))
    assert not box.has_room
    event = box.next("c1")
    assert event is not None
    box.sent(event)
    assert box.has_room


def test_places_are_forgotten_once_the_floor_has_passed_them() -> None:
    box = fresh()
    for n in range(1, 10 * outbox.ROOM, 2):
        for event in (published("exit", f"c{n}", seq=n), published("remove", f"c{n}", seq=n + 1)):
            box.take(event)
            box.sent(event)
    assert len(box.places) <= 2 * outbox.ROOM


class Crashes(RuleBasedStateMachine):
    """Tasks in any order, answers in any order, and a daemon that is killed at any point."""

    @initialize(
        order=st.lists(st.sampled_from("abcd"), max_size=60),
        late=st.lists(st.booleans(), min_size=4, max_size=4),
        execs=st.integers(0, 2),
    )
    def begin(self, order: list[str], late: list[bool], execs: int) -> None:
        self.lives = {id: life(id, execs=execs, late=is_late) for id, is_late in zip("abcd", late, strict=True)}
        rest = {id: iter(events) for id, events in self.lives.items()}
        merged = [event for id in order if (event := next(rest[id], None)) is not None]
        merged += [event for events in rest.values() for event in events]
        self.log = numbered([each for event in merged for each in (event, unpublished())])
        self.handed: dict[str, list[Event]] = {id: [] for id in "abcd"}
        self.under_way: dict[str, Event] = {}
        self.noted: tuple[int, dict[str, OutboxPlace]] = (0, {})
        self.dropped: set[str] = set()
        self.kills = 0
        self.restart()

    def restart(self) -> None:
        self.box = fresh(self.noted[0], dict(self.noted[1]))
        self.at = self.noted[0]
        self.under_way = {}

    def note(self, task: str, place: OutboxPlace | None) -> None:
        if place is not None:
            self.noted = (self.box.floor, {**self.noted[1], task: place})

    @precondition(lambda self: self.at < len(self.log) and self.box.has_room)
    @rule(count=st.integers(1, 10))
    def read(self, count: int) -> None:
        for event in self.log[self.at : self.at + count]:
            self.note(event.id, self.box.take(event))
        self.at = min(self.at + count, len(self.log))

    @rule(task=st.sampled_from("abcd"))
    def hand(self, task: str) -> None:
        event = self.box.next(task)
        if task not in self.under_way and event is not None:
            self.under_way[task] = event
            self.handed[task].append(event)

    @rule(task=st.sampled_from("abcd"))
    def answer(self, task: str) -> None:
        if task in self.under_way:
            self.note(task, self.box.sent(self.under_way.pop(task)))

    @rule(task=st.sampled_from("abcd"))
    def drop(self, task: str) -> None:
        if self.kills % 3 == 2:  # not too often
            self.note(task, self.box.drop(task))
            self.dropped.add(task)

    @rule()
    def kill(self) -> None:
        self.kills += 1
        self.restart()

    @invariant()
    def no_task_is_reported_out_of_order(self) -> None:
        for events in getattr(self, "handed", {}).values():
            numbers = [event.seq for event in events]
            assert numbers == sorted(numbers)
            assert len(numbers) - len(set(numbers)) <= self.kills

    def teardown(self) -> None:
        if not hasattr(self, "box"):
            return
        while self.at < len(self.log):
            self.read(1)
        for task in "abcd":
            self.answer(task)
            while self.box.next(task) is not None:
                self.hand(task)
                self.answer(task)
            kinds = list(dict.fromkeys((e.type, e.exec_id) for e in self.handed[task]))
            expected = [(e.type, e.exec_id) for e in wanted(self.lives[task])]
            assert kinds == (expected[: len(kinds)] if task in self.dropped else expected)
        assert len(self.box) == 0
        assert self.box.floor == len(self.log)


TestCrashes = Crashes.TestCase
TestCrashes.settings = settings(max_examples=80, stateful_step_count=60, deadline=None)
