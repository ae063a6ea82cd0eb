"""docs/watch.md: every command that stands behind a `$` is typed, and prints what the page says.

The page's process, directory and socket are real ones here, of other names.
"""

import pathlib
import threading

from protos.exitd.v1 import exitd_pb2 as pb
from tests.system import pages
from tests.system.containerd.server import RUNC, Containerd, running
from tests.system.daemons import Daemon, daemon
from tests.system.exitctl import Cli
from tests.system.pages import Session
from tests.system.waits import LIMIT_SECONDS, until
from tests.system.watched import Stranger, engine, stranger

PAGE = (pages.DOCS / "watch.md").read_text()


def real(process: Stranger, root: pathlib.Path, containerd: Containerd) -> str:
    names = {"4711": str(process.pid), "/run/runc": str(root), "/run/containerd/containerd.sock": containerd.address}
    page = PAGE.replace("/run/containerd/runc", "elsewhere")
    for shown, name in names.items():
        page = page.replace(shown, name)
    return page


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
        Session(Cli(up), tmp_path).play(real(process, runc.root, containerd))
        ending.join(LIMIT_SECONDS)
        with up.client() as client:
            assert client.watches() == ()  # the page clears up after itself
            assert len(list(client.exits(pb.ExitsRequest()))) == 1
