"""exitd is killed at any of its system calls over a process that it watches."""

from collections import Counter

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api.client import Unreachable
from tests.system import lives
from tests.system.daemons import Daemon
from tests.system.kill_matrix.calls import killed_at_each
from tests.system.kill_matrix.table import row
from tests.system.oracle import Revived
from tests.system.waits import until
from tests.system.watched import Stranger, ends, stranger

CALLS = ("openat", "pidfd_open", "epoll_ctl", "ioctl", "pwrite64", "fdatasync", "sendmsg", "close", "inotify_add_watch")
OWN_WORDS = {"exited 7", "unknown watcher-away"}


def life(daemon: Daemon) -> Stranger:
    """Watched and ended, whoever dies meanwhile."""
    up = Revived(daemon)

    def begun() -> bool:
        try:
            up.call(lambda client: client.watch(pb.WatchRequest(pid=process.pid)))
        except Unreachable:
            return False
        return True

    with stranger("exit 7") as process:
        until(begun, "it is not watched")
        process.go()
        process.reaped()
        until(lambda: up.patiently(lambda client: client.watches()) == (), "its end is not told")
        return process


def test_exitd_killed_at_any_system_call_over_a_watch_reports_the_end_once_and_never_wrongly(daemon: Daemon) -> None:
    def judge(process: Stranger, case: str) -> Counter[str]:
        with daemon.client() as client:
            found = [lives.word(exit_) for exit_ in ends(client, process)]
        assert len(found) == 1, (case, found)
        return Counter(found)

    said = killed_at_each(daemon, row("watched, at calls").count, lambda: life(daemon), judge, CALLS)
    assert set(said) <= OWN_WORDS, said
