"""An image's own health check: read from its configuration, and put under what the caller says of one."""

import json
from dataclasses import replace

import pytest

from supervisor.images import documents
from supervisor.images.facts import ImageDefaults, Resolved
from supervisor.images.merge import complete
from supervisor.model.errors import BadImage, BadRequest
from supervisor.model.values import INTERVAL_NS, RETRIES, TIMEOUT_NS, HealthSpec, OnUnhealthy, Spec

OWN = HealthSpec(("probe", "-q"), 1, 2, 3, 4)


def parsed(check: object) -> HealthSpec | None:
    text = json.dumps({"os": "linux", "rootfs": {"diff_ids": []}, "config": {"Healthcheck": check}}).encode()
    return documents.parse_config(text, "c").config.health


@pytest.mark.parametrize(
    ("check", "spec"),
    [
        (None, None),
        ({}, None),
        ({"Test": []}, None),
        ({"Test": None, "Interval": 5}, None),
        ({"Test": ["NONE"]}, None),
        ({"Test": ["CMD", "a", "b c"]}, HealthSpec(("a", "b c"))),
        ({"Test": ["CMD-SHELL", "a | b"]}, HealthSpec(("/bin/sh", "-c", "a | b"))),
        (
            {
                "Test": ["CMD", "a"],
                "Interval": 10**6,
                "Timeout": 2 * 10**6,
                "Retries": 3,
                "StartPeriod": 4 * 10**6,
                "StartInterval": 5,
            },
            HealthSpec(("a",), 10**6, 2 * 10**6, 3, 4 * 10**6),
        ),
    ],
)
def test_dockers_healthcheck_is_read(check: object, spec: HealthSpec | None) -> None:
    assert parsed(check) == spec


@pytest.mark.parametrize(
    ("check", "words"),
    [
        ([], "config.Healthcheck: must be an object"),
        ({"Test": "true"}, "config.Healthcheck.Test: must be a list"),
        ({"Test": ["CMD"]}, "config.Healthcheck.Test: must be NONE"),
        ({"Test": ["CMD-SHELL", "a", "b"]}, "config.Healthcheck.Test: must be NONE"),
        ({"Test": ["a"]}, "config.Healthcheck.Test: must be NONE"),
        ({"Test": ["CMD", "a"], "Interval": -1}, "config.Healthcheck.Interval: must be a number"),
        ({"Test": ["CMD", "a"], "Retries": "3"}, "config.Healthcheck.Retries: must be a number"),
    ],
)
def test_a_broken_one_is_refused_with_its_field(check: object, words: str) -> None:
    with pytest.raises(BadImage, match=f"c: {words}"):
        parsed(check)


def asked(of_caller: HealthSpec | None, of_image: HealthSpec | None) -> HealthSpec | None:
    config = ImageDefaults(cmd=("a",), health=of_image)
    return complete(Spec("n", image="i", health=of_caller), Resolved(("/l",), config)).health


@pytest.mark.parametrize("off", [None, HealthSpec(("",))])
def test_without_a_check_there_is_none(off: HealthSpec | None) -> None:
    assert asked(off, None) is None
    assert complete(Spec("n", args=("a",), rootfs="/", health=off)).health is None


def test_the_images_counts_unless_the_caller_wants_none() -> None:
    assert asked(None, OWN) == OWN
    assert asked(HealthSpec(("",)), OWN) is None


def test_the_caller_comes_first_field_by_field() -> None:
    assert asked(HealthSpec(("x",)), OWN) == replace(OWN, args=("x",))
    assert asked(HealthSpec(retries=9), OWN) == replace(OWN, retries=9)
    all_of_it = HealthSpec(("x",), 5, 6, 7, 8, OnUnhealthy.STOP)
    assert asked(all_of_it, OWN) == all_of_it
    assert asked(HealthSpec(on_failure=OnUnhealthy.KILL), OWN) == replace(OWN, on_failure=OnUnhealthy.KILL)


def test_what_nobody_says_is_dockers_default() -> None:
    for whole in (asked(HealthSpec(("x",)), None), asked(None, HealthSpec(("x",)))):
        assert whole == HealthSpec(("x",), INTERVAL_NS, TIMEOUT_NS, RETRIES, 0, OnUnhealthy.NONE)


def test_a_check_without_a_command_anywhere_is_refused() -> None:
    with pytest.raises(BadRequest, match="which command"):
        asked(HealthSpec(retries=1), None)
    with pytest.raises(BadRequest, match="which command"):
        complete(Spec("n", args=("a",), rootfs="/", health=HealthSpec(retries=1)))
