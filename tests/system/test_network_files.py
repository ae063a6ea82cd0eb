"""Records of attachments on a full disk, network namespaces, and the lock of plugins that outlive their exitd."""

import contextlib
import errno
import json
import os
import pathlib
import resource
import subprocess
import sys
from collections.abc import Iterator

import pytest

from shim import native
from supervisor.network import files, namespace, records
from tests.supervisor.network.test_records import ANSWERED, RECORD

MS_NOSUID = 2
HOLDER = "import sys; print(flush=True); sys.stdin.read()"


@pytest.fixture
def small(tmp_path: pathlib.Path) -> Iterator[pathlib.Path]:
    """A file system of 64 KiB."""
    place = tmp_path / "small"
    place.mkdir()
    native.mount("small", str(place), "tmpfs", MS_NOSUID, "size=64k")
    yield place
    native.unmount(str(place), namespace.MNT_DETACH)


def fill(place: pathlib.Path) -> None:
    with contextlib.suppress(OSError), open(place / "ballast", "wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))


@contextlib.contextmanager
def descriptors_left(count: int) -> Iterator[None]:
    """For the block: this process can open so many more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    first = os.open("/dev/null", os.O_RDONLY)
    os.close(first)
    resource.setrlimit(resource.RLIMIT_NOFILE, (first + count, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_full_disk_refuses_a_record_and_holds_no_removal_back(small: pathlib.Path) -> None:
    top = str(small / "networks")
    files.write(top, RECORD)
    fill(small)
    with pytest.raises(OSError) as refused:
        files.write(top, ANSWERED)
    assert refused.value.errno == errno.ENOSPC
    assert list(files.read(top)) == [RECORD] and os.listdir(top) == [RECORD.id]
    files.remove(top, RECORD)
    files.remove(top, RECORD)
    assert list(files.read(top)) == []


def test_a_record_that_there_is_no_descriptor_to_read_is_not_taken_for_an_odd_file(tmp_path: pathlib.Path) -> None:
    files.write(str(tmp_path), RECORD)
    names = files.read(str(tmp_path))
    with descriptors_left(1), pytest.raises(OSError) as refused:
        list(names)
    assert refused.value.errno == errno.EMFILE
    assert list(files.read(str(tmp_path))) == [RECORD]


def test_a_namespace_that_there_is_no_descriptor_to_look_at_is_not_taken_for_none(tmp_path: pathlib.Path) -> None:
    path = str(tmp_path / "netns" / "x-1")
    namespace.make(path)
    with descriptors_left(0), pytest.raises(OSError) as refused:
        namespace.is_there(path)
    assert refused.value.errno == errno.EMFILE
    assert namespace.is_there(path)
    namespace.unmake(path)
    assert not namespace.is_there(path) and not namespace.is_there(str(tmp_path / "none" / "x-1"))


def test_a_record_of_a_later_version_stays_and_what_is_none_does_not(tmp_path: pathlib.Path) -> None:
    whole = json.loads(records.encode(RECORD))
    (tmp_path / RECORD.id).write_text(json.dumps({**whole, "version": records.VERSION + 1}))
    (tmp_path / "x-1").write_text("{}")
    (tmp_path / "x-2").symlink_to("/dev/null")
    found = {each.name: each.stays for each in files.read(str(tmp_path)) if isinstance(each, files.OddFile)}
    assert found == {RECORD.id: True, "x-1": False, "x-2": False}


def test_a_namespace_is_bound_until_it_is_unmade_and_another_takes_its_place(tmp_path: pathlib.Path) -> None:
    path, own = str(tmp_path / "netns" / "x-1"), os.readlink("/proc/thread-self/ns/net")
    assert not namespace.is_there(path)
    namespace.make(path)
    first = os.stat(path).st_ino
    assert namespace.is_there(path) and os.readlink("/proc/thread-self/ns/net") == own
    up = subprocess.run(
        ["nsenter", f"--net={path}", "ip", "-brief", "link"], capture_output=True, text=True, timeout=30, check=True
    )
    assert up.stdout.split()[:1] == ["lo"] and "LOOPBACK,UP" in up.stdout
    namespace.make(path)
    assert os.stat(path).st_ino != first
    namespace.unmake(path)
    namespace.unmake(path)
    assert not namespace.is_there(path) and os.listdir(tmp_path / "netns") == []


def test_what_a_plugin_has_started_keeps_its_lock(tmp_path: pathlib.Path) -> None:
    path = str(tmp_path / "netns" / "x-1")
    assert namespace.is_idle(path)
    with namespace.worked_on(path) as (lock_fd,):
        holder = subprocess.Popen(
            [sys.executable, "-c", HOLDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=(lock_fd,)
        )
        assert holder.stdout is not None and holder.stdout.readline()
    with holder:
        assert not namespace.is_idle(path)
        with namespace.worked_on(path) as (_,):
            pass  # others' work goes on meanwhile
        holder.communicate(timeout=30)
    assert namespace.is_idle(path)
