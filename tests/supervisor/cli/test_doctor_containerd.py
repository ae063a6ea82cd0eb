"""supervisor/cli/containerd.py: what stands between containerd and exitd, each with the next step."""

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from supervisor import __version__
from supervisor.cli import containerd
from supervisor.cli.containerd import RELAY, ContainerdSetup
from supervisor.monitor.probe import Capability
from tests.supervisor.cli.conftest import Exitctl

LISTENS = """
import socket, sys
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen()
print("up", flush=True)
sys.stdin.read()
"""
NAMED = """
version = 2
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.exitd]
runtime_type = "io.containerd.exitd.v2"
"""


@contextlib.contextmanager
def listening(directory: Path, *words: str, **environ: str) -> Iterator[int]:
    """A process that listens on `directory`/sock, started with these words and variables."""
    (directory / "listens.py").write_text(LISTENS)
    command = [sys.executable, str(directory / "listens.py"), str(directory / "sock"), *words]
    with subprocess.Popen(command, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        yield process.pid
        process.stdin.close()
        process.wait(10)


def program(path: Path, script: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def prints_config(tmp_path: Path, text: str) -> ContainerdSetup:
    """A containerd whose configuration is this."""
    (tmp_path / "dump").write_text(text)
    return ContainerdSetup(program(tmp_path / "containerd", f"exec cat {tmp_path}/dump"))


# -- is there one


def test_a_machine_without_containerd_has_one_quiet_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONTAINERD_ADDRESS", f"{tmp_path}/none")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert list(containerd.chain("/run/exitd")) == [
        ("containerd", Capability(True, "not on this machine; exitd works without it"))
    ]


def test_one_that_does_not_run_is_reported_with_what_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONTAINERD_ADDRESS", f"{tmp_path}/none")
    monkeypatch.setenv("PATH", os.path.dirname(prints_config(tmp_path, NAMED).program) + ":/usr/bin:/bin")
    found = dict(containerd.chain(str(tmp_path)))
    assert list(found) == [
        *("containerd", "relay", "relay to exitd", "mount namespace", "relay sockets", "CRI handler"),
    ]
    assert not found["containerd"].works and f"{tmp_path}/none: No such file" in found["containerd"].detail
    assert all(result.works or result.cure for result in found.values())


def test_nothing_of_it_is_fatal(exitctl: Exitctl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONTAINERD_ADDRESS", f"{tmp_path}/none")
    lines = exitctl("doctor").out.splitlines()
    mine = [line for line in lines if line.split()[1] in ("containerd", "relay", "CRI")]
    assert mine and not any(line.startswith("FAIL") for line in mine)


# -- the one that runs


def test_the_one_that_listens_is_seen_as_it_was_started(tmp_path: Path) -> None:
    with listening(tmp_path, "--config", "/c.toml", PATH="/a:/b", EXITD_STATE="/s") as pid:
        assert containerd.listener(f"{tmp_path}/sock") == (pid, "")
        found = containerd.looked_at(pid, {"PATH": "/ours", "EXITD_STATE": "/ours"})
        python = os.readlink(f"/proc/{pid}/exe")
    assert found == ContainerdSetup(python, pid, "/c.toml", f"/a:/b:{os.path.dirname(python)}", "/s")


def test_what_cannot_be_read_of_it_is_taken_from_this_shell() -> None:
    found = containerd.looked_at(0, {"PATH": "/ours", "EXITD_STATE": "relative"})
    assert (found.pid, found.path, found.state) == (0, "/ours", "/run/exitd")


@pytest.mark.parametrize(
    ("words", "file"),
    [
        (["containerd"], ""),
        (["containerd", "-c", "/x"], "/x"),
        (["containerd", "-l", "debug", "--config=/y", "-c"], "/y"),
        (["containerd", "-c"], ""),
    ],
)
def test_its_configuration_file_is_the_one_that_its_command_line_names(words: list[str], file: str) -> None:
    assert containerd.config_of(words) == file


# -- the relay


def test_the_relay_on_containerds_path_is_of_our_version(tmp_path: Path) -> None:
    where = program(tmp_path / RELAY, f"printf '{RELAY}:\\n  Version:  {__version__}\\n'")
    assert containerd.relay(f"/none:{tmp_path}") == Capability(True, f"{where}, version {__version__}")


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("printf 'x:\\n  Version:  0.0.7\\n'", "is of version 0.0.7, exitd is"),
        ("echo hello", "is of version unknown"),
        ("echo Version:", "is of version unknown"),
        ("exit 3", "returned non-zero exit status 3"),
    ],
)
def test_another_relay_is_reported_with_its_version(tmp_path: Path, script: str, says: str) -> None:
    program(tmp_path / RELAY, script)
    found = containerd.relay(str(tmp_path))
    assert not found.works and says in found.detail and found.cure


def test_without_a_relay_on_its_path_the_cure_is_a_link(tmp_path: Path) -> None:
    found = containerd.relay(f"{tmp_path}:")
    assert not found.works and f"({tmp_path})" in found.detail
    assert found.cure.startswith("ln -s /") and found.cure.endswith(f"/{RELAY} /usr/local/bin/")


# -- from the relay to exitd


def test_relays_that_look_elsewhere_are_reported(tmp_path: Path) -> None:
    found = containerd.answer("/run/exitd", str(tmp_path))
    assert not found.works and "EXITD_STATE=/run/exitd" in found.cure and f"--state {tmp_path}" in found.cure


def test_where_no_exitd_listens_it_is_to_be_started(tmp_path: Path) -> None:
    found = containerd.answer(str(tmp_path), str(tmp_path))
    assert not found.works and "No such file" in found.detail and "systemctl start exitd" in found.cure


def test_an_exitd_that_does_not_answer_has_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(containerd, "SECONDS", 0.05)
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(f"{tmp_path}/shimv2.sock")
        silent.listen()
        found = containerd.answer(str(tmp_path), str(tmp_path))
    assert not found.works and "no answer within" in found.detail


def test_a_directory_for_the_relays_sockets_is_there_or_can_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert containerd.sockets(str(tmp_path)).works
    assert containerd.sockets(f"{tmp_path}/not/yet").works
    assert not (tmp_path / "not").exists()
    assert str(tmp_path / "file") in containerd.sockets(str(tmp_path / "file")).cure


# -- the configuration


@pytest.mark.parametrize("plugin", sorted(containerd.CRI))
def test_a_handler_is_found_in_either_form_of_the_configuration(tmp_path: Path, plugin: str) -> None:
    config = NAMED.replace("io.containerd.grpc.v1.cri", plugin).replace("runtimes.exitd]", "runtimes.fast]")
    found = containerd.handler(prints_config(tmp_path, config))
    assert found.works and found.detail.startswith("fast, in /etc/containerd/config.toml")


def test_the_configuration_that_containerd_was_told_is_looked_at(tmp_path: Path) -> None:
    (tmp_path / "dump").write_text(NAMED)
    script = f'[ "$*" = "-c /my.toml config dump" ] && exec cat {tmp_path}/dump'
    found = containerd.handler(ContainerdSetup(program(tmp_path / "containerd", script), config="/my.toml"))
    assert found.works and "/my.toml" in found.detail


@pytest.mark.parametrize("text", ["", "version = 2\nplugins = 7\n", NAMED.replace("exitd.v2", "runc.v2")])
def test_without_a_handler_the_cure_names_the_file(tmp_path: Path, text: str) -> None:
    found = containerd.handler(replace(prints_config(tmp_path, text), config=f"{tmp_path}/none"))
    assert not found.works and "share/exitd/containerd/exitd-1.toml (" in found.cure and "exitd-2.toml" in found.cure


@pytest.mark.parametrize(("version", "file"), [(2, "exitd-1.toml"), (3, "exitd-2.toml")])
def test_the_file_to_import_is_the_one_of_the_configurations_own_version(
    tmp_path: Path, version: int, file: str
) -> None:
    """containerd 2 reads version 2 as well, and Debian's has it."""
    (own := tmp_path / "config.toml").write_text(f"version = {version}\n")
    found = containerd.handler(replace(prints_config(tmp_path, "version = 3\n"), config=str(own)))
    assert not found.works and f"share/exitd/containerd/{file};" in found.cure


def configured(tmp_path: Path, own: str, imported: str) -> ContainerdSetup:
    """A containerd with a configuration, and a file that this imports."""
    (tmp_path / "config.toml").write_text(own)
    (tmp_path / "exitd.toml").write_text(imported)
    dumped = f'version = 3\nimports = ["{tmp_path}/config.toml", "{tmp_path}/exitd.toml"]\n'
    script = f"exec cat {tmp_path}/dump"
    (tmp_path / "dump").write_text(dumped + NAMED.replace("version = 2", "").replace("grpc.v1.cri", "cri.v1.runtime"))
    return ContainerdSetup(program(tmp_path / "containerd", script), config=f"{tmp_path}/config.toml")


def test_settings_that_an_import_of_a_newer_form_puts_out_of_force_are_reported(tmp_path: Path) -> None:
    found = containerd.handler(configured(tmp_path, "version = 2\n", "version = 3\n"))
    assert not found.works and f"{tmp_path}/exitd.toml of version 3" in found.detail
    assert "exitd-1.toml in its place" in found.cure


def test_and_so_is_an_import_of_an_older_form(tmp_path: Path) -> None:
    found = containerd.handler(configured(tmp_path, "version = 3\n", "version = 2\n"))
    assert not found.works and "exitd-2.toml in its place" in found.cure


@pytest.mark.parametrize(
    ("own", "imported"), [("version = 2", "version = 2"), ("version = 3", "version = 3"), ("version = 2", ""), ("", "")]
)
def test_files_of_one_form_are_well(tmp_path: Path, own: str, imported: str) -> None:
    assert containerd.handler(configured(tmp_path, own, imported)).works


@pytest.mark.parametrize("imported", ["= no toml", "version = 'three'"])
def test_a_file_whose_version_cannot_be_read_is_containerds_to_complain_of(tmp_path: Path, imported: str) -> None:
    assert containerd.handler(configured(tmp_path, "version = 2", imported)).works


# -- the mounts


def test_processes_of_one_mount_namespace_see_the_same(tmp_path: Path) -> None:
    assert containerd.mounts(os.getpid(), os.getppid()).works
    assert containerd.mounts(0, os.getpid()).works and containerd.mounts(os.getpid(), 0).works


def test_those_of_two_are_reported_with_the_cure(tmp_path: Path) -> None:
    for pid in (1, 2):
        (tmp_path / str(pid) / "ns").mkdir(parents=True)
        (tmp_path / str(pid) / "ns" / "mnt").touch()
    found = containerd.mounts(1, 2, str(tmp_path))
    assert not found.works and "containerd, process 1, and exitd, process 2" in found.detail
    assert "PrivateMounts" in found.cure


def test_where_they_cannot_be_looked_at_it_is_said(tmp_path: Path) -> None:
    found = containerd.mounts(1, 2, str(tmp_path))
    assert not found.works and f"{tmp_path}/1/ns/mnt" in found.detail and "as root" in found.cure


def test_where_cri_is_disabled_no_handler_is_needed(tmp_path: Path) -> None:
    found = containerd.handler(prints_config(tmp_path, 'disabled_plugins = ["cri"]\n'))
    assert found.works and "disabled" in found.detail


@pytest.mark.parametrize("script", ["exit 1", "echo = no toml"])
def test_a_configuration_that_cannot_be_read_is_reported(tmp_path: Path, script: str) -> None:
    found = containerd.handler(ContainerdSetup(program(tmp_path / "containerd", script)))
    assert not found.works and "cannot be read" in found.detail and "config dump" in found.cure
