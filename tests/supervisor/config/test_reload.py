"""A file that changes under a running loop, and what the service manager is told meanwhile."""

import asyncio
import errno
import os
import signal
import socket
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import NoReturn

import pytest
from structlog.testing import capture_logs

from supervisor.config import file as file_module
from supervisor.config import reload
from supervisor.config.reload import Configuration, Reloads
from supervisor.config.settings import Given, Values
from supervisor.model.errors import BadConfig, Busy, TimedOut
from supervisor.system.aside import Aside
from supervisor.system.inotify import Inotify
from supervisor.system.pathwatch import PathWatch
from tests.supervisor.fakes import until

LIMIT_SECONDS = 20
ROOT: Values = {("root",): Given("/r", "flag")}


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """A service manager's end of the notification socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "notify"))
        listening.setblocking(False)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        yield listening


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "etc").mkdir()
    made = tmp_path / "etc/config.toml"
    made.write_text("default_runtime = 'one'\n")
    return made


def write(file: Path, text: str) -> None:
    file.write_text(text)


class Notices:
    """What the manager hears, in order."""

    def __init__(self, manager: socket.socket) -> None:
        self._manager = manager

    async def next(self) -> list[str]:
        async with asyncio.timeout(LIMIT_SECONDS):
            data = await asyncio.get_running_loop().sock_recv(self._manager, 4096)
        return data.decode().splitlines()

    async def reload(self) -> str:
        """One whole reload; its status."""
        first, second = await self.next(), await self.next()
        assert first[0] == "RELOADING=1" and first[1].startswith("MONOTONIC_USEC=")
        assert second[0] == "READY=1"
        return second[1].removeprefix("STATUS=")


Scene = Callable[[Configuration, Notices], Awaitable[None]]


def played(file: Path, manager: socket.socket, scene: Scene, given: Values = ROOT, *, required: bool = True) -> None:
    async def main() -> None:
        configuration = Configuration(str(file), required=required, given=given)
        inotify = Inotify()
        inotify.start()
        following = asyncio.create_task(Reloads(configuration, inotify).forever())
        try:
            await scene(configuration, Notices(manager))
        finally:
            following.cancel()
            await asyncio.wait([following])
            inotify.close()
            assert inotify._watches == {}

    asyncio.run(main())


def test_a_file_that_is_written_is_in_force_at_once(file: Path, manager: socket.socket) -> None:
    async def scene(configuration: Configuration, notices: Notices) -> None:
        assert configuration.now().default_runtime == "one"
        write(file, "# a comment\ndefault_runtime = 'two'\n[limits]\nscratch_mib = 7\n")
        assert await notices.reload() == "configuration read, changed: default_runtime, limits.scratch_mib"
        assert (configuration.now().default_runtime, configuration.now().limits.scratch_mib) == ("two", 7)
        origins = {each.name: each.origin for each in configuration.settings()}
        assert (origins["default_runtime"], origins["root"]) == (f"{file}:2", "flag")

    played(file, manager, scene)


def test_a_renamed_file_and_a_swapped_data_link_are_in_force_at_once(tmp_path: Path, manager: socket.socket) -> None:
    etc = tmp_path / "etc"
    etc.mkdir()

    def version(name: str) -> None:
        (etc / f"..{name}").mkdir()
        (etc / f"..{name}/config.toml").write_text(f"default_runtime = '{name}'\n")
        (etc / "..data_tmp").symlink_to(f"..{name}")
        (etc / "..data_tmp").rename(etc / "..data")

    version("one")
    (etc / "config.toml").symlink_to("..data/config.toml")

    async def scene(configuration: Configuration, notices: Notices) -> None:
        for name in ("two", "three"):
            version(name)
            assert await notices.reload() == "configuration read, changed: default_runtime"
            assert configuration.now().default_runtime == name
        (etc / "new").write_text("default_runtime = 'four'\n")
        (etc / "new").rename(etc / "config.toml")
        await notices.reload()
        assert configuration.now().default_runtime == "four"

    played(etc / "config.toml", manager, scene)


def test_a_broken_file_changes_nothing_and_every_error_is_logged_with_its_line(
    file: Path, manager: socket.socket
) -> None:
    async def scene(configuration: Configuration, notices: Notices) -> None:
        before = (configuration.now(), configuration.settings())
        with capture_logs() as logged:
            write(file, "default_runtime = 3\n\nfoo = 1\n")
            assert f"refused, the one before stays in force: {file}:1: default_runtime" in await notices.reload()
        assert (configuration.now(), configuration.settings()) == before
        problems = [line["problem"].split(": ")[:2] for line in logged if line["log_level"] == "error"]
        assert problems == [[f"{file}:1", "default_runtime"], [f"{file}:3", "foo"]]
        write(file, "default_runtime = 'two'\n")
        await notices.reload()
        assert configuration.now().default_runtime == "two"

    played(file, manager, scene)


def replace_by_directory(file: Path) -> None:
    file.unlink()
    file.mkdir()


SPOILT: dict[str, Callable[[Path], object]] = {
    "gone": Path.unlink,
    "a directory": replace_by_directory,
    "writable by others": lambda file: file.chmod(0o666),
    "no TOML": lambda file: file.write_text("="),
}


@pytest.mark.parametrize("how", SPOILT)
def test_a_file_that_cannot_be_used_any_more_changes_nothing(file: Path, manager: socket.socket, how: str) -> None:
    async def scene(configuration: Configuration, notices: Notices) -> None:
        SPOILT[how](file)
        assert "refused, the one before stays in force" in await notices.reload()
        assert configuration.now().default_runtime == "one"

    played(file, manager, scene)


def test_a_file_that_comes_later_is_in_force_then(tmp_path: Path, manager: socket.socket) -> None:
    file = tmp_path / "etc/exitd/config.toml"

    async def scene(configuration: Configuration, notices: Notices) -> None:
        assert configuration.now().default_runtime == "runc"
        file.parent.mkdir(parents=True)
        write(file, "default_runtime = 'two'\n")
        assert await notices.reload() == "configuration read, changed: default_runtime"
        assert configuration.now().default_runtime == "two"

    played(file, manager, scene, required=False)


def test_a_sighup_is_answered_also_when_nothing_has_changed(file: Path, manager: socket.socket) -> None:
    async def scene(configuration: Configuration, notices: Notices) -> None:
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGHUP)
            assert await notices.reload() == "configuration read, changed: nothing"

    played(file, manager, scene)


def test_a_sighup_without_any_file_is_no_trouble(tmp_path: Path, manager: socket.socket) -> None:
    async def scene(configuration: Configuration, notices: Notices) -> None:
        os.kill(os.getpid(), signal.SIGHUP)
        assert await notices.reload() == "configuration read, changed: nothing"

    played(tmp_path / "none/config.toml", manager, scene, required=False)


def test_a_change_between_the_first_reading_and_the_watch_is_found(file: Path, manager: socket.socket) -> None:
    async def main() -> None:
        configuration = Configuration(str(file), required=True, given={})
        write(file, "default_runtime = 'two'\n")
        inotify = Inotify()
        inotify.start()
        following = asyncio.create_task(Reloads(configuration, inotify).forever())
        await Notices(manager).reload()
        assert configuration.now().default_runtime == "two"
        following.cancel()
        inotify.close()

    asyncio.run(main())


def test_the_same_content_written_again_is_no_reload(file: Path, manager: socket.socket) -> None:
    async def scene(configuration: Configuration, notices: Notices) -> None:
        write(file, "default_runtime = 'one'\n")
        (file.parent / "other").write_text("x")
        write(file, "default_runtime = 'two'\n")
        assert await notices.reload() == "configuration read, changed: default_runtime"

    played(file, manager, scene)


def test_what_cannot_change_now_is_said_and_the_rest_is_in_force(file: Path, manager: socket.socket) -> None:
    async def scene(configuration: Configuration, notices: Notices) -> None:
        with capture_logs() as logged:
            write(file, "state = '/elsewhere'\ndefault_runtime = 'two'\nroot = '/other'\n")
            await notices.reload()
        assert (configuration.now().state, configuration.now().default_runtime) == ("/run/exitd", "two")
        (said,) = [line["what"] for line in logged if line["log_level"] == "warning"]
        assert said.startswith(f"{file}:1: state cannot change while exitd runs, /run/exitd stays in force")

    played(file, manager, scene)


def test_a_required_file_must_be_there_and_the_default_one_need_not(tmp_path: Path) -> None:
    path = str(tmp_path / "none.toml")
    with pytest.raises(BadConfig, match=r"none\.toml: no such file"):
        Configuration(path, required=True, given={})
    assert Configuration(path, required=False, given=ROOT).now().root == "/r"


def test_a_broken_file_at_the_start_is_an_error_with_all_its_lines(file: Path) -> None:
    write(file, "a = 1\nb = 2\n")
    with pytest.raises(BadConfig) as caught:
        Configuration(str(file), required=False, given={})
    assert [line.split(": ")[0] for line in str(caught.value).splitlines()] == [f"{file}:1", f"{file}:2"]


def test_a_path_that_cannot_be_watched_is_said_once_and_sighup_still_works(
    tmp_path: Path, manager: socket.socket
) -> None:
    file = tmp_path / os.fsdecode(b"\xff") / "config.toml"
    file.parent.mkdir()
    write(file, "default_runtime = 'one'\n")

    async def scene(configuration: Configuration, notices: Notices) -> None:
        with capture_logs() as logged:
            for name in ("two", "three"):
                write(file, f"default_runtime = '{name}'\n")
                os.kill(os.getpid(), signal.SIGHUP)
                await notices.reload()
                assert configuration.now().default_runtime == name
        assert sum("send SIGHUP" in line["event"] for line in logged) == 1

    played(file, manager, scene)


def no_room() -> OSError:
    return OSError(errno.EMFILE, os.strerror(errno.EMFILE))


# What says nothing about the file, and whose word it is.
PASSING: dict[str, tuple[object, str, Exception]] = {
    "it hangs": (Aside, "run", TimedOut("took more than 10 s")),
    "no thread": (Aside, "run", Busy("no thread can be started")),
    "no descriptor": (file_module, "_without_waiting", no_room()),
}


@pytest.mark.parametrize("why", PASSING)
def test_a_change_that_cannot_be_read_now_is_read_later_without_another_one(
    file: Path, manager: socket.socket, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    owner, name, error = PASSING[why]
    monkeypatch.setattr(reload, "AGAIN_SECONDS", 0.01)

    def refuse(*_: object, **__: object) -> NoReturn:
        raise error

    async def scene(configuration: Configuration, notices: Notices) -> None:
        write(file, "default_runtime = 'two'\n")
        assert await notices.reload() == "configuration read, changed: default_runtime"
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, refuse)
            write(file, "default_runtime = 'three'\n")
            said = await notices.reload()
        assert said.startswith("configuration cannot be read now, the one before stays in force: ")
        assert await notices.reload() == "configuration read, changed: default_runtime"
        assert configuration.now().default_runtime == "three"

    played(file, manager, scene)


def test_a_file_that_cannot_be_watched_now_is_watched_later(
    file: Path, manager: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused, renew = [no_room()] * 3, PathWatch.renew
    monkeypatch.setattr(reload, "AGAIN_SECONDS", 0.01)

    async def renewed(self: PathWatch) -> None:
        if refused:
            raise refused.pop()
        await renew(self)

    monkeypatch.setattr(PathWatch, "renew", renewed)

    async def scene(configuration: Configuration, notices: Notices) -> None:
        await until(lambda: not refused)
        write(file, "default_runtime = 'two'\n")
        assert await notices.reload() == "configuration read, changed: default_runtime"

    played(file, manager, scene)
