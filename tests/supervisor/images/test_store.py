"""The store: what is loaded is listed, found, held and shared; what is broken or hostile leaves nothing behind."""

import contextlib
import errno
import gzip
import json
import os
import pathlib
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from supervisor.images import tools
from supervisor.images.facts import ImageDefaults, Resolved
from supervisor.images.store import Images
from supervisor.model.errors import (
    AmbiguousImage,
    BadRequest,
    CannotStart,
    ImageInUse,
    NoSuchImage,
    TimedOut,
    ToolFailed,
    ToolMissing,
    WrongState,
)
from supervisor.system import regular
from tests.supervisor.images.building import Made, docker_archive, link, tar, tree, write_layout
from tests.supervisor.images.stores import ABOVE, ABOVE_HEX, BASE, PLAIN, TALL, layers_on_disk, opened, written

pytestmark = pytest.mark.root("layers need root")


@pytest.fixture
def images(tmp_path: pathlib.Path) -> Iterator[Images]:
    yield from opened(tmp_path)


@pytest.fixture
def both(tmp_path: pathlib.Path) -> pathlib.Path:
    return write_layout(tmp_path / "box", {"plain": PLAIN, "tall": TALL})


def test_a_layout_is_loaded_with_all_its_images_and_shares_their_layers(
    images: Images, both: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    loaded = images.load(str(both))
    assert [image.names for image in loaded] == [("box:plain",), ("box:tall",)]
    assert [image.id for image in loaded] == [PLAIN.id, TALL.id]
    assert images.list() == loaded
    assert layers_on_disk(tmp_path) == 2
    assert loaded[1].size_bytes == len(BASE) + len(ABOVE)


def test_one_tag_of_a_layout_resolves_to_its_layers_topmost_first_and_its_configuration(
    images: Images, both: pathlib.Path
) -> None:
    resolved = images.resolve(f"oci:{both}:tall")
    assert [tree(pathlib.Path(path))["etc/os"] for path in resolved.lower] == ["above", "base"]
    assert resolved.config == ImageDefaults(("/bin/sh",), (), (), "1:2", "/w", "SIGINT")
    assert [image.names for image in images.list()] == [("box:tall",)]


def test_a_layout_with_several_images_needs_a_tag_to_be_resolved(images: Images, both: pathlib.Path) -> None:
    with pytest.raises(AmbiguousImage, match="name one of: box:plain, box:tall, plain, tall"):
        images.resolve(f"oci:{both}")
    with pytest.raises(NoSuchImage, match=r"'nope'.*plain, tall"):
        images.resolve(f"oci:{both}:nope")


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_docker_archive_is_loaded_compressed_or_not(
    images: Images, tmp_path: pathlib.Path, pack: type[bytes]
) -> None:
    data = docker_archive((PLAIN, ["busybox:1", "localhost/b"]), (TALL, ["tall:2"]))
    path = written(tmp_path / "a.tar", pack(data))
    assert [image.names for image in images.load(path)] == [("busybox:1", "localhost/b:latest"), ("tall:2",)]
    assert images.resolve(f"docker-archive:{path}:tall:2").image == TALL.id
    with pytest.raises(AmbiguousImage, match="busybox:1"):
        images.resolve(f"docker-archive:{path}")


def test_an_archive_of_a_layout_and_one_with_links_between_its_layers_are_loaded(
    images: Images, tmp_path: pathlib.Path
) -> None:
    layout = write_layout(tmp_path / "l", {"docker.io/library/x:1": PLAIN})
    names = [str(path.relative_to(layout)) for path in layout.rglob("*") if path.is_file()]
    whole = tar(*((f"./{name}", (layout / name).read_bytes()) for name in names))
    assert images.load(written(tmp_path / "oci.tar", whole))[0].names == ("docker.io/library/x:1",)
    twice = Made([BASE, BASE])
    entries = [{"Config": "c.json", "RepoTags": None, "Layers": ["a/layer.tar", "b/layer.tar"]}]
    members = (("a/layer.tar", BASE), link("b/layer.tar", "../a/layer.tar"), ("c.json", twice.config_text))
    (image,) = images.load(written(tmp_path / "l.tar", tar(*members, ("manifest.json", json.dumps(entries).encode()))))
    assert (image.id, image.names, len(images.resolve(image.id).lower)) == (twice.id, (), 1)


def test_a_root_file_system_is_imported_under_a_name_and_always_as_the_same_image(
    images: Images, tmp_path: pathlib.Path
) -> None:
    path = written(tmp_path / "rootfs.tar.gz", gzip.compress(BASE))
    image = images.import_(path, name="mine")
    assert image.names == ("mine:latest",)
    assert images.import_(path, name="again:1").names == ("again:1", "mine:latest")
    assert tree(pathlib.Path(images.resolve("mine").lower[0]))["bin/sh"] == "#!"
    assert images.resolve("mine").config == ImageDefaults()


def test_words_that_need_no_store_resolve_to_directories(tmp_path: pathlib.Path) -> None:
    images = Images(str(tmp_path / "r"), pause=Resolved(("/pause-root",), ImageDefaults(entrypoint=("/pause",))))
    assert images.resolve("pause").config.entrypoint == ("/pause",)
    assert images.resolve(str(tmp_path)).lower == (str(tmp_path),)
    with pytest.raises(BadRequest, match="no such directory"):
        images.resolve(f"{tmp_path}/nope")
    images.close()


def test_without_a_pause_program_the_word_is_refused(images: Images) -> None:
    with pytest.raises(BadRequest, match="pause"):
        images.resolve("pause")


def test_an_image_is_found_by_its_name_the_end_of_it_its_digest_and_the_beginning_of_its_id(
    images: Images, tmp_path: pathlib.Path
) -> None:
    layout = write_layout(tmp_path / "l", {"docker.io/library/busybox:1": PLAIN, "quay.io/me/busybox:2": TALL})
    plain, tall = images.load(f"oci:{layout}")
    for word in (
        "docker.io/library/busybox:1",
        "busybox:1",
        "library/busybox:1",
        plain.id,
        plain.digest,
        plain.id[7:19],
    ):
        assert images.get(word).id == plain.id, word
    assert images.get(f"busybox@{tall.digest}").id == tall.id
    assert images.resolve("docker://busybox:1").image == plain.id
    for word in ("busybox", "box:1", "me/busybox:1", f"busybox:1@{tall.digest}", "0123456789ab", plain.id[:-1] + "g"):
        with pytest.raises((NoSuchImage, BadRequest)):
            images.get(word)
    with pytest.raises(NoSuchImage, match="docker://NAME"):
        images.resolve("nope")


def test_a_short_name_of_two_images_is_refused_and_names_both(images: Images, tmp_path: pathlib.Path) -> None:
    images.load(str(write_layout(tmp_path / "l", {"a.io/x:1": PLAIN, "b.io/x:1": TALL})))
    with pytest.raises(AmbiguousImage, match=r"a\.io/x:1, .*b\.io/x:1|b\.io/x:1, .*a\.io/x:1"):
        images.resolve("x:1")
    assert images.resolve("a.io/x:1").image == PLAIN.id


def test_a_name_goes_to_the_image_that_was_loaded_last(images: Images, tmp_path: pathlib.Path) -> None:
    for made in (PLAIN, TALL):
        images.load(written(tmp_path / "a.tar", docker_archive((made, ["x:1"]))))
    assert images.get("x:1").id == TALL.id
    assert images.get(PLAIN.id).names == ()
    assert images.load(str(tmp_path / "a.tar"), name="y")[0].names == ("y:latest",)
    assert images.get("y").names == ("x:1", "y:latest")


def test_the_last_name_takes_the_image_along_and_layers_go_with_their_last_image(
    images: Images, tmp_path: pathlib.Path
) -> None:
    images.load(written(tmp_path / "a.tar", docker_archive((PLAIN, ["a:1", "b:1"]), (TALL, ["c:1"]))))
    assert images.remove("a:1").ids == ()
    assert images.get("b:1").names == ("b:1",)
    removed = images.remove("c:1")
    assert (removed.names, removed.ids) == (("c:1",), (TALL.id,))
    assert layers_on_disk(tmp_path) == 1
    assert images.remove(PLAIN.id[7:17]).names == ("b:1",)
    assert (layers_on_disk(tmp_path), images.list()) == (0, ())
    with pytest.raises(NoSuchImage):
        images.remove("b:1")


def test_a_held_image_stays_over_a_restart_until_its_last_container_releases_it(
    images: Images, both: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    (plain, tall) = images.load(str(both))
    for container in ("c1", "c2", "c2"):
        images.hold(container, tall.id)
    images.remove(plain.id)
    images.close()
    images.__init__(str(tmp_path / "root"))  # type: ignore[misc]
    with pytest.raises(ImageInUse, match="c1, c2"):
        images.remove("box:tall")
    images.release("c1")
    images.release("c1")
    assert images.users() == {tall.id: ("c2",)}
    with pytest.raises(ImageInUse):
        images.remove(tall.id)
    assert layers_on_disk(tmp_path) == 2
    images.release("c2")
    assert images.remove(tall.id).ids == (tall.id,)


def test_holds_become_those_of_the_containers_there_are(images: Images, both: pathlib.Path) -> None:
    plain, tall = images.load(str(both))
    images.hold("gone", plain.id)
    images.hold("moved", plain.id)
    images.hold_only({"moved": tall.id, "new": tall.id})
    assert images.users() == {tall.id: ("moved", "new")}


def test_a_load_says_which_names_it_gave(images: Images, tmp_path: pathlib.Path) -> None:
    for names in (["a:1", "b:1"], ["c:1"]):
        path = written(tmp_path / "x.tar", docker_archive((PLAIN, names)))
        (loaded,) = images.load(path)
        assert loaded.names == tuple(names)
    assert images.get("a:1").names == ("a:1", "b:1", "c:1")


def test_a_hold_needs_an_image_and_a_container_holds_one(images: Images, both: pathlib.Path) -> None:
    plain, tall = images.load(str(both))
    images.hold("c", plain.id)
    with pytest.raises(WrongState):
        images.hold("c", tall.id)
    with pytest.raises(NoSuchImage):
        images.hold("d", "sha256:" + "0" * 64)
    for container in ("../x", "", "a/b", ".x"):
        with pytest.raises(BadRequest):
            images.hold(container, plain.id)


def test_a_second_store_in_the_same_place_is_refused(images: Images, tmp_path: pathlib.Path) -> None:
    with pytest.raises(CannotStart, match="in use"):
        Images(str(tmp_path / "root"))


NO_INDEX = {
    "no JSON": b"{",
    "nothing": b"",
    "no text": b"\xff\xfe",
    "zero bytes": bytes(4096),
    "a list": b"[]",
    "no list of images": b'{"version": 1, "images": 5}',
    "no version": b'{"images": []}',
    "a version that is a text": b'{"version": "1", "images": []}',
    "a version of no size": b'{"version": 1' + b"0" * 5000 + b', "images": []}',
    "no number": b'{"version": NaN, "images": []}',
    "too deep": b"[" * 200_000,
    "an entry that is too deep": b'{"version": 1, "images": [' + b"[" * 400 + b"]" * 400 + b"]}",
}


@pytest.mark.parametrize("text", NO_INDEX.values(), ids=NO_INDEX.keys())
def test_an_index_that_cannot_be_read_is_put_aside_and_costs_names_and_no_image(
    both: pathlib.Path, tmp_path: pathlib.Path, text: bytes
) -> None:
    path = tmp_path / "root/images/index.json"
    with contextlib.closing(Images(str(tmp_path / "root"))) as images:
        images.load(f"oci:{both}")
        before = images.list()
        images.hold("c1", before[0].id)
    path.write_bytes(text)
    for _ in range(2):
        with contextlib.closing(Images(str(tmp_path / "root"))) as images:
            images.tidy()
            assert sorted(image.id for image in images.list()) == sorted(image.id for image in before)
            assert not any(image.names for image in images.list())
            assert images.resolve("", before[0].id).config
            with pytest.raises(ImageInUse):
                images.remove(before[0].id)
    assert path.with_name("index.json.damaged-1").read_bytes() == text
    assert not path.with_name("index.json.damaged-2").exists()
    with contextlib.closing(Images(str(tmp_path / "root"))) as images:
        images.load(f"oci:{both}")
        assert [image.names for image in images.list()] == [image.names for image in before]


def test_a_held_image_whose_configuration_is_damaged_too_keeps_its_layers(
    both: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    """Its container goes on, and can be removed. Then the layers can go."""
    path = tmp_path / "root/images"
    with contextlib.closing(Images(str(tmp_path / "root"))) as images:
        images.load(f"oci:{both}")
        held = TALL.id  # it alone has the upper layer
        images.hold("c1", held)
        before = layers_on_disk(tmp_path)
    (path / "index.json").write_bytes(bytes(100))
    (path / "blobs" / held.removeprefix("sha256:")).write_bytes(bytes(100))
    with contextlib.closing(Images(str(tmp_path / "root"))) as images:
        images.tidy()
        assert held not in [image.id for image in images.list()] and layers_on_disk(tmp_path) == before
        images.release("c1")
        images.tidy()
        assert layers_on_disk(tmp_path) < before


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENOMEM])
def test_images_that_cannot_be_looked_for_just_now_stop_the_start_and_are_kept(
    both: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    with contextlib.closing(Images(str(tmp_path / "root"))) as images:
        images.load(f"oci:{both}")
    (tmp_path / "root/images/index.json").write_bytes(b"{")
    read = regular.read

    def fails(path: str, **how: Any) -> bytes:
        if "/blobs/" in path:
            raise OSError(code, os.strerror(code), path)
        return read(path, **how)

    monkeypatch.setattr(regular, "read", fails)
    with pytest.raises(CannotStart, match=os.strerror(code)):
        Images(str(tmp_path / "root"))
    monkeypatch.undo()
    with contextlib.closing(Images(str(tmp_path / "root"))) as images:
        images.tidy()
        assert (len(images.list()), layers_on_disk(tmp_path)) == (2, 2)


def test_an_index_that_is_no_file_and_one_that_a_kill_left_put_aside_cost_no_image(
    both: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    path = tmp_path / "root/images/index.json"
    with contextlib.closing(Images(str(tmp_path / "root"))) as images:
        images.load(f"oci:{both}")
    path.unlink()
    os.mkfifo(path)
    with contextlib.closing(Images(str(tmp_path / "root"))) as images:
        assert len(images.list()) == 2
    path.rename(path.with_name("index.json.damaged-2"))
    with contextlib.closing(Images(str(tmp_path / "root"))) as images:
        images.tidy()
        assert (len(images.list()), layers_on_disk(tmp_path)) == (2, 2)


def test_an_index_of_a_later_exitd_stops_the_store_and_is_kept(tmp_path: pathlib.Path) -> None:
    text = b'{"version": 99, "images": []}'
    Images(str(tmp_path)).close()
    (tmp_path / "images/index.json").write_bytes(text)
    for _ in range(2):
        with pytest.raises(CannotStart, match=r"index\.json"):
            Images(str(tmp_path))
    assert (tmp_path / "images/index.json").read_bytes() == text


def test_leftovers_and_images_without_their_layers_are_gone_after_the_next_open(
    images: Images, both: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    images.load(str(both))
    images.close()
    store = tmp_path / "root/images"
    for leftover in ("staging/x/layers/y", f"layers/{'0' * 64}/etc"):
        (store / leftover).mkdir(parents=True)
    (store / "layers" / ABOVE_HEX).rename(store / "staging/lost")
    images.__init__(str(tmp_path / "root"))  # type: ignore[misc]
    images.tidy()
    assert [image.id for image in images.list()] == [PLAIN.id]
    assert layers_on_disk(tmp_path) == 1


def test_many_members_and_zeros_after_them_are_one_gzip_file(images: Images, tmp_path: pathlib.Path) -> None:
    pieces = [gzip.compress(BASE[at : at + 700]) for at in range(0, len(BASE), 700)]
    image = images.import_(written(tmp_path / "r.tar.gz", b"".join(pieces) + b"\0" * 40_000))
    assert image.layers[0].size_bytes == len(BASE)


def test_images_without_layers_and_with_one_twice_and_with_an_opaque_root_have_lower_directories(
    images: Images, tmp_path: pathlib.Path
) -> None:
    opaque = Made([BASE, tar((".wh..wh..opq", b""), ("only", b"")), ABOVE])
    layout = write_layout(tmp_path / "l", {"none": Made([]), "twice": Made([ABOVE, BASE, ABOVE]), "opaque": opaque})
    images.load(str(layout))
    assert [os.listdir(path) for path in images.resolve("l:none").lower] == [[]]
    assert [tree(pathlib.Path(path)).get("etc/os") for path in images.resolve("l:twice").lower] == ["above", "base"]
    assert [os.listdir(path) for path in images.resolve("l:opaque").lower] == [["etc"], ["only"]]


def test_the_image_of_this_host_is_taken_from_an_index_of_many(images: Images, tmp_path: pathlib.Path) -> None:
    layout = write_layout(tmp_path / "l", {"a": PLAIN, "b": TALL})
    descriptors = json.loads((layout / "index.json").read_text())["manifests"]
    descriptors[0]["platform"] = {"os": "linux", "architecture": "sparc"}
    (layout / "index.json").write_text(json.dumps({"manifests": descriptors}))
    assert [image.id for image in images.load(str(layout))] == [TALL.id]
    (layout / "index.json").write_text(json.dumps({"manifests": descriptors[:1]}))
    with pytest.raises(NoSuchImage, match="no image for linux/"):
        images.load(str(layout))


def test_a_failed_pull_says_what_skopeo_said_and_leaves_nothing(images: Images, tmp_path: pathlib.Path) -> None:
    with pytest.raises(ToolFailed, match=r"skopeo could not pull 127\.0\.0\.1:1/x:latest: .*refused"):
        images.resolve("docker://127.0.0.1:1/x")
    assert images.list() == ()


def test_a_registry_that_never_answers_is_given_up(images: Images, tmp_path: pathlib.Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        name = f"127.0.0.1:{server.getsockname()[1]}/x"
        with pytest.raises(TimedOut, match=r"0\.5 s"):
            images.pull(name, timeout_seconds=0.5)
        assert [line for path in pathlib.Path("/proc").glob("[0-9]*/cmdline") if name in (line := command(path))] == []


def command(path: pathlib.Path) -> str:
    with contextlib.suppress(OSError):
        return path.read_text(errors="replace")
    return ""


def test_a_tool_that_is_missing_is_named_with_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "SEARCH_PATH", "/nope")
    monkeypatch.setenv("PATH", "/nope")
    with pytest.raises(ToolMissing, match="Debian: skopeo"):
        tools.find("skopeo")


@pytest.mark.parametrize("damage", [5, {}, {"id": "sha256:x"}, {"layers": [{"diff_id": "\ud800"}]}, {"names": "\0"}])
def test_an_entry_of_the_index_that_cannot_be_read_costs_no_other_and_no_layer(
    both: pathlib.Path, tmp_path: pathlib.Path, damage: object
) -> None:
    """What the entry was is not known, so nothing may go that could be its; and it stays for whoever mends it."""
    path = tmp_path / "root/images/index.json"
    with contextlib.closing(Images(str(tmp_path / "root"))) as images:
        images.load(f"oci:{both}")
    document = json.loads(path.read_text())
    (place,) = (n for n, image in enumerate(document["images"]) if len(image["layers"]) == 2)
    document["images"][place] = (
        {**document["images"][place], **damage} if isinstance(damage, dict) and damage else damage
    )
    path.write_text(json.dumps(document))
    with contextlib.closing(Images(str(tmp_path / "root"))) as images:
        images.tidy()
        assert [len(image.layers) for image in images.list()] == [1]
        assert images.gc() == ()
        images.remove(images.list()[0].id)
        assert (images.list(), layers_on_disk(tmp_path)) == ((), 2)
    assert json.loads(path.read_text())["images"] == [document["images"][place]]
