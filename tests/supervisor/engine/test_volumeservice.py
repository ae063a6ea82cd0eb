"""supervisor/engine/volumeservice.py: which volume may go, and what a disk that refuses is reported as."""

import pathlib

import pytest

from supervisor.engine.containers import Containers
from supervisor.engine.volumeservice import VolumeService
from supervisor.model.errors import NoSuchVolume, ShimFailed, VolumeInUse
from supervisor.model.values import Container, Mount, Phase, Spec
from tests.supervisor.fakes import in_loop


def mounting(id: str, volume: str, *, anonymous: bool = False) -> Container:
    mount = Mount("", "/mnt", volume=volume, anonymous=anonymous)
    return Container(id, Spec(id, mounts=(mount,), auto_remove=anonymous), Phase.EXITED, 1, 0)


def service_of(root: pathlib.Path, *containers: Container) -> VolumeService:
    known = Containers()
    for each in containers:
        known[each.id] = each
    return VolumeService(str(root), known)


async def names(service: VolumeService) -> list[str]:
    return [volume.name for volume, _ in await service.list_volumes()]


@in_loop
async def test_a_volume_that_a_container_mounts_stays_and_its_users_are_named(tmp_path: pathlib.Path) -> None:
    service = service_of(tmp_path, *(mounting(f"{letter}" * 64, "data") for letter in "dcba"))
    for name in ("data", "free"):
        assert (await service.create_volume(name)).name == name
    with pytest.raises(VolumeInUse, match=rf"^volume data is in use by {'a' * 12}, {'b' * 12}, {'c' * 12} and 1 more;"):
        await service.remove_volume("data")
    await service.remove_volume("free")
    assert await names(service) == ["data"]
    assert [path.name for path in (tmp_path / "v").iterdir()] == ["data"]  # and of the other nothing is hidden


@in_loop
async def test_three_users_are_all_named(tmp_path: pathlib.Path) -> None:
    service = service_of(tmp_path, *(mounting(letter * 64, "data") for letter in "abc"))
    with pytest.raises(VolumeInUse, match=rf"is in use by {'a' * 12}, {'b' * 12}, {'c' * 12}; remove"):
        await service.remove_volume("data")


@in_loop
async def test_an_anonymous_volume_goes_with_its_container_unless_another_mounts_it(tmp_path: pathlib.Path) -> None:
    own, shared = mounting("a" * 64, "own", anonymous=True), mounting("b" * 64, "shared")
    keeps = mounting("c" * 64, "shared", anonymous=True)
    service = service_of(tmp_path, own, shared, keeps)
    for name in ("own", "shared"):
        await service.create_volume(name)
    await service.discarded(own.id)
    await service.discarded(keeps.id)
    await service.discarded("of a container that is gone already")
    assert await names(service) == ["shared"]


@in_loop
async def test_a_volume_that_there_is_not_is_refused_by_its_name(tmp_path: pathlib.Path) -> None:
    service = service_of(tmp_path)
    await service.create_volume("data")
    with pytest.raises(NoSuchVolume, match=r"^no volume none;"):
        await service.remove_volume("none")
    assert await names(service) == ["data"]


@in_loop
async def test_a_disk_that_refuses_is_reported_with_its_reason_and_the_volume(tmp_path: pathlib.Path) -> None:
    service = service_of(tmp_path)
    (tmp_path / "v").write_text("a file in the place of the directory")
    with pytest.raises(ShimFailed, match=r"^volume data: Not a directory$"):
        await service.remove_volume("data")


@in_loop
async def test_no_volume_goes_while_it_is_not_known_what_another_container_mounts(tmp_path: pathlib.Path) -> None:
    own = mounting("a" * 64, "own", anonymous=True)
    unknown = Container("b" * 64, Spec("b"), Phase.EXITED, 1, 0, damaged="the row is torn")
    service = service_of(tmp_path, own, unknown)
    for name in ("own", "data"):
        await service.create_volume(name)
    with pytest.raises(VolumeInUse, match=rf"^volume data may be in use by {'b' * 12}, whose row is damaged"):
        await service.remove_volume("data")
    await service.discarded(own.id)
    assert await names(service) == ["data", "own"]
