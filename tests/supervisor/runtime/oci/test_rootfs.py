"""Overlays come, are repaired, and go without a trace."""

import errno
import os
import pathlib
import tempfile
from collections.abc import Iterator
from dataclasses import replace

import pytest

from shim import native
from supervisor.model.errors import BadRequest, Unsupported, WrongState
from supervisor.model.idranges import IdRange
from supervisor.model.storage import Storage, StorageKind
from supervisor.model.values import Mount, Spec
from supervisor.runtime.oci import bundle, layertrial, rootfs
from supervisor.system import removal

needs_root = pytest.mark.root("mounts need root")


@pytest.fixture
def lower(tmp_path: pathlib.Path) -> pathlib.Path:
    lower = tmp_path / "lower"
    lower.mkdir(mode=0o755)
    (lower / "file").write_text("below")
    return lower


@pytest.fixture
def directory(tmp_path: pathlib.Path) -> Iterator[str]:
    directory = str(tmp_path / "a b,c:d\\e" / "run")
    yield directory
    rootfs.release(directory)
    removal.remove_tree(directory)


@pytest.fixture
def passable() -> Iterator[pathlib.Path]:
    """A directory to which all users may come; pytest's own are closed to others."""
    made = pathlib.Path(tempfile.mkdtemp(prefix="exitd-"))
    made.chmod(0o711)
    yield made
    removal.remove_tree(str(made))


def on_disk(lower: pathlib.Path, directory: str, *, auto_remove: bool = False) -> pathlib.Path:
    spec = Spec(name="c", rootfs=str(lower), storage=Storage(StorageKind.DISK), auto_remove=auto_remove)
    return pathlib.Path(rootfs.prepare(spec, directory))


def prepare(lower: pathlib.Path, directory: str) -> pathlib.Path:
    return pathlib.Path(rootfs.prepare(Spec(name="c", rootfs=str(lower)), directory))


@needs_root
def test_what_is_written_stays_above(lower: pathlib.Path, directory: str) -> None:
    merged = prepare(lower, directory)
    (merged / "file").write_text("above")
    assert (lower / "file").read_text() == "below"
    assert merged.stat().st_mode & 0o777 == 0o755
    assert os.stat(directory).st_mode & 0o777 == 0o700


@needs_root
def test_preparing_twice_keeps_what_stands(lower: pathlib.Path, directory: str) -> None:
    (prepare(lower, directory) / "new").write_text("kept")
    assert (prepare(lower, directory) / "new").read_text() == "kept"
    assert len(rootfs.mounts_under(directory)) == 2


@needs_root
@pytest.mark.parametrize("auto_remove", [False, True])
def test_a_layer_on_disk_is_no_mount_and_outlives_all_of_them(
    lower: pathlib.Path, directory: str, auto_remove: bool
) -> None:
    merged = on_disk(lower, directory, auto_remove=auto_remove)
    (merged / "new").write_text("kept")
    merged.chmod(0o711)
    assert rootfs.mounts_under(directory) == (str(merged),)
    assert (pathlib.Path(rootfs.layer_of(directory)) / "new").read_text() == "kept"
    assert os.stat(f"{directory}/layer").st_mode & 0o777 == 0o700
    rootfs.release(directory)
    merged = on_disk(lower, directory, auto_remove=auto_remove)
    assert (merged / "new").read_text() == "kept" and merged.stat().st_mode & 0o777 == 0o711
    assert on_disk(lower, directory) == merged
    rootfs.release(directory)


@needs_root
def test_a_tmpfs_that_an_exitd_without_layers_on_disk_has_mounted_gives_way_to_the_layer(
    lower: pathlib.Path, directory: str
) -> None:
    (on_disk(lower, directory) / "new").write_text("kept")
    rootfs.release(directory)
    assert not (prepare(lower, directory) / "new").exists()
    assert (on_disk(lower, directory) / "new").read_text() == "kept"
    assert len(rootfs.mounts_under(directory)) == 1


@needs_root
def test_the_last_reference_to_the_overlay_is_handed_over_when_its_files_have_gone(
    lower: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    root, given = str(tmp_path / "r"), []
    directory = bundle.directory_of(root, "c")
    (on_disk(lower, f"{directory}/rootfs") / "new").write_text("x")

    def let_go(fd: int) -> None:
        given.append(os.path.exists(directory))
        os.close(fd)

    bundle.remove("c", root, let_go)
    bundle.remove("c", root, let_go)
    assert given == [False]


@needs_root
def test_a_trial_finds_out_whether_there_can_be_layers_and_leaves_nothing(tmp_path: pathlib.Path) -> None:
    for path in ("trial/left/over", "over/lower", "over/upper", "over/work", "over/merged"):
        (tmp_path / path).mkdir(parents=True)
    assert layertrial.try_layer(str(tmp_path)).works
    assert not (tmp_path / "trial").exists()
    merged = str(tmp_path / "over/merged")
    layers = ",".join(f"{name}dir={tmp_path}/over/{name}" for name in ("lower", "upper", "work"))
    native.mount("none", merged, "overlay", 0, layers)
    try:
        found = layertrial.try_layer(merged)
        assert not found.works and merged in found.detail and "--storage tmpfs" in found.cure
        assert os.listdir(merged) == []
    finally:
        native.unmount(merged, rootfs.MNT_DETACH)


@needs_root
def test_a_full_file_system_says_nothing_about_layers(tmp_path: pathlib.Path) -> None:
    native.mount("none", str(tmp_path), "tmpfs", 0, "nr_inodes=1")
    try:
        assert layertrial.try_layer(str(tmp_path)).works
    finally:
        native.unmount(str(tmp_path), rootfs.MNT_DETACH)


@needs_root
def test_a_half_mounted_root_is_repaired(lower: pathlib.Path, directory: str) -> None:
    prepare(lower, directory)
    native.unmount(f"{directory}/merged", rootfs.MNT_DETACH)
    assert (prepare(lower, directory) / "file").read_text() == "below"
    native.unmount(f"{directory}/scratch", rootfs.MNT_DETACH)
    assert (prepare(lower, directory) / "file").read_text() == "below"
    assert len(rootfs.mounts_under(directory)) == 2


@needs_root
def test_release_removes_everything_though_a_file_is_held_open(lower: pathlib.Path, directory: str) -> None:
    merged = prepare(lower, directory)
    with open(merged / "file") as held:
        rootfs.release(directory)
        assert held.read() == "below"
    assert rootfs.mounts_under(directory) == ()
    assert not os.path.exists(directory)
    rootfs.release(directory)


@needs_root
def test_release_leaves_what_is_not_its_own(lower: pathlib.Path, directory: str) -> None:
    prepare(lower, directory)
    beside = pathlib.Path(directory + "-beside")
    other = pathlib.Path(prepare(lower, str(beside)))
    (pathlib.Path(directory) / "note").write_text("mine")
    rootfs.release(directory)
    assert os.listdir(directory) == ["note"]
    assert (other / "file").read_text() == "below"
    rootfs.release(str(beside))
    os.unlink(f"{directory}/note")


@needs_root
@pytest.mark.parametrize("name", ["a,b", "a:b", "a\\b", "a b", "\\:", "ä\n"])
def test_a_lower_directory_may_have_any_name(tmp_path: pathlib.Path, directory: str, name: str) -> None:
    lower = tmp_path / name
    lower.mkdir()
    (lower / "file").write_text(name)
    assert (prepare(lower, directory) / "file").read_text() == name


@needs_root
def test_the_mounts_are_private(lower: pathlib.Path, directory: str) -> None:
    prepare(lower, directory)
    lines = [line for line in pathlib.Path("/proc/self/mountinfo").read_text().split("\n") if "exitd-" in line]
    assert lines
    assert not [line for line in lines if "shared:" in line]


def test_the_pause_program_runs_on_its_images_own_directory_and_nothing_is_mounted(
    tmp_path: pathlib.Path, lower: pathlib.Path
) -> None:
    (tmp_path / "link").symlink_to(lower)
    spec = Spec(name="c", image="pause", layers=(str(tmp_path / "link"),))
    assert rootfs.prepare(spec, str(tmp_path / "run")) == str(lower)  # runc takes no path with a link in it
    assert not (tmp_path / "run").exists()


@needs_root
def test_the_pause_program_gets_an_overlay_where_its_root_would_be_written_or_could_not_be_executed(
    lower: pathlib.Path, directory: str
) -> None:
    spec = Spec(name="c", image="pause", layers=(str(lower),))
    for asked in (replace(spec, mounts=(Mount("/etc", "/etc"),)), replace(spec, cwd="/work")):
        assert rootfs.prepare(asked, directory) == f"{directory}/merged"
        rootfs.release(directory)
    native.mount("none", str(lower), "tmpfs", rootfs.MS_NOEXEC, "")
    try:
        assert rootfs.prepare(spec, directory) == f"{directory}/merged"
        assert not os.statvfs(f"{directory}/merged").f_flag & os.ST_NOEXEC
        rootfs.release(directory)
    finally:
        native.unmount(str(lower), rootfs.MNT_DETACH)


@pytest.mark.parametrize("path", ["/nope", "relative", "/etc/passwd"])
def test_a_root_file_system_that_is_no_directory_is_refused(tmp_path: pathlib.Path, path: str) -> None:
    with pytest.raises(BadRequest, match=path):
        rootfs.prepare(Spec(name="c", rootfs=path), str(tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_mount_points_are_read_with_their_escapes_and_strictly_below() -> None:
    text = (
        "1 0 0:1 / /run rw - tmpfs t rw\n"
        "2 1 0:2 / /run/x rw - tmpfs t rw\n"
        "3 1 0:3 / /run/x/a\\040b rw shared:1 - tmpfs t rw\n"
        "4 1 0:4 / /run/xy/a rw - tmpfs t rw\n\n"
    )
    assert rootfs.parse_mounts_under(text, "/run/x") == ("/run/x/a b",)
    escaped = text.replace("/run/x", "/run/\\040\\043x")
    for written in (escaped, escaped.replace("\\043", "#")):  # kernels differ about this one
        assert rootfs.parse_mounts_under(written, "/run/ #x") == ("/run/ #x/a b",)
    assert rootfs.parse_mounts_under(text, "/run/y") == ()


def test_a_missing_bundle_is_named(tmp_path: pathlib.Path) -> None:
    with pytest.raises(BadRequest, match=r"config\.json"):
        rootfs.read_bundle(str(tmp_path))
    (tmp_path / "config.json").write_text("{}")
    assert rootfs.read_bundle(str(tmp_path)) == (b"{}", f"{tmp_path}/config.json")


@needs_root
def test_with_users_of_its_own_it_is_mounted_where_they_may_come_to_it(
    lower: pathlib.Path, directory: str, passable: pathlib.Path
) -> None:
    spec = Spec(name="c", rootfs=str(lower), storage=Storage(StorageKind.DISK), ids=IdRange(1 << 20))
    first = rootfs.prepare(spec, directory, apart=str(passable / "s/roots/c"))
    assert first == f"{passable}/s/roots/c/merged"
    assert [os.stat(f"{first}/{name}").st_uid for name in (".", "file")] == [1 << 20] * 2
    assert [os.stat(each).st_mode & 0o777 for each in (passable / "s/roots", passable / "s/roots/c")] == [0o711, 0o710]
    pathlib.Path(first, "new").write_text("kept")

    # An exitd with another state directory finds what is mounted, and what has been written.
    second = rootfs.prepare(spec, directory, apart=str(passable / "t/roots/c"))
    assert pathlib.Path(second, "new").read_text() == "kept"
    assert not os.path.lexists(passable / "s/roots/c")
    rootfs.unmount_all(str(passable / "t"))  # as after a boot
    removal.remove_tree(str(passable / "t/roots"))
    assert rootfs.prepare(spec, directory, apart=str(passable / "t/roots/c")) == second
    assert pathlib.Path(second, "new").read_text() == "kept"
    fd = rootfs.hold(directory)
    rootfs.release(directory)
    os.close(fd)
    assert rootfs.mounts_under(str(passable)) == () and os.listdir(passable / "t/roots") == []

    (passable / "t").chmod(0o700)
    with pytest.raises(WrongState, match=f"chmod o\\+x {passable}/t,"):
        rootfs.prepare(spec, directory, apart=str(passable / "t/roots/c"))


@needs_root
def test_a_file_system_that_cannot_show_other_owners_is_named(
    lower: pathlib.Path, directory: str, tmp_path: pathlib.Path, passable: pathlib.Path
) -> None:
    merged = prepare(lower, directory)  # an overlay is such a one
    spec = Spec(name="d", rootfs=str(merged), storage=Storage(StorageKind.DISK), ids=IdRange(1 << 20))
    try:
        with pytest.raises(Unsupported, match="merged cannot show other owners"):
            rootfs.prepare(spec, str(tmp_path / "d"), apart=str(passable / "s/roots/d"))
    finally:
        rootfs.release(str(tmp_path / "d"))
    assert rootfs.mounts_under(str(passable / "s")) == ()


@needs_root
@pytest.mark.parametrize(("place", "number"), [("mapped_tree", errno.ENOSYS), ("overlay", errno.EINVAL)])
def test_a_kernel_whose_overlay_cannot_show_other_owners_is_refused_in_words(
    lower: pathlib.Path,
    directory: str,
    passable: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    place: str,
    number: int,
) -> None:
    """5.10 has no idmapped mounts, 5.12 to 5.18 none below an overlay."""

    def refuse(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(*((native, "mapped_tree") if place == "mapped_tree" else (rootfs, "mount_overlay")), refuse)
    spec = Spec(name="c", rootfs=str(lower), storage=Storage(StorageKind.DISK), ids=IdRange(1 << 20))
    with pytest.raises(Unsupported, match=r"needs Linux 5\.19"):
        rootfs.prepare(spec, directory, apart=str(passable / "s/roots/c"))
    rootfs.release(directory)
    assert rootfs.mounts_under(str(passable / "s")) == ()
