"""Limits, devices and kernel parameters, from words to a request and back."""

import os

import pytest

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.cli.limitwords import LimitWords, devices, limits_spec
from supervisor.cli.shape import container_document
from supervisor.cli.spec import RunOptions, container_spec, run_options
from supervisor.model.errors import BadRequest


def test_nothing_is_asked_where_nothing_is_said() -> None:
    assert limits_spec(LimitWords()) is None
    assert not container_spec(RunOptions(command=("/", "true")), {}).HasField("limits")


def test_every_word_arrives() -> None:
    options = {
        "command": ("/", "true"),
        "memory": "64m",
        "memory_reservation": "32m",
        "memory_swap": "-1",
        "cpu_shares": 512,
        "cpu_quota": 150_000,
        "cpuset_cpus": "0-3,7",
        "cpuset_mems": "0",
        "oom_score_adj": -500,
        "shm_size": "1m",
        "device": ("/dev/fuse", "/dev/zero:/dev/nought", "/dev/full:r", "/dev/null:/dev/void:rm", "tty"),
        "sysctl": ("net.core.somaxconn=17",),
        "label": ("a=b", "c"),
    }
    spec = container_spec(run_options(options), {})
    assert spec.limits == pb.LimitsSpec(
        memory_reservation_bytes=32 << 20,
        memory_swap_bytes=-1,
        cpu_shares=512,
        cpuset_cpus="0-3,7",
        cpuset_mems="0",
        oom_score_adj=-500,
        shm_bytes=1 << 20,
    )
    assert spec.cpu_limit_milli == 1500
    assert dict(spec.sysctls) == {"net.core.somaxconn": "17"}
    assert dict(spec.labels) == {"a": "b", "c": ""}
    assert [(each.source, each.path, each.access) for each in spec.devices] == [
        ("/dev/fuse", "", ""),
        ("/dev/zero", "/dev/nought", ""),
        ("/dev/full", "", "r"),
        ("/dev/null", "/dev/void", "rm"),
        (os.path.abspath("tty"), "", ""),
    ]
    host = container_document(pb.Container(spec=spec))["HostConfig"]
    assert isinstance(host, dict)
    assert {name: host[name] for name in ("MemorySwap", "CpuShares", "OomScoreAdj", "ShmSize", "Sysctls")} == {
        "MemorySwap": -1,
        "CpuShares": 512,
        "OomScoreAdj": -500,
        "ShmSize": 1 << 20,
        "Sysctls": {"net.core.somaxconn": "17"},
    }
    assert host["Devices"][1] == {
        "PathOnHost": "/dev/zero",
        "PathInContainer": "/dev/nought",
        "CgroupPermissions": "",
    }


def test_no_quota_is_no_limit_and_no_swap_limit_may_be_left_open() -> None:
    spec = container_spec(run_options({"command": ("/", "true"), "cpu_quota": -1, "memory_swap": "0"}), {})
    assert (spec.cpu_limit_milli, spec.HasField("limits")) == (0, False)


@pytest.mark.parametrize("word", ["", ":", "/dev/null:", "/dev/null:x", "/dev/null:/a:/b", "/dev/null:/a:rwx", ":/a"])
def test_what_is_no_device_is_refused(word: str) -> None:
    with pytest.raises(BadRequest, match=f"--device {word}: write"):
        devices([word])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"cpus": "1", "cpu_quota": 5}, "--cpus and --cpu-quota exclude each other"),
        ({"cpu_period": 5}, "--cpu-period 5: means nothing without --cpu-quota"),
        ({"cpu_quota": 1}, "--cpu-quota 1, --cpu-period 100000: no part of a CPU"),
        ({"cpu_quota": 1, "cpu_period": -5}, "--cpu-period -5"),
        ({"cpu_shares": -1}, "--cpu-shares -1"),
        ({"cpu_shares": 2**32}, "--cpu-shares 4294967296"),
        ({"memory_swap": "much"}, "--memory-swap much"),
        ({"memory_reservation": "-1"}, "--memory-reservation -1"),
        ({"shm_size": "x"}, "--shm-size x"),
        ({"sysctl": ("net.core.somaxconn",)}, "sysctl 'net.core.somaxconn' is not of the form"),
    ],
)
def test_what_is_no_limit_is_refused_by_its_option(options: dict[str, object], words: str) -> None:
    with pytest.raises(BadRequest) as caught:
        container_spec(run_options({"command": ("/", "true"), **options}), {})
    assert words in str(caught.value)
