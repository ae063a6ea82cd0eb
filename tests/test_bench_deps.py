"""What `make bench` and `make vm` want beyond what everything else needs."""

import pathlib

from tests.test_packaging import INSTALL, Host


def test_the_engines_that_are_measured_are_wanted_for_the_bench_alone_and_not_needed(
    tmp_path: pathlib.Path,
) -> None:
    host = Host(tmp_path)
    host.apt()
    assert host.deps().returncode == 0
    done = host.deps("--bench")
    assert (done.returncode, host.apt_calls()) == (
        0,
        [f"{INSTALL} conmon podman"],
    )
    host.apt("exit 100")
    done = host.deps("--bench")
    assert (done.returncode, "apt-get could not install: conmon podman" in done.stderr) == (0, True)
    host.lacks("runc")
    assert host.deps("--bench").returncode == 2


def test_what_the_machine_needs_is_installed_for_the_machine_alone(tmp_path: pathlib.Path) -> None:
    host = Host(tmp_path)
    host.apt()
    host.lacks("containerd", "skopeo")
    assert host.deps("--vm").returncode == 0
    assert host.apt_calls() == [f"{INSTALL} mmdebstrap qemu-system-x86 e2fsprogs"]
    host.apt("exit 100")
    assert host.deps("--vm").returncode == 2
