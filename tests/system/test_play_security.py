"""What a manifest's securityContexts say, as a played pod's processes have it: /proc/self/status, mounts, files."""

import json
import os
import pathlib
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from supervisor.api.client import Client
from supervisor.model.rights import DEFAULT, NAMES
from supervisor.runtime.oci import machine
from tests.system import tinyroot
from tests.system.daemons import Daemon
from tests.system.exitctl import Cli, Said
from tests.system.runtimes import program
from tests.system.test_pods_cli import quota_percent

# A user of the image, and a group of the image's that lists it.
PASSWD = "root:x:0:0::/:/bin/sh\napp:x:1000:1000::/:/bin/sh\n"
GROUP = "root:x:0:\napp:x:1000:\nextra:x:50000:app\n"
LOOK = "cat /proc/self/status; grep ' / / ' /proc/self/mountinfo"
FIELDS = ("Uid", "Gid", "Groups", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp")


def mask(*names: str) -> str:
    return f"{sum(1 << NAMES.index(name) for name in names):016x}"


NONE, ALL = mask(), mask(*machine.capabilities())
# A container of which nothing is said.
PLAIN = {
    **{"Uid": "0 0 0 0", "Gid": "0 0 0 0", "Groups": "0"},
    **{"CapInh": NONE, "CapPrm": mask(*DEFAULT), "CapEff": mask(*DEFAULT), "CapBnd": mask(*DEFAULT), "CapAmb": NONE},
    **{"NoNewPrivs": "1", "Seccomp": "2", "root": "rw"},
}
NOT_ROOT = {"CapPrm": NONE, "CapEff": NONE}  # the bounding set stays


@dataclass(frozen=True)
class Stage:
    cli: Cli
    root: pathlib.Path
    directory: pathlib.Path

    def document(self, containers: dict[str, dict[str, Any]], **spec: Any) -> dict[str, Any]:
        """A pod of containers by their names, each with the fields given beside its image."""
        made = [{"name": name, "image": str(self.root)} | fields for name, fields in containers.items()]
        metadata = {"name": "p", "annotations": spec.pop("annotations", {})}
        whole = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": made, **spec}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": whole}

    def play(self, document: dict[str, Any], *options: str) -> Said:
        """JSON, laid out so that each field has a line of its own."""
        (self.directory / "pod.json").write_text(json.dumps(document, indent=1))
        return self.cli("play", *options, str(self.directory / "pod.json"))

    def said(self, document: dict[str, Any], *options: str) -> dict[str, list[str]]:
        """What each container has printed, its init containers included; all of them must have ended with 0."""
        played = self.play(document, *options)
        assert (played.code, played.err) == (0, ""), played
        ends = self.cli.ok("wait", "p").splitlines()
        assert {end.split()[0] for end in ends} == {"0"}, [self.cli("logs", end.split()[1]) for end in ends]
        printed = {end.split()[1].removeprefix("p-"): self.cli.ok("logs", end.split()[1]).splitlines() for end in ends}
        self.cli.ok("play", "--down", str(self.directory / "pod.json"))
        return printed


def seen(lines: list[str]) -> dict[str, str]:
    """Of LOOK: the fields of its status, and whether its root can be written."""
    fields = dict(line.split(":", 1) for line in lines[:-1])
    return {name: " ".join(fields[name].split()) for name in FIELDS} | {"root": lines[-1].split()[5].split(",")[0]}


def looking(**context: Any) -> dict[str, Any]:
    return {"command": ["sh", "-c", LOOK], "securityContext": context}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    made = tinyroot.make(tmp_path_factory.mktemp("root") / "root")
    (made / "etc").mkdir()
    (made / "etc/passwd").write_text(PASSWD)
    (made / "etc/group").write_text(GROUP)
    return made


@pytest.fixture
def stage(daemon: Daemon, client: Client, root: pathlib.Path, tmp_path: pathlib.Path) -> Stage:
    return Stage(Cli(daemon), root, tmp_path)


@pytest.mark.parametrize("runtime", ["runc", "crun"])
def test_each_field_of_a_container_is_what_its_processes_have(stage: Stage, runtime: str) -> None:
    drop = {"drop": ["ALL"], "add": ["NET_BIND_SERVICE", "CHOWN"]}
    kept = mask("CAP_NET_BIND_SERVICE", "CAP_CHOWN")
    contexts: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
        "plain": ({}, {}),
        "user": ({"runAsUser": 7, "runAsGroup": 8}, {"Uid": "7 7 7 7", "Gid": "8 8 8 8", "Groups": "8", **NOT_ROOT}),
        "fewer": ({"capabilities": drop}, {"CapPrm": kept, "CapEff": kept, "CapBnd": kept}),
        "bound": (
            {"capabilities": drop, "runAsUser": 7},
            {"Uid": "7 7 7 7", **NOT_ROOT, "CapBnd": kept},
        ),
        "grows": ({"allowPrivilegeEscalation": True}, {"NoNewPrivs": "0"}),
        "open": ({"seccompProfile": {"type": "Unconfined"}}, {"Seccomp": "0"}),
        "default": ({"seccompProfile": {"type": "RuntimeDefault"}}, {}),
        "fixed": ({"readOnlyRootFilesystem": True}, {"root": "ro"}),
        "whole": (
            {"privileged": True},
            {"NoNewPrivs": "0", "Seccomp": "0", "CapPrm": ALL, "CapEff": ALL, "CapBnd": ALL},
        ),
    }
    document = stage.document({name: looking(**asked) for name, (asked, _) in contexts.items()})
    printed = stage.said(document, "--runtime", program(runtime, stage.directory))
    found = {name: seen(printed[name]) for name in contexts}
    assert found == {name: {**PLAIN, **differs} for name, (_, differs) in contexts.items()}


def test_a_container_has_its_pods_word_where_it_has_none_of_its_own(stage: Stage) -> None:
    pods = {
        **{"runAsUser": 1001, "runAsGroup": 2001, "runAsNonRoot": True},
        **{"seccompProfile": {"type": "Unconfined"}},
    }
    own = {"runAsUser": 0, "runAsGroup": 0, "runAsNonRoot": False, "seccompProfile": {"type": "RuntimeDefault"}}
    inits = [{"name": "first", "image": str(stage.root), **looking()}]
    containers = {"heir": looking(), "own": looking(**own)}
    printed = stage.said(stage.document(containers, securityContext=pods, initContainers=inits))
    inherited = {"Uid": "1001 1001 1001 1001", "Gid": "2001 2001 2001 2001", "Groups": "2001", "Seccomp": "0"}
    assert {name: seen(lines) for name, lines in printed.items()} == {
        **{name: {**PLAIN, **inherited, **NOT_ROOT} for name in ("first", "heir")},
        "own": PLAIN,
    }


def test_a_pods_seccomp_profile_does_not_hold_for_its_privileged_containers(stage: Stage) -> None:
    """Kubernetes: they run unconfined. A profile of their own is one that was asked for."""
    default = {"seccompProfile": {"type": "RuntimeDefault"}}
    containers = {
        "privileged": looking(privileged=True),
        "confined": looking(privileged=True, **default),
        "plain": looking(),
    }
    printed = stage.said(stage.document(containers, securityContext=default))
    assert {name: seen(lines)["Seccomp"] for name, lines in printed.items()} == {
        **{"privileged": "0", "confined": "2", "plain": "2"}
    }


def test_groups_are_the_pods_and_those_that_the_image_gives_its_user(stage: Stage) -> None:
    """supplementalGroupsPolicy Merge, which is Kubernetes' default, and Strict."""
    pods = {"runAsUser": 1000, "supplementalGroups": [4000], "fsGroup": 4002}
    containers = {"merged": looking(runAsGroup=3000), "own": looking(), "other": looking(runAsUser=5, runAsGroup=3000)}
    printed = stage.said(stage.document(containers, securityContext=pods))
    assert {name: seen(lines)["Groups"] for name, lines in printed.items()} == {
        "merged": "3000 4000 4002 50000",
        "own": "1000 4000 4002 50000",
        "other": "3000 4000 4002",
    }
    strict = stage.document(containers, securityContext={**pods, "supplementalGroupsPolicy": "Strict"})
    assert {name: seen(lines)["Groups"] for name, lines in stage.said(strict).items()} == {
        "merged": "3000 4000 4002",
        "own": "1000 4000 4002",
        "other": "3000 4000 4002",
    }


def test_an_fs_group_owns_the_volumes_and_what_is_made_in_them(stage: Stage) -> None:
    mounts = [{"name": "data", "mountPath": "/mnt"}]
    volumes = [{"name": "data", "emptyDir": {}}]
    make = "umask 002; mkdir /mnt/d; touch /mnt/f; stat -c '%n %u:%g %a' /mnt /mnt/d /mnt/f"
    script = "touch /mnt/d/g; stat -c '%n %u:%g %a' /mnt/d/g; grep ' /mnt ' /proc/self/mountinfo"
    again = {"command": ["sh", "-c", script]}
    containers = {"app": {**again, "securityContext": {"runAsUser": 1001, "runAsGroup": 3001}, "volumeMounts": mounts}}
    first = {"name": "first", "image": str(stage.root), "command": ["sh", "-c", make], "volumeMounts": mounts}
    user = {"runAsUser": 1000, "runAsGroup": 3000}
    inits = [{**first, "securityContext": user}]
    pods = {"fsGroup": 4002}
    printed = stage.said(stage.document(containers, securityContext=pods, volumes=volumes, initContainers=inits))
    assert printed["first"] == ["/mnt 0:4002 2777", "/mnt/d 1000:4002 2775", "/mnt/f 1000:4002 664"]
    made, mounted = printed["app"]
    assert made == "/mnt/d/g 1001:4002 644"
    assert {"nosuid", "nodev"} <= {*mounted.split()[5].split(",")}


def test_what_a_member_leaves_in_a_volume_gives_another_no_rights_and_no_device(stage: Stage) -> None:
    """A program with root's setuid bit, which works in the image, and a device's node that everyone may open."""
    root = tinyroot.make(stage.directory / "own", (*tinyroot.PROGRAMS, "cp", "chmod", "mknod"))
    (root / "bin/risen").write_bytes((root / "bin/id").read_bytes())
    (root / "bin/risen").chmod(0o4755)
    mounts = [{"name": "data", "mountPath": "/mnt"}]
    leave = "cp /bin/id /mnt/risen; chmod 4755 /mnt/risen; mknod -m 666 /mnt/zero c 1 5; stat -c '%F %u %a' /mnt/*"
    take = (
        "for each in /bin /mnt; do $each/risen -u; done; for each in /dev /mnt; do head -c 1 $each/zero | wc -c; done"
    )
    why = "head /mnt/zero 2>&1 | grep -o denied"
    first = {"name": "first", "image": str(root), "command": ["sh", "-c", leave], "volumeMounts": mounts}
    grows = {"runAsUser": 1000, "allowPrivilegeEscalation": True}
    command = ["sh", "-c", f"({take}) 2>/dev/null; {why}"]
    second = {"image": str(root), "command": command, "securityContext": grows, "volumeMounts": mounts}
    volumes = [{"name": "data", "emptyDir": {}}]
    printed = stage.said(stage.document({"app": second}, volumes=volumes, initContainers=[first]))
    assert printed["first"] == ["regular file 0 4755", "character special file 0 666"]
    assert printed["app"] == ["0", "1000", "1", "0", "denied"]


def test_what_must_not_be_root_and_is_root_is_refused_by_the_fields_name(stage: Stage) -> None:
    for own, pods, place in (
        ({"runAsNonRoot": True}, {}, "spec.containers[0].securityContext.runAsNonRoot"),
        ({}, {"runAsNonRoot": True}, "spec.securityContext.runAsNonRoot"),
    ):
        document = stage.document({"app": {"command": ["true"], "securityContext": own}}, securityContext=pods)
        said = stage.play(document)
        assert (said.code, said.out) == (125, "")
        (line,) = said.err.splitlines()
        assert f": {place}: " in line and "root" in line and "runAsUser" in line, line
        assert "not_root" not in line
        number = int(line.split(":")[2])
        assert "runAsNonRoot" in (stage.directory / "pod.json").read_text().splitlines()[number - 1]
    assert (stage.cli.ok("ps", "-aq"), stage.cli.ok("pods", "-q")) == ("", "")


REFUSED_ANYWHERE: dict[str, Any] = {
    "seLinuxOptions": {"level": "s0:c1"},
    "windowsOptions": {"runAsUserName": "x"},
    "appArmorProfile": {"type": "Default"},
    "noSuchField": True,
}
REFUSED_OF_A_POD: dict[str, Any] = {
    **REFUSED_ANYWHERE,
    "privileged": True,
    "capabilities": {"drop": ["ALL"]},
}
REFUSED_OF_A_CONTAINER: dict[str, Any] = {**REFUSED_ANYWHERE, "procMount": "Unmasked", "fsGroup": 5}
CONTRADICTIONS: tuple[tuple[dict[str, Any], str], ...] = (
    ({"runAsNonRoot": True, "runAsUser": 0}, "runAsNonRoot: contradicts runAsUser 0"),
    ({"privileged": True, "allowPrivilegeEscalation": False}, "allowPrivilegeEscalation: contradicts privileged"),
    (
        {"capabilities": {"add": ["SYS_ADMIN"]}, "allowPrivilegeEscalation": False},
        "allowPrivilegeEscalation: contradicts capabilities.add SYS_ADMIN",
    ),
    ({"capabilities": {"add": ["CHOWN"], "drop": ["CHOWN"]}}, "capabilities.add[0]: CAP_CHOWN is dropped as well"),
)


def test_what_cannot_be_done_is_refused_all_at_once_and_nothing_is_made(stage: Stage) -> None:
    whole = stage.document({"app": {"securityContext": REFUSED_OF_A_CONTAINER}}, securityContext=REFUSED_OF_A_POD)
    said = stage.play(whole)
    assert (said.code, said.out) == (125, "")
    asked = {f"spec.securityContext.{field}" for field in REFUSED_OF_A_POD}
    asked |= {f"spec.containers[0].securityContext.{field}" for field in REFUSED_OF_A_CONTAINER}
    assert {place for place in asked if not any(f": {place}" in line for line in said.err.splitlines())} == set()
    contradicting = {f"c{number}": {"securityContext": context} for number, (context, _) in enumerate(CONTRADICTIONS)}
    lines = stage.play(stage.document(contradicting)).err.splitlines()
    expected = [f"spec.containers[{at}].securityContext.{what}" for at, (_, what) in enumerate(CONTRADICTIONS)]
    assert [what for what, line in zip(expected, lines, strict=True) if what in line] == expected
    assert (stage.cli.ok("ps", "-aq"), stage.cli.ok("pods", "-q")) == ("", "")


def test_sysctls_hosts_and_servers_are_as_asked_in_each_container(stage: Stage) -> None:
    words = "cat /proc/sys/net/core/somaxconn /proc/sys/kernel/shm_rmid_forced; grep db /etc/hosts"
    look = {"command": ["sh", "-c", f"{words}; cat /etc/resolv.conf"]}
    sysctls = [{"name": "net.core.somaxconn", "value": "99"}, {"name": "kernel.shm_rmid_forced", "value": "1"}]
    config = {"nameservers": ["192.0.2.53"], "searches": ["shop.example"], "options": [{"name": "ndots", "value": "2"}]}
    document = stage.document(
        {"app": look, "other": look},
        securityContext={"sysctls": sysctls},
        hostAliases=[{"ip": "192.0.2.7", "hostnames": ["db"]}],
        dnsPolicy="None",
        dnsConfig=config,
    )
    for lines in stage.said(document).values():
        assert lines[:3] == ["99", "1", "192.0.2.7\tdb"]
        kept = [line for line in lines[3:] if line.startswith(("nameserver", "search", "domain", "options"))]
        assert kept == ["nameserver 192.0.2.53", "search shop.example", "options ndots:2"]


@pytest.fixture
def spreading(tmp_path: pathlib.Path) -> Iterator[pathlib.Path]:
    """A directory of the machine whose mounts others may have."""
    made = tmp_path / "spreading"
    made.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", made], check=True)
    try:
        subprocess.run(["mount", "--make-shared", made], check=True)
        for name in ("late", "own"):
            (made / name).mkdir()
        yield made
    finally:
        subprocess.run(["umount", "-R", "-l", made], check=True)


@pytest.mark.parametrize("runtime", ["runc", "crun"])
def test_mounts_reach_a_container_and_the_machine_as_far_as_they_are_asked_to(
    stage: Stage, spreading: pathlib.Path, runtime: str
) -> None:
    def mounting(**how: Any) -> dict[str, Any]:
        return {"command": ["sleep", "1000"], "volumeMounts": [{"name": "v", "mountPath": "/mnt", **how}]}

    gives = {**mounting(mountPropagation="Bidirectional"), "securityContext": {"privileged": True}, "image": "/"}
    containers = {"blind": mounting(), "sees": mounting(mountPropagation="HostToContainer"), "gives": gives}
    document = stage.document(containers, volumes=[{"name": "v", "hostPath": {"path": str(spreading)}}])
    assert stage.play(document, "--runtime", program(runtime, stage.directory)).code == 0
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", spreading / "late"], check=True)
    (spreading / "late/said").write_text("here")
    assert {name: stage.cli.ok("exec", f"p-{name}", "sh", "-c", "echo /mnt/late/*") for name in containers} == {
        "blind": "/mnt/late/*", "sees": "/mnt/late/said", "gives": "/mnt/late/said",
    }  # fmt: skip
    stage.cli.ok("exec", "p-gives", "mount", "-t", "tmpfs", "tmpfs", "/mnt/own")
    assert os.path.ismount(spreading / "own")


def test_an_exec_has_what_its_containers_context_says(stage: Stage) -> None:
    context = {"runAsUser": 1000, "runAsGroup": 3000, "capabilities": {"drop": ["ALL"]}, "readOnlyRootFilesystem": True}
    up = {"command": ["sleep", "1000"], "securityContext": context}
    assert stage.play(stage.document({"app": up}, securityContext={"supplementalGroups": [4000]})).code == 0
    expected = {
        **{"Uid": "1000 1000 1000 1000", "Gid": "3000 3000 3000 3000", "Groups": "3000 4000 50000"},
        **{"CapPrm": NONE, "CapEff": NONE, "CapBnd": NONE, "root": "ro"},
    }
    assert seen(stage.cli.ok("exec", "p-app", "sh", "-c", LOOK).splitlines()) == {**PLAIN, **expected}


@pytest.mark.parametrize(("policy", "groups"), [("Strict", "1000 4000"), ("Merge", "1000 4000 50000")])
def test_an_exec_as_a_user_of_the_image_has_no_more_groups_than_its_container_may(
    stage: Stage, policy: str, groups: str
) -> None:
    context = {"runAsUser": 1000, "supplementalGroups": [4000], "supplementalGroupsPolicy": policy}
    assert stage.play(stage.document({"app": {"command": ["sleep", "1000"]}}, securityContext=context)).code == 0
    found = seen(stage.cli.ok("exec", "--user", "app", "p-app", "sh", "-c", LOOK).splitlines())
    assert found["Groups"] == groups


PIDS_MAX = "cat $(ls /sys/fs/cgroup/pids/pids.max /sys/fs/cgroup/pids.max 2>/dev/null)"
# Both halves of a fork bomb, but that what it makes waits: it comes to its limit, and the machine does not notice.
BOMB = "i=0; while [ $i -lt 300 ]; do sleep 1000 & i=$((i+1)); done; echo survived"
CALM = "for i in 1 2 3 4 5 6 7 8 9 10; do sleep 0 & done; wait; echo calm"


def test_each_container_of_a_played_pod_has_the_default_limit_of_processes(stage: Stage) -> None:
    look = {"command": ["sh", "-c", PIDS_MAX]}
    document = stage.document({"app": look}, initContainers=[{"name": "first", "image": str(stage.root), **look}])
    assert stage.said(document) == {"first": ["2048"], "app": ["2048"]}
    threads = "import threading, time\nn = 0\ntry:\n    while n < 4000:\n        threading.Thread(target=time.sleep, "
    threads += (
        "args=(1000,), daemon=True).start()\n        n += 1\nexcept RuntimeError:\n    pass\nprint(n, flush=True)\n"
    )
    many = {"command": ["python3", "-c", threads + "import os\nos._exit(0)"], "image": "/"}
    (count,) = stage.said(stage.document({"app": many}))["app"]
    assert 2000 < int(count) < 2048


def test_a_fork_bomb_stays_in_its_pod(stage: Stage) -> None:
    """By the pod's own limit: its other member has no room either, and another pod does not notice."""
    calm = {"command": ["sh", "-c", CALM]}
    bomb = {"command": ["sh", "-c", f"{BOMB}"]}
    annotations = {"exitd/pids-limit": "60", "pids-limit.exitd/small": "7"}
    sleeping = {"command": ["sleep", "1000"]}
    document = stage.document({"bomb": bomb, "beside": sleeping, "small": sleeping}, annotations=annotations)
    assert stage.play(document).code == 0
    assert stage.cli.ok("wait", "p-bomb") == "2"
    assert "fork" in stage.cli("logs", "p-bomb").err and "survived" not in stage.cli("logs", "p-bomb").out
    assert stage.cli.ok("exec", "p-small", "sh", "-c", PIDS_MAX) == "7"
    assert json.loads(stage.cli.ok("inspectp", "p"))["info"]["pidsLimit"] == 60
    other = {**stage.document({"app": calm}), "metadata": {"name": "q"}}
    assert stage.play(other).code == 0
    assert (stage.cli.ok("wait", "q-app"), stage.cli.ok("logs", "q-app")) == ("0", "calm")


def test_a_pods_limit_of_cpu_time_is_around_its_containers(stage: Stage) -> None:
    sleeping = {"command": ["sleep", "1000"], "resources": {"limits": {"cpu": "200m"}}}
    document = stage.document({"app": sleeping}, resources={"limits": {"cpu": "250m", "memory": "64Mi"}})
    assert stage.play(document).code == 0
    member = int(stage.cli.field("p-app", ".State.Pid"))
    assert quota_percent(member) == 20 and quota_percent(member, above=1) == 25
    info = json.loads(stage.cli.ok("inspectp", "p"))["info"]
    assert (info["cpuLimitInMillis"], info["memoryLimitInBytes"]) == (250, 64 << 20)
    more = stage.cli("run", "--rm", "--pod", "p", "--cpus", "0.3", "--rootfs", str(stage.root), "true")
    assert more.code == 125 and "the whole pod p has 250" in more.err
