"""Execs with a real runtime: their codes are as safe as a container's, and nothing of them is left."""

import os
import pathlib
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api.attachment import Attachment
from supervisor.api.client import Client
from supervisor.model.errors import (
    BadRequest,
    CommandNotExecutable,
    CommandNotFound,
    NoSuchContainer,
    NoSuchExec,
    WrongState,
)
from tests.system import daemons
from tests.system.daemons import Daemon, left, spec, warm_up
from tests.system.execs import begin, command_of, end_of, exec_directories, run, script
from tests.system.lives import Reader, attached, events, last_exit, ledger, up, up_trapping, word
from tests.system.processes import children_of, private_kb
from tests.system.runtimes import program
from tests.system.waits import LIMIT_SECONDS, scaled, until


@pytest.fixture
def client(daemon: Daemon) -> Iterator[Client]:
    with daemon.client() as client:
        yield client


@pytest.fixture(params=["runc", "crun"])
def box(daemon: Daemon, client: Client, request: pytest.FixtureRequest) -> str:
    """A container that runs, of either runtime."""
    return up(client, runtime=program(request.param, daemon.base)).id


def test_every_kind_of_end_is_reported_as_a_containers_is(client: Client, box: str) -> None:
    for text, told in (("exit 0", "exited 0"), ("exit 137", "exited 137"), ("kill -9 $$", "signaled 9")):
        exit_ = script(client, box, text)
        assert (word(exit_), exit_.source, exit_.container_id, exit_.run) == (told, "record", box, 1)
    assert [each.exec_id != "" for each in ledger(client, box)] == [True] * 3
    assert client.inspect(box).phase == pb.PHASE_RUNNING


def test_a_container_has_no_descriptor_but_its_streams(client: Client, box: str) -> None:
    """Although its runtime has one of the shim's, for its answers. A start ends before init executes its program."""
    init = client.inspect(box).init.pid
    until(lambda: sorted(os.listdir(f"/proc/{init}/fd")) == ["0", "1", "2"], "init has other descriptors")
    begin(client, box, "sleep", "999")
    (running,) = client.inspect(box).execs
    assert command_of(running.init.pid) == b"sleep\x00999\x00"
    assert sorted(os.listdir(f"/proc/{running.init.pid}/fd")) == ["0", "1", "2"]


def test_a_command_that_is_missing_or_cannot_be_executed_is_told_apart_by_a_look(client: Client, box: str) -> None:
    with pytest.raises(CommandNotFound):
        begin(client, box, "no-such-command")
    with pytest.raises(CommandNotFound):
        begin(client, box, "/no/such/command")
    with pytest.raises(CommandNotExecutable):
        begin(client, box, "/etc/passwd")
    assert [(e.type, e.exec_id != "") for e in events(client, box)][2:] == [("failed", True)] * 3
    assert ledger(client, box) == []


def test_what_only_the_running_container_has_is_found(client: Client) -> None:
    """In its mounts, and in its own root file system; not in what lies under them."""
    box = up(client, "sh", "-c", "mkdir /tmp/own && cp /bin/true /tmp/own/prog && sleep 1000").id
    until(lambda: word(script(client, box, "test -x /tmp/own/prog")) == "exited 0", "the program")
    assert word(run(client, box, "/tmp/own/prog")) == "exited 0"
    assert not os.path.exists("/tmp/own")


def test_a_container_that_does_not_run_is_named_with_its_state(client: Client) -> None:
    created = client.create(spec("sleep", "1000")).id
    with pytest.raises(WrongState, match="is created"):
        begin(client, created, "true")
    box = up(client).id
    client.pause(box)
    with pytest.raises(WrongState, match="is paused; resume it first"):
        begin(client, box, "true")
    client.resume(box)
    assert word(run(client, box, "true")) == "exited 0"
    client.stop(box, 0)
    with pytest.raises(WrongState, match="is exited"):
        begin(client, box, "true")
    client.remove(box, force=False)
    with pytest.raises(NoSuchContainer):
        begin(client, box, "true")


def test_what_is_asked_for_is_what_it_gets(client: Client) -> None:
    box = up(client, cwd="/usr", env=["FROM=container", "BOTH=container"], user="daemon").id
    checks: dict[str, dict[str, object]] = {
        'test "$FROM$BOTH" = containerexec': {"env": ["BOTH=exec"]},
        'test "$PWD" = /usr': {},
        'test "$PWD" = /etc': {"cwd": "/etc"},
        'test "$(id -u):$(id -g)" = 1:1': {},
        'test "$(id -u):$(id -g):$HOME" = 0:0:/root': {"user": "root"},
        'test "$(id -u):$(id -g)" = 7:8': {"user": "7:8"},
        "grep -q '^NoNewPrivs:.1' /proc/self/status": {"user": "root"},
        "! grep -q '^CapEff:.0000000000000000' /proc/self/status": {"user": "root"},
        "grep -q '^CapEff:.0000000000000000' /proc/self/status": {},
        "test ! -t 0 && ! read line": {},
    }
    for text, fields in checks.items():
        assert word(script(client, box, text, **fields)) == "exited 0", text
    with pytest.raises(BadRequest, match="no user 'nobody-here' in /etc/passwd of the container"):
        begin(client, box, "true", user="nobody-here")


def test_a_background_child_holds_nobody_up(client: Client) -> None:
    box = up(client).id
    begun = time.monotonic()
    assert word(script(client, box, "sleep 300 & exit 3")) == "exited 3"
    assert time.monotonic() - begun < 5


def test_a_signal_reaches_the_exec_and_not_the_container(client: Client) -> None:
    box = up(client).id
    exec_id = begin(client, box, "sh", "-c", "trap 'exit 7' TERM; while :; do sleep 0.01; done")
    until(lambda: b"trap" in command_of(client.inspect(box).execs[0].init.pid), "the shell")
    client.kill(box, "TERM", exec_id=exec_id)
    exit_ = end_of(client, box, exec_id)
    assert (exit_.reason, exit_.by.uid) == ("kill", os.getuid())
    assert word(exit_) in ("exited 7", "signaled 15")  # the second: before it had set its trap
    with pytest.raises(WrongState, match="has ended"):
        client.kill(box, "TERM", exec_id=exec_id)
    with pytest.raises(NoSuchExec):
        client.kill(box, "TERM", exec_id="never")
    with pytest.raises(NoSuchExec):
        client.begin_wait(box, exec_id="never").result(LIMIT_SECONDS)
    assert client.inspect(box).phase == pb.PHASE_RUNNING


def test_a_signal_to_all_reaches_each_of_the_execs_family_once(client: Client, tmp_path: pathlib.Path) -> None:
    box = up(client, mounts=[pb.Mount(source=str(tmp_path), destination="/mnt")]).id
    count = "trap 'echo >>/mnt/heard' USR1; echo >>/mnt/ready; while [ ! -e /mnt/over ]; do sleep 0.01; done"
    exec_id = begin(client, box, "sh", "-c", f'setsid sh -c "{count}" & {count}; wait')
    until(lambda: _lines(tmp_path / "ready") == 2, "both")
    client.kill(box, "USR1", exec_id=exec_id, everyone=True)
    until(lambda: _lines(tmp_path / "heard") == 2, "the signals")
    (tmp_path / "over").touch()
    end_of(client, box, exec_id)
    assert _lines(tmp_path / "heard") == 2


def _lines(path: pathlib.Path) -> int:
    return path.read_text().count("\n") if path.exists() else 0


def test_those_that_run_are_shown_and_those_that_have_ended_are_waited_for_all_the_same(client: Client) -> None:
    box = up(client).id
    one, two = begin(client, box, "sleep", "1000"), begin(client, box, "sh", "-c", "exit 4")
    assert word(end_of(client, box, two)) == "exited 4"
    (shown,) = client.inspect(box).execs
    assert (shown.id, shown.phase, shown.run, shown.container_id) == (one, "running", 1, box)
    assert list(shown.spec.args) == ["sleep", "1000"]
    assert os.path.isdir(f"/proc/{shown.init.pid}")
    client.remove(box, force=True)
    assert word(end_of(client, box, two)) == "exited 4"


def test_the_limit_ends_the_whole_exec_and_says_so(client: Client, box: str) -> None:
    """Its session, with one who has lost its parent, a child with a session of its own, and those whom they have
    started."""
    tree = "(sleep 1000 &) ; (sleep 1000 & sleep 1000) & setsid sh -c 'sleep 1000; true' & sleep 1000"
    exec_id = begin(client, box, "sh", "-c", f"{tree}; exit 0", timeout_seconds=1.0)
    exit_ = end_of(client, box, exec_id)
    assert (word(exit_), exit_.reason, exit_.by.policy) == ("signaled 9", "timeout", "timeout")
    assert [e.type for e in events(client, box) if e.exec_id] == ["exec", "timeout", "exit"]
    until(lambda: _alone(client, box), "the end of its family")
    assert word(run(client, box, "true", timeout_seconds=60)) == "exited 0"


def _alone(client: Client, box: str) -> bool:
    """Only init is left in the container's cgroup."""
    init = client.inspect(box).init.pid
    return not any(_sleeps(pid) for pid in children_of(init))


def _sleeps(pid: int) -> bool:
    try:
        return b"1000" in command_of(pid)
    except OSError:
        return False


def test_the_ends_of_execs_come_before_their_containers(client: Client) -> None:
    for how in ("KILL", "TERM"):
        box = up_trapping(client, "trap 'exit 0' TERM; while :; do sleep 0.01; done").id
        execs = [begin(client, box, "sleep", "1000") for _ in range(5)]
        client.kill(box, how)
        last_exit(client, box)
        exits = [event for event in events(client, box) if event.type == "exit"]
        assert sorted(event.exec_id for event in exits[:-1]) == sorted(execs)
        assert exits[-1].exec_id == ""
        for event in exits[:-1]:
            told = (word(event.exit), event.exit.reason, event.exit.by.policy)
            assert told == ("signaled 9", "kill", "container-exit")


def test_an_exec_in_the_pods_pid_namespace_ends_with_its_container(client: Client) -> None:
    """Nothing but exitd ends it: the namespace lives on."""
    pod = client.run_pod(pb.ContainerSpec(image="pause"))
    box = client.start(client.create(spec("sleep", "1000", sandbox=pod.id, pid="pod")).id)
    exec_id = begin(client, box.id, "sleep", "1000")
    client.kill(box.id, "KILL")
    last_exit(client, box.id)
    exits = [event for event in events(client, box.id) if event.type == "exit"]
    assert [event.exec_id for event in exits] == [exec_id, ""]
    client.remove_pod(pod.id, force=True)


def test_a_memory_kill_is_reported_as_one(client: Client) -> None:
    box = up(client, memory_bytes=32 << 20).id
    exit_ = run(client, box, "tail", "/dev/zero")
    assert (word(exit_), exit_.reason, exit_.oom.init, exit_.oom.kills) == ("signaled 9", "oom", True, 1)
    assert word(run(client, box, "true")) == "exited 0"
    assert client.inspect(box).phase == pb.PHASE_RUNNING


def descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def output(attached: Attachment) -> tuple[bytes, bytes]:
    """All of it; stdout and stderr."""
    replies = list(attached)
    return b"".join(reply.stdout for reply in replies), b"".join(reply.stderr for reply in replies)


def test_whoever_asked_for_it_gets_all_output_however_short_the_exec(client: Client) -> None:
    box = up(client).id
    for _ in range(5):
        exec_id = begin(client, box, "sh", "-c", "echo out; echo err >&2; exit 4", attach=True)
        end_of(client, box, exec_id)  # before anybody is attached
        with client.attach(box, exec_id=exec_id, stdin=False) as attached:
            assert output(attached) == (b"out\n", b"err\n")


def test_its_input_is_its_own_and_ends_where_the_client_says(client: Client) -> None:
    box = up(client).id
    exec_id = begin(client, box, "cat", stdin=True, attach=True)
    data = os.urandom(300_000)
    with client.attach(box, exec_id=exec_id) as attached, ThreadPoolExecutor() as writer:
        written = writer.submit(lambda: attached.write(data) and attached.close_stdin())
        assert output(attached) == (data, b"")
        assert written.result(LIMIT_SECONDS)
    assert word(end_of(client, box, exec_id)) == "exited 0"


COUNT_TO = 2_000_000  # 14 MiB: more than has room on the way to a client that does not read


def numbers(first: int, last: int) -> bytes:
    """What seq says."""
    return b"".join(b"%d\n" % number for number in range(first, last + 1))


def held_up(pid: int) -> None:
    """Wait until the process writes no more, because nobody reads."""
    written = [-1]

    def stands_still() -> bool:
        written.append(written_bytes(pid))
        return written[-1] == written[-2] > 0

    until(stands_still, "it is not held up")


def written_bytes(pid: int) -> int:
    """By the process, into whatever it writes to."""
    (line,) = [line for line in pathlib.Path(f"/proc/{pid}/io").read_text().splitlines() if line.startswith("wchar:")]
    return int(line.split()[1])


def logged(client: Client, container: str) -> tuple[bytes, bytes]:
    """Stdout and stderr."""
    replies = list(client.logs(pb.LogsRequest(id=container)))
    out, err = (b"".join(reply.data for reply in replies if reply.stream == name) for name in ("stdout", "stderr"))
    return out, err


def test_a_full_pipe_of_one_exec_stalls_no_other_stream_and_loses_nothing(client: Client) -> None:
    """Another exec goes on, in and out, and so do the container's own streams and its log."""
    own = "read go; seq 1 50000; seq 50001 100000 >&2; read go; echo over"
    container, attachment = attached(client, "sh", "-c", own, stdin=True)
    full_id = begin(client, container, "seq", "1", str(COUNT_TO), attach=True)
    (full_exec,) = client.inspect(container).execs
    with client.attach(container, exec_id=full_id, stdin=False) as full:
        held_up(full_exec.init.pid)
        its, data = Reader(attachment), os.urandom(1 << 20)
        assert attachment.write(b"go\n")
        other_id = begin(client, container, "sh", "-c", "cat; seq 1 100000 >&2", stdin=True, attach=True)
        other = client.attach(container, exec_id=other_id)
        others = Reader(other)
        assert other.write(data) and other.close_stdin()
        assert word(end_of(client, container, other_id)) == "exited 0"
        others.ended()
        assert (bytes(others.out), bytes(others.err)) == (data, numbers(1, 100_000))
        until(lambda: its.err.endswith(b"\n100000\n"), "the container's own output")
        assert (bytes(its.out), bytes(its.err)) == (numbers(1, 50_000), numbers(50_001, 100_000))
        assert logged(client, container) == (
            bytes(its.out),
            bytes(its.err),
        )  # what is sent to a client has been logged before
        assert written_bytes(full_exec.init.pid) < len(numbers(1, COUNT_TO))
        assert output(full) == (numbers(1, COUNT_TO), b"")
    assert word(end_of(client, container, full_id)) == "exited 0"
    assert attachment.write(b"go\n")
    assert its.ended().out.endswith(b"over\n")


def test_a_terminal_has_its_size_and_its_name_from_the_first_moment(client: Client, box: str) -> None:
    # crun leaves it to the shim, which has the terminal once the exec runs; runc sets it before.
    sized = "until [ \"$(stty size)\" = '33 77' ]; do sleep 0.01; done; "
    look = "test -t 0 && stty size && echo $TERM && exit 3"
    look = (sized if "crun" in client.inspect(box).spec.runtime else "") + look
    exec_id = begin(client, box, "sh", "-c", look, tty=True, attach=True, size=pb.Winsize(rows=33, cols=77))
    with client.attach(box, exec_id=exec_id, stdin=False) as attached:
        assert attached.tty
        assert output(attached) == (b"33 77\r\nxterm\r\n", b"")
    assert word(end_of(client, box, exec_id)) == "exited 3"
    with pytest.raises(BadRequest, match="size: only a terminal has one"):
        begin(client, box, "true", size=pb.Winsize(rows=1, cols=1))


# The daemon has its newest 4096 events in memory, two of an exec, with what belongs to them: that much is no leak, and
# neither are SQLite's pages. Then it is flat: at full scale, with 5,000 execs to measure, 0.6 kB of each are found.
KEPT_EXECS, KEPT_KB, DAEMON_KB = 4096 // 2, 5, 3072
MONITOR_KB = 32  # keeper and shim: nothing of an exec is theirs, and the heap of either is a few pages


def many(client: Client, box: str, count: int, at_once: int = 8) -> None:
    for at in range(0, count, at_once):
        execs = [begin(client, box, "sh", "-c", f"exit {n % 100}") for n in range(at, min(count, at + at_once))]
        for n, exec_id in enumerate(execs, at):
            assert word(end_of(client, box, exec_id)) == f"exited {n % 100}"


@pytest.mark.timeout(300 + scaled(10_000) / 5)  # ten thousand take longer than a test may
def test_thousands_of_execs_leave_no_process_descriptor_directory_or_row() -> None:
    with daemons.daemon(forked=False) as d, d.client() as client:
        warm_up(client)
        container = up(client)
        box, monitors = container.id, (d.keeper_pid(), container.shim.pid)
        for _ in range(3):
            run(client, box, "true")
        until(lambda: not exec_directories(d), "the first directories")
        before, keeper = left(d), descriptors(d.keeper_pid())
        half = scaled(10_000) // 2
        many(client, box, half)
        warm = [private_kb(pid) for pid in (d.pid, *monitors)]
        many(client, box, half)
        until(lambda: not exec_directories(d), "their directories")
        kept = KEPT_KB * min(half, max(0, KEPT_EXECS - half))
        grown = [private_kb(pid) - kb for pid, kb in zip((d.pid, *monitors), warm, strict=True)]
        print(f"{half} execs after {half}: daemon, keeper and shim had {warm} kB, and {grown} kB more")
        assert grown[0] <= DAEMON_KB + kept and max(grown[1:]) <= MONITOR_KB, grown
        until(lambda: left(d) == before, f"{left(d)} is not {before}")
        until(lambda: descriptors(d.keeper_pid()) == keeper, "the keeper's descriptors")
        assert client.inspect(box).execs == []
        assert sum(each.exec_id != "" for each in ledger(client, box)) == 2 * half + 3
        client.remove(box, force=True)
