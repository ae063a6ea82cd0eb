"""Which events a caller wants to see, where that depends on their containers: on images and labels, which no event has.

A container counts as it is, or was when the filter saw it last: one that was removed before matches nothing any more.
"""

from collections.abc import Callable, Iterable

from supervisor.model.filters import Filter
from supervisor.model.values import Container, Event


class EventFilter:
    """A filter of one reader's. It keeps the ids of the containers that match, until they are removed."""

    def __init__(self, wanted: Filter, there: Iterable[Container], find: Callable[[str], Container | None]) -> None:
        """`there`: all containers of this moment; `find` returns one by its whole id."""
        self._of_event, self._of_container = wanted.for_events()
        self._find = find
        self._matching = {each.id for each in there if self._of_container.matches_container(each)}

    def matches_event(self, event: Event) -> bool:
        container = self._find(event.id)
        if container is not None and self._of_container.matches_container(container):
            self._matching.add(event.id)
        elif container is not None:
            self._matching.discard(event.id)
        is_wanted = event.id in self._matching and self._of_event.matches_event(event)
        if container is None:
            self._matching.discard(event.id)
        return is_wanted
