"""The image store for the event loop: its blocking calls in threads, and what an IMAGE word of a spec means."""

import asyncio
import contextlib
import filecmp
import os
import shutil
from collections.abc import AsyncGenerator, Callable, Collection, Generator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import structlog

from supervisor.engine.participants import Participant
from supervisor.images.facts import Image, ImageDefaults, PrunedImages, RemovedImage, Resolved
from supervisor.images.store import Images
from supervisor.model.errors import CannotStart, ExitdError, ImageStoreFailed, TimedOut
from supervisor.model.values import Spec
from supervisor.system import threads
from supervisor.system.aside import Aside
from supervisor.system.conduit import Outflow, StreamOver

LOADS, PULLS, REMOVALS, SAVES, COMMITS = 4, 4, 2, 4, 4  # at once; more wait for their turn
TURN_SECONDS = 1800.0  # that an archive waits for its turn
CLOSE_SECONDS = 10.0

T = TypeVar("T")

log = structlog.get_logger(__name__)


def pause_directory(root: str) -> str:
    """Return where the pause image is."""
    return f"{root}/pause"


def pause_root(root: str, program: str) -> Resolved:
    """Make the pause image, or bring it up to date: a directory with exitd's own pause program and the places that a
    runtime mounts on.

    One that is up to date is left alone, for there are containers on it. Raises CannotStart.
    """
    directory = pause_directory(root)
    try:
        for place in ("", "dev", "proc", "sys"):
            os.makedirs(os.path.join(directory, place), mode=0o755, exist_ok=True)
        if not _is_same(program, f"{directory}/pause"):
            shutil.copyfile(program, f"{directory}/.pause.new")
            os.chmod(f"{directory}/.pause.new", 0o755)
            os.rename(f"{directory}/.pause.new", f"{directory}/pause")
    except OSError as error:
        raise CannotStart(f"the pause program cannot be put into {directory}: {error.strerror}") from error
    return Resolved((directory,), ImageDefaults(entrypoint=("/pause",)), name="pause")


def _is_same(program: str, path: str) -> bool:
    try:
        return filecmp.cmp(program, path, shallow=False) and os.stat(path).st_mode & 0o777 == 0o755
    except FileNotFoundError:
        return False


class ImageService(Participant):
    """Implements `supervisor.api.servicers.ImageCalls`.

    What may take long has threads of its own, so that everybody else's are free; a caller that goes away changes
    nothing, the work goes on to its end.
    """

    def __init__(self, images: Images, looks: Aside | None = None) -> None:
        """`looks`: for directories of callers', which may hang."""
        self._images = images
        self._loads = threads.pool(LOADS, "image-load")
        self._pulls = threads.pool(PULLS, "image-pull")
        self._removals = threads.pool(REMOVALS, "image-rm")
        self._saves = threads.pool(SAVES, "image-save")
        self._commits = threads.pool(COMMITS, "image-commit")
        self._looks = looks or Aside()
        self._under_way: set[asyncio.Future[object]] = set()
        self._holders: set[str] = set()  # containers that may hold an image

    async def look_up(self, spec: Spec) -> Resolved | None:
        """Return what its IMAGE is; it is pulled or loaded first, where the word says so. None: it names no image."""
        if not spec.image:
            return None
        if spec.image == "pause":
            return self._images.resolve(spec.image)
        if not spec.image_id and spec.image.startswith("/"):  # a directory of the caller's
            return await self._looks.run(
                f"looking at {spec.image}", lambda: self._images.resolve(spec.image), spec.image
            )
        if spec.image_id or not spec.image.startswith(("docker://", "oci:", "docker-archive:")):
            return await asyncio.to_thread(self._images.resolve, spec.image, spec.image_id)
        pool = self._pulls if spec.image.startswith("docker://") else self._loads
        return await self._in(pool, lambda: self._images.resolve(spec.image))

    async def hold(self, spec: Spec, container_id: str) -> None:
        """Keep the container's image, if it is one of the store's, from now on until the container is discarded."""
        if spec.image_id:
            self._holders.add(container_id)
            await asyncio.to_thread(self._images.hold, container_id, spec.image_id)

    async def discarded(self, container_id: str) -> None:
        """Let go of the container's image. Repeatable."""
        if container_id in self._holders:
            await asyncio.to_thread(self._images.release, container_id)
            self._holders.discard(container_id)

    def hold_only(self, containers: Mapping[str, str], undecided: Collection[str] = ()) -> None:
        """Keep the images of these containers (image ids by container ids), at the daemon's start, before anything else
        happens to one. What an earlier daemon left behind is removed in the background. What the `undecided` hold, they
        keep."""
        self._images.hold_only(containers, undecided)
        self._holders |= {*containers, *undecided}
        self._begin(self._removals, self._images.tidy).add_done_callback(_log_failure)

    async def load_image(self, word: str, name: str) -> tuple[Image, ...]:
        """As `Images.load`, in a thread. The load goes on when its caller goes away."""
        return await self._in(self._loads, lambda: self._images.load(word, name=name))

    async def pull_image(self, name: str, if_missing: bool) -> Image:
        """As `Images.pull`, in a thread: a pull from a registry that hangs takes no thread from loads. It goes on when
        its caller goes away."""
        pool = self._loads if name.startswith(("oci:", "docker-archive:")) else self._pulls
        return await self._in(pool, lambda: self._images.pull(name, if_missing=if_missing))

    async def import_image(self, path: str, name: str) -> Image:
        """As `Images.import_`, in a thread. The import goes on when its caller goes away."""
        return await self._in(self._loads, lambda: self._images.import_(path, name=name))

    async def list_images(self) -> tuple[tuple[Image, tuple[str, ...]], ...]:
        """Return the images by name, those without one last, each with the ids of the containers that use it."""
        return await asyncio.to_thread(self._list)

    def _list(self) -> tuple[tuple[Image, tuple[str, ...]], ...]:
        users = self._images.users()
        return tuple((image, users.get(image.id, ())) for image in self._images.list())

    async def layers(self) -> dict[str, str]:
        """Return the directories of the layers of all images, by diff id."""
        return await asyncio.to_thread(self._images.layers)

    async def remove_image(self, word: str) -> RemovedImage:
        """As `Images.remove`, in a thread."""
        return await self._in(self._removals, lambda: self._images.remove(word))

    async def inspect_image(self, word: str) -> tuple[Image, tuple[str, ...], bytes]:
        """Return an image, the containers that use it, and its configuration."""

        def look() -> tuple[Image, tuple[str, ...], bytes]:
            image, config = self._images.inspect(word)
            return image, self._images.users().get(image.id, ()), config

        return await asyncio.to_thread(look)

    async def tag_image(self, word: str, name: str) -> Image:
        return await self._in(self._removals, lambda: self._images.tag(word, name))

    async def untag_image(self, word: str, names: tuple[str, ...]) -> tuple[str, ...]:
        return await self._in(self._removals, lambda: self._images.untag(word, names))

    async def prune_images(self, ids: tuple[str, ...], all: bool) -> PrunedImages:
        return await self._in(self._removals, lambda: self._images.prune(ids, all=all))

    async def save_images(self, words: tuple[str, ...]) -> AsyncGenerator[bytes, None]:
        """Yield one archive of them. Raises TimedOut when the caller does not take it."""
        outflow, begun = Outflow("saving images"), asyncio.Event()
        loop = asyncio.get_running_loop()

        def save() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: the daemon ends
                loop.call_soon_threadsafe(begun.set)
            error: BaseException | None = None
            try:
                # It keeps layers from going. Each is read for its digest before anything comes.
                with contextlib.closing(self._images.save(words, outflow.working)) as parts:
                    for part in parts:
                        outflow.put(part)
            except (StreamOver, ExitdError) as failed:
                error = failed
            except OSError as failed:
                error = ImageStoreFailed(f"saving images: {failed.strerror or failed}")
            finally:
                with contextlib.suppress(StreamOver):
                    outflow.end(error)

        self._begin(self._saves, save).add_done_callback(lambda _: begun.set())
        try:
            try:
                async with asyncio.timeout(TURN_SECONDS):
                    await begun.wait()
            except TimeoutError as error:
                raise TimedOut(
                    f"saving images: no turn came in {TURN_SECONDS:g} s; {SAVES} are saved at once"
                ) from error
            async for part in outflow.parts():
                yield part
        finally:
            outflow.close()

    async def commit(
        self,
        parts: Callable[[], Generator[bytes, None, None]],
        base_id: str,
        document: Callable[[bytes, str], bytes],
        name: str,
    ) -> Image:
        """As `Images.commit`; `parts` is called in a thread, once there is one."""
        return await self._in(self._commits, lambda: self._images.commit(parts(), base_id, document, name=name))

    def stop(self) -> None:
        """Break off loads and pulls under way. A call that waits for them gets the reason; none of them is listed."""
        self._images.stop()

    async def close(self) -> None:
        """Break off what is under way, wait CLOSE_SECONDS for it at most, and close the store. It stays open, until
        this process ends, for work that does not end by then."""
        self.stop()
        for pool in (self._loads, self._pulls, self._removals, self._saves, self._commits):
            pool.shutdown(wait=False, cancel_futures=True)
        if self._under_way:
            _, late = await asyncio.wait(set(self._under_way), timeout=CLOSE_SECONDS)
            if late:  # they may use the store yet: it stays open as long as this process
                log.warning("work on images does not end", count=len(late), limit_seconds=CLOSE_SECONDS)
                return
        self._images.close()

    async def _in(self, pool: ThreadPoolExecutor, work: Callable[[], T]) -> T:
        begun = self._begin(pool, work)
        try:
            return await asyncio.shield(begun)
        except asyncio.CancelledError:
            begun.add_done_callback(_log_unheard)
            raise

    def _begin(self, pool: ThreadPoolExecutor, work: Callable[[], T]) -> "asyncio.Future[T]":
        future = asyncio.get_running_loop().run_in_executor(pool, work)
        self._under_way.add(future)  # type: ignore[arg-type]  # Future is invariant; these are not asked for results
        future.add_done_callback(self._under_way.discard)
        return future


def _log_unheard(work: "asyncio.Future[Any]") -> None:
    error = None if work.cancelled() else work.exception()
    if error is not None:
        log.info("work on images failed, and its caller has gone", why=str(error))


def _log_failure(work: "asyncio.Future[None]") -> None:
    error = None if work.cancelled() else work.exception()
    if error is not None:
        log.warning("leftovers of images not removed", why=str(error))
