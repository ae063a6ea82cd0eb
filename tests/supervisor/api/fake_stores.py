"""Pods and images that keep their word in memory, beside the fake node: they note and fail as it does."""

from supervisor.images.facts import Image, RemovedImage
from supervisor.model.networks import NetworkView
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


class FakeNetworks:
    def __init__(self, node: FakeNode) -> None:
        self._note = node.note

    async def list_networks(self) -> tuple[NetworkView, ...]:
        self._note("list_networks")
        return (
            NetworkView("/n/1.conflist", "pods", "1.0.0", ("bridge", "portmap"), True, True, "{}", containers=("c1",)),
            NetworkView("/n/2.conflist", error="it is not JSON"),
        )


class FakeUsage:
    def __init__(self, node: FakeNode) -> None:
        self._note = node.note

    async def disk_usage(self, ids: tuple[str, ...], images: bool) -> DiskUsage:
        self._note("disk_usage", ids, images)
        return DiskUsage(
            (ContainerUsage("c1", True, False, 5, False, 2, 7),), Occupied(3, 2, 9), Occupied(4, 1, 8, False)
        )
