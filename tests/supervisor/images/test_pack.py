"""Trees into tars and back: what goes in comes out, what is hostile is refused by its name and touches nothing else."""

import io
import os
import pathlib
import socket
import stat
import struct
import tarfile
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from supervisor.images import idxattrs
from supervisor.images.extract import ChunkSource, ExtractedCounts, Keeping, extract
from supervisor.images.pack import pack
from supervisor.images.tar import TarReader
from supervisor.model.errors import BadRequest, WrongState
from supervisor.model.idranges import NOBODY, IdRange
from tests.supervisor.descriptors import held_now, opened_since
from tests.supervisor.images.building import entry, folder, hard, link, tar

OWNED = Keeping(owner=True, xattrs=True, top=True)


def packed(path: pathlib.Path, name: str = ".", ids: IdRange | None = None) -> bytes:
    fd = os.open(path, os.O_PATH | os.O_NOFOLLOW)
    try:
        return b"".join(pack(fd, name, ids=ids))
    finally:
        os.close(fd)


def put(data: bytes, into: pathlib.Path, keeping: Keeping = OWNED, most: int = 1 << 20) -> ExtractedCounts:
    fd = os.open(into, os.O_PATH | os.O_DIRECTORY)
    try:
        parts = iter([data[at : at + most] for at in range(0, len(data), most)])
        return extract(TarReader(ChunkSource(parts)), fd, keeping)
    finally:
        os.close(fd)


def facts(root: pathlib.Path) -> dict[str, tuple[object, ...]]:
    """Everything that a copy keeps, by path."""
    found: dict[str, tuple[object, ...]] = {}
    for path in sorted([root, *root.rglob("*")]):
        s = path.lstat()
        content = path.read_bytes() if stat.S_ISREG(s.st_mode) else b""
        target = os.readlink(path) if stat.S_ISLNK(s.st_mode) else ""
        time = 0 if stat.S_ISSOCK(s.st_mode) else s.st_mtime_ns
        found[str(path.relative_to(root))] = (s.st_mode, s.st_uid, s.st_gid, time, s.st_nlink, content, target)
    return found


@pytest.fixture
def tree(tmp_path: pathlib.Path) -> pathlib.Path:
    root = tmp_path / "tree"
    (root / "a/b").mkdir(parents=True)
    (root / "a/file").write_bytes(b"x" * 300_000)
    os.link(root / "a/file", root / "again")
    (root / "a/b/empty").touch()
    (root / "way").symlink_to("a/b")
    (root / "out").symlink_to("/etc/passwd")
    os.mkfifo(root / "fifo", 0o640)
    (root / "ä\udcff").write_text("odd")
    os.setxattr(root / "a/file", "user.mine", b"yes")
    os.chmod(root / "a", 0o1755)
    os.utime(root / "a/file", ns=(1, 123_456_789))
    os.utime(root / "a", ns=(1, 987_654_321))
    return root


@pytest.mark.parametrize("most", [1, 511, 1 << 20])
def test_a_tree_comes_out_as_it_went_in(tree: pathlib.Path, tmp_path: pathlib.Path, most: int) -> None:
    into = tmp_path / "into"
    into.mkdir()
    if most == 1:
        (tree / "a/file").write_bytes(b"x" * 700)
    made = put(packed(tree), into, most=most)
    assert facts(into) == facts(tree) and made.left_out == 0
    assert os.getxattr(into / "again", "user.mine") == b"yes"
    assert facts(into) == facts(tree) and put(packed(tree), into) == made, "over what is there"
    assert facts(into) == facts(tree)


def test_the_first_entry_has_the_name_that_is_asked_for(tree: pathlib.Path) -> None:
    with tarfile.open(fileobj=io.BytesIO(packed(tree, "new"))) as found:
        assert all(name == "new" or name.startswith("new/") for name in found.getnames())
    with tarfile.open(fileobj=io.BytesIO(packed(tree / "out", "new"))) as found:
        assert [(each.name, each.linkname) for each in found] == [("new", "/etc/passwd")]


def test_without_owners_nothing_becomes_another_users_program(tmp_path: pathlib.Path) -> None:
    program = (entry("s", mode=0o6755, uid=12, gid=34), b"")
    put(tar(program, folder("d", mode=0o7777)), tmp_path, Keeping())
    assert stat.S_IMODE((tmp_path / "s").stat().st_mode) == 0o755 and (tmp_path / "s").stat().st_uid == os.geteuid()
    assert stat.S_IMODE((tmp_path / "d").stat().st_mode) == 0o1777


def test_devices_are_left_out_and_counted(tmp_path: pathlib.Path) -> None:
    made = put(tar(entry("c", tarfile.CHRTYPE, devmajor=1, devminor=3), ("f", b"")), tmp_path)
    assert made == ExtractedCounts(1, 1) and os.listdir(tmp_path) == ["f"]


REFUSED = {
    "an absolute name": (tar(("/f", b"")), BadRequest),
    "a name that leads out": (tar(("../f", b"")), BadRequest),
    "a name through a link": (tar(link("l", "/tmp"), ("l/f", b"")), WrongState),
    "a name through a link to nothing": (tar(link("l", "nothing"), ("l/f", b"")), WrongState),
    "a name through a file": (tar(("f", b""), ("f/g", b"")), WrongState),
    "a directory over a link": (tar(link("l", "/tmp"), folder("l")), WrongState),
    "a file over a directory": (tar(folder("d"), ("d", b"")), WrongState),
    "a hard link out": (tar(hard("h", "../../etc/passwd")), BadRequest),
    "a hard link through a link": (tar(link("l", "/etc"), hard("h", "l/passwd")), WrongState),
    "a hard link to nothing": (tar(hard("h", "f")), BadRequest),
    "a hard link to a directory": (tar(folder("d"), hard("h", "d")), BadRequest),
    "no tar": (b"x" * 1024, BadRequest),
    "a torn one": (tar(("f", b"x" * 2000))[:1500], BadRequest),
    "a name of many parts": (tar(("d/" * 300 + "f", b"")), BadRequest),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_hostile_is_refused_and_touches_nothing_outside(tmp_path: pathlib.Path, what: str) -> None:
    data, error = REFUSED[what]
    into = tmp_path / "a/into"
    into.mkdir(parents=True)
    with pytest.raises(error):
        put(data, into)
    assert os.listdir(tmp_path) == ["a"] and os.listdir(tmp_path / "a") == ["into"]
    assert not (into / "f").is_file() or what == "a name through a file", "half a file is none"


def test_a_link_that_is_there_is_replaced_and_not_followed(tmp_path: pathlib.Path) -> None:
    (tmp_path / "target").write_text("kept")
    (tmp_path / "into").mkdir()
    (tmp_path / "into/f").symlink_to("../target")
    put(tar(("f", b"new")), tmp_path / "into")
    assert (tmp_path / "target").read_text() == "kept" and (tmp_path / "into/f").read_text() == "new"


def test_a_tree_that_is_too_deep_is_refused_and_leaves_no_descriptor(tmp_path: pathlib.Path) -> None:
    fd = os.open(tmp_path, os.O_RDONLY)
    for _ in range(300):
        os.mkdir("d", dir_fd=fd)
        below = os.open("d", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(fd)
    before = held_now()
    with pytest.raises(WrongState, match="more than 256 directories"):
        packed(tmp_path)
    assert not opened_since(before)


def test_too_many_attributes_are_refused_by_the_files_name(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("supervisor.images.pack.MOST_XATTR_BYTES", 100)  # ext4 has no room for 64 KiB
    (tmp_path / "f").touch()
    os.setxattr(tmp_path / "f", "user.a", b"x" * 90)
    assert packed(tmp_path)
    os.setxattr(tmp_path / "f", "user.b", b"x")
    with pytest.raises(WrongState, match=r"'\./f' has more than 100 bytes"):
        packed(tmp_path)


def test_a_socket_is_left_out_and_kernels_files_are_refused(tmp_path: pathlib.Path) -> None:
    with socket.socket(socket.AF_UNIX) as line:
        line.bind(str(tmp_path / "s"))
        with tarfile.open(fileobj=io.BytesIO(packed(tmp_path))) as found:
            assert found.getnames() == ["."]
    with pytest.raises(WrongState, match="not on a disk"):
        packed(pathlib.Path("/proc/version"), "version")
    with tarfile.open(fileobj=io.BytesIO(packed(pathlib.Path("/proc/self"), "p"))) as found:
        assert [(each.name, each.type) for each in found] == [("p", tarfile.SYMTYPE)]


def _makings() -> st.SearchStrategy[dict[str, object]]:
    leaf = st.binary(max_size=2000) | st.tuples(st.just("->"), st.sampled_from(["a", "../x", "/etc", "a/b"]))
    return st.recursive(
        st.dictionaries(st.sampled_from("abcä"), leaf, max_size=3),
        lambda below: st.dictionaries(st.sampled_from("abcd"), leaf | below, max_size=3),
        max_leaves=12,
    )


def make(root: pathlib.Path, tree: dict[str, object]) -> None:
    root.mkdir()
    for name, what in tree.items():
        if isinstance(what, dict):
            make(root / name, what)
        elif isinstance(what, bytes):
            (root / name).write_bytes(what)
        else:
            assert isinstance(what, tuple)
            (root / name).symlink_to(what[1])


@settings(max_examples=40, deadline=None)
@given(_makings())
def test_any_tree_comes_out_as_it_went_in(tmp_path_factory: pytest.TempPathFactory, tree: dict[str, object]) -> None:
    base = tmp_path_factory.mktemp("any")
    make(base / "tree", tree)
    (base / "into").mkdir()
    put(packed(base / "tree"), base / "into")
    assert facts(base / "into") == facts(base / "tree")


def chunks(data: bytes, sizes: list[int]) -> Iterator[bytes]:
    at = 0
    for size in sizes:
        yield data[at : at + size]
        at += size
    yield data[at:]


@given(st.binary(max_size=500), st.lists(st.integers(0, 90), max_size=20), st.lists(st.integers(1, 60), max_size=30))
def test_a_source_in_parts_gives_the_same_bytes(data: bytes, sizes: list[int], takes: list[int]) -> None:
    source, whole = ChunkSource(chunks(data, sizes)), io.BytesIO(data)
    for number, take in enumerate(takes):
        if number % 3:
            got = b""
            while len(got) < take and (more := source.read(take - len(got))):
                got += more
            assert got == whole.read(take)
        else:
            source.skip(take)
            whole.read(take)


@pytest.mark.root("only root can give a file away")
def test_owners_are_those_of_the_container_on_both_ways(tmp_path: pathlib.Path) -> None:
    ids = IdRange(1 << 20)
    owned = tar(folder("d", uid=0, gid=5), (entry("d/f", uid=1000, gid=1000), b"x"), link("way", "d"), ("deep/f", b""))
    (into := tmp_path / "into").mkdir()
    put(owned, into, Keeping(owner=True, ids=ids))
    owners = {str(path.relative_to(into)): path.lstat() for path in into.rglob("*")}
    found = {path: (each.st_uid - ids.first, each.st_gid - ids.first) for path, each in owners.items()}
    assert found == {"d": (0, 5), "d/f": (1000, 1000), "way": (0, 0), "deep": (0, 0), "deep/f": (0, 0)}
    (into / "host").touch()
    with tarfile.open(fileobj=io.BytesIO(packed(into, ids=ids))) as archive:
        back = {each.name: (each.uid, each.gid) for each in archive}
    assert (back["./d/f"], back["./d"], back["./host"]) == ((1000, 1000), (0, 5), (NOBODY, NOBODY))
    (made := tmp_path / "made").mkdir()
    put(owned, made, Keeping(ids=ids))
    assert {p.lstat().st_uid for p in made.rglob("*")} == {ids.first}


@pytest.mark.root("only root can give a file away")
@pytest.mark.parametrize("owner", [False, True])
def test_a_directory_of_the_machine_in_a_containers_one_is_neither_opened_nor_given_away(
    tmp_path: pathlib.Path, owner: bool
) -> None:
    ids = IdRange(1 << 20)
    (private := tmp_path / "conf").mkdir(mode=0o700)
    (own := tmp_path / "own").mkdir(mode=0o700)
    os.chown(own, ids.first, ids.first)
    os.utime(private, ns=(1, 1))
    before = facts(private)
    put(tar(folder("conf", mode=0o755), folder("own", mode=0o755)), tmp_path, Keeping(owner=owner, ids=ids))
    assert facts(private) == before
    assert stat.S_IMODE(own.stat().st_mode) == 0o755


@pytest.mark.root("only root can give a file away")
@pytest.mark.parametrize("made", [entry("x", tarfile.FIFOTYPE, uid=5), link("x", "there"), folder("x", mode=0o777)])
def test_what_a_container_puts_in_the_place_of_what_is_made_keeps_its_facts(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, made: tarfile.TarInfo
) -> None:
    (machines := tmp_path / "machines").mkdir(mode=0o700)
    put(tar(made), machines, Keeping())
    os.utime(machines / "x", ns=(1, 1), follow_symlinks=False)
    (into := tmp_path / "into").mkdir()
    before, chown = facts(machines)["x"], os.chown

    def given_away(path: str, uid: int, gid: int, **how: Any) -> None:
        chown(path, uid, gid, **how)
        if (machines / "x").is_symlink() or (machines / "x").exists():
            (into / "x").rename(tmp_path / "away")
            (machines / "x").rename(into / "x")

    monkeypatch.setattr(os, "chown", given_away)
    put(tar(made), into, Keeping(owner=True, ids=IdRange(1 << 20)))
    assert facts(into)["x"] == before
    assert (tmp_path / "away").lstat().st_uid == (1 << 20) + made.uid


def test_a_copy_without_owners_asks_a_file_system_that_has_none_for_none(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    for name in ("chown", "fchown", "lchown"):
        monkeypatch.setattr(os, name, refuse)
    put(tar(folder("d"), ("d/f", b""), ("deep/f", b""), link("l", "d")), tmp_path, Keeping())
    assert (tmp_path / "d/f").exists()


def test_capabilities_of_a_file_count_in_its_containers_namespace_and_in_no_other() -> None:
    ids, of_all, name = IdRange(1 << 20), struct.pack("<IIIII", 0x02000001, 1 << 13, 0, 0, 0), idxattrs.CAPABILITY
    of_one = idxattrs.outside(name, of_all, ids)
    assert of_one == struct.pack("<IIIIII", 0x03000001, 1 << 13, 0, 0, 0, 1 << 20)
    assert idxattrs.inside(name, of_one, ids) == of_all
    for odd in (b"", b"x" * 20, b"x" * 24, idxattrs.outside(name, of_all, IdRange(1 << 21))):
        assert idxattrs.inside(name, odd, ids) == odd
    for odd in (b"", b"x" * 20, of_one):
        assert idxattrs.outside(name, odd, ids) == odd
    assert idxattrs.outside("user.x", of_all, ids) == of_all


def test_users_and_groups_of_access_lists_are_the_containers() -> None:
    ids, name = IdRange(1 << 20), idxattrs.ACLS[0]
    acl = struct.pack("<I" + "HHI" * 3, 2, 0x01, 7, 2**32 - 1, 0x02, 6, 1000, 0x08, 4, 5)
    machines = struct.pack("<I" + "HHI" * 3, 2, 0x01, 7, 2**32 - 1, 0x02, 6, (1 << 20) + 1000, 0x08, 4, (1 << 20) + 5)
    assert idxattrs.outside(name, acl, ids) == machines
    assert idxattrs.inside(name, machines, ids) == acl
    assert idxattrs.inside(name, b"odd", ids) == b"odd"
