"""A shim's streams on a real runc: who is attached, what he gets and gives, and that nobody stops another."""

import errno
import os
import signal

import pytest

from tests.system.keepers import Keeper, Node
from tests.system.processes import private_kb
from tests.system.streams import Attached, attached, control, finish, kill_container, log_of, make, texts
from tests.system.waits import until, wait_readable

COUNT = "seq 1 100000"
COUNTED = b"".join(b"%d\n" % i for i in range(1, 100001))
NEVER = "exec sleep 1000"


def test_an_attached_client_and_the_log_both_get_every_byte_and_then_the_end(node: Node, keeper: Keeper) -> None:
    run = make(keeper, "box", node.bundle("/bin/sh", "-c", f"{COUNT}; printf oops >&2"))
    with attached(run) as client, control(run) as other:
        run.start()
        assert client.read_to_end() == COUNTED
        assert client.read_to_end("err") == b"oops"
        for connection in (client.control, other):
            told = connection.farewell()
            assert (told.number("out"), told.number("missed_session")) == (len(COUNTED), 0)
    assert wait_readable(run.shim_pidfd)
    assert (texts(log_of(run)), texts(log_of(run), "stderr")) == (COUNTED, b"oops")
    assert not (run.directory / "control.sock").exists()
    finish(node, keeper, run)


def test_interleaved_streams_keep_their_own_order_to_the_byte(node: Node, keeper: Keeper) -> None:
    script = "i=0; while [ $i -lt 3000 ]; do echo out $i; echo err $i >&2; i=$((i+1)); done"
    run = make(keeper, "box", node.bundle("/bin/sh", "-c", script))
    run.start()
    assert wait_readable(run.shim_pidfd)
    for name, stream in (("out", "stdout"), ("err", "stderr")):
        assert texts(log_of(run), stream) == b"".join(b"%s %d\n" % (name.encode(), i) for i in range(3000))
    finish(node, keeper, run)


def test_input_of_an_attached_client_arrives_and_its_end_is_not_the_containers(node: Node, keeper: Keeper) -> None:
    run = make(keeper, "box", node.bundle("/bin/sh", "-c", "wc -c; exit 43"), stdin=True)
    run.start()
    for part in (b"x" * 300_000, b"y"):
        with attached(run, "in") as client:
            client.write(part)
            client.close("in")
            until(lambda: client.control.count("in_session") == len(part), "the input moves")  # noqa: B023
    with control(run) as other:
        assert (other.count("in"), run.ended(0)) == (300_001, False)
        other.ok("close-stdin")
    assert wait_readable(run.shim_pidfd)
    assert texts(log_of(run)) == b"300001\n"
    finish(node, keeper, run)


def test_stdin_is_closed_behind_what_was_sent_before(node: Node, keeper: Keeper) -> None:
    bundle = node.bundle("/bin/sh", "-c", "until [ -e /go ]; do sleep 0.02; done; wc -c")
    run = make(keeper, "box", bundle, stdin=True)
    run.start()
    with attached(run, "in") as client:
        client.write(b"z" * 100_000)  # more than the container's pipe holds: the rest waits in ours
        client.control.ok("close-stdin")
        assert client.control.refused("attach", streams="in", mode="drop") == errno.EBUSY
        (bundle / "rootfs/go").touch()
        assert wait_readable(run.shim_pidfd)
    assert texts(log_of(run)) == b"100000\n"
    finish(node, keeper, run)


def test_a_container_that_closes_its_stdin_takes_no_more(node: Node, keeper: Keeper) -> None:
    run = make(keeper, "box", node.bundle("/bin/sh", "-c", "exec <&-; echo closed; exec sleep 1000"), stdin=True)
    with attached(run, "in,out") as client:
        run.start()
        client.read_until(b"closed")
        client.write(b"x")
        with pytest.raises(BrokenPipeError):
            until(lambda: client.write(b"x"), "the pipe breaks")
        with control(run) as other:
            assert other.refused("close-stdin") == errno.EPIPE
    kill_container(run)
    finish(node, keeper, run)


def test_a_client_that_never_reads_loses_its_part_and_stops_nobody(node: Node, keeper: Keeper) -> None:
    script = f"{COUNT}; {COUNT}; {COUNT}; {COUNT}"
    run = make(keeper, "box", node.bundle("/bin/sh", "-c", f"{script}; read line; exit 43"), stdin=True)
    with attached(run, "in,out", "drop") as idle, attached(run) as client:
        run.start()
        got = b""
        while len(got) < 4 * len(COUNTED):
            got += client.read()
        until(lambda: idle.control.count("out") == 4 * len(COUNTED), "all of it")
        assert idle.control.count("dropped") > 4 * len(COUNTED) - (1 << 20) - 200_000
        idle.write(b"go\n")
        assert run.ended()
    assert wait_readable(run.shim_pidfd)
    assert texts(log_of(run)) == 4 * COUNTED
    finish(node, keeper, run)


def test_a_client_that_must_have_all_stops_the_container_until_it_reads_or_goes(node: Node, keeper: Keeper) -> None:
    run = make(keeper, "box", node.bundle("/bin/sh", "-c", f"{COUNT}; {COUNT}"), buffer=65536)
    with attached(run, "out") as client:
        run.start()
        assert not run.ended(0.2)
        assert client.read(100_000)
        assert not run.ended(0.1)
        assert client.control.count("dropped") == 0
    assert run.ended()
    assert wait_readable(run.shim_pidfd)
    assert texts(log_of(run)) == 2 * COUNTED
    finish(node, keeper, run)


def test_a_client_that_stands_still_at_the_end_costs_the_drain_limit_and_no_byte_of_the_log(
    node: Node, keeper: Keeper
) -> None:
    run = make(keeper, "box", node.bundle("/bin/sh", "-c", "seq 1 22000"), buffer=65536, drain_ms=200)
    with attached(run, "out") as client:
        run.start()
        assert run.ended()
        assert wait_readable(run.shim_pidfd)
        got, wanted = client.read_to_end(), b"".join(b"%d\n" % i for i in range(1, 22001))
        assert wanted.startswith(got)
        assert client.control.farewell().number("missed_session") == len(wanted) - len(got)
    assert texts(log_of(run)) == b"".join(b"%d\n" % i for i in range(1, 22001))
    finish(node, keeper, run)


def test_sixteen_may_be_attached_and_a_killed_one_makes_room(node: Node, keeper: Keeper) -> None:
    run = make(keeper, "box", node.bundle("/bin/sh", "-c", f"read line; echo $line; {NEVER}"), stdin=True)
    run.start()
    clients = [Attached(run, "in,out") for _ in range(16)]
    with control(run) as other:
        assert other.count("attached") == 16
        read_fd, write_fd = os.pipe()
        assert other.refused("attach", [write_fd], streams="out", mode="drop") == errno.EUSERS
        clients.pop().close()
        until(lambda: other.count("attached") == 15, "the client goes")
        other.ok("attach", [write_fd], streams="out", mode="drop")
        os.close(write_fd)
        clients[3].write(b"hello\n")
        assert all(client.read_until(b"\n") == b"hello\n" for client in clients)
        assert os.read(read_fd, 100) == b"hello\n"
        os.close(read_fd)
    for client in clients:
        client.close()
    kill_container(run)
    finish(node, keeper, run)


def test_requests_that_make_no_sense_are_refused_and_change_nothing(node: Node, keeper: Keeper) -> None:
    run = make(keeper, "box", node.bundle("/bin/sh", "-c", NEVER))
    run.start()
    read_fd, write_fd = os.pipe()
    with control(run) as other, open("/dev/null", "w") as null:
        assert other.refused("dance") == errno.ENOSYS
        assert other.refused("end") == errno.ENOSYS  # its init is its own: it sees the end by itself
        assert other.refused("resize", rows=24, cols=80) == errno.ENOTTY
        assert other.refused("close-stdin") == errno.EPIPE
        for fds, streams, mode in (
            ([write_fd], "out", "sometimes"),
            ([write_fd], "everything", "drop"),
            ([write_fd], "out,out", "drop"),
            ([write_fd], "", "drop"),
            ([], "out", "drop"),
            ([write_fd, write_fd], "out", "drop"),
            ([read_fd], "out", "drop"),
            ([null.fileno()], "out", "drop"),
        ):
            assert other.refused("attach", fds, streams=streams, mode=mode) == errno.EINVAL, (streams, mode)
        assert other.refused("attach", [read_fd], streams="in", mode="drop") == errno.EPIPE
        other.socket.send(b"no fields at all")
        assert b"exitd-refused" in other.socket.recv(4096)
        assert other.count("attached") == 0
    os.close(read_fd)
    os.close(write_fd)
    kill_container(run)
    finish(node, keeper, run)


def test_the_output_of_an_exec_is_held_until_somebody_attaches(node: Node, keeper: Keeper) -> None:
    run = make(keeper, "box", node.bundle("/bin/sh", "-c", "echo early; exit 43"), hold_ms=20_000)
    run.start()
    assert run.ended()
    assert not wait_readable(run.shim_pidfd, 0.1)
    with attached(run) as client:
        assert client.read_to_end() == b"early\n"
    assert wait_readable(run.shim_pidfd)
    finish(node, keeper, run)


def test_output_is_held_no_longer_than_the_plan_says(node: Node, keeper: Keeper) -> None:
    run = make(keeper, "box", node.bundle("/bin/sh", "-c", "echo early"), hold_ms=100)
    run.start()
    assert wait_readable(run.shim_pidfd)
    assert texts(log_of(run)) == b"early\n"
    finish(node, keeper, run)


def test_a_clients_fifos_are_served_and_stay_open_when_it_goes_and_comes(node: Node, keeper: Keeper) -> None:
    paths = {name: node.directory / name for name in ("in", "out", "err")}
    for path in paths.values():
        os.mkfifo(path)
    keys = {"sink_out": str(paths["out"]), "sink_err": str(paths["err"]), "in_from": str(paths["in"])}
    script = "while read line; do echo got $line; echo err $line >&2; done; exit 43"
    run = make(keeper, "box", node.bundle("/bin/sh", "-c", script), stdin=True, **keys)
    run.start()
    for word in (b"one", b"two"):
        paths["in"].write_bytes(word + b"\n")
        for name, says in (("out", b"got "), ("err", b"err ")):
            fd = os.open(paths[name], os.O_RDONLY | os.O_NONBLOCK)
            assert wait_readable(fd)
            assert os.read(fd, 100) == says + word + b"\n"
            os.close(fd)
    with control(run) as other:
        other.ok("close-stdin")
    assert wait_readable(run.shim_pidfd)
    assert texts(log_of(run)) == b"got one\ngot two\n"
    finish(node, keeper, run)


def test_a_client_that_opens_its_fifo_when_all_has_ended_still_gets_what_was_written(
    node: Node, keeper: Keeper
) -> None:
    os.mkfifo(path := node.directory / "out")
    run = make(keeper, "box", node.bundle("/bin/sh", "-c", "echo all"), sink_out=str(path), drain_ms=60_000)
    run.start()
    assert wait_readable(run.fifo_fd)
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    assert wait_readable(fd)  # the end is reported before what is in the pipe is moved
    assert os.read(fd, 100) == b"all\n"
    os.close(fd)
    assert wait_readable(run.shim_pidfd)
    finish(node, keeper, run)


def test_a_fifo_that_is_not_there_fails_the_create(node: Node, keeper: Keeper) -> None:
    run = make(keeper, "box", node.bundle("/bin/true"), sink_out=str(node.directory / "nothing"))
    assert (run.failed.stage, run.failed.errno) == ("streams", errno.ENOENT)
    finish(node, keeper, run)


LOGGER = """exec 5>&-
cat <&3 >{0}/logger.out
cat <&4 >{0}/logger.err
env >{0}/logger.env"""


def test_a_logger_gets_both_streams_its_own_environment_and_time_to_write_the_rest(node: Node, keeper: Keeper) -> None:
    program = node.script(LOGGER.format(node.directory))
    script = f"{COUNT}; echo oops >&2"
    run = make(keeper, "box", node.bundle("/bin/sh", "-c", script), logger=(program,), logger_env=("A=1 2",))
    run.start()
    assert wait_readable(run.shim_pidfd)
    said = {name: (node.directory / f"logger.{name}").read_bytes() for name in ("out", "err", "env")}
    assert (said["out"], said["err"]) == (COUNTED, b"oops\n")
    assert b"A=1 2\n" in said["env"] and b"EXITD" not in said["env"]
    finish(node, keeper, run)


@pytest.mark.parametrize(("text", "number"), [("exit 1", errno.EPIPE), ("", errno.ENOENT)])
def test_a_logger_that_does_not_come_up_fails_the_create(node: Node, keeper: Keeper, text: str, number: int) -> None:
    program = node.script(text) if text else "/nowhere/logger"
    run = make(keeper, "box", node.bundle("/bin/true"), logger=(program,))
    assert (run.failed.stage, run.failed.errno) == ("logger", number)
    finish(node, keeper, run)


def test_a_logger_that_hangs_is_killed_with_the_drain_limit_and_holds_nobody_up(node: Node, keeper: Keeper) -> None:
    program = node.script("exec 5>&-; exec sleep 1000")
    run = make(
        keeper, "box", node.bundle("/bin/sh", "-c", COUNT), logger=(program,), drain_ms=200, log_mode="non-blocking"
    )
    run.start()
    assert wait_readable(run.shim_pidfd)
    assert texts(log_of(run)) == COUNTED
    finish(node, keeper, run)


def test_a_logger_that_dies_stops_nobody_and_the_log_has_all(node: Node, keeper: Keeper) -> None:
    """Although the container would wait for it as long as it lives."""
    program = node.script(f"exec 5>&-; head -n 1 <&3 >{node.directory}/logger.out")
    script = f"{COUNT}; while [ ! -e /go ]; do sleep 0.02; done; {COUNT}; exit 43"
    bundle = node.bundle("/bin/sh", "-c", script)
    run = make(keeper, "box", bundle, logger=(program,), log_mode="blocking", buffer=65_536)
    run.start()
    log = run.directory / "log"  # made when the logger is seen dead
    until(lambda: log.exists() and log_of(run).endswith(b" 100000\n"), "the first half")
    assert texts(log_of(run)) == COUNTED
    assert (node.directory / "logger.out").read_bytes() == b"1\n"
    (bundle / "rootfs/go").touch()
    assert wait_readable(run.shim_pidfd)
    assert texts(log_of(run)) == COUNTED * 2
    written = run.record()
    assert written is not None and written.code == 43
    finish(node, keeper, run)


def test_the_memory_that_output_took_is_given_back(node: Node, keeper: Keeper) -> None:
    run = make(keeper, "box", node.bundle("/bin/sh", "-c", f"{COUNT}; {NEVER}"), stdin=True)
    idle = private_kb(run.shim_pid)
    with attached(run, "out", "lossless") as client:
        run.start()
        until(lambda: client.control.count("out") == len(COUNTED), "the output")
        busy = private_kb(run.shim_pid)
        client.read_until(b"\n100000\n")
        until(lambda: private_kb(run.shim_pid) <= idle + 20, "the memory is given back")
    print(f"idle {idle} kB, with a client behind {busy} kB, afterwards {private_kb(run.shim_pid)} kB")
    assert busy > 500
    kill_container(run)
    finish(node, keeper, run)


def test_the_control_socket_is_this_users_alone(node: Node, keeper: Keeper) -> None:
    run = make(keeper, "box", node.bundle("/bin/sh", "-c", NEVER))
    assert (run.directory / "control.sock").stat().st_mode & 0o777 == 0o600
    signal.pidfd_send_signal(run.created.pidfd, signal.SIGKILL)
    assert wait_readable(run.shim_pidfd)
    finish(node, keeper, run)
