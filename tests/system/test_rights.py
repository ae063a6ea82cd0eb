"""Rights and limits as a container's own processes see them, under runc and under crun."""

import os
import pathlib

import pytest

from supervisor.model.rights import DEFAULT, NAMES
from supervisor.runtime.oci import machine
from tests.system.exitctl import Cli
from tests.system.runtimes import program

BY_RUNTIME = pytest.mark.parametrize("runtime", ["runc", "crun"])
STATUS = (
    "grep -E '^(CapBnd|CapEff|CapInh|CapAmb|NoNewPrivs)' /proc/self/status; grep -E '(core|open)' /proc/self/limits"
)
PIDS_MAX = "cat $(ls /sys/fs/cgroup/pids/pids.max /sys/fs/cgroup/pids.max 2>/dev/null)"


def mask(names: set[str]) -> str:
    return f"{sum(1 << NAMES.index(name) for name in names):016x}"


def said(cli: Cli, tmp_path: pathlib.Path, runtime: str, script: str, *options: str) -> list[str]:
    """The lines of a container's script, which must have ended with 0 and complained of nothing."""
    words = ("--runtime", program(runtime, tmp_path), *options, "sh", "-c", script)
    result = cli.run("--rm", *words)
    assert (result.code, result.err) == (0, ""), result
    return [" ".join(line.split()) for line in result.out.splitlines()]


@BY_RUNTIME
def test_capabilities_and_limits_are_those_that_were_asked_for(cli: Cli, tmp_path: pathlib.Path, runtime: str) -> None:
    options = ("--cap-drop", "all", "--cap-add", "CHOWN,cap_kill", "--ulimit", "core=5:7", "--ulimit", "nofile=77")
    wanted = mask({"CAP_CHOWN", "CAP_KILL"})
    assert said(cli, tmp_path, runtime, STATUS, *options) == [
        "CapInh: 0000000000000000",
        f"CapEff: {wanted}",
        f"CapBnd: {wanted}",
        "CapAmb: 0000000000000000",
        "NoNewPrivs: 1",
        "Max core file size 5 7 bytes",
        "Max open files 77 77 files",
    ]


def test_without_a_word_there_are_dockers_capabilities_and_the_usual_limits(cli: Cli, tmp_path: pathlib.Path) -> None:
    lines = said(cli, tmp_path, "runc", f"{STATUS}; {PIDS_MAX}")
    assert lines[1:3] == [f"CapEff: {mask({*DEFAULT})}", f"CapBnd: {mask({*DEFAULT})}"]
    assert lines[-1] == "2048"
    assert lines[-2].startswith("Max open files 1024 ")


@BY_RUNTIME
def test_the_limit_of_processes_is_hit_and_no_limit_is_none(cli: Cli, tmp_path: pathlib.Path, runtime: str) -> None:
    many = "for n in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do sleep 60 & done"
    of = ("--runtime", program(runtime, tmp_path))
    few = cli.run("--rm", *of, "--pids-limit", "15", "sh", "-c", f"{many}; {PIDS_MAX}")
    assert (few.code, "fork" in few.err) == (2, True), few
    assert said(cli, tmp_path, runtime, f"{many}; {PIDS_MAX}", "--pids-limit", "-1") == ["max"]


@BY_RUNTIME
def test_groups_besides_those_of_its_user(cli: Cli, tmp_path: pathlib.Path, runtime: str) -> None:
    options = ("--user", "1000:50", "--group-add", "4242", "--group-add", "7")
    (groups,) = said(cli, tmp_path, runtime, "grep ^Groups: /proc/self/status", *options)
    assert {*groups.split()[1:]} >= {"4242", "7"}


@BY_RUNTIME
def test_a_privileged_container_sees_and_writes_what_others_do_not(
    cli: Cli, tmp_path: pathlib.Path, runtime: str
) -> None:
    look = (
        "grep -E '^(CapEff|NoNewPrivs|Seccomp):' /proc/self/status; "
        "head -c 4 /proc/interrupts | wc -c; "
        "cat /proc/sys/vm/swappiness > /proc/sys/vm/swappiness && echo written; "
        "grep -c ' /proc/[a-z]* ' /proc/self/mountinfo; "
        "grep -E ' /sys/fs/cgroup' /proc/self/mountinfo | grep -c ' ro,'; "
        "find /dev -type b -o -type c | sort | head -n 1000"
    )
    devices = {device.path for device in machine.devices()}
    lines = said(cli, tmp_path, runtime, look, "--privileged")
    assert lines[:6] == [
        *(f"CapEff: {mask({*machine.capabilities()})}", "NoNewPrivs: 0", "Seccomp: 0"),
        *("4", "written", "0"),
    ]
    assert devices & {device.path for device in machine.devices()} <= {*lines[7:]}
    assert os.path.exists("/proc/interrupts")


def test_what_was_asked_is_shown_and_holds_in_an_exec_and_after_a_restart(cli: Cli) -> None:
    box = cli.background("box", "--cap-drop", "ALL", "--ulimit", "nofile=50", "--pids-limit", "33", "sleep", "600")
    shown = (cli.field(box, f".HostConfig.{name}") for name in ("PidsLimit", "CapDrop", "Privileged"))
    assert list(shown) == ["33", "[ALL]", "false"]
    for _ in range(2):
        look = f"ulimit -n; grep CapBnd /proc/self/status; {PIDS_MAX}"
        assert cli.ok("exec", box, "sh", "-c", look).split() == ["50", "CapBnd:", "0" * 16, "33"]
        cli.ok("restart", "-t", "0", box)
    cli.ok("rm", "-f", box)


POD = """\
apiVersion: v1
kind: Pod
metadata: {name: safe}
spec:
  restartPolicy: Never
  securityContext: {supplementalGroups: [4001], fsGroup: 4002, runAsNonRoot: true}
  containers:
  - name: app
    image: /
    command: [sh, -c, 'id -G; stat -c %g.%a /mnt; echo >/mnt/x; stat -c %g /mnt/x; grep CapBnd /proc/self/status']
    securityContext:
      runAsUser: 1000
      runAsGroup: 1001
      capabilities: {drop: [ALL], add: [NET_BIND_SERVICE]}
    volumeMounts: [{name: data, mountPath: /mnt}]
  volumes: [{name: data, emptyDir: {}}]
"""


def test_a_played_pods_security_context_holds_in_its_containers(cli: Cli, tmp_path: pathlib.Path) -> None:
    file = tmp_path / "pod.yaml"
    file.write_text(POD)
    cli.ok("play", str(file))
    assert cli.ok("wait", "safe-app") == "0"
    assert cli.ok("logs", "safe-app").splitlines() == [
        "1001 4001 4002",
        "4002.2777",
        "4002",
        f"CapBnd:\t{mask({'CAP_NET_BIND_SERVICE'})}",
    ]
    cli.ok("play", "--down", str(file))
    file.write_text(POD.replace("runAsUser: 1000", "").replace("runAsGroup: 1001", ""))
    refused = cli("play", str(file))
    assert (refused.code, "runAsNonRoot: the user of safe-app is root" in refused.err) == (125, True), refused
