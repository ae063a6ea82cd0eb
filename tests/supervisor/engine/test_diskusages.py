"""What is taken of the disk: whose, and how often it is looked at."""

import os
import pathlib

from supervisor.engine.containers import Containers
from supervisor.engine.diskusages import DiskUsages
from supervisor.engine.imageservice import ImageService
from supervisor.images.facts import Image, Layer
from supervisor.model.values import Container, Phase, Spec
from supervisor.model.views import ContainerUsage, DiskUsage, Occupied
from tests.supervisor.fakes import in_loop


class ServiceRig(ImageService):
    """Of two images that share a layer, one of them in use."""

    def __init__(self, path: pathlib.Path) -> None:
        self._path = path

    async def list_images(self) -> tuple[tuple[Image, tuple[str, ...]], ...]:
        one, two = Layer("sha256:1", 10), Layer("sha256:2", 20)
        return (Image("a", "", (), (one,), ""), ("c1",)), (Image("b", "", (), (one, two), ""), ())

    async def layers(self) -> dict[str, str]:
        return {f"sha256:{number}": f"{self._path}/{number}" for number in (1, 2)}


def blocks(path: pathlib.Path) -> int:
    return path.stat().st_blocks * 512


@in_loop
async def test_containers_are_those_that_are_asked_for_and_images_only_on_demand(tmp_path: pathlib.Path) -> None:
    for path in ("r/c/x/rootfs/layer/upper", "r/c/y", "layers/1", "layers/2"):
        (tmp_path / path).mkdir(parents=True)
    for path in ("r/c/x/container.log", "r/c/x/container.log.1", "r/c/x/rootfs/layer/upper/f", "layers/1/f"):
        (tmp_path / path).write_bytes(os.urandom(5000))
    containers = Containers()
    containers["x"] = Container("x", Spec("x"), Phase.RUNNING, 1, 0)
    containers["y"] = Container("y", Spec("y"), Phase.EXITED, 1, 0)
    usages = DiskUsages(containers, ServiceRig(tmp_path / "layers"), str(tmp_path / "r"))
    upper = tmp_path / "r/c/x/rootfs/layer/upper"
    logs = 2 * blocks(tmp_path / "r/c/x/container.log")
    x = ContainerUsage("x", True, False, blocks(upper) + blocks(upper / "f"), True, 2, logs)
    assert await usages.disk_usage(("x", "gone"), False) == DiskUsage((x,))
    layers = sum(blocks(tmp_path / "layers" / path) for path in ("1", "1/f", "2"))
    found = await usages.disk_usage((), True)
    assert found == DiskUsage((x, ContainerUsage("y")), Occupied(2, 1, 40), Occupied(2, 1, layers))
    (tmp_path / "layers/1/f").unlink()  # a layer does not change, and is looked at once
    assert (await usages.disk_usage((), True)).layers.size_bytes == layers
