"""isulad-shim's contract: clients' fifos, terminals, attaching, the log; with real runc."""

import json
import os
import pathlib
import re
from typing import Any

import pytest

from tests.system import tinyroot
from tests.system.isulad import Client, Daemon, Shim, attach, attached
from tests.system.waits import SCALE, wait_readable

COUNT = max(20_000, int(1_000_000 * SCALE))
COUNTED = "".join(f"{n}\n" for n in range(1, COUNT + 1)).encode()
MOST_ATTACHED = 16
MOST_BYTES = 262_144


def with_client(box: Shim) -> Client:
    client = Client(box.state / "start" / "1")
    box.change(**client.fields())
    return client


def entries(path: pathlib.Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def text_of(box: Shim, stream: str) -> str:
    return "".join(entry["log"] for entry in entries(box.bundle / "console.log") if entry["stream"] == stream)


def test_both_streams_reach_the_client_and_the_log_apart_to_the_last_line_without_an_end(isulad: Daemon) -> None:
    turns = "n=0; while [ $n -lt 100 ]; do echo o$n; echo e$n >&2; n=$((n+1)); done"
    box = isulad.container("box", "/bin/sh", "-c", f"seq 1 {COUNT}; {turns}; printf tail; exit 43")
    client = with_client(box)
    box.create().start()
    out, err = client.read_to_end(), client.read_to_end("err")
    assert out == COUNTED + b"".join(b"o%d\n" % n for n in range(100)) + b"tail"
    assert err == b"".join(b"e%d\n" % n for n in range(100))
    assert (box.told(), box.ended()) == (43, 0)
    assert (text_of(box, "stdout").encode(), text_of(box, "stderr").encode()) == (out, err)
    client.close()


def test_every_line_of_the_log_says_its_stream_and_its_time(isulad: Daemon) -> None:
    box = isulad.container("box", "/bin/sh", "-c", "echo one").create()
    box.start()
    assert box.told() == 0
    (entry,) = entries(box.bundle / "console.log")
    assert set(entry) == {"log", "stream", "time"} and (entry["log"], entry["stream"]) == ("one\n", "stdout")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z", entry["time"])


@pytest.mark.parametrize(("most", "files"), [(3, ["", ".1", ".2"]), (None, ["", ".1"])])
def test_a_log_is_rotated_into_just_as_many_files_as_there_may_be(
    isulad: Daemon, most: int | None, files: list[str]
) -> None:
    box = isulad.container("box", "/bin/sh", "-c", f"seq 1 {COUNT}", logMaxsize=MOST_BYTES, logMaxfile=most).create()
    box.start()
    assert box.told() == 0
    found = sorted(path.name for path in box.bundle.glob("console.log*"))
    assert found == [f"console.log{suffix}" for suffix in files]
    assert all((box.bundle / name).stat().st_size <= MOST_BYTES for name in found)
    kept = "".join(entry["log"] for suffix in reversed(files) for entry in entries(box.bundle / f"console.log{suffix}"))
    assert COUNTED.decode().endswith(kept) and kept


def test_stdin_is_at_its_end_when_nobody_could_write_to_it(isulad: Daemon) -> None:
    box = isulad.container("box", "/bin/sh", "-c", "cat; exit 7").create()
    box.start()
    assert box.told() == 7


def test_what_a_client_writes_arrives_and_its_end_is_stdins(isulad: Daemon) -> None:
    box = isulad.container("box", "/bin/sh", "-c", "cat; exit 7", open_stdin=True)
    client = with_client(box)
    box.create().start()
    data = os.urandom(500_000)
    got = b""
    for at in range(0, len(data), 50_000):
        client.write(data[at : at + 50_000])
        while len(got) < at + 50_000:
            got += client.read()
    assert got == data
    client.close("in")
    assert box.told() == 7
    client.close()


def test_a_client_that_goes_costs_the_container_nothing(isulad: Daemon) -> None:
    box = isulad.container("box", "/bin/sh", "-c", f"echo up; read go </go; seq 1 {COUNT}; exit 43")
    os.mkfifo(box.bundle / "rootfs" / "go")
    client = with_client(box)
    box.create().start()
    client.read_until(b"up\n")
    client.close()
    (box.bundle / "rootfs" / "go").write_text("go\n")
    assert (box.told(), box.ended()) == (43, 0)
    assert text_of(box, "stdout").encode() == b"up\n" + COUNTED


def test_a_client_that_reads_late_stops_the_container_and_loses_nothing(isulad: Daemon) -> None:
    count = 400_000  # more than all pipes and buffers on the way hold
    box = isulad.container("box", "/bin/sh", "-c", f"seq 1 {count}; exit 43")
    client = with_client(box)
    box.create().start()
    # What is in the log is at most a buffer ahead of who reads nothing: it stops growing, and init lives.
    log, sizes = box.bundle / "console.log", [-1, 0]
    while sizes[-1] != sizes[-2] or not sizes[-1]:
        assert not wait_readable(box.fifo_fd, 0.3), "the container did not wait"
        sizes.append(log.stat().st_size if log.exists() else 0)
    assert client.read_to_end() == "".join(f"{n}\n" for n in range(1, count + 1)).encode()
    assert box.told() == 43
    client.close()


def test_fifos_that_are_not_there_are_passed_over(isulad: Daemon) -> None:
    gone: dict[str, Any] = {name: str(isulad.base / "gone") for name in ("isuladStdin", "isuladStdout", "isuladStderr")}
    box = isulad.container("box", "/bin/sh", "-c", "cat; echo out; exit 7", **gone).create()
    box.start()
    assert (box.told(), box.output()) == (7, "out\n")


def test_a_terminal_has_the_documents_size_and_echoes_what_a_client_types(isulad: Daemon) -> None:
    size = {"height": 33, "width": 44}
    box = isulad.container(
        "box", "/bin/sh", "-c", "stty size; read line; echo got $line; exit 43", terminal=True, consoleSize=size
    )
    tinyroot.make(box.bundle / "rootfs", ("stty",))
    client = with_client(box)
    box.create().start()
    client.read_until(b"33 44\r\n")
    client.write(b"hello\n")
    assert client.read_to_end() == b"hello\r\ngot hello\r\n"
    assert (box.told(), box.ended()) == (43, 0)
    assert box.output() == "33 44\r\nhello\r\ngot hello\r\n"
    client.close()


def test_many_are_attached_and_one_who_goes_makes_room(isulad: Daemon) -> None:
    script = "while read l; do echo $l; echo $l >&2; done"
    box = isulad.container("box", "/bin/sh", "-c", script, open_stdin=True).create()
    box.start()
    clients = [attached(box, str(n)) for n in range(MOST_ATTACHED)]
    clients[3].write(b"one\n")
    assert [client.read_until(b"\n") + client.read_until(b"\n", "err") for client in clients] == [b"one\none\n"] * 16
    late = Client(box.state / "attach" / "late")
    paths = " ".join(map(str, late.paths))
    assert attach(box, paths) == -1
    clients.pop().close()
    clients[0].write(b"two\n")  # the end of a reader is seen at the latest when it is written to
    assert clients[0].read_until(b"two\n")
    assert attach(box, paths) == 0
    late.write(b"three\n")
    late.read_until(b"three\n")
    clients[0].close("in")  # an attached client's end is its own
    late.write(b"four\n")
    late.read_until(b"four\n")
    box.signal(9)
    assert box.told() == 137
    assert late.read_to_end() == b""
    for client in [*clients, late]:
        client.close()
    assert box.output().startswith("one\none\ntwo\n")


def test_who_attaches_must_name_three_fifos_of_ours_in_the_state_directory(isulad: Daemon) -> None:
    box = isulad.container("box", "/bin/sleep", "1000").create()
    box.start()
    good = Client(box.state / "attach" / "good")
    paths = [str(path) for path in good.paths]
    outside = Client(isulad.base / "outside")
    (plain := box.state / "plain").touch(0o600)
    (link := box.state / "link").symlink_to(outside.paths[1])
    os.mkfifo(loose := box.state / "loose", 0o600)
    loose.chmod(0o644)
    up = f"{box.state}/../../outside/out"
    for bad in (str(outside.paths[1]), str(plain), str(link), str(loose), up, "attach/good/out", str(box.state), ""):
        assert attach(box, f"{paths[0]} {bad} {paths[2]}") == -1, bad
    for message in (paths[0], f"{paths[0]} {paths[1]}", " ".join([*paths, "more"]), "x" * 900):
        assert attach(box, message) == -1, message
    assert attach(box, " ".join(paths)) == 0
    assert (os.stat(box.state / "attach.sock").st_mode & 0o777) == 0o600
    box.signal(9)
    assert box.told() == 137
    good.close()
    outside.close()
