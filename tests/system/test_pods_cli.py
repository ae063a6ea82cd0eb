"""Pods on real containers by exitctl: the founding document's own command lines, and crictl's words."""

import json
import os
import pathlib
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from supervisor.api.client import Client
from supervisor.runtime.oci import cgroups
from tests.system import daemons, tinyroot
from tests.system.daemons import Daemon
from tests.system.exitctl import Cli, Said
from tests.system.waits import until

# The last lines of the first founding document, with runc and the placeholders filled in, and nothing else changed.
SANDBOX = "run -tid --runtime runc --network none --annotation io.kubernetes.docker.type=podsandbox {image} {command}"
MEMBER = (
    "run -tid --runtime runc --network none --annotation io.kubernetes.docker.type=container "
    "--annotation io.kubernetes.sandbox.id={sandbox} busybox {command}"
)
RUNP = "runp --runtime runc sandbox-config.json"
SANDBOX_CONFIG = """{
"metadata": {
"name": "nginx-sandbox",
"namespace": "default",
"attempt": 1,
"uid": "hdishd83djaidwnduwk28bcsb"
},
"image": {
"image": "docker.io/library/busybox:latest"
},
"linux": {
}
}
"""


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """With an image that is called busybox in its store."""
    base = tmp_path_factory.mktemp("root")
    root = tinyroot.make(base / "root")
    subprocess.run(["tar", "-C", root, "-cf", base / "root.tar", "."], check=True, timeout=60)
    with daemons.daemon() as made:
        Cli(made).ok("image", "import", str(base / "root.tar"), "busybox")
        yield made


@pytest.fixture
def cli(daemon: Daemon, client: Client) -> Cli:
    return Cli(daemon)


def typed(cli: Cli, line: str, **words: str) -> str:
    return cli.ok(*line.format(**words).split())


def inspectp(cli: Cli, pod: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(cli.ok("inspectp", pod))
    return found


def network(cli: Cli, container: str) -> str:
    return os.readlink(f"/proc/{cli.field(container, '.State.Pid')}/ns/net")


@pytest.mark.parametrize(("image", "command"), [("pause", ""), ("busybox", "sleep 1000")])
def test_the_founding_documents_command_lines_make_a_pod_and_a_member_of_it(cli: Cli, image: str, command: str) -> None:
    sandbox = typed(cli, SANDBOX, image=image, command=command)
    member = typed(cli, MEMBER, sandbox=sandbox, command="sleep 1000")
    assert network(cli, member) == network(cli, sandbox) != os.readlink("/proc/self/ns/net")
    assert cli.ok("pods", "-q", "--state", "ready") == sandbox
    assert [each["Id"] for each in inspectp(cli, sandbox)["info"]["members"]] == [member]
    assert cli.ok("ps", "-q", "--no-trunc", "--pod", sandbox).split() == [member, sandbox]


def test_a_member_of_an_unknown_sandbox_is_refused_with_the_next_step(cli: Cli) -> None:
    said = cli(*MEMBER.format(sandbox="feedfacefeed", command="true").split())
    assert (said.code, said.out) == (125, "")
    assert "no pod feedfacefeed; `exitctl pods` lists all" in said.err


def runp(cli: Cli, directory: pathlib.Path, text: str = SANDBOX_CONFIG) -> Said:
    """Typed where the file is."""
    (directory / "sandbox-config.json").write_text(text)
    before = os.getcwd()
    os.chdir(directory)
    try:
        return cli(*RUNP.split())
    finally:
        os.chdir(before)


def test_the_founding_documents_sandbox_is_run_shown_stopped_and_removed(cli: Cli, tmp_path: pathlib.Path) -> None:
    said = runp(cli, tmp_path)
    pod = said.out.strip()
    assert (said.code, said.err) == (0, "exitctl: sandbox-config.json:8:1: image: ignored: there is no such field\n")
    status = inspectp(cli, pod)["status"]
    assert (status["id"], status["state"], status["runtimeHandler"]) == (pod, "SANDBOX_READY", "runc")
    assert status["metadata"] == {
        "attempt": 1,
        "name": "nginx-sandbox",
        "namespace": "default",
        "uid": "hdishd83djaidwnduwk28bcsb",
    }
    listed = json.loads(cli.ok("pods", "-o", "json"))["items"]
    assert [(each["id"], each["metadata"]) for each in listed] == [(pod, status["metadata"])]
    assert cli.ok("stopp", pod) == f"Stopped sandbox {pod}"
    assert inspectp(cli, pod)["status"]["state"] == "SANDBOX_NOTREADY"
    assert "NotReady" in cli.ok("pods")
    assert cli.ok("stopp", pod) == f"Stopped sandbox {pod}"
    assert cli.ok("rmp", pod) == f"Removed sandbox {pod}"
    assert json.loads(cli.ok("pods", "-o", "json")) == {"items": []}


def test_the_same_sandbox_a_second_time_is_refused_and_the_first_goes_on(cli: Cli, tmp_path: pathlib.Path) -> None:
    pod = runp(cli, tmp_path).out.strip()
    again = runp(cli, tmp_path)
    assert (again.code, again.out) == (125, "")
    assert "nginx-sandbox" in again.err
    assert cli.ok("pods", "-q", "--state", "ready") == pod


def test_a_pods_limit_of_processes_is_that_of_all_its_containers_together(cli: Cli, tmp_path: pathlib.Path) -> None:
    (config := tmp_path / "c.yaml").write_text("metadata: {name: few, namespace: shop}\n")
    pod = cli.ok("runp", "--pids-limit", "100", str(config))
    assert inspectp(cli, pod)["info"]["pidsLimit"] == 100
    many = "i=0; while [ $i -lt 60 ]; do sleep 100 & i=$((i+1)); done"
    cli.ok("run", "-d", "--pod", pod, "--name", "one", "busybox", "sh", "-c", f"{many}; echo up; wait")
    until(lambda: cli.ok("logs", "one") == "up", "the first member has not begun all of its own")
    other = cli("run", "--pod", pod, "busybox", "sh", "-c", f"{many}; echo up")
    assert (other.code, other.out, "fork" in other.err) == (2, "", True), other
    assert cli.ok("pods", "-q", "--state", "ready") == pod


def test_a_broken_sandbox_file_is_refused_with_line_column_and_field(cli: Cli, tmp_path: pathlib.Path) -> None:
    said = runp(cli, tmp_path, SANDBOX_CONFIG.replace('"attempt": 1,', '"attempt": 1'))
    assert (said.code, said.out) == (125, "")
    assert said.err == ("exitctl: sandbox-config.json:6:1: metadata: no JSON: a comma or the closing } is missing\n")


def test_a_sandboxs_limits_and_names_reach_it(cli: Cli, tmp_path: pathlib.Path) -> None:
    config = tmp_path / "c.yaml"
    config.write_text(
        "metadata: {name: small, namespace: shop}\nhostname: front\nlabels: {app: web}\n"
        "linux:\n  resources: {memory_limit_in_bytes: 67108864}\n"
        "  security_context: {namespace_options: {network: NODE}}\n"
    )
    pod = cli.ok("runp", str(config))
    assert network(cli, pod) == os.readlink("/proc/self/ns/net")
    found = inspectp(cli, pod)
    assert found["status"]["linux"]["namespaces"]["options"]["network"] == "NODE"
    assert (found["status"]["labels"], found["info"]["memoryLimitInBytes"]) == ({"app": "web"}, 64 << 20)
    name = cli.ok("run", "-d", "--pod", pod, "--name", "m", "busybox", "hostname")
    assert cli.ok("wait", name) == "0"
    assert cli.ok("logs", name) == "front"
    assert cli.ok("pods", "-q", "--namespace", "^shop$", "--label", "app=web", "--name", "sma") == pod
    assert cli.ok("pods", "-q", "--namespace", "^sho$") == ""


def test_wait_for_a_pod_prints_every_members_code_and_name_once_all_have_ended(cli: Cli) -> None:
    sandbox = typed(cli, SANDBOX, image="pause", command="")
    for name, code in (("a", 3), ("b", 0)):
        cli.ok("create", "--name", name, "--pod", sandbox, "busybox", "sh", "-c", f"exit {code}")
    cli.ok("run", "-d", "--name", "c", "--pod", sandbox, "busybox", "sleep", "1000")
    waiting = cli.begin("wait", sandbox)
    cli.ok("start", "a")
    cli.ok("start", "b")
    assert cli.ok("wait", "a", "b") == "3\n0"
    assert waiting.poll() is None
    cli.ok("kill", "c")
    assert waiting.communicate(timeout=30) == ("3 a\n0 b\n137 c\n", "")
    assert cli("wait", "--exit-code", sandbox).code == 3


def test_rm_and_inspect_take_a_pods_id(cli: Cli) -> None:
    sandbox = typed(cli, SANDBOX, image="pause", command="")
    member = typed(cli, MEMBER, sandbox=sandbox, command="sleep 1000")
    assert cli.field(sandbox, ".Exitd.PodID") == cli.field(member, ".Exitd.PodID") == sandbox
    assert "Ready" in cli("rm", sandbox).err
    assert cli.ok("rm", "-f", sandbox) == sandbox
    assert cli.ok("ps", "-aq") == ""


def test_a_member_in_the_pods_pid_namespace_and_one_in_the_hosts(cli: Cli) -> None:
    sandbox = typed(cli, SANDBOX, image="pause", command="")
    cli.ok("run", "-d", "--name", "in", "--pod", sandbox, "--pid", "pod", "busybox", "cat", "/proc/1/comm")
    cli.ok("run", "-d", "--name", "out", "--pod", sandbox, "--pid", "host", "busybox", "sleep", "1000")
    assert cli.ok("wait", "in") == "0"
    assert cli.ok("logs", "in") == "pause"
    assert os.readlink(f"/proc/{cli.field('out', '.State.Pid')}/ns/pid") == os.readlink("/proc/self/ns/pid")
    assert inspectp(cli, sandbox)["status"]["linux"]["namespaces"]["options"]["pid"] == "POD"


@pytest.mark.parametrize(("what", "running"), [("keep", "true"), ("stop", "false")])
def test_members_are_kept_or_stopped_when_their_pause_container_ends(cli: Cli, what: str, running: str) -> None:
    sandbox = cli.ok(
        *("run", "-d", "--on-pause-exit", what, "--annotation", "io.kubernetes.cri.container-type=sandbox", "pause")
    )
    cli.ok("run", "-d", "--name", "m", "--pod", sandbox, "--stop-timeout", "0", "busybox", "sleep", "1000")
    cli.ok("kill", sandbox)
    until(lambda: inspectp(cli, sandbox)["status"]["state"] == "SANDBOX_NOTREADY", "the pod is Ready")
    if what == "stop":
        assert cli.ok("wait", "m") == "137"
        assert cli.field("m", ".Exit.Reason") == "pause-exit"
    assert cli.field("m", ".State.Running") == running


def test_a_limit_of_cpu_is_the_kernels_quota(cli: Cli) -> None:
    single = cli.ok("run", "-d", "--cpus", "0.25", "busybox", "sleep", "1000")
    assert cli.field(single, ".HostConfig.NanoCpus") == "250000000"
    assert quota_percent(int(cli.field(single, ".State.Pid"))) == 25


def quota_percent(pid: int, above: int = 0) -> int:
    """Of one CPU, as the kernel holds it for the process's cgroup, or one so many levels above its container's."""
    for line in pathlib.Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        is_inner = path.endswith(f".scope/{cgroups.CRUN_INNER}")  # crun's own
        path = "/".join(path.split("/")[: -(above + is_inner if above else 0) or None])
        if "cpu" in controllers.split(","):
            group = pathlib.Path("/sys/fs/cgroup/cpu") / path.lstrip("/")
            quota, period = ((group / f"cpu.cfs_{each}_us").read_text() for each in ("quota", "period"))
            return int(quota) * 100 // int(period)
        if not controllers and not pathlib.Path("/sys/fs/cgroup/cpu").exists():
            quota, period = (pathlib.Path("/sys/fs/cgroup") / path.lstrip("/") / "cpu.max").read_text().split()
            return int(quota) * 100 // int(period)
    raise AssertionError(f"{pid} is in no cgroup with a limit of cpu")


def test_rmp_of_all_pods_leaves_nothing_but_the_ledger(cli: Cli) -> None:
    sandboxes = [typed(cli, SANDBOX, image="pause", command="") for _ in range(2)]
    member = typed(cli, MEMBER, sandbox=sandboxes[0], command="true")
    assert cli.ok("wait", member) == "0"
    ready = cli("rmp", "-a")
    assert ready.code == 125 and ready.err.count("is Ready; stop it first") == 2
    said = cli.ok("rmp", "-fa").splitlines()
    assert sorted(said) == sorted(f"{word} sandbox {pod}" for pod in sandboxes for word in ("Removed", "Stopped"))
    assert cli.ok("ps", "-aq") == ""
    assert cli.ok("exits", "--id", member, "--format", "{{.Exit.Code}} {{.Exit.Reason}}") == "0 self"
