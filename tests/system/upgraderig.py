"""Earlier versions of exitd, built from git; an installation in which one takes the place of another; and programs that
live through that."""

import contextlib
import errno
import fcntl
import functools
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

from shim import programs
from tests.system import lives
from tests.system.daemonrig import LIMIT_SECONDS, Daemon, until

ROOT = pathlib.Path(__file__).resolve().parents[2]
# The last commit of each part. What these have left on a disk, and what runs under them, every later exitd takes over.
VERSIONS = (
    "6e7571d5e3b497244999cab64157661d22674a5a",
    "c7542eadf5cace614801d371b4debc46201ec4ae",
    "d9e706e8498b903ee36275347b77b589c17664ed",
)
OLDER_SCHEMA = VERSIONS  # what today's exitd has stored they do not read
BUILT = ROOT / "build" / "versions"
PROGRAMS = (
    *("exitd-shim", "exitd-keeper", "exitd-launch", "exitd-pause", "exitd-journald"),
    "containerd-shim-exitd-v2",
)
BUILD_SECONDS = 280.0  # for each step of a build; the machine may do ten other things
STEPS = (  # at once
    ("setup.py", "--quiet", "build_ext", "--inplace"),
    ("setup.py", "--quiet", "build_protos", "--inplace"),
    ("setup.py", "--quiet", "build_scripts", "--build-dir", "bin"),
    ("-m", "compileall", "-q", "supervisor", "shim"),
)


class NoSuchCommit(Exception):
    """The clone has no such commit; the text ends with the command that brings it."""


def git(repository: pathlib.Path, *words: str) -> "subprocess.CompletedProcess[bytes]":
    """Also in a clone that belongs to another user."""
    command = ("git", "-c", "safe.directory=*", "-C", str(repository), *words)
    return subprocess.run(command, capture_output=True, timeout=BUILD_SECONDS)


def unpack(repository: pathlib.Path, commit: str, directory: pathlib.Path) -> None:
    """Write the files of a commit into a new directory. Raises NoSuchCommit."""
    if git(repository, "cat-file", "-e", f"{commit}^{{tree}}").returncode:
        raise NoSuchCommit(f"{repository} does not have the commit {commit[:7]}; run: {_cure(repository, commit)}")
    archive = git(repository, "archive", commit)
    assert archive.returncode == 0, archive.stderr.decode()
    directory.mkdir()
    subprocess.run(("tar", "-x", "-C", str(directory)), input=archive.stdout, check=True, timeout=BUILD_SECONDS)


def _cure(repository: pathlib.Path, commit: str) -> str:
    shallow = git(repository, "rev-parse", "--is-shallow-repository")
    if shallow.returncode:
        return "git clone, which brings the history; this directory is no clone"
    return "git fetch --unshallow" if shallow.stdout.strip() == b"true" else f"git fetch origin {commit}"


@dataclass(frozen=True)
class Version:
    """A tree with everything built, and where its programs are."""

    tree: pathlib.Path
    programs: pathlib.Path


TODAY = Version(ROOT, programs.find("exitd-shim").parent)


@functools.cache
def version(commit: str) -> Version:
    """Built once for a clone and a Python, by whichever of several test processes comes first. Raises NoSuchCommit."""
    place = BUILT / f"{commit}-{sys.implementation.cache_tag}"
    BUILT.mkdir(parents=True, exist_ok=True)
    with place.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # ends with its holder
        if not place.is_dir():
            with tempfile.TemporaryDirectory(dir=BUILT) as scratch:
                tree = pathlib.Path(scratch, "tree")
                unpack(ROOT, commit, tree)
                build(tree)
                tree.rename(place)
    return Version(place, place / "bin")


def build(tree: pathlib.Path) -> None:
    """With the packages of the environment that the tests run in: nothing is downloaded."""
    commands = [(sys.executable, *step) for step in STEPS]
    running = [
        subprocess.Popen(command, cwd=tree, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        for command in commands
    ]
    try:
        said = [each.communicate(timeout=BUILD_SECONDS)[0].decode(errors="replace") for each in running]
    finally:
        for each in running:
            each.kill()
            each.wait()
    for command, each, text in zip(commands, running, said, strict=True):
        assert each.returncode == 0, f"{command}: {text}"


@dataclass(frozen=True)
class Installation:
    """Programs and Python at paths that stay the same from one version to the next, as below /opt/exitd."""

    directory: pathlib.Path

    @property
    def bin(self) -> pathlib.Path:
        return self.directory / "bin"

    @property
    def daemon(self) -> tuple[str, ...]:
        """Without the current directory among the places of modules."""
        return (str(self.bin / "python"), "-P", "-m", "supervisor")

    @classmethod
    def make(cls, directory: pathlib.Path, first: Version) -> "Installation":
        made = cls(directory)
        made.bin.mkdir(parents=True)
        home = pathlib.Path(sys.executable).resolve()
        (made.bin / "python").symlink_to(home)
        (directory / "pyvenv.cfg").write_text(f"home = {home.parent}\ninclude-system-site-packages = false\n")
        made.put(first)
        return made

    def put(self, version: Version) -> None:
        """What runs keeps its files."""
        for name in PROGRAMS:
            shutil.copy2(version.programs / name, self.bin / f".{name}")
            os.replace(self.bin / f".{name}", self.bin / name)
        packages = sysconfig.get_path("purelib", vars={"base": str(self.directory)})
        os.makedirs(packages, exist_ok=True)
        pathlib.Path(packages, "exitd.pth").write_text(f"{version.tree}\n{sysconfig.get_path('purelib')}\n")


@contextlib.contextmanager
def daemon(first: Version) -> Iterator[tuple[Daemon, Installation]]:
    """One of that version, which answers; afterwards no process of it may live, and no mount stay."""
    with lives.directory() as base:
        installed = Installation.make(base / "opt", first)
        made = Daemon(base, program=installed.daemon)
        try:
            yield made.start(), installed
        finally:
            made.end()
        until(lambda: not lives.processes_of(base), f"still there: {lives.processes_of(base)}")


def is_of(pid: int, version: Version) -> bool:
    """Whether this exitd has the extension of that tree."""
    return f" {version.tree}/shim/_native." in pathlib.Path(f"/proc/{pid}/maps").read_text()


@dataclass
class Feed:
    """Numbered lines into a pipe, from a thread, until `close`; whoever reads it copies them to its output."""

    name: str
    fd: int
    written: bytearray = field(default_factory=bytearray)
    _over: threading.Event = field(default_factory=threading.Event)
    _failed: BaseException | None = None

    def __post_init__(self) -> None:
        os.set_blocking(self.fd, True)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> bytes:
        """Everything that was written. The reader has an end of file."""
        self._over.set()
        self._thread.join(LIMIT_SECONDS)
        assert not self._thread.is_alive(), f"{self.name} is not read"
        assert self._failed is None, repr(self._failed)
        return bytes(self.written)

    def more(self) -> None:
        """Returns when some lines more have been taken."""
        size = len(self.written)
        until(lambda: len(self.written) > size + 1000, f"{self.name} is not read")

    def _run(self) -> None:
        number = 0
        try:
            while not self._over.wait(0.001):
                number += 1
                line = f"line {number} of {self.name}\n".encode()
                self.written += line
                os.write(self.fd, line)  # shorter than PIPE_BUF: as a whole
        except BaseException as error:
            self._failed = error
        finally:
            os.close(self.fd)


def feed(fifo: pathlib.Path) -> Feed:
    """The fifo has a reader when this returns."""
    return Feed(fifo.name, until(lambda: _writer(fifo), f"no reader of {fifo}"))


def go(fifo: pathlib.Path) -> None:
    """Whoever reads this fifo has an end of file."""
    os.close(until(lambda: _writer(fifo), f"no reader of {fifo}"))


def _writer(fifo: pathlib.Path) -> int:
    """0, which is never a new descriptor here: nobody reads it."""
    try:
        return os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
    except OSError as error:
        assert error.errno == errno.ENXIO
        return 0


def end_keeper(d: Daemon) -> None:
    """The next exitd starts another one."""
    pid = d.keeper_pid()
    os.kill(pid, signal.SIGTERM)
    until(lambda: d.keeper_pid() != pid, "the end of the keeper")


def reload_keeper(d: Daemon, installed: Installation) -> None:
    """As its unit does: it executes the program that is installed now."""
    program, pid = str(installed.bin / "exitd-keeper"), d.keeper_pid()
    link = f"/proc/{pid}/exe"
    assert os.readlink(link) != program  # but the one that was there before
    os.kill(pid, signal.SIGHUP)
    until(lambda: os.readlink(link) == program, "the new program of the keeper")
