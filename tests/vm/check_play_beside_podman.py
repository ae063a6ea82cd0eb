"""Each of the manifests in tests/system/manifests is played by exitd and by Debian's podman, and the same is asked of
both (tests/vm/beside.py). What exitd does has to hold, and what it refuses (tests/vm/behind.py) has to be refused; what
podman does is only written down, in docs/play-beside-podman.md, if the machine is the one that is made without a
choice."""

import json
import pathlib
import shlex
import sys

import pytest

from tests.system import standins
from tests.vm import behind, beside, image
from tests.vm.beside import EXITD, PODMAN, Fact, Outcome, Table, Tool
from tests.vm.machine import Machine

PAGE = image.TREE / "docs/play-beside-podman.md"
OF_PAGE = "trixie"
CHARTS = pathlib.Path("/", image.CHARTS_IN)
WORK = "/run/beside"  # what differs by a run: the manifest with its place, and what the play said
SECONDS = 20.0  # of the machine's clock, for each command; what takes longer is taken to have no end


VERSIONS: list[str] = []


@pytest.fixture
def ready(machine_beside: Machine) -> Machine:
    """Both have the images, and the versions are known."""
    if not VERSIONS:
        for tool in (EXITD, PODMAN):
            machine_beside.say("env", *_words(tool), "sh", "-c", tool.load)
        asked = "uname -r; podman --version; crun --version | head -n 1; runc --version | head -n 1"
        linux, *programs = machine_beside.say("sh", "-c", asked).splitlines()
        VERSIONS.append(f"Debian {image.SUITE}, Linux {linux}, {', '.join(programs)}, exitd of this tree.")
    return machine_beside


def _words(tool: Tool) -> list[str]:
    return [f"{name}={value}" for name, value in (tool.words | {"CHARTS": str(CHARTS)}).items()]


def played(
    machine: Machine, tool: Tool, name: str, text: str, facts: tuple[Fact, ...], play: str = "$PLAY $FILE"
) -> Outcome:
    """What comes of a manifest of this text."""
    shared = f"{WORK}/{tool.name}/{name}"
    environment = tool.words | {
        "CHARTS": str(CHARTS), "SHARED": shared, "FILE": f"{shared}/{name}.yaml", "PLAYED": f"{shared}/played",
    }  # fmt: skip
    placed = f"mkdir -p {shared} && printf %s {shlex.quote(text.replace('@SHARED@', shared))} >$0"
    machine.say("sh", "-c", placed, environment["FILE"])
    asked = [{"script": one.script, "wanted": one.wanted, "seconds": one.seconds} for one in facts]
    order = {"environment": environment, "play": play, "clear": tool.clear, "facts": asked, "limit": SECONDS}
    (answer,) = machine.python("beside.py", json.dumps(order))
    print(f"  {tool.name} {name}:", json.dumps(answer, indent=1), file=sys.stderr)
    assert answer["left"] == "", f"{tool.name} leaves something of {name} that would be found by the next one"
    looked = answer["facts"]
    assert isinstance(looked, list) and isinstance(answer["status"], int)
    return Outcome(answer["status"], str(answer["said"]), tuple((one["held"], one["said"]) for one in looked))


def written(table: Table, name: str, tool: Tool, cell: str) -> None:
    if image.SUITE == OF_PAGE:
        PAGE.write_text(beside.with_row(PAGE.read_text(), table, VERSIONS[0], name, tool, cell))


@pytest.mark.parametrize("name", beside.FACTS)
@pytest.mark.parametrize("tool", (PODMAN, EXITD), ids=lambda tool: tool.name)
def check_played(ready: Machine, tool: Tool, name: str) -> None:
    facts, text = beside.FACTS[name], (standins.MANIFESTS / f"{name}.yaml").read_text()
    cell = beside.cell(facts, played(ready, tool, name, text, facts))
    written(beside.TABLE, name, tool, cell)
    assert tool is not EXITD or cell == beside.ALL


@pytest.mark.parametrize("name", behind.WISHES)
@pytest.mark.parametrize("tool", (PODMAN, EXITD), ids=lambda tool: tool.name)
def check_what_exitd_refuses(ready: Machine, tool: Tool, name: str) -> None:
    wish = behind.WISHES[name]
    cell = beside.cell((wish.fact,), played(ready, tool, name, wish.text, (wish.fact,), wish.play))
    written(behind.TABLE, name, tool, cell)
    assert tool is not EXITD or (cell.startswith("refused") and wish.refusal in cell)
