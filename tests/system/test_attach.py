"""Attach on real containers: every byte both ways, terminals, clients that are slow or gone."""

import hashlib
import os
import pathlib

import pytest

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api.client import Client
from supervisor.model.errors import WrongState
from tests.system import lives
from tests.system.lives import Reader, attached, created, last_exit, taken, word
from tests.system.waits import scaled, until

ENOUGH_BYTES = 32 << 20  # more than a client that does not read has room for on its way


def test_the_first_and_the_last_byte_and_everything_between(client: Client) -> None:
    container, it = attached(client, "sh", "-c", "echo first; echo wrong >&2; cat; echo last; exit 3", stdin=True)
    assert (it.tty, it.stdin) == (False, True)
    assert it.write(b"between\n") and it.close_stdin()
    both = Reader(it).ended()
    assert (bytes(both.out), bytes(both.err)) == (b"first\nbetween\nlast\n", b"wrong\n")
    assert word(last_exit(client, container)) == "exited 3"


@pytest.mark.parametrize("tty", [False, True], ids=["pipes", "tty"])
def test_every_byte_arrives_both_ways(client: Client, tty: bool) -> None:
    """1 GB at scale 1. A terminal in raw mode takes only what it has room for, 4 KiB at a time."""
    script = "stty raw -echo; echo ready; head -c $SIZE" if tty else "echo ready; head -c $SIZE"
    size = scaled((1 << 30) if not tty else (64 << 20))
    _, it = attached(client, "sh", "-c", script, env=[f"SIZE={size}"], stdin=True, tty=tty)
    ready = taken(it, b"\n")
    reader, block = Reader(it), os.urandom(1 << 16)
    sent, written = hashlib.sha256(), 0
    while written < size:
        part = block[: size - written]
        assert it.write(part)
        sent.update(part)
        written += len(part)
    reader.ended()
    assert ready.strip() == b"ready"
    assert len(reader.out) == size
    assert hashlib.sha256(reader.out).digest() == sent.digest()


def test_a_terminal_has_its_size_and_its_keys(client: Client) -> None:
    script = "trap 'echo got INT; exit' INT; stty size; while read x; do echo =$x; stty size; done"
    container = created(client, "sh", "-c", script, stdin=True, tty=True, env=["TERM=vt100"])
    it = client.attach(container, size=(33, 44))
    assert it.tty
    client.start(container)
    taken(it, b"33 44\r\n")
    client.resize(container, 11, 22)
    assert it.write(b"a\n")
    taken(it, b"=a\r\n11 22\r\n")
    assert it.resize(5, 6) and it.write(b"b\n")
    taken(it, b"=b\r\n5 6\r\n")
    assert it.write(b"\x03")
    taken(it, b"got INT\r\n")
    Reader(it).ended()


def test_all_attached_clients_get_all_of_it(client: Client) -> None:
    container = created(client, "sh", "-c", "seq 1 100000; seq 1 3 >&2")
    readers = [Reader(client.attach(container, lossless=lossless)) for lossless in (True, True, False)]
    client.start(container)
    expected = b"".join(b"%d\n" % number for number in range(1, 100_001))
    for reader in readers[:2]:
        reader.ended()
        assert bytes(reader.out) == expected
        assert bytes(reader.err) == b"1\n2\n3\n"
    last = readers[2].ended()
    assert len(last.out) + last.dropped == len(expected)


def test_who_may_miss_something_never_holds_the_container_up_and_is_told(client: Client) -> None:
    container = created(client, "sh", "-c", f"head -c {ENOUGH_BYTES} /dev/zero; echo done >&2")
    it = client.attach(container, lossless=False)
    client.start(container)
    assert word(last_exit(client, container)) == "exited 0"
    reader = Reader(it).ended()
    assert 0 < len(reader.out) < ENOUGH_BYTES
    assert len(reader.out) + reader.dropped == ENOUGH_BYTES
    assert reader.err == b"done\n"


def test_who_must_have_everything_holds_the_container_up_until_he_goes(client: Client) -> None:
    script = f"head -c {ENOUGH_BYTES} /dev/zero; echo $? >&2"
    container, it = attached(client, "sh", "-c", script)
    moved = [-1]

    def stands_still() -> bool:
        moved.append(client.inspect(container).streams.stdout_bytes)
        return moved[-1] == moved[-2] > 0

    until(stands_still, "the container is held up")
    assert moved[-1] < ENOUGH_BYTES
    it.cancel()
    assert word(last_exit(client, container)) == "exited 0"


def test_a_client_that_was_slow_has_the_whole_end(client: Client) -> None:
    """The container is gone in a moment, its shim a second later."""
    container, it = attached(client, "sh", "-c", "head -c 900000 /dev/zero; echo; echo end")
    last_exit(client, container)
    until(lambda: not client.inspect(container).HasField("shim"), "the end of the shim")
    first = taken(it, b"\0")
    reader = Reader(it).ended()
    assert len(first) + len(reader.out) == 900_005
    assert reader.out.endswith(b"\nend\n")


def test_the_end_of_one_clients_input_is_not_the_containers(client: Client) -> None:
    container, first = attached(client, "sh", "-c", "read x; echo $x; read y; echo $y", stdin=True)
    second = client.attach(container)
    assert first.write(b"one\n")
    taken(first, b"one\n")
    first.end_input()
    assert second.write(b"two\n")
    assert bytes(Reader(first).ended().out) == b"two\n"


def test_a_detached_container_goes_on_and_can_be_attached_to_again(client: Client) -> None:
    container, first = attached(client, "sh", "-c", "while read x; do echo =$x; done", stdin=True)
    assert first.write(b"a\n")
    taken(first, b"=a\n")
    first.leave()
    second = client.attach(container)
    assert second.write(b"b\n")
    assert taken(second, b"=b\n") == b"=b\n"
    client.close_stdin(container)
    Reader(second).ended()
    assert word(last_exit(client, container)) == "exited 0"


def test_what_was_written_before_leaving_arrives(client: Client, tmp_path: pathlib.Path) -> None:
    container = created(
        client,
        *("sh", "-c", "cat > /out/all"),
        stdin=True,
        mounts=[pb.Mount(source=str(tmp_path), destination="/out")],
    )
    client.start(container)
    it = client.attach(container, stdout=False, stderr=False)
    data = os.urandom(100_000)
    assert it.write(data)
    it.leave()
    client.close_stdin(container)
    last_exit(client, container)
    assert (tmp_path / "all").read_bytes() == data


def test_a_container_that_closed_its_stdin_takes_no_more_and_nothing_fails(client: Client) -> None:
    _, it = attached(client, "sh", "-c", "head -c 1; exec 0<&-; echo; echo closed; sleep 0.1; echo end", stdin=True)
    reader = Reader(it)
    assert it.write(b"x")
    reader.until(b"closed\n")
    it.write(b"nobody reads this")
    it.close_stdin()
    assert bytes(reader.ended().out) == b"x\nclosed\nend\n"


def test_who_writes_to_a_container_that_has_gone_is_told(client: Client) -> None:
    container, it = attached(client, "true", stdin=True)
    reader = Reader(it)
    while it.write(bytes(1 << 20)):
        pass
    reader.ended()
    assert word(last_exit(client, container)) == "exited 0"


def test_a_paused_container_is_attached_to_and_reads_when_it_goes_on(client: Client) -> None:
    container = created(client, "sh", "-c", "read x; echo =$x", stdin=True)
    client.start(container)
    client.pause(container)
    it = client.attach(container)
    assert it.write(b"a\n")
    client.resume(container)
    assert bytes(Reader(it).ended().out) == b"=a\n"


def test_the_removal_of_a_container_ends_an_attach(client: Client) -> None:
    container = created(client, "true", stdin=True)
    reader = Reader(client.attach(container))
    client.remove(container, force=True)
    assert bytes(reader.ended().out) == b""


def test_an_attach_lasts_for_one_run(client: Client) -> None:
    container = created(client, "sh", "-c", "echo run; exit 1", restart="on-failure:2")
    it = client.attach(container)
    client.start(container)
    assert bytes(Reader(it).ended().out) == b"run\n"


def test_without_stdin_input_is_let_fall(client: Client) -> None:
    _, it = attached(client, "cat")
    assert not it.stdin
    it.write(bytes(1 << 20))
    assert bytes(Reader(it).ended().out) == b""


def test_what_cannot_be_is_refused_with_a_reason(client: Client) -> None:
    container = created(client, "true")
    client.start(container)
    last_exit(client, container)
    with pytest.raises(WrongState, match="exited: it has no standard streams"):
        client.attach(container)
    plain = lives.up(client).id
    with pytest.raises(WrongState, match="no terminal"):
        client.resize(plain, 1, 1)
    with pytest.raises(WrongState, match="without stdin"):
        client.close_stdin(plain)
    on_tty = lives.up(client, tty=True, stdin=True).id
    with pytest.raises(WrongState, match="ctrl-d"):
        client.close_stdin(on_tty)
    seventeen = [client.attach(plain) for _ in range(16)]
    with pytest.raises(Exception, match="too many"):
        client.attach(plain)
    for it in seventeen:
        it.cancel()


def test_inspect_counts_what_was_moved(client: Client) -> None:
    container, it = attached(client, "sh", "-c", "read x; echo $x; echo er >&2; read y", stdin=True)
    assert it.write(b"four\n")
    taken(it, b"four\n")
    expected = pb.StreamCounters(stdout_bytes=5, stderr_bytes=3, stdin_bytes=5)
    until(lambda: client.inspect(container).streams == expected, "the counters")
    assert it.close_stdin()
    Reader(it).ended()
    last_exit(client, container)
    assert not client.inspect(container).HasField("streams")


def test_a_log_that_was_moved_away_is_begun_anew(client: Client) -> None:
    container, it = attached(client, "sh", "-c", "echo old; read x; echo new", stdin=True)
    taken(it, b"old\n")
    log = pathlib.Path(client.inspect(container).log_path)
    log.rename(log.with_suffix(".1"))
    client.reopen_log(container)
    assert it.write(b"\n")
    Reader(it).ended()
    last_exit(client, container)
    until(lambda: log.exists() and log.read_text().endswith("stdout F new\n"), "the new file")
    assert log.with_suffix(".1").read_text().endswith("stdout F old\n")
