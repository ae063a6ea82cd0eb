"""docs/quickstart.md as a newcomer types it after the installation: a network, a pod with a published port, its end,
and why. Word for word, but for the lines that install, and an image of a registry: the machine has no network to fetch
by. tests/system/test_docs_pages.py and test_docs_networks.py type the same page in every run of the tests."""

import re
import shlex

from tests.system import pages
from tests.system.pages import Line, plain
from tests.vm.machine import Machine

PAGE = (pages.DOCS / "quickstart.md").read_text()
FETCHES = "docker://"
HOME = "/root/quickstart"


def typed(machine: Machine, line: Line) -> str:
    """What both outputs have on a terminal, in the directory of the person who types."""
    script = f"cd {HOME}; exec 2>&1\n{'set -e' if line.is_pasted else ''}\n{line.command}"
    done = machine.run("bash", "-c", script)
    assert done.status == 0 or not line.is_pasted, (line.command, done)
    return done.out


def check_the_page_leads_to_a_pod_with_a_published_port_and_its_end_is_explained(machine_quick: Machine) -> None:
    machine_quick.say("mkdir", "-p", HOME)
    for name, text in pages.files(PAGE).items():
        machine_quick.say("sh", "-c", f"printf %s {shlex.quote(text)} >{HOME}/{name}")
    lines = [line for line in pages.lines(PAGE) if FETCHES not in line.command]
    assert [line for line in lines if "exitctl why site-web" in line.command]
    for line in lines:
        printed = typed(machine_quick, line)
        if line.is_shown:
            assert plain(printed) == plain(line.prints), f"{line.command}\n{printed}"
    assert machine_quick.say("exitctl", "ps", "-aq") == ""


def check_what_the_page_installs_is_there(machine_quick: Machine) -> None:
    (line,) = re.findall(r"^apt-get install -y \./build/deb/exitd_\*\.deb (.*)$", PAGE, re.MULTILINE)
    shown = machine_quick.say("dpkg-query", "--show", "--showformat=${db:Status-Abbrev}\n", "exitd", *line.split())
    assert {each.strip() for each in shown.splitlines()} == {"ii"}
    assert "FAIL" not in machine_quick.say("exitctl", "doctor")
