"""The store in the hands of several threads: who loads, removes and asks at once gets whole images or none."""

import os
import pathlib
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from supervisor.images.facts import Image, Layer
from supervisor.images.store import Images
from supervisor.model.errors import BadImage, NoSuchImage
from tests.supervisor.images.building import Made, tar, write_layout
from tests.supervisor.images.stores import BASE, PLAIN, TALL, layers_on_disk, opened

pytestmark = pytest.mark.root("layers need root")


@pytest.fixture
def images(tmp_path: pathlib.Path) -> Iterator[Images]:
    yield from opened(tmp_path)


@pytest.fixture
def both(tmp_path: pathlib.Path) -> pathlib.Path:
    return write_layout(tmp_path / "box", {"plain": PLAIN, "tall": TALL})


def test_who_uses_an_image_can_be_asked_while_containers_come_and_go(images: Images, both: pathlib.Path) -> None:
    plain, _ = images.load(str(both))
    over = threading.Event()

    def come_and_go() -> None:
        while not over.is_set():
            images.hold("c", plain.id)
            images.release("c")

    thread = threading.Thread(target=come_and_go)
    thread.start()
    try:
        seen = {images.users().get(plain.id, ()) for _ in range(2000)}
    finally:
        over.set()
        thread.join()
    assert seen <= {(), ("c",)}


def test_loads_and_removals_at_once_leave_whole_images_alone(images: Images, tmp_path: pathlib.Path) -> None:
    made = [Made([BASE, tar((f"f{number}", b""))]) for number in range(4)]
    layouts = [str(write_layout(tmp_path / f"l{number}", {"t": one})) for number, one in enumerate(made)]
    failures: list[Exception] = []

    def work(layout: str, stays: bool) -> None:
        try:
            for _ in range(5):
                (image,) = images.load(layout)
                assert all(os.path.isdir(path) for path in images.resolve(image.id).lower)
                if not stays:
                    images.remove(image.id)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(layout, at % 2 == 0)) for at, layout in enumerate(layouts)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert {image.id for image in images.list()} == {made[0].id, made[2].id}
    assert layers_on_disk(tmp_path) == 3


def test_an_image_that_somebody_removes_right_after_it_was_loaded_is_not_there_and_no_disk_is_blamed(
    both: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    class Raced(Images):
        def pull(self, word: str, **how: Any) -> Image:
            image = super().pull(word, **how)
            self.remove(image.id)
            return image

    images = Raced(str(tmp_path / "root"))
    with pytest.raises(NoSuchImage):
        images.resolve(f"oci:{both}:tall")
    assert layers_on_disk(tmp_path) == 0
    images.close()


def test_layers_that_were_removed_under_a_load_that_counted_on_them_go_with_its_end(
    both: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    class Raced(Images):
        def _commit(self, staging: str, images: tuple[Image, ...]) -> None:
            super()._commit(staging, images)
            for image in images:
                self.remove(image.id)

    images = Raced(str(tmp_path / "root"))
    with pytest.raises(NoSuchImage):
        images.load(str(both))
    assert layers_on_disk(tmp_path) == 0
    images.close()


def test_layers_that_were_removed_under_a_load_that_fails_go_with_it(
    both: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    class Raced(Images):
        def _layer(self, *_: Any) -> Layer:
            self.remove(PLAIN.id)
            raise BadImage("a layer that cannot be read")

    before = Images(str(tmp_path / "root"))
    before.load(f"oci:{both}:plain")
    before.close()
    images = Raced(str(tmp_path / "root"))
    with pytest.raises(BadImage, match="cannot be read"):
        images.load(f"oci:{both}:tall")
    assert layers_on_disk(tmp_path) == 0
    images.close()
