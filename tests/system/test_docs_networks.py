"""docs/networks.md: its file is a network, each of its commands works, and its complaints are the product's."""

import inspect
import json
import pathlib
import re
import subprocess

from supervisor.cli.refused import OPTIONS
from supervisor.engine import networkchoice, networkservice
from supervisor.network import files, plugins
from tests.system import networks, pages
from tests.system.exitctl import Cli
from tests.system.networks import NOTHING
from tests.system.pages import Session
from tests.system.waits import until

PAGE = (pages.DOCS / "networks.md").read_text()
BLOCK = re.compile(r"^```\n(.*?)^```$", re.MULTILINE | re.DOTALL)
JSON = re.compile(r"^```json\n(.*?)^```$", re.MULTILINE | re.DOTALL)
HOST_LOCAL = '"type": "host-local",'
ROW = re.compile(r"^\| `([^`]+)`", re.MULTILINE)


def commands() -> list[str]:
    typed = "".join(BLOCK.findall(JSON.sub("", PAGE)))
    return [line for line in typed.splitlines() if line.startswith("exitctl ")]


def test_the_commands_of_the_page_work_in_a_network_of_its_file(tmp_path: pathlib.Path) -> None:
    (document,) = (json.loads(text) for text in JSON.findall(PAGE))
    with networks.net() as net:
        # Only where the leases are is another place: the page's is this machine's.
        document["plugins"][0]["ipam"]["dataDir"] = str(net.base / "leases")
        (net.configurations / "10-pods.conflist").write_text(json.dumps(document))
        net.write_second()
        with networks.daemon(net) as daemon:
            session, printed = Session(Cli(daemon), tmp_path), {}
            for command in commands():
                done = subprocess.run(
                    ["bash", "-c", command],
                    env=session.environment,
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    text=True,
                    timeout=120,
                )
                assert done.returncode in ((0, 1) if "doctor" in command else (0,)), (command, done)
                printed[command] = done.stdout
            assert next(text for command, text in printed.items() if "IPAddress" in command)[:6] == "10.88."
            assert printed["exitctl port api"] == "80/tcp -> 0.0.0.0:8080\n53/udp -> 127.0.0.1:5353\n"
            assert printed["exitctl run --rm --network none --rootfs / ls /sys/class/net"] == "lo\n"
            assert " pods, second, configured in " in printed["exitctl doctor"]
            until(lambda: net.left(daemon) == NOTHING, f"left behind: {net.left(daemon)}")


def test_the_quick_start_leads_to_a_pod_with_a_published_port_and_says_how_it_ended(tmp_path: pathlib.Path) -> None:
    """By its own network, of which only the places are others."""
    page = (pages.DOCS / "quickstart.md").read_text()
    shown = "\n".join(pages.section(page, title) for title in pages.OF_NETWORK)
    with networks.net() as net:
        (net.configurations / "10-pods.conflist").unlink()
        shown = shown.replace(f"{HOST_LOCAL}\n", f'{HOST_LOCAL}\n        "dataDir": "{net.base}/leases",\n')
        shown = shown.replace("/etc/cni/net.d", str(net.configurations))
        with networks.daemon(net) as daemon:
            shell = ("nsenter", f"--net={net.path}", "bash", "-c")
            Session(Cli(daemon), tmp_path, shell=shell).play(shown)
            assert str(net.base) in (net.configurations / "10-pods.conflist").read_text()
            until(lambda: net.left(daemon) == NOTHING, f"left behind: {net.left(daemon)}")


def test_the_network_of_the_quick_start_is_that_of_the_page() -> None:
    (shown,) = JSON.findall(PAGE)
    assert f"<<'END'\n{shown}END\n" in (pages.DOCS / "quickstart.md").read_text()


def test_the_complaints_on_the_page_are_in_the_code() -> None:
    """Word for word but for what is of the place: names, addresses, directories."""
    code = " ".join(
        re.sub(r'"\s*f?"', "", inspect.getsource(each)) for each in (networkchoice, networkservice, plugins, files)
    )
    shown = [words for words in ROW.findall(PAGE.partition("## Troubleshooting")[2]) if " " in words]
    assert len(shown) > 6
    for words in shown:
        wanted = max(re.split(r"[:/.\d]+|\bpods\b|\bbridge\b", words), key=len).strip()
        assert wanted in code, (words, wanted)


def test_what_is_refused_leads_to_the_page() -> None:
    assert "docs/networks.md" in OPTIONS["--network-alias"]
