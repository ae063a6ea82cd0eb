"""What a container is given to run with, and that it is settled once."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from supervisor.config.settings import CgroupDriver, Config, RuntimeEntry
from supervisor.engine.admission import driver_of, find_program, refuse_unfit, uses_systemd, with_runtime
from supervisor.model import pods
from supervisor.model.errors import BadRequest, RuntimeMissing
from supervisor.model.taskfacts import Task
from supervisor.model.values import Container, Phase, Pod, Spec

PLAIN = Spec(name="c", runtime="")
GLOBS = RuntimeEntry("r", path="/bin/true", pod_annotations=("p.*",), container_annotations=("c.*",))
CGROUPFS = Config(cgroup_driver=CgroupDriver.CGROUPFS, default_runtime="r", runtimes=(GLOBS,))


def settled(spec: Spec, config: Config) -> Spec:
    """As a spec is admitted."""
    entry, systemd = config.runtime(spec.runtime), uses_systemd(config.cgroup_driver)
    refuse_unfit(spec, entry)
    return with_runtime(spec, config, find_program(entry), systemd=systemd)


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    made = tmp_path / "myruntime"
    made.write_text("#!/bin/sh\n")
    made.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return made


def test_the_path_and_the_arguments_are_settled_and_the_word_is_kept(program: Path) -> None:
    entry = RuntimeEntry("mine", path=str(program), options=("--debug", "--x=1"), handlers=("handler",))
    made = settled(replace(PLAIN, runtime="handler"), Config(runtimes=(entry,)))
    assert (made.runtime, made.runtime_path, made.runtime_options) == ("handler", str(program), ("--debug", "--x=1"))


def test_a_name_without_an_entry_and_an_entry_without_a_path_are_found_on_path(program: Path) -> None:
    assert settled(replace(PLAIN, runtime="myruntime"), Config()).runtime_path == str(program)
    entry = RuntimeEntry("myruntime", options=("--debug",))
    made = settled(PLAIN, Config(default_runtime="myruntime", runtimes=(entry,)))
    assert (made.runtime, made.runtime_path, made.runtime_options) == ("myruntime", str(program), ("--debug",))


@pytest.mark.parametrize("name", ["mine", "handler", "io.containerd.mine.v2"])
def test_a_shim_v2_runtime_is_the_program_that_its_type_names(name: str, tmp_path: Path, program: Path) -> None:
    shim = tmp_path / "containerd-shim-mine-v2"
    program.rename(shim)
    entry = RuntimeEntry(
        "mine", runtime_type="io.containerd.mine.v2", options=("/etc/mine.toml",), handlers=("handler",)
    )
    known = Config(runtimes=(entry,) if "." not in name else ())
    made = settled(replace(PLAIN, runtime=name), known)
    assert (made.runtime, made.runtime_type, made.runtime_path) == (name, "io.containerd.mine.v2", str(shim))
    assert made.runtime_options == (("/etc/mine.toml",) if "." not in name else ())


def test_the_path_of_a_shim_v2_binary_is_taken_as_it_is(tmp_path: Path, program: Path) -> None:
    shim = tmp_path / "containerd-shim-mine-v2"
    with pytest.raises(RuntimeMissing, match="no executable file there"):
        settled(replace(PLAIN, runtime=str(shim)), Config())
    program.rename(shim)
    made = settled(replace(PLAIN, runtime=str(shim)), Config())
    assert (made.runtime_type, made.runtime_path) == ("io.containerd.mine.v2", str(shim))


def test_a_shim_that_is_not_installed_is_named_with_where_it_was_looked_for() -> None:
    with pytest.raises(RuntimeMissing, match=r"containerd-shim-kata-v9, which is in none of .*PATH"):
        settled(replace(PLAIN, runtime="io.containerd.kata.v9"), Config())


def test_a_task_of_containerd_s_does_not_go_to_another_shim_again() -> None:
    asked = replace(PLAIN, runtime="io.containerd.runc.v2", task=Task("/b"))
    with pytest.raises(RuntimeMissing, match="a task of containerd's needs an OCI runtime"):
        settled(asked, Config())


def test_a_program_that_is_not_there_is_named() -> None:
    with pytest.raises(RuntimeMissing, match="/no/such"):
        settled(replace(PLAIN, runtime="x"), Config(runtimes=(RuntimeEntry("x", path="/no/such"),)))


@pytest.mark.parametrize(
    ("pod", "sandbox", "seen"),
    [(None, "", {"c.a": "1"}), (None, "s", {"c.a": "1", "p.a": "2"}), (Pod(), "", {"p.a": "2"})],
    ids=["single", "member", "pause"],
)
def test_pods_and_containers_have_allow_lists_of_their_own(pod: Pod | None, sandbox: str, seen: dict[str, str]) -> None:
    asked = replace(PLAIN, annotations=(("c.a", "1"), ("p.a", "2"), ("x", "3")), pod=pod, sandbox=sandbox)
    made = Container("id", settled(asked, CGROUPFS), Phase.CREATING, 1, 0)
    shown = pods.seen_by_runtime(made)
    assert {key: value for key, value in shown.items() if key not in pods.FAMILY_KEYS} == seen


@pytest.mark.parametrize("place", [{"pod": Pod()}, {"sandbox": "s"}])
def test_the_configuration_of_a_task_says_its_place_in_containerds_words(place: dict[str, Any]) -> None:
    assert pods.seen_by_runtime(Container("id", replace(PLAIN, task=Task("/b"), **place), Phase.CREATING, 1, 0)) == {}


def test_without_an_entry_no_annotation_reaches_a_runtime(program: Path) -> None:
    assert settled(replace(PLAIN, runtime="myruntime"), Config()).annotation_globs == ()


def test_the_driver_is_settled_too() -> None:
    assert settled(PLAIN, CGROUPFS).systemd_cgroup is False
    assert settled(PLAIN, replace(CGROUPFS, cgroup_driver=CgroupDriver.SYSTEMD)).systemd_cgroup is True


@pytest.mark.parametrize("pod", [Pod(memory_bytes=1 << 30), Pod(pids_limit=9), Pod(cpu_limit_milli=9)])
@pytest.mark.parametrize("driver", [CgroupDriver.SYSTEMD, CgroupDriver.CGROUPFS])
def test_a_pods_own_limit_is_taken_whoever_makes_its_cgroup(pod: Pod, driver: CgroupDriver) -> None:
    assert settled(replace(PLAIN, pod=pod), replace(CGROUPFS, cgroup_driver=driver)).pod == pod


def test_a_member_has_the_driver_of_its_pause_container_whatever_the_configuration_has_become() -> None:
    for of_pause, driver in ((True, CgroupDriver.CGROUPFS), (False, CgroupDriver.SYSTEMD)):
        config = replace(CGROUPFS, cgroup_driver=driver)
        pause = Container("id", replace(PLAIN, pod=Pod(), systemd_cgroup=of_pause), Phase.RUNNING, 1, 0)
        assert driver_of(pause, config) is of_pause
        assert driver_of(None, config) is (driver is CgroupDriver.SYSTEMD)


@pytest.mark.parametrize("family", ["runc", "kata"])
def test_a_pods_own_limit_is_refused_where_its_shim_is_of_another_kind_than_runcs(family: str, program: Path) -> None:
    entry = RuntimeEntry("r", path=str(program), runtime_type=f"io.containerd.{family}.v2")
    limited, config = replace(PLAIN, pod=Pod(pids_limit=9)), replace(CGROUPFS, runtimes=(entry,))
    if family == "runc":
        assert settled(limited, config).pod == Pod(pids_limit=9)
    else:
        with pytest.raises(BadRequest, match=r"pids_limit of a pod: io\.containerd\.kata\.v2 runs its containers"):
            settled(limited, config)
    assert settled(replace(limited, pod=Pod()), config).pod == Pod()


def test_auto_is_systemd_where_systemd_is_init(tmp_path: Path) -> None:
    mark = tmp_path / "system"
    assert not uses_systemd(CgroupDriver.AUTO, str(mark))
    mark.symlink_to(tmp_path)
    assert not uses_systemd(CgroupDriver.AUTO, str(mark))
    mark.unlink()
    mark.mkdir()
    assert uses_systemd(CgroupDriver.AUTO, str(mark))
    assert not uses_systemd(CgroupDriver.CGROUPFS, str(mark))
