"""What the store refuses: broken and hostile images, each by name, and nothing of them is left behind."""

import gzip
import json
import os
import pathlib
import zlib
from collections.abc import Iterator

import pytest

from supervisor.images.facts import ImageLimits
from supervisor.images.store import Images
from supervisor.model.errors import BadImage, BadRequest, ImageTooLarge, WrongDigest
from tests.supervisor.images.building import Made, docker_archive, hard, link, tar, write_layout
from tests.supervisor.images.stores import ABOVE, BASE, PLAIN, TALL, layers_on_disk, opened, written

pytestmark = pytest.mark.root("layers need root")


@pytest.fixture
def images(tmp_path: pathlib.Path) -> Iterator[Images]:
    yield from opened(tmp_path)


HOSTILE = Made([tar(("../out", b"")), BASE])


def broken(tmp_path: pathlib.Path, name: str, data: bytes) -> str:
    """A layout with one file's content replaced; `name` is the file, or the media type's last word."""
    layout = write_layout(tmp_path / "broken", {"t": TALL})
    if name != "index.json":
        manifest_name = json.loads((layout / "index.json").read_text())["manifests"][0]["digest"][7:]
        manifest = json.loads((layout / "blobs/sha256" / manifest_name).read_text())
        chosen = {"manifest": manifest_name, "config": manifest["config"]["digest"][7:]}
        name = "blobs/sha256/" + chosen.get(name, manifest["layers"][0]["digest"][7:])
    (layout / name).write_bytes(data)
    return str(layout)


@pytest.mark.parametrize(
    ("name", "data", "error", "words"),
    [
        ("index.json", b"{", BadImage, r"index\.json: not JSON"),
        ("index.json", b'{"manifests": [{}]}', BadImage, r"index\.json: manifests\[0\].digest: is missing"),
        ("index.json", b"", BadImage, r"index\.json"),
        ("index.json", b" " * (5 << 20), BadImage, "larger than"),
        ("manifest", b"{}", WrongDigest, "has 2 bytes with the digest"),
        ("config", TALL.config_text.replace(b"linux", b"lynux"), WrongDigest, "with the digest"),
        ("layer", gzip.compress(ABOVE), WrongDigest, "has the digest"),
    ],
)
def test_a_broken_layout_is_refused_by_name_and_leaves_nothing(
    images: Images, tmp_path: pathlib.Path, name: str, data: bytes, error: type[BadImage], words: str
) -> None:
    with pytest.raises(error, match=words):
        images.load(broken(tmp_path, name, data))
    assert (images.list(), layers_on_disk(tmp_path)) == ((), 0)


def test_a_layer_that_is_not_what_the_configuration_says_is_refused(images: Images, tmp_path: pathlib.Path) -> None:
    lying = Made([BASE], config={"rootfs": {"type": "layers", "diff_ids": ["sha256:" + "0" * 64]}})
    with pytest.raises(WrongDigest, match="not sha256:0000"):
        images.load(str(write_layout(tmp_path / "l", {"t": lying})))
    short = Made([BASE, ABOVE], config={"rootfs": {"type": "layers", "diff_ids": []}})
    with pytest.raises(BadImage, match="2 layers, but"):
        images.load(str(write_layout(tmp_path / "s", {"t": short})))
    assert (images.list(), layers_on_disk(tmp_path)) == ((), 0)


def test_one_hostile_layer_refuses_all_images_of_its_archive(images: Images, tmp_path: pathlib.Path) -> None:
    path = written(tmp_path / "a.tar", docker_archive((PLAIN, ["good:1"]), (HOSTILE, ["bad:1"])))
    with pytest.raises(BadImage, match=r"layer\.tar: '\.\./out': a name with \.\."):
        images.load(path)
    assert (images.list(), layers_on_disk(tmp_path)) == ((), 0)
    assert not (tmp_path / "root/images/out").exists()


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "neither manifest.json nor index.json"),
        (b"junk" * 1000, "not a tar header"),
        (tar(("x", b"")), "neither manifest.json nor index.json"),
        (tar(("manifest.json", b"{")), r"manifest\.json: not JSON"),
        (tar(("manifest.json", b'[{"Config": "../../etc/passwd", "Layers": []}]')), "etc/passwd is not in the archive"),
        (tar(link("manifest.json", "manifest.json")), "neither"),
        (tar(hard("manifest.json", "/etc/passwd")), "neither"),
        (docker_archive((PLAIN, ["NOT a name"])), "RepoTags: 'NOT a name'"),
        (docker_archive((PLAIN, ["x:1"]))[:3000], "ends in the middle"),
        (gzip.compress(docker_archive((PLAIN, ["x:1"])))[:-20], "not a whole gzip file"),
        (b"\xfd7zXZ\0", "only gzip and zstd"),
        (zlib.compress(b"x") * 1000, "not a tar header"),
    ],
)
def test_a_broken_archive_is_refused_by_name(images: Images, tmp_path: pathlib.Path, data: bytes, words: str) -> None:
    with pytest.raises(BadImage, match=words):
        images.load(written(tmp_path / "a.tar", data))
    assert images.list() == ()


def test_files_that_are_none_do_not_hold_the_reader(images: Images, tmp_path: pathlib.Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for word in (f"{tmp_path}/fifo", f"docker-archive:{tmp_path}/nope", f"oci:{tmp_path}/nope", "busybox", "pause"):
        with pytest.raises(BadRequest):
            images.load(word)
    with pytest.raises(BadRequest):
        images.import_(f"{tmp_path}/fifo")
    layout = write_layout(tmp_path / "l", {"t": PLAIN})
    (layout / "index.json").unlink()
    os.mkfifo(layout / "index.json")
    with pytest.raises(BadImage, match="not a regular file"):
        images.load(str(layout))


def test_a_bomb_is_stopped_at_the_limit(tmp_path: pathlib.Path) -> None:
    images = Images(str(tmp_path / "root"), limits=ImageLimits(total_bytes=1 << 20))
    bomb = gzip.compress(tar(("zeros", bytes(8 << 20))))
    assert len(bomb) < 20_000
    for load in (images.import_, images.load):
        with pytest.raises(ImageTooLarge, match="1048576 bytes"):
            load(written(tmp_path / "bomb", bomb))
    with pytest.raises(ImageTooLarge):
        images.load(str(write_layout(tmp_path / "l", {"t": Made([tar(("zeros", bytes(2 << 20)))])})))
    assert (images.list(), layers_on_disk(tmp_path)) == ((), 0)
    images.close()
