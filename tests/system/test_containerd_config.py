"""systemd/containerd: the real containerd takes the configuration, and `exitctl doctor` finds the whole chain sound."""

import contextlib
import pathlib
import shutil
import subprocess
import tempfile
import tomllib
from collections.abc import Iterator

import pytest

from supervisor.cli import containerd as doctor
from tests.system.containerd.server import Containerd
from tests.system.exitctl import Cli

DROP_IN = pathlib.Path(__file__).parents[2] / "systemd/containerd/exitd-1.toml"
CRI = "io.containerd.grpc.v1.cri"


class Imported(Containerd):
    """Its CRI section is the one that is imported."""

    def _config(self) -> str:
        own = super()._config().partition(f'[plugins."{CRI}"]')[0]
        return f'imports = ["{self.base}/conf.d/*.toml"]\n{own}'


@pytest.fixture
def imported(monkeypatch: pytest.MonkeyPatch) -> Iterator[Imported]:
    made = Imported(pathlib.Path(tempfile.mkdtemp(prefix="exitd-")), cri=True)
    (made.base / "conf.d").mkdir()
    shutil.copy(DROP_IN, made.base / "conf.d")
    monkeypatch.setenv("CONTAINERD_ADDRESS", made.address)
    with contextlib.ExitStack() as steps:
        steps.callback(shutil.rmtree, made.base)
        steps.callback(made.end)
        made.start()
        yield made


def dumped(directory: pathlib.Path, rest: str) -> dict[str, object]:
    """What containerd makes of a configuration that imports the file, as to CRI."""
    (directory / "config.toml").write_text(f'version = 2\nimports = ["{DROP_IN}"]\n{rest}')
    done = subprocess.run(
        ["containerd", "-c", f"{directory}/config.toml", "config", "dump"], capture_output=True, timeout=30, check=True
    )
    found: dict[str, object] = tomllib.loads(done.stdout.decode())["plugins"][CRI]
    return found


def test_what_is_imported_adds_the_handler_beside_the_default_one(tmp_path: pathlib.Path) -> None:
    found = dumped(tmp_path, "")["containerd"]
    assert isinstance(found, dict)
    types = {name: runtime["runtime_type"] for name, runtime in found["runtimes"].items()}
    assert types == {"exitd": doctor.RUNTIME, "runc": "io.containerd.runc.v2"}
    assert found["default_runtime_name"] == "runc"


def test_it_takes_the_place_of_another_cri_section_as_its_comment_says(tmp_path: pathlib.Path) -> None:
    """Should this fail, containerd merges, and the comment can go."""
    assert dumped(tmp_path, f'[plugins."{CRI}"]\nsandbox_image = "mine:1"\n')["sandbox_image"] != "mine:1"
    assert "take the whole CRI section from the last file that has one" in DROP_IN.read_text()


def test_doctor_finds_the_chain_sound_from_containerd_to_exitd(imported: Imported) -> None:
    daemon = imported.with_exitd()
    lines = Cli(daemon, {"CONTAINERD_ADDRESS": imported.address})("doctor").out.splitlines()
    assert [line for line in lines if line.startswith("warn") and "containerd" in line] == []
    found = dict(doctor.chain(str(daemon.state)))
    assert [what for what, result in found.items() if not result.works] == []
    assert f"process {imported.pid}," in found["containerd"].detail
    assert found["CRI handler"].detail.startswith("exitd, in ")
    plugins = imported.wanted("plugins", "ls").splitlines()
    assert [line.split()[-1] for line in plugins if line.split()[:2] == ["io.containerd.grpc.v1", "cri"]] == ["ok"]


def test_doctor_says_so_when_exitd_is_away(imported: Imported) -> None:
    daemon = imported.with_exitd()
    daemon.kill()
    found = dict(doctor.chain(str(daemon.state)))
    assert [what for what, result in found.items() if not result.works] == ["relay to exitd"]
    assert "systemctl start exitd" in found["relay to exitd"].cure
