"""The files of a container that does not run: what it has mounted is seen at its place, and nothing else is."""

import os
import pathlib
import stat

import pytest

from supervisor.model.secrets import mounted_file
from supervisor.model.values import Container, Mount, Phase, Spec
from supervisor.runtime.oci import bundle, contents, view

ID = "a1" * 32


def text_at(seen: view.FilesView, path: str) -> str:
    fd = seen.open(path, follow=True)
    try:
        return pathlib.Path(f"/proc/self/fd/{fd}").read_text()
    finally:
        os.close(fd)


def test_mounts_made_of_files_are_seen_and_one_without_a_source_hides_nothing(tmp_path: pathlib.Path) -> None:
    mounts = (
        Mount("", "/etc/conf", files=(mounted_file("name", b"of the mount"),)),
        Mount("", "/etc/one", files=(mounted_file("one", b"single"),), single=True),
        Mount("", "/run/memory", tmpfs=True),
        Mount("", "/shared", empty_dir="shared", tmpfs=True),
    )
    container = Container(ID, Spec("c", mounts=mounts), Phase.EXITED, 1, 0)
    root, merged = str(tmp_path / "r"), tmp_path / "merged"
    directory = pathlib.Path(bundle.directory_of(root, ID))
    for path in ("etc/conf", "run/memory", "shared"):
        (merged / path).mkdir(parents=True)
    (merged / "etc/one").write_text("of the image")
    (merged / "run/memory/file").write_text("of the image")
    (directory / "volumes/shared").mkdir(parents=True)
    (directory / "volumes/shared/file").write_text("of the pod")
    contents.make(str(directory), mounts)
    with view.of_stopped(container, root, str(merged)) as seen:
        assert text_at(seen, "/etc/conf/name") == "of the mount"
        assert text_at(seen, "/etc/one") == "single"
        assert text_at(seen, "/run/memory/file") == "of the image"
        assert text_at(seen, "/shared/file") == "of the pod"


@pytest.mark.parametrize("follow", [False, True])
def test_a_file_is_found_and_never_opened_for_reading(tmp_path: pathlib.Path, follow: bool) -> None:
    """A pipe that nobody writes would keep the daemon waiting, and a device would begin its work."""
    os.mkfifo(tmp_path / "pipe")
    with view.of_root(str(tmp_path)) as seen:
        fd = seen.open("/pipe", follow=follow)
        try:
            assert stat.S_ISFIFO(os.fstat(fd).st_mode)
            with pytest.raises(OSError, match="Bad file descriptor"):
                os.read(fd, 1)
        finally:
            os.close(fd)


def test_a_link_at_the_end_is_itself_unless_it_is_to_be_followed(tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").write_text("text")
    (tmp_path / "link").symlink_to("/file")
    found = {}
    with view.of_root(str(tmp_path)) as seen:
        for follow in (False, True):
            fd = seen.open("/link", follow=follow)
            found[follow] = stat.S_IFMT(os.fstat(fd).st_mode)
            os.close(fd)
    assert found == {False: stat.S_IFLNK, True: stat.S_IFREG}


def test_a_root_that_is_no_directory_is_refused(tmp_path: pathlib.Path) -> None:
    (tmp_path / "merged").write_text("a file")
    with pytest.raises(NotADirectoryError), view.of_root(str(tmp_path / "merged")):
        pass
