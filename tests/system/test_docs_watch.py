"""docs/watch.md: every command that stands behind a `$` is typed, and prints what the page says.

The page's process, directory and socket are real ones here, of other names.
"""

import json
import pathlib
import threading

from protos.exitd.v1 import exitd_pb2 as pb
from tests.system import pages
from tests.system.containerd.server import RUNC, Containerd, running
from tests.system.daemons import Daemon, daemon
from tests.system.exitctl import Cli
from tests.system.pages import Session
from tests.system.processes import commands
from tests.system.waits import LIMIT_SECONDS, until
from tests.system.watched import Engine, Stranger, alone_with, engine, stranger

PAGE = (pages.DOCS / "watch.md").read_text()


def real(process: Stranger, root: pathlib.Path, containerd: Containerd) -> str:
    names = {"4711": str(process.pid), "/run/runc": str(root), "/run/containerd/containerd.sock": containerd.address}
    page = PAGE.replace("/run/containerd/runc", "elsewhere")
    for shown, name in names.items():
        page = page.replace(shown, name)
    return page


REST = "## One process"


def end_once_watched(up: Daemon, process: Stranger) -> None:
    with up.client() as client:
        until(lambda: [watch.target for watch in client.watches()] == [str(process.pid)], "it is not watched")
    process.go()


def test_the_commands_of_the_page_print_what_it_says(tmp_path: pathlib.Path) -> None:
    with daemon() as up, stranger("exit 7") as process, engine("runc", tmp_path / "x") as runc, running() as containerd:
        runc.run("web", "go")
        containerd.box(RUNC, "web").started("--", "sleep", "1000")
        ending = threading.Thread(target=end_once_watched, args=(up, process))
        ending.start()
        Session(Cli(up), tmp_path).play(real(process, runc.root, containerd).partition(REST)[2])
        ending.join(LIMIT_SECONDS)
        with up.client() as client:
            assert client.watches() == ()  # the page clears up after itself
            assert len(list(client.exits(pb.ExitsRequest()))) == 1


def end_once_shown(up: Daemon, runc: Engine) -> None:
    """Once `live` has begun: it has exitd watch the machine, which is watched already."""
    with up.client() as client:
        # A start reads events, too, for a moment: it is over when the page's second command runs.
        until(lambda: any(b"\0live\0" in command for _, command in commands()), "live is not started")
        until(lambda: int(client.info().settings["subscribers"]) == 1, "live has not begun")
    runc.go("shop")


def test_the_five_minutes_to_who_was_killed_for_memory_print_what_the_page_says(tmp_path: pathlib.Path) -> None:
    first = PAGE.partition(REST)[0]
    with engine("runc", tmp_path / "x") as runc, daemon(wrapper=alone_with(runc.root)) as up:
        runc.run("shop", "go; exit 7")
        ending = threading.Thread(target=end_once_shown, args=(up, runc))
        ending.start()
        Session(Cli(up), tmp_path).play(first)
        ending.join(LIMIT_SECONDS)
        with up.client() as client:
            assert client.watches() == ()
    dashboard = json.loads((pages.DOCS.parent / "monitoring/exitd-dashboard.json").read_text())
    titles = {panel["title"] for panel in dashboard["panels"]}
    assert {"Who was killed for memory", "Ends of watched containers, a minute"} <= titles
    assert "`Who was killed for memory`" in first and "`Ends of watched containers, a minute`" in first
