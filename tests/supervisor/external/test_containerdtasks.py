"""The tasks of a containerd that answers, breaks off, hangs or talks nonsense, as it is told."""

import asyncio
import errno
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest
from structlog.testing import capture_logs

from supervisor.external import containerdtasks, enginenames
from supervisor.external.containerdtasks import ContainerdTasks, LiveTask, NoAnswer
from supervisor.model.errors import Busy, NoSuchProcess
from supervisor.model.values import NO_NAMES, Names
from supervisor.model.watched import FoundProcess, Kind, Target
from tests.supervisor.fakes import until

TARGET = Target(Kind.CONTAINERD, "/c.sock")
LIMIT_SECONDS = 30.0


class FakeContainerd:
    """`listed` is what each list says, the last one for ever; an exception is raised."""

    def __init__(self, *listed: "tuple[LiveTask, ...] | Exception") -> None:
        self.listed = list(listed)
        self.lists = 0
        self.events = asyncio.Queue[LiveTask | Exception | None]()
        self.open = self.subscriptions = 0
        self.called: dict[str, Names | Exception] = {}
        self.asked: list[tuple[str, str]] = []

    def __call__(self, socket: str) -> "FakeContainerd":
        assert socket == "/c.sock"
        return self

    async def __aenter__(self) -> Self:
        self.open += 1
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.open -= 1

    async def tasks(self) -> tuple[LiveTask, ...]:
        self.lists += 1
        found = self.listed.pop(0) if len(self.listed) > 1 else self.listed[0]
        if isinstance(found, Exception):
            raise found
        return found

    async def names(self, namespace: str, id: str) -> Names:
        self.asked.append((namespace, id))
        found = self.called.get(id, NO_NAMES)
        if isinstance(found, Exception):
            raise found
        return found

    async def beginnings(self) -> AsyncGenerator[LiveTask, None]:
        self.subscriptions += 1
        while (item := await self.events.get()) is not None:
            if isinstance(item, Exception):
                raise item
            yield item


class Seen:
    """What was found, and the wait for it."""

    def __init__(self) -> None:
        self.found: list[str] = []
        self.fails: dict[str, Exception] = {}
        self.called: dict[str, Names] = {}
        self._news = asyncio.Event()

    async def observe(self, found: FoundProcess) -> None:
        self.found.append(found.container)
        self._news.set()
        if (error := self.fails.get(found.name)) is not None:
            raise error

    def lacks_names(self, container: str) -> bool:
        return container in self.found and container not in self.called

    async def name(self, container: str, names: Names) -> None:
        self.called[container] = names
        self._news.set()

    async def until_named(self, *containers: str) -> None:
        async with asyncio.timeout(LIMIT_SECONDS):
            while not set(containers) <= self.called.keys():
                self._news.clear()
                await self._news.wait()

    async def until(self, *containers: str) -> None:
        async with asyncio.timeout(LIMIT_SECONDS):
            while not set(containers) <= set(self.found):
                self._news.clear()
                await self._news.wait()


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(containerdtasks, "AGAIN_SECONDS", (0.01,))
    monkeypatch.setattr(containerdtasks, "LIST_AFTER_SECONDS", (0.0, 0.01))


def task(id: str, namespace: str = "n") -> LiveTask:
    return LiveTask(namespace, id, 70)


def test_what_is_listed_and_what_is_heard_of_is_observed() -> None:
    async def main() -> None:
        api, seen = FakeContainerd((task("a"), task("a", "m"))), Seen()
        source = ContainerdTasks(TARGET, api, seen)
        await source.begin()
        assert seen.found[:2] == ["a@/c.sock/n", "a@/c.sock/m"]
        await api.events.put(task("b"))
        await seen.until("b@/c.sock/n")
        assert source.trouble == ""
        await source.close()
        assert api.open == 0

    asyncio.run(main())


@pytest.mark.parametrize("broken", [NoAnswer("gone"), None, ValueError("nonsense")])
def test_a_connection_that_breaks_is_made_again_and_all_is_listed_anew(broken: Exception | None) -> None:
    async def main() -> None:
        api, seen = FakeContainerd((task("a"),)), Seen()
        source = ContainerdTasks(TARGET, api, seen)
        await source.begin()
        api.listed = [(task("since"),)]
        await api.events.put(broken)
        await seen.until("since@/c.sock/n")
        await api.events.put(task("later"))
        await seen.until("later@/c.sock/n")
        await source.close()

    asyncio.run(main())


def test_one_that_does_not_answer_is_reported_and_asked_again() -> None:
    async def main() -> None:
        api, seen = FakeContainerd(NoAnswer("refused"), NoAnswer("refused"), (task("a"),)), Seen()
        source = ContainerdTasks(TARGET, api, seen)
        await source.begin()
        assert source.trouble == "containerd does not answer on /c.sock: refused"
        await seen.until("a@/c.sock/n")
        assert source.trouble == ""
        await source.close()

    asyncio.run(main())


def test_a_task_that_cannot_be_watched_costs_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        monkeypatch.setattr(containerdtasks, "LIST_AFTER_SECONDS", (0.0, 1000.0))
        api, seen = FakeContainerd((task("gone"), task("full"), task("fine"))), Seen()
        seen.fails = {"gone": NoSuchProcess("gone"), "full": Busy("enough")}
        source = ContainerdTasks(TARGET, api, seen)
        await source.begin()
        assert "fine@/c.sock/n" in seen.found
        assert source.trouble == "enough"
        await source.close()

    asyncio.run(main())


def test_dockers_tasks_are_named_by_dockers_own_files_and_others_by_containerd(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def main() -> None:
        known, unknown = "a1" * 32, "b2" * 32
        monkeypatch.setattr(enginenames, "DOCKER_ROOT", str(tmp_path))
        (tmp_path / known).mkdir()
        (tmp_path / known / "config.v2.json").write_text('{"Name": "/web", "Config": {"Image": "img"}}')
        api, seen = FakeContainerd((task(known, "moby"), task(unknown, "moby"), task(known, "other"))), Seen()
        source = ContainerdTasks(TARGET, api, seen)
        await source.begin()
        await seen.until_named(
            *(f"{id}@/c.sock/{n}" for id, n in ((known, "moby"), (unknown, "moby"), (known, "other")))
        )
        assert seen.called[f"{known}@/c.sock/moby"] == Names("docker", "", "web", "img")
        assert sorted(set(api.asked)) == [("moby", unknown), ("other", known)]
        await source.close()

    asyncio.run(main())


def no_room() -> OSError:
    return OSError(errno.EMFILE, "Too many open files")


def busy() -> Busy:
    error = Busy("process 70 cannot be held: Too many open files")
    error.__cause__ = no_room()
    return error


@pytest.mark.parametrize("refusal", [no_room, busy])
@pytest.mark.parametrize("found", ["in a list", "by an event"])
def test_a_task_for_which_there_was_no_room_is_looked_at_again_soon_and_costs_no_other(
    monkeypatch: pytest.MonkeyPatch, refusal: Callable[[], Exception], found: str
) -> None:
    """How one ended that has gone by the next look is not known."""

    async def main() -> None:
        monkeypatch.setattr(containerdtasks, "LIST_AFTER_SECONDS", (0.0, 1000.0))
        monkeypatch.setattr(containerdtasks, "ROOM_SECONDS", 0.01)
        present = (task("full"), task("fine"))
        api, seen = FakeContainerd(present if found == "in a list" else ()), Seen()
        seen.fails = {"full": refusal()}
        source = ContainerdTasks(TARGET, api, seen)
        await source.begin()
        api.listed = [present]
        if found == "by an event":
            await api.events.put(task("full"))
        await seen.until("full@/c.sock/n", "fine@/c.sock/n")
        assert "Too many open files" in source.trouble
        seen.fails, before = {}, len(seen.found)
        await until(lambda: "full@/c.sock/n" in seen.found[before:])
        await until(lambda: not source.trouble)
        assert api.subscriptions == 1
        await source.close()

    asyncio.run(main())


def test_a_client_that_cannot_be_made_now_is_made_later(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        api, seen, refused = FakeContainerd((task("a"),)), Seen(), [no_room()] * 3

        def connect(socket: str) -> FakeContainerd:
            if refused:
                raise refused.pop()
            return api(socket)

        source = ContainerdTasks(TARGET, connect, seen)
        await source.begin()
        assert source.trouble == "containerd on /c.sock cannot be asked: [Errno 24] Too many open files"
        await seen.until("a@/c.sock/n")
        assert source.trouble == ""
        await source.close()

    with capture_logs() as lines:
        asyncio.run(main())
    assert sum("no client" in line["event"] for line in lines) == 1


def test_a_list_that_hangs_holds_the_beginning_up_for_a_while_only(monkeypatch: pytest.MonkeyPatch) -> None:
    class Hanging(FakeContainerd):
        async def tasks(self) -> tuple[LiveTask, ...]:
            await asyncio.Event().wait()
            return ()

    async def main() -> None:
        source = ContainerdTasks(TARGET, Hanging(()), Seen())
        await source.begin()
        await source.close()

    monkeypatch.setattr(containerdtasks, "FIRST_SECONDS", 0.01)
    asyncio.run(main())


def test_what_a_task_is_called_is_asked_once_after_it_is_watched() -> None:
    async def main() -> None:
        api, seen = FakeContainerd((task("a"), task("b"))), Seen()
        api.called = {"a": Names("shop", "web-0", "app")}
        source = ContainerdTasks(TARGET, api, seen)
        await source.begin()
        await seen.until_named("a@/c.sock/n", "b@/c.sock/n")
        lists = api.lists
        while api.lists < lists + 3:  # noqa: ASYNC110 - nobody reports it
            await asyncio.sleep(0.001)
        assert seen.called == {"a@/c.sock/n": Names("shop", "web-0", "app"), "b@/c.sock/n": NO_NAMES}
        assert sorted(api.asked) == [("n", "a"), ("n", "b")]
        await source.close()

    asyncio.run(main())


def test_what_cannot_be_asked_now_is_asked_with_the_next_list() -> None:
    async def main() -> None:
        api, seen = FakeContainerd((task("a"),)), Seen()
        api.called = {"a": NoAnswer("busy")}
        source = ContainerdTasks(TARGET, api, seen)
        await source.begin()
        while len(api.asked) < 3:  # noqa: ASYNC110 - nobody reports it
            await asyncio.sleep(0.001)
        assert not seen.called and source.trouble == ""
        api.called = {"a": Names("shop")}
        await seen.until_named("a@/c.sock/n")
        await source.close()

    asyncio.run(main())


def test_while_one_does_not_answer_the_log_says_so_once_for_each_reason() -> None:
    async def main() -> None:
        away = [NoAnswer("refused")] * 5 + [NoAnswer("hangs")] * 3
        api, seen = FakeContainerd(*away, (task("a"),)), Seen()
        source = ContainerdTasks(TARGET, api, seen)
        await source.begin()
        await seen.until("a@/c.sock/n")
        await api.events.put(NoAnswer("refused"))
        api.listed = [(task("b"),)]
        await seen.until("b@/c.sock/n")
        await source.close()

    with capture_logs() as lines:
        asyncio.run(main())
    assert [line["why"] for line in lines if "does not answer" in line["event"]] == ["refused", "hangs", "refused"]
