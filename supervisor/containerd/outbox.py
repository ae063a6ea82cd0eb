"""What one containerd must still be sent, in the order that it relies on: pure, no clock, no socket.

That order is the log's, for each task. Events that go through one relay form a queue: the relay remembers for one event
whether containerd has it, so only the oldest is under way. A task without such a relay is a queue by itself. The queues
do not wait for each other. So the progress is a number, the floor, up to which everything is done, and beyond it a
place for each task.
"""

from collections import deque
from collections.abc import Callable, Mapping

from shim.frozen import frozen, replace
from supervisor.model.values import Event, Unknown

REBOOTED = Unknown("host-rebooted")
ROOM = 256  # events at a time; the others wait in the log


@frozen
class OutboxPlace:
    """The progress of a task: done up to `seq`. Kept until the floor has passed it; or, if it says more than a number,
    until the task is deleted."""

    seq: int
    exited: bool = False  # after init's exit only the deletion is sent
    dropped: bool = False  # containerd reports the rest itself

    @property
    def says_more(self) -> bool:
        return self.exited or self.dropped


class Outbox:
    """The outbox of one address. A place that a method returns must be stored before anything newer of that task is
    sent."""

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
        """The number up to which everything is done."""
        return min((events[0].seq - 1 for events in self._unsent.values()), default=self._taken)

    @property
    def places(self) -> Mapping[str, OutboxPlace]:
        """The places of the tasks that need one."""
        return self._places

    def is_settled(self, queue: str, seq: int) -> bool:
        """Return whether everything of the queue up to that number is done."""
        return self._taken >= seq and queue not in self._unsent

    def take(self, event: Event) -> OutboxPlace | None:
        """Take the next event of the log."""
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
        """Note that, up to there, there is nothing to send but what was taken."""
        self._taken = max(self._taken, seq)

    def next(self, queue: str) -> Event | None:
        """Return the event that containerd must be sent now."""
        return self._unsent[queue][0] if queue in self._unsent else None

    def sent(self, event: Event) -> OutboxPlace | None:
        """Note that the event is done. Return None if it was given up meanwhile.

        After init's exit only the deletion is sent: later events of execs are skipped.
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
        """Send containerd nothing more of this task."""
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
        """Give up the events that the log no longer has. Return their number."""
        before = self._count
        for queue in tuple(self._unsent):
            self._keep(queue, lambda e: e.seq >= oldest)
        return before - self._count

    def _over(self, removed: Event) -> OutboxPlace:
        """The task is deleted: only its number is of use now, until the floor has passed it."""
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
    """Return the queue of its relay, or of its task."""
    return (event.task.courier if event.task is not None else "") or event.id
