"""What one containerd has still to be told, in the order that it relies on: pure, no clock, no socket.

The log's order is that order, for each task. What goes through one relay forms a queue: the relay knows of one event
whether containerd has it, so there is one at a time, the oldest. A task without such a relay is a queue by itself. The
queues do not wait for each other: the next event of each may be on its way at the same time. So what is dealt with is a
number, the floor, and beyond it a place for each task.
"""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from supervisor.model.values import Event, Unknown

REBOOTED = Unknown("host-rebooted")
ROOM = 256  # events at a time; the others wait in the log


@dataclass(frozen=True, slots=True)
class OutboxPlace:
    """How far a task is: dealt with up to `seq`. Kept until the floor has passed it, or longer, as long as it says more
    than a number: until the task is deleted."""

    seq: int
    exited: bool = False  # after init's exit nothing comes but the deletion
    dropped: bool = False  # containerd tells the rest itself

    @property
    def says_more(self) -> bool:
        return self.exited or self.dropped


class Outbox:
    """Of one address. Whatever gives a place back wants it stored before anything newer of that task is told."""

    def __init__(self, address: str, floor: int, places: Mapping[str, OutboxPlace]) -> None:
        self.address = address
        self._taken = floor
        self._places = {task: place for task, place in places.items() if place.seq > floor or place.says_more}
        self._most_places = 2 * len(self._places) + ROOM
        self._unsent: dict[str, deque[Event]] = {}  # by queue
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def has_room(self) -> bool:
        return self._count < ROOM

    @property
    def floor(self) -> int:
        """Everything up to that number is dealt with."""
        return min((events[0].seq - 1 for events in self._unsent.values()), default=self._taken)

    @property
    def places(self) -> Mapping[str, OutboxPlace]:
        """Of the tasks that need one."""
        return self._places

    def is_settled(self, queue: str, seq: int) -> bool:
        """Whether everything of it up to that number is dealt with."""
        return self._taken >= seq and queue not in self._unsent

    def take(self, event: Event) -> OutboxPlace | None:
        """The next event of the log."""
        self._taken = event.seq
        notice, place = event.task, self._place(event.id)
        if notice is None or notice.address != self.address or event.seq <= place.seq:
            return None
        if place.dropped or notice.silent:
            return self._over(event) if event.type == "remove" else None
        if event.exit is not None and event.exit.status == REBOOTED:  # containerd's tasks have not survived that either
            return None
        if event.type == "remove" or not place.exited:
            self._unsent.setdefault(queue_of(event), deque()).append(event)
            self._count += 1
        return None

    def passed(self, seq: int) -> None:
        """There is nothing to be told up to there, beside what was taken."""
        self._taken = max(self._taken, seq)

    def next(self, queue: str) -> Event | None:
        """What containerd is to be told now."""
        return self._unsent[queue][0] if queue in self._unsent else None

    def sent(self, event: Event) -> OutboxPlace | None:
        """That event is dealt with; None: it was given up meanwhile.

        After init's exit nothing but the deletion is told: what the log has of execs then is passed over.
        """
        task, queue = event.id, queue_of(event)
        if self.next(queue) is not event:
            return None
        if event.type == "remove":
            return self._over(event)
        place = replace(self._place(task), seq=event.seq)
        if event.type == "exit" and not event.exec_id:
            place = replace(place, exited=True)
            self._keep(queue, lambda e: e.id != task or e.type == "remove")
        self._keep(queue, lambda e: e is not event)
        self._put(task, place)
        return place

    def drop(self, task: str) -> OutboxPlace:
        """containerd is not told anything more of it."""
        unsent = [event for events in self._unsent.values() for event in events if event.id == task]
        removed = [event for event in unsent if event.type == "remove"]
        if removed:
            return self._over(removed[0])
        if unsent:
            self._keep(queue_of(unsent[0]), lambda e: e.id != task)
        place = replace(self._place(task), dropped=True)
        self._put(task, place)
        return place

    def forget_before(self, oldest: int) -> int:
        """What the log itself no longer has is given up; how many events that were."""
        before = self._count
        for queue in tuple(self._unsent):
            self._keep(queue, lambda e: e.seq >= oldest)
        return before - self._count

    def _over(self, removed: Event) -> OutboxPlace:
        """It is deleted: its number alone is of use now, until the floor has passed it."""
        self._keep(queue_of(removed), lambda e: e.id != removed.id)
        place = OutboxPlace(removed.seq)
        self._put(removed.id, place)
        return place

    def _place(self, task: str) -> OutboxPlace:
        return self._places.get(task, OutboxPlace(0))

    def _put(self, task: str, place: OutboxPlace) -> None:
        self._places[task] = place
        if len(self._places) > self._most_places:
            floor = self.floor
            self._places = {t: place for t, place in self._places.items() if place.seq > floor or place.says_more}
            self._most_places = 2 * len(self._places) + ROOM

    def _keep(self, queue: str, wanted: Callable[[Event], bool]) -> None:
        before = self._unsent.pop(queue, deque())
        kept = deque(filter(wanted, before))
        self._count -= len(before) - len(kept)
        if kept:
            self._unsent[queue] = kept


def queue_of(event: Event) -> str:
    """That of its relay, or of its task."""
    return (event.task.courier if event.task is not None else "") or event.id
