"""Records of attachments: what is written is read, and nothing else is."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.model.networks import Attached, PublishedPort
from supervisor.network import conflist, records
from supervisor.network.records import AttachmentRecord, BadAttachment

TEXT = json.dumps({"cniVersion": "1.0.0", "name": "pods", "plugins": [{"type": "bridge"}]})
PORTS = (PublishedPort(80, 8080), PublishedPort(53, 53, "udp", "127.0.0.1"))
RECORD = AttachmentRecord("c" * 64, 3, conflist.parse(TEXT), ("/usr/lib/cni", "/opt/cni/bin"), PORTS)
ANSWER = json.dumps({"ips": [{"address": "10.88.0.2/16", "gateway": "10.88.0.1"}]})


@pytest.mark.parametrize("record", [RECORD, RECORD.with_result(ANSWER), replace(RECORD, ports=())])
def test_what_is_written_is_read(record: AttachmentRecord) -> None:
    assert records.decode(records.encode(record), record.id) == record


def test_its_file_names_container_and_run() -> None:
    assert records.key_of(RECORD.id) == ("c" * 64, 3)
    assert records.key_of("by-hand-1.x-12") == ("by-hand-1.x", 12)
    for name in ("", "x", "x-", "x-0", "-1", "../x-1", "x-1.new", "odd", "x-1/2", "\u0661-\u0661"):
        assert records.key_of(name) is None


def test_a_record_says_what_its_network_has_given() -> None:
    assert RECORD.attached("/ns") is None
    given_ = RECORD.with_result(ANSWER).attached("/ns")
    assert given_ == Attached("pods", "eth0", "", ("10.88.0.2/16",), ("10.88.0.1",))


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2},
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
