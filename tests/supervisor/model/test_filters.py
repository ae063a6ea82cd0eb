from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.model.errors import BadRequest
from supervisor.model.filters import CONTAINER_KEYS, EVENT_KEYS, EVERYTHING, STATUS_WORDS, parse
from supervisor.model.values import (
    By,
    Container,
    Event,
    Exit,
    Exited,
    ExitStatus,
    HealthStatus,
    Mount,
    Oom,
    Phase,
    Reason,
    RunKey,
    Signaled,
    Source,
    Spec,
    Unknown,
)

WEB = Container(
    "abc123",
    Spec(
        name="web-1",
        labels=(("tier", "front"), ("env", "")),
        namespace="shop",
        image="registry.io:5000/team/nginx:1.25",
        image_id="sha256:cafe" + "0" * 60,
        mounts=(Mount("", "/data", volume="files"), Mount("/srv", "/mnt")),
        network="host",
    ),
    Phase.RUNNING,
    1,
    5,
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
        (("ancestor=registry.io:5000/team/nginx:1.25",), True),
        (("ancestor=registry.io:5000/team/nginx",), True),
        (("ancestor=nginx",), True),
        (("ancestor=sha256:cafe",), True),
        (("ancestor=cafe0000",), True),
        (("ancestor=caf",), False),
        (("ancestor=team/nginx:1.24",), False),
        (("ancestor=registry.io",), False),
        (("volume=files",), True),
        (("volume=/srv",), True),
        (("volume=/data",), True),
        (("volume=file",), False),
        (("network=host",), True),
        (("network=none",), False),
        (("exited=0",), False),
        (("before=later",), True),
        (("since=later",), False),
        (("since=earlier",), True),
        (("before=earlier", "before=later"), True),
        (("before=itself",), False),
    ],
)
def test_a_container_matches_any_value_of_each_key_and_all_labels(words: tuple[str, ...], matches: bool) -> None:
    made = {"earlier": 4, "itself": 5, "later": 6}
    assert parse(words, CONTAINER_KEYS).resolved(made.__getitem__).matches_container(WEB) is matches


@pytest.mark.parametrize("number", ["-1", "256", "\u0663", "9" * 5000])
def test_a_number_that_no_end_has_is_refused(number: str) -> None:
    with pytest.raises(BadRequest, match="0 to 255"):
        parse((f"exited={number}",), CONTAINER_KEYS)


@pytest.mark.parametrize(
    ("phase", "status", "number", "matches"),
    [
        (Phase.EXITED, Exited(7), 7, True),
        (Phase.EXITED, Exited(7), 0, False),
        (Phase.EXITED, Signaled(9), 137, True),
        (Phase.EXITED, Unknown("x"), 255, True),
        (Phase.RUNNING, Exited(7), 7, False),
    ],
)
def test_an_ended_one_is_found_by_its_number_until_it_begins_again(
    phase: Phase, status: ExitStatus, number: int, matches: bool
) -> None:
    key = RunKey("abc123", 1)
    ended = Exit(key, "", "", status, Source.RECORD, Reason.SELF, By(), Oom(), 1, None, None)
    wanted = parse((f"exited={number}",), CONTAINER_KEYS)
    assert wanted.shows_ended and wanted.matches_container(replace(WEB, phase=phase, exit=ended)) is matches


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
        (("event=exit",), True),
        (("event=die",), True),
        (("event=died", "type=container"), True),
        (("event=start",), False),
        (("event=destroy",), False),
        (("container=web-1",), True),
        (("container=abc1",), True),
        (("container=web",), False),
    ],
)
def test_an_event_matches_any_value_of_each_key(words: tuple[str, ...], matches: bool) -> None:
    assert parse(words, EVENT_KEYS).matches_event(DIED) is matches


@pytest.mark.parametrize("word", ["image", "volume", "daemon"])
def test_what_the_log_has_no_events_of_is_refused_with_what_it_has(word: str) -> None:
    with pytest.raises(BadRequest, match="events of containers alone; write type=container"):
        parse((f"type={word}",), EVENT_KEYS)


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
