"""Files of mounts: as they were asked for, anew each time, and nothing that a container has left is followed."""

import os
import pathlib
import stat
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from supervisor.model.secrets import mounted_file
from supervisor.model.values import Mount
from supervisor.runtime.oci import contents, rootfs
from supervisor.system.removal import remove_tree

pytestmark = pytest.mark.root("files are root's, and secrets on a tmpfs")

PLAIN = Mount("", "/c", True, files=(mounted_file("a", b"one", 0o640), mounted_file("d/e/b", b"two", 0o400)))
SECRET = Mount("", "/s", True, files=(mounted_file("key", b"hidden", 0o400),), secret=True)
SINGLE = Mount("", "/etc/x", True, files=(mounted_file("x", b"three"),), single=True)


@pytest.fixture
def directory(tmp_path: pathlib.Path) -> Iterator[pathlib.Path]:
    yield tmp_path
    contents.release(str(tmp_path))
    remove_tree(str(tmp_path / "files"))


def tree(top: pathlib.Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path.relative_to(top)): (stat.S_IMODE(path.stat().st_mode), path.read_bytes() if path.is_file() else b"")
        for path in sorted(top.rglob("*"))
    }


def test_files_have_their_content_and_modes_whatever_the_umask_is(directory: pathlib.Path) -> None:
    before = os.umask(0o077)
    try:
        contents.make(str(directory), (PLAIN, SECRET, SINGLE))
    finally:
        os.umask(before)
    found = {"a": (0o640, b"one"), "d": (0o755, b""), "d/e": (0o755, b""), "d/e/b": (0o400, b"two")}
    assert tree(directory / "files/0") == found
    assert tree(directory / "secrets/1") == {"key": (0o400, b"hidden")}
    for name in ("files", "secrets"):
        assert stat.S_IMODE((directory / name).stat().st_mode) == 0o700
    assert os.path.ismount(directory / "secrets") and not os.path.ismount(directory / "files")
    assert contents.source_of(str(directory), 0, PLAIN) == f"{directory}/files/0"
    assert pathlib.Path(contents.source_of(str(directory), 2, SINGLE)).read_bytes() == b"three"


def test_a_group_may_read_them(directory: pathlib.Path) -> None:
    owned = Mount("", "/c", True, group=77, files=PLAIN.files)
    contents.make(str(directory), (owned,))
    found = {path.name: path.stat() for path in (directory / "files/0").rglob("*")}
    assert {name: (each.st_uid, each.st_gid) for name, each in found.items()} == dict.fromkeys("adeb", (0, 77))
    assert stat.S_IMODE(found["b"].st_mode) == 0o440


def test_what_a_container_has_made_of_them_is_removed_and_never_followed(directory: pathlib.Path) -> None:
    outside = directory / "outside"
    outside.mkdir()
    (outside / "a").write_bytes(b"mine")
    contents.make(str(directory), (PLAIN,))
    place = directory / "files/0"
    for hostile in ("a", "d"):
        remove_tree(str(place / "d"))
        (place / "a").unlink(missing_ok=True)
        (place / hostile).symlink_to(outside)
        contents.make(str(directory), (PLAIN,))
        assert tree(place)["d/e/b"] == (0o400, b"two") and tree(outside) == {"a": (0o644, b"mine")}
    remove_tree(str(place))
    place.symlink_to(outside)
    with pytest.raises(OSError):  # only root can have put it there: nothing is made, and nothing removed
        contents.make(str(directory), (PLAIN,))
    assert tree(outside) == {"a": (0o644, b"mine")}


def test_what_was_cut_off_is_made_again_and_all_of_it_goes(directory: pathlib.Path) -> None:
    contents.make(str(directory), (PLAIN, SECRET))
    (directory / "files/0/a").write_bytes(b"half")
    (directory / "secrets/1/key").unlink()
    contents.make(str(directory), (PLAIN, SECRET))
    assert tree(directory / "files/0")["a"] == (0o640, b"one")
    assert tree(directory / "secrets/1") == {"key": (0o400, b"hidden")}
    (directory / "volumes/quick").mkdir(parents=True)
    rootfs.prepare_tmpfs(str(directory / "volumes/quick"), "size=64k")
    for _ in range(2):
        contents.release(str(directory))
        assert rootfs.mounts_under(str(directory)) == ()


def test_a_directory_in_memory_that_several_prepare_at_once_is_mounted_once(directory: pathlib.Path) -> None:
    places = [directory / f"volumes/{number}" for number in range(20)]
    with ThreadPoolExecutor(8) as threads:
        for place in places:
            place.mkdir(parents=True)
            together = threading.Barrier(8)

            def prepare(place: pathlib.Path = place, together: threading.Barrier = together) -> None:
                together.wait(30)
                rootfs.prepare_tmpfs(str(place), "size=64k")

            for each in [threads.submit(prepare) for _ in range(8)]:
                each.result(60)
    assert sorted(rootfs.mounts_under(str(directory))) == sorted(map(str, places))
