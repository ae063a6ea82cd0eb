"""Attach while shims are killed or stopped and daemons restarted: what was sent arrives, and who waits is told."""

import contextlib
import hashlib
import os
import pathlib
import signal
import subprocess
import time
from collections.abc import Iterator

import pytest

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api.client import Client, Unreachable
from supervisor.model.errors import ShuttingDown
from tests.system import daemons, lives
from tests.system.lives import Reader, attached, created, kill_shim, last_exit, taken, word
from tests.system.processes import state_of, stopped
from tests.system.waits import LIMIT_SECONDS, scaled, until


@pytest.mark.parametrize("tty", [False, True], ids=["pipes", "tty"])
def test_a_killed_shim_does_not_end_an_attach(client: Client, tty: bool) -> None:
    script = f"{'stty -echo;' if tty else ''} echo up; while read x; do echo =$x; done"
    container, it = attached(client, "sh", "-c", script, stdin=True, tty=tty)
    reader = Reader(it)
    reader.until(b"up")
    for text in (b"one", b"two"):
        kill_shim(client, container)
        # It waits in its pipe for the next shim, to which the output is attached as well.
        assert it.write(text + b"\n")
        reader.until(b"=" + text)
    if tty:
        assert it.write(b"\x04")
    else:
        assert it.close_stdin()
    reader.ended()
    assert word(last_exit(client, container)) == "exited 0"
    logged = b"".join(reply.data for reply in client.logs(pb.LogsRequest(id=container)))
    assert logged.split() == bytes(reader.out).split() == [b"up", b"=one", b"=two"]


def test_input_is_complete_although_shims_are_killed_meanwhile(client: Client, tmp_path: pathlib.Path) -> None:
    size = scaled(256 << 20)
    container = created(
        client,
        *("sh", "-c", "cat > /out/all"),
        stdin=True,
        mounts=[pb.Mount(source=str(tmp_path), destination="/out")],
    )
    it = client.attach(container)
    client.start(container)
    block, sent, written, kills = os.urandom(1 << 16), hashlib.sha256(), 0, 0
    reader = Reader(it)
    while written < size:
        if written * 4 // size > kills:
            kill_shim(client, container)
            kills += 1
        part = block[: size - written]
        assert it.write(part)
        sent.update(part)
        written += len(part)
    assert it.close_stdin()
    reader.ended()
    assert kills == 3
    assert word(last_exit(client, container)) == "exited 0"
    assert hashlib.sha256((tmp_path / "all").read_bytes()).digest() == sent.digest()


def written(log: pathlib.Path) -> bytes:
    """The last lines as the program wrote them: the shim cuts one in two where what it has read ends."""
    lines = [line.split(b" ", 3) for line in log.read_bytes().split(b"\n")[-10:-1]]
    return b"".join(text + (b"\n" if tag == b"F" else b"") for _, _, tag, text in lines)


@pytest.mark.parametrize("tty", [False, True], ids=["pipes", "tty"])
def test_output_goes_on_without_the_daemon_and_is_complete_when_its_shim_dies_as_well(
    tmp_path: pathlib.Path, tty: bool
) -> None:
    last, end = scaled(1_000_000, least=30_000), "\r\n" if tty else "\n"
    os.mkfifo(tmp_path / "go")
    mounts = [pb.Mount(source=str(tmp_path), destination="/mnt")]
    with daemons.daemon() as daemon:
        with daemon.client() as client:
            script = f"seq 1 {last}; read go </mnt/go; seq 1 {last}; exit 43"
            box = lives.up(client, "sh", "-c", script, tty=tty, mounts=mounts)
            log = pathlib.Path(client.inspect(box.id).log_path)
        daemon.kill()
        until(lambda: written(log).endswith(f"{last}{end}".encode()), "the first half")
        os.kill(box.shim.pid, signal.SIGKILL)
        (tmp_path / "go").write_text("\n")
        daemon.start()
        with daemon.client() as client:
            assert word(last_exit(client, box.id)) == "exited 43"
            logged = b"".join(reply.data for reply in client.logs(pb.LogsRequest(id=box.id)))
            assert logged == "".join(f"{number}{end}" for number in range(1, last + 1)).encode() * 2


def test_the_last_words_of_a_run_are_read_although_its_end_was_reported_before_its_shim_has_moved_them(
    client: Client, tmp_path: pathlib.Path
) -> None:
    os.mkfifo(tmp_path / "go")
    mounts = [pb.Mount(source=str(tmp_path), destination="/mnt")]
    box = lives.up(client, "sh", "-c", "read go </mnt/go; echo last words; exit 43", mounts=mounts)
    with slow_to_write(box.shim.pid):
        with stopped(box.shim.pid):  # it finds both at once: what lies in the pipe, and the end
            (tmp_path / "go").write_text("\n")
            until(lambda: state_of(box.init.pid) == "Z", "it has not ended")
        assert word(last_exit(client, box.id)) == "exited 43"
        read = b"".join(reply.data for reply in client.logs(pb.LogsRequest(id=box.id)))
    assert read == b"last words\n"


@contextlib.contextmanager
def slow_to_write(pid: int) -> Iterator[None]:
    """For the block: each write of the process takes a third of a second."""
    words = ["strace", "-qq", "-o", "/dev/null", "-e", "trace=write", "-e", "inject=write:delay_enter=300000"]
    tracer = subprocess.Popen([*words, "-p", str(pid)])
    try:
        until(lambda: f"TracerPid:\t{tracer.pid}\n" in pathlib.Path(f"/proc/{pid}/status").read_text(), "no tracer")
        yield
    finally:
        tracer.terminate()
        tracer.wait(LIMIT_SECONDS)


def test_a_shim_that_does_not_answer_keeps_no_inspect(client: Client) -> None:
    container = lives.up(client)
    os.kill(container.shim.pid, signal.SIGSTOP)
    try:
        began = time.monotonic()
        assert not client.inspect(container.id).HasField("streams")
        assert time.monotonic() - began < LIMIT_SECONDS / 3  # one second by itself
    finally:
        os.kill(container.shim.pid, signal.SIGCONT)
    until(lambda: client.inspect(container.id).HasField("streams"), "it does not answer")


def test_a_restarted_daemon_can_attach_to_the_same_terminal() -> None:
    with daemons.daemon() as daemon:
        with daemon.client() as client:
            script = "stty -echo; echo up; while read x; do echo =$x; done"
            container, it = attached(client, "sh", "-c", script, stdin=True, tty=True)
            taken(it, b"up\r\n")
            daemon.kill(signal.SIGTERM)
            with pytest.raises((ShuttingDown, Unreachable)):
                next(it)
        daemon.start()
        with daemon.client() as client:
            it = client.attach(container)
            assert it.write(b"x\n")
            taken(it, b"=x\r\n")
            assert it.write(b"\x04")
            Reader(it).ended()
            assert word(last_exit(client, container)) == "exited 0"
