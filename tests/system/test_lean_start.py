"""A start loads what every start needs. What is for images and for foreign shims comes after the look-ups."""

import pathlib
import re
import tarfile

from supervisor.system import late
from tests.system import daemons
from tests.system.daemons import remove_all
from tests.system.foreign_shims import RUNC
from tests.system.lives import last_exit, run, up, word
from tests.system.waits import until

IMAGES, FOREIGN = "supervisor.images.", "supervisor.runtime.foreign_shim."
OF_STARTS = {
    *(f"{IMAGES}{name}" for name in ("reference", "facts", "documents", "index", "deadline", "disk", "store")),
    f"{FOREIGN}place",
}


def loaded(log: str) -> set[str]:
    """Return what a daemon with Python's `-v` has loaded for images and for foreign shims."""
    names: list[str] = re.findall(r"^import '([\w.]+)' #", log, re.MULTILINE)
    assert "supervisor.daemon" in names
    return {name for name in names if name.startswith((IMAGES, FOREIGN))}


def test_a_start_loads_what_it_needs_and_the_rest_before_anybody_asks_for_it(tmp_path: pathlib.Path) -> None:
    """An upgrade replaces the files below a daemon that runs."""
    (tmp_path / "file").write_text("content")
    with tarfile.open(tmp_path / "root.tar", "w") as tar:
        tar.add(tmp_path / "file", "file")
    with daemons.daemon(forked=False, environment={"PYTHONVERBOSE": "1"}) as daemon:
        with daemon.client() as client:
            native, foreign = up(client, runtime="runc").id, up(client, runtime=RUNC).id
            client.remove(foreign, force=True)
        daemon.kill()
        daemon.log.unlink()
        daemon.start()
        until(lambda: loaded(daemon.log.read_text()) >= {*late.MODULES}, "the rest is not loaded")
        before, serving, _ = daemon.log.read_text().partition('"event": "serving"')
        assert serving and loaded(before) == OF_STARTS
        with daemon.client() as client:
            client.kill(native, "KILL")
            assert word(last_exit(client, native)) == "signaled 9"
            assert client.import_image(str(tmp_path / "root.tar"), "mine:1").names
            assert word(run(client, "sh", "-c", "exit 6", runtime=RUNC)[1]) == "exited 6"
            remove_all(client)
