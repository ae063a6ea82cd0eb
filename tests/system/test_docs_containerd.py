"""docs/containerd.md: its commands are typed under a real containerd, and what it says of doctor is what there is."""

import pathlib
import re
import tomllib

import pytest

from supervisor.cli import containerd as doctor
from tests.system import containerdrig, pagerig
from tests.system.clirig import Cli
from tests.system.pagerig import Session

PAGE = (pagerig.DOCS / "containerd.md").read_text()
IMAGE = "docker.io/library/busybox:latest"
IDS = ("once", "web")


def test_the_commands_of_the_page_print_what_it_says(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(containerdrig.Containerd, "namespace", "default")  # as ctr has it without being told
    with containerdrig.containerd() as rig:
        rig.wanted("images", "tag", containerdrig.IMAGE, IMAGE)
        rig.keys.update(IDS)
        environment = {"CONTAINERD_ADDRESS": rig.address, "CONTAINERD_NAMESPACE": rig.namespace}
        Session(Cli(rig.with_exitd(), environment), tmp_path).play(PAGE)
        rig.left_is()


def test_the_page_explains_and_shows_every_line_of_doctor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONTAINERD_ADDRESS", "/none")
    there = [what for what, _ in doctor.chain("/run/exitd")]
    table = PAGE.split("| line | what it looks at |")[1].split("\n\n")[0]
    assert re.findall(r"^\| `([^`]+)` \|", table, re.MULTILINE) == there
    assert re.findall(r"^ok     (.{16})  ", PAGE, re.MULTILINE) == [what.ljust(16) for what in there]


def test_the_lines_for_an_existing_section_are_those_of_the_file() -> None:
    (shown,) = re.findall(r"^ *```toml\n(.*?)^ *```$", PAGE, re.MULTILINE | re.DOTALL)
    file = pagerig.DOCS.parent / "systemd/containerd/exitd-1.toml"
    assert list(doctor.handlers(tomllib.loads(shown))) == list(doctor.handlers(tomllib.loads(file.read_text())))
