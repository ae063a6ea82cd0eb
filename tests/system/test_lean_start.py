"""A start loads what every start needs. What is for images and for foreign shims comes with the first of them."""

import pathlib
import re
import tarfile

from tests.system import daemons
from tests.system.daemons import Daemon, remove_all
from tests.system.foreign_shims import RUNC
from tests.system.lives import last_exit, run, up, word
from tests.system.waits import LIMIT_SECONDS

IMAGES, FOREIGN = "supervisor.images.", "supervisor.runtime.foreign_shim."
STARTS = {f"{IMAGES}{name}" for name in ("reference", "facts", "documents", "index", "deadline", "disk", "store")}
READS_ROOTS = {f"{IMAGES}{name}" for name in ("streams", "tar", "unpack")}


def loaded(daemon: Daemon) -> set[str]:
    """Return what its exitds have loaded so far for images and for foreign shims."""
    names = re.findall(r"^import '([\w.]+)' #", daemon.log.read_text(), re.MULTILINE)
    assert "supervisor.daemon" in names
    return {name for name in names if name.startswith((IMAGES, FOREIGN))}


def test_what_few_containers_need_is_loaded_for_the_first_of_them(tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").write_text("content")
    with tarfile.open(tmp_path / "root.tar", "w") as tar:
        tar.add(tmp_path / "file", "file")
    with daemons.daemon(forked=False, environment={"PYTHONVERBOSE": "1"}) as daemon:
        with daemon.client() as client:
            assert word(run(client, "sh", "-c", "exit 5")[1]) == "exited 5"
            id = up(client, "sh", "-c", "sleep 1000").id
        daemon.restart()
        with daemon.client() as client:
            client.kill(id, "KILL")
            client.begin_wait(id).result(LIMIT_SECONDS)
            assert word(last_exit(client, id)) == "signaled 9"
            assert loaded(daemon) == STARTS | {f"{IMAGES}merge", f"{FOREIGN}place"}  # a create merges, a removal looks
            assert client.import_image(str(tmp_path / "root.tar"), "mine:1").names
            assert loaded(daemon) >= STARTS | READS_ROOTS
            assert f"{FOREIGN}hub" not in loaded(daemon)
            assert word(run(client, "sh", "-c", "exit 6", runtime=RUNC)[1]) == "exited 6"
            assert f"{FOREIGN}hub" in loaded(daemon)
            later = up(client, "sh", "-c", "sleep 1000", runtime=RUNC).id
        daemon.restart()
        with daemon.client() as client:  # its shim is found again, and its end
            client.kill(later, "KILL")
            client.begin_wait(later).result(LIMIT_SECONDS)
            assert last_exit(client, later).kind == "signaled"
            remove_all(client)
