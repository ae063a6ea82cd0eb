"""Names in the files of other engines: real files, some of which no engine has made."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from supervisor.external import enginenames
from supervisor.external.enginenames import EngineNames
from supervisor.model import whose
from supervisor.model.values import NO_NAMES, Names

ID = "a1" * 32
OTHER = 4711  # a user


class Podman:
    """Its storage, with one container."""

    def __init__(self, base: Path) -> None:
        self.bundle = base / "overlay-containers" / ID / "userdata"
        self.storage = base / "overlay-containers" / "containers.json"
        self.bundle.mkdir(parents=True)
        config = {"annotations": {"io.container.manager": "libpod"}}
        (self.bundle / "config.json").write_text(json.dumps(config))
        self.call("web")

    def call(self, name: str) -> None:
        new = self.storage.with_name("new")
        new.write_text(json.dumps([{"id": ID, "names": [name], "metadata": '{"image-name": "img"}'}]))
        new.rename(self.storage)

    def names(self, names: EngineNames, writer: int = whose.ROOT) -> Names:
        return names.of_bundle(str(self.bundle), ID, writer)


def test_podmans_containers_are_read_again_when_they_have_changed(tmp_path: Path) -> None:
    podman, names = Podman(tmp_path), EngineNames()
    assert podman.names(names) == Names("podman", "", "web", "img")
    podman.call("other-web")
    assert podman.names(names) == Names("podman", "", "other-web", "img")
    podman.storage.unlink()
    assert podman.names(names) == NO_NAMES


def test_docker_has_a_file_for_each_container_below_its_data_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "containers" / ID
    directory.mkdir(parents=True)
    (directory / "config.v2.json").write_text('{"Name": "/web", "Config": {"Image": "img"}}')
    bundle = tmp_path / "b"
    bundle.mkdir()
    mounts = [{"destination": "/etc/hostname", "source": f"{directory}/hostname"}]
    (bundle / "config.json").write_text(json.dumps({"mounts": mounts}))
    names = EngineNames()
    assert names.of_bundle(str(bundle), ID, whose.ROOT) == Names("docker", "", "web", "img")
    monkeypatch.setattr(enginenames, "DOCKER_ROOT", str(tmp_path / "containers"))
    assert names.of_docker(ID) == Names("docker", "", "web", "img")
    assert names.of_docker("b2" * 32) == names.of_docker("../x") == NO_NAMES


def test_a_user_leads_only_to_files_of_that_user_or_roots_and_anybody_to_none(tmp_path: Path) -> None:
    podman, names = Podman(tmp_path), EngineNames()
    assert podman.names(names, OTHER).container == "web"
    assert podman.names(names, whose.ANY_USER) == NO_NAMES
    os.chown(podman.bundle / "config.json", OTHER, -1)
    assert podman.names(names) == NO_NAMES
    assert podman.names(names, OTHER).container == "web"
    assert podman.names(names, OTHER + 1) == NO_NAMES


def test_of_what_a_user_can_write_little_is_parsed(tmp_path: Path) -> None:
    podman, names = Podman(tmp_path), EngineNames()
    with podman.storage.open("a") as file:
        file.write(" " * enginenames.MOST_USERS_BYTES)
    assert podman.names(names, OTHER) == NO_NAMES
    assert podman.names(names).container == "web"


def large(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(enginenames.MOST_STORAGE_BYTES + 1)


def kmsg(path: Path) -> None:
    path.symlink_to("/proc/kmsg")


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, large, kmsg])
@pytest.mark.parametrize("which", ["config", "storage"])
def test_what_is_no_small_regular_file_is_not_read(tmp_path: Path, make: Callable[[Path], None], which: str) -> None:
    podman, names = Podman(tmp_path), EngineNames()
    path = podman.storage if which == "storage" else podman.bundle / "config.json"
    path.unlink()
    make(path)
    assert podman.names(names) == NO_NAMES
