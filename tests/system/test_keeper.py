"""exitd-keeper: upgrades with live runs, a journal that drops nothing, clients of every kind of bad behaviour."""

import contextlib
import os
import pathlib
import resource
import signal
import socket
import subprocess

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shim import fields, journal, launch, programs
from tests.system.keepers import Keeper, Node
from tests.system.processes import cgroup_pids, children_of, end_process, open_files
from tests.system.streams import finish
from tests.system.waits import LIMIT_SECONDS, until, wait_readable

CLIENTS_MAX, FDS_MAX = 512, 13


def reconnect(keeper: Keeper) -> None:
    assert keeper.socket is not None
    keeper.socket.close()
    keeper.socket = launch.connect(str(keeper.state))


def upgrade(keeper: Keeper) -> None:
    """SIGHUP, and the end of the connection that the old program had."""
    assert keeper.socket is not None
    keeper.process.send_signal(signal.SIGHUP)
    keeper.socket.settimeout(LIMIT_SECONDS)
    with contextlib.suppress(ConnectionError):
        assert keeper.socket.recv(1) == b""
    reconnect(keeper)


def hello(keeper: Keeper) -> fields.Message:
    return keeper.ask("exitd-hello")


def test_an_upgrade_keeps_pid_table_journal_output_and_every_exit(node: Node, keeper: Keeper) -> None:
    bundle = node.bundle("/bin/sh", "-c", "head -c 200000 /dev/zero; echo end; exit 43")
    runs = [keeper.make(f"box{i}", bundle) for i in range(3)]
    journalled, orphan, ordinary = runs
    journalled.kill_shim()
    keeper.spawn(journalled, str(programs.find("exitd-shim")), adopt=True)
    journalled.start()
    assert journalled.ended() and wait_readable(journalled.shim_pidfd)
    keeper.settle()
    before, files = hello(keeper), open_files(keeper.process.pid)
    for _ in range(2):
        upgrade(keeper)
    assert hello(keeper) == before and before.number("runs") == 3
    after = open_files(keeper.process.pid)
    assert sorted(link for link in after.values() if "pipe" in link) == sorted(
        link for link in files.values() if "pipe" in link
    )
    assert len(after) == len(files)
    orphan.kill_shim()
    orphan.start()
    assert not orphan.ended(0.05)
    keeper.spawn(orphan, str(programs.find("exitd-shim")), adopt=True)
    ordinary.start()
    for run in (orphan, ordinary):
        assert run.ended() and wait_readable(run.shim_pidfd)
        assert run.output() == bytes(200_000) + b"end\n"
    keeper.settle()
    assert sorted((entry.id, entry.code) for entry in keeper.entries()) == [("box0", 43), ("box1", 43)]
    written = ordinary.record()
    assert written is not None and written.code == 43
    finish(node, keeper, *runs)


def test_an_upgrade_to_a_program_that_cannot_be_executed_changes_nothing(node: Node) -> None:
    program = node.directory / "exitd-keeper"
    program.write_bytes(programs.find("exitd-keeper").read_bytes())
    program.chmod(0o755)
    keeper = Keeper(node.state, ("/bin/sh", "-c", f'shift; exec {program} "$@"', "sh"))
    assert keeper.connect()
    program.unlink()
    program.write_text("no program")
    program.chmod(0o755)
    keeper.process.send_signal(signal.SIGHUP)
    run = keeper.make("box", node.bundle("/bin/sh", "-c", "exit 43"))
    run.kill_shim()
    run.start()
    assert run.ended()
    keeper.settle()
    assert [entry.code for entry in keeper.entries()] == [43]
    finish(node, keeper, run)
    keeper.close()


def test_an_exit_stays_in_the_journal_until_it_is_acknowledged_and_its_slot_is_used_again(
    node: Node, keeper: Keeper
) -> None:
    bundle = node.bundle("/bin/sh", "-c", "exit 43")
    path = pathlib.Path(hello(keeper).get("journal"))
    size = path.stat().st_size
    for number in range(4):
        run = keeper.make(f"box{number}", bundle)
        run.kill_shim()
        run.start()
        assert run.ended()
        keeper.settle()
        assert len(keeper.entries()) == 1
        assert journal.read(path.read_bytes()).pid == keeper.process.pid
        finish(node, keeper, run)
        keeper.acknowledge(run.id)  # a second time is no error
    assert path.stat().st_size == size


def test_a_watcher_hears_of_a_new_entry(node: Node, keeper: Keeper) -> None:
    with launch.connect(str(keeper.state)) as watcher:
        launch.ask(watcher, fields.encode("exitd-hello", []), [])
        run = keeper.make("box", node.bundle("/bin/sh", "-c", "exit 43"))
        run.kill_shim()
        run.start()
        assert wait_readable(watcher.fileno())
        assert fields.decode(watcher.recv(100)).kind == "exitd-news"
    assert [entry.code for entry in keeper.entries()] == [43]
    finish(node, keeper, run)


def test_a_run_that_is_known_is_not_spawned_twice(node: Node, keeper: Keeper) -> None:
    run = keeper.make("box", node.bundle("/bin/true"))
    request = launch.spawn_request("box", 1, "", str(run.directory), str(programs.find("exitd-shim")), adopt=False)
    with open("/dev/null") as file, pytest.raises(launch.KeeperRefused) as caught:
        assert keeper.socket is not None
        launch.ask(keeper.socket, request, [file.fileno()])
    assert caught.value.number == 17
    run.start()
    assert wait_readable(run.shim_pidfd)
    finish(node, keeper, run)


def test_a_shim_that_cannot_be_executed_leaves_nothing_in_the_table(node: Node, keeper: Keeper) -> None:
    files = open_files(keeper.process.pid)
    with pytest.raises(launch.KeeperRefused) as caught:
        keeper.make("box", node.bundle("/bin/true"), shim="/nowhere/exitd-shim")
    assert caught.value.number == 2
    assert keeper.ask("exitd-list", ("at", 0)).kind == "exitd-ok"
    assert open_files(keeper.process.pid) == files
    keeper.last.clean()


REQUESTS = st.builds(
    lambda kind, pairs, version: fields.encode(kind, pairs, version),
    st.sampled_from(["exitd-spawn", "exitd-register", "exitd-ack", "exitd-list", "exitd-hello", "exitd-release"]),
    st.lists(
        st.tuples(
            st.sampled_from(["id", "run", "exec", "dir", "program", "adopt", "pid", "started", "oom", "at", "seat"]),
            st.sampled_from(["", "1", "0", "-1", "box", "/", "/nowhere", "x" * 400, "9" * 30, "\udcff"]),
        ),
        max_size=12,
    ),
    st.integers(1, 3),
)


def test_no_request_crashes_the_keeper_whatever_its_bytes_and_descriptors(node: Node, keeper: Keeper) -> None:
    files = open_files(keeper.process.pid).keys()

    @settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.binary(min_size=1, max_size=300) | REQUESTS, st.integers(0, FDS_MAX + 3))
    def try_one(request: bytes, descriptors: int) -> None:
        with launch.connect(str(keeper.state)) as client, open("/dev/null") as file:
            socket.send_fds(client, [request], [file.fileno()] * descriptors)
            answer, received = launch.receive(client)
            assert fields.decode(answer).kind != "exitd-spawned" and received == []

    try_one()
    keeper.settle()
    for number in range(20):
        keeper.acknowledge(f"box{number}")
    assert keeper.alive
    # A connection that was closed is noticed before the next request is answered.
    assert open_files(keeper.process.pid).keys() <= files | {max(files) + 1}


def test_a_message_beyond_the_limit_is_refused_and_its_descriptors_are_closed(keeper: Keeper) -> None:
    files = open_files(keeper.process.pid)
    long = fields.encode("exitd-hello", [("x", "y" * 9000)])
    with open("/dev/null") as file, pytest.raises(launch.KeeperRefused):
        assert keeper.socket is not None
        launch.ask(keeper.socket, long, [file.fileno()])
    keeper.settle()
    assert open_files(keeper.process.pid) == files


def test_a_client_that_never_reads_is_dropped_and_the_others_are_served(node: Node, keeper: Keeper) -> None:
    with launch.connect(str(keeper.state)) as deaf:
        deaf.settimeout(LIMIT_SECONDS)
        with pytest.raises(OSError):
            for _ in range(100_000):
                deaf.send(fields.encode("exitd-list", []))
    keeper.settle()
    assert keeper.alive


def test_requests_of_a_connection_that_was_closed_are_dropped(node: Node, keeper: Keeper) -> None:
    with launch.connect(str(keeper.state)) as client:
        launch.ask(client, fields.encode("exitd-list", []), [])
        keeper.process.send_signal(signal.SIGSTOP)
        stopped = os.waitid(os.P_PID, keeper.process.pid, os.WSTOPPED | os.WNOWAIT)  # not there when it is sent
        assert stopped is not None and stopped.si_code == os.CLD_STOPPED
        # More than its receive buffer takes without its ever looking: these wait in the socket.
        client.send(fields.encode("exitd-upgrade", []))
    keeper.process.send_signal(signal.SIGCONT)
    keeper.settle()
    assert keeper.socket is not None
    hello(keeper)  # the same connection: there was no upgrade


def test_600_clients_are_all_served_when_it_is_their_turn(keeper: Keeper) -> None:
    clients = [launch.connect(str(keeper.state), LIMIT_SECONDS) for _ in range(600)]
    question = fields.encode("exitd-list", [("at", 0)])
    for client in clients[: CLIENTS_MAX - 1]:
        assert launch.ask(client, question, [])[0].kind == "exitd-ok"
    for client in clients[:100]:
        client.close()
    for client in clients[100:]:
        assert launch.ask(client, question, [])[0].kind == "exitd-ok"
        client.close()
    keeper.settle()


def test_a_keeper_without_descriptors_refuses_but_loses_no_exit(node: Node) -> None:
    keeper = node.keeper()
    bundle = node.bundle("/bin/sh", "-c", "exit 43")
    run = keeper.make("box", bundle)
    run.kill_shim()
    before = resource.prlimit(keeper.process.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(keeper.process.pid, resource.RLIMIT_NOFILE, (40, before[1]))
    crowd = [launch.connect(str(keeper.state), 0.2) for _ in range(60)]
    for client in crowd:
        with contextlib.suppress(OSError):
            launch.ask(client, fields.encode("exitd-list", []), [])
    assert len(open_files(keeper.process.pid)) == 40
    with pytest.raises(launch.KeeperRefused):
        keeper.make("second", bundle)
    keeper.last.clean()
    run.start()
    assert run.ended()
    keeper.settle()
    assert [entry.code for entry in keeper.entries()] == [43]
    for client in crowd:
        client.close()
    resource.prlimit(keeper.process.pid, resource.RLIMIT_NOFILE, before)
    keeper.settle()
    third = keeper.make("third", bundle)
    third.start()
    assert wait_readable(third.shim_pidfd)
    finish(node, keeper, run, third)
    keeper.close()


def test_a_second_keeper_for_the_same_directory_ends_with_4(node: Node, keeper: Keeper) -> None:
    command = [str(programs.find("exitd-keeper")), "--state", str(node.state), "--stay"]
    assert subprocess.run(command, timeout=LIMIT_SECONDS).returncode == 4
    assert hello(keeper).number("pid") == keeper.process.pid


@pytest.mark.parametrize("words", [[], ["--state"], ["--state", "relative"], ["--what"], ["--state", "/" + "x" * 70]])
def test_a_keeper_called_wrongly_ends_with_3(words: list[str]) -> None:
    done = subprocess.run([programs.find("exitd-keeper"), *words], timeout=LIMIT_SECONDS)
    assert done.returncode == 3


def test_a_keeper_ends_by_itself_when_nothing_is_left_to_keep_and_not_with_an_exit_in_its_journal(node: Node) -> None:
    bundle = node.bundle("/bin/sh", "-c", "exit 43")
    full, empty = node.keeper(stay=False), Keeper(node.directory / "t", stay=False)
    assert empty.connect()
    runs, pidfds = [], []
    for keeper in (full, empty):
        assert keeper.process.wait(LIMIT_SECONDS) == 0
        pidfds.append(os.pidfd_open(hello(keeper).number("pid")))
        run = keeper.make("box", bundle)
        run.kill_shim()
        run.start()
        assert run.ended()
        keeper.settle()
        runs.append(run)
    finish(node, empty, runs[1])
    full.close()
    assert not wait_readable(pidfds[1], 0.1)
    empty.close()
    assert wait_readable(pidfds[1], 15)
    assert {path.name for path in empty.state.iterdir()} == {"c", "keeper.lock"}
    assert not wait_readable(pidfds[0], 0.5)
    full.socket = launch.connect(str(full.state))
    finish(node, full, runs[0])
    signal.pidfd_send_signal(pidfds[0], signal.SIGKILL)
    for pidfd in pidfds:
        assert wait_readable(pidfd)
        os.close(pidfd)
    full.close()


def test_another_user_is_refused(node: Node, keeper: Keeper) -> None:
    node.directory.chmod(0o755)
    node.state.chmod(0o755)
    (node.state / "keeper.sock").chmod(0o777)
    script = (
        "import os, socket, sys; os.setgid(65534); os.setuid(65534)\n"
        "s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); s.settimeout(10); s.connect(sys.argv[1])\n"
        "try: s.send(b'exitd-hello 1\\0end\\0'); sys.exit(len(s.recv(1000)))\n"
        "except ConnectionError: sys.exit(0)\n"
    )
    # The system's Python: the one of the tests may lie in a directory that others cannot enter.
    words = ["/usr/bin/python3", "-I", "-c", script, str(node.state / "keeper.sock")]
    assert subprocess.run(words, timeout=LIMIT_SECONDS).returncode == 0
    assert hello(keeper).number("pid") == keeper.process.pid


def test_a_killed_keepers_shims_live_on_and_a_new_keeper_takes_its_place(node: Node) -> None:
    first = node.keeper()
    run = first.make("box", node.bundle("/bin/sh", "-c", "echo out; exit 43"))
    first.process.kill()
    first.process.wait(LIMIT_SECONDS)
    assert (node.state / "keeper.sock").is_socket()
    second = node.keeper()
    until(lambda: hello(second).number("runs") == 1, "its shim does not register anew")
    assert not wait_readable(run.shim_pidfd, 0)
    run.start()
    assert wait_readable(run.shim_pidfd)
    written = run.record()
    assert written is not None and written.code == 43
    assert run.output() == b"out\n"
    finish(node, second, run)
    assert len(list(node.state.glob("keeper-*.journal"))) == 2
    first.close()
    second.close()


def test_a_shim_on_a_stopped_keeper_goes_on_without_it(node: Node, keeper: Keeper) -> None:
    answered = f'until grep -q "^State:.S" /proc/{keeper.process.pid}/status; do :; done'  # and asleep again
    trap = node.script(f'{answered}\nkill -STOP {keeper.process.pid}\nexec runc "$@"')
    run = keeper.make("box", node.bundle("/bin/sh", "-c", "exit 43"), create=trap)
    assert not run.created.keeper_knows
    run.start()
    assert wait_readable(run.shim_pidfd)
    keeper.process.send_signal(signal.SIGCONT)
    keeper.settle()
    written = run.record()
    assert written is not None and written.code == 43
    assert keeper.entries() == []
    finish(node, keeper, run)


def test_an_orphan_that_nobody_registered_is_reaped_without_an_entry(node: Node, keeper: Keeper) -> None:
    script = "setsid sleep 1000 & echo up; exec sleep 1000"
    run = keeper.make("box", node.bundle("/bin/sh", "-c", script, host_pids=True))
    run.start()
    run.wait_output()
    run.kill_shim()
    keeper.settle()
    assert run.created.pid in children_of(keeper.process.pid)
    for pid in cgroup_pids(node.cgroup):
        end_process(pid)
    keeper.settle()
    assert children_of(keeper.process.pid) == []
    assert [entry.signal for entry in keeper.entries()] == [signal.SIGKILL]
    finish(node, keeper, run)
