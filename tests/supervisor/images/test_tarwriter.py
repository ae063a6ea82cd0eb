"""The one tar writer: what it writes, exitd's own reader, Python's tarfile and GNU tar read as the same entry."""

import io
import os
import subprocess
import tarfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.images import tarwriter
from supervisor.images.tar import BadTar, TarEntry, TarKind, TarReader
from tests.supervisor.images.test_tar import Trickle

PART = st.binary(min_size=1, max_size=60).map(lambda b: os.fsdecode(b.replace(b"/", b"-").replace(b"\0", b"0")))
NAMES = st.lists(PART, min_size=1, max_size=6).map("/".join).filter(lambda name: name.strip("/") != "")
KEYS = st.text("abcdefgh.", min_size=1, max_size=20).map(lambda key: f"user.{key}")
ENTRIES = st.builds(
    TarEntry,
    name=NAMES,
    kind=st.sampled_from([kind for kind in TarKind if kind is not TarKind.DEVICE]),
    size_bytes=st.integers(0, 2000) | st.integers(8**11 - 2, 8**12),
    mode=st.integers(0, 0o7777),
    uid=st.integers(0, 2**32 - 2),
    gid=st.integers(0, 2**32 - 2),
    mtime_ns=st.integers(-(2**31) * 10**9, (2**34 - 2**31 - 1) * 10**9),
    target=NAMES,
    xattrs=st.dictionaries(KEYS, st.binary(max_size=80), max_size=3),
)


def as_read(entry: TarEntry) -> TarEntry:
    """What of an entry has a meaning."""
    has_target = entry.kind in (TarKind.SYMLINK, TarKind.HARDLINK)
    return TarEntry(
        entry.name,
        entry.kind,
        entry.size_bytes if entry.kind is TarKind.FILE else 0,
        entry.mode,
        entry.uid,
        entry.gid,
        entry.mtime_ns,
        entry.target if has_target else "",
        entry.xattrs,
    )


@given(ENTRIES)
def test_what_is_written_is_read_as_the_same_entry(entry: TarEntry) -> None:
    entry = as_read(entry)
    header = tarwriter.header(entry)
    assert len(header) % 512 == 0
    read = TarReader(Trickle(header + tarwriter.END, 7)).next()
    assert read is not None and read.name.rstrip("/") == entry.name.rstrip("/")
    assert (read.kind, read.size_bytes, read.mode, read.uid, read.gid, read.mtime_ns, read.target, read.xattrs) == (
        *(entry.kind, entry.size_bytes, entry.mode, entry.uid, entry.gid, entry.mtime_ns, entry.target, entry.xattrs),
    )


@given(ENTRIES)
def test_pythons_tarfile_reads_it_too(entry: TarEntry) -> None:
    entry = as_read(entry)
    with tarfile.open(fileobj=io.BytesIO(tarwriter.header(entry) + tarwriter.END)) as tar:
        info = tar.next()
    assert info is not None and info.name == entry.name.rstrip("/")
    assert (info.size, info.mode, info.uid, info.gid) == (entry.size_bytes, entry.mode, entry.uid, entry.gid)
    assert abs(info.mtime - entry.mtime_ns / 10**9) < 1e-3


def test_gnu_tar_lists_every_kind_of_entry() -> None:
    entries = [
        TarEntry("d", TarKind.DIRECTORY, mode=0o755),
        TarEntry("d/" + "long" * 50, TarKind.FILE, 3),
        TarEntry("s", TarKind.SYMLINK, target="t" * 150),
        TarEntry("h", TarKind.HARDLINK, target="d/" + "long" * 50),
        TarEntry("p", TarKind.FIFO),
        TarEntry("c", TarKind.DEVICE, device=os.makedev(1, 3)),
        TarEntry("b", TarKind.DEVICE, device=os.makedev(7, 300), is_block=True),
    ]
    data = b"".join(tarwriter.header(entry) + tarwriter.padded(b"x" * entry.size_bytes) for entry in entries)
    words = ["tar", "--numeric-owner", "-tvf", "-"]
    listed = subprocess.run(words, input=data + tarwriter.END, capture_output=True, check=True, timeout=30)
    lines = listed.stdout.decode().splitlines()
    assert [line[0] for line in lines] == ["d", "-", "l", "h", "p", "c", "b"] and listed.stderr == b""
    assert " 1,3 " in lines[5] and " 7,300 " in lines[6]


def test_more_attributes_than_an_archive_may_have_are_refused() -> None:
    with pytest.raises(BadTar, match="attributes"):
        tarwriter.header(TarEntry("f", TarKind.FILE, xattrs={"user.a": b"x" * (1 << 20)}))
