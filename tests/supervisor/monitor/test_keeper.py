import asyncio
import contextlib
import errno
import os
import queue
import socket
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from shim import fields, launch
from supervisor.monitor import keeper as keeper_module
from supervisor.monitor.keeper import AT_ONCE, JournalUnread, Keeper, KeeperSilent
from tests.shim.test_journal import FIRST, HEADER, SECOND, slots
from tests.shim.test_record import written
from tests.supervisor.descriptors import held_now, only, opened_since
from tests.supervisor.fakes import until

Peer = socket.socket
Script = Callable[[Peer, fields.Message], None]
OK = fields.encode("exitd-ok", [])
HELLO = fields.encode("exitd-keeper", [("pid", 77), ("seats", 16)])
OLDER = fields.encode("exitd-keeper", [("pid", 76)])


def answers_ok(peer: Peer, message: fields.Message) -> None:
    peer.send(OK)


class Server:
    """A keeper's socket, and a thread behind it that does what the script says with each request but hello."""

    def __init__(self, state: Path, script: Script) -> None:
        self.script = script
        self.hello = HELLO
        self.greets = True
        self.seen: queue.Queue[str] = queue.Queue()
        self.connections = 0
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(str(state / launch.SOCKET_NAME))
        self._listener.listen()
        self._peers: list[Peer] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                peer, _ = self._listener.accept()
                self.connections += 1
                self._peers.append(peer)
                self._threads.append(threading.Thread(target=self._serve, args=(peer,)))
                self._threads[-1].start()

    def _serve(self, peer: Peer) -> None:
        with contextlib.suppress(OSError):
            while received := launch.receive(peer):
                data, passed = received
                for fd in passed:
                    os.close(fd)
                if not data:
                    return
                message = fields.decode(data)
                if message.kind == "exitd-hello":
                    if self.greets:
                        peer.send(self.hello)
                    continue
                self.seen.put(message.kind)
                self.script(peer, message)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for peer in self._peers:
            with contextlib.suppress(OSError):
                peer.shutdown(socket.SHUT_RDWR)
            peer.close()
        for thread in self._threads:
            thread.join(20)


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread answers, which may get no time for a while."""
    monkeypatch.setattr(keeper_module, "ANSWER_SECONDS", 30.0)


@pytest.fixture
def before() -> Counter[str]:
    return held_now()


@pytest.fixture
def server(before: Counter[str], tmp_path: Path) -> Iterator[Server]:
    made = Server(tmp_path, answers_ok)
    yield made
    made.close()
    assert not opened_since(before)


@contextlib.asynccontextmanager
async def line(state: Path, news: Callable[[], None] = lambda: None) -> AsyncIterator[Keeper]:
    made = Keeper(str(state), "/nonexistent/exitd-keeper", news, may_start=False)
    try:
        yield made
    finally:
        made.close()
        made.close()


REQUEST = fields.encode("exitd-anything", [])


def test_the_line_is_opened_when_it_is_needed_and_kept(server: Server, tmp_path: Path) -> None:
    async def main() -> None:
        async with line(tmp_path) as k:
            assert not k.connected
            for _ in range(3):
                message, passed = await k.ask(REQUEST)
                assert (message.kind, passed) == ("exitd-ok", [])
            assert server.connections == 1
            assert k.process is not None and k.process.pid == 77

    asyncio.run(main())


def test_many_requests_at_once_are_answered_in_turn_over_one_connection(server: Server, tmp_path: Path) -> None:
    """More than a socket's queue holds."""

    def echo(peer: Peer, message: fields.Message) -> None:
        peer.send(fields.encode("exitd-ok", [("n", message.get("n"))]))

    server.script = echo

    async def main() -> None:
        async with line(tmp_path) as k:
            asks = [k.ask(fields.encode("exitd-ack", [("n", n), ("pad", "x" * 600)])) for n in range(200)]
            found = await asyncio.gather(*asks)
            assert [message.number("n") for message, _ in found] == list(range(200))
            assert server.connections == 1

    asyncio.run(main())


def test_a_silent_keeper_is_given_up_within_the_limit_and_left_alone_for_a_while(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeper_module, "ANSWER_SECONDS", 0.05)
    monkeypatch.setattr(keeper_module, "REST_SECONDS", 1000.0)
    server.script = lambda peer, message: None

    async def main() -> None:
        async with line(tmp_path) as k:
            found = await asyncio.gather(*(k.ask(REQUEST) for _ in range(AT_ONCE * 2)), return_exceptions=True)
            assert all(isinstance(each, KeeperSilent) and each.may_be_there for each in found)
            assert not k.connected
            with pytest.raises(KeeperSilent, match="a moment ago"):
                await k.ask(REQUEST)
            monkeypatch.setattr(k, "_rest_until", 0.0)
            monkeypatch.setattr(k._answers, "seconds", 30.0)  # this one is to answer, on a busy machine too
            server.script = answers_ok
            await k.ask(REQUEST)
            assert server.connections == 2, "one before, which has come to the server's thread by now, and this one"

    asyncio.run(main())


def test_a_keeper_that_does_not_greet_is_silent_too(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeper_module, "ANSWER_SECONDS", 0.05)
    server.greets = False
    server.script = lambda peer, message: None

    async def main() -> None:
        async with line(tmp_path) as k:
            found = await asyncio.gather(*(k.ask(REQUEST) for _ in range(5)), return_exceptions=True)
            assert all(isinstance(each, KeeperSilent) for each in found)

    asyncio.run(main())


@pytest.mark.parametrize("answer", [b"", b"garbage", fields.encode("exitd-refused", [("why", "no errno")])])
def test_a_line_that_breaks_or_is_not_understood_fails_who_waits_and_is_made_anew(
    server: Server, tmp_path: Path, answer: bytes
) -> None:
    def breaks(peer: Peer, message: fields.Message) -> None:
        peer.send(answer) if answer else peer.shutdown(socket.SHUT_RDWR)

    server.script = breaks

    async def main() -> None:
        async with line(tmp_path) as k:
            for each in await asyncio.gather(*(k.ask(REQUEST) for _ in range(5)), return_exceptions=True):
                assert isinstance(each, KeeperSilent) and each.may_be_there  # the next one may be
            assert not k.connected and k.process is None
            broken = server.connections  # whoever asked after the first break has met another line, and another break
            server.script = answers_ok
            await k.ask(REQUEST)
            assert server.connections == broken + 1

    asyncio.run(main())


def test_a_keeper_that_answers_a_greeting_with_something_else_is_silent(server: Server, tmp_path: Path) -> None:
    server.greets = False

    async def main() -> None:
        async with line(tmp_path) as k:
            found = await asyncio.gather(k.ask(REQUEST), k.ask(REQUEST), return_exceptions=True)
            assert isinstance(found[0], KeeperSilent)
            assert not k.connected

    asyncio.run(main())


def test_a_refusal_is_the_askers_alone(server: Server, tmp_path: Path) -> None:
    def refuses(peer: Peer, message: fields.Message) -> None:
        peer.send(fields.encode("exitd-refused", [("why", "run is known"), ("errno", errno.EEXIST)]))

    server.script = refuses

    async def main() -> None:
        async with line(tmp_path) as k:
            with pytest.raises(launch.KeeperRefused, match="run is known") as caught:
                await k.ask(REQUEST)
            assert caught.value.number == errno.EEXIST
            await k.acknowledge("c1", 1)  # nobody's business
            server.script = answers_ok
            await k.ask(REQUEST)
            assert server.connections == 1

    asyncio.run(main())


def test_news_come_in_between_and_are_nobodys_answer(server: Server, tmp_path: Path) -> None:
    def news_first(peer: Peer, message: fields.Message) -> None:
        peer.send(fields.encode("exitd-news", []))
        peer.send(OK)

    server.script = news_first

    async def main() -> None:
        news: list[bool] = []
        async with line(tmp_path, lambda: news.append(True)) as k:
            message, _ = await k.ask(REQUEST)
            assert (message.kind, news) == ("exitd-ok", [True])

    asyncio.run(main())


def passes_descriptor(peer: Peer, message: fields.Message) -> None:
    with open("/dev/null", "rb") as file:
        socket.send_fds(peer, [fields.encode("exitd-spawned", [("pid", 9), ("started", 8)])], [file.fileno()])


def names_a_shim(peer: Peer, message: fields.Message) -> None:
    """There was no room for its pidfd on the way."""
    peer.send(fields.encode("exitd-spawned", [("pid", 9), ("started", 8)]))


def test_a_journal_that_there_is_no_room_to_read_is_not_taken_for_unreadable(tmp_path: Path) -> None:
    (tmp_path / "keeper-1-2.journal").write_bytes(b"{")
    k = Keeper(str(tmp_path), "exitd-keeper", lambda: None)
    with only(0), pytest.raises(OSError, match="Too many open files"):
        k.entry("c1", 1)
    with pytest.raises(JournalUnread):
        k.entry("c1", 1)


@pytest.mark.parametrize("renewed", [HELLO, OLDER])
def test_an_older_keeper_is_told_once_to_make_way_for_the_installed_program(
    server: Server, tmp_path: Path, renewed: bytes
) -> None:
    """Whatever comes of that: it goes on with the keeper that answers."""

    def makes_way(peer: Peer, message: fields.Message) -> None:
        server.hello = renewed if message.kind == "exitd-upgrade" else server.hello
        peer.send(OK)

    server.hello, server.script = OLDER, makes_way

    async def main() -> None:
        async with line(tmp_path) as k:
            for _ in range(2):
                message, _ = await k.ask(REQUEST)
                assert message.kind == "exitd-ok"
            assert k.process is not None and k.process.pid == fields.decode(renewed).number("pid")
            assert [server.seen.get(timeout=20) for _ in range(3)] == ["exitd-upgrade", *["exitd-anything"] * 2]
            assert server.connections == 2

    asyncio.run(main())


def test_a_spawned_shim_comes_with_its_pidfd_or_by_its_name_alone(server: Server, tmp_path: Path) -> None:
    server.script = passes_descriptor

    async def main() -> None:
        async with line(tmp_path) as k:
            reading, writing = os.pipe()
            pid, started, pidfd = await k.spawn(REQUEST, [writing])
            assert (pid, started) == (9, 8)
            assert not os.get_inheritable(pidfd)
            for fd in (pidfd, reading, writing):
                os.close(fd)
            server.script = names_a_shim
            assert await k.spawn(REQUEST, []) == (9, 8, -1)

    asyncio.run(main())


def test_copies_come_by_their_slots_and_what_came_through_in_part_is_closed(server: Server, tmp_path: Path) -> None:
    def gives(numbers: list[int]) -> Script:
        def script(peer: Peer, message: fields.Message) -> None:
            answer = fields.encode("exitd-seats", [("seat", slot) for slot in numbers])
            with open("/dev/null", "rb") as file:
                socket.send_fds(peer, [answer], [file.fileno()])

        return script

    async def main() -> None:
        async with line(tmp_path) as k:
            server.script = gives([14])
            copies = await k.copies("c1", 1)
            assert [*copies] == [14]
            os.close(copies[14])
            server.script = gives([14, 15])
            assert await k.copies("c1", 1) == {}

    asyncio.run(main())


def test_a_keeper_that_knows_no_copies_is_logged_once_and_its_line_stays(server: Server, tmp_path: Path) -> None:
    def refuses(number: int) -> Script:
        def script(peer: Peer, message: fields.Message) -> None:
            peer.send(fields.encode("exitd-refused", [("why", "unknown"), ("errno", number)]))

        return script

    async def main() -> None:
        async with line(tmp_path) as k:
            server.script = refuses(errno.ENOSYS)
            with capture_logs() as logged:
                for run in (1, 2):
                    assert await k.copies("c1", run) == {}
            assert len(logged) == 1
            server.script = refuses(errno.ENOENT)
            with pytest.raises(launch.KeeperRefused):
                await k.copies("c1", 3)
            assert k.connected
            assert server.connections == 1

    asyncio.run(main())


def test_descriptors_of_an_answer_whose_asker_has_gone_are_closed(server: Server, tmp_path: Path) -> None:
    go = threading.Event()

    def slowly(peer: Peer, message: fields.Message) -> None:
        go.wait(20)
        passes_descriptor(peer, message)

    server.script = slowly

    async def main() -> None:
        async with line(tmp_path) as k:
            asking = [asyncio.create_task(k.ask(REQUEST)) for _ in range(2)]
            await until(lambda: server.seen.qsize() >= 1)
            asking[0].cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asking[0]
            go.set()
            _, passed = await asking[1]  # each answer went to its own asker
            assert len(passed) == 1
            os.close(passed[0])

    asyncio.run(main())


def test_an_asker_cancelled_in_the_moment_of_its_answer_leaves_no_descriptor(server: Server, tmp_path: Path) -> None:
    server.script = passes_descriptor

    async def main() -> None:
        async with line(tmp_path) as k:
            asking = asyncio.create_task(k.ask(REQUEST))
            await until(lambda: any(future.done() for future in list(k._waiting)) or asking_has_answer(k, asking))
            asking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                _, passed = await asking
                for fd in passed:
                    os.close(fd)

    def asking_has_answer(k: Keeper, asking: "asyncio.Task[object]") -> bool:
        return k.connected and not k._waiting and server.seen.qsize() == 1

    asyncio.run(main())


def test_without_a_keeper_and_the_right_to_start_one_the_line_is_silent(tmp_path: Path) -> None:
    async def main() -> None:
        async with line(tmp_path) as k:
            with pytest.raises(KeeperSilent, match="not this daemon's") as caught:
                await k.ask(REQUEST)
            assert not caught.value.may_be_there
            await k.acknowledge("c1", 1)

    asyncio.run(main())


def test_a_keeper_that_cannot_be_started_is_silent(tmp_path: Path) -> None:
    async def main() -> None:
        for program in ("/nonexistent/exitd-keeper", "/bin/false"):
            k = Keeper(str(tmp_path), program, lambda: None)
            with pytest.raises(KeeperSilent):
                await k.ask(REQUEST)

    asyncio.run(main())


def test_every_run_the_keeper_knows_is_listed(server: Server, tmp_path: Path) -> None:
    def lists(peer: Peer, message: fields.Message) -> None:
        at = message.number("at")
        peer.send(fields.encode("exitd-run", [("id", f"c{at}"), ("run", 1), ("exec", "")]) if at < 3 else OK)

    server.script = lists

    async def main() -> None:
        async with line(tmp_path) as k:
            assert [message.get("id") for message in await k.runs()] == ["c0", "c1", "c2"]

    asyncio.run(main())


def test_the_journals_of_all_keepers_are_read_dead_ones_and_damaged_ones_included(tmp_path: Path) -> None:
    k = Keeper(str(tmp_path), "x", lambda: None)
    assert k.entries() == ({}, [])
    (tmp_path / "keeper-1-2.journal").write_bytes(slots(written(FIRST, 1024)))
    (tmp_path / "keeper-3-4.journal").write_bytes(slots(b"", written(SECOND, 1024)))
    (damaged := tmp_path / "keeper-5-6.journal").write_bytes(HEADER[:10])
    (tmp_path / "keeper-7-8.journal").write_bytes(bytes(4096))  # its keeper had not come to the header
    found, unread = k.entries()
    assert {key[0]: entry.code for key, entry in found.items()} == {"a": 1, "b": 43}
    assert unread == [damaged]


@pytest.mark.parametrize("how", ["damaged", "not a file"])
def test_what_stands_in_no_journal_is_not_known_while_one_cannot_be_read(tmp_path: Path, how: str) -> None:
    k = Keeper(str(tmp_path), "x", lambda: None)
    (tmp_path / "keeper-1-2.journal").write_bytes(slots(written(FIRST, 1024)))
    assert k.entry("b", SECOND.run) is None
    path = tmp_path / "keeper-3-4.journal"
    if how == "damaged":
        path.write_bytes(HEADER[:10])
    else:
        path.mkdir()
    found = k.entry("a", FIRST.run)
    assert found is not None and found.code == 1
    with pytest.raises(JournalUnread, match=str(path)):
        k.entry("b", SECOND.run)
    path.rmdir() if path.is_dir() else path.unlink()
    assert k.entry("b", SECOND.run) is None


@pytest.mark.parametrize("number", [errno.EAGAIN, errno.ENOBUFS, errno.ENOMEM, errno.ETOOMANYREFS])
def test_a_request_that_the_kernel_cannot_pass_on_now_is_refused_and_the_line_stays(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    async def main() -> None:
        async with line(tmp_path) as k:
            await k.ask(fields.encode("exitd-list", []))
            with monkeypatch.context() as patch:
                patch.setattr(socket, "send_fds", refuse)
                with pytest.raises(launch.KeeperRefused) as caught:
                    await k.ask(fields.encode("exitd-list", []))
            assert caught.value.number == number and k.connected
            await k.ask(fields.encode("exitd-list", []))

    asyncio.run(main())


def test_a_connection_that_there_is_no_room_to_listen_to_is_none_and_the_next_request_makes_another(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    async def main() -> None:
        async with line(tmp_path) as k:
            with monkeypatch.context() as patch:
                patch.setattr(asyncio.get_running_loop(), "add_reader", refuse)
                with pytest.raises(KeeperSilent) as caught:
                    await k.ask(REQUEST)
            used_up = keeper_module.used_up(caught.value)
            assert used_up is not None and used_up.errno == errno.ENOMEM and not k.connected
            await k.ask(REQUEST)

    asyncio.run(main())


def test_a_state_directory_that_cannot_be_read_is_an_unread_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(path: str) -> list[str]:
        raise OSError(errno.EIO, "Input/output error")

    k = Keeper(str(tmp_path), "x", lambda: None)
    monkeypatch.setattr(os, "listdir", fails)
    assert k.entries() == ({}, [tmp_path])
    with pytest.raises(JournalUnread):
        k.entry("a", 1)


def test_a_keeper_that_runs_is_known_before_it_is_needed_and_none_is_started_for_that(tmp_path: Path) -> None:
    async def main(connected: bool) -> None:
        k = Keeper(str(tmp_path), "/nonexistent/exitd-keeper", lambda: None)  # it may start one
        await k.greet()
        assert (k.connected, k.process is not None and k.process.pid == 77) == (connected, connected)
        k.close()

    with capture_logs() as lines:
        asyncio.run(main(connected=False))
    assert lines == []
    server = Server(tmp_path, answers_ok)
    asyncio.run(main(connected=True))
    assert server.seen.empty()
    server.close()
