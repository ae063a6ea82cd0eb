"""Rights and limits in config.json; what of the machine goes into it."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from supervisor.model.errors import BadRequest
from supervisor.model.idranges import IdRange
from supervisor.model.limits import HostDevice
from supervisor.model.rights import DEFAULT, NAMES, Rights, Ulimit
from supervisor.model.values import Security, Spec
from supervisor.runtime.oci import machine
from supervisor.runtime.oci.privileges import Device, user_of
from supervisor.runtime.oci.spec import Document, Host, adapt_bundle, config
from supervisor.runtime.oci.users import Ids

SPEC = Spec(name="web", args=("true",), rootfs="/")
DISK = Device("/dev/sda", "b", 8, 0, 0o660, 0, 6)
BUNDLE: Document = {"process": {"args": ["a"], "rlimits": [{"type": "RLIMIT_CORE", "soft": 1, "hard": 1}]},
                    "root": {"path": "r"}, "linux": {"resources": {"pids": {"limit": 3}}}}  # fmt: skip


HOST, ROOT = Host(), Ids()


def made(rights: Rights, host: Host = HOST, user: Ids = ROOT, **words: Any) -> Any:
    spec = replace(SPEC, rights=rights, **words)
    return config(spec, "0" * 64, rootfs_path="/r", cgroups_path="/exitd/x", user=user, host=host)


def test_without_a_word_a_container_of_before_is_what_it_was() -> None:
    document = made(Rights())
    assert document["process"]["capabilities"]["bounding"] == list(DEFAULT)
    assert "pids" not in document["linux"]["resources"]
    assert document["process"]["noNewPrivileges"] is True


def test_capabilities_are_bounding_for_all_and_held_by_root_alone() -> None:
    rights = Rights(cap_add=("CAP_SYS_TIME",), cap_drop=("ALL",))
    assert set(map(tuple, made(rights)["process"]["capabilities"].values())) == {("CAP_SYS_TIME",)}
    other = made(rights, user=Ids(1000))["process"]["capabilities"]
    assert other == {"bounding": ["CAP_SYS_TIME"], "effective": [], "permitted": []}


def test_a_privileged_container_has_all_capabilities_and_devices_and_nothing_is_hidden_or_read_only() -> None:
    document = made(Rights(privileged=True), Host(devices=(DISK,), hidden=("/sys/hot",)))
    linux, process = document["linux"], document["process"]
    assert process["capabilities"]["effective"] == sorted(NAMES)
    assert process["noNewPrivileges"] is False
    assert linux["resources"]["devices"] == [{"allow": True, "access": "rwm"}]
    node = {"path": "/dev/sda", "type": "b", "major": 8, "minor": 0, "fileMode": 0o660, "uid": 0, "gid": 6}
    assert linux["devices"] == [node]
    assert not {"maskedPaths", "readonlyPaths"} & set(linux)
    options = {mount["destination"]: mount["options"] for mount in document["mounts"]}
    assert "ro" not in options["/sys"] + options["/sys/fs/cgroup"]
    assert {"nosuid", "noexec", "nodev"} <= {*options["/sys"]}
    security = Security(no_new_privileges=True)
    assert made(Rights(privileged=True), security=security)["process"]["noNewPrivileges"] is True


def test_others_see_nothing_of_the_machines_temperature_and_get_no_device() -> None:
    linux = made(Rights(cap_add=("ALL",)), Host(hidden=("/sys/hot",)))["linux"]
    assert {"/proc/interrupts", "/proc/kcore", "/sys/firmware", "/sys/hot"} <= {*linux["maskedPaths"]}
    assert linux["resources"]["devices"] == [{"allow": False, "access": "rwm"}]
    assert "devices" not in linux


def test_a_limit_of_processes_is_the_cgroups_where_it_counts_them() -> None:
    assert made(Rights(pids_limit=9))["linux"]["resources"]["pids"] == {"limit": 9}
    lacking = Host(lacking=(("pids", "nobody has delegated it: ask somebody"),))
    assert "pids" not in made(Rights(pids_limit=2048), lacking)["linux"]["resources"]
    with pytest.raises(BadRequest, match=r"^rights.pids_limit: nobody has delegated it: ask somebody; or ask for no"):
        made(Rights(pids_limit=9), lacking)


def test_limits_stand_beside_that_of_open_files_or_in_its_place() -> None:
    found = made(Rights(ulimits=(Ulimit("core", 0, 2**64 - 1),)), Host(hard_files=5000))["process"]["rlimits"]
    assert found == [
        {"type": "RLIMIT_NOFILE", "soft": 1024, "hard": 5000},
        {"type": "RLIMIT_CORE", "soft": 0, "hard": 2**64 - 1},
    ]
    files = made(Rights(ulimits=(Ulimit("nofile", 9, 10),)))["process"]["rlimits"]
    assert files == [{"type": "RLIMIT_NOFILE", "soft": 9, "hard": 10}]


def test_a_bundle_has_its_own_but_for_what_is_asked() -> None:
    def adapted(rights: Rights) -> Any:
        return adapt_bundle(BUNDLE, Spec(name="web", bundle="/b", rights=rights), cgroups_path="/exitd/x")

    plain = adapted(Rights())
    assert (plain["process"]["rlimits"], plain["linux"]["resources"]) == (
        [{"type": "RLIMIT_CORE", "soft": 1, "hard": 1}],
        {"pids": {"limit": 3}},
    )
    asked = adapted(Rights(pids_limit=9, ulimits=(Ulimit("core", 2, 2), Ulimit("nproc", 4, 4))))
    assert asked["linux"]["resources"]["pids"] == {"limit": 9}
    assert [(each["type"], each["soft"]) for each in asked["process"]["rlimits"]] == [
        ("RLIMIT_CORE", 2),
        ("RLIMIT_NPROC", 4),
    ]


def test_groups_come_beside_those_of_the_user_and_root_is_refused_where_it_must_not_be() -> None:
    assert user_of(Rights(groups=(5, 6)), Ids(1000, 1000, (4, 5))) == Ids(1000, 1000, (4, 5, 6))
    assert user_of(Rights(not_root=True), Ids(1, 0)).uid == 1
    with pytest.raises(BadRequest, match="its user is root"):
        user_of(Rights(not_root=True), Ids())


def test_the_machines_capabilities_are_those_of_the_bounding_set(tmp_path: Path) -> None:
    status = tmp_path / "status"
    status.write_text("Name:\tx:y\nCapBnd:\t0000000000000021\nNoNewPrivs:\t0\n")
    assert machine.capabilities(str(status)) == ("CAP_CHOWN", "CAP_KILL")
    assert set(machine.capabilities()) <= {*NAMES}


def test_directories_about_heat_are_found_for_each_processor(tmp_path: Path) -> None:
    for name in ("cpu0", "cpu11", "cpufreq"):
        (tmp_path / name / "thermal_throttle").mkdir(parents=True)
    (tmp_path / "cpu2").mkdir()
    assert machine.throttles(str(tmp_path)) == tuple(f"{tmp_path}/cpu{n}/thermal_throttle" for n in (0, 11))


def test_devices_are_those_of_dev_but_what_each_container_has_itself() -> None:
    found = {device.path: device for device in machine.devices()}
    assert not {"/dev/null", "/dev/ptmx", "/dev/console", "/dev/tty"} & set(found)
    assert not [path for path in found if path.startswith(("/dev/pts/", "/dev/shm/"))]
    for path, device in found.items():
        status = os.stat(path)
        assert (device.major, device.minor) == (os.major(status.st_rdev), os.minor(status.st_rdev))


def test_a_device_that_is_asked_for_has_the_place_and_the_access_that_were_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (one, access), *rest = machine.asked_devices((HostDevice("/dev/null", "/dev/nothing", "r"),))
    assert (one.path, one.major, one.minor, access, rest) == ("/dev/nothing", 1, 3, "r", [])
    everything = [device.path for device, _ in machine.asked_devices((HostDevice("/dev", "/all"),))]
    assert everything == [f"/all{device.path.removeprefix('/dev')}" for device in machine.devices()]
    for nothing in ("file", ""):
        with pytest.raises(BadRequest, match="no device, and no directory with one in it"):
            machine.asked_devices((HostDevice(str(tmp_path / nothing)),))
    with pytest.raises(BadRequest, match="No such file or directory"):
        machine.asked_devices((HostDevice(str(tmp_path / "gone")),))


def test_what_is_no_device_is_none(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to("/dev/null")
    os.mkfifo(tmp_path / "fifo")
    assert machine.devices(str(tmp_path)) == ()
    assert machine.devices(str(tmp_path / "gone")) == ()


@pytest.mark.parametrize(("text", "there"), [("Y\n", True), ("N\n", False), (None, False)])
def test_whether_the_kernel_has_apparmor_and_it_is_on(tmp_path: Path, text: str | None, there: bool) -> None:
    if text is not None:
        (tmp_path / "enabled").write_text(text)
    assert machine.has_apparmor(str(tmp_path / "enabled")) is there


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("lsb_release (enforce)\nexitd-default (enforce)\n", "exitd-default"),
        ("exitd-default (complain)", "exitd-default"),
        ("exitd-default-2 (enforce)\n/usr/bin/exitd-default (enforce)\nexitd-default//null (enforce)\n", ""),
        ("", ""),
        (None, ""),
    ],
)
def test_whether_exitds_own_apparmor_profile_is_loaded(tmp_path: Path, text: str | None, found: str) -> None:
    if text is not None:
        (tmp_path / "profiles").write_text(text)
    assert machine.own_profile(str(tmp_path / "profiles")) == found


def test_selinux_is_there_where_its_file_system_is(tmp_path: Path) -> None:
    assert machine.has_selinux(str(tmp_path)) is False
    (tmp_path / "enforce").write_text("0")
    assert machine.has_selinux(str(tmp_path)) is True


def test_of_the_networks_sysctls_those_that_the_kernel_has(tmp_path: Path) -> None:
    (groups := tmp_path / "gid_map").write_text("         0          0 4294967295\n")
    assert machine.sysctls(str(tmp_path), str(groups)) == ()
    (tmp_path / "net/ipv4").mkdir(parents=True)
    (tmp_path / "net/ipv4/ping_group_range").touch()
    assert machine.sysctls(str(tmp_path), str(groups)) == (("net.ipv4.ping_group_range", "0 2147483647"),)
    groups.write_text("0 100000 65536\n")
    assert machine.sysctls(str(tmp_path), str(groups)) == ()
    own = machine.sysctls(str(tmp_path), str(groups), IdRange(1 << 20))
    assert own == (("net.ipv4.ping_group_range", "0 65535"),)


def test_a_kernel_without_user_namespaces_names_all_groups(tmp_path: Path) -> None:
    (tmp_path / "net/ipv4").mkdir(parents=True)
    (tmp_path / "net/ipv4/ping_group_range").touch()
    found = machine.sysctls(str(tmp_path), str(tmp_path / "no-gid_map"))
    assert found == (("net.ipv4.ping_group_range", "0 2147483647"),)
