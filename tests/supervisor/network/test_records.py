"""Records of attachments: what is written is read, and nothing else is."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.model.networks import PublishedPort
from supervisor.network import conflist, records
from supervisor.network.records import AttachmentRecord, BadAttachment, NetworkLink

TEXT = json.dumps({"cniVersion": "1.0.0", "name": "pods", "plugins": [{"type": "bridge"}]})
PORTS = (PublishedPort(80, 8080), PublishedPort(53, 53, "udp", "127.0.0.1"))
LINK = NetworkLink("eth0", conflist.parse(TEXT), ("/usr/lib/cni", "/opt/cni/bin"), PORTS)
RECORD = AttachmentRecord("c" * 64, 3, (LINK,))
ANSWER = json.dumps({"ips": [{"address": "10.88.0.2/16", "gateway": "10.88.0.1"}]})


ANSWERED = RECORD.with_link(replace(LINK, result=ANSWER))
SECOND = NetworkLink("eth1", conflist.parse(TEXT.replace("pods", "other")), ("/opt/cni/bin",))
TWO = ANSWERED.with_link(SECOND)
ASKED = RECORD.with_link(replace(LINK, ips=("10.88.0.9",), mac="02:00:00:00:00:01"))


@pytest.mark.parametrize("record", [RECORD, ANSWERED, TWO, TWO.without("eth0"), ASKED])
def test_what_is_written_is_read(record: AttachmentRecord) -> None:
    assert records.decode(records.encode(record), record.id) == record


def test_its_file_names_container_and_run() -> None:
    assert records.key_of(RECORD.id) == ("c" * 64, 3)
    assert records.key_of("by-hand-1.x-12") == ("by-hand-1.x", 12)
    for name in ("", "x", "x-", "x-0", "-1", "../x-1", "x-1.new", "odd", "x-1/2", "\u0661-\u0661"):
        assert records.key_of(name) is None


def test_one_network_is_a_record_as_earlier_exitds_write_and_read_it() -> None:
    document = {"version": 1, "container": "c" * 64, "run": 3, "network": TEXT, "result": ANSWER}
    document |= {
        "plugin_dirs": ["/usr/lib/cni", "/opt/cni/bin"],
        "ports": [[80, 8080, "tcp", ""], [53, 53, "udp", "::1"]],
    }
    found = records.decode(json.dumps(document).encode(), RECORD.id)
    assert json.loads(records.encode(found)) == document
    assert [json.loads(records.encode(each))["version"] for each in (TWO, TWO.without("eth0"), ASKED)] == [2, 2, 2]


def test_links_are_told_apart_by_their_interfaces() -> None:
    assert (TWO.networks, TWO.ports) == (("pods", "other"), PORTS)
    assert TWO.without("eth1") == ANSWERED and TWO.with_link(LINK).links == (LINK, SECOND)


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2},
        {"version": 3},
        {"version": 2, "links": []},
        {"version": 2, "links": ["eth0"]},
        {"version": 2, "links": [{**json.loads(records.encode(RECORD)), "interface": "../eth0"}]},
        {"version": 2, "links": 2 * [json.loads(records.encode(RECORD))]},
        {"container": "d" * 64},
        {"run": "4"},
        {"network": "{}"},
        {"plugin_dirs": [1]},
        {"plugin_dirs": None},
        {"ports": [[80, 80, "icmp", ""]]},
        {"ports": [[0, 80, "tcp", ""]]},
        {"ports": [[80, "80", "tcp", ""]]},
        {"ports": [[80]]},
        {"result": "["},
        {"result": "[]"},
        {"result": 1},
    ],
    ids=str,
)
def test_what_no_exitd_wrote_is_refused(change: dict[str, object]) -> None:
    document = {**json.loads(records.encode(RECORD)), **change}
    with pytest.raises(BadAttachment):
        records.decode(json.dumps(document).encode(), RECORD.id)


@given(st.binary(max_size=200) | st.recursive(st.none() | st.text(), st.lists).map(lambda v: json.dumps(v).encode()))
def test_no_bytes_are_another_error(data: bytes) -> None:
    with pytest.raises(BadAttachment):
        records.decode(data, RECORD.id)
