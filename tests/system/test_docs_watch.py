"""docs/watch.md: every command that stands behind a `$` is typed, and prints what the page says.

The page's process, directory and socket are real ones here, of other names.
"""

import pathlib
import threading

from protos.exitd.v1 import exitd_pb2 as pb
from tests.system import pagerig
from tests.system.clirig import Cli
from tests.system.containerdrig import RUNC, Containerd, containerd
from tests.system.daemonrig import LIMIT_SECONDS, Daemon, until
from tests.system.lives import daemon
from tests.system.pagerig import Session
from tests.system.watchrig import Stranger, engine, stranger

PAGE = (pagerig.DOCS / "watch.md").read_text()


def real(process: Stranger, root: pathlib.Path, rig: Containerd) -> str:
    names = {"4711": str(process.pid), "/run/runc": str(root), "/run/containerd/containerd.sock": rig.address}
    page = PAGE.replace("/run/containerd/runc", "elsewhere")
    for shown, name in names.items():
        page = page.replace(shown, name)
    return page


def end_once_watched(up: Daemon, process: Stranger) -> None:
    with up.client() as client:
        until(lambda: [watch.target for watch in client.watches()] == [str(process.pid)], "it is not watched")
    process.go()


def test_the_commands_of_the_page_print_what_it_says(tmp_path: pathlib.Path) -> None:
    with daemon() as up, stranger("exit 7") as process, engine("runc", tmp_path / "x") as runc, containerd() as rig:
        runc.run("web", "go")
        rig.box(RUNC, "web").started("--", "sleep", "1000")
        ending = threading.Thread(target=end_once_watched, args=(up, process))
        ending.start()
        Session(Cli(up), tmp_path).play(real(process, runc.root, rig))
        ending.join(LIMIT_SECONDS)
        with up.client() as client:
            assert client.watches() == ()  # the page clears up after itself
            assert len(list(client.exits(pb.ExitsRequest()))) == 1
