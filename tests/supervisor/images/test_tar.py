"""Tar streams: what tarfile and others write is read; what is broken or endless is refused at once."""

import contextlib
import io
import tarfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.images.tar import BadTar, TarEntry, TarKind, TarReader
from tests.supervisor.images.building import entry, folder, hard, link, tar


class Trickle:
    """A source that never gives more than a few bytes at once."""

    def __init__(self, data: bytes, most: int = 1 << 20) -> None:
        self.file, self.most = io.BytesIO(data), most

    def read(self, most: int) -> bytes:
        return self.file.read(min(most, self.most))

    def skip(self, count: int) -> None:
        self.file.read(count)


def read_all(data: bytes, most: int = 1 << 20) -> list[tuple[TarEntry, bytes]]:
    reader, found = TarReader(Trickle(data, most)), []
    while item := reader.next():
        content = b""
        while more := reader.read(100):
            content += more
        found.append((item, content))
    return found


EVERY_KIND = tar(
    folder("d/", uid=1, gid=2, mode=0o1777),
    (entry("d/" + "long" * 60, mtime=-5), b"x" * 700),
    ("d/empty", b""),
    link("s", "t" * 200),
    hard("h", "d/empty"),
    entry("p", tarfile.FIFOTYPE),
    entry("c", tarfile.CHRTYPE, devmajor=1, devminor=3),
    ("d/ä\udcff", b"1"),
)


@pytest.mark.parametrize("most", [1, 7, 511, 512, 1 << 20])
def test_every_kind_of_entry_is_read_however_the_bytes_arrive(most: int) -> None:
    read = read_all(EVERY_KIND, most)
    assert [item.kind for item, _ in read] == [
        *(
            TarKind.DIRECTORY,
            TarKind.FILE,
            TarKind.FILE,
            TarKind.SYMLINK,
            TarKind.HARDLINK,
            TarKind.FIFO,
            TarKind.DEVICE,
            TarKind.FILE,
        )
    ]
    assert (read[0][0].uid, read[0][0].gid, read[0][0].mode) == (1, 2, 0o1777)
    assert (read[1][0].name, read[1][0].mtime_ns, read[1][1]) == ("d/" + "long" * 60, -5 * 10**9, b"x" * 700)
    assert (read[3][0].target, read[4][0].target, read[7][0].name) == ("t" * 200, "d/empty", "d/ä\udcff")


@pytest.mark.parametrize("style", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_the_formats_in_use_are_read(style: int) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=style) as archive:
        name = "/".join(["part" * 10] * (3 if style == tarfile.USTAR_FORMAT else 20))
        archive.addfile(entry(name, size=3), io.BytesIO(b"abc"))
    ((item, content),) = read_all(buffer.getvalue())
    assert (item.name, content) == (name, b"abc")


def test_xattrs_and_exact_times_come_from_the_extended_header() -> None:
    headers = {"SCHILY.xattr.user.a": "v=\n", "mtime": "12.000000005", "SCHILY.xattr.user.empty": "", "comment": "x"}
    ((item, _),) = read_all(tar(entry("f", pax_headers=headers)))
    assert (dict(item.xattrs), item.mtime_ns) == ({"user.a": b"v=\n", "user.empty": b""}, 12_000_000_005)


@pytest.mark.parametrize(
    "headers",
    [
        *({"mtime": "nan"}, {"mtime": "1e9"}, {"uid": "-1"}, {"uid": str(2**32)}, {"size": "-1"}, {"size": "x"}),
        *({"path": "a\0b"}, {"GNU.sparse.major": "1"}, {"gid": "9" * 5000}),
    ],
)
def test_an_extended_header_out_of_range_is_refused(headers: dict[str, str]) -> None:
    with pytest.raises(BadTar):
        read_all(tar(entry("f", pax_headers=headers)))


@pytest.mark.parametrize(
    "record", [b"1 a=b\n", b"99999999999 a=b\n", b"8 a=bc\n", b"5 ab\n", b" =\n", b"-6 a=b\n", b"6a=b\n"]
)
def test_a_broken_pax_record_is_refused(record: bytes) -> None:
    header = entry("h", tarfile.XHDTYPE, size=len(record)).tobuf()
    with pytest.raises(BadTar, match="pax"):
        read_all(header + record.ljust(512, b"\0") + entry("f").tobuf())


def test_an_extended_header_of_a_gigabyte_is_refused_before_it_is_read() -> None:
    class Endless(Trickle):
        def read(self, most: int) -> bytes:
            assert self.file.tell() <= 4096
            return super().read(most)

    data = entry("h", tarfile.XHDTYPE, size=1 << 30).tobuf() + b"1" * 10_000
    with pytest.raises(BadTar, match="1073741824"):
        TarReader(Endless(data)).next()


def test_extended_headers_without_end_are_refused() -> None:
    with pytest.raises(BadTar, match="extended headers"):
        read_all(entry("h", tarfile.XGLTYPE).tobuf() * 100)


def test_times_are_held_to_what_a_disk_can_store() -> None:
    items = [item for item, _ in read_all(tar(entry("a", mtime=2**60), entry("b", mtime=-(2**60))))]
    assert [item.mtime_ns // 10**9 for item in items] == [2**34 - 2**31 - 1, -(2**31)]


@pytest.mark.parametrize("kind", [tarfile.GNUTYPE_SPARSE, b"Z", b"V"])
def test_kinds_that_no_image_has_are_refused_by_name(kind: bytes) -> None:
    with pytest.raises(BadTar, match="'odd'"):
        read_all(entry("odd", kind).tobuf())


@pytest.mark.parametrize("cut", [1, 511, 513, 1024, 1300])
def test_an_archive_that_ends_too_early_is_refused(cut: int) -> None:
    with pytest.raises(BadTar):
        read_all(tar(("f", b"y" * 1000))[:cut])


def test_a_negative_size_is_refused() -> None:
    block = bytearray(entry("f").tobuf())
    block[124:136] = b"\xff" * 12  # base 256
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    with pytest.raises(BadTar, match="negative size"):
        read_all(bytes(block))


@given(st.binary(max_size=2000), st.integers(0, len(EVERY_KIND)))
def test_any_bytes_anywhere_are_read_or_refused_and_nothing_else(junk: bytes, at: int) -> None:
    for data in (junk, EVERY_KIND[:at] + junk + EVERY_KIND[at + len(junk) :]):
        with contextlib.suppress(BadTar):
            read_all(data)
