"""The disk of a machine of its own: Debian with systemd as init and pure cgroup v2, and exitd from this tree on it.

`python -m tests.vm.image` prints where it is, and makes it before that if need be (root, network). The Debian is made
once for each recipe, the disk once for each content of the tree; both are kept outside of the tree.
"""

import contextlib
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator

TREE = pathlib.Path(__file__).resolve().parents[2]
SUITE = os.environ.get("EXITD_VM_SUITE") or "trixie"
PACKAGES = (
    *("systemd", "systemd-sysv", "dbus", "udev", "kmod", "procps", "util-linux", "ca-certificates"),
    *("python3", "python3-venv", "python3-dev", "gcc", "libc6-dev", "libffi-dev", "musl-tools"),
    *("runc", "crun", "linux-image-cloud-amd64"),
)
ASIDE = ("tests/", "docs/", "bench/", ".")  # a change there needs no other disk
GUEST = "tests/vm/guest/"
DISK_BYTES = 3 << 30
LIMIT_SECONDS = 3600
UNITS = ("exitd.service", "exitd-keeper.service", "exitd-vm-runner.service")
MASKED = ("apt-daily.timer", "apt-daily-upgrade.timer", "dpkg-db-backup.timer", "fstrim.timer", "e2scrub_all.timer")
FILES = {
    "etc/exitd/config.toml": 'cgroup_driver = "systemd"\n',
    "etc/modules-load.d/exitd.conf": "overlay\n",
    "etc/fstab": "/dev/nvme0n1 / ext4 rw 0 1\n",
    "etc/hostname": "exitd-vm\n",
    # Without one, systemd takes the boot for the first of a fresh machine, and asks.
    "etc/machine-id": "0123456789abcdef0123456789abcdef\n",
}


def cache() -> pathlib.Path:
    """Where what was made is kept."""
    home = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(home) / "exitd" / "vm"


def requirements() -> list[str]:
    """What exitd and its build need of Python, without exitd itself."""
    project = tomllib.loads((TREE / "pyproject.toml").read_text())
    return [*project["build-system"]["requires"], *project["project"]["dependencies"]]


def key(*parts: bytes) -> str:
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]


def tree_files() -> list[str]:
    """The files of the tree that an installation is made of, as far as git knows them or would take them."""
    words = ("git", "-C", str(TREE), "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    listed = subprocess.run(words, check=True, capture_output=True, text=True, timeout=60).stdout
    wanted = [name for name in sorted(set(listed.split("\0"))) if name.startswith(GUEST) or not name.startswith(ASIDE)]
    return [name for name in wanted if name and (TREE / name).is_file()]


def run(*words: object) -> None:
    """Its output goes to stderr: stdout is for the answer. CalledProcessError."""
    subprocess.run(
        ["nice", "-n", "10", *map(str, words)], check=True, stdin=subprocess.DEVNULL, stdout=sys.stderr,
        timeout=LIMIT_SECONDS,
    )  # fmt: skip


def chroot(root: pathlib.Path, *words: str) -> None:
    """In a mount namespace of its own: nothing stays mounted, whatever happens."""
    script = 'root=$1; shift; mount -t proc proc "$root/proc" && exec chroot "$root" "$@"'
    run("unshare", "--mount", "sh", "-c", script, "sh", root, *words)


@contextlib.contextmanager
def made_whole(goal: pathlib.Path) -> Iterator[pathlib.Path]:
    """A place beside the goal, which becomes the goal if the block succeeds."""
    goal.parent.mkdir(parents=True, exist_ok=True)
    scratch = pathlib.Path(tempfile.mkdtemp(dir=goal.parent, prefix=f".{goal.name}."))
    try:
        yield scratch / "made"
        (scratch / "made").rename(goal)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def base() -> pathlib.Path:
    """The Debian, a directory, with all that exitd needs."""
    wanted = requirements()
    goal = cache() / f"base-{SUITE}-{key(SUITE.encode(), ' '.join(PACKAGES).encode(), ' '.join(wanted).encode())}"
    if not goal.exists():
        with made_whole(goal) as root:
            run("mmdebstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}", SUITE, root)
            for name in ("/etc/resolv.conf", "/etc/ssl/certs/ca-certificates.crt"):
                shutil.copy(name, root / name[1:])
            chroot(root, "python3", "-m", "venv", "/opt/exitd")
            chroot(root, "/opt/exitd/bin/pip", "install", "--quiet", "--disable-pip-version-check", *wanted)
    return goal


def install(root: pathlib.Path, names: list[str]) -> None:
    """exitd from the tree, its units, and the one that runs the host's commands."""
    for name in names:
        (root / "opt/tree" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(TREE / name, root / "opt/tree" / name)
    pip = ("/opt/exitd/bin/pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps")
    chroot(root, *pip, "--no-build-isolation", "/opt/tree")
    units = root / "etc/systemd/system"
    for unit in (*(TREE / "systemd").glob("*.service"), *(TREE / GUEST).glob("*.service")):
        shutil.copy(unit, units / unit.name)
    (units / "multi-user.target.wants").mkdir(exist_ok=True)
    for enabled in UNITS:
        (units / "multi-user.target.wants" / enabled).symlink_to(f"../{enabled}")
    for masked in MASKED:
        (units / masked).symlink_to("/dev/null")
    for path, text in FILES.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).unlink(missing_ok=True)
        (root / path).write_text(text)


def disk() -> tuple[pathlib.Path, pathlib.Path]:
    """The disk and the kernel to boot it with. CalledProcessError when one of the programs fails."""
    names = tree_files()
    contents = [part for name in names for part in (name.encode(), (TREE / name).read_bytes())]
    found = base()
    goal = cache() / f"disk-{SUITE}-{key(found.name.encode(), *contents)}"
    if not goal.exists():
        with made_whole(goal) as made:
            root = made.parent / "root"
            run("cp", "-a", "--reflink=auto", found, root)
            install(root, names)
            made.mkdir()
            shutil.copy(next((root / "boot").glob("vmlinuz-*")), made / "vmlinuz")
            run("truncate", "-s", DISK_BYTES, made / "disk.img")
            run("mkfs.ext4", "-q", "-F", "-d", root, "-L", "root", made / "disk.img")
        for old in cache().glob(f"disk-{SUITE}-*"):
            if old != goal:
                shutil.rmtree(old, ignore_errors=True)
    return goal / "disk.img", goal / "vmlinuz"


if __name__ == "__main__":
    print(*disk(), sep="\n")
