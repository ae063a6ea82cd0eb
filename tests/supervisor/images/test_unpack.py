"""Layers become lower directories; a hostile one is refused by name and writes nothing outside."""

import contextlib
import io
import os
import pathlib
import stat
import tarfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from supervisor.images.facts import ImageLimits
from supervisor.images.streams import Budget, Hashed
from supervisor.images.tar import BadTar, TarReader
from supervisor.images.unpack import MOST_DEPTH, OPAQUE_XATTR, safe_path, unpack
from supervisor.model.errors import BadImage, ImageTooLarge
from tests.supervisor.descriptors import held_now, open_now, opened_since
from tests.supervisor.images.building import entry, folder, hard, link, tar, tree
from tests.supervisor.images.test_tar import Trickle

pytestmark = pytest.mark.root("owners, devices and trusted xattrs need root")


class Place:
    """A directory with something precious beside the one that layers go into."""

    def __init__(self, base: pathlib.Path) -> None:
        self.base, self.root = base, base / "root"
        self.root.mkdir()
        (base / "precious").write_text("untouched")

    def fill(self, data: bytes, limits: ImageLimits | None = None) -> tuple[str, ...]:
        budget = Budget(limits or ImageLimits())
        return unpack(TarReader(Hashed(Trickle(data), budget.spend_bytes)), str(self.root), "layer.tar", budget)

    def refuse(self, data: bytes, words: str) -> None:
        before = held_now()
        with pytest.raises(BadImage, match=words) as caught:
            self.fill(data)
        assert str(caught.value).startswith("layer.tar: ")
        # Not the same ones: garbage of earlier tests may have been collected meanwhile.
        assert not opened_since(before)
        self.check_outside()

    def check_outside(self) -> None:
        assert sorted(os.listdir(self.base)) == ["precious", "root"]
        assert (self.base / "precious").read_text() == "untouched"
        assert (self.base / "precious").stat().st_nlink == 1


@pytest.fixture
def place(tmp_path: pathlib.Path) -> Place:
    return Place(tmp_path)


def test_owner_mode_time_and_content_are_those_of_the_archive(place: Place) -> None:
    umask = os.umask(0o077)
    try:
        place.fill(
            tar(
                folder("./", mode=0o711, uid=7),
                folder("d", mode=0o1777, mtime=5),
                (entry("d/su", mode=0o6755, uid=1, gid=2, mtime=1.5), b"text"),
                link("d/l", "../../..//etc"),
                entry("d/p", tarfile.FIFOTYPE, mode=0o622),
                hard("h", "d/su"),
                ("implied/a/f", b""),
            )
        )
    finally:
        os.umask(umask)
    root, su = place.root.stat(), (place.root / "d/su").stat()
    assert (stat.S_IMODE(root.st_mode), root.st_uid) == (0o711, 7)
    assert (stat.S_IMODE(su.st_mode), su.st_uid, su.st_gid, su.st_mtime_ns, su.st_nlink) == (
        *(0o6755, 1, 2, 1_500_000_000),
        2,
    )
    assert ((place.root / "d").stat().st_mtime, stat.S_IMODE((place.root / "d").stat().st_mode)) == (5, 0o1777)
    assert stat.S_IMODE((place.root / "implied/a").stat().st_mode) == 0o755
    assert stat.S_IMODE((place.root / "d/p").stat().st_mode) == 0o622
    assert os.readlink(place.root / "d/l") == "../../..//etc"


CAPABILITY = "\x01\0\0\x02\0\x20\0\0\0\0\0\0\0\0\0\0\0\0\0\0"  # cap_net_raw+ep, struct vfs_cap_data


def test_capabilities_and_user_attributes_stay_and_those_of_overlayfs_do_not(place: Place) -> None:
    headers = {
        "SCHILY.xattr.security.capability": CAPABILITY,
        "SCHILY.xattr.user.note": "n",
        "SCHILY.xattr.user.overlay.opaque": "y",
        "SCHILY.xattr.trusted.overlay.redirect": "/etc",
        "SCHILY.xattr.trusted.overlay.opaque": "y",
    }
    place.fill(tar((entry("ping", uid=3, mode=0o4755, pax_headers=headers), b""), folder("d", pax_headers=headers)))
    assert os.getxattr(place.root / "ping", "security.capability") == CAPABILITY.encode("latin-1")
    assert set(os.listxattr(place.root / "ping")) == {"security.capability", "user.note"}
    assert OPAQUE_XATTR not in os.listxattr(place.root / "d")
    assert stat.S_IMODE((place.root / "ping").stat().st_mode) == 0o4755


def test_a_later_entry_takes_the_place_of_an_earlier_one(place: Place) -> None:
    place.fill(
        tar(
            *(("a", b"1"), ("a", b"2"), folder("b"), ("b/x", b""), ("b", b"file"), ("c", b""), folder("c")),
            *(folder("d", mtime=1), ("d/kept", b""), folder("d", mtime=2), link("e", "a"), ("e", b"own")),
        )
    )
    assert tree(place.root) == {"a": "2", "b": "file", "c": "/", "d": "/", "d/kept": "", "e": "own"}
    assert (place.root / "d").stat().st_mtime == 2
    assert opaque(place.root / "c") and not opaque(place.root / "d")


def test_whiteouts_become_those_of_overlayfs(place: Place) -> None:
    place.fill(
        tar(
            *(("d/.wh.gone", b""), ("o/.wh..wh..opq", b""), ("o/new", b"n"), ("same", b"s"), (".wh.same", b"")),
            *(folder("k"), ("k/f", b""), (".wh.k", b""), (".wh.r", b""), ("r/f", b""), (".wh.q", b""), ("q", b"q")),
            *((".wh..wh.plnk/1", b""), (".wh..wh.aufs", b""), ("d/.wh.gone", b"")),
        )
    )
    files = {"d/gone": "whiteout", "o/new": "n", "same": "s", "k/f": "", "r/f": "", "q": "q"}
    assert tree(place.root) == {**files, "d": "/", "o": "/", "k": "/", "r": "/"}
    assert [name for name in "dokr" if opaque(place.root / name)] == ["o", "k", "r"]


def opaque(path: pathlib.Path) -> bool:
    return OPAQUE_XATTR in os.listxattr(path) and os.getxattr(path, OPAQUE_XATTR) == b"y"


def test_device_nodes_are_left_out_and_named_with_the_hard_links_to_them(place: Place) -> None:
    left_out = place.fill(
        tar(
            entry("dev/sda", tarfile.BLKTYPE, devmajor=8),
            entry("fake-whiteout", tarfile.CHRTYPE),
            hard("disk", "dev/sda"),
            ("kept", b""),
        )
    )
    assert left_out == ("dev/sda", "fake-whiteout", "disk")
    assert tree(place.root) == {"dev": "/", "kept": ""}


@pytest.mark.parametrize("name", ["../precious", "a/../../precious", "/precious", "/etc/x", "..", "a/..", "//x"])
@pytest.mark.parametrize("kind", [tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE])
def test_a_name_that_leads_out_is_refused(place: Place, name: str, kind: bytes) -> None:
    place.refuse(tar(folder("a"), entry(name, kind, linkname="x")), r"name")


@pytest.mark.parametrize("target", ["..", "../precious", ".", "/", "{base}", "sub"])
@pytest.mark.parametrize("name", ["l/precious", "l/new", "l/a/b", "l/.wh.precious", "l/.wh..wh..opq"])
def test_nothing_is_written_through_a_symbolic_link(place: Place, target: str, name: str) -> None:
    place.refuse(tar(folder("sub"), link("l", target.format(base=place.base)), (name, b"evil")), "symbolic link 'l'")


@pytest.mark.parametrize(
    "target", ["../precious", "/etc/passwd", "{base}/precious", "l/precious", "nope", "a", "", "w", "."]
)
def test_a_hard_link_to_what_is_not_a_file_of_the_layer_is_refused(place: Place, target: str) -> None:
    members = (folder("a"), link("l", ".."), (".wh.w", b""), hard("new", target.format(base=place.base)))
    place.refuse(tar(*members), "'new'")
    assert not (place.root / "new").exists()


def test_a_hard_link_to_a_symbolic_link_is_one_to_the_link_itself(place: Place) -> None:
    place.fill(tar(link("l", "../precious"), hard("h", "l")))
    assert os.readlink(place.root / "h") == "../precious"
    place.check_outside()


@pytest.mark.parametrize("name", [".wh.", ".wh..", ".wh...", "a/.wh...", ".wh.a/b", "a/.wh.x/y"])
def test_a_whiteout_of_what_is_outside_is_refused(place: Place, name: str) -> None:
    place.refuse(tar((name, b"")), "whiteout")


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ((("f", b""), ("f/g", b"")), "'f/g': Not a directory"),
        ((entry(".", tarfile.SYMTYPE, linkname="/etc"),), "the root as a symbolic link"),
        ((("./", b""),), "'\\./?'"),
        ((("x" * 256, b""),), "longer than 255"),
        ((("d/" * 300 + "f", b""),), f"more than {MOST_DEPTH}"),
        ((link("s", "x" * 5000),), "linkpath of 5000 bytes, more than 4095"),
        ((link("s", ""),), "symbolic link to nothing"),
        ((entry("f", pax_headers={"SCHILY.xattr.security.capability": "x"}),), "'f': Invalid argument"),
    ],
)
def test_what_cannot_be_made_is_refused_by_name(place: Place, members: tuple[tarfile.TarInfo, ...], words: str) -> None:
    place.refuse(tar(*members), words)


def test_a_directory_as_deep_as_allowed_can_be_replaced(place: Place) -> None:
    place.fill(tar(("d/" * (MOST_DEPTH - 1) + "f", b""), ("d", b"flat")))
    assert tree(place.root) == {"d": "flat"}


def test_a_layer_that_is_cut_off_or_no_tar_is_refused(place: Place) -> None:
    place.refuse(tar(("f", b"y" * 2000))[:1500], "ends in the middle")
    place.refuse(b"no tar at all" * 100, "not a tar header")


def test_limits_count_bytes_and_entries(place: Place) -> None:
    with pytest.raises(ImageTooLarge, match="100 entries"):
        place.fill(tar(*(entry(f"f{number}") for number in range(101))), ImageLimits(entries=100))
    with pytest.raises(ImageTooLarge, match="9999 bytes"):
        place.fill(tar(("f", b"x" * 10_000)), ImageLimits(total_bytes=9999))
    with pytest.raises(BadImage, match="ends in the middle"):
        place.fill(entry("huge", size=1 << 50).tobuf())


PARTS = st.lists(
    st.sampled_from(["a", "b", "..", ".", "", "l", ".wh.a", ".wh..wh..opq", ".wh...", "precious", "ä"]), max_size=4
)
NAMES = PARTS.map("/".join)
KINDS = st.sampled_from(
    [tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE]
)
TARGETS = st.one_of(NAMES, st.sampled_from(["..", "../precious", "/", "a", "/etc/passwd"]))
ENTRIES = st.lists(
    st.builds(lambda name, kind, target: entry(name, kind, linkname=target), NAMES, KINDS, TARGETS), max_size=8
)


@given(ENTRIES)
@settings(deadline=None)
def test_whatever_entries_a_layer_has_nothing_outside_is_touched(
    tmp_path_factory: pytest.TempPathFactory, entries: list[tarfile.TarInfo]
) -> None:
    place = Place(tmp_path_factory.mktemp("any"))
    open_before = len(open_now())
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for item in entries:
            archive.addfile(item)
    with contextlib.suppress(BadImage):
        place.fill(buffer.getvalue())
    place.check_outside()
    assert len(open_now()) == open_before


@given(st.text(max_size=50))
def test_a_safe_path_has_only_plain_parts(name: str) -> None:
    try:
        parts = safe_path(name)
    except (BadTar, UnicodeError):
        return
    assert not {"", ".", ".."} & set(parts)
    assert not any("/" in part or "\0" in part for part in parts)
    assert not name.startswith("/")


def test_a_name_longer_than_a_path_can_be_is_refused_before_it_is_kept(place: Place) -> None:
    for member in (entry("a/" * 2100), link("a", "b/" * 2100)):
        place.refuse(tar(member), "a (path|linkpath) of [0-9]+ bytes, more than 4095")


def test_names_that_are_kept_are_paid_for(place: Place) -> None:
    """A device node or a directory costs nothing on the disk that is counted, and its name memory until the end."""
    limits = ImageLimits(kept_bytes=20_000)
    deep = "d/" * 200
    for kind in (tarfile.CHRTYPE, tarfile.DIRTYPE):
        with pytest.raises(ImageTooLarge, match="the image's names take more than the limit of 20000 bytes"):
            place.fill(tar(*(entry(f"{deep}{number}", kind) for number in range(100))), limits)


def test_a_hard_link_to_a_device_node_that_was_left_out_is_left_out_too(place: Place) -> None:
    assert place.fill(tar(entry("dev/x", tarfile.CHRTYPE), hard("y", "dev/x"))) == ("dev/x", "y")
