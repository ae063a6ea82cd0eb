"""supervisor/engine/eventfilter.py: events by the images and labels of their containers."""

from dataclasses import replace

import pytest

from supervisor.engine.eventfilter import EventFilter
from supervisor.model.filters import EVENT_KEYS, parse
from supervisor.model.values import Container, Event, Phase, Spec

LABELS = (("env", ""), ("tier", "front"))
WEB = Container("abc", Spec("web", image="docker.io/library/nginx:1.25", labels=LABELS), Phase.RUNNING, 1, 1)
OTHER = Container("def", Spec("other", image="busybox"), Phase.RUNNING, 1, 1)


def event(kind: str, container: Container) -> Event:
    return Event(kind, container.id, container.spec.name, "default", 1)


def made(there: dict[str, Container], *words: str) -> EventFilter:
    asked = parse(words, EVENT_KEYS)
    assert asked.asks_of_containers
    return EventFilter(asked, there.values(), there.get)


@pytest.mark.parametrize(
    ("words", "matches"),
    [
        (("image=nginx",), True),
        (("image=nginx", "image=busybox", "event=start"), True),
        (("image=docker.io/library/nginx:1.25", "label=env"), True),
        (("label=tier=front",), True),
        (("image=redis",), False),
        (("label=tier=back",), False),
        (("image=nginx", "event=exit"), False),
        (("image=nginx", "container=other"), False),
    ],
)
def test_an_event_is_chosen_by_its_container_and_by_itself(words: tuple[str, ...], matches: bool) -> None:
    wanted = made({"abc": WEB, "def": OTHER}, *words)
    assert wanted.matches_event(event("start", WEB)) is matches


def test_the_last_event_of_a_removed_container_is_seen_and_what_comes_later_is_not() -> None:
    there = {"def": OTHER}
    wanted = made(there, "image=nginx")
    there["abc"] = WEB
    assert wanted.matches_event(event("create", WEB))
    del there["abc"]
    assert wanted.matches_event(event("remove", WEB))
    assert not wanted.matches_event(event("remove", WEB))
    assert not wanted.matches_event(event("remove", OTHER))


def test_one_that_is_there_when_the_filter_is_made_may_be_removed_before_its_first_event() -> None:
    there = {"abc": WEB}
    wanted = made(there, "label=env")
    there.clear()
    assert wanted.matches_event(event("remove", WEB))


def test_one_that_does_not_match_any_more_is_left_out() -> None:
    there = {"abc": WEB}
    wanted = made(there, "label=env")
    there["abc"] = replace(WEB, spec=replace(WEB.spec, labels=()))
    assert not wanted.matches_event(event("update", WEB))
