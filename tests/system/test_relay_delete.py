"""`delete`: how a container ended, from exitd or, while it is away, from what its shim has written; never a guess."""

import fcntl
import os
import pathlib
import signal
import threading
import time

import pytest

from shim import fields, record
from tests.shim import relaywords
from tests.shim.relaywords import REQUEST, RESPONSE, Frame, call, failure, number, success, text
from tests.system.processes import killed, open_files
from tests.system.relay import SOCKETS, Relays, container
from tests.system.waits import until

SERVICE = "exitd.shimv2.Relay"


def told(data: bytes) -> tuple[int, int, float]:
    """pid, status and time of a DeleteResponse."""
    found = dict(relaywords.fields(data))
    stamp = found[3]
    assert isinstance(stamp, bytes)
    when = dict(relaywords.fields(stamp))
    pid, status, seconds, nanos = found.get(1, 0), found.get(2, 0), when.get(1, 0), when.get(2, 0)
    assert isinstance(pid, int) and isinstance(status, int) and isinstance(seconds, int) and isinstance(nanos, int)
    return pid, status, seconds + nanos / 1e9


def gone_words(relays: Relays) -> list[dict[str, str]]:
    """What was left for exitd."""
    found = sorted((relays.state / "shimv2" / "gone").glob("*"))
    return [dict(fields.decode(path.read_bytes(), "gone").pairs) for path in found]


def test_exitd_is_asked_and_its_answer_is_printed(relays: Relays) -> None:
    bundle, exitd = relays.bundle("c1"), relays.exitd()
    said: list[tuple[bytes, str, float]] = []
    thread = threading.Thread(target=lambda: said.append(relays.delete(bundle)))
    thread.start()
    peer = exitd.accept()
    payload = text(1, "ns") + text(2, "c1") + text(3, str(bundle.directory))
    assert peer.next() == Frame(1, REQUEST, 0, call("Cleanup", payload, SERVICE, 3_000_000_000))
    answer = number(1, 42) + number(2, 43) + text(3, number(1, 1_700_000_000))
    peer.send(Frame(1, RESPONSE, 0, success(answer)))
    thread.join(20)
    assert said[0][:2] == (answer, "")
    assert not (relays.state / "shimv2").exists()


@pytest.mark.parametrize("trouble", ["refuses", "hangs up", "talks nonsense", "says half of it"])
def test_an_exitd_that_does_not_answer_is_taken_for_away(relays: Relays, trouble: str) -> None:
    bundle, exitd = relays.bundle("c1"), relays.exitd()
    said: list[tuple[bytes, str, float]] = []
    thread = threading.Thread(target=lambda: said.append(relays.delete(bundle)))
    thread.start()
    peer = exitd.accept()
    peer.next()
    match trouble:
        case "refuses":
            peer.send(Frame(1, RESPONSE, 0, failure(14)))
        case "talks nonsense":
            peer.send(Frame(1, RESPONSE, 0, b"\xff\xff"))
        case "says half of it":
            peer.socket.sendall(b"\0\0\0\x09\0\0\0\x01\x02\0half")
    if trouble in ("hangs up", "says half of it"):
        peer.close()
    thread.join(20)
    assert told(said[0][0])[:2] == (0, 255) and said[0][2] < 3
    assert len(gone_words(relays)) == 1


def test_an_exitd_that_says_nothing_is_waited_for_three_seconds_and_containerd_waits_five(relays: Relays) -> None:
    bundle = relays.bundle("c1")
    relays.exitd()
    said, _, seconds = relays.delete(bundle)
    assert told(said)[:2] == (0, 255)
    assert 3 <= seconds < 5


def test_without_exitd_the_container_is_ended_and_its_record_is_reported(relays: Relays) -> None:
    with container(relays) as c:
        c.watched()
        began = time.time()
        said, warned, seconds = relays.delete(c.bundle)
        pid, status, when = told(said)
        assert (pid, status, warned) == (c.init.pid, 128 + signal.SIGKILL, "")
        assert began - 1 < when < time.time() + 1 and seconds < 3
        # The relays's socket is none of containerd's directory, so that no socket is named.
        assert gone_words(relays) == [{"namespace": "ns", "id": "c1", "bundle": str(c.bundle.directory), "socket": ""}]


@pytest.mark.parametrize("calls", [("pidfd_open",), ("open,openat", "-P", "exitd.task")])
def test_without_room_for_a_descriptor_the_container_is_ended_once_there_is_some(
    relays: Relays, calls: tuple[str, ...]
) -> None:
    with container(relays) as c:
        c.watched()
        call, *at = [str(c.bundle.directory / word) if word == "exitd.task" else word for word in calls]
        # Stopped at these calls only: with each one it has left too little of its second for the record.
        tracer = ["strace", "-f", "--seccomp-bpf", "-qq", "-o", "/dev/null", *at]
        tracer += ["-e", f"trace={call}", "-e", f"inject={call}:error=ENFILE:when=1..3"]
        said, warned, _ = relays.delete(c.bundle, tracer=tracer)
        assert (told(said)[:2], warned) == ((c.init.pid, 128 + signal.SIGKILL), "")


def test_a_container_that_has_ended_is_reported_as_it_ended_however_often_one_asks(relays: Relays) -> None:
    with container(relays, "exit 43") as c:
        started = c.started
        assert c.init.wait(20) == 43
        c.record(43, False, started)
        first = relays.delete(c.bundle)[0]
        assert told(first)[:2] == (c.init.pid, 43)
        assert relays.delete(c.bundle)[0] == first


def test_two_deletes_at_once_say_the_same(relays: Relays) -> None:
    # As containerd 1.6 does it, when a task cannot be loaded.
    with container(relays) as c:
        c.watched()
        said: list[tuple[bytes, str, float]] = []
        threads = [threading.Thread(target=lambda: said.append(relays.delete(c.bundle))) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        assert said[0][0] == said[1][0] and told(said[0][0])[1] == 137
        assert len(gone_words(relays)) == 1


def test_an_end_that_nobody_saw_is_255_and_no_137(relays: Relays) -> None:
    with container(relays) as c:
        said, _, seconds = relays.delete(c.bundle)
        assert told(said)[:2] == (c.init.pid, 255)
        assert 0.9 < seconds < 3
        assert c.init.wait(20) == -signal.SIGKILL


def test_a_record_of_another_run_is_not_taken_for_this_one(relays: Relays) -> None:
    with container(relays, "exit 43") as c:
        started = c.started
        c.init.wait(20)
        c.record(43, False, started + 1)
        assert told(relays.delete(c.bundle)[0])[:2] == (c.init.pid, 255)


def test_a_stranger_with_the_pid_is_not_killed(relays: Relays) -> None:
    with container(relays) as c:
        task: list[tuple[str, str | int]] = [
            ("directory", str(c.directory)),
            ("pid", c.init.pid),
            ("started", c.started + 1),
        ]
        (c.bundle.directory / "exitd.task").write_bytes(fields.encode("task", task))
        assert told(relays.delete(c.bundle)[0])[1] == 255
        assert c.init.poll() is None


@pytest.mark.parametrize("code", [0, 43, 137, 255])
def test_an_end_that_exitd_has_left_in_the_bundle_is_reported_without_its_record(relays: Relays, code: int) -> None:
    with container(relays) as c:
        c.leave_end(code, 1_700_000_000_250_000_000)
        (c.directory / record.NAME).unlink()
        said, warned, seconds = relays.delete(c.bundle)
        assert (*told(said), warned) == (c.init.pid, code, 1_700_000_000.25, "")
        assert min(seconds, *(relays.delete(c.bundle)[2] for _ in range(4))) < 1  # one that waits does so every time
        assert c.init.poll() is None  # a stranger by then, who has the pid: he is not even looked at


@pytest.mark.parametrize(("code", "at_ns"), [("256", "1"), ("-1", "1"), ("x", "1"), ("7", "0"), ("7", str(1 << 63))])
def test_an_end_in_the_bundle_that_is_none_is_not_reported(relays: Relays, code: str, at_ns: str) -> None:
    with container(relays) as c:
        c.leave_end(code, at_ns)
        pid, status, _ = told(relays.delete(c.bundle)[0])
        assert (pid, status) == (c.init.pid, 255)


@pytest.mark.parametrize("left", ["no task", "no config", "no bundle", "no state", "nonsense"])
def test_whatever_is_missing_delete_succeeds(relays: Relays, left: str) -> None:
    bundle = relays.bundle("c1")
    began = time.time()
    match left:
        case "no config":
            (bundle.directory / "config.json").unlink()
        case "no bundle":
            for path in bundle.directory.iterdir():
                path.unlink()
            bundle.directory.rmdir()
        case "no state":
            relays.state.rmdir()
        case "nonsense":
            (bundle.directory / "exitd.task").write_bytes(b"task 1\0pid=1\0end\0")
    said, warned, seconds = relays.delete(bundle, relays.directory)
    pid, status, when = told(said)
    assert (pid, status) == (0, 255) and began - 1 < when < time.time() + 1 and seconds < 3
    assert bool(warned) == (left in ("no state", "nonsense"))


def test_the_socket_of_a_relay_that_was_killed_is_removed_and_that_of_a_live_one_stays(relays: Relays) -> None:
    bundle = relays.bundle("c1")
    relays.start(bundle)
    relays.delete(bundle)
    assert relays.socket("c1").exists()
    killed(relays.living()[0])
    relays.delete(bundle)
    assert not relays.socket("c1").exists()


def waits_for_a_lock(relays: Relays) -> bool:
    """Whether one of these programs does, by proc_locks(5)."""
    waiting = (line.split() for line in pathlib.Path("/proc/locks").read_text().splitlines() if " -> " in line)
    return not {int(words[words.index("->") + 4]) for words in waiting}.isdisjoint(relays.living())


def test_the_socket_of_a_relay_that_was_killed_is_removed_although_a_start_has_the_lock_for_a_while(
    relays: Relays,
) -> None:
    bundle = relays.bundle("c1")
    relays.start(bundle)
    killed(relays.living()[0])
    lock = os.open(SOCKETS, os.O_RDONLY | os.O_DIRECTORY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    deleting = threading.Thread(target=relays.delete, args=(bundle,))
    deleting.start()
    try:
        until(lambda: waits_for_a_lock(relays), "it does not wait")  # and it waits for no more than 1.5 s
        assert deleting.is_alive() and relays.socket("c1").exists()
    finally:
        os.close(lock)
        deleting.join()
    assert not relays.socket("c1").exists()


def test_an_answer_of_exitd_does_not_wait_for_the_lock_for_long(relays: Relays) -> None:
    bundle = relays.bundle("c1")
    relays.start(bundle)
    killed(relays.living()[0])
    exitd = relays.exitd()
    lock = os.open(SOCKETS, os.O_RDONLY | os.O_DIRECTORY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    said: list[tuple[bytes, str, float]] = []
    deleting = threading.Thread(target=lambda: said.append(relays.delete(bundle)))
    deleting.start()
    try:
        peer = exitd.accept()
        peer.next()
        answer = number(1, 42) + number(2, 43) + text(3, number(1, 1_700_000_000))
        peer.send(Frame(1, RESPONSE, 0, success(answer)))
    finally:
        deleting.join()
        os.close(lock)
    assert said[0][:2] == (answer, "") and said[0][2] < 3
    relays.delete(bundle)
    assert not relays.socket("c1").exists()


@pytest.mark.parametrize("before", ["unix://", "unix:///run/containerd/s/../../..", "", "/"])
def test_no_other_file_is_removed_whatever_the_bundle_says(relays: Relays, before: str) -> None:
    bundle, bait = relays.bundle("c1"), relays.directory / "bait"
    bait.touch()
    (bundle.directory / "address").write_text(f"{before}{bait}")
    relays.delete(bundle)
    assert bait.exists()


def test_fifty_killed_relays_leave_no_socket_and_no_process(relays: Relays) -> None:
    before = len(open_files())
    for n in range(50):
        bundle = relays.bundle(f"c{n}")
        relays.start(bundle)
        killed(relays.living()[0])
        relays.delete(bundle)
        os.close(relays.bundles.pop().log_fd)
    assert [path for path in relays.sockets if path.exists()] == []
    until(lambda: not relays.living(), "none is left")
    assert len(open_files()) <= before  # fewer: what another test has left to the collector
