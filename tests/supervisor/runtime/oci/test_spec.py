"""What the caller asked becomes config.json, and nothing that was not asked changes a bundle."""

import copy
import json
from dataclasses import replace

import pytest

from supervisor.model.errors import BadRequest
from supervisor.model.idranges import IdRange
from supervisor.model.limits import ContainerLimits
from supervisor.model.rights import DEFAULT
from supervisor.model.values import Mount, Security, Spec
from supervisor.runtime.oci.privileges import Device
from supervisor.runtime.oci.spec import (
    Document,
    Host,
    Shared,
    adapt_bundle,
    config,
    has_own_pids,
    ids_in,
    keep_flags,
    parse_bundle,
    restrict,
    rootfs_of,
)
from supervisor.runtime.oci.users import Ids

ID = "0123456789abcdef0123"
ROOT = Ids()
HOST, ALONE = Host(), Shared()
POD = Shared((("ipc", "/ns/ipc"), ("uts", "/ns/uts"), ("network", "/ns/net")), "/pod/shm")
SPEC = Spec(name="web", args=("sh", "-c", "true"), rootfs="/")
BUNDLED = Spec(name="web", bundle="/b")
BUNDLE: Document = {
    "ociVersion": "1.0.2",
    "process": {
        "terminal": True,
        "consoleSize": {"height": 1, "width": 1},
        "args": ["serve"],
        "env": ["A=1", "B=2"],
        "cwd": "/srv",
        "user": {"uid": 3, "gid": 4},
    },
    "root": {"path": "rootfs"},
    "mounts": [{"destination": "/data", "type": "bind", "source": "data", "options": ["rbind"]}],
    "linux": {"namespaces": [{"type": "pid"}, {"type": "network"}], "seccomp": {"defaultAction": "SCMP_ACT_ALLOW"}},
    "x-unknown": [1, 2],
}


def made(spec: Spec = SPEC, user: Ids = ROOT, host: Host = HOST, shared: Shared = ALONE) -> dict:  # type: ignore[type-arg]  # JSON
    return config(spec, ID, rootfs_path="/r", cgroups_path="/exitd/x", user=user, host=host, shared=shared)


def adapted(spec: Spec, user: Ids | None = None, host: Host = HOST, shared: Shared = ALONE) -> dict:  # type: ignore[type-arg]  # JSON
    return adapt_bundle(BUNDLE, spec, cgroups_path="/exitd/x", user=user, host=host, shared=shared)


def test_the_oom_score_is_always_explicit() -> None:
    assert made()["process"]["oomScoreAdj"] == 0
    assert made(host=Host(oom_score_adj=5))["process"]["oomScoreAdj"] == 5


def test_path_hostname_and_home_are_there_and_the_callers_env_wins() -> None:
    env = made(replace(SPEC, env=("HOME=/h", "X=a=b", "X=c")), Ids(home="/root"))["process"]["env"]
    assert [line for line in env if not line.startswith("PATH=")] == ["HOSTNAME=0123456789ab", "HOME=/h", "X=c"]
    assert made(user=Ids(home="/root"))["process"]["env"][-1] == "HOME=/root"


@pytest.mark.parametrize("line", ["NOEQUALS", "=x", "A=\0"])
def test_a_bad_environment_entry_is_refused(line: str) -> None:
    with pytest.raises(BadRequest, match="NAME=VALUE"):
        made(replace(SPEC, env=(line,)))


def test_root_has_dockers_capabilities_and_others_hold_none() -> None:
    capabilities = made()["process"]["capabilities"]
    assert capabilities["effective"] == capabilities["bounding"] == list(DEFAULT)
    capabilities = made(user=Ids(1000, 1000, (5,)))["process"]["capabilities"]
    assert (capabilities["effective"], capabilities["bounding"]) == ([], list(DEFAULT))


def test_the_memory_limit_forbids_swap_only_where_swap_is_counted() -> None:
    spec = replace(SPEC, memory_bytes=1 << 26)
    assert "memory" not in made()["linux"]["resources"]
    assert made(spec)["linux"]["resources"]["memory"] == {"limit": 1 << 26}
    assert made(spec, host=Host(swap_limit=True))["linux"]["resources"]["memory"] == {"limit": 1 << 26, "swap": 1 << 26}


@pytest.mark.parametrize(
    ("asked", "controller", "field"),
    [
        ({"memory_bytes": 1 << 26}, "memory", "memory_bytes"),
        ({"cpu_limit_milli": 250}, "cpu", "cpu_limit_milli"),
        ({"cpu_request_milli": 250}, "cpu", "cpu_request_milli"),
    ],
)
def test_a_limit_whose_controller_is_lacking_is_refused_with_the_reason(
    asked: dict[str, int], controller: str, field: str
) -> None:
    host, spec = Host(lacking=((controller, "nobody has delegated it: ask"),)), replace(SPEC, **asked)  # type: ignore[arg-type]
    assert made(host=host)
    for refused in (made, adapted):
        with pytest.raises(BadRequest, match=rf"^{field}: nobody has delegated it: ask; or ask for no"):
            refused(spec, host=host)


def test_namespaces_follow_the_network_and_the_cgroup_version() -> None:
    def kinds(document: dict) -> set[str]:  # type: ignore[type-arg]  # JSON
        return {each["type"] for each in document["linux"]["namespaces"]}

    assert kinds(made()) == {"pid", "ipc", "uts", "mount", "network"}
    assert kinds(made(replace(SPEC, network="host"))) == {"pid", "ipc", "uts", "mount"}
    assert "cgroup" in kinds(made(host=Host(cgroup_v2=True)))


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"args": ()}, "no command"),
        ({"cwd": "srv"}, "absolute"),
        ({"mounts": (Mount("data", "/data"),)}, "source"),
        ({"mounts": (Mount("/data", "data"),)}, "destination"),
    ],
)
def test_what_no_runtime_could_accept_is_refused(change: dict[str, object], word: str) -> None:
    with pytest.raises(BadRequest, match=word):
        made(replace(SPEC, **change))  # type: ignore[arg-type]  # any field


def test_mounts_come_after_the_default_ones() -> None:
    mounts = made(replace(SPEC, mounts=(Mount("/data", "/srv", read_only=True),)))["mounts"]
    assert mounts[-1] == {
        "destination": "/srv",
        "type": "bind",
        "source": "/data",
        "options": ["rbind", "rprivate", "ro"],
    }


def test_a_tmpfs_lets_nothing_be_executed_unless_it_is_asked_for() -> None:
    plain = Mount("", "/t", tmpfs=True)
    asked = Spec("c", ("a",), mounts=(plain, Mount("", "/u", tmpfs=True, mode=0, size_bytes=9, options=("exec",))))
    one, other = made(asked)["mounts"][-2:]
    assert one == {
        "destination": "/t",
        "type": "tmpfs",
        "source": "tmpfs",
        "options": ["noexec", "nosuid", "nodev", "rw", "mode=1777"],
    }
    assert other["options"] == ["nosuid", "nodev", "exec", "rw", "mode=0", "size=9"]


def test_a_bind_mount_has_the_options_that_were_asked_for() -> None:
    asked = Spec("c", ("a",), mounts=(Mount("/s", "/t", options=("bind", "rslave", "noexec")),))
    assert made(asked)["mounts"][-1]["options"] == ["rw", "bind", "rslave", "noexec"]


@pytest.mark.parametrize(
    ("words", "root"),
    [
        ([()], None), ([("rprivate",)], None), ([("rslave", "noexec")], "rslave"), ([("slave",)], "rslave"),
        ([("rshared",)], "shared"), ([("rslave",), ("shared",), ("private",)], "shared"),
    ],
)  # fmt: skip
def test_the_root_spreads_mounts_as_far_as_the_furthest_of_them_is_to(
    words: list[tuple[str, ...]], root: str | None
) -> None:
    mounts = tuple(Mount("/s", f"/t{number}", options=options) for number, options in enumerate(words))
    assert made(Spec("c", ("a",), mounts=mounts))["linux"].get("rootfsPropagation") == root


def test_a_mount_below_the_volumes_of_a_pod_gives_no_rights_whatever_its_options() -> None:
    asked = Spec("c", ("a",), mounts=(Mount("/v/x", "/t", options=("nosuid", "suid", "dev", "noexec")),))
    options = restrict(made(asked), "/v/")["mounts"][-1]["options"]  # type: ignore[index]
    assert options == ["rbind", "rprivate", "rw", "noexec", "nosuid", "nodev"]


LIMITS = ContainerLimits(
    memory_reservation_bytes=5, memory_swap_bytes=90, cpu_shares=7, cpuset_cpus="0", cpuset_mems="1", oom_score_adj=-3,
    shm_bytes=4096,
)  # fmt: skip


def test_limits_are_the_cgroups_and_of_its_shared_memory() -> None:
    wanted = Spec("c", ("a",), memory_bytes=80, cpu_request_milli=500, limits=LIMITS)
    document = made(wanted, host=Host(swap_limit=True))
    resources = document["linux"]["resources"]
    assert resources["memory"] == {"limit": 80, "swap": 90, "reservation": 5}
    assert resources["cpu"] == {"shares": 7, "cpus": "0", "mems": "1"}
    assert document["process"]["oomScoreAdj"] == -3
    (shm,) = [mount for mount in document["mounts"] if mount["destination"] == "/dev/shm"]
    assert shm["options"] == ["nosuid", "noexec", "nodev", "mode=1777", "size=4096"]


def test_with_the_hosts_ipc_it_has_the_hosts_shared_memory() -> None:
    document = made(Spec("c", ("a",), ipc="host"))
    assert "ipc" not in [each["type"] for each in document["linux"]["namespaces"]]
    (shm,) = [mount for mount in document["mounts"] if mount["destination"] == "/dev/shm"]
    assert (shm["type"], shm["source"]) == ("bind", "/dev/shm")
    with pytest.raises(BadRequest, match="limits\\.shm_bytes"):
        made(Spec("c", ("a",), ipc="host", limits=ContainerLimits(shm_bytes=1)))


def test_the_init_program_begins_the_command() -> None:
    assert made(Spec("c", ("a", "b"), init=True))["process"]["args"] == ["/sbin/exitd-init", "--", "a", "b"]


def test_swap_is_refused_where_it_is_not_counted_and_shared_memory_of_ones_own_in_a_pod() -> None:
    with pytest.raises(BadRequest, match="counts no swap"):
        made(Spec("c", ("a",), memory_bytes=80, limits=LIMITS), host=Host(swap_limit=False))
    with pytest.raises(BadRequest, match=r"limits\.shm_bytes: its /dev/shm is its pod"):
        made(Spec("c", ("a",), limits=ContainerLimits(shm_bytes=1)), shared=Shared(shm="/shm"))


FUSE = Device("/dev/fuse", "c", 10, 229, 0o666, 0, 0)


def test_a_device_that_was_asked_for_is_there_and_allowed_and_no_other() -> None:
    linux = made(host=Host(asked_devices=((FUSE, "rw"),)))["linux"]
    allowed = {"allow": True, "type": "c", "major": 10, "minor": 229, "access": "rw"}
    assert linux["resources"]["devices"] == [{"allow": False, "access": "rwm"}, allowed]
    assert [each["path"] for each in linux["devices"]] == ["/dev/fuse"]
    assert "devices" not in made()["linux"]


def test_kernel_parameters_are_of_namespaces_of_its_own() -> None:
    wanted = Spec("c", ("a",), sysctls=(("net.core.somaxconn", "5"),))
    assert made(wanted, host=Host(sysctls=(("net.a", "1"),)))["linux"]["sysctl"] == {
        "net.a": "1",
        "net.core.somaxconn": "5",
    }
    with pytest.raises(BadRequest, match="its network namespace is not its own"):
        made(wanted, shared=Shared((("network", "/n"),)))
    with pytest.raises(BadRequest, match="its ipc namespace is not its own"):
        made(Spec("c", ("a",), sysctls=(("kernel.sem", "5"),)), shared=Shared((("ipc", "/n"),)))


def test_a_bundle_gets_them_besides_its_own() -> None:
    wanted = Spec("c", bundle="/b", limits=LIMITS, memory_bytes=80, sysctls=(("net.core.somaxconn", "5"),))
    document = adapted(wanted, host=Host(swap_limit=True, asked_devices=((FUSE, "r"),)))
    linux = document["linux"]
    assert linux["sysctl"]["net.core.somaxconn"] == "5"
    assert linux["resources"]["devices"][-1]["minor"] == 229
    assert linux["devices"][-1]["path"] == "/dev/fuse"
    assert linux["resources"]["cpu"]["cpus"] == "0"
    assert document["process"]["oomScoreAdj"] == -3


def test_one_limit_more_leaves_a_bundle_its_others() -> None:
    bundle = {**BUNDLE, "linux": {"resources": {"memory": {"limit": 64}, "cpu": {"quota": 5}}}}
    wanted = Spec("c", bundle="/b", limits=ContainerLimits(memory_reservation_bytes=1, cpuset_cpus="0"))
    resources = adapt_bundle(bundle, wanted, cgroups_path="/x")["linux"]["resources"]  # type: ignore[index]
    assert resources == {"memory": {"limit": 64, "reservation": 1}, "cpu": {"quota": 5, "cpus": "0"}}


def test_with_the_hosts_ipc_a_mount_of_the_callers_own_at_shm_stays() -> None:
    mounts = made(Spec("c", ("a",), ipc="host", mounts=(Mount("/mine", "/dev/shm"),)))["mounts"]
    places = [mount["source"] for mount in mounts if mount["destination"] == "/dev/shm"]
    assert places == ["/dev/shm", "/mine"]


def test_open_files_never_exceed_the_daemons_own_limit() -> None:
    assert made(host=Host(hard_files=100))["process"]["rlimits"][0]["hard"] == 100
    assert made(host=Host(hard_files=100))["process"]["rlimits"][0]["soft"] == 100
    assert made(host=Host(hard_files=-1))["process"]["rlimits"][0]["hard"] == 524288  # unlimited


def test_the_whole_is_json_and_carries_the_annotations_that_the_runtime_may_see() -> None:
    spec = replace(SPEC, annotations=(("a.b/c", "1"), ("d", "2")), read_only=True, hostname="h")
    document = made(spec, shared=Shared(annotations=(("a.b/c", "1"),)))
    assert json.loads(json.dumps(document)) == document
    assert document["annotations"] == {"a.b/c": "1"}
    assert (document["root"], document["hostname"]) == ({"path": "/r", "readonly": True}, "h")


def test_a_terminal_is_there_if_it_is_asked_for_and_its_kind_is_the_callers_if_he_says_so() -> None:
    spec = replace(SPEC, tty=True)
    assert made(spec)["process"]["terminal"] is True
    assert "TERM=xterm" in made(spec)["process"]["env"]
    assert "TERM=dumb" in made(replace(spec, env=("TERM=dumb",)))["process"]["env"]
    assert not made()["process"]["terminal"]
    assert not any(line.startswith("TERM=") for line in made()["process"]["env"])


def test_a_bundles_terminal_is_the_callers_word() -> None:
    process = adapted(replace(BUNDLED, tty=True))["process"]
    assert (process["terminal"], process["consoleSize"]) == (True, {"height": 1, "width": 1})
    assert process["env"] == ["A=1", "B=2"]


def test_a_bundle_is_taken_as_it_is() -> None:
    expected = copy.deepcopy(BUNDLE)
    document = adapted(BUNDLED)
    assert expected == BUNDLE
    process, root, linux = (document.pop(key) for key in ("process", "root", "linux"))
    assert process == {
        "terminal": False,
        "args": ["serve"],
        "env": ["A=1", "B=2"],
        "cwd": "/srv",
        "user": {"uid": 3, "gid": 4},
        "oomScoreAdj": 0,
    }
    assert root == {"path": "/b/rootfs"}
    assert linux == {**BUNDLE["linux"], "cgroupsPath": "/exitd/x"}  # type: ignore[dict-item]  # JSON
    assert document["mounts"][0]["source"] == "/b/data"
    assert document["x-unknown"] == [1, 2]


def test_what_was_asked_changes_a_bundle() -> None:
    spec = replace(
        BUNDLED,
        args=("x",),
        env=("B=3", "C=4"),
        cwd="/w",
        user="web",
        memory_bytes=5,
        annotations=(("k", "v"), ("hidden", "h")),
        hostname="h",
        read_only=True,
        network="host",
        mounts=(Mount("/s", "/d"),),
    )
    document = adapted(spec, Ids(33, 33, (5,)), Host(swap_limit=True), Shared(annotations=(("k", "v"),)))
    assert document["process"]["args"] == ["x"]
    assert document["process"]["env"] == ["A=1", "B=3", "C=4"]
    assert document["process"]["cwd"] == "/w"
    assert document["process"]["user"] == {"uid": 33, "gid": 33, "additionalGids": [5, 33]}
    assert document["linux"]["resources"]["memory"] == {"limit": 5, "swap": 5}
    assert document["linux"]["namespaces"] == [{"type": "pid"}]
    assert document["annotations"] == {"k": "v"}
    assert (document["hostname"], document["root"]["readonly"]) == ("h", True)
    assert len(document["mounts"]) == 2
    assert rootfs_of(document) == "/b/rootfs"


def test_a_network_of_its_own_has_the_hosts_words_for_it_and_no_other() -> None:
    host = Host(sysctls=(("net.a", "0"),))
    assert made(host=host)["linux"]["sysctl"] == {"net.a": "0"}
    for document in (
        made(replace(SPEC, network="host"), host=host),
        made(host=host, shared=Shared((("network", "/ns"),))),
        made(),
    ):
        assert "sysctl" not in document["linux"]


def test_a_member_joins_by_path_and_has_its_pods_name_and_shared_memory() -> None:
    document = made(replace(SPEC, hostname="pod"), shared=POD)
    paths = {each["type"]: each.get("path") for each in document["linux"]["namespaces"]}
    assert paths == {"pid": None, "mount": None, "ipc": "/ns/ipc", "uts": "/ns/uts", "network": "/ns/net"}
    assert "hostname" not in document
    assert "HOSTNAME=pod" in document["process"]["env"]
    (shm,) = (mount for mount in document["mounts"] if mount["destination"] == "/dev/shm")
    assert (shm["type"], shm["source"]) == ("bind", "/pod/shm")
    destinations = [mount["destination"] for mount in document["mounts"]]
    assert destinations.index("/dev") < destinations.index("/dev/shm")


def test_a_bundle_joins_a_pod_too() -> None:
    document = adapted(replace(BUNDLED, hostname="x"), shared=POD)
    paths = {each["type"]: each.get("path") for each in document["linux"]["namespaces"]}
    assert paths == {"pid": None, "ipc": "/ns/ipc", "uts": "/ns/uts", "network": "/ns/net"}
    assert "hostname" not in document
    assert document["mounts"][-1]["source"] == "/pod/shm"


@pytest.mark.parametrize(("kind", "kept"), [("bind", True), ("tmpfs", False)])
def test_a_bind_mount_at_shm_may_be_the_callers_choice(kind: str, kept: bool) -> None:
    """As in a pod of containerd's with the host's ipc namespace."""
    own = {"destination": "/dev/shm", "type": kind, "source": "/dev/shm", "options": []}
    for bound_shm in (True, False):
        shared = replace(POD, bound_shm=bound_shm)
        found = adapt_bundle({**BUNDLE, "mounts": [own]}, BUNDLED, cgroups_path="/c", shared=shared)
        mounts = found["mounts"]
        assert isinstance(mounts, list)
        (shm,) = (mount for mount in mounts if mount["destination"] == "/dev/shm")
        assert shm["source"] == ("/dev/shm" if kept and bound_shm else "/pod/shm")


def test_the_hosts_pid_namespace_is_kept_when_asked() -> None:
    for document in (made(replace(SPEC, pid="host")), adapted(replace(BUNDLED, pid="host"))):
        assert "pid" not in [each["type"] for each in document["linux"]["namespaces"]]


def test_cpu_limits_are_quota_and_requests_are_shares() -> None:
    assert "cpu" not in made()["linux"]["resources"]
    cpu = made(replace(SPEC, cpu_limit_milli=1500, cpu_request_milli=250))["linux"]["resources"]["cpu"]
    assert cpu == {"quota": 150_000, "period": 100_000, "shares": 256}
    assert made(replace(SPEC, cpu_request_milli=1))["linux"]["resources"]["cpu"] == {"shares": 2}
    assert adapted(replace(BUNDLED, cpu_limit_milli=100))["linux"]["resources"]["cpu"]["quota"] == 10_000


def test_a_bundles_own_cgroups_path_and_oom_score_stay() -> None:
    bundle = copy.deepcopy(BUNDLE)
    bundle["process"]["oomScoreAdj"] = 100  # type: ignore[index]  # JSON
    bundle["linux"]["cgroupsPath"] = "/mine"  # type: ignore[index]  # JSON
    document: dict = adapt_bundle(bundle, BUNDLED, cgroups_path="/exitd/x")  # type: ignore[type-arg]  # JSON
    assert (document["process"]["oomScoreAdj"], document["linux"]["cgroupsPath"]) == (100, "/mine")


def test_bad_json_is_reported_with_file_and_line() -> None:
    with pytest.raises(BadRequest, match=r"/b/config\.json, line 2, column 3"):
        parse_bundle(b"{\n  bad\n}", "/b/config.json")


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"null",
        b"{}",
        b'{"process": 1, "root": {"path": "r"}}',
        b'{"process": {}, "root": {}}',
        b"\xff\xfe\xfa",
        b"[" * 100_000,
        b'{"process": {}, "root": {"path": "r"}, "x": ' + b"9" * 5000 + b"}",
    ],
    ids=lambda text: text[:20].decode("ascii", "replace"),
)
def test_what_is_no_configuration_is_refused_naming_the_file(text: bytes) -> None:
    with pytest.raises(BadRequest, match=r"/b/config\.json"):
        parse_bundle(text, "/b/config.json")


@pytest.mark.parametrize("section", [{"mounts": 3}, {"mounts": ["x"]}, {"linux": []}, {"process": {"args": []}}])
def test_a_bundle_of_the_wrong_shape_is_refused(section: dict[str, object]) -> None:
    with pytest.raises(BadRequest):
        adapt_bundle({**BUNDLE, **section}, BUNDLED, cgroups_path="/exitd/x")


def test_what_was_asked_of_apparmor_selinux_and_new_privileges_is_handed_on() -> None:
    asked = Security(no_new_privileges=False, apparmor="profile", selinux="u:r:t:s0")
    for process in (
        made(replace(SPEC, security=asked))["process"],
        adapted(replace(BUNDLED, security=asked))["process"],
    ):
        words = ("noNewPrivileges", "apparmorProfile", "selinuxLabel")
        assert [process[word] for word in words] == [False, "profile", "u:r:t:s0"]


@pytest.mark.parametrize(
    ("security", "words"),
    [
        (
            Security(apparmor="docker-default"),
            "security.apparmor 'docker-default': this machine's kernel has no AppArmor",
        ),
        (Security(selinux="u:r:t:s0"), "security.selinux 'u:r:t:s0': this machine's kernel has no SELinux"),
    ],
)
def test_what_the_kernel_does_not_have_is_refused_by_name(security: Security, words: str) -> None:
    host = Host(apparmor=False, selinux=False)
    with pytest.raises(BadRequest, match=words):
        made(replace(SPEC, security=security), host=host)
    with pytest.raises(BadRequest, match=words):
        adapt_bundle(BUNDLE, replace(BUNDLED, security=security), cgroups_path="/exitd/x", host=host)


def test_unconfined_is_what_a_kernel_without_apparmor_gives_anyway() -> None:
    asked = replace(SPEC, security=Security(apparmor="unconfined"))
    for has, found in ((False, None), (True, "unconfined")):
        assert made(asked, host=Host(apparmor=has))["process"].get("apparmorProfile") == found


def test_where_exitds_own_apparmor_profile_is_loaded_it_confines_who_names_no_other_and_is_not_privileged() -> None:
    host = Host(apparmor=False, own_profile="exitd-default")

    def profile(*, has: bool = False, privileged: bool = False, apparmor: str = "") -> object:
        asked = replace(SPEC, security=Security(apparmor=apparmor), rights=replace(SPEC.rights, privileged=privileged))
        return made(asked, host=replace(host, apparmor=has))["process"].get("apparmorProfile")

    assert profile() == "exitd-default" and profile(privileged=True) is None
    assert profile(has=True, apparmor="tight") == profile(has=True, privileged=True, apparmor="tight") == "tight"
    assert profile(has=True, apparmor="unconfined") == "unconfined"
    assert "apparmorProfile" not in str(adapt_bundle(BUNDLE, BUNDLED, cgroups_path="/exitd/x", host=host))


def test_without_a_word_there_are_no_new_privileges_and_a_bundle_is_as_it_is() -> None:
    process = made(SPEC)["process"]
    assert process["noNewPrivileges"] is True and {"apparmorProfile", "selinuxLabel"}.isdisjoint(process)
    assert "noNewPrivileges" not in adapted(BUNDLED)["process"]


@pytest.mark.parametrize(
    ("namespaces", "own"),
    [
        ([{"type": "pid"}, {"type": "ipc"}], True),
        ([{"type": "pid", "path": ""}], True),
        ([{"type": "pid", "path": "/proc/1/ns/pid"}], False),
        ([{"type": "ipc"}], False),
        ([], False),
    ],
)
def test_a_pid_namespace_is_a_containers_own_if_it_is_made_for_it(namespaces: list[object], own: bool) -> None:
    assert has_own_pids({"linux": {"namespaces": namespaces}}) is own


def test_users_of_its_own_are_a_namespace_with_their_mapping() -> None:
    ids = IdRange(1 << 20)
    linux = made(replace(SPEC, ids=ids))["linux"]
    assert {"type": "user"} in linux["namespaces"]
    assert linux["uidMappings"] == linux["gidMappings"] == [{"containerID": 0, "hostID": 1 << 20, "size": 65536}]
    assert ids_in(linux) == ids
    assert ids_in(made()["linux"]) is None and "uidMappings" not in made()["linux"]
    assert ids_in({"uidMappings": [{"hostID": -1, "size": 1}]}) is ids_in({"uidMappings": [3]}) is None
    joined = made(replace(SPEC, ids=ids), shared=Shared((("user", "/ns/user"), ("network", "/ns/net"))))["linux"]
    assert {"type": "user", "path": "/ns/user"} in joined["namespaces"] and {"type": "user"} not in joined["namespaces"]


def test_only_who_owns_a_network_mounts_its_sysfs() -> None:
    def sys_of(spec: Spec) -> str:
        (found,) = (mount for mount in made(spec)["mounts"] if mount["destination"] == "/sys")
        return str(found["type"])

    own = replace(SPEC, ids=IdRange(1 << 20))
    assert (sys_of(own), sys_of(replace(own, network="host")), sys_of(replace(SPEC, network="host"))) == (
        "sysfs",
        "bind",
        "sysfs",
    )


def test_a_bind_mount_keeps_the_flags_of_its_source() -> None:
    mounts = (Mount("/a", "/a", options=("suid", "exec")), Mount("/b", "/b"))
    document = keep_flags(made(replace(SPEC, mounts=mounts)), lambda source: ("nosuid", "ro") if source == "/a" else ())
    options = {mount["source"]: mount["options"] for mount in document["mounts"] if mount["type"] == "bind"}  # type: ignore[attr-defined]  # JSON
    assert options == {"/a": ["rbind", "rprivate", "exec", "nosuid", "ro"], "/b": ["rbind", "rprivate", "rw"]}
