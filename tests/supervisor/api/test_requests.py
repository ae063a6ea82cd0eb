"""What a request may say, field by field; and that a spec comes back as it went."""

from dataclasses import replace
from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import given
from hypothesis import strategies as st

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api import networks, replies, requests, values
from supervisor.api.logspecs import LEFT_OPEN
from supervisor.model.errors import BadRequest
from supervisor.model.networks import AddressWish
from supervisor.model.rights import Rights
from supervisor.model.storage import LEFT_OPEN as STORAGE_LEFT_OPEN
from supervisor.model.storage import Storage, StorageKind
from supervisor.model.values import LogDriver, LogMode, LogSpec, Mount, Policy, RestartPolicy, Security, Spec

MOUNT = pb.Mount(source="/a", destination="/b")


def spec(**fields: object) -> pb.ContainerSpec:
    given: dict[str, object] = {"name": "web", "args": ["sleep", "1"], "rootfs": "/"}
    return pb.ContainerSpec(**(given | fields))  # type: ignore[arg-type]  # any field, that is the point


def test_a_small_spec_gets_the_defaults_that_need_nothing_but_the_request() -> None:
    left_open = {"runtime": "", "network": "", "cwd": "", "stop_signal": 0}
    small = Spec(name="web", args=("sleep", "1"), rootfs="/", log=LEFT_OPEN, **left_open)  # type: ignore[arg-type]
    assert requests.spec_of(spec()) == replace(
        small, security=Security(seccomp="builtin"), rights=Rights(pids_limit=2048), storage=STORAGE_LEFT_OPEN
    )


def test_every_field_arrives() -> None:
    message = spec(
        env=["A=1", "B="],
        cwd="/srv",
        user="www-data:33",
        runtime="crun",
        memory_bytes=64 << 20,
        annotations={"k": "v", "a": ""},
        restart="on-failure:3",
        stop_signal="RTMIN+1",
        stop_timeout_seconds=0,
        network="host",
        labels={"tier": "front"},
        hostname="web-1.local",
        read_only=True,
        mounts=[pb.Mount(source="/src", destination="/dst", read_only=True)],
        namespace="prod",
        storage="tmpfs:64m",
    )
    assert requests.spec_of(message) == Spec(
        name="web",
        args=("sleep", "1"),
        env=("A=1", "B="),
        cwd="/srv",
        user="www-data:33",
        rootfs="/",
        runtime="crun",
        memory_bytes=64 << 20,
        annotations=(("a", ""), ("k", "v")),
        restart=RestartPolicy(Policy.ON_FAILURE, 3),
        stop_signal=35,
        stop_timeout_seconds=0,
        network="host",
        labels=(("tier", "front"),),
        hostname="web-1.local",
        read_only=True,
        mounts=(Mount("/src", "/dst", True),),
        namespace="prod",
        log=LEFT_OPEN,
        security=Security(seccomp="builtin"),
        rights=Rights(pids_limit=2048),
        storage=Storage(StorageKind.TMPFS, 64 << 20),
    )


@pytest.mark.parametrize(
    "fields",
    [
        {"name": ""},
        {"name": "a" * 63},
        {"name": "9.a_B-c"},
        {"memory_bytes": 4 << 20},
        {"memory_bytes": 2**63 - 1},
        {"rootfs": "", "bundle": "/b", "args": []},
        {"runtime": "/usr/bin/crun"},
        {"auto_remove": True},
        {"auto_remove": True, "restart": "no"},
        {"env": ["A==", "A=\n", "a b=c"]},
        {"user": "0"},
        {"user": "1000:1000"},
        {"hostname": "a"},
        {"stop_signal": "9"},
        {"mounts": [MOUNT]},
    ],
    ids=str,
)
def test_these_are_fine(fields: dict[str, object]) -> None:
    requests.spec_of(spec(**fields))


@pytest.mark.parametrize(
    ("field", "fields"),
    [
        ("name", {"name": "-web"}),
        ("name", {"name": "a" * 64}),
        ("name", {"name": "a/b"}),
        ("name", {"name": "web\n"}),
        ("name", {"name": "wéb"}),
        ("namespace", {"namespace": "a b"}),
        ("args", {"args": []}),
        ("args", {"args": [""]}),
        ("env", {"env": ["A"]}),
        ("env", {"env": ["A=1", "=1"]}),
        ("cwd", {"cwd": "srv"}),
        ("user", {"user": "a:b:c"}),
        ("user", {"user": "a b"}),
        ("user", {"user": ":0"}),
        ("rootfs", {"rootfs": ""}),
        ("rootfs", {"bundle": "/b"}),
        ("rootfs", {"rootfs": "relative"}),
        ("bundle", {"rootfs": "", "bundle": "relative"}),
        ("runtime", {"runtime": "bin/runc"}),
        ("runtime", {"runtime": "-x"}),
        ("memory_bytes", {"memory_bytes": 1}),
        ("memory_bytes", {"memory_bytes": (4 << 20) - 1}),
        ("memory_bytes", {"memory_bytes": 2**63}),
        ("annotations", {"annotations": {"": "v"}}),
        ("labels", {"labels": {"": "v"}}),
        ("stop_signal", {"stop_signal": "TREM"}),
        ("stop_signal", {"stop_signal": "0"}),
        ("network", {"network": "a/b"}),
        ("ports[0].container_port", {"ports": [pb.PortMapping(host_port=80)]}),
        ("ports[0].host_port", {"ports": [pb.PortMapping(container_port=80, host_port=65536)]}),
        ("ports[0].protocol", {"ports": [pb.PortMapping(container_port=80, protocol="icmp")]}),
        ("ports[0].host_ip", {"ports": [pb.PortMapping(container_port=80, host_ip="here")]}),
        ("ports[0].host_ip", {"ports": [pb.PortMapping(container_port=80, host_ip="fe80::1%a\nb")]}),
        ("ports", {"ports": [pb.PortMapping(container_port=80, host_port=1)] * 2}),
        ("more_networks", {"network": "a", "more_networks": ["b"] * 16}),
        ("more_networks[1]", {"network": "a", "more_networks": ["b", ""]}),
        ("more_networks[0]", {"network": "a", "more_networks": ["container:web"]}),
        ("network", {"network": "a", "more_networks": ["none"]}),
        ("network", {"network": "host", "more_networks": ["a"]}),
        ("network", {"more_networks": ["a"]}),
        ("addresses[0]", {"addresses": [pb.AddressWish(network="a")]}),
        ("addresses[0]", {"addresses": [pb.AddressWish(ips=["10.0.0.2"] * 9)]}),
        ("addresses[0].network", {"addresses": [pb.AddressWish(network="a b", mac="02:00:00:00:00:01")]}),
        ("addresses[0].ips", {"addresses": [pb.AddressWish(ips=["10.0.0.2/24"])]}),
        ("addresses[0].mac", {"addresses": [pb.AddressWish(mac="01:00:00:00:00:01")]}),
        ("addresses", {"addresses": [pb.AddressWish(mac="02:00:00:00:00:01")] * 17}),
        ("expose.ports", {"expose": pb.ExposeSpec(ports=["80/icmp"])}),
        ("userns", {"userns": "keep"}),
        ("userns", {"userns": "keep-id:uid=5"}),
        ("userns", {"userns": "nomap"}),
        ("userns", {"userns": "auto", "rootfs": "", "bundle": "/b"}),
        ("userns", {"userns": "auto", "sandbox": "pod"}),
        ("userns", {"userns": "auto", "pod": pb.PodSpec()}),
        ("userns", {"userns": "auto", "pid": "host"}),
        ("userns", {"userns": "auto", "ipc": "host"}),
        ("userns", {"userns": "auto", "rights": pb.RightsSpec(privileged=True)}),
        ("hostname", {"hostname": "a" * 65}),
        ("hostname", {"hostname": "-a"}),
        ("mounts[0].source", {"mounts": [pb.Mount(destination="/b")]}),
        ("mounts[1].destination", {"mounts": [MOUNT, pb.Mount(source="/a", destination="b")]}),
    ],
    ids=str,
)
def test_these_are_refused_by_the_name_of_the_field(field: str, fields: dict[str, object]) -> None:
    with pytest.raises(BadRequest) as refused:
        requests.spec_of(spec(**fields))
    assert refused.value.metadata["field"] == field
    assert str(refused.value).startswith(field)


def test_a_refusal_lists_the_words_that_can_be_written() -> None:
    with pytest.raises(BadRequest, match=r"^pid 'bridge': allowed is own or pod or host$"):
        requests.spec_of(spec(pid="bridge"))
    with pytest.raises(
        BadRequest, match=r"^network 'container:web': allowed is none, host, pod, bridge or a network's name$"
    ):
        requests.spec_of(spec(network="container:web"))


@pytest.mark.parametrize("fields", [{"restart": "sometimes"}, {"auto_remove": True, "restart": "always"}], ids=str)
def test_a_restart_policy_that_cannot_be_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises(BadRequest):
        requests.spec_of(spec(**fields))


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("name", {"name": "a\0b"}),
        ("args[1]", {"args": ["a", "b\0"]}),
        ("env[0]", {"env": ["A=\0"]}),
        ("rootfs", {"rootfs": "/\0"}),
        ("annotations", {"annotations": {"a": "\0"}}),
        ("labels", {"labels": {"\0": "a"}}),
        ("restart", {"restart": "\0"}),
        ("mounts[0].source", {"mounts": [pb.Mount(source="/\0", destination="/")]}),
    ],
    ids=str,
)
def test_a_nul_byte_is_refused_wherever_it_hides(path: str, fields: dict[str, object]) -> None:
    with pytest.raises(BadRequest) as refused:
        requests.spec_of(spec(**fields))
    assert refused.value.metadata["field"] == path


WORD = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=10)
NAME = st.from_regex(r"[a-zA-Z0-9][a-zA-Z0-9_.-]{0,62}", fullmatch=True)
PATH = WORD.map(lambda word: "/" + word)
PAIRS = st.dictionaries(WORD.filter(bool), WORD, max_size=3).map(lambda pairs: tuple(sorted(pairs.items())))
POLICIES = st.one_of(
    st.sampled_from([RestartPolicy(policy) for policy in Policy]),
    st.integers(min_value=1, max_value=1000).map(lambda limit: RestartPolicy(Policy.ON_FAILURE, limit)),
)
LOGS = st.builds(
    LogSpec,
    driver=st.sampled_from([None, LogDriver.CRI, LogDriver.JSON_FILE]),
    path=st.sampled_from(["", "/a/b.log", "b/0.log"]),
    max_bytes=st.sampled_from([None, 0, 4096, 2**63 - 1]),
    max_files=st.integers(0, 100),
    mode=st.sampled_from(LogMode),
    buffer_bytes=st.sampled_from([0, 65_536, 2**30]),
) | st.sampled_from([LogSpec(LogDriver.JOURNALD), LogSpec(LogDriver.NONE, mode=LogMode.NON_BLOCKING)])
SECURITIES = st.builds(
    Security,
    seccomp=st.sampled_from(["builtin", "unconfined"]),
    no_new_privileges=st.sampled_from([None, False, True]),
    apparmor=st.sampled_from(["", "unconfined", "docker-default"]),
    selinux=st.sampled_from(["", "u:r:t", "u:r:t:s0:c1,c2"]),
)
SPECS = st.builds(
    Spec,
    name=NAME,
    args=st.lists(WORD, max_size=3).map(lambda rest: ("run", *rest)),
    env=st.lists(st.tuples(NAME, WORD).map("=".join), max_size=3).map(tuple),
    cwd=PATH,
    user=st.sampled_from(["", "0", "www-data:33"]),
    rootfs=PATH,
    bundle=st.just(""),
    runtime=st.one_of(NAME, PATH, st.just("")),
    memory_bytes=st.one_of(st.just(0), st.integers(min_value=4 << 20, max_value=2**63 - 1)),
    annotations=PAIRS,
    restart=POLICIES,
    auto_remove=st.just(False),
    stop_signal=st.integers(min_value=1, max_value=64),
    stop_timeout_seconds=st.integers(min_value=0, max_value=2**32 - 1),
    network=st.sampled_from(["none", "host"]),
    labels=PAIRS,
    hostname=st.sampled_from(["", "a", "web-1.local"]),
    read_only=st.booleans(),
    mounts=st.lists(st.builds(Mount, PATH, PATH, st.booleans()), max_size=2).map(tuple),
    namespace=NAME,
    log=LOGS,
    security=SECURITIES,
    userns=st.sampled_from(["host", "auto"]),
)


@given(SPECS)
def test_a_spec_comes_back_as_it_went(spec: Spec) -> None:
    wire = replies.spec_message(spec).SerializeToString()
    assert requests.spec_of(pb.ContainerSpec.FromString(wire)) == spec


def test_networks_and_addresses_come_back_as_they_went() -> None:
    wishes = (AddressWish("b", ("10.0.0.2", "::2"), "02:00:00:00:00:01"), AddressWish(ips=("10.0.0.3",)))
    asked = requests.spec_of(
        spec(network="a", more_networks=["b", "bridge"], addresses=networks.wishes_message(wishes))
    )
    assert (asked.networks, asked.wishes) == (("a", "b", "bridge"), wishes)
    assert requests.spec_of(replies.spec_message(replace(asked, name="n", stop_signal=15))).wishes == wishes


@pytest.mark.parametrize(
    ("field", "fields"),
    [
        ("log.driver", {"driver": "syslog"}),
        ("log.mode", {"mode": "fast"}),
        ("log.max_bytes", {"max_bytes": 4095}),
        ("log.max_bytes", {"max_bytes": 2**63}),
        ("log.max_files", {"max_files": 101}),
        ("log.buffer_bytes", {"buffer_bytes": 65_535}),
        ("log.buffer_bytes", {"buffer_bytes": 2**30 + 1}),
        ("log.path", {"path": "/"}),
        ("log.path", {"path": "/a/../b"}),
        ("log.path", {"path": "/a/"}),
        ("log.path", {"path": "//a"}),
        ("log.path", {"path": "./a"}),
        ("log.path", {"path": "/a\nb"}),
        ("log.path", {"path": "/" + "a" * 1024}),
        ("log.path", {"driver": "journald", "path": "/a/b"}),
        ("log.max_bytes", {"driver": "none", "max_bytes": 4096}),
        ("log.max_files", {"driver": "none", "max_files": 2}),
    ],
    ids=str,
)
def test_a_log_that_cannot_be_is_refused_by_its_field(field: str, fields: dict[str, object]) -> None:
    with pytest.raises(BadRequest) as refused:
        requests.spec_of(spec(log=pb.LogSpec(**fields)))  # type: ignore[arg-type]  # any field, that is the point
    assert refused.value.metadata["field"] == field


@given(st.integers(min_value=0, max_value=2**63 - 1))
def test_a_time_comes_back_to_the_nanosecond(time_ns: int) -> None:
    stamp = values.timestamp(time_ns)
    assert stamp is not None
    assert requests.time_of(stamp, "since") == time_ns


@pytest.mark.parametrize(
    "stamp", [Timestamp(nanos=-1), Timestamp(nanos=10**9), Timestamp(seconds=-1), Timestamp(seconds=2**40)], ids=str
)
def test_a_time_no_clock_can_show_is_refused(stamp: Timestamp) -> None:
    with pytest.raises(BadRequest) as refused:
        requests.time_of(stamp, "since")
    assert refused.value.metadata["field"] == "since"


@pytest.mark.parametrize("text", ["a", "web-1", "0" * 64, "f" * 12])
def test_an_id_may_be_a_name_or_the_beginning_of_an_id(text: str) -> None:
    assert requests.id_of(text) == text


@pytest.mark.parametrize("text", ["", "../etc", "a b", "a\0", "0" * 65, "-a", "ü"])
def test_what_can_be_no_id_is_refused(text: str) -> None:
    with pytest.raises(BadRequest) as refused:
        requests.id_of(text)
    assert refused.value.metadata["field"] == "id"


def test_waiting_is_for_the_exit_unless_said_otherwise() -> None:
    assert requests.condition_of("") == "exited"
    assert [requests.condition_of(word) for word in requests.CONDITIONS] == list(requests.CONDITIONS)
    with pytest.raises(BadRequest):
        requests.condition_of("not-running")


def test_a_number_the_store_cannot_hold_is_refused() -> None:
    assert requests.number_of(2**63 - 1, "run") == 2**63 - 1
    with pytest.raises(BadRequest):
        requests.number_of(2**63, "run")


def test_no_grace_is_not_a_grace_of_zero() -> None:
    assert requests.timeout_of(pb.StopRequest()) is None
    assert requests.timeout_of(pb.StopRequest(timeout_seconds=0)) == 0


def test_an_error_does_not_repeat_a_value_without_bound() -> None:
    with pytest.raises(BadRequest) as refused:
        requests.spec_of(spec(cwd="x" * 100_000))
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"labels": {"a": "x" * (257 << 10)}}, "labels: 263171 bytes: at most 262144"),
        ({"annotations": {"a": "x" * (257 << 10)}}, "annotations: .* at most 262144"),
        ({"args": ["x", "y" * (3 << 20)]}, "args: .* at most 2097152"),
        ({"env": ["A=" + "y" * (3 << 20)]}, "env: .* at most 2097152"),
    ],
)
def test_more_text_than_a_container_may_carry_is_refused_by_its_field(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(BadRequest, match=words):
        requests.spec_of(pb.ContainerSpec(**{"rootfs": "/", "args": ["true"], **fields}))
