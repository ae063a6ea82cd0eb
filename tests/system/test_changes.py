"""What is changed of containers that are there, and what they use: rename, update, stats, and the verbs around them."""

import json
import pathlib

import pytest

from supervisor.runtime.oci import bundle, cgroups
from tests.system.exitctl import Cli
from tests.system.lives import events
from tests.system.runtimes import program

MIB = 1 << 20
V2 = cgroups.mode() is cgroups.Mode.V2


def in_cgroup(id: str, v1: str, v2: str) -> str:
    """What the kernel has in force."""
    places = cgroups.paths(bundle.single_cgroup(id))
    controller = v1.partition(".")[0]
    top = places["unified"] if V2 else next(path for names, path in places.items() if controller in names.split(","))
    return pathlib.Path(top, v2 if V2 else v1).read_text().strip()


def limits_of(id: str) -> dict[str, str]:
    quota = in_cgroup(id, "cpu.cfs_quota_us", "cpu.max")
    return {
        "memory": in_cgroup(id, "memory.limit_in_bytes", "memory.max"),
        "reservation": in_cgroup(id, "memory.soft_limit_in_bytes", "memory.low"),
        "cpu": quota.partition(" ")[0],
        "shares": in_cgroup(id, "cpu.shares", "cpu.weight"),
        "cpus": in_cgroup(id, "cpuset.cpus", "cpuset.cpus.effective"),
        "pids": in_cgroup(id, "pids.max", "pids.max"),
    }


SOME_WORDS: tuple[str, ...] = ("--memory", "64m", "--memory-reservation", "32m", "--cpus", "0.5", "--cpu-shares", "512")
SOME_WORDS += ("--cpuset-cpus", "0", "--cpuset-mems", "0", "--pids-limit", "77")
SOME = {
    "memory": str(64 * MIB),
    "reservation": str(32 * MIB),
    "cpu": "50000",
    "shares": "20" if V2 else "512",
    "cpus": "0",
    "pids": "77",
}
NONE_WORDS: tuple[str, ...] = ("--memory", "0", "--memory-reservation", "0", "--cpu-quota", "-1", "--cpu-shares", "0")
NONE_WORDS += ("--cpuset-cpus", "", "--cpuset-mems", "", "--pids-limit", "-1")


def is_free(found: dict[str, str], before: dict[str, str]) -> bool:
    """Whether it has no limits, as a container that was made without any, but for its limit of processes."""
    return found["pids"] == "max" and {**found, "pids": ""} == {**before, "pids": ""}


@pytest.mark.parametrize("runtime", ["runc", "crun"])
def test_an_update_holds_at_once_and_after_restarts_of_exitd_and_container_and_so_does_what_it_clears(
    cli: Cli, tmp_path: pathlib.Path, runtime: str
) -> None:
    made = cli.background("limited", "--runtime", program(runtime, tmp_path), "sleep", "1000")
    whole = cli.field(made, ".Id")
    before = limits_of(whole)
    assert cli.ok("update", *SOME_WORDS, "--restart", "on-failure:3", "limited") == "limited"
    assert limits_of(whole) == SOME
    cli.daemon.restart()
    cli.ok("restart", "-t", "0", "limited")
    assert limits_of(whole) == SOME
    host = json.loads(cli.ok("inspect", "-f", "{{json .HostConfig}}", "limited"))
    assert (host["Memory"], host["NanoCpus"], host["PidsLimit"]) == (64 * MIB, 500_000_000, 77)
    assert host["RestartPolicy"] == {"Name": "on-failure", "MaximumRetryCount": 3}
    cli.ok("update", *NONE_WORDS, "limited")
    assert is_free(limits_of(whole), before), limits_of(whole)
    cli.ok("restart", "-t", "0", "limited")
    assert is_free(limits_of(whole), before), limits_of(whole)
    (last, *_) = [e for e in events(cli.daemon.client(), whole) if e.type == "update"][::-1]
    assert last.attributes["memory_bytes"] == "0" and "restart" not in last.attributes
    cli.ok("rm", "-f", "limited")
