"""Where a container's cgroup is to be, by what it asked for, what its bundle names, and the driver it was made with."""

import json
import pathlib
from dataclasses import replace

import pytest

from supervisor.config.settings import Limits
from supervisor.model.errors import BadRequest
from supervisor.model.idranges import IdRange
from supervisor.model.limits import HostDevice
from supervisor.model.values import Container, Mount, Phase, Pod, Security, Spec
from supervisor.runtime.oci import bundle, cgroups, machine, rootfs

ID, POD = "a" * 64, "b" * 64


def container(**asked: object) -> Container:
    return Container(ID, replace(Spec(name="c"), **asked), Phase.CREATING, 1, 0)  # type: ignore[arg-type]  # a test's own words


@pytest.mark.parametrize(
    ("made", "path"),
    [
        (container(), f"/exitd/{ID}"),
        (container(pod=Pod()), f"/exitd/pod-{ID}/{ID}"),
        (container(sandbox=POD), f"/exitd/pod-{POD}/{ID}"),
        (container(systemd_cgroup=True), f"exitd.slice:exitd:{ID}"),
        (container(systemd_cgroup=True, pod=Pod()), f"exitd-{ID}.slice:exitd:{ID}"),
        (container(systemd_cgroup=True, sandbox=POD), f"exitd-{POD}.slice:exitd:{ID}"),
    ],
)
def test_the_cgroup_is_by_driver_and_pod(made: Container, path: str) -> None:
    assert bundle.default_cgroup(made) == path
    assert bundle.is_ours(path)


@pytest.mark.parametrize(
    "path",
    [
        *("/", "/exitd", "/exitdx/c", "/user.slice/c", "/exitd.slice", "/exitd.slice/exitd-x.slice"),
        *("exitd.slice:cri:c", "x.slice:exitd:c", "exitd-x.slice:exitd:c", "exitd-.slice:exitd:c"),
    ],
)
def test_a_cgroup_that_somebody_else_named_is_not_ours(path: str) -> None:
    assert not bundle.is_ours(path)


def given(directory: pathlib.Path, linux: dict[str, str]) -> Container:
    (directory / "given/rootfs").mkdir(parents=True)
    document = {"ociVersion": "1.0.2", "process": {"args": ["x"]}, "root": {"path": "rootfs"}, "linux": linux}
    (directory / "given/config.json").write_text(json.dumps(document))
    return container(bundle=str(directory / "given"), systemd_cgroup=True)


@pytest.mark.parametrize(
    ("named", "path"),
    [
        ({}, f"exitd.slice:exitd:{ID}"),
        ({"cgroupsPath": "/mine/c"}, "/mine/c"),
        ({"cgroupsPath": "kubepods-a.slice:cri:c"}, "kubepods-a.slice:cri:c"),
    ],
)
def test_a_bundles_own_path_goes_before_the_driver(tmp_path: pathlib.Path, named: dict[str, str], path: str) -> None:
    made = given(tmp_path, named)
    assert bundle.prepare(made, str(tmp_path / "r"), str(tmp_path / "s"), Limits()).cgroups_path == path
    assert bundle.cgroups_path(made, str(tmp_path / "r")) == path


@pytest.mark.parametrize("named", ["relative", "/", "/a/../..", "a:b", "a:b:c", "a.slice:b:c.slice"])
def test_a_path_that_cannot_be_found_again_is_refused(tmp_path: pathlib.Path, named: str) -> None:
    with pytest.raises(BadRequest, match=r"config\.json: linux\.cgroupsPath .* must be absolute, or SLICE:PREFIX:NAME"):
        bundle.prepare(given(tmp_path, {"cgroupsPath": named}), str(tmp_path / "r"), str(tmp_path / "s"), Limits())


def test_the_scratch_layer_is_bounded_in_bytes_and_in_files() -> None:
    limits = Limits(scratch_mib=7, scratch_files=99)
    assert rootfs.scratch_options(limits) == f"mode=0700,size={7 << 20},nr_inodes=99"
    assert rootfs.scratch_options(limits, 65_536) == "mode=0700,size=65536,nr_inodes=99"


@pytest.mark.parametrize(
    ("named", "path"),
    [({"cgroupsPath": "/mine/c"}, "/mine/c"), ({}, f"/exitd/{ID}"), ({"cgroupsPath": "/"}, f"/exitd/{ID}")],
)
def test_an_adopted_containers_cgroup_is_the_one_that_its_own_bundle_names(
    tmp_path: pathlib.Path, named: dict[str, str], path: str
) -> None:
    """exitd has made no config.json for it; where the bundle names nothing that can be found, nothing is made up."""
    adopted = replace(given(tmp_path, named), spec=Spec(name="c", bundle=str(tmp_path / "given")))
    assert bundle.cgroups_path(adopted, str(tmp_path / "r")) == path
    (tmp_path / "given/config.json").unlink()
    assert bundle.cgroups_path(adopted, str(tmp_path / "r")) == f"/exitd/{ID}"


def test_a_members_volume_is_nosuid_and_nodev_also_where_an_earlier_version_wrote_the_configuration(
    tmp_path: pathlib.Path,
) -> None:
    given(tmp_path, {})
    made = container(bundle=str(tmp_path / "given"), mounts=(Mount("", "/v", empty_dir="v"),))
    places = str(tmp_path / "r"), str(tmp_path / "s")
    bundle.prepare(made, *places, Limits())
    file = tmp_path / "r/c" / ID / "bundle/config.json"
    written = json.loads(file.read_text())
    assert written["mounts"][0]["options"][-2:] == ["nosuid", "nodev"]
    written["mounts"][0]["options"] = ["rbind", "rprivate", "rw"]
    file.write_text(json.dumps(written))
    bundle.prepare(made, *places, Limits())
    assert json.loads(file.read_text())["mounts"][0]["options"] == ["rbind", "rprivate", "rw", "nosuid", "nodev"]


def test_the_root_of_one_with_users_of_its_own_is_where_the_state_directory_is_now(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rootfs, "prepare", lambda spec, directory, limits, apart: f"{apart}/merged")
    monkeypatch.setattr(cgroups, "let_pass", lambda path: None)
    made = container(rootfs="/r", args=("x",), ids=IdRange(1 << 20))
    for state in ("s", "other", "s"):
        found = bundle.prepare(made, str(tmp_path / "r"), str(tmp_path / state), Limits())
        written = json.loads((tmp_path / "r/c" / ID / "bundle/config.json").read_text())
        assert found.document["root"] == written["root"]
        assert written["root"]["path"] == f"{tmp_path}/{state}/roots/{ID}/merged"


@pytest.mark.parametrize("is_written_anew", [True, False])
def test_the_apparmor_profile_is_the_one_that_it_was_made_with_while_that_is_loaded(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, is_written_anew: bool
) -> None:
    """Also where its configuration is written anew for each run. One that asks for a profile keeps asking."""
    monkeypatch.setattr(rootfs, "prepare", lambda spec, directory, limits, apart: f"{directory}/merged")
    devices = (HostDevice("/dev/null", "/dev/null", "rwm"),) if is_written_anew else ()
    made = container(rootfs="/r", args=("x",), devices=devices)

    def profile(loaded: str, of: Container = made, root: str = "r") -> object:
        monkeypatch.setattr(machine, "own_profile", lambda: loaded)
        found = bundle.prepare(of, str(tmp_path / root), str(tmp_path / "s"), Limits())
        written = json.loads((tmp_path / root / "c" / ID / "bundle/config.json").read_text())
        assert written["process"] == found.document["process"]
        return written["process"].get("apparmorProfile")

    own = machine.OWN_PROFILE
    assert [profile(loaded) for loaded in ("", own, "")] == [None, None, None]  # by an exitd that had no profile
    assert [profile(loaded, root="with") for loaded in (own, own, "", own)] == [own, own, None, None]
    asking = replace(made, spec=replace(made.spec, security=Security(apparmor=own)))
    monkeypatch.setattr(machine, "has_apparmor", lambda: True)
    assert [profile(loaded, asking, "asking") for loaded in (own, "")] == [own, own]


ODD: tuple[dict[str, object], ...] = (
    {"annotations": {"a": 1, "run.oci.handler": "krun"}},
    {"annotations": []},
    {"process": {"args": ["x", None], "env": [1], "user": {"uid": "root"}, "oomScoreAdj": 5000}},
    {"mounts": [None, {"destination": 7}]},
    {"mounts": "none", "hostname": 7},
    {"linux": {"cgroupsPath": "/mine/c", "namespaces": [None, {"type": "pid"}], "sysctl": {"a": 1}, "devices": 7}},
)


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: ",".join(odd))
def test_a_configuration_that_an_earlier_exitd_has_stored_is_read_whatever_is_checked_today(
    tmp_path: pathlib.Path, odd: dict[str, object]
) -> None:
    """Its container may run: without its configuration its cgroup would be another one's, or nobody's."""
    made, places = given(tmp_path, {"cgroupsPath": "/mine/c"}), (str(tmp_path / "r"), str(tmp_path / "s"))
    bundle.prepare(made, *places, Limits())
    file = tmp_path / "r/c" / ID / "bundle/config.json"
    stored = json.loads(file.read_text()) | odd
    file.write_text(json.dumps(stored))
    (tmp_path / "given/config.json").unlink()
    assert bundle.cgroups_path(made, places[0]) == "/mine/c"
    assert bundle.executes(made, places[0]) is ("run.oci.handler" not in str(odd))
    assert bundle.configuration(made, places[0])["process"] == ({"user": {}} if "process" in odd else stored["process"])
    again = bundle.prepare(made, *places, Limits())
    assert again.cgroups_path == "/mine/c" and again.own_pids is ("namespaces" in str(odd))
    assert json.loads(file.read_text()) == stored


@pytest.mark.parametrize("text", ["[]", "{}", "", '{"process": {}, "root": {"path": "\\u0000"}}', "{" * 10**6])
def test_what_is_no_configuration_at_all_is_as_if_nothing_were_stored(tmp_path: pathlib.Path, text: str) -> None:
    made, places = given(tmp_path, {"cgroupsPath": "/mine/c"}), (str(tmp_path / "r"), str(tmp_path / "s"))
    bundle.prepare(made, *places, Limits())
    (tmp_path / "r/c" / ID / "bundle/config.json").write_text(text)
    assert bundle.cgroups_path(made, places[0]) == "/mine/c"  # as the caller's bundle says
    assert bundle.prepare(made, *places, Limits()).cgroups_path == "/mine/c"


def test_a_stored_configuration_without_a_bound_is_none(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, places = container(), (str(tmp_path / "r"), str(tmp_path / "s"))
    (directory := tmp_path / "r/c" / ID / "bundle").mkdir(parents=True)
    text = json.dumps({"process": {}, "root": {"path": "/r"}, "linux": {"cgroupsPath": "/mine/c"}})
    (directory / "config.json").write_text(text)
    monkeypatch.setattr(bundle, "MOST_STORED_BYTES", len(text))
    assert bundle.cgroups_path(made, places[0]) == "/mine/c"
    monkeypatch.setattr(bundle, "MOST_STORED_BYTES", len(text) - 1)
    assert bundle.cgroups_path(made, places[0]) == f"/exitd/{ID}"


def test_a_scope_has_its_containers_limits_also_where_an_earlier_version_wrote_the_configuration(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rootfs, "prepare", lambda spec, directory, limits, apart: f"{apart}/merged")
    places = str(tmp_path / "r"), str(tmp_path / "s")
    file = tmp_path / "r/c" / ID / "bundle/config.json"
    made = container(rootfs="/r", args=("x",), systemd_cgroup=True)
    for limit, annotated in ((0, 2**64 - 1), (9, 9), (0, 2**64 - 1)):
        rights = replace(made.spec.rights, pids_limit=limit)
        asked = replace(made, spec=replace(made.spec, rights=rights), changed=("pids_limit",))
        found = bundle.prepare(asked, *places, Limits())
        wanted = {"org.systemd.property.TasksMax": f"uint64 {annotated}"}
        assert found.document["annotations"] == json.loads(file.read_text())["annotations"] == wanted
    written = json.loads(file.read_text())
    del written["annotations"]
    file.write_text(json.dumps(written))
    assert bundle.prepare(made, *places, Limits()).document["annotations"] == wanted
    assert json.loads(file.read_text())["annotations"] == wanted
