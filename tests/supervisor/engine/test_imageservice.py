"""The image store behind the event loop: nobody waits for another's load, and a container holds what it stands on."""

import asyncio
import os
import pathlib
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager

import pytest

from supervisor.engine import imageservice
from supervisor.engine.imageservice import LOADS, PULLS, ImageService, pause_root
from supervisor.images import merge, saved
from supervisor.images.changes import layer_tar
from supervisor.images.facts import Resolved
from supervisor.images.store import Images
from supervisor.model.errors import CannotStart, ImageInUse, NoSuchImage, ShuttingDown, TimedOut
from supervisor.model.values import Spec
from supervisor.system.aside import Aside
from supervisor.system.conduit import STALL_SECONDS, Outflow
from tests.supervisor.fakes import let_pass, until
from tests.supervisor.images.building import write_layout
from tests.supervisor.images.stores import PLAIN, TALL

pytestmark = pytest.mark.root("layers need root")

LIMIT_SECONDS = 30.0


@asynccontextmanager
async def opened(root: pathlib.Path, pause: Resolved | None = None) -> AsyncIterator[ImageService]:
    service = ImageService(Images(str(root), pause=pause))
    try:
        yield service
    finally:
        await service.close()


def run(root: pathlib.Path, test: Callable[[ImageService], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(LIMIT_SECONDS), opened(root) as service:
            await test(service)

    asyncio.run(main())


def asked(image: str, **fields: object) -> Spec:
    return Spec(**{"name": "n", "image": image, "cwd": "", "stop_signal": 0, **fields})  # type: ignore[arg-type]


async def resolve(service: ImageService, spec: Spec, container_id: str) -> Spec:
    """As a spec is admitted."""
    complete = merge.complete(spec, await service.look_up(spec))
    await service.hold(complete, container_id)
    return complete


@pytest.fixture
def layout(tmp_path: pathlib.Path) -> str:
    return str(write_layout(tmp_path / "box", {"plain": PLAIN, "tall": TALL}))


def test_a_container_has_its_image_until_it_is_released(tmp_path: pathlib.Path, layout: str) -> None:
    async def test(service: ImageService) -> None:
        spec = await resolve(service, asked(f"oci:{layout}:tall", args=("x",)), "c1")
        assert (spec.args, spec.user, spec.cwd, spec.stop_signal) == (("/bin/sh", "x"), "1:2", "/w", 2)
        assert (spec.image_id, len(spec.layers)) == (TALL.id, 2)
        with pytest.raises(ImageInUse, match="c1"):
            await service.remove_image("box:tall")
        assert [users for _, users in await service.list_images()] == [("c1",)]
        for _ in range(2):
            await service.discarded("c1")
        assert (await service.remove_image("box:tall")).ids == (TALL.id,)

    run(tmp_path / "r", test)


def test_what_has_no_image_in_the_store_holds_nothing(tmp_path: pathlib.Path) -> None:
    async def test(service: ImageService) -> None:
        directory = await resolve(service, asked(str(tmp_path), args=("x",)), "c1")
        assert (directory.layers, directory.image_id) == ((str(tmp_path),), "")
        assert (await resolve(service, Spec("n", rootfs="/", args=("x",)), "c2")).layers == ()
        assert os.listdir(tmp_path / "r/images/holds") == []

    run(tmp_path / "r", test)


def test_an_id_decides_and_the_word_is_only_kept(tmp_path: pathlib.Path, layout: str) -> None:
    async def test(service: ImageService) -> None:
        image = await service.pull_image(f"oci:{layout}:plain", False)
        spec = await resolve(service, asked("docker://127.0.0.1:1/nobody:answers", image_id=image.id), "c1")
        assert (spec.image_id, spec.args, spec.image) == (PLAIN.id, ("sh",), "docker://127.0.0.1:1/nobody:answers")
        with pytest.raises(NoSuchImage):
            await resolve(service, asked("x", image_id="sha256:" + "0" * 64), "c2")

    run(tmp_path / "r", test)


def test_a_request_that_is_refused_holds_nothing(tmp_path: pathlib.Path, layout: str) -> None:
    async def test(service: ImageService) -> None:
        with pytest.raises(NoSuchImage):
            await resolve(service, asked("nothing"), "c1")
        bad = Spec("n", image=f"oci:{layout}:tall", entrypoint=("",))
        with pytest.raises(Exception, match="which command"):
            await resolve(service, bad, "c2")
        assert os.listdir(tmp_path / "r/images/holds") == []

    run(tmp_path / "r", test)


def test_at_the_start_holds_become_those_of_the_containers_and_leftovers_go(
    tmp_path: pathlib.Path, layout: str
) -> None:
    leftover = tmp_path / "r/images/staging/x/layers/y"

    async def first(service: ImageService) -> None:
        await resolve(service, asked(f"oci:{layout}:plain"), "gone")
        leftover.mkdir(parents=True)

    async def second(service: ImageService) -> None:
        service.hold_only({"there": PLAIN.id})
        assert [users for _, users in await service.list_images()] == [("there",)]
        while leftover.exists():  # noqa: ASYNC110  # removed in the background, which nobody announces
            await asyncio.sleep(0)

    run(tmp_path / "r", first)
    run(tmp_path / "r", second)


def test_pulls_that_hang_hold_up_no_load_no_container_and_no_end_of_the_daemon(
    tmp_path: pathlib.Path, layout: str
) -> None:
    async def test(service: ImageService) -> None:
        with socket.create_server(("127.0.0.1", 0), backlog=64) as silent:
            name = f"127.0.0.1:{silent.getsockname()[1]}/x"
            pulls = [asyncio.create_task(service.pull_image(name, False)) for _ in range(PULLS + 2)]
            silent.settimeout(LIMIT_SECONDS)
            await asyncio.to_thread(silent.accept)
            await service.load_image(layout, "")
            await resolve(service, asked("box:plain"), "c1")
            await service.discarded("c1")
            await service.remove_image("box:plain")
            begun = asyncio.get_running_loop().time()
            await service.close()
            assert asyncio.get_running_loop().time() - begun < LIMIT_SECONDS / 3
            ends = await asyncio.gather(*pulls, return_exceptions=True)
        assert {type(end) for end in ends} <= {ShuttingDown, asyncio.CancelledError}
        assert ShuttingDown in {type(end) for end in ends}

    async def main() -> None:
        async with asyncio.timeout(LIMIT_SECONDS):
            await test(ImageService(Images(str(tmp_path / "r"))))

    asyncio.run(main())
    for thread in [each for each in threading.enumerate() if each.name.startswith("image-")]:
        thread.join(LIMIT_SECONDS)  # told to end, and not waited for
        assert not thread.is_alive()


def test_an_archive_that_is_measured_for_long_is_waited_for(
    tmp_path: pathlib.Path, layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each layer is read for its digest before the first byte comes."""
    outflows, packed, over = list[Outflow](), layer_tar, threading.Event()

    def outflow(what: str) -> Outflow:
        outflows.append(Outflow(what))
        return outflows[0]

    def slow(fd: int, below: tuple[str, ...]) -> Generator[bytes, None, None]:
        while not over.wait(0.01):
            yield b""
        yield from packed(fd, below)

    monkeypatch.setattr(imageservice, "Outflow", outflow)
    monkeypatch.setattr(saved, "layer_tar", slow)

    async def sign_of_life(first: "asyncio.Future[bytes]") -> None:
        now = asyncio.get_running_loop().time()
        await until(lambda: first.done() or (outflows and outflows[0]._sign_of_life > now), "a sign of life")

    async def main() -> None:
        async with opened(tmp_path / "r") as service:
            await service.load_image(layout, "")
            parts = service.save_images(("box:tall",))
            first = asyncio.ensure_future(anext(parts))
            try:
                for _ in range(6):  # three times as long as without a sign of life
                    await sign_of_life(first)
                    let_pass(monkeypatch, STALL_SECONDS / 2)
                await sign_of_life(first)
            finally:
                over.set()
            assert await first
            async for _ in parts:
                pass

    asyncio.run(main())


def test_more_loads_than_threads_all_come_to_their_end(tmp_path: pathlib.Path, layout: str) -> None:
    async def test(service: ImageService) -> None:
        loaded = await asyncio.gather(*(service.load_image(layout, "") for _ in range(3 * LOADS)))
        assert {tuple(image.id for image in images) for images in loaded} == {(PLAIN.id, TALL.id)}

    run(tmp_path / "r", test)


def test_a_caller_that_goes_away_leaves_the_load_to_its_end(tmp_path: pathlib.Path, layout: str) -> None:
    async def test(service: ImageService) -> None:
        load = asyncio.create_task(service.load_image(layout, ""))
        await asyncio.sleep(0)  # it has begun
        load.cancel()
        with pytest.raises(asyncio.CancelledError):
            await load
        while len(await service.list_images()) < 2:
            pass

    run(tmp_path / "r", test)


def test_the_pause_root_holds_the_program_and_is_renewed_only_when_that_changes(tmp_path: pathlib.Path) -> None:
    program = tmp_path / "program"
    program.write_bytes(b"first")
    found = pause_root(str(tmp_path), str(program))
    path = tmp_path / "pause/pause"
    assert (found.lower, found.config.args(()), found.image) == ((str(tmp_path / "pause"),), ("/pause",), "")
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"first", 0o755)
    inode = path.stat().st_ino
    pause_root(str(tmp_path), str(program))
    assert path.stat().st_ino == inode
    program.write_bytes(b"later")
    pause_root(str(tmp_path), str(program))
    assert path.read_bytes() == b"later"
    assert sorted(os.listdir(tmp_path / "pause")) == ["dev", "pause", "proc", "sys"]


def test_a_pause_root_that_cannot_be_made_stops_the_daemon_by_name(tmp_path: pathlib.Path) -> None:
    (tmp_path / "pause").write_text("a file")
    with pytest.raises(CannotStart, match="pause"):
        pause_root(str(tmp_path), "/bin/sh")


def test_a_directory_of_the_callers_that_hangs_holds_no_thread_that_others_need(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hung, names = threading.Event(), list[str]()

    def hang(path: str) -> bool:
        names.append(threading.current_thread().name)
        return hung.wait()

    async def main() -> None:
        service = ImageService(Images(str(tmp_path / "r")), Aside(limit_seconds=0.05))
        with monkeypatch.context() as patched:
            patched.setattr(os.path, "isdir", hang)
            with pytest.raises(TimedOut, match="looking at /hung/root took more than"):
                await resolve(service, asked("/hung/root"), "c1")
            await until(lambda: names, "the look, which may begin late")
        hung.set()
        await service.close()

    asyncio.run(main())
    assert names == ["aside"]
