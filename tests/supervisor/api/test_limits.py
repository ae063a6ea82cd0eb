"""ContainerLimits, devices, kernel parameters and mounts in requests: checked, stored, shown."""

import pytest
from google.protobuf.message import Message

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api.limits import devices_message, devices_of, limits_message, limits_of, sysctls_of
from supervisor.api.mounts import mount_message, mount_of
from supervisor.api.replies import spec_message
from supervisor.api.requests import spec_of
from supervisor.model.errors import BadRequest
from supervisor.model.limits import ContainerLimits, HostDevice
from supervisor.model.values import Mount

ALL = ContainerLimits(
    memory_reservation_bytes=5 << 20,
    memory_swap_bytes=-1,
    cpu_shares=2,
    cpuset_cpus="0-3,7",
    cpuset_mems="0",
    oom_score_adj=-1000,
    shm_bytes=4096,
)
MOUNTS = (
    Mount("/a", "/b", read_only=True, options=("noexec", "rslave")),
    Mount("", "/c", empty_dir="d", group=7, sub_path="a/b", size_bytes=4096),
    Mount("", "/c", empty_dir="d", tmpfs=True, size_bytes=4096),
    Mount("", "/e", tmpfs=True, size_bytes=9, mode=0o700, options=("exec",)),
    Mount("", "/f", tmpfs=True, mode=0),
    Mount("", "/g", volume="data", options=("noexec",)),
)


def test_what_was_asked_comes_back_as_it_is() -> None:
    for limits in (ALL, ContainerLimits()):
        assert limits_of(limits_message(limits), 8 << 20, of_bundle=False) == limits
    for mount in MOUNTS:
        assert mount_of("mounts[0]", mount_message(mount)) == mount
    devices = (HostDevice("/dev/fuse", "/dev/fuse", "rwm"), HostDevice("/dev/snd", "/snd", "r"))
    assert devices_of(devices_message(devices)) == devices


def test_they_are_stored_and_shown_with_the_whole() -> None:
    asked = pb.ContainerSpec(
        rootfs="/",
        args=["a"],
        memory_bytes=8 << 20,
        limits=limits_message(ALL),
        devices=[pb.HostDevice(source="/dev/../dev/fuse/")],
        sysctls={"net.core.somaxconn": "5"},
        mounts=[mount_message(mount) for mount in MOUNTS],
    )
    shown = spec_message(spec_of(asked))
    assert shown.limits == asked.limits
    assert list(shown.devices) == [pb.HostDevice(source="/dev/fuse", path="/dev/fuse", access="rwm")]
    assert (dict(shown.sysctls), list(shown.mounts)) == (dict(asked.sysctls), list(asked.mounts))


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (
            pb.LimitsSpec(memory_reservation_bytes=9 << 20),
            "limits.memory_reservation_bytes '9437184': allowed",
        ),
        (pb.LimitsSpec(memory_swap_bytes=1 << 20), "limits.memory_swap_bytes '1048576': allowed is -1"),
        (pb.LimitsSpec(memory_swap_bytes=-2), "limits.memory_swap_bytes '-2'"),
        (pb.LimitsSpec(cpu_shares=1), "limits.cpu_shares '1': allowed is 2 to 262144"),
        (pb.LimitsSpec(cpu_shares=262_145), "limits.cpu_shares"),
        (pb.LimitsSpec(cpuset_cpus="0-"), "limits.cpuset_cpus '0-'"),
        (pb.LimitsSpec(cpuset_mems="all"), "limits.cpuset_mems 'all'"),
        (pb.LimitsSpec(oom_score_adj=1001), "limits.oom_score_adj '1001'"),
        (pb.LimitsSpec(shm_bytes=2**63), "limits.shm_bytes"),
    ],
)
def test_what_no_kernel_takes_is_refused_by_name(message: pb.LimitsSpec, words: str) -> None:
    with pytest.raises(BadRequest) as caught:
        limits_of(message, 8 << 20, of_bundle=False)
    assert words in str(caught.value)


@pytest.mark.parametrize("root", [{"bundle": "/b"}, {"image": "pause"}])
def test_exitds_init_program_is_not_for_what_has_its_own(root: dict[str, str]) -> None:
    with pytest.raises(BadRequest, match="init: a bundle names its own first process"):
        spec_of(pb.ContainerSpec(init=True, **root))  # type: ignore[arg-type]


def test_memory_with_swap_is_refused_without_a_memory_limit_and_a_bundle_has_its_own_shm() -> None:
    with pytest.raises(BadRequest, match=r"limits\.memory_swap_bytes '-1': .*only together with a memory limit"):
        limits_of(pb.LimitsSpec(memory_swap_bytes=-1), 0, of_bundle=False)
    with pytest.raises(BadRequest, match=r"limits\.shm_bytes: a bundle says that itself"):
        limits_of(pb.LimitsSpec(shm_bytes=1), 0, of_bundle=True)


@pytest.mark.parametrize(
    ("mount", "words"),
    [
        (pb.Mount(source="a", destination="/b"), "m.source 'a': allowed is an absolute path"),
        (pb.Mount(source="/a", destination="b"), "m.destination 'b': allowed is an absolute path"),
        (pb.Mount(source="/a", destination="/b", options=["size=1"]), "m.options 'size=1': allowed is exec, "),
        (pb.Mount(source="/a", destination="/b", size_bytes=1), "m.size_bytes: only a tmpfs has one"),
        (pb.Mount(source="/a", destination="/b", mode=0), "m.mode: only a tmpfs has one"),
        (pb.Mount(tmpfs=True, source="/a", destination="/b"), "m.source: a tmpfs has none"),
        (pb.Mount(source="/a", volume="v", destination="/b"), "m.source: a volume has none"),
        (pb.Mount(volume="../x", destination="/b"), "m.volume '../x': allowed is the name of a volume"),
        (pb.Mount(tmpfs=True, volume="v", destination="/b"), "m.volume: a tmpfs has none"),
        (pb.Mount(tmpfs=True, group=1, destination="/b"), "m.group: a tmpfs has none"),
        (pb.Mount(tmpfs=True, volume="x", destination="/b"), "m.volume: a tmpfs has none"),
        (pb.Mount(tmpfs=True, destination="b"), "m.destination 'b'"),
        (pb.Mount(tmpfs=True, destination="/b", mode=0o10000), "m.mode '10000': allowed is permissions in octal"),
        (pb.Mount(tmpfs=True, destination="/b", options=["rslave"]), "m.options 'rslave'"),
    ],
)
def test_what_is_no_mount_is_refused_by_its_field(mount: pb.Mount, words: str) -> None:
    with pytest.raises(BadRequest) as caught:
        mount_of("m", mount)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("device", "words"),
    [
        (pb.HostDevice(source="dev"), "devices[0].source 'dev'"),
        (pb.HostDevice(source="/dev/null", path="x"), "devices[0].path 'x'"),
        (pb.HostDevice(source="/dev/null", access="rx"), "devices[0].access 'rx'"),
        (pb.HostDevice(source="/dev/null", access="rr"), "devices[0].access 'rr'"),
    ],
)
def test_what_is_no_device_is_refused_by_its_field(device: Message, words: str) -> None:
    with pytest.raises(BadRequest) as caught:
        devices_of([device])  # type: ignore[list-item]
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value", "network"),
    [
        ("kernel.panic", "1", "none"),
        ("vm.swappiness", "1", "none"),
        ("kernel", "1", "none"),
        ("kernel.msgmaxx", "1", "none"),
        ("kernel.sem.foo", "1", "none"),
        ("net.core.somaxconn", "1", "host"),
        ("net.core.somaxconn", "", "none"),
        ("net.core.somaxconn", "1\n2", "none"),
        ("net.core/../../kernel.panic", "1", "none"),
        ("net..core", "1", "none"),
    ],
)
def test_a_kernel_parameter_is_one_of_namespaces_of_its_own(name: str, value: str, network: str) -> None:
    with pytest.raises(BadRequest, match="sysctls"):
        sysctls_of({name: value}, network=network)


def test_those_of_its_own_namespaces_are_taken() -> None:
    asked = {"net.ipv4.ip_forward": "1", "kernel.msgmax": "9", "fs.mqueue.msg_max": "4", "kernel.shm_rmid_forced": "1"}
    assert dict(sysctls_of(asked, network="none")) == asked
