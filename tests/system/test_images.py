"""Images against the real things: overlayfs, skopeo, umoci, and a full disk."""

import contextlib
import json
import os
import pathlib
import stat
import subprocess
import tarfile
from collections.abc import Iterator

import pytest

from shim import native
from supervisor.images import store as store_module
from supervisor.images.facts import Image, Resolved
from supervisor.images.store import Images
from supervisor.model.errors import ImageStoreFailed
from supervisor.runtime.oci.lower import lowerdir
from tests.supervisor.descriptors import held_now, opened_since
from tests.supervisor.images.building import Made, docker_archive, entry, folder, hard, link, tar, tree, write_layout

MNT_DETACH = 2
SOURCES = os.path.dirname(store_module.__file__)

BOTTOM = tar(
    folder("./", mode=0o755),
    *(folder("bin"), (entry("bin/su", mode=0o4755, gid=5), b"su"), link("lib", "usr/lib"), folder("usr/lib")),
    *(("usr/lib/a", b"a"), hard("usr/lib/b", "usr/lib/a"), folder("tmp", mode=0o1777), folder("old"), ("old/x", b"x")),
    *(
        folder("cache"),
        ("cache/1", b"1"),
        folder("cache/d"),
        ("cache/d/2", b"2"),
        ("file", b"file"),
        ("dir2file/x", b""),
    ),
    (entry("usr/bin/ping", pax_headers={"SCHILY.xattr.security.capability": "\x01\0\0\x02\0\x20" + "\0" * 14}), b"p"),
)
MIDDLE = tar(
    folder("./"),
    *(
        (".wh.old", b""),
        folder("cache"),
        ("cache/.wh..wh..opq", b""),
        ("cache/new", b"n"),
        folder("bin"),
        ("bin/.wh.su", b""),
    ),
    *((".wh.file", b""), ("dir2file", b"now a file"), entry("fifo", tarfile.FIFOTYPE), link("usr/lib/c", "/etc/../a")),
)
TOP = tar(
    *(folder("./", mode=0o750, uid=9), folder("old", mtime=7), ("old/y", b"y"), folder("file"), ("file/inside", b"")),
    *(("usr/lib/a", b"changed"), ("cache/.wh.new", b""), folder("tmp", mode=0o1777), ("tmp/.wh.nothing", b"")),
)
TALL = Made([BOTTOM, MIDDLE, TOP], {"Entrypoint": ["/bin/sh"], "Env": ["A=1"]})
SMALL = Made([tar(("kept", b"kept"))])


def run(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


@contextlib.contextmanager
def mounted(resolved: Resolved, base: pathlib.Path) -> Iterator[pathlib.Path]:
    """A container's root, as an overlay of an image's layers and an upper directory."""
    for name in ("upper", "work", "merged"):
        (base / name).mkdir(parents=True)
    with lowerdir(resolved.lower) as lower:
        options = f"lowerdir={lower},upperdir={base}/upper,workdir={base}/work"
        native.mount("test", str(base / "merged"), "overlay", 0, options)
    try:
        yield base / "merged"
    finally:
        native.unmount(str(base / "merged"), MNT_DETACH)


def facts(root: pathlib.Path) -> dict[str, tuple[object, ...]]:
    """All that an unpacker decides, of everything below the root."""
    found: dict[str, tuple[object, ...]] = {}
    for path in root.rglob("*"):
        at = path.lstat()
        kept = [
            name for name in os.listxattr(path, follow_symlinks=False) if name.startswith(("user.", "security.cap"))
        ]
        content = path.read_bytes() if stat.S_ISREG(at.st_mode) else os.readlink(path) if path.is_symlink() else ""
        changed = at.st_mtime if not path.is_dir() else 0
        found[str(path.relative_to(root))] = (at.st_mode, at.st_uid, at.st_gid, changed, content, *kept)
    return found


@pytest.fixture
def images(tmp_path: pathlib.Path) -> Iterator[Images]:
    images = Images(str(tmp_path / "root"))
    yield images
    images.close()


def test_overlayfs_shows_a_container_what_umoci_unpacks(images: Images, tmp_path: pathlib.Path) -> None:
    layout = write_layout(tmp_path / "l", {"t": TALL})
    run("umoci", "raw", "unpack", "--image", f"{layout}:t", str(tmp_path / "umoci"))
    with mounted(images.resolve(f"oci:{layout}:t"), tmp_path / "ours") as merged:
        assert facts(merged) == facts(tmp_path / "umoci")
        assert (merged / "usr/lib/a").read_text() == "changed"
        assert (merged / "cache").is_dir() and os.listdir(merged / "cache") == []


def test_an_image_goes_through_skopeo_to_a_docker_archive_and_back_unchanged(
    images: Images, tmp_path: pathlib.Path
) -> None:
    layout, path = write_layout(tmp_path / "l", {"t": TALL}), tmp_path / "x.tar"
    (ours,) = images.load(str(layout))
    run("skopeo", "copy", "--insecure-policy", f"oci:{layout}:t", f"docker-archive:{path}:docker.io/me/tall:3")
    (archived,) = images.load(str(path))
    assert any(name.endswith("me/tall:3") for name in archived.names)
    run("skopeo", "copy", "--insecure-policy", f"docker-archive:{path}", f"oci:{tmp_path}/back:again")
    (back,) = images.load(f"oci:{tmp_path}/back")
    assert ours.layers == archived.layers == back.layers
    assert images.config(ours) == images.config(archived) == images.config(back)
    assert len(os.listdir(tmp_path / "root/images/layers")) == 3


def test_layers_compressed_with_zstd_are_unpacked(images: Images, tmp_path: pathlib.Path) -> None:
    layout = write_layout(tmp_path / "l", {"t": TALL}, packed=False)
    zstd = ("--dest-compress-format", "zstd", "--dest-compress")
    run("skopeo", "copy", "--insecure-policy", *zstd, f"oci:{layout}:t", f"oci:{tmp_path}/z:t")
    packed = [path.read_bytes()[:4] for path in (tmp_path / "z/blobs/sha256").iterdir()]
    assert packed.count(b"\x28\xb5\x2f\xfd") == 3
    assert [layer.diff_id for layer in images.load(f"oci:{tmp_path}/z")[0].layers] == diff_ids(TALL)


def diff_ids(made: Made) -> list[str]:
    return list(json.loads(made.config_text)["rootfs"]["diff_ids"])


def test_an_image_of_120_layers_can_be_mounted(images: Images, tmp_path: pathlib.Path) -> None:
    many = Made([tar((f"f{number}", b""), ("top", b"%d" % number)) for number in range(120)])
    layout = write_layout(tmp_path / "l", {"t": many}, packed=False)
    before = held_now()
    with mounted(images.resolve(f"oci:{layout}"), tmp_path / "ours") as merged:
        assert len(os.listdir(merged)) == 121
        assert (merged / "top").read_text() == "119"
    assert not opened_since(before)


@contextlib.contextmanager
def small_disk(path: pathlib.Path, options: str) -> Iterator[pathlib.Path]:
    path.mkdir()
    native.mount("test", str(path), "tmpfs", 0, options)
    try:
        yield path
    finally:
        native.unmount(str(path), MNT_DETACH)


def free(path: pathlib.Path) -> tuple[int, int]:
    status = os.statvfs(path)
    return status.f_bfree, status.f_ffree


@pytest.mark.parametrize(
    ("options", "big"),
    [
        ("size=2m", Made([tar(("a", os.urandom(1 << 20))), tar(("b", os.urandom(1 << 21)))])),
        ("size=64m,nr_inodes=100", Made([tar(*(entry(f"f{number}") for number in range(200)))])),
    ],
)
def test_a_full_disk_refuses_the_image_gives_the_space_back_and_harms_no_other(
    tmp_path: pathlib.Path, options: str, big: Made
) -> None:
    with small_disk(tmp_path / "disk", options) as disk:
        images = Images(str(disk))
        kept = images.load(str(write_layout(tmp_path / "small", {"t": SMALL})))
        before = free(disk)
        archive = tmp_path / "big.tar"
        archive.write_bytes(docker_archive((big, ["big:1"])))
        for word in (str(write_layout(tmp_path / "big", {"t": big})), str(archive)):
            with pytest.raises(ImageStoreFailed, match="full"):
                images.load(word)
        assert (images.list(), free(disk)) == (kept, before)
        check_whole(images, disk)
        images.load(str(write_layout(tmp_path / "other", {"t": Made([tar(("fits", b""))])})))
        images.close()


def test_a_disk_that_fills_at_any_write_leaves_the_store_as_it_was(tmp_path: pathlib.Path) -> None:
    layout = str(write_layout(tmp_path / "l", {"t": TALL}))
    results = set()
    for pages in range(24):
        with small_disk(tmp_path / f"disk{pages}", "size=1m") as disk:
            images = Images(str(disk))
            kept = images.load(str(write_layout(tmp_path / "small", {"t": SMALL})))
            fill_up_to(disk, pages)
            with contextlib.suppress(ImageStoreFailed):
                images.load(layout)
            results.add(len(images.list()))
            images.close()
            (disk / "filler").unlink()
            again = Images(str(disk))
            again.tidy()
            assert set(kept) <= set(again.list())
            check_whole(again, disk)
            again.close()
    assert results == {1, 2}


def fill_up_to(disk: pathlib.Path, pages: int) -> None:
    status = os.statvfs(disk)
    with open(disk / "filler", "wb") as file:
        file.write(bytes((status.f_bfree - pages) * status.f_bsize))


def check_whole(images: Images, root: pathlib.Path) -> None:
    """Every listed image is there with all it has, and nothing else is."""
    store = root / "images"
    listed = {layer.diff_id[7:] for image in images.list() for layer in image.layers}
    assert set(os.listdir(store / "layers")) == listed
    assert set(os.listdir(store / "blobs")) == {image.id[7:] for image in images.list()}
    assert os.listdir(store / "staging") == []
    for image in images.list():
        assert len(images.resolve(image.id).lower) == len({layer.diff_id for layer in image.layers})


def entries_of(image: Image, images: Images) -> int:
    return sum(len(tree(pathlib.Path(path))) for path in images.resolve(image.id).lower)


def whole_entries(root: pathlib.Path) -> int:
    images = Images(str(root))
    count = entries_of(images.get(TALL.id), images)
    images.remove(TALL.id)
    images.close()
    return count
