"""Kubernetes manifests on real containers: played, taken down, and taken back when something fails."""

import json
import os
import pathlib
import signal
import subprocess
from dataclasses import dataclass

import pytest

from supervisor.api.client import Client
from tests.system import daemons
from tests.system.daemons import Daemon, left
from tests.system.exitctl import EXITCTL, Cli, Said
from tests.system.test_pods_cli import quota_percent
from tests.system.waits import until

# One pod with an init container that leaves something for the others.
WEB = """\
apiVersion: v1
kind: Pod
metadata:
  name: web
  namespace: shop
  labels: {app: web}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 0
  initContainers:
  - name: prep
    image: /
    command: [sh, -c, 'echo $(POD).$(NS) >/mnt/who; id -u >>/mnt/who']
    env:
    - {name: POD, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
    - {name: NS, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}
    securityContext: {runAsUser: 65534, runAsGroup: 65534}
    volumeMounts: [{name: data, mountPath: /mnt}]
  containers:
  - name: reader
    image: /
    command: [sh, -c, 'cat /mnt/who; hostname; echo x 2>/dev/null >/mnt/x || exit 43']
    volumeMounts: [{name: data, mountPath: /mnt, readOnly: true}]
  - name: sleeper
    image: /
    command: [sleep]
    args: ["1000"]
    resources: {limits: {cpu: 250m, memory: 64Mi}}
  volumes:
  - {name: data, emptyDir: {}}
"""
SLEEP = "{name: s, image: /, command: [sleep, '1000']}"


@dataclass(frozen=True)
class Stage:
    """exitctl, and a directory for manifests and for what containers leave behind."""

    cli: Cli
    directory: pathlib.Path

    def file(self, text: str, name: str = "pod.yaml") -> str:
        (self.directory / name).write_text(text)
        return str(self.directory / name)

    def play(self, text: str, *words: str) -> Said:
        return self.cli("play", *words, self.file(text))

    def pod(self, name: str, *, extra: str = "", containers: str = SLEEP, inits: str = "") -> str:
        """A manifest in few words; SHARED in it is a directory of this stage, at /mnt where a container mounts it."""
        text = (
            f"apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  terminationGracePeriodSeconds: 0\n{extra}"
        )
        text += f"  containers: [{containers}]\n  initContainers: [{inits}]\n"
        text += f"  volumes: [{{name: v, hostPath: {{path: {self.directory}/shared, type: DirectoryOrCreate}}}}]\n"
        return text

    def shared(self, name: str) -> list[str]:
        try:
            return (self.directory / "shared" / name).read_text().split()
        except FileNotFoundError:
            return []


def shell(name: str, script: str, **fields: str) -> str:
    """A container of such a manifest, /mnt its shared directory."""
    more = "".join(f", {key}: {value}" for key, value in fields.items())
    mounts = "[{name: v, mountPath: /mnt}]"
    return f"{{name: {name}, image: /, command: [sh, -c, {json.dumps(script)}], volumeMounts: {mounts}{more}}}"


@pytest.fixture
def stage(daemon: Daemon, tmp_path: pathlib.Path, client: Client) -> Stage:
    return Stage(Cli(daemon), tmp_path)


def nothing_there(stage: Stage) -> bool:
    return stage.cli.ok("ps", "-aq") == "" and stage.cli.ok("pods", "-q") == ""


def pid(stage: Stage, container: str) -> int:
    return int(stage.cli.field(container, ".State.Pid"))


def containers(said: Said) -> tuple[str, list[str]]:
    """The pod and its containers, of what podman's lines say."""
    heading, pod, kind, *ids = said.out.split()
    assert (heading, kind) == ("Pod:", "Container:" if len(ids) == 1 else "Containers:")
    return pod, ids


def test_a_pod_is_played_as_its_manifest_says_and_taken_down_to_nothing(stage: Stage) -> None:
    said = stage.play(WEB)
    assert (said.code, said.err) == (0, "")
    pod, (reader, sleeper) = containers(said)
    assert stage.cli.ok("wait", reader) == "43"
    assert stage.cli.ok("logs", reader) == "web.shop\n65534\nweb"
    assert quota_percent(pid(stage, sleeper)) == 25
    assert stage.cli.field(sleeper, ".HostConfig.Memory") == str(64 << 20)
    names = "{{.Name}} {{.Namespace}}"
    listed = stage.cli.ok("ps", "-a", "--filter", f"pod={pod}", "--filter", "label=app=web", "--format", names)
    assert listed.splitlines() == ["web-sleeper shop", "web-reader shop", "web-prep shop", "web shop"]
    down = stage.cli.ok("play", "--down", stage.file(WEB))
    assert down.split() == ["Pods", "stopped:", pod, "Pods", "removed:", pod]
    assert nothing_there(stage)
    again = stage.cli("play", "--down", stage.file(WEB))
    assert (again.code, again.err) == (0, "exitctl: no pod web: nothing to take down\n")


def test_the_same_pod_in_json_from_standard_input(stage: Stage) -> None:
    container = {"name": "c", "image": "/", "command": ["sh", "-c", "exit 7"]}
    spec = {"restartPolicy": "Never", "containers": [container]}
    document = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "j"}, "spec": spec}
    done = subprocess.run(
        [EXITCTL, "play", "-"],
        env=stage.cli.environment,
        input=json.dumps(document, indent=1),
        capture_output=True,
        text=True,
        timeout=30,
    )
    _, (made,) = containers(Said(done.returncode, done.stdout, done.stderr))
    assert stage.cli.ok("wait", made) == "7"


def test_a_pod_ends_with_its_last_member(stage: Stage) -> None:
    ends = ",".join(shell(f"c{code}", f"exit {code}") for code in (3, 4))
    pod, _ = containers(stage.play(stage.pod("short", extra="  restartPolicy: Never\n", containers=ends)))
    assert stage.cli.ok("wait", pod) == "3 short-c3\n4 short-c4"
    until(lambda: stage.cli.ok("pods", "-q", "-s", "notready") == pod, "the pod is Ready")
    told = "{{.Exit.Code}} {{.Exit.Reason}} {{.Exit.By.Policy}}"
    assert stage.cli.ok("exits", "--id", pod, "--format", told) == "0 stop last-member"


def test_init_containers_run_one_after_another_each_to_its_end(stage: Stage) -> None:
    inits = ",".join(shell(name, f"echo begin-{name} >>/mnt/log; echo end-{name} >>/mnt/log") for name in ("a", "b"))
    main = shell("main", "echo main >>/mnt/log; exec sleep 1000")
    assert stage.play(stage.pod("order", inits=inits, containers=main)).code == 0
    until(lambda: len(stage.shared("log")) == 5, "the main container has not begun")
    assert stage.shared("log") == ["begin-a", "end-a", "begin-b", "end-b", "main"]


def test_an_init_container_is_started_again_until_it_succeeds(stage: Stage) -> None:
    script = "echo try >>/mnt/log; [ $(wc -l </mnt/log) = 3 ]"
    said = stage.play(stage.pod("again", inits=shell("i", script)))
    assert said.code == 0
    assert said.err.count("init container again-i ended with 1 and is started again") == 2
    assert stage.shared("log") == ["try"] * 3


def test_an_init_container_that_fails_for_good_ends_the_play_and_nothing_is_left(stage: Stage) -> None:
    inits = (
        shell("good", "true") + "," + shell("bad", "echo it is broken >&2; exit 3") + "," + shell("c", "echo >/mnt/c")
    )
    text = stage.pod("failing", inits=inits, extra="  restartPolicy: Never\n", containers=shell("m", "echo >/mnt/m"))
    said = stage.play(text)
    assert (said.code, said.out) == (125, "")
    assert "init container failing-bad ended with 3; its last words: \n  it is broken" in said.err
    assert nothing_there(stage)
    assert [path.name for path in (stage.directory / "shared").iterdir()] == []


def test_a_play_that_fails_takes_all_pods_back_that_it_had_made_and_no_other(stage: Stage) -> None:
    other, _ = containers(stage.play(stage.pod("other")))
    wrong = stage.pod("wrong", containers=f"{SLEEP}, {{name: w, image: /, command: [/no/such/command]}}")
    said = stage.play(stage.pod("first") + "---\n" + wrong)
    assert (said.code, said.out) == (127, "")
    assert f"{stage.directory}/pod.yaml:15:" in said.err and "spec.containers[1].name" in said.err
    assert stage.cli.ok("pods", "-q") == other
    assert len(stage.cli.ok("ps", "-aq").split()) == 2


def test_a_pod_whose_name_is_taken_is_refused_and_the_first_goes_on(stage: Stage) -> None:
    pod, (container,) = containers(stage.play(stage.pod("twin")))
    said = stage.play(stage.pod("twin"))
    assert (said.code, said.out) == (125, "")
    assert stage.cli.ok("pods", "-q", "-s", "ready") == pod
    assert stage.cli.field(container, ".State.Running") == "true"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_play_that_is_broken_off_takes_everything_back(stage: Stage, number: signal.Signals) -> None:
    text = stage.pod("slow", inits=shell("i", "echo begun >/mnt/log; exec sleep 1000"))
    process = stage.cli.begin("play", stage.file(text))
    until(lambda: stage.shared("log"), "the init container has not begun")
    process.send_signal(number)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err.strip()) == (130, "", "")
    assert nothing_there(stage)


def test_init_containers_have_a_limit_of_time(stage: Stage) -> None:
    said = stage.play(stage.pod("late", inits=shell("i", "exec sleep 1000")), "--init-timeout", "0.2")
    assert said.code == 125
    assert "init container late-i had not ended in time; --init-timeout sets the limit" in said.err
    assert nothing_there(stage)


def test_a_daemon_that_dies_under_a_play_leaves_what_down_removes(tmp_path: pathlib.Path) -> None:
    with daemons.daemon() as daemon:
        stage = Stage(Cli(daemon), tmp_path)
        text = stage.pod("cut", inits=shell("i", "echo begun >/mnt/log; exec sleep 1000"))
        process = stage.cli.begin("play", stage.file(text))
        until(lambda: stage.shared("log"), "the init container has not begun")
        stage.cli.until_status("cut-i", "running")
        daemon.kill()
        _, err = process.communicate(timeout=60)
        assert process.returncode == 125
        assert "the pod cut may still be there" in err and "exitctl rmp -f" in err
        daemon.start()
        (pod,) = stage.cli.ok("pods", "-q").split()
        assert stage.cli.ok("play", "--down", stage.file(text)).split()[-1] == pod
        assert nothing_there(stage)
        until(lambda: left(daemon).shims + left(daemon).mounts + left(daemon).cgroups == 0, f"{left(daemon)}")


def test_rules_by_exit_code_stand_before_the_policy(stage: Stage) -> None:
    rule = "[{action: Restart, exitCodes: {operator: In, values: [42]}}]"
    script = "echo run >>/mnt/log; [ $(wc -l </mnt/log) = 3 ] && exit 3; exit 42"
    container = shell("c", script, restartPolicy="Never", restartPolicyRules=rule)
    pod, (made,) = containers(stage.play(stage.pod("rules", containers=container)))
    assert stage.cli.ok("wait", pod) == "3 rules-c"
    codes = stage.cli.ok("exits", "--id", made, "--format", "{{.Exit.Run}} {{.Exit.Code}} {{.Decision}}").splitlines()
    assert sorted(codes) == ["1 42 restart", "2 42 restart", "3 3 ended"]


def test_a_pod_that_is_to_be_always_up_comes_back_and_ends_when_taken_down(stage: Stage) -> None:
    text = stage.pod("always", containers=shell("c", "echo run >>/mnt/log; exit 1"))
    _, (container,) = containers(stage.play(text))
    until(lambda: len(stage.shared("log")) >= 3, "it was not started again")
    assert int(stage.cli.field(container, ".RestartCount")) >= 2
    stage.cli.ok("play", "--down", stage.file(text))
    assert nothing_there(stage)


def test_namespaces_are_the_pods_or_the_hosts_as_the_manifest_says(stage: Stage) -> None:
    both = stage.pod("in", extra="  shareProcessNamespace: true\n") + "---\n"
    both += stage.pod("out", extra="  hostPID: true\n  hostNetwork: true\n  hostIPC: true\n")
    assert stage.play(both).code == 0

    def namespace(container: str, kind: str) -> str:
        return os.readlink(f"/proc/{pid(stage, container)}/ns/{kind}")

    (inside, outside) = (
        [each for each in stage.cli.ok("ps", "-q", "--filter", f"name={n}-s").split()] for n in ("in", "out")
    )
    assert namespace(inside[0], "pid") == namespace("in", "pid") != os.readlink("/proc/self/ns/pid")
    assert namespace(inside[0], "net") == namespace("in", "net") != os.readlink("/proc/self/ns/net")
    assert namespace(inside[0], "ipc") == namespace("in", "ipc") != os.readlink("/proc/self/ns/ipc")
    for container in (outside[0], "out"):
        kinds = ("net", "ipc") if container == "out" else ("pid", "net", "ipc")
        assert [namespace(container, kind) for kind in kinds] == [
            os.readlink(f"/proc/self/ns/{kind}") for kind in kinds
        ]
    assert os.stat(f"/proc/{pid(stage, outside[0])}/root/dev/shm").st_dev == os.stat("/dev/shm").st_dev
    assert os.stat(f"/proc/{pid(stage, inside[0])}/root/dev/shm").st_dev != os.stat("/dev/shm").st_dev


def test_replace_makes_a_pod_anew(stage: Stage) -> None:
    old, _ = containers(stage.play(stage.pod("r")))
    said = stage.play(stage.pod("r"), "--replace")
    new = said.out.split()[said.out.split().index("Pod:") + 1]
    assert said.out.startswith(f"Pods stopped:\n{old}\nPods removed:\n{old}\nPod:\n") and new != old
    assert stage.cli.ok("pods", "-q") == new


def test_wait_stays_until_the_end_reports_the_codes_and_removes(stage: Stage) -> None:
    ends = shell("ok", "exit 0") + "," + shell("seven", "exit 7")
    said = stage.play(stage.pod("w", extra="  restartPolicy: Never\n", containers=ends), "--wait")
    assert (said.code, said.err) == (7, "")
    assert said.out.splitlines()[-2:] == ["0 w-ok", "7 w-seven"]
    assert nothing_there(stage)


def test_wait_that_is_broken_off_stops_the_members_and_removes(stage: Stage) -> None:
    script = "trap 'echo stopped >>/mnt/log; exit 5' TERM; echo up >>/mnt/log; while :; do sleep 0.05; done"
    text = stage.pod("w", containers=shell("c", script)).replace("Seconds: 0", "Seconds: 20")
    process = stage.cli.begin("play", "-w", stage.file(text))
    until(lambda: stage.shared("log") == ["up"], "the container is not up")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    assert stage.shared("log") == ["up", "stopped"]
    assert nothing_there(stage)


def test_what_is_wrong_is_reported_by_line_and_field_before_anything_is_made(stage: Stage) -> None:
    place = f"exitctl: {stage.directory}/pod.yaml"
    said = stage.play(WEB.replace("kind: Pod", "kind: Pod\nspec: {}"))
    assert (said.code, said.out) == (125, "")
    assert said.err == f"{place}:8:1: the key 'spec' is here twice; the first one is in line 3\n"
    said = stage.play(WEB.replace("memory: 64Mi", "memory: 64Mo").replace("args: [", "arg: ["))
    assert said.err.splitlines() == [
        f"{place}:27:5: spec.containers[1].arg: there is no such field; did you mean args?",
        f"{place[9:]}:28:37: spec.containers[1].resources.limits.memory: '64Mo' is no quantity; "
        "write 500m, 1.5, 64Mi or 2e9",
    ]
    assert nothing_there(stage)


def test_the_page_on_manifests_shows_what_is_printed(stage: Stage) -> None:
    page = (pathlib.Path(__file__).parents[2] / "docs/manifests.md").read_text()
    manifest = page.split("```yaml\n")[1].split("```")[0]
    refused, played = (block for block in page.split("```\n") if block.startswith("$ exitctl play "))
    good = [line for line in manifest.splitlines() if "hostUsers" not in line and "arg:" not in line]
    texts = (manifest, "\n".join(good).replace("64Mo", "64Mi") + "\n")
    for text, words, block in zip(texts, ((), ("--wait",)), (refused, played), strict=True):
        said = stage.play(text, *words)
        printed = [*said.err.replace(f"{stage.directory}/", "").splitlines(), *said.out.splitlines(), str(said.code)]
        assert without_ids(printed) == without_ids(block.splitlines()[1:])


def without_ids(lines: list[str]) -> list[str]:
    return ["ID" if len(line) == 64 and line.isalnum() else line for line in lines]
