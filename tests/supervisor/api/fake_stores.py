"""Pods and images that keep their word in memory, beside the fake node: they note and fail as it does."""

from collections.abc import AsyncIterator, Callable
from dataclasses import replace

from supervisor.images.extract import ExtractedCounts
from supervisor.images.facts import Image, Layer, PrunedImages, RemovedImage
from supervisor.images.instructions import CommitWords
from supervisor.model.files import LayerChange, PathStat
from supervisor.model.networks import NetworkView, PrunedNetworks, PublishedPort, StuckAttachment
from supervisor.model.pods import PodState
from supervisor.model.values import By, Container, Exit, Phase, Pod, Spec
from supervisor.model.views import ContainerUsage, DiskUsage, Occupied, PodView, View
from supervisor.model.volumes import Volume
from tests.supervisor.api.fake_node import AT_NS, FakeNode, ended

IMAGE = Image("sha256:1", "sha256:2", ("localhost/a:latest",), (), "2026-11-20T12:00:00Z")


class FakePods:
    def __init__(self, node: FakeNode) -> None:
        self._note = node.note

    def _view(self, spec: Spec) -> PodView:
        pause = Container("p1", spec, Phase.RUNNING, 1, AT_NS)
        return PodView(
            spec.pod or Pod("web"), PodState.READY, View(pause), (View(Container("c1", spec, Phase.EXITED, 1, AT_NS)),)
        )

    async def run_pod(self, spec: Spec, by: By) -> PodView:
        self._note("run_pod", spec, by)
        return self._view(spec)

    async def stop_pod(self, id: str, timeout_seconds: int | None, by: By) -> PodView:
        self._note("stop_pod", id, timeout_seconds, by)
        return self._view(Spec("web"))

    async def remove_pod(self, id: str, force: bool, by: By) -> None:
        self._note("remove_pod", id, force, by)

    def pods(self, filters: tuple[str, ...]) -> tuple[list[PodView], int]:
        self._note("pods", filters)
        return [self._view(Spec("web"))], 17

    async def inspect_pod(self, id: str) -> PodView:
        self._note("inspect_pod", id)
        return self._view(Spec("web"))

    async def wait_members(self, id: str) -> tuple[Exit, ...]:
        return (ended("c1", 3), ended("c2", 0)) if id == "pod" else ()


class FakeImages:
    def __init__(self, node: FakeNode) -> None:
        self._note = node.note

    async def load_image(self, word: str, name: str) -> tuple[Image, ...]:
        self._note("load_image", word, name)
        return (IMAGE,)

    async def pull_image(self, name: str, if_missing: bool) -> Image:
        self._note("pull_image", name, if_missing)
        return IMAGE

    async def import_image(self, path: str, name: str) -> Image:
        self._note("import_image", path, name)
        return IMAGE

    async def list_images(self) -> tuple[tuple[Image, tuple[str, ...]], ...]:
        self._note("list_images")
        return ((IMAGE, ("c1",)),)

    async def remove_image(self, word: str) -> RemovedImage:
        self._note("remove_image", word)
        return RemovedImage((IMAGE.names[0],), (IMAGE.id,))

    async def inspect_image(self, word: str) -> tuple[Image, tuple[str, ...], bytes]:
        self._note("inspect_image", word)
        return replace(IMAGE, layers=(Layer("sha256:3", 5),)), ("c1",), b"{}"

    async def tag_image(self, word: str, name: str) -> Image:
        self._note("tag_image", word, name)
        return IMAGE

    async def untag_image(self, word: str, names: tuple[str, ...]) -> tuple[str, ...]:
        self._note("untag_image", word, names)
        return names

    async def prune_images(self, ids: tuple[str, ...], all: bool) -> PrunedImages:
        self._note("prune_images", ids, all)
        return PrunedImages(RemovedImage((), ids), 7)

    async def save_images(self, words: tuple[str, ...]) -> AsyncIterator[bytes]:
        self._note("save_images", words)
        yield b"tar"


class FakeVolumes:
    def __init__(self, node: FakeNode) -> None:
        self._note = node.note

    async def create_volume(self, name: str) -> Volume:
        self._note("create_volume", name)
        return Volume(name, f"/v/{name}/data", AT_NS)

    async def list_volumes(self) -> tuple[tuple[Volume, tuple[str, ...]], ...]:
        self._note("list_volumes")
        return ((Volume("data", "/v/data/data", AT_NS), ("c1", "c2")),)

    async def remove_volume(self, name: str) -> None:
        self._note("remove_volume", name)


class FakeFiles:
    """Its container has one file, and takes what it gets."""

    def __init__(self, node: FakeNode) -> None:
        self._note = node.note
        self.got: list[bytes] = []

    async def stat_path(self, id: str, path: str, follow: bool) -> PathStat:
        self._note("stat_path", id, path, follow)
        return PathStat("file", 0o100644, 3, AT_NS)

    async def copy_from(self, id: str, path: str, follow: bool, name: str) -> AsyncIterator[bytes]:
        self._note("copy_from", id, path, follow, name)
        for part in (b"a", b"b"):
            yield part

    async def copy_to(
        self, id: str, directory: str, keep_owner: bool, begun: Callable[[], None], parts: AsyncIterator[bytes]
    ) -> ExtractedCounts:
        self._note("copy_to", id, directory, keep_owner)
        begun()
        self.got = [part async for part in parts]
        return ExtractedCounts(len(self.got))

    async def export(self, id: str) -> AsyncIterator[bytes]:
        self._note("export", id)
        yield b"tar"

    async def commit(self, id: str, words: CommitWords, name: str, pause: bool, by: By) -> Image:
        self._note("commit", id, words, name, pause, by)
        return IMAGE

    async def changes(self, id: str) -> AsyncIterator[LayerChange]:
        self._note("changes", id)
        yield LayerChange("added", "/file")


class FakeNetworks:
    def __init__(self, node: FakeNode) -> None:
        self._note = node.note

    async def list_networks(self) -> tuple[NetworkView, ...]:
        self._note("list_networks")
        return (
            NetworkView("/n/1.conflist", "pods", "1.0.0", ("bridge", "portmap"), True, True, "{}", containers=("c1",)),
            NetworkView("/n/2.conflist", error="it is not JSON"),
        )

    def stuck(self) -> tuple[StuckAttachment, ...]:
        return (STUCK,)

    async def prune_networks(self) -> PrunedNetworks:
        self._note("prune_networks")
        return PrunedNetworks(given_up=(STUCK,))


STUCK = StuckAttachment("c1-2", "c1", 2, ("pods",), (PublishedPort(80, 8080),), 3, "the switch does not answer")


class FakeUsage:
    def __init__(self, node: FakeNode) -> None:
        self._note = node.note

    async def disk_usage(self, ids: tuple[str, ...], images: bool) -> DiskUsage:
        self._note("disk_usage", ids, images)
        return DiskUsage(
            (ContainerUsage("c1", True, False, 5, False, 2, 7),), Occupied(3, 2, 9), Occupied(4, 1, 8, False)
        )
