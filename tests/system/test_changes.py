"""What is changed of containers that are there, and what they use: rename, update, stats, and the verbs around them."""

import contextlib
import json
import os
import pathlib
import threading

import pytest

from supervisor.model.errors import NameTaken
from supervisor.runtime.oci import bundle, cgroups
from tests.system.daemons import Daemon, spec
from tests.system.exitctl import Cli
from tests.system.limits import V2, limits_of
from tests.system.lives import events
from tests.system.runtimes import program
from tests.system.waits import LIMIT_SECONDS, until

MIB = 1 << 20
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


@pytest.mark.parametrize("runtime", ["runc", "crun", "io.containerd.runc.v2"])
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


def test_what_an_update_clears_is_cleared_of_a_bundles_own_limits_too(cli: Cli, tmp_path: pathlib.Path) -> None:
    """In the run that there is, and in the next one, whose config.json is the bundle's no more."""
    cli.ok("create", "--name", "lender", "--rootfs", "/", "true")
    config = json.loads(pathlib.Path(cli.field("lender", ".Exitd.Bundle"), "config.json").read_text())
    config["linux"].pop("cgroupsPath")
    config["linux"]["resources"] |= {"memory": {"limit": 48 * MIB, "swap": 48 * MIB}, "pids": {"limit": 55}}
    config["linux"]["resources"]["cpu"] = {"shares": 333}
    config["process"]["args"] = ["sleep", "1000"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    made = cli.ok("run", "-d", "--name", "bundled", "--bundle", str(tmp_path))
    found = limits_of(made)
    assert (found["memory"], found["pids"]) == (str(48 * MIB), "55")
    cli.ok("update", "--memory", "0", "--pids-limit", "66", "bundled")
    for _ in range(2):
        found = limits_of(made)
        assert int(found["memory"]) > 1 << 60 if not V2 else found["memory"] == "max"
        assert found["pids"] == "66" and (V2 or found["shares"] == "333")
        cli.ok("restart", "-t", "0", "bundled")
    cli.ok("rm", "-f", "bundled", "lender")


def test_an_update_that_cannot_be_changes_nothing_at_all(cli: Cli) -> None:
    made = cli.background("fixed", "--memory", "64m", "--pids-limit", "50", "sleep", "1000")
    before = limits_of(made)
    refusals = {
        ("--cpuset-cpus", "9999", "--pids-limit", "40"): "update",  # by the kernel, after others were set
        ("--memory-reservation", "65m"): "memory_reservation_bytes",
        ("--memory-swap", "32m"): "memory_swap_bytes",
        ("--memory", "1k"): "memory_bytes",
        ("--restart", "often"): "restart",
    }
    for words, named in refusals.items():
        said = cli("update", *words, "fixed")
        assert said.code == 125 and named in said.err, said
        assert limits_of(made) == before
    assert cli("update", "fixed").code == 125  # nothing to update
    assert cli.field("fixed", ".HostConfig.PidsLimit") == "50"
    assert "update" not in [e.type for e in events(cli.daemon.client(), made)]
    cli.daemon.restart()
    assert limits_of(made) == before and cli.field("fixed", ".HostConfig.CpusetCpus") == ""
    cli.ok("rm", "-f", "fixed")


def test_a_container_that_does_not_run_has_its_new_limits_when_it_does(cli: Cli) -> None:
    created = cli.ok("create", "--name", "later", "--rootfs", "/", "sleep", "1000")
    cli.ok("update", "--pids-limit", "33", "later")
    assert limits_of(created)["pids"] == "33"
    cli.ok("start", "later")
    cli.ok("kill", "later")
    assert cli.ok("wait", "later") == "137"
    cli.ok("update", "--pids-limit", "34", "--cpus", "0.25", "later")
    cli.ok("start", "later")
    assert limits_of(created)["pids"] == "34" and limits_of(created)["cpu"] == "25000"
    cli.ok("pause", "later")
    cli.ok("update", "--pids-limit", "35", "later")
    assert limits_of(created)["pids"] == "35"
    cli.ok("rm", "-f", "later")


def test_a_new_restart_policy_decides_about_the_next_end(cli: Cli) -> None:
    made = cli.background("again", "sh", "-c", "sleep 1000")
    cli.ok("update", "--restart", "always", "again")
    pid = cli.field("again", ".State.Pid")
    os.kill(int(pid), 9)
    until(
        lambda: cli.field("again", ".RestartCount") == "1" and cli.field("again", ".State.Pid") not in ("0", pid),
        "again",
    )
    cli.ok("update", "--restart", "no", "again")
    os.kill(int(cli.field("again", ".State.Pid")), 9)
    assert cli.ok("wait", made) == "137"
    cli.until_status("again", "exited")
    cli.ok("rm", "again")
    auto = cli.background("auto", "--rm", "sleep", "1000")
    assert cli("update", "--restart", "always", "auto").code == 125
    cli.ok("rm", "-f", auto)


def test_a_new_name_is_the_containers_and_the_old_one_free(cli: Cli) -> None:
    made = cli.background("before", "sleep", "1000")
    other = cli.background("other", "true")
    assert "taken" in cli("rename", "before", "other").err
    cli.ok("rename", "before", "after")
    cli.ok("rename", made, "after")  # a request that is repeated
    assert "no container before" in cli("inspect", "before").err
    assert cli.field("after", ".Id") == made
    again = cli.background("before", "true")
    cli.daemon.restart()
    assert (cli.field("after", ".Id"), cli.field("before", ".Id")) == (made, again)
    (event,) = [e for e in events(cli.daemon.client(), made) if e.type == "rename"]
    assert (event.name, event.attributes["old_name"]) == ("after", "before")
    cli.ok("kill", "after")
    assert cli.ok("wait", "after") == "137"
    assert cli.ok("exits", "--id", made, "--format", "{{.Name}}") == "after"
    cli.ok("rm", "-f", made, again, other)


def test_of_many_who_want_one_name_at_once_one_gets_it(daemon: Daemon) -> None:
    with daemon.client() as client:
        ids = [client.create(spec("true", name=f"many-{number}")).id for number in range(8)]
    got: list[str] = []

    def rename(id: str) -> None:
        with daemon.client() as client, contextlib.suppress(NameTaken):
            client.rename(id, "wanted")
            got.append(id)

    def create() -> None:
        with daemon.client() as client, contextlib.suppress(NameTaken):
            got.append(client.create(spec("true", name="wanted")).id)

    tasks = [threading.Thread(target=rename, args=(id,)) for id in ids] + [threading.Thread(target=create) for _ in ids]
    for task in tasks:
        task.start()
    for task in tasks:
        task.join(LIMIT_SECONDS)
    with daemon.client() as client:
        assert [each.id for each in client.list(all_of_them=True) if each.spec.name == "wanted"] == got
        assert len(got) == 1
        for each in client.list(all_of_them=True):
            client.remove(each.id, force=True)


def test_an_update_of_a_pod_is_of_all_its_containers_together(cli: Cli) -> None:
    made = cli.background("pause", "--annotation", "io.kubernetes.docker.type=podsandbox", "sleep", "1000")
    member = cli.background("member", "--pod", made, "--cpus", "0.5", "--pids-limit", "40", "sleep", "1000")
    around_them = next(path for path in (bundle.pod_cgroup(made), bundle.pod_slice(made)) if cgroups.existing(path))
    around = [path for path in cgroups.directories(around_them) if pathlib.Path(path, "pids.max").exists()]

    def most() -> str:
        return pathlib.Path(around[0], "pids.max").read_text().strip()

    cli.ok("update", "--pids-limit", "99", "--memory", "200m", "--cpus", "0.75", "pause")
    assert most() == "99"
    refusals = {
        ("--cpus", "0.25", "pause"): "member has 500",
        ("--cpus", "0.8", "member"): "its whole pod 750",
        ("--cpuset-cpus", "0", "pause"): "cpuset_cpus",
    }
    for words, why in refusals.items():
        said = cli("update", *words)
        assert said.code == 125 and why in said.err, said
    pod = json.loads(cli.ok("inspectp", made))["status"]
    assert pod["id"] == made
    cli.daemon.restart()
    cli.ok("update", "--pids-limit", "98", "--restart", "always", "pause")
    assert most() == "98"
    cli.ok("stopp", made)
    cli.ok("update", "--pids-limit", "0", "pause")
    assert most() == "max"
    cli.ok("start", "pause")
    assert most() == "max"
    with cli.daemon.client() as client:
        assert client.inspect_pod(made).spec.memory_bytes == 200 * MIB
    assert "is a pod" in cli("rename", "pause", "other").err
    cli.ok("rm", "-f", member, made)
