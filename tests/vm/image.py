"""The disks of a machine of its own: Debian with systemd as init and pure cgroup v2, and exitd's package on it.

`python -m tests.vm.image [KIND...]` prints where those are, or else where the plain one is, and makes them before that
if need be (root, network). The Debian is made once for each recipe, the disk once for each content of the tree; both
are kept outside of the tree. The package is the one that `make deb` makes of this tree, installed without a network as
dpkg does it. The disk with the tests has the whole tree besides, built in place, and an environment that runs its
system tests.
"""

import contextlib
import errno
import fcntl
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from enum import StrEnum
from typing import Any

TREE = pathlib.Path(__file__).resolve().parents[2]
SUITE = os.environ.get("EXITD_VM_SUITE") or "trixie"
PACKAGES = (
    *("systemd", "systemd-sysv", "dbus", "udev", "kmod", "procps", "util-linux", "ca-certificates"),
    *("python3", "runc", "crun", "linux-image-cloud-amd64", "strace"),
)
TEST_PACKAGES = (
    *("python3-venv", "python3-dev", "gcc", "libc6-dev", "libffi-dev", "musl-tools"),
    *("iproute2", "containernetworking-plugins", "iptables"),
)
# Its recommendations that its pods need: their network, and the program of their first container.
PODMAN_PACKAGES = ("podman", "netavark", "aardvark-dns", "nftables", "catatonit")
# What the quick start installs beside exitd's package: the machine has no network of its own to fetch it by.
QUICK_PACKAGES = ("containernetworking-plugins", "iptables", "curl")
TASK_PACKAGES = ("containerd", "apparmor")
# Of the extra `test`, what running tests needs; checkers of the source have no work in the machine.
TEST_TOOLS = ("hypothesis", "jsonschema", "pytest", "pytest-timeout")
ASIDE = ("tests/", "docs/", "bench/", ".")  # a change there needs no other disk
ASIDE_OF_TESTS = ("bench/", ".")
WRITTEN = ("docs/platforms.md", "docs/play-beside-podman.md")  # by runs: the next one needs no other disk for it
GUEST, RECIPE = "tests/vm/guest/", ".ci/deb.py"
CHARTS = ("tests/system/manifests/", "tests/system/standins.py")
CHARTS_IN = "opt/charts"  # the manifests, and their images as images.tar
# What makes the image of containerd's tasks.
TASKS = ("tests/system/containerd/server.py", "tests/system/tinyroot.py", "tests/supervisor/images/building.py")
TASKS_IN = "opt/tasks/images.tar"
EARLIER_OF = "tests/system/versions.py"  # which version the earlier package is of
# Manuals and translations are left out, and what a power cut during the making could lose is not flushed. Both options
# are for these packages alone: dpkg in the machine is as Debian has it.
QUICKLY = (
    *("--variant=minbase", "--dpkgopt=force-unsafe-io"),
    *(f"--dpkgopt=path-exclude=/usr/share/{each}/*" for each in ("man", "locale", "info")),
    "--customize-hook=rm $1/etc/dpkg/dpkg.cfg.d/99mmdebstrap",
)
# A mirror's release file of a suite in the making may be past its date. It is signed all the same.
OPTIONS_OF = {"forky": ('--aptopt=Acquire::Check-Valid-Until "false"',)}
DISK_BYTES = 4 << 30  # sparse
LIMIT_SECONDS = 3600
RUNNER = "exitd-vm-runner.service"  # the package enables its own units
MASKED = ("apt-daily.timer", "apt-daily-upgrade.timer", "dpkg-db-backup.timer", "fstrim.timer", "e2scrub_all.timer")
FILES = {
    "etc/exitd/config.toml": 'cgroup_driver = "systemd"\n',
    "etc/modules-load.d/exitd.conf": "overlay\n",
    "etc/fstab": "/dev/nvme0n1 / ext4 rw 0 1\n",
    "etc/hostname": "exitd-vm\n",
    # Without one, systemd takes the boot for the first of a fresh machine, and asks.
    "etc/machine-id": "0123456789abcdef0123456789abcdef\n",
    "var/log/journal/README": "With this directory the journal outlives a boot.\n",
}
NEWER = "exitd-newer.deb"  # in /opt: the same exitd as a later revision of its package, and as an earlier one
OLDER = "exitd-older.deb"
EARLIER = "exitd-earlier.deb"  # the package of an earlier version, as its own recipe makes it


class CannotMake(Exception):
    """The machine cannot be made here; the text says why."""


class Kind(StrEnum):
    """What a disk is for."""

    PLAIN = "disk"  # exitd as it is installed
    TESTS = "tests"  # and the tree with its tests, at /opt/tree, and their environment, at /opt/tests
    BESIDE = "beside"  # exitd as it is installed, and podman, with the manifests that both play
    QUICK = "quick"  # exitd as it is installed, and what the quick start installs besides
    # exitd as it is installed, and the package of an earlier version; Debian's containerd, and the archive of an image
    TASKS = "tasks"


QUIETLY = ("install", "--quiet", "--disable-pip-version-check")


def cache() -> pathlib.Path:
    """Where what was made is kept."""
    home = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(home) / "exitd" / "vm"


def requirements() -> list[str]:
    """What exitd and its build need of Python, without exitd itself."""
    project = _project()
    return [*project["build-system"]["requires"], *project["project"]["dependencies"]]


def test_requirements() -> list[str]:
    """What its tests need of Python besides."""
    extra = _project()["project"]["optional-dependencies"]["test"]
    return [each for each in extra if re.split("[<>=~! ]", each)[0] in TEST_TOOLS]


def _project() -> Any:
    return tomllib.loads((TREE / "pyproject.toml").read_text())


def key(*parts: bytes) -> str:
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]


def tree_files(kind: Kind) -> list[str]:
    """The files of the tree that the disk is made of, as far as git knows them or would take them."""
    aside = ASIDE_OF_TESTS if kind is Kind.TESTS else ASIDE
    words = ("git", "-C", str(TREE), "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    listed = subprocess.run(words, check=True, capture_output=True, text=True, timeout=60).stdout
    always = (GUEST, RECIPE, *{Kind.BESIDE: CHARTS, Kind.TASKS: (*TASKS, EARLIER_OF)}.get(kind, ()))
    wanted = [name for name in sorted(set(listed.split("\0"))) if name.startswith(always) or not name.startswith(aside)]
    return [name for name in wanted if name not in ("", *WRITTEN) and (TREE / name).is_file()]


def run(*words: object) -> None:
    """Its output goes to stderr: stdout is for the answer. Raises CannotMake."""
    environment = os.environ | {"INITRD": "No"}  # a kernel that is installed then has no initramfs made
    try:
        subprocess.run(
            ["nice", "-n", "10", *map(str, words)], check=True, stdin=subprocess.DEVNULL, stdout=sys.stderr,
            timeout=LIMIT_SECONDS, env=environment,
        )  # fmt: skip
    except subprocess.CalledProcessError as error:
        raise CannotMake(f"the machine's disk cannot be made: {words[0]} ended with {error.returncode}") from error
    except subprocess.TimeoutExpired as error:
        raise CannotMake(f"the machine's disk cannot be made: {words[0]} took {LIMIT_SECONDS} s") from error


def chroot(root: pathlib.Path, *words: str) -> None:
    """In a mount namespace of its own: nothing stays mounted, whatever happens."""
    script = 'root=$1; shift; mount -t proc proc "$root/proc" && exec chroot "$root" "$@"'
    run("unshare", "--mount", "sh", "-c", script, "sh", root, *words)


@contextlib.contextmanager
def made_whole(goal: pathlib.Path) -> Iterator[pathlib.Path]:
    """A place beside the goal, which becomes the goal if the block succeeds. Another run may have made the same one
    meanwhile: its name is that of its content."""
    goal.parent.mkdir(parents=True, exist_ok=True)
    scratch = pathlib.Path(tempfile.mkdtemp(dir=goal.parent, prefix=f".{goal.name}."))
    try:
        yield scratch / "made"
        try:
            (scratch / "made").rename(goal)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


@contextlib.contextmanager
def made_by_one(name: str) -> Iterator[None]:
    """Of runs at once, one makes what the others are waiting for; the lock ends with the process that has it."""
    cache().mkdir(parents=True, exist_ok=True)
    with (cache() / f".{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def base(kind: Kind) -> pathlib.Path:
    """The Debian, a directory, with what exitd's package and its containers need, and its tests."""
    packages, wanted = [*PACKAGES], list[str]()
    if kind is Kind.TESTS:
        packages += TEST_PACKAGES
        wanted += [*requirements(), *test_requirements()]
    if kind is Kind.BESIDE:
        packages += PODMAN_PACKAGES
    if kind is Kind.QUICK:
        packages += QUICK_PACKAGES
    if kind is Kind.TASKS:
        packages += TASK_PACKAGES
    name = "base" if kind is Kind.PLAIN else f"base-{kind}"
    options = (*QUICKLY, *OPTIONS_OF.get(SUITE, ()))
    recipe = (SUITE, " ".join(packages), " ".join(wanted), " ".join(options))
    goal = cache() / f"{name}-{SUITE}-{key(*(each.encode() for each in recipe))}"
    if not goal.exists():
        with made_whole(goal) as root:
            try:
                run("mmdebstrap", *options, f"--include={','.join(packages)}", SUITE, root)
            except CannotMake as error:
                raise CannotMake(f"{error}; mmdebstrap needs root and a mirror of Debian {SUITE}") from error
            for name in ("/etc/resolv.conf", "/etc/ssl/certs/ca-certificates.crt"):
                shutil.copy(name, root / name[1:])
            if kind is Kind.TESTS:
                chroot(root, "python3", "-m", "venv", "/opt/tests")
                chroot(root, "/opt/tests/bin/pip", *QUIETLY, *wanted)
    return goal


@contextlib.contextmanager
def packages() -> Iterator[list[pathlib.Path]]:
    """Three revisions of the Debian package of this tree, for the block."""
    with tempfile.TemporaryDirectory(prefix="exitd-vm-deb-") as scratch:
        run(sys.executable, TREE / RECIPE, "--uncompressed", "--revisions", "1,2,3", "--out", scratch, SUITE)
        yield sorted(pathlib.Path(scratch).glob("*.deb"))


def earlier() -> pathlib.Path:
    """The package of the newest of the earlier versions, made once for each commit by the tree of that time. Raises
    CannotMake, versions.NoSuchCommit."""
    from tests.system import versions  # no other disk needs it

    commit = versions.VERSIONS[-1]
    goal = cache() / f"earlier-{SUITE}-{commit[:12]}"
    if not goal.exists():
        with made_whole(goal) as made:
            tree = made.parent / "tree"
            versions.unpack(TREE, commit, tree)
            run("git", "init", "--quiet", tree)  # its recipe asks git for its files
            python = ("env", f"--chdir={tree}", f"PYTHONPATH={tree}", sys.executable)
            run(*python, "setup.py", "--quiet", "build_ext", "--inplace", "build_protos", "--inplace")
            run(*python, RECIPE, "--out", made, SUITE)
    return next(goal.glob("*.deb"))


def install(root: pathlib.Path, names: list[str], kind: Kind) -> None:
    """The package, and the unit that runs the host's commands."""
    for name in names if kind is Kind.TESTS else [name for name in names if name.startswith(GUEST)]:
        (root / "opt/tree" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(TREE / name, root / "opt/tree" / name)
    with packages() as (older, made, newer):
        for deb, name in ((older, OLDER), (newer, NEWER), (made, "exitd.deb")):
            shutil.copy(deb, root / "opt" / name)
        chroot(root, "dpkg", "--install", "/opt/exitd.deb")
    if kind is Kind.TESTS:
        build_in_place(root)
    if kind is Kind.BESIDE:
        bring_charts(root)
    if kind is Kind.TASKS:
        bring_tasks(root)
        shutil.copy(earlier(), root / "opt" / EARLIER)
    units = root / "etc/systemd/system"
    shutil.copy(TREE / GUEST / RUNNER, units / RUNNER)
    (units / "multi-user.target.wants").mkdir(exist_ok=True)
    (units / "multi-user.target.wants" / RUNNER).symlink_to(f"../{RUNNER}")
    for masked in MASKED:
        (units / masked).symlink_to("/dev/null")
    for path, text in FILES.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).unlink(missing_ok=True)
        (root / path).write_text(text)
    # Everything is up to date: no boot is the first one, which would make caches anew for ten seconds.
    for name in ("etc/.updated", "var/.updated"):
        (root / name).touch()


def bring_charts(root: pathlib.Path) -> None:
    """The manifests and their images, as tests/system/test_play_charts.py has them."""
    from tests.system import standins  # no other disk needs what it imports

    goal = root / CHARTS_IN
    shutil.copytree(standins.MANIFESTS, goal)
    (goal / "images.tar").write_bytes(standins.archive())


def bring_tasks(root: pathlib.Path) -> None:
    """The image of tests/system/containerd, of a few programs of this host's."""
    from tests.system.containerd import server  # as above

    goal = root / TASKS_IN
    goal.parent.mkdir(parents=True)
    goal.write_bytes(server.archive())


def build_in_place(root: pathlib.Path) -> None:
    """As `make venv` and `make bytecode` do it."""
    python = "/opt/tests/bin/python"
    chroot(root, "rm", "-rf", "/opt/tree/build")
    chroot(
        root, "/opt/tests/bin/pip", *QUIETLY, "--no-deps", "--no-build-isolation",
        "--config-settings", "editable_mode=compat", "--editable", "/opt/tree",
    )  # fmt: skip
    built = ["build_ext", "--inplace", "build_protos", "--inplace", "build_scripts", "--build-dir", "/opt/tests/bin"]
    chroot(root, "env", "--chdir=/opt/tree", python, "setup.py", "--quiet", *built)
    rooms = ("supervisor", "shim", "protos", "tests")
    chroot(root, python, "-m", "compileall", "-q", *(f"/opt/tree/{room}" for room in rooms))


def disk(kind: Kind = Kind.PLAIN) -> tuple[pathlib.Path, pathlib.Path]:
    """The disk and the kernel to boot it with. Raises CannotMake."""
    with made_by_one(f"{kind}-{SUITE}"):
        return _disk(kind)


def _disk(kind: Kind) -> tuple[pathlib.Path, pathlib.Path]:
    names = tree_files(kind)
    contents = [part for name in names for part in (name.encode(), (TREE / name).read_bytes())]
    found = base(kind)
    goal = cache() / f"{kind}-{SUITE}-{key(found.name.encode(), *contents)}"
    if not goal.exists():
        with made_whole(goal) as made:
            root = made.parent / "root"
            run("cp", "-a", "--reflink=auto", found, root)
            install(root, names, kind)
            made.mkdir()
            shutil.copy(next((root / "boot").glob("vmlinuz-*")), made / "vmlinuz")
            run("truncate", "-s", DISK_BYTES, made / "disk.img")
            run("mkfs.ext4", "-q", "-F", "-d", root, "-L", "root", made / "disk.img")
        for old in cache().glob(f"{kind}-{SUITE}-*"):
            if old != goal:
                shutil.rmtree(old, ignore_errors=True)
    return goal / "disk.img", goal / "vmlinuz"


if __name__ == "__main__":
    try:
        if unknown := [word for word in sys.argv[1:] if word not in [*Kind]]:
            raise CannotMake(f"no kind of disk: {' '.join(unknown)}; there are {', '.join(Kind)}")
        for kind in map(Kind, sys.argv[1:] or [Kind.PLAIN]):
            print(*disk(kind), sep="\n")
    except CannotMake as cannot:
        sys.exit(str(cannot))
