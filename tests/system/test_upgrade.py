"""Upgrades, docs/upgrading.md: what earlier versions of exitd run and have stored is taken over by this one."""

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
from dataclasses import dataclass, field, replace

import pytest

from protos.exitd.v1 import exitd_pb2 as pb
from shim import programs
from supervisor.api.client import Client
from supervisor.store import schema
from tests.system import daemons, execs, lives
from tests.system.containerd.server import EXITD, Said, running
from tests.system.daemons import NOTHING, START_SECONDS, Daemon, left, remove_all, spec
from tests.system.execs import end_of
from tests.system.kill_matrix.tasklife import CODE, EXEC_CODE, ledger
from tests.system.lives import Reader, first_exit, last_exit, word
from tests.system.processes import processes_of
from tests.system.versions import VERSIONS, NoSuchCommit, git, unpack
from tests.system.waits import LIMIT_SECONDS, until

ROOT = pathlib.Path(__file__).resolve().parents[2]
OLDER_SCHEMA = VERSIONS  # what today's exitd has stored they do not read
BUILT = ROOT / "build" / "versions"
PROGRAMS = (
    *("exitd-shim", "exitd-keeper", "exitd-launch", "exitd-pause", "exitd-journald"),
    "containerd-shim-exitd-v2",
)
BUILD_SECONDS = 280.0  # for each step of a build; the machine may do ten other things
STEPS = (
    (
        *("setup.py", "--quiet", "build_ext", "--inplace", "build_protos", "--inplace"),
        *("build_scripts", "--build-dir", "bin"),
    ),
    # Of what a daemon imports: each start would compile it anew where Python may not write it by itself.
    ("-m", "compileall", "-q", "-x", "supervisor/(cli|compare)/", "supervisor", "shim", "protos"),
)
# Half the compiler's work. The extension's own flags come after those of CFLAGS, but before this one.
COMPILER = '#!/bin/sh\nexec cc "$@" -O0\n'


@dataclass(frozen=True)
class Version:
    """A tree with everything built, and where its programs are."""

    tree: pathlib.Path
    programs: pathlib.Path
    commit: str = ""  # of an earlier one


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
    return Version(place, place / "bin", commit)


def build(tree: pathlib.Path) -> None:
    """With the packages of the environment that the tests run in: nothing is downloaded."""
    compiler = tree / "quick-cc"
    compiler.write_text(COMPILER)
    compiler.chmod(0o755)
    environment = {**os.environ, "CC": str(compiler), "EXITD_CFLAGS": "-O0"}
    for step in STEPS:
        done = subprocess.run(
            (sys.executable, *step),
            cwd=tree,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=BUILD_SECONDS,
        )
        assert done.returncode == 0, f"{step}: {(done.stdout + done.stderr).decode(errors='replace')}"


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
def daemon(first: Version, *extra: str) -> Iterator[tuple[Daemon, Installation]]:
    """One of that version, which answers; afterwards no process of it may live, and no mount stay. `extra`: options."""
    with daemons.directory() as base:
        installed = Installation.make(base / "opt", first)
        made = Daemon(base, extra=extra, program=installed.daemon)
        try:
            yield made.start(), installed
        finally:
            made.end()
        until(lambda: not processes_of(base), f"still there: {processes_of(base)}")


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


# Five versions are built, each of several steps that may take minutes on a busy machine.
pytestmark = pytest.mark.timeout(1200)
COPY, WAIT = "cat </mnt/{}; exit {}", "read x </mnt/{}; exit {}"


def short(commit: str) -> str:
    return commit[:7]


@pytest.fixture(scope="module", params=VERSIONS, ids=short)
def earlier(request: pytest.FixtureRequest) -> Version:
    return version(request.param)


class Scene:
    """What an earlier exitd runs, and what must become of it."""

    def __init__(self, d: Daemon) -> None:
        self.daemon = d
        self.place = d.base / "mnt"
        self.place.mkdir()
        self.expected: dict[tuple[str, str], str] = {}  # by container and exec: the word of its end

    def fields(self) -> dict[str, object]:
        return {"mounts": [pb.Mount(source=str(self.place), destination="/mnt")]}

    def fifo(self, name: str) -> pathlib.Path:
        os.mkfifo(self.place / name)
        return self.place / name

    def create(self, client: Client, script: str, name: str, code: int, **fields: object) -> str:
        """A shell, by the name of the fifo that it reads."""
        self.fifo(name)
        made = client.create(spec("sh", "-c", script.format(name, code), name=name, **self.fields(), **fields)).id
        self.expected[made, ""] = f"exited {code}"
        return made

    def up(self, client: Client, script: str, name: str, code: int, **fields: object) -> str:
        made = self.create(client, script, name, code, **fields)
        client.start(made)
        return made

    def exec(self, client: Client, box: str, script: str, name: str, code: int) -> str:
        self.fifo(name)
        made = execs.begin(client, box, "sh", "-c", script.format(name, code))
        self.expected[box, made] = f"exited {code}"
        return made

    def begin(self) -> None:
        with self.daemon.client() as client:
            self.over = lives.run(client, "sh", "-c", "echo over; exit 3")[0]
            self.expected[self.over, ""] = "exited 3"
            self.created = self.create(client, WAIT, "created", 4)
            self.writer = self.up(client, COPY, "writer", 43)
            self.writing = self.exec(client, self.writer, COPY, "writing", 21)
            self.away = self.up(client, WAIT, "away", 7)
            self.away_exec = self.exec(client, self.writer, WAIT, "away-exec", 22)
            self.again = self.up(client, WAIT, "again", 9, restart="on-failure:1")
            self.terminal = self.up(client, WAIT, "terminal", 12, tty=True)
            self.orphan = self.up(client, "read x </mnt/{}; seq 20000; exit {}", "orphan", 44)
            self.pod = client.run_pod(pb.ContainerSpec(image="pause", name="pod")).pause.id
            self.member = self.up(client, WAIT, "member", 5, sandbox="pod")
            self.known = {row.container_id: row for row in client.exits(pb.ExitsRequest())}
            self.pids = {c.id: c.init.pid for c in client.list(all_of_them=True)}
            self.exec_pids = {e.id: e.init.pid for e in client.inspect(self.writer).execs}
            self.orphans_shim = client.inspect(self.orphan).shim.pid
        self.feeds = [feed(self.place / name) for name in ("writer", "writing")]

    def meanwhile(self) -> None:
        """While there is no exitd."""
        for name, pid in (("away", self.pids[self.away]), ("away-exec", self.exec_pids[self.away_exec])):
            go(self.place / name)
            until(lambda: not os.path.exists(f"/proc/{pid}"), f"the end of {name}")  # noqa: B023

    def judge_running(self, client: Client) -> None:
        """Nothing was restarted, and what ended has its code."""
        for each in (self.writer, self.again, self.terminal, self.orphan, self.pod, self.member):
            found = client.inspect(each)
            assert (found.phase, found.init.pid) == (pb.PHASE_RUNNING, self.pids[each]), found
        assert client.inspect(self.created).phase == pb.PHASE_CREATED
        assert client.inspect_pod(self.pod).state == "SANDBOX_READY"
        # An exec that has ended is shown until its end is stored.
        until(lambda: {e.id for e in client.inspect(self.writer).execs} == {self.writing}, "not the one that writes")
        assert {
            row.container_id: row for row in client.exits(pb.ExitsRequest()) if row.container_id in self.known
        } == self.known

    def finish(self, client: Client) -> None:
        """Each ends, under this version."""
        reader = Reader(client.attach(self.writer, exec_id=self.writing, stdin=False))
        seen = len(self.feeds[1].written)
        for feed in self.feeds:
            feed.more()
        written = self.feeds[1].close()
        assert word(end_of(client, self.writer, self.writing)) == "exited 21"
        assert written.endswith(bytes(reader.ended().out)) and len(reader.out) >= len(written) - seen
        written = self.feeds[0].close()
        assert word(last_exit(client, self.writer)) == "exited 43"
        assert self.logged(client, self.writer) == written
        client.start(self.created)
        for name in ("created", "terminal", "orphan", "member"):
            go(self.place / name)
        for id in (self.created, self.terminal, self.orphan, self.member):
            assert word(last_exit(client, id)) == self.expected[id, ""], id
        for id in (self.created, self.terminal, self.member):  # their shims live
            assert last_exit(client, id).source == "record", id
        assert self.logged(client, self.orphan) == b"".join(b"%d\n" % n for n in range(1, 20001))
        for run in (1, 2):  # the second one is made by this version, of what the other has stored
            go(self.place / "again")
            assert word(lives.ended(client.begin_wait(self.again, run=run).result(LIMIT_SECONDS))) == "exited 9"
        client.stop_pod(self.pod)
        self.expected[self.pod, ""] = word(first_exit(client, self.pod))
        assert self.expected[self.pod, ""] in ("exited 0", "signaled 9")

    def logged(self, client: Client, id: str) -> bytes:
        return b"".join(reply.data for reply in client.logs(pb.LogsRequest(id=id)))

    def judge(self, client: Client, before: list[pb.Event]) -> None:
        """Each end once in the ledger and in the events; their numbers go on."""
        rows = list(client.exits(pb.ExitsRequest()))
        said = {(row.container_id, row.exec_id): word(row) for row in rows}
        assert said == self.expected
        assert len(rows) == len(self.expected) + 1  # the second run of one
        now = lives.events(client)
        assert now[: len(before)] == before
        assert [event.seq for event in now] == list(range(1, len(now) + 1))
        told = [(e.exit.container_id, e.exit.run, e.exit.exec_id) for e in now if e.type == "exit"]
        assert sorted(told) == sorted((row.container_id, row.run, row.exec_id) for row in rows)


def refuses_what_today_has_stored(d: Daemon, installed: Installation, earlier: Version) -> None:
    """It leaves the database alone, and what runs. Killed, today's leaves what it has stored last in the write-ahead
    log; it runs again afterwards."""
    with d.client() as client:
        running = [c for c in client.list(all_of_them=True) if c.phase == pb.PHASE_RUNNING]
    d.kill()
    kept = {path.name: path.read_bytes() for path in d.root.glob("exitd.db*") if path.suffix != ".db-shm"}
    installed.put(earlier)
    words = ("--root", str(d.root), "--state", str(d.state))
    refused = subprocess.run((*installed.daemon, *words), capture_output=True, text=True, timeout=START_SECONDS)
    assert refused.returncode == 1 and "Traceback" not in refused.stderr
    assert f"written by a newer exitd (schema {schema.VERSION}, " in refused.stderr
    assert {name: (d.root / name).read_bytes() for name in kept} == kept
    for each in running:
        assert os.path.exists(f"/proc/{each.init.pid}") and os.path.exists(f"/proc/{each.shim.pid}")
    installed.put(TODAY)
    d.start()


@pytest.mark.parametrize("keeper", ["restarted", "reloaded"])
def test_what_an_earlier_exitd_runs_goes_on_under_this_one(earlier: Version, keeper: str) -> None:
    """Both units are restarted, exitd being killed, and in between the earlier exitd is tried again, which refuses; or
    exitd is, in order, and later the keeper is reloaded."""
    with daemon(earlier) as (d, installed):
        assert is_of(d.pid, earlier)
        scene = Scene(d)
        scene.begin()
        with d.client() as client:
            before = lives.events(client)
        installed.put(TODAY)
        d.kill(signal.SIGKILL if keeper == "restarted" else signal.SIGTERM)
        scene.meanwhile()
        if keeper == "restarted":
            end_keeper(d)
        else:
            os.kill(scene.orphans_shim, signal.SIGKILL)
        d.start()
        assert is_of(d.pid, TODAY)
        with d.client() as client:
            scene.judge_running(client)
        if keeper == "restarted" and earlier.commit in OLDER_SCHEMA:
            refuses_what_today_has_stored(d, installed, earlier)
        with d.client() as client:
            scene.judge_running(client)
            if keeper == "reloaded":
                reload_keeper(d, installed)
            scene.finish(client)
            scene.judge(client, before)
            remove_all(client)
            until(lambda: replace(left(d), descriptors=0) == NOTHING, f"left behind: {left(d)}")


def test_tasks_of_containerd_go_on_under_their_earlier_relays(earlier: Version, tmp_path: pathlib.Path) -> None:
    installed = Installation.make(tmp_path / "opt", earlier)
    with running(programs=installed.bin) as containerd, contextlib.ExitStack() as ends:
        (place := containerd.base / "e").mkdir()
        containerd.exitd = Daemon(place, program=installed.daemon).start()
        events = ends.enter_context(containerd.events())
        copy, ended, later = (containerd.box(EXITD, kind) for kind in ("copy", "ended", "later"))
        out, err = (ends.enter_context((tmp_path / name).open("w+b")) for name in ("out", "exec-out"))
        pipes = [os.pipe() for _ in range(2)]
        words = ("--rm", "--", "sh", "-c", f"cat; exit {CODE}")
        copying = copy.begun(*words, stdin=pipes[0][0], stdout=out.fileno())
        ends.callback(copying.kill)
        copy.until("RUNNING")
        exec_words = copy.exec_words("e", "--", "sh", "-c", f"cat; exit {EXEC_CODE}")
        exec_ = containerd.begin(*exec_words, stdin=pipes[1][0], stdout=err.fileno())
        ends.callback(exec_.kill)
        events.wait(copy.id, "/tasks/exec-started")
        ended.started("--", "sleep", "1000")
        later.started("--", "sh", "-c", f"trap 'exit {CODE}' TERM; sleep 1000 & wait")
        feeds = [Feed(name, fd) for name, (_, fd) in zip(("init", "exec"), pipes, strict=True)]
        for fd, _ in pipes:
            os.close(fd)
        for each in feeds:
            each.more()
        pids = {box.id: box.pid for box in (copy, ended, later)}
        containerd.exitd.kill()
        installed.put(TODAY)
        end_keeper(containerd.exitd)
        os.kill(pids[ended.id], signal.SIGKILL)
        for each in feeds:
            each.more()
        containerd.exitd.start()
        assert is_of(containerd.exitd.pid, TODAY)
        events.wait(ended.id, "/tasks/exit")
        for each in reversed(feeds):
            each.more()
        assert [box.pid for box in (copy, later)] == [pids[box.id] for box in (copy, later)]
        written = feeds[1].close()
        assert (exec_.communicate(timeout=LIMIT_SECONDS)[1], exec_.returncode) == (b"", EXEC_CODE)
        assert (tmp_path / "exec-out").read_bytes() == written
        written = feeds[0].close()
        assert (copying.communicate(timeout=LIMIT_SECONDS)[1], copying.returncode) == (b"", CODE)
        assert (tmp_path / "out").read_bytes() == written
        assert later.exec("e", "--", "sh", "-c", f"exit {EXEC_CODE}") == Said(EXEC_CODE, "", "")
        for verb in (("pause",), ("resume",), ("kill", "-s", "15")):
            assert later.task(*verb) == Said(0, "", "")
        events.wait(later.id, "/tasks/exit", 2)
        for box, code in ((later, CODE), (ended, 137)):
            assert f"exit code {code}" in box.end().err
        for box, code, execs in ((copy, CODE, 1), (ended, 137, 0), (later, CODE, 1)):
            events.wait(box.id, "/tasks/delete")
            told = [event for event in events.settled().of(box.id) if event.topic == "/tasks/exit"]
            expected = [("e", EXEC_CODE)] * execs + [(box.id, code)]
            assert [(event.fields["id"], event.fields["exit_status"]) for event in told] == expected
            assert [row.code or 128 + row.signal for row in ledger(box)] == [code]
            assert [row.code for row in ledger(box, execs=True)] == [EXEC_CODE] * execs
        assert containerd.box(EXITD, "new").run("--rm", "--", "sh", "-c", "exit 6") == Said(6, "", "")
        containerd.left_is()


def test_relays_of_today_serve_under_an_earlier_exitd_until_that_is_replaced(
    earlier: Version, tmp_path: pathlib.Path
) -> None:
    """The programs are replaced first, and exitd is restarted a while later: what begins in between is today's. A task
    that ends while neither is there is reported by the relay if the earlier exitd has left it the note, else by this
    one."""
    installed = Installation.make(tmp_path / "opt", earlier)
    with running(programs=installed.bin) as containerd:
        (place := containerd.base / "e").mkdir()
        containerd.exitd = Daemon(place, program=installed.daemon).start()
        installed.put(TODAY)
        with containerd.events() as events:
            away, later = (containerd.box(EXITD, kind) for kind in ("away", "later"))
            away.started("--", "sleep", "1000")
            later.started("--", "sh", "-c", f"trap 'exit {CODE}' TERM; sleep 1000 & wait")
            today = (TODAY.programs / "containerd-shim-exitd-v2").read_bytes()
            for box in (away, later):
                assert [pathlib.Path(f"/proc/{pid}/exe").read_bytes() for pid in containerd.shims(box.id)] == [today]
            assert is_of(containerd.exitd.pid, earlier)
            assert containerd.box(EXITD, "short").run("--rm", "--", "sh", "-c", "exit 6") == Said(6, "", "")
            assert later.exec("e", "--", "sh", "-c", f"exit {EXEC_CODE}") == Said(EXEC_CODE, "", "")
            for verb in (("pause",), ("resume",)):
                assert later.task(*verb) == Said(0, "", "")
            pids = {box.id: box.pid for box in (away, later)}
            containerd.exitd.kill()
            os.kill(pids[away.id], signal.SIGKILL)
            until(lambda: not os.path.exists(f"/proc/{pids[away.id]}"), "its end")
            containerd.exitd.start()
            assert is_of(containerd.exitd.pid, TODAY)
            events.wait(away.id, "/tasks/exit")
            assert later.task("kill", "-s", "15") == Said(0, "", "")
            events.wait(later.id, "/tasks/exit", 2)
            for box, code, execs in ((away, 137, 0), (later, CODE, 1)):
                assert f"exit code {code}" in box.end().err
                events.wait(box.id, "/tasks/delete")
                told = [event for event in events.settled().of(box.id) if event.topic == "/tasks/exit"]
                expected = [("e", EXEC_CODE)] * execs + [(box.id, code)]
                assert [(event.fields["id"], event.fields["exit_status"]) for event in told] == expected
                assert [row.code or 128 + row.signal for row in ledger(box)] == [code]
            containerd.left_is()


def test_a_clone_without_the_commit_is_reported_with_the_command_that_brings_it(tmp_path: pathlib.Path) -> None:
    def made(*words: str) -> str:
        identity = ("-c", "user.name=a", "-c", "user.email=a@b")
        done = git(tmp_path, *identity, *words)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode().strip()

    made("init", "--quiet", "whole")
    commits = []
    for text in ("first", "second"):
        (tmp_path / "whole" / "file").write_text(text)
        made("-C", "whole", "add", "file")
        made("-C", "whole", "commit", "--quiet", "--message", text)
        commits.append(made("-C", "whole", "rev-parse", "HEAD"))
    made("clone", "--quiet", "--depth", "1", f"file://{tmp_path}/whole", "shallow")
    unpack(tmp_path / "whole", commits[0], tmp_path / "tree")
    assert (tmp_path / "tree" / "file").read_text() == "first"
    with pytest.raises(NoSuchCommit, match=r"run: git fetch --unshallow$"):
        unpack(tmp_path / "shallow", commits[0], tmp_path / "none")
    made("-C", "shallow", "fetch", "--quiet", "--unshallow")
    unpack(tmp_path / "shallow", commits[0], tmp_path / "cured")
    assert (tmp_path / "cured" / "file").read_text() == "first"
    with pytest.raises(NoSuchCommit, match=r"run: git fetch origin 0{40}$"):
        unpack(tmp_path / "whole", "0" * 40, tmp_path / "none")
    with pytest.raises(NoSuchCommit, match=r"this directory is no clone$"):
        unpack(tmp_path, commits[0], tmp_path / "none")
