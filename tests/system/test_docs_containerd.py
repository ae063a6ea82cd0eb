"""docs/containerd.md: its commands are typed under a real containerd, and what it says of doctor is what there is."""

import pathlib
import re
import tomllib

import pytest

from supervisor.cli import containerd as doctor
from tests.system import pages
from tests.system.containerd import server
from tests.system.exitctl import Cli
from tests.system.pages import Session

PAGE = (pages.DOCS / "containerd.md").read_text()
IMAGE = "docker.io/library/busybox:latest"
IDS = ("once", "web")


def test_the_commands_of_the_page_print_what_it_says(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server.Containerd, "namespace", "default")  # as ctr has it without being told
    with server.running() as containerd:
        containerd.wanted("images", "tag", server.IMAGE, IMAGE)
        containerd.keys.update(IDS)
        environment = {"CONTAINERD_ADDRESS": containerd.address, "CONTAINERD_NAMESPACE": containerd.namespace}
        Session(Cli(containerd.with_exitd(), environment), tmp_path).play(PAGE)
        containerd.left_is()


def test_the_page_explains_and_shows_every_line_of_doctor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONTAINERD_ADDRESS", "/none")
    there = [what for what, _ in doctor.chain("/run/exitd")]
    table = PAGE.split("| line | what it looks at |")[1].split("\n\n")[0]
    assert re.findall(r"^\| `([^`]+)` \|", table, re.MULTILINE) == there
    assert re.findall(r"^ok     (.{16})  ", PAGE, re.MULTILINE) == [what.ljust(16) for what in there]


def test_the_lines_for_an_existing_section_are_those_of_the_file() -> None:
    (shown,) = re.findall(r"^ *```toml\n(.*?)^ *```$", PAGE, re.MULTILINE | re.DOTALL)
    file = pages.DOCS.parent / "systemd/containerd/exitd-1.toml"
    assert list(doctor.handlers(tomllib.loads(shown))) == list(doctor.handlers(tomllib.loads(file.read_text())))
