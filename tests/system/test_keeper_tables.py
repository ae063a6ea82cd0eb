"""exitd-keeper takes over the table of an older keeper, and refuses one that it does not know."""

import struct
import subprocess
import sys
from collections.abc import Iterator

import pytest

from shim import fields, launch, native, programs
from supervisor.model.values import Process
from tests.system import keepers
from tests.system.keepers import Node
from tests.system.processes import children_of, end_process, kernel_reports, open_files
from tests.system.waits import LIMIT_SECONDS, until

# shim/keeper/resume.c: struct head, and struct run as versions 1 to 3 had it, the latter two with padding at their end.
HEAD = struct.Struct("=IIiiiii4xQ64s4096s")
RUN = struct.Struct("=128s128s320sQiiQQiiii")
RUN_2 = struct.Struct("=128s128s320sQiiQQiiiiiiii")
RUN_3 = struct.Struct("=128s128s320sQiiQQiiiiiiiii4x")
RUNS = {1: RUN, 2: RUN_2, 3: RUN_3}
# What the older program does: lock, socket, journal and table through an exec. Its output is a pipe that it holds.
UPGRADES = """
import fcntl, os, socket, struct, subprocess, sys
state, program, version, run_size, head, run, pid, started, shim = sys.argv[1:]
listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
listener.bind(f"{state}/keeper.sock")
listener.listen()
names = "keeper.lock", "keeper-1.journal"
lock, journal = (os.open(f"{state}/{name}", os.O_RDWR | os.O_CREAT, 0o600) for name in names)
fcntl.flock(lock, fcntl.LOCK_EX)
out, err = os.pipe()
table = os.memfd_create("table", 0)
path = f"{state}/keeper-1.journal".encode()
os.write(table, struct.pack(head, int(version), int(run_size), lock, listener.fileno(), journal, 1, 1, 0, b"1-1", path))
# What was padding may hold anything: a number that must not be taken for a descriptor.
more = (os.dup(err), -1, -1, listener.fileno() if version == "2" else -1) if version in "23" else ()
more += (0,) if version == "3" else ()
# A replacement is this process's child, and its init is not.
shim_pid = subprocess.Popen([shim, "1000"], stdout=subprocess.DEVNULL).pid if shim else 0
os.write(table, struct.pack(run, b"box", b"", b"", 1, shim_pid, int(pid), 0, int(started), out, err, 1, 0, *more))
os.lseek(table, 0, os.SEEK_SET)
for fd in (lock, listener.fileno(), journal, out, err, table, *more[:1]):
    os.set_inheritable(fd, True)
print("listens", flush=True)
os.execv(program, ["exitd-keeper", "--state", state, "--resume", str(table)])
"""


NO_PROCESS = Process(0, 0)


@pytest.fixture
def node() -> Iterator[Node]:
    with keepers.node() as made:
        made.state.mkdir()
        yield made


def upgraded(
    node: Node, version: int, run_size: int, init: Process = NO_PROCESS, shim: str = ""
) -> subprocess.Popen[bytes]:
    program = str(programs.find("exitd-keeper"))
    run = RUNS.get(version, RUN)
    words = [str(node.state), program, str(version), str(run_size), HEAD.format, run.format]
    words += [str(init.pid), str(init.started_ticks), shim]
    process = subprocess.Popen([sys.executable, "-c", UPGRADES, *words], stdout=subprocess.PIPE)
    assert process.stdout is not None
    with process.stdout as said:
        assert said.readline() == b"listens\n"
    return process


def pipe_ends(pid: int) -> int:
    """How many it has, its own output not counted."""
    return sum(name.startswith("pipe:") for fd, name in open_files(pid).items() if fd > 2)


@pytest.mark.parametrize(("version", "size", "kept"), [(1, RUN.size, 2), (2, RUN_2.size, 3), (3, RUN_3.size, 3)])
def test_a_table_of_an_earlier_version_is_taken_over_with_its_runs_and_their_output(
    node: Node, version: int, size: int, kept: int
) -> None:
    process = upgraded(node, version, size)
    try:
        with launch.connect(str(node.state), LIMIT_SECONDS) as line:
            found = launch.ask(line, fields.encode("exitd-list", [("at", 0)]), [])[0]
            assert (found.get("id"), found.number("run")) == ("box", 1)
            assert pipe_ends(process.pid) == kept
            launch.ask(line, fields.encode("exitd-ack", launch.key("box", 1)), [])
            assert pipe_ends(process.pid) == 0
        launch.connect(str(node.state)).close()
    finally:
        process.kill()
        process.wait(LIMIT_SECONDS)


@pytest.mark.parametrize("shim", ["", "sleep"])
@pytest.mark.parametrize(("version", "size"), [(1, RUN.size), (2, RUN_2.size)])
def test_a_strangers_child_in_a_table_of_an_earlier_version_is_watched_also_where_its_shim_was_replaced(
    node: Node, version: int, size: int, shim: str
) -> None:
    if not kernel_reports():
        return
    init = subprocess.Popen(["/bin/sh", "-c", "read go; exit 43"], stdin=subprocess.PIPE)
    keeper = upgraded(node, version, size, Process(init.pid, native.process_stat(init.pid)[2]), shim)
    try:
        with launch.connect(str(node.state), LIMIT_SECONDS) as line:
            launch.ask(line, fields.encode("exitd-list", [("at", 0)]), [])
        init.communicate(b"go\n", timeout=LIMIT_SECONDS)
        journal = node.state / "keeper-1.journal"
        until(lambda: b'"code":43' in journal.read_bytes(), "the entry")
    finally:
        init.kill()
        for pid in children_of(keeper.pid):
            end_process(pid)
        keeper.kill()
        keeper.wait(LIMIT_SECONDS)


@pytest.mark.parametrize(
    ("version", "run_size"), [(0, RUN.size), (1, RUN.size + 8), (2, RUN.size), (3, 640), (4, 648), (5, 664)]
)
def test_a_table_that_is_not_understood_is_refused(node: Node, version: int, run_size: int) -> None:
    assert upgraded(node, version, run_size).wait(LIMIT_SECONDS) not in (0, None)
