"""What plugins are asked, and what their answers mean."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.model.networks import PublishedPort
from supervisor.network import calls, conflist
from supervisor.network.calls import Endpoint, NotAnswer, Verb

PLUGINS: list[dict[str, Any]] = [
    {"type": "bridge", "bridge": "b0"},
    {"type": "portmap", "capabilities": {"portMappings": True}},
]
NETWORK = conflist.parse(json.dumps({"cniVersion": "1.0.0", "name": "pods", "plugins": PLUGINS}))
OWN = {"name": "eth0", "mac": "0A:00:00:00:00:02", "sandbox": "/run/ns"}
ENDPOINT = Endpoint(
    "c1-2", "/run/ns", "/run/ns", "eth0", (PublishedPort(80, 8080), PublishedPort(53, 53, "udp", "::1"))
)


def test_the_environment_says_whom_it_is_about() -> None:
    assert calls.environment(Verb.ADD, ENDPOINT, ("/a", "/b")) == {
        "CNI_COMMAND": "ADD",
        "CNI_CONTAINERID": "c1-2",
        "CNI_NETNS": "/run/ns",
        "CNI_IFNAME": "eth0",
        "CNI_ARGS": "IgnoreUnknown=1",
        "CNI_PATH": "/a:/b",
    }


def test_each_plugin_gets_its_own_part_and_what_it_takes_of_the_run() -> None:
    bridge, portmap = (json.loads(calls.request(NETWORK, plugin, ENDPOINT, "")) for plugin in NETWORK.plugins)
    assert bridge == {"type": "bridge", "bridge": "b0", "name": "pods", "cniVersion": "1.0.0"}
    assert portmap["runtimeConfig"]["portMappings"] == [
        {"hostPort": 8080, "containerPort": 80, "protocol": "tcp"},
        {"hostPort": 53, "containerPort": 53, "protocol": "udp", "hostIP": "::1"},
    ]
    assert "capabilities" not in portmap and "prevResult" not in portmap
    later = json.loads(calls.request(NETWORK, NETWORK.plugins[0], ENDPOINT, '{"ips": []}'))
    assert later["prevResult"] == {"ips": []}


def test_addresses_that_are_asked_for_go_to_the_plugins_that_take_them() -> None:
    takes = {"type": "bridge", "capabilities": {"ips": True, "mac": True}}
    network = conflist.parse(
        json.dumps({"cniVersion": "1.0.0", "name": "pods", "plugins": [takes, {"type": "tuning"}]})
    )
    asked = Endpoint("c1-2", "/run/ns", "/run/ns", "eth1", (), ("10.1.0.9",), "02:00:00:00:00:01")
    bridge, tuning = (json.loads(calls.request(network, plugin, asked, "")) for plugin in network.plugins)
    assert (
        bridge["runtimeConfig"] == {"ips": ["10.1.0.9"], "mac": "02:00:00:00:00:01"} and "runtimeConfig" not in tuning
    )
    assert calls.environment(Verb.DEL, asked, ())["CNI_IFNAME"] == "eth1"


def test_an_answer_has_addresses_and_names() -> None:
    found = calls.answer(
        json.dumps(
            {
                "interfaces": [{"name": "b0", "mac": "00:00:00:00:00:01"}, OWN],
                "ips": [{"address": "10.1.0.2/16", "gateway": "10.1.0.1"}, {"address": "fd00::2/64"}],
                "dns": {"nameservers": ["10.1.0.1"], "domain": "lan", "search": ["a.lan"], "options": ["ndots:2"]},
            }
        ),
        "pods",
        "/run/ns",
        "eth0",
    )
    assert (found.network, found.interface, found.mac) == ("pods", "eth0", "0a:00:00:00:00:02")
    assert (found.addresses, found.gateways) == (("10.1.0.2/16", "fd00::2/64"), ("10.1.0.1",))
    assert (found.servers, found.searches, found.options) == (("10.1.0.1",), ("a.lan", "lan"), ("ndots:2",))


@pytest.mark.parametrize(
    "answer",
    [
        [],
        {"ips": {}},
        {"ips": [7]},
        {"ips": [{"address": 7}]},
        {"ips": [{"address": "x"}]},
        {"ips": [{"address": "10.1.0.2/16", "gateway": "y"}]},
        {"ips": [{"address": "10.1.0.2/16"}] * 65},
        {"interfaces": [7]},
        {"dns": [1]},
        {"dns": {"nameservers": ["10.1.0.1\nsearch evil"]}},
        {"dns": {"nameservers": ["fe80::1%a\nnameserver 192.0.2.66"]}},
        {"ips": [{"address": "fe80::2%a\nb/64"}]},
        {"ips": [{"address": "fe80::2/64", "gateway": "fe80::1%a\nb"}]},
        {"dns": {"search": ["a b"]}},
        {"dns": {"options": ["a\noptions b"]}},
        {"dns": {"search": ["x"] * 33}},
    ],
    ids=str,
)
def test_what_is_no_answer_is_refused(answer: object) -> None:
    with pytest.raises(NotAnswer):
        calls.answer(json.dumps(answer), "pods", "/run/ns", "eth0")


@given(st.text(max_size=100))
def test_no_text_is_another_error(text: str) -> None:
    assert not calls.is_answer(text) or text.strip()
    with pytest.raises(NotAnswer):
        calls.answer(f"[{text}", "pods", "/run/ns", "eth0")


def test_the_words_of_a_plugin_that_failed_are_one_short_line() -> None:
    assert calls.refusal('{"code": 7, "msg": "no addresses", "details": "all taken"}', "") == "no addresses: all taken"
    assert calls.refusal("", "first\nlast words\n\n") == "last words"
    assert calls.refusal("", "") == "it does not say why"
    assert len(calls.refusal("", "x" * 10_000)) == calls.MOST_ERROR
    assert "\x1b" not in calls.refusal('{"msg": "\\u001b[31mred"}', "")
