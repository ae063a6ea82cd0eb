"""What is installed for containerd's side: CRI's configuration, Kubernetes' RuntimeClass, the order of the units."""

import configparser
import pathlib
import shutil
import tomllib

import pytest
import yaml

from supervisor.cli.containerd import SHARE, handlers
from tests.systemdunits import verified

ROOT = pathlib.Path(__file__).resolve().parent.parent
UNITS = ROOT / "systemd"
PLUGINS = {"exitd-1.toml": (2, "io.containerd.grpc.v1.cri"), "exitd-2.toml": (3, "io.containerd.cri.v1.runtime")}


def drop_in() -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None, strict=True)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string((UNITS / "containerd.service.d/exitd.conf").read_text())
    return parser


@pytest.mark.parametrize(("name", "form"), PLUGINS.items())
def test_the_configuration_names_the_runtime_in_the_form_of_its_version(name: str, form: tuple[int, str]) -> None:
    config = tomllib.loads((UNITS / "containerd" / name).read_text())
    assert (config["version"], list(config["plugins"])) == (form[0], [form[1]])
    assert list(handlers(config)) == ["exitd"]


def test_the_runtime_class_names_the_handler() -> None:
    (found,) = yaml.safe_load_all((UNITS / "containerd/runtimeclass.yaml").read_text())
    assert (found["apiVersion"], found["kind"]) == ("node.k8s.io/v1", "RuntimeClass")
    assert (found["metadata"]["name"], found["handler"]) == ("exitd", "exitd")


def test_containerd_starts_after_exitd_and_neither_needs_nor_begins_it() -> None:
    assert dict(drop_in()["Unit"]) == {"After": "exitd.service"}


def test_the_relays_inherit_the_state_directory_of_the_daemons_unit() -> None:
    assert dict(drop_in()["Service"]) == {"Environment": "EXITD_STATE=/run/exitd"}
    assert "--state /run/exitd " in (UNITS / "exitd.service").read_text()


def test_all_of_it_is_installed() -> None:
    files = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["data-files"]
    installed = {
        f"{place}/{path.name}" for place, globs in files.items() for pattern in globs for path in ROOT.glob(pattern)
    }
    wanted = {f"{SHARE}/{name}" for name in (*PLUGINS, "runtimeclass.yaml")}
    wanted.add("share/exitd/systemd/containerd.service.d/exitd.conf")
    assert installed >= wanted
    of_units = {name.rpartition("/")[2] for name in installed if not name.startswith("share/exitd/monitoring/")}
    assert {path.name for path in UNITS.rglob("*") if path.is_file()} == of_units


if shutil.which("systemd-analyze"):

    def test_systemd_accepts_the_drop_in(tmp_path: pathlib.Path) -> None:
        (tmp_path / "containerd.service").write_text("[Service]\nType=notify\nExecStart=/bin/true\n")
        (tmp_path / "exitd.service").write_text("[Service]\nExecStart=/bin/true\n")
        shutil.copytree(UNITS / "containerd.service.d", tmp_path / "containerd.service.d")
        assert verified(tmp_path, [tmp_path / "containerd.service"]) == (0, [])
