"""A task's root file system by the real mount(2): what containerd's snapshotters name, and what an image may try."""

import dataclasses
import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator

import pytest

from protos.containerd import types_pb2
from shim import native
from supervisor.containerd import mounts
from supervisor.model.errors import BadRequest, ShimFailed
from supervisor.model.taskfacts import RootMount
from supervisor.runtime.oci.rootfs import MNT_DETACH, mounts_under
from tests.system.processes import open_files

RDONLY, NOSUID, NOEXEC = os.ST_RDONLY, os.ST_NOSUID, os.ST_NOEXEC


class Place:
    """A bundle, a file system of its own for overlay's directories, and whatever a test makes beside them."""

    def __init__(self, directory: pathlib.Path) -> None:
        self.directory = directory
        self.rootfs = directory / "bundle" / "rootfs"
        self.rootfs.mkdir(parents=True)
        (directory / "disk").mkdir()
        native.mount("t", str(directory / "disk"), "tmpfs", 0, "")

    def made(self, name: str, file: str = "") -> str:
        path = self.directory / "disk" / name
        path.mkdir(parents=True)
        if file:
            (path / file).write_text(name)
        return str(path)

    def mount(self, *wanted: RootMount) -> None:
        mounts.check([types_pb2.Mount(**dataclasses.asdict(each)) for each in wanted])
        mounts.mount_all(wanted, str(self.rootfs))

    def mounted(self) -> list[str]:
        """What is mounted in the bundle, below it."""
        top = str(self.directory / "bundle")
        return [point.removeprefix(f"{top}/") for point in mounts_under(top)]


@pytest.fixture
def place(tmp_path: pathlib.Path) -> Iterator[Place]:
    place = Place(tmp_path)
    yield place
    mounts.unmount_all(str(place.rootfs))
    assert place.mounted() == []
    native.unmount(str(tmp_path / "disk"), MNT_DETACH)


def bind(source: str, *options: str, target: str = "") -> RootMount:
    return RootMount("bind", source, target, ("rbind", *options))


def overlay(place: Place, lower: list[str], *more: str) -> RootMount:
    upper, work = place.made("upper"), place.made("work")
    words = (f"workdir={work}", f"upperdir={upper}", f"lowerdir={':'.join(lower)}", *more)
    return RootMount("overlay", "overlay", options=words)


def test_a_creates_mounts_are_read_as_they_are_sent() -> None:
    sent = types_pb2.Mount(type="bind", source="/s", target="t", options=["rbind", "ro"])
    assert mounts.read([sent, types_pb2.Mount()]) == (bind("/s", "ro", target="t"), RootMount("", ""))


def test_an_overlay_is_mounted_and_taken_down(place: Place) -> None:
    place.mount(overlay(place, [place.made("2", "two"), place.made("1", "one")], "index=off", "nosuid"))
    assert sorted(os.listdir(place.rootfs)) == ["one", "two"]
    (place.rootfs / "written").write_text("x")
    assert (place.directory / "disk/upper/written").exists()
    assert os.statvfs(place.rootfs).f_flag & NOSUID
    assert mounts.unmount_all(str(place.rootfs)) == ()
    assert (place.mounted(), os.listdir(place.rootfs)) == ([], [])


def test_places_for_mounts_in_an_unmounted_root_go_and_nothing_else(place: Place) -> None:
    """containerd had given the task up, and runc was still making it."""
    for name in ("proc", "dev/pts", "mnt", "kept"):
        (place.rootfs / name).mkdir(parents=True)
    (place.rootfs / "etc").mkdir()
    (place.rootfs / "etc/hosts").touch()
    outside = pathlib.Path(place.made("outside", "empty"))
    (outside / "empty").write_text("")
    (place.rootfs / "link").symlink_to(outside)
    (place.rootfs / "kept/data").write_text("somebody's")
    place.mount(bind(str(outside)))
    mounts.clear(str(place.rootfs))
    assert os.listdir(outside) == ["empty"]
    mounts.unmount_all(str(place.rootfs))
    for _ in range(2):
        mounts.clear(str(place.rootfs))
        assert sorted(os.listdir(place.rootfs)) == ["kept", "link"]
    assert os.listdir(outside) == ["empty"]
    (place.rootfs / "link").unlink()
    (place.rootfs / "kept/data").unlink()
    mounts.clear(str(place.rootfs))
    assert os.listdir(place.rootfs) == []


@pytest.mark.parametrize("special", ["", "a:b\\c"])
def test_a_hundred_layers_whose_paths_fill_several_pages_are_mounted(place: Place, special: str) -> None:
    layers = [place.made(f"{'long' * 25}{special}-{number}/fs", f"file-{number}") for number in range(100)]
    place.mount(overlay(place, [layer.replace("\\", "\\\\").replace(":", "\\:") for layer in layers]))
    assert sorted(os.listdir(place.rootfs)) == sorted(f"file-{number}" for number in range(100))
    assert [*place.mounted()] == ["rootfs"]


def test_no_descriptor_is_left_of_long_layers(place: Place) -> None:
    before = open_files()
    place.mount(overlay(place, [place.made(f"{'long' * 30}-{number}") for number in range(60)]))
    assert open_files().keys() == before.keys()


def test_a_read_only_bind_is_read_only_and_its_source_is_not(place: Place) -> None:
    source = place.made("tree", "file")
    place.mount(bind(source, "ro", "nosuid", "noexec"))
    assert os.statvfs(place.rootfs).f_flag & (RDONLY | NOSUID | NOEXEC) == RDONLY | NOSUID | NOEXEC
    assert not os.statvfs(source).f_flag & (RDONLY | NOSUID | NOEXEC)
    with pytest.raises(OSError, match="Read-only"):
        (place.rootfs / "new").write_text("")


def test_a_writable_bind_is_the_source_itself(place: Place) -> None:
    source = place.made("tree", "file")
    place.mount(bind(source, "rw"))
    (place.rootfs / "new").write_text("x")
    assert os.path.exists(f"{source}/new")


def test_mounts_go_on_targets_in_the_root_in_their_order(place: Place) -> None:
    os.makedirs(f"{place.made('tree')}/var/lib")
    place.mount(
        bind(f"{place.directory}/disk/tree"),
        bind(place.made("data", "file"), "ro", target="/var/lib"),
        RootMount("tmpfs", "tmpfs", "var", ("mode=0750", "size=64k", "nodev")),
    )
    assert place.mounted() == ["rootfs", "rootfs/var/lib", "rootfs/var"]
    assert os.stat(place.rootfs / "var").st_mode & 0o777 == 0o750
    mounts.unmount_all(str(place.rootfs))
    assert place.mounted() == []


def test_a_link_in_the_root_is_followed_inside_and_refused_when_it_leads_out(place: Place) -> None:
    tree, data, outside = place.made("tree"), place.made("data", "file"), place.made("outside")
    os.mkdir(f"{tree}/real")
    os.symlink("real", f"{tree}/inside")
    os.symlink(outside, f"{tree}/absolute")
    os.symlink("../../disk/outside", f"{tree}/relative")
    place.mount(bind(tree), bind(data, target="inside"))
    assert os.listdir(place.rootfs / "real") == ["file"]
    for target in ("absolute", "relative", "../../disk/outside", "real/../../.."):
        with pytest.raises(BadRequest, match="leads out"):
            place.mount(bind(tree), bind(data, target=target))
        assert (place.mounted(), os.listdir(outside)) == ([], [])


def test_a_link_in_the_place_of_the_root_is_not_mounted_on(place: Place) -> None:
    outside = place.made("outside")
    os.rmdir(place.rootfs)
    os.symlink(outside, place.rootfs)
    with pytest.raises(BadRequest, match="no directory"):
        place.mount(bind(place.made("tree")))
    assert (place.mounted(), mounts.unmount_all(str(place.rootfs))) == ([], ())


def test_after_a_failure_nothing_is_mounted_and_the_error_names_the_mount(place: Place) -> None:
    with pytest.raises(ShimFailed, match=r"/nowhere \(bind\) at .*rootfs: No such file"):
        place.mount(bind(place.made("tree")), bind(place.made("more")), bind("/nowhere"))
    assert place.mounted() == []
    with pytest.raises(ShimFailed, match="Invalid argument"):
        place.mount(overlay(place, [place.made("1")], "x-unknown"))
    assert place.mounted() == []


def test_what_was_left_of_a_try_that_was_killed_is_taken_down_first(place: Place) -> None:
    tree = place.made("tree", "file")
    for _ in range(3):
        native.mount("t", str(place.rootfs), "tmpfs", 0, "")
    (place.rootfs / "sub").mkdir()
    native.mount("t", str(place.rootfs / "sub"), "tmpfs", 0, "")
    place.mount(bind(tree))
    place.mount(bind(tree))
    assert (place.mounted(), os.listdir(place.rootfs)) == (["rootfs"], ["file"])


def test_unmounting_twice_and_where_nothing_ever_was_is_no_error(place: Place) -> None:
    assert mounts.unmount_all(str(place.rootfs)) == ()
    assert mounts.unmount_all(str(place.directory / "gone" / "rootfs")) == ()


HOLDS = "import os, sys; os.chdir(sys.argv[1]); print('there', flush=True); sys.stdin.read()"


def test_a_mount_that_stays_busy_is_detached_in_the_end_and_reported(place: Place) -> None:
    place.mount(bind(place.made("tree")))
    command = [sys.executable, "-c", HOLDS, str(place.rootfs)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == b"there\n"
        assert mounts.unmount_all(str(place.rootfs)) == (str(place.rootfs),)
        assert place.mounted() == []
        holder.communicate(b"", timeout=30)


@pytest.mark.parametrize(
    ("mount", "says"),
    [
        (RootMount("ext4", "/image", options=("loop",)), "loop device"),
        (RootMount("fuse3.fuse-overlayfs", "overlay"), "helper program"),
        (RootMount("tmpfs", "tmpfs", options=("x" * 5000,)), "at most 4095 bytes"),
        (RootMount("overlay", "overlay", options=("lowerdir=/a::" + "/b" * 3000,)), "at most 4095"),
    ],
)
def test_what_is_not_done_here_is_refused_by_name(place: Place, mount: RootMount, says: str) -> None:
    with pytest.raises(BadRequest, match=says):
        place.mount(mount)
