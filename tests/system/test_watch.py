"""`exitctl watch PID`: exitd reports how processes end that others started, and touches none of them."""

import os
import pathlib
import signal
import subprocess

import pytest

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api.client import Client
from supervisor.model.errors import BadRequest, NoSuchProcess, NoSuchWatch, WrongState
from tests.system import lives
from tests.system.daemons import Daemon
from tests.system.exitctl import Cli, Said
from tests.system.waits import LIMIT_SECONDS, scaled, until
from tests.system.watched import KERNELS_SOURCE, ZOMBIES_SOURCE, ends, said, stranger, told, watch_of, zombie

ENDS = [
    *(("exit 0", ("exited 0", "self")), ("exit 7", ("exited 7", "self")), ("exit 137", ("exited 137", "self"))),
    *(("kill -KILL $BASHPID", ("signaled 9", "unknown")), ("kill -TERM $BASHPID", ("signaled 15", "unknown"))),
]
HINT = "ctrl-c ends the showing, and --stop the watch\n"


@pytest.mark.parametrize(("end", "how"), ENDS)
def test_a_strangers_end_is_in_the_ledger_with_its_true_code_and_once(
    client: Client, end: str, how: tuple[str, str]
) -> None:
    with stranger(end) as process:
        reply = client.watch(pb.WatchRequest(pid=process.pid))
        assert (reply.watch.target, reply.watch.kind, reply.watch.processes) == (str(process.pid), "pid", 1)
        process.go()
        exit_ = told(client, process)
        assert (said(exit_), exit_.source, exit_.namespace, exit_.decision) == (how, KERNELS_SOURCE, "pid", "")
        assert not exit_.by.ByteSize()
        assert exit_.init.pid == process.pid
        assert exit_.started_at.ToNanoseconds() <= exit_.at.ToNanoseconds()
        assert client.watches() == ()
        seen = [each.event for each in client.events(pb.EventsRequest(from_seq=reply.seq, no_follow=True))]
        mine = [each for each in seen if each.id == f"{process.pid}@pid"]
        assert [each.type for each in mine] == ["watch", "exit"]
        assert mine[1].exit == exit_
        assert mine[1].attributes["watch"] == str(process.pid)


def test_a_core_is_reported(client: Client, tmp_path: pathlib.Path) -> None:
    end = "ulimit -c unlimited; kill -SEGV $BASHPID"
    with stranger(end, cwd=tmp_path) as process:
        client.watch(pb.WatchRequest(pid=process.pid))
        process.go()
        exit_ = told(client, process)
        assert said(exit_) == ("signaled 11", "self")
        limited = "|" in pathlib.Path("/proc/sys/kernel/core_pattern").read_text()
        assert exit_.core or limited


def test_a_zombie_whose_parent_does_not_reap_is_reported_and_stays_one(client: Client) -> None:
    with zombie("exit 7") as process:
        client.watch(pb.WatchRequest(pid=process.pid))
        process.go()
        exit_ = told(client, process)
        assert (said(exit_), exit_.source) == (("exited 7", "self"), ZOMBIES_SOURCE)
        assert "\nState:\tZ" in pathlib.Path(f"/proc/{process.pid}/status").read_text()
        with pytest.raises(NoSuchProcess, match="has ended"):
            client.watch(pb.WatchRequest(pid=process.pid))
        assert client.watches() == ()


def test_what_is_a_zombie_already_is_watched_and_reported(client: Client) -> None:
    with zombie("exit 9") as process:
        status = pathlib.Path(f"/proc/{process.pid}/status")
        process.go()
        until(lambda: "\nState:\tZ" in status.read_text(), "it does not end")
        client.watch(pb.WatchRequest(pid=process.pid))
        assert said(told(client, process)) == ("exited 9", "self")


def test_a_traced_process_is_reported_although_its_tracer_sees_the_end_first(
    client: Client, tmp_path: pathlib.Path
) -> None:
    with stranger("exit 7") as process:
        tracer = subprocess.Popen(
            ["strace", "-o", str(tmp_path / "trace"), "-p", str(process.pid)], stderr=subprocess.DEVNULL
        )
        try:
            status = pathlib.Path(f"/proc/{process.pid}/status")
            until(lambda: f"TracerPid:\t{tracer.pid}\n" in status.read_text(), "strace does not attach")
            client.watch(pb.WatchRequest(pid=process.pid))
            process.go()
            until(lambda: "+++ exited" in (tmp_path / "trace").read_text(), "it does not end")
            assert said(told(client, process)) == ("exited 7", "self")
        finally:
            tracer.kill()
            tracer.wait(LIMIT_SECONDS)


def test_what_cannot_be_watched_is_refused_by_its_name(client: Client, daemon: Daemon) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait(LIMIT_SECONDS)
    with pytest.raises(NoSuchProcess):
        client.watch(pb.WatchRequest(pid=gone.pid))
    thread = next(int(name) for name in os.listdir(f"/proc/{daemon.pid}/task") if int(name) != daemon.pid)
    for request, why in (
        (pb.WatchRequest(pid=thread), f"thread of process {daemon.pid}"),
        (pb.WatchRequest(pid=daemon.pid), "exitd itself"),
        (pb.WatchRequest(pid=-1), "no process id"),
        (pb.WatchRequest(), "exactly one"),
        (pb.WatchRequest(pid=1, runc_root="/run"), "exactly one"),
        (pb.WatchRequest(runc_root="run"), "absolute"),
        (pb.WatchRequest(runc_root="/no/such"), "No such file"),
        (pb.WatchRequest(runc_root="/etc/passwd"), "no directory"),
        (pb.WatchRequest(containerd="/etc"), "no socket"),
    ):
        with pytest.raises(BadRequest, match=why):
            client.watch(request)
    own = lives.up(client)
    with pytest.raises(WrongState, match="exitd's own"):
        client.watch(pb.WatchRequest(pid=own.init.pid))
    with pytest.raises(NoSuchWatch):
        client.end_watch("1")
    assert client.watches() == ()


def test_an_ended_watch_reports_nothing_more(client: Client) -> None:
    with stranger("exit 7") as process:
        for _ in range(2):  # asked for twice, it is the same one
            client.watch(pb.WatchRequest(pid=process.pid))
        assert len(client.watches()) == 1
        assert client.end_watch(str(process.pid)).processes == 1
        seq = client.info().seq
        process.go()
        process.reaped()
        with stranger("exit 8") as other:  # whose end comes behind that of the first
            client.watch(pb.WatchRequest(pid=other.pid))
            other.go()
            told(client, other)
        assert ends(client, process) == []
        assert client.info().seq > seq


def test_what_is_watched_is_no_container_of_exitds(client: Client) -> None:
    with stranger("exit 0") as process:
        client.watch(pb.WatchRequest(pid=process.pid))
        assert client.list(all_of_them=True) == ()
        client.end_watch(str(process.pid))


def test_hundreds_that_end_at_once_are_reported_once_each_and_nothing_stays_open(
    client: Client, daemon: Daemon
) -> None:
    """Each with a code of its own, but for those who share one of 256."""
    count = scaled(1000, 200)
    before = len(os.listdir(f"/proc/{daemon.pid}/fd"))
    ends = " ".join(f"(read line; exit {number % 256}) <&3 & echo $!;" for number in range(count))
    read_end, write_end = os.pipe()
    script = f"exec 3<&{read_end}; {ends} wait"
    parent = subprocess.Popen(["bash", "-c", script], stdout=subprocess.PIPE, pass_fds=(read_end,))
    os.close(read_end)
    assert parent.stdout is not None
    try:
        pids = [int(parent.stdout.readline()) for _ in range(count)]
        seq = client.info().seq + 1
        for pid in pids:
            client.watch(pb.WatchRequest(pid=pid))
        assert len(os.listdir(f"/proc/{daemon.pid}/fd")) >= before + count
    finally:
        os.close(write_end)  # an end of file for all of them: a read that fails
        parent.wait(LIMIT_SECONDS)
        parent.stdout.close()
    until(lambda: not client.watches(), "some are watched still")
    request = pb.EventsRequest(from_seq=seq, no_follow=True, filters=["type=exit"])
    seen = [each.event for each in client.events(request)]
    found = sorted((each.exit.init.pid, each.exit.code) for each in seen if each.HasField("exit"))
    assert found == sorted((pid, number % 256) for number, pid in enumerate(pids))
    until(lambda: len(os.listdir(f"/proc/{daemon.pid}/fd")) <= before, "descriptors stay open")


def test_the_command_shows_the_end_and_ends_with_it(cli: Cli, client: Client) -> None:
    with stranger("exit 7") as process:
        pid = str(process.pid)
        showing = cli.begin("watch", pid)
        until(client.watches, "it is not watched")
        listed = cli.ok("watch", "--list").splitlines()
        assert listed[0].split() == ["TARGET", "KIND", "SINCE", "PROCESSES", "EXITS", "TROUBLE"]
        assert [listed[1].split()[index] for index in (0, 1, 3, 4)] == [pid, "pid", "1", "0"]
        process.go()
        out, err = showing.communicate(timeout=LIMIT_SECONDS)
        assert (showing.returncode, err) == (0, f"exitctl: watching {pid}; {HINT}")
        assert f"({pid}@pid) 7 [source {KERNELS_SOURCE}, reason self]" in out
        assert f"{pid}@pid" in cli.ok("exits")
        story = cli.ok("why", f"{pid}@pid")
        assert "exited 7" in story
        assert "exitd only watched it" in story


def test_ctrl_c_ends_the_showing_and_stop_the_watch(cli: Cli, client: Client) -> None:
    with stranger("exit 7") as process:
        pid = str(process.pid)
        showing = cli.begin("watch", "--format", "jsonl", pid)
        until(lambda: client.watches() and watch_of(client, pid).processes, "it is not watched")
        showing.send_signal(signal.SIGINT)
        assert showing.communicate(timeout=LIMIT_SECONDS)[0] == ""
        assert showing.returncode == 130
        assert watch_of(client, pid).processes == 1
        assert cli("watch", "--detach", pid) == Said(0, f"{pid}\n", "")
        again = cli.begin("watch", pid)
        assert again.stderr is not None
        assert again.stderr.readline() == f"exitctl: watching {pid}; {HINT}"
        assert cli("watch", "--stop", pid) == Said(0, f"{pid}\n", "")
        assert again.communicate(timeout=LIMIT_SECONDS) == ("", f"exitctl: the watch of {pid} was ended\n")
        assert again.returncode == 0
        assert client.watches() == ()
        assert cli("watch", "--stop", pid).code == 125
        assert cli("watch").code == cli("watch", "--list", pid).code == 2
