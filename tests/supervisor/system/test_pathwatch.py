"""Every way a path comes to lead to another content, on real directories."""

import asyncio
import os
import pathlib
from collections.abc import Awaitable, Callable

import pytest

from supervisor.system.aside import Aside
from supervisor.system.inotify import Inotify, Overflow
from supervisor.system.pathwatch import PathWatch, steps
from tests.supervisor.system.test_inotify import flood

LIMIT_SECONDS = 10


class Follower:
    """What `path` holds, read only when a change is reported."""

    def __init__(self, inotify: Inotify, path: pathlib.Path) -> None:
        self._path = path
        self._told = asyncio.Event()
        self.count = 0
        self.watch = PathWatch(inotify, str(path), self._notify, Aside())

    def _notify(self) -> None:
        self.count += 1
        self._told.set()

    async def until(self, content: str | None) -> None:
        async with asyncio.timeout(LIMIT_SECONDS):
            while True:
                await self._told.wait()
                self._told.clear()
                await self.watch.renew()
                if read(self._path) == content:
                    return


def read(path: pathlib.Path) -> str | None:
    try:
        return path.read_text()
    except (FileNotFoundError, NotADirectoryError):
        return None


def followed(path: pathlib.Path, test: Callable[[Follower], Awaitable[None]]) -> None:
    async def main() -> None:
        inotify = Inotify()
        inotify.start()
        follower = Follower(inotify, path)
        await follower.watch.renew()
        try:
            await test(follower)
        finally:
            follower.watch.close()
            inotify.close()

    asyncio.run(main())


@pytest.fixture
def base(tmp_path: pathlib.Path) -> pathlib.Path:
    return tmp_path.resolve()


def test_the_steps_of_a_plain_path_are_its_look_ups(base: pathlib.Path) -> None:
    (base / "f").touch()
    assert steps(f"{base}/f")[-2:] == ((str(base.parent), base.name), (str(base), "f"))
    assert steps(f"{base}//./none/../f")[-1] == (str(base), "none")
    assert steps(f"{base}/f/x")[-1] == (f"{base}/f", "x")
    assert steps("/") == ()


def test_the_steps_go_through_every_link(base: pathlib.Path) -> None:
    (base / "v1").mkdir()
    (base / "v1/f").touch()
    (base / "..data").symlink_to("v1")
    (base / "f").symlink_to("..data/f")
    (base / "far").symlink_to(f"{base}/v1/../f")
    there = [(str(base), "f"), (str(base), "..data"), (str(base), "v1"), (f"{base}/v1", "f")]
    assert list(steps(f"{base}/f")[-4:]) == there
    assert list(steps(f"{base}/far")[-5:]) == [(str(base), "v1"), *there]


def test_links_in_a_circle_come_to_an_end(base: pathlib.Path) -> None:
    (base / "a").symlink_to("b")
    (base / "b").symlink_to("a")
    assert len(steps(f"{base}/a")) < 60


def test_a_file_that_is_written_in_place_is_reported(base: pathlib.Path) -> None:
    path = base / "f"
    path.write_text("old")

    async def test(follower: Follower) -> None:
        path.write_text("new")
        await follower.until("new")

    followed(path, test)


def test_a_file_renamed_over_it_is_reported(base: pathlib.Path) -> None:
    path = base / "f"
    path.write_text("old")

    async def test(follower: Follower) -> None:
        for content in ("one", "two", "three"):
            (base / "f.new").write_text(content)
            (base / "f.new").rename(path)
            await follower.until(content)

    followed(path, test)


def test_a_file_moved_away_and_made_anew_is_reported(base: pathlib.Path) -> None:
    path = base / "f"
    path.write_text("old")

    async def test(follower: Follower) -> None:
        path.rename(base / "f~")
        await follower.until(None)
        path.write_text("new")
        await follower.until("new")

    followed(path, test)


def test_a_directory_that_comes_later_is_reported_at_every_level(base: pathlib.Path) -> None:
    path = base / "etc/exitd/f"

    async def test(follower: Follower) -> None:
        path.parent.mkdir(parents=True)
        path.write_text("new")
        await follower.until("new")

    followed(path, test)


def test_a_directory_replaced_by_another_is_reported(base: pathlib.Path) -> None:
    path = base / "etc/f"
    for name, content in (("etc", "old"), ("other", "new")):
        (base / name).mkdir()
        (base / name / "f").write_text(content)

    async def test(follower: Follower) -> None:
        (base / "etc").rename(base / "etc.old")
        (base / "other").rename(base / "etc")
        await follower.until("new")
        path.write_text("newest")
        await follower.until("newest")

    followed(path, test)


def test_a_swapped_data_link_is_reported_every_time(base: pathlib.Path) -> None:
    """A ConfigMap's volume: f -> ..data/f, ..data -> ..1, and another link renamed over ..data."""
    path = base / "f"
    path.symlink_to("..data/f")

    def version(number: int) -> None:
        (base / f"..{number}").mkdir()
        (base / f"..{number}/f").write_text(str(number))
        (base / "..data_tmp").symlink_to(f"..{number}")
        (base / "..data_tmp").rename(base / "..data")

    version(1)

    async def test(follower: Follower) -> None:
        for number in (2, 3, 4):
            version(number)
            await follower.until(str(number))

    followed(path, test)


def test_a_directory_that_is_a_link_is_followed_to_where_it_leads_next(base: pathlib.Path) -> None:
    for name in ("one", "two"):
        (base / name).mkdir()
        (base / name / "f").write_text(name)
    (base / "etc").symlink_to("one")

    async def test(follower: Follower) -> None:
        (base / "etc.new").symlink_to(base / "two")
        (base / "etc.new").rename(base / "etc")
        await follower.until("two")
        (base / "two/f").write_text("new")
        await follower.until("new")

    followed(base / "etc/f", test)


def test_a_link_made_where_there_was_nothing_is_reported(base: pathlib.Path) -> None:
    (base / "real").write_text("new")

    async def test(follower: Follower) -> None:
        (base / "f").symlink_to("real")
        await follower.until("new")

    followed(base / "f", test)


def test_others_in_the_directory_are_nobodys_business_also_with_names_that_are_no_utf8(base: pathlib.Path) -> None:
    path = base / "f"

    async def test(follower: Follower) -> None:
        for name in (b"a", b"\xff\xfe", b".f.swp"):
            (base / os.fsdecode(name)).write_text("x")
        made = path.open("w")  # reported at its end, not by its beginning
        made.write("new")
        made.flush()
        os.rename(base / "a", base / "b")
        made.close()
        await follower.until("new")
        assert follower.count == 1

    followed(path, test)


def test_a_permission_that_changes_is_reported(base: pathlib.Path) -> None:
    path = base / "f"
    path.write_text("")

    async def test(follower: Follower) -> None:
        path.chmod(0o600)
        await follower.until("")

    followed(path, test)


def test_an_overflow_is_a_reason_to_look(base: pathlib.Path) -> None:
    async def main() -> None:
        inotify = Inotify()
        inotify.start()
        reported = asyncio.Event()
        await PathWatch(inotify, str(base / "f"), reported.set, Aside()).renew()
        inotify.dispatch(Overflow())
        async with asyncio.timeout(LIMIT_SECONDS):
            await reported.wait()
        inotify.close()

    asyncio.run(main())


def test_a_change_that_the_kernel_dropped_is_found_by_the_look_after_the_overflow(base: pathlib.Path) -> None:
    path = base / "f"
    path.write_text("old")

    async def test(follower: Follower) -> None:
        flood(base)
        (base / "f.new").write_text("new")
        (base / "f.new").rename(path)
        await follower.until("new")

    followed(path, test)


def test_renewing_and_closing_leave_no_watch_behind(base: pathlib.Path) -> None:
    async def main() -> None:
        inotify = Inotify()
        inotify.start()
        watch = PathWatch(inotify, str(base / "f"), lambda: None, Aside())
        for _ in range(20):
            await watch.renew()
        assert sum(len(each) for each in inotify._watches.values()) == len(steps(str(base / "f")))
        watch.close()
        watch.close()
        assert inotify._watches == {}
        inotify.close()

    asyncio.run(main())


def test_a_path_that_cannot_be_watched_is_an_error(base: pathlib.Path) -> None:
    async def main() -> None:
        inotify = Inotify()
        inotify.start()
        bad = base / os.fsdecode(b"\xff")
        bad.mkdir()
        with pytest.raises(OSError):
            await PathWatch(inotify, str(bad / "f"), lambda: None, Aside()).renew()
        inotify.close()

    asyncio.run(main())
