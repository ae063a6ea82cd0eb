"""Configurations of networks, as CNI's specification has them."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.network import conflist
from supervisor.network.conflist import NotConfig

BRIDGE = {"type": "bridge", "capabilities": {"portMappings": True, "ips": False}}
LIST = {"cniVersion": "0.4.0", "name": "pods", "plugins": [BRIDGE, {"type": "tuning"}]}


def parse(**changes: object) -> conflist.NetworkConfig:
    return conflist.parse(json.dumps({**LIST, **changes}))


def test_a_list_has_its_plugins_in_order_with_what_they_take() -> None:
    found = parse()
    assert (found.name, found.version, found.checks, found.publishes) == ("pods", "0.4.0", True, True)
    assert [(plugin.type, set(plugin.capabilities)) for plugin in found.plugins] == [
        ("bridge", {"portMappings"}),
        ("tuning", set()),
    ]


def test_a_single_plugin_is_a_list_of_one() -> None:
    found = conflist.parse(json.dumps({"cniVersion": "0.3.1", "name": "one", "type": "macvlan", "master": "eth1"}))
    assert [plugin.type for plugin in found.plugins] == ["macvlan"] and not found.is_of_04 and not found.publishes


@pytest.mark.parametrize(
    ("versions", "used"),
    [
        ({"cniVersion": "1.1.0"}, "1.1.0"),
        ({"cniVersions": ["0.3.1", "1.0.0", "9.0.0"]}, "1.0.0"),
        ({"cniVersions": ["9.0.0"], "cniVersion": "0.4.0"}, "0.4.0"),
    ],
)
def test_the_newest_version_that_both_have_is_used(versions: dict[str, object], used: str) -> None:
    assert parse(**versions).version == used


@pytest.mark.parametrize("value", [True, "true"])
def test_checks_can_be_switched_off(value: object) -> None:
    assert not parse(disableCheck=value).checks


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"name": ""}, "name"),
        ({"name": 7}, "name"),
        ({"name": "a/b"}, "letters"),
        ({"name": "host"}, "exitd's words"),
        ({"cniVersion": "0.2.0"}, "exitd has"),
        ({"cniVersion": []}, "exitd has"),
        ({"plugins": []}, "plugins"),
        ({"plugins": {}}, "plugins"),
        ({"plugins": [{}]}, "type of a plugin"),
        ({"plugins": [{"type": "../sh"}]}, "without a directory"),
        ({"plugins": [{"type": "x", "capabilities": []}]}, "capabilities"),
        ({"plugins": [BRIDGE] * 33}, "1 to 32"),
        ({"more": [[]]}, "nested"),
    ],
    ids=str,
)
def test_what_is_wrong_is_said(changes: dict[str, object], words: str) -> None:
    if "more" in changes:
        deep: object = []
        for _ in range(conflist.MOST_DEPTH + 1):
            deep = [deep]
        changes = {"more": deep}
    with pytest.raises(NotConfig, match=words):
        parse(**changes)


@given(st.text(max_size=100) | st.recursive(st.none() | st.text() | st.integers(), st.lists).map(json.dumps))
def test_no_text_is_another_error(text: str) -> None:
    with pytest.raises(NotConfig):
        conflist.parse(text)
