"""A container's own root: an overlay over the caller's directory. Everything written goes to a layer of its own.

    DIRECTORY/layer     on disk, 0700: upper and work
    DIRECTORY/scratch   or on a tmpfs of limited size, 0700: upper and work
    DIRECTORY/merged    overlay of ROOTFS and upper: the container's /

A container with users of its own must come to its root by itself, and they may not enter DIRECTORY. So there `merged`
is a link to where the overlay is mounted:

    APART/              0710, its group that of the container's root, in a directory 0711 that has nothing else in it
    APART/merged        the overlay

Mounts are recognised only by where they are mounted, so that a daemon that knows only the directory can repair or
release them.
"""

import errno
import os
import stat
import threading
from contextlib import suppress

from shim import native
from shim.patterns import LatePattern
from supervisor.config.settings import Limits
from supervisor.model.errors import BadRequest, WrongState
from supervisor.model.idranges import IdRange
from supervisor.model.storage import StorageKind
from supervisor.model.values import Spec
from supervisor.runtime.oci.lower import escape_layer, lowerdir, no_other_owners
from supervisor.system import regular, removal

MS_NOSUID = 2
MS_NODEV = 4
MS_NOEXEC = 8
MS_PRIVATE = 1 << 18
MNT_DETACH = 2
UMOUNT_NOFOLLOW = 8
DEFAULT_LIMITS = Limits()
SHM_OPTIONS = "mode=1777,size=64m"  # docker's and CRI's size
MOST_LOOKS = 64  # at what is left: more would mean that another process mounts faster than exitd unmounts
MOST_CONFIG_BYTES = 8 << 20
_MOUNTING = threading.Lock()  # between the look at a place and the mount on it; both are short
ESCAPED = LatePattern(r"[ \t\n\\#]")  # the kernel writes these in octal


def prepare(spec: Spec, directory: str, limits: Limits = DEFAULT_LIMITS, apart: str = "") -> str:
    """Mount the overlay of the container's layers in `directory` and return its path, in `apart` for a container with
    users of its own. Repeatable: existing mounts are kept, and so is what a layer on disk has in it.

    This is for `rootfs` and images; a bundle's own root is never touched. Mounts are private, so that no copy reaches
    other mount namespaces and stays busy there. Raises BadRequest when the root file system is no directory, OSError
    when the kernel refuses; for users of its own also Unsupported, and WrongState where they cannot come to `apart`.
    """
    if is_shared(spec):
        return os.path.realpath(spec.layers[0])
    lower = spec.layers or (_lower(spec.rootfs),)
    if spec.ids is not None:
        _lead(directory, apart, spec.ids)
    layer, scratch, merged = _places(directory)
    on_disk = spec.storage.kind is StorageKind.DISK
    if os.path.ismount(merged):
        if os.path.ismount(scratch) is not on_disk:
            return merged
        # Its scratch is gone, so the mount that remains is incomplete; or an earlier exitd, without layers on disk, has
        # mounted one.
        release(directory)
        if spec.ids is not None:
            _lead(directory, apart, spec.ids)
    top = layer if on_disk else scratch
    for path in (directory, top, merged):
        os.makedirs(path, mode=0o700, exist_ok=True)
    if not on_disk and not os.path.ismount(scratch):
        options = scratch_options(limits, spec.storage.size_bytes)
        _mount("exitd-scratch", scratch, "tmpfs", (MS_NOSUID | MS_NODEV, options))
    upper, work = _upper(lower[0], top, spec.ids)
    with lowerdir(lower, spec.ids) as text:
        options = f"lowerdir={text},upperdir={escape_layer(upper)},workdir={escape_layer(work)}"
        try:
            if not (on_disk and spec.auto_remove and mount_volatile(merged, options, work)):
                mount_overlay(merged, options)
        except OSError as error:
            if spec.ids is not None and error.errno == errno.EINVAL:
                raise no_other_owners() from error
            raise
    return merged


def mount_overlay(merged: str, options: str) -> None:
    """Mount an overlay with these options. Raises OSError when the kernel refuses."""
    _mount("exitd-root", merged, "overlay", (0, options))


def mount_volatile(merged: str, options: str, work: str) -> bool:
    """Mount the overlay without any writing out of its layer, for one that is never seen again after its end: neither
    fsync(2) in it nor its removal has to wait for the disk. Return False where the kernel (before 5.10) does not know
    that."""
    removal.remove_tree(f"{work}/work/incompat")  # an earlier mount's mark, by which the kernel refuses the layer
    try:
        mount_overlay(merged, f"{options},volatile")
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        return False
    return True


def layer_of(directory: str) -> str:
    """Return where what a container has written on disk is, below its `directory`: the upper directory."""
    return f"{directory}/layer/upper"


def merged_of(directory: str) -> str:
    """Return where its overlay is mounted."""
    return f"{directory}/merged"


def upper_of(directory: str) -> str:
    """Return the upper directory of its overlay, on disk or in memory. Its overlay is mounted."""
    scratch = scratch_of(directory)
    return f"{scratch}/upper" if os.path.ismount(scratch) else layer_of(directory)


def scratch_of(directory: str) -> str:
    """Return where its tmpfs is mounted, if it has one."""
    return f"{directory}/scratch"


def is_shared(spec: Spec) -> bool:
    """Return whether the container's root is the image's own directory, read-only and without a mount. This is for
    exitd's pause program, which writes nothing: every mount of the host makes every start of a container slower.

    False if a runtime would make directories in it, or if the file system is mounted noexec (an overlay on it is not).
    """
    plain = spec.image == "pause" and len(spec.layers) == 1 and not spec.mounts and spec.cwd in ("", "/")
    return plain and spec.ids is None and not os.statvfs(spec.layers[0]).f_flag & os.ST_NOEXEC


def scratch_options(limits: Limits, size_bytes: int = 0) -> str:
    """Return mount options for tmpfs(5). Written pages also count towards the container's memory limit. `size_bytes` 0:
    as the configuration has it."""
    return f"mode=0700,size={size_bytes or limits.scratch_mib << 20},nr_inodes={limits.scratch_files}"


def prepare_tmpfs(directory: str, options: str) -> None:
    """Mount a tmpfs on an existing directory, with the options of tmpfs(5). Repeatable, also by several threads: the
    members of a pod, which are prepared at once, share such directories."""
    with _MOUNTING:  # a second one on top would take away what is in the first
        if not os.path.ismount(directory):
            _mount("exitd-memory", directory, "tmpfs", (MS_NOSUID | MS_NODEV, options))


def prepare_shm(directory: str) -> None:
    """Mount a tmpfs for the /dev/shm that the members of a pod share. Repeatable; `release_shm` undoes it."""
    os.makedirs(directory, mode=0o700, exist_ok=True)
    if not os.path.ismount(directory):
        _mount("shm", directory, "tmpfs", (MS_NOSUID | MS_NODEV | MS_NOEXEC, SHM_OPTIONS))


def release_shm(directory: str) -> None:
    """Unmount it. Repeatable; no error if there is none. Raises OSError when the kernel refuses."""
    if os.path.ismount(directory):
        native.unmount(directory, MNT_DETACH | UMOUNT_NOFOLLOW)
    _remove_if_empty(directory)


def release(directory: str) -> None:
    """Unmount what `prepare` mounted and remove its directories; `directory` too, if it is then empty. A layer on disk
    stays.

    Repeatable; no error if nothing is there. Mounts are detached, so that a process with an open file does not keep
    them mounted by name. Raises OSError when the kernel refuses or the mounts do not come to an end.
    """
    if not os.path.lexists(directory):
        return
    unmount_all(directory)
    link, (_, scratch, merged) = f"{directory}/merged", _places(directory)
    if os.path.islink(link):
        release_apart(os.path.dirname(merged))
        os.unlink(link)
    for path in (scratch, merged, directory):
        _remove_if_empty(path)


def release_apart(apart: str) -> None:
    """Unmount what `prepare` mounted for users of its own, and remove the directories, also where nothing leads there
    any more. Repeatable. Raises OSError as `release` does."""
    unmount_all(apart)
    for path in (f"{apart}/merged", apart):
        _remove_if_empty(path)


def hold(directory: str) -> int:
    """Return a descriptor that keeps the mounted overlay as a whole until it is closed, also when it is unmounted
    meanwhile; -1 if there is none."""
    merged = _places(directory)[2]
    return os.open(merged, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC) if os.path.ismount(merged) else -1


def unmount_all(directory: str) -> None:
    """Detach all mounts strictly below it. Raises OSError as `release` does."""
    for _ in range(MOST_LOOKS):
        mounted = mounts_under(directory)
        if not mounted:
            break
        for point in reversed(mounted):
            _unmount(point)
    else:
        raise OSError(f"{directory}: still mounts under it after {MOST_LOOKS} looks")


def _unmount(point: str) -> None:
    try:
        native.unmount(point, MNT_DETACH | UMOUNT_NOFOLLOW)
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.EINVAL):  # no longer a mount: the next look decides
            raise


def mounts_under(directory: str) -> tuple[str, ...]:
    """Return the mount points strictly below `directory` in this mount namespace, in mounting order."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        return parse_mounts_under(file.read(), os.path.realpath(directory))


def parse_mounts_under(mountinfo: str, directory: str) -> tuple[str, ...]:
    """As `mounts_under`, from the text of proc_pid_mountinfo(5): field 5, with space, tab, newline and backslash in
    octal."""
    prefix = directory.rstrip("/") + "/"
    needle = max(ESCAPED.split(prefix), key=len)  # most lines need no closer look, and there may be thousands
    if needle not in mountinfo:
        return ()
    lines = (line for line in mountinfo.split("\n") if needle in line)
    points = (_unescape(fields[4]) for fields in map(str.split, lines) if len(fields) > 4)
    return tuple(point for point in points if point.startswith(prefix))


def read_bundle(bundle: str) -> tuple[bytes, str]:
    """Return the text of a bundle's config.json and its path, for spec.parse_bundle. Raises BadRequest when it is
    missing."""
    path = os.path.join(bundle, "config.json")
    try:
        text = regular.read(path, most_bytes=MOST_CONFIG_BYTES + 1)
    except OSError as error:
        raise BadRequest(f"no bundle at {bundle}: {path}: {error.strerror}", bundle=bundle) from error
    if len(text) > MOST_CONFIG_BYTES:
        raise BadRequest(f"{path} is larger than {MOST_CONFIG_BYTES} bytes", bundle=bundle)
    return text, path


def _lower(rootfs: str) -> str:
    if not rootfs.startswith("/"):
        raise BadRequest(f"root file system {rootfs!r} must be an absolute path", rootfs=rootfs)
    if not os.path.isdir(rootfs):
        raise BadRequest(f"root file system {rootfs}: no such directory", rootfs=rootfs)
    return os.path.realpath(rootfs)


def _places(directory: str) -> tuple[str, str, str]:
    """Return the paths of layer, scratch and merged as mountinfo shows them: without links."""
    real = os.path.realpath(directory)
    link = os.path.join(real, "merged")
    merged = os.readlink(link) if os.path.islink(link) else link
    return os.path.join(real, "layer"), os.path.join(real, "scratch"), merged


def _lead(directory: str, apart: str, ids: IdRange) -> None:
    """Have `merged` lead to the one in `apart`, to which the container's root may come. What was mounted elsewhere, by
    an exitd with another state directory, goes."""
    apart = os.path.realpath(apart)
    link, target = f"{directory}/merged", f"{apart}/merged"
    if os.path.lexists(link) and not (os.path.islink(link) and os.readlink(link) == target):
        release(directory)
    os.makedirs(os.path.dirname(apart), mode=0o711, exist_ok=True)
    _refuse_closed(os.path.dirname(apart))
    os.makedirs(directory, mode=0o700, exist_ok=True)
    if not os.path.lexists(link):
        os.symlink(target, link)  # first: it is by the link that `release` finds the rest
    os.makedirs(apart, mode=0o700, exist_ok=True)
    os.chown(apart, 0, ids.first)
    os.chmod(apart, 0o710)


def _refuse_closed(directory: str) -> None:
    above = directory
    while True:
        mode = os.stat(above).st_mode
        if not mode & stat.S_IXOTH:
            raise WrongState(
                f"userns auto: the container's users cannot pass through {above}, whose mode is "
                f"{stat.S_IMODE(mode):o}; chmod o+x {above}, or give exitd another --state"
            )
        if above == "/":
            return
        above = os.path.dirname(above)


def _upper(lower: str, top: str, ids: IdRange | None) -> tuple[str, str]:
    """Make overlay's upper and work directories. `upper` becomes the root directory that the container sees, so it gets
    the mode of the topmost layer before it is there: a later run finds what the container has made of it."""
    upper, work, unfinished = (os.path.join(top, name) for name in ("upper", "work", "upper.new"))
    os.makedirs(work, exist_ok=True)
    if not os.path.isdir(upper):
        os.makedirs(unfinished, exist_ok=True)
        status = os.stat(lower)
        owner = (status.st_uid, status.st_gid)
        os.chown(unfinished, *(owner if ids is None else map(ids.outside, owner)))
        os.chmod(unfinished, status.st_mode & 0o7777)
        os.rename(unfinished, upper)
    return upper, work


def _mount(source: str, target: str, kind: str, how: tuple[int, str]) -> None:
    native.mount(source, target, kind, *how)
    native.mount("", target, "", MS_PRIVATE, "")


def _unescape(field: str) -> str:
    first, *rest = field.split("\\")
    return first + "".join(chr(int(part[:3], 8)) + part[3:] for part in rest)


def _remove_if_empty(path: str) -> None:
    """Never remove recursively: if a mount that should be gone is still there, that would empty the host's root."""
    with suppress(FileNotFoundError, NotADirectoryError):
        try:
            os.rmdir(path)
        except OSError:
            if not os.path.isdir(path) or not os.listdir(path):
                raise
