from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.model.errors import BadRequest
from supervisor.model.filters import CONTAINER_KEYS, EVENT_KEYS, EVERYTHING, STATUS_WORDS, parse
from supervisor.model.values import Container, Event, HealthStatus, Phase, Spec

WEB = Container(
    "abc123", Spec(name="web-1", labels=(("tier", "front"), ("env", "")), namespace="shop"), Phase.RUNNING, 1, 1
)
DIED = Event("exit", "abc123", "web-1", "shop", 10, seq=3)


@pytest.mark.parametrize(
    ("words", "matches"),
    [
        ((), True),
        (("id=abc",), True),
        (("id=bc",), False),
        (("name=web",), True),
        (("name=db", "name=web"), True),
        (("name=web", "namespace=other"), False),
        (("namespace=shop", "status=running"), True),
        (("status=exited",), False),
        (("status=exited", "status=running"), True),
        (("status=dead",), False),
        (("label=tier",), True),
        (("label=tier=front",), True),
        (("label=tier=back",), False),
        (("label=tier=front", "label=env"), True),
        (("label=tier", "label=missing"), False),
        (("label=env=",), True),
    ],
)
def test_a_container_matches_any_value_of_each_key_and_all_labels(words: tuple[str, ...], matches: bool) -> None:
    assert parse(words, CONTAINER_KEYS).matches_container(WEB) is matches


@pytest.mark.parametrize(
    ("words", "matches"),
    [
        ((), True),
        (("type=exit",), True),
        (("type=start", "type=exit"), True),
        (("type=start",), False),
        (("name=web-1",), True),
        (("name=web",), False),
        (("id=abc1", "namespace=shop"), True),
        (("id=abd",), False),
        (("namespace=sho",), False),
    ],
)
def test_an_event_matches_any_value_of_each_key(words: tuple[str, ...], matches: bool) -> None:
    assert parse(words, EVENT_KEYS).matches_event(DIED) is matches


@pytest.mark.parametrize("word", ["color=red", "name", "name=", "=x", "", "type=exit", "NAME=x"])
def test_a_word_that_is_no_filter_is_refused_with_the_allowed_keys(word: str) -> None:
    with pytest.raises(BadRequest, match="id, name, status, label, namespace"):
        parse((word,), CONTAINER_KEYS)


def test_health_is_dockers_word_and_none_without_a_check() -> None:
    healthy = replace(WEB, health=HealthStatus.HEALTHY)
    for word, of in ((word, of) for word in ("starting", "healthy", "unhealthy", "none") for of in (WEB, healthy)):
        wanted = "none" if of is WEB else "healthy"
        assert parse((f"health={word}",), CONTAINER_KEYS).matches_container(of) is (word == wanted)
    with pytest.raises(BadRequest, match="starting, healthy, unhealthy, none"):
        parse(("health=well",), CONTAINER_KEYS)


def test_an_unknown_status_is_refused_with_the_words_there_are() -> None:
    with pytest.raises(BadRequest, match="created, running, paused, restarting, removing, exited, dead"):
        parse(("status=up",), CONTAINER_KEYS)


@pytest.mark.parametrize("phase", Phase)
def test_every_phase_is_found_by_its_own_word_and_by_dockers(phase: Phase) -> None:
    container = Container("c", Spec(name="c"), phase, 1, 1)
    for word in (phase.value, STATUS_WORDS[phase]):
        assert parse((f"status={word}",), CONTAINER_KEYS).matches_container(container)


@given(st.lists(st.text(max_size=12), max_size=4))
def test_parse_answers_or_refuses_and_never_fails(words: list[str]) -> None:
    try:
        found = parse(words, CONTAINER_KEYS)
    except BadRequest:
        return
    found.matches_container(WEB)


def test_no_words_are_the_filter_that_matches_everything() -> None:
    assert parse((), EVENT_KEYS) == EVERYTHING
