"""Limits, devices, kernel parameters and mounts of ordinary use, as a container's own processes see them, under runc
and under crun."""

import json
import os
import pathlib
import signal

import pytest

from tests.system.exitctl import Cli
from tests.system.runtimes import program
from tests.system.test_rights import said
from tests.system.waits import until

BY_RUNTIME = pytest.mark.parametrize("runtime", ["runc", "crun"])


@BY_RUNTIME
def test_a_tmpfs_has_its_size_and_mode_and_executes_nothing_unless_it_may(
    cli: Cli, tmp_path: pathlib.Path, runtime: str
) -> None:
    """At places that its image does not have: runc 1.1 gives a tmpfs the mode of the directory that it hides."""
    options = ("--tmpfs", "/a:size=64k,mode=700", "--mount", "type=tmpfs,dst=/b,tmpfs-size=1m", "--tmpfs", "/c:exec")
    look = (
        "stat -c %a /a /b; for at in /a /b /c; do cp /bin/true $at && $at/true && echo $at executes; done;"
        "head -c 200k /dev/zero 2>/dev/null >/a/x; wc -c </a/x; df -k --output=size /b | tail -n 1"
    )
    result = cli.run("--rm", "--runtime", program(runtime, tmp_path), *options, "sh", "-c", look)
    lines = [line.strip() for line in result.out.splitlines()]
    assert lines[:3] == ["700", "1777", "/c executes"]
    assert int(lines[3]) < 65_536
    assert lines[4] == "1024"
    assert result.err.count("Permission denied") == 2, result


@BY_RUNTIME
def test_a_device_is_there_under_its_name_and_only_as_it_was_allowed(
    cli: Cli, tmp_path: pathlib.Path, runtime: str
) -> None:
    options = ("--device", "/dev/loop-control:/dev/nought", "--device", "/dev/fuse:/dev/words:r")
    look = "stat -c '%F %t:%T' /dev/nought; true </dev/words && echo read; true >>/dev/words || echo not written"
    result = cli.run("--rm", "--runtime", program(runtime, tmp_path), *options, "sh", "-c", look)
    assert result.out.splitlines() == ["character special file a:ed", "read", "not written"], result


def test_what_is_no_device_is_refused_by_its_name_and_leaves_nothing(cli: Cli, tmp_path: pathlib.Path) -> None:
    for source, words in (
        ("/dev/nowhere", "No such file or directory"),
        (str(tmp_path), "no device, and no directory"),
    ):
        result = cli.run("--name", "x", "--device", source, "true")
        assert (result.code, f"device {source!r}: {words}" in result.err) == (125, True), result
    assert cli.ok("ps", "-aq") == ""


@BY_RUNTIME
def test_kernel_parameters_and_shared_memory_are_its_own(cli: Cli, tmp_path: pathlib.Path, runtime: str) -> None:
    options = ("--sysctl", "net.core.somaxconn=77", "--sysctl", "kernel.msgmax=9000", "--shm-size", "1m")
    look = "cat /proc/sys/net/core/somaxconn /proc/sys/kernel/msgmax; df -k --output=size /dev/shm | tail -n 1"
    assert said(cli, tmp_path, runtime, look, *options) == ["77", "9000", "1024"]
    with open("/proc/sys/net/core/somaxconn", encoding="ascii") as file:
        assert file.read() != "77\n"


def test_a_kernel_parameter_of_the_whole_machine_is_refused(cli: Cli) -> None:
    result = cli.run("--sysctl", "kernel.panic=1", "true")
    assert (result.code, "sysctls 'kernel.panic'" in result.err) == (125, True), result


@BY_RUNTIME
def test_weights_and_processors_are_those_that_were_asked_for(cli: Cli, tmp_path: pathlib.Path, runtime: str) -> None:
    processors = ("--cpuset-cpus", "0", "--cpuset-mems", "0", "-c", "512", "--cpu-quota", "50000")
    options = (*processors, "--cpu-period", "100000", "--oom-score-adj", "321", "-m", "64m", "--memory-swap", "64m")
    look = "grep ^Cpus_allowed_list /proc/self/status; cat /proc/self/oom_score_adj"
    assert said(cli, tmp_path, runtime, look, *options, "--memory-reservation", "32m") == [
        "Cpus_allowed_list: 0",
        "321",
    ]


def test_the_limits_are_in_its_cgroup(cli: Cli, tmp_path: pathlib.Path) -> None:
    look = (
        "cat /sys/fs/cgroup/cpu,cpuacct/cpu.shares /sys/fs/cgroup/cpu/cpu.shares /sys/fs/cgroup/cpu.weight 2>/dev/null"
    )
    (weight,) = {*said(cli, tmp_path, "runc", f"{look}; true", "--cpu-shares", "512")}
    assert weight in ("512", "20")  # of v1; of v2, by runc's conversion


def test_variables_and_labels_come_from_files(cli: Cli, tmp_path: pathlib.Path) -> None:
    (tmp_path / "env").write_text("# of the web\nA=1\nB=two words\n")
    (tmp_path / "labels").write_text("a=b\nc\n")
    files = ("--env-file", str(tmp_path / "env"), "--label-file", str(tmp_path / "labels"))
    result = cli.run("--name", "filed", *files, "-e", "A=2", "-h", "box", "sh", "-c", "echo $A-$B-$(hostname)")
    assert (result.code, result.out) == (0, "2-two words-box\n"), result
    assert json.loads(cli.ok("inspect", "--format", "{{json .Config.Labels}}", "filed")) == {"a": "b", "c": ""}


def test_every_container_has_files_of_names_of_its_own_that_are_made_for_each_run(cli: Cli) -> None:
    look = (
        "cat /etc/hostname; grep -c box /etc/hosts; cat /etc/resolv.conf; echo mine >>/etc/hosts; tail -n 1 /etc/hosts"
    )
    dns = ("--dns", "192.0.2.53", "--dns-search", "a.example", "--dns-option", "ndots:2")
    options = ("--name", "names", "-h", "box", "--add-host", "db:192.0.2.7", *dns)
    result = cli.run(*options, "sh", "-c", f"{look}; exit 3")
    assert result.code == 3
    lines = result.out.splitlines()
    assert (lines[:2], lines[-1]) == (["box", "1"], "mine")
    assert {"nameserver 192.0.2.53", "search a.example", "options ndots:2"} <= {*lines}
    cli.ok("start", "names")
    assert cli("wait", "names").out == "3\n"
    assert cli.ok("logs", "names").splitlines()[-len(lines) :] == lines  # what it wrote there went with its run


def test_the_files_of_names_may_be_the_images_or_the_callers(cli: Cli, tmp_path: pathlib.Path) -> None:
    (tmp_path / "hosts").write_text("192.0.2.1 own\n")
    own = cli.run("--rm", "-v", f"{tmp_path}/hosts:/etc/hosts", "cat", "/etc/hosts")
    assert own.out == "192.0.2.1 own\n"
    images = cli.run("--rm", "--no-hosts", "grep", "-c", " /etc/", "/proc/self/mountinfo")
    assert (images.code, images.out) == (1, "0\n"), images


def test_with_the_machines_network_they_are_the_machines(cli: Cli) -> None:
    shown = cli.run("--rm", "--network", "host", "--add-host", "db:192.0.2.7", "cat", "/etc/hosts").out
    assert shown.startswith(pathlib.Path("/etc/hosts").read_text())
    assert shown.endswith("192.0.2.7\tdb\n")


def test_with_the_machines_ipc_namespace_it_has_its_shared_memory(cli: Cli) -> None:
    look = "readlink /proc/self/ns/ipc; stat -c %d /dev/shm"
    own, host = (cli.run("--rm", "--ipc", mode, "sh", "-c", look).out.split() for mode in ("private", "host"))
    machines = [os.readlink("/proc/self/ns/ipc"), str(os.stat("/dev/shm").st_dev)]
    assert host == machines
    assert not {*own} & {*machines}
    refused = cli.run("--ipc", "host", "--sysctl", "kernel.msgmax=9000", "true")
    assert (refused.code, "with the host's ipc namespace" in refused.err) == (125, True), refused


@BY_RUNTIME
def test_the_init_program_reaps_orphans_hands_signals_on_and_ends_as_the_command(
    cli: Cli, tmp_path: pathlib.Path, runtime: str
) -> None:
    wrapped = ("--runtime", program(runtime, tmp_path), "--init")
    no_zombie = "while cat /proc/[0-9]*/stat 2>/dev/null | grep -q ' Z '; do sleep 0.01; done"  # for ever without it
    look = f"(sh -c 'exit 5' &); {no_zombie}; cat /proc/1/comm; exit 6"
    result = cli.run("--rm", *wrapped, "sh", "-c", look)
    assert (result.code, result.out) == (6, "exitd-init\n"), result
    assert cli.run("--rm", *wrapped, "sh", "-c", "kill -9 $$").code == 137
    missing = cli.run("--rm", *wrapped, "no-such-program")
    assert (missing.code, "no-such-program" in missing.err) == (127, True), missing
    assert "no-such-program" not in cli.ok("exits", "--reason", "self")
    assert cli.ok("ps", "-q") == ""
    name = f"held-{runtime}"
    cli.background(name, *wrapped, "sh", "-c", "trap 'exit 9' TERM; echo up; while :; do sleep 0.01; done")
    cli.until_status(name, "running")
    until(lambda: cli.ok("logs", name) == "up", "it does not begin")
    assert cli.ok("stop", name) == name
    assert cli("wait", name).out == "9\n"


def test_the_reason_of_a_signal_is_known_though_the_init_program_ends_with_a_number(cli: Cli) -> None:
    cli.background("by-hand", "--init", "sleep", "100")
    cli.ok("kill", "-s", "USR1", "by-hand")
    assert cli.ok("wait", "by-hand") == str(128 + signal.SIGUSR1)
    assert cli.field("by-hand", ".Exit.Reason") == "kill"
    eats = "x=a; while :; do x=$x$x; done"
    eaten = cli.run("--name", "eaten", "--init", "-m", "16m", "sh", "-c", eats)
    assert eaten.code == 137
    assert cli.field("eaten", ".Exit.Reason") == "oom"


def test_a_container_whose_root_is_read_only_cannot_write_its_files_of_names(cli: Cli) -> None:
    said = cli.run("--rm", "--read-only", "sh", "-c", "echo >>/etc/hosts")
    assert (said.code, "Read-only" in said.err) == (2, True), said


def test_create_takes_all_of_them_and_inspect_shows_them(cli: Cli, tmp_path: pathlib.Path) -> None:
    (tmp_path / "env").write_text("A=1\n")
    (tmp_path / "labels").write_text("a=b\n")
    files = ("--env-file", str(tmp_path / "env"), "--label-file", str(tmp_path / "labels"))
    memory = (
        "-m",
        "64m",
        "--memory-reservation",
        "32m",
        "--memory-swap",
        "64m",
        "--shm-size",
        "1m",
        "--ipc",
        "private",
    )
    cpu = ("--cpuset-cpus", "0", "--cpuset-mems", "0", "--cpu-shares", "512", "--cpu-quota", "50000")
    period = ("--cpu-period", "100000", "--oom-score-adj", "7", "--init", "--pull", "never", "--replace")
    mounts = ("--mount", f"type=bind,src={tmp_path},dst=/mnt", "--tmpfs", "/srv", "--device", "/dev/fuse")
    names = (
        "--add-host",
        "db:192.0.2.7",
        "--dns",
        "192.0.2.53",
        "--dns-search",
        "a.example",
        "--dns-option",
        "ndots:2",
    )
    other = ("--sysctl", "net.core.somaxconn=77", "--hostname", "box", "--name", "whole")
    cli.ok("create", "--rootfs", "/", *files, *memory, *cpu, *period, *mounts, *names, *other, "true")
    assert cli("create", "--no-hosts", "--dns", "192.0.2.1", "/", "true").code == 125  # one or the other
    (shown,) = json.loads(cli.ok("inspect", "whole"))
    host = shown["HostConfig"]
    assert (shown["Config"]["Env"], shown["Config"]["Labels"], shown["Config"]["Hostname"]) == (
        ["A=1"],
        {"a": "b"},
        "box",
    )
    assert {
        name: host[name] for name in ("Memory", "MemoryReservation", "MemorySwap", "ShmSize", "IpcMode", "Init")
    } == {
        "Memory": 64 << 20,
        "MemoryReservation": 32 << 20,
        "MemorySwap": 64 << 20,
        "ShmSize": 1 << 20,
        "IpcMode": "private",
        "Init": True,
    }
    assert (host["CpusetCpus"], host["CpusetMems"], host["CpuShares"], host["NanoCpus"]) == ("0", "0", 512, 500_000_000)
    assert (host["Binds"], [*host["Tmpfs"]], host["OomScoreAdj"]) == ([f"{tmp_path}:/mnt:rw"], ["/srv"], 7)
    assert [device["PathOnHost"] for device in host["Devices"]] == ["/dev/fuse"]
    assert (host["ExtraHosts"], host["Dns"], host["DnsSearch"]) == (["db:192.0.2.7"], ["192.0.2.53"], ["a.example"])
    assert (host["DnsOptions"], host["Sysctls"]) == (["ndots:2"], {"net.core.somaxconn": "77"})
