"""System calls that fail in exitd for as long as strace is attached: what is asked for is refused by name or done, what
lives ends truly and is reported once, and nothing stays behind."""

import contextlib
import os
import pathlib
from collections.abc import Iterator

import pytest

from supervisor.api.client import Client
from supervisor.model.errors import ExitdError
from tests.system import daemons, lives
from tests.system.daemons import Daemon, spec
from tests.system.kill_matrix.calls import traced
from tests.system.lives import ledger, types, word
from tests.system.test_few_pids import UNBEGUN
from tests.system.waits import SCALE, until

GATE = "until [ -e /tmp/exitd-test-go ]; do sleep 0.05; done; exit 43"
FEW = [
    ("pidfd_open", "EMFILE"),
    ("clone,clone3", "EAGAIN"),
    ("fallocate", "ENOSPC"),
]
ALL = [
    *FEW,
    ("socket,socketpair,pipe2", "EMFILE"),
    ("mkdir,mknodat", "ENOSPC"),
    ("open,openat", "ENFILE"),  # who asks waits for a clean-up as long as that is waited for, and then hears
    ("vfork", "EAGAIN"),
    ("accept4", "ENOMEM"),
    ("inotify_add_watch", "ENOSPC"),
    ("pidfd_send_signal", "EPERM"),
    ("eventfd2", "EMFILE"),
]


@contextlib.contextmanager
def failing(daemon: Daemon, calls: str, error: str) -> Iterator[pathlib.Path]:
    """In every thread of exitd. What was traced, in a file."""
    trace = daemon.base / f"trace-{calls.split(',')[0]}"
    with traced(daemon, "-o", str(trace), "-e", f"trace={calls}", "-e", f"inject={calls}:error={error}"):
        yield trace


def go(pid: int) -> None:
    pathlib.Path(f"/proc/{pid}/root/tmp/exitd-test-go").touch()


def attempt(client: Client, name: str) -> str:
    """What came of it: the id, or "" where it was refused."""
    try:
        made = client.create(spec("sh", "-c", "exit 7", name=name)).id
        client.start(made)
    except ExitdError as error:
        assert error.reason != "INTERNAL", error
        return ""
    return made


@pytest.mark.parametrize(("calls", "error"), ALL if SCALE >= 1 else FEW)
def test_while_calls_fail_nothing_is_lost_invented_or_left(
    daemon: Daemon, client: Client, calls: str, error: str
) -> None:
    living = lives.up(client, "sh", "-c", GATE)
    pid = daemon.pid
    with failing(daemon, calls, error):
        made = attempt(client, "other")
        go(living.init.pid)
        until(lambda: not os.path.exists(f"/proc/{living.init.pid}"), "its end")
    assert daemon.pid == pid
    for container, told in ((living.id, "exited 43"), *([(made, "exited 7")] if made else [])):
        assert word(lives.last_exit(client, container)) == told
        assert [word(each) for each in ledger(client, container)] == [told]
        client.remove(container, force=True)
        assert types(client, container) == ["create", "start", "exit", "remove"]
    for left in client.list(all_of_them=True):
        assert [word(each) for each in ledger(client, left.id)] in ([], ["exited 7"], *([each] for each in UNBEGUN))
        client.remove(left.id, force=True)


def test_an_end_is_not_reported_before_its_flush_has_worked(tmp_path: pathlib.Path) -> None:
    """By the long way: the ring is written with O_DSYNC."""
    config = tmp_path / "config.toml"
    config.write_text("[limits]\nring_flush_seconds = 0\n")
    with daemons.daemon(extra=("--config", str(config))) as daemon, daemon.client() as client:
        living = lives.up(client, "sh", "-c", GATE)
        with failing(daemon, "fdatasync,fsync", "EIO") as trace:
            go(living.init.pid)
            until(lambda: trace.read_text().count("INJECTED") > 2, "it tries again")
            assert ledger(client, living.id) == [] and types(client, living.id) == ["create", "start"]
        assert word(lives.last_exit(client, living.id)) == "exited 43"
        assert [word(each) for each in ledger(client, living.id)] == ["exited 43"]
        assert types(client, living.id) == ["create", "start", "exit"]
        client.remove(living.id, force=False)
