"""exitd-keeper and the slots of a shim: what lies where, what is kept for its successor, and until when."""

import contextlib
import errno
import os
import pathlib
import pty
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shim import fields, launch, native
from tests.system import keepers
from tests.system.keepers import Keeper, Node
from tests.system.processes import children_of, kernel_reports, open_files, wait_state
from tests.system.test_faults import failing
from tests.system.test_keeper import reconnect, upgrade
from tests.system.waits import LIMIT_SECONDS, until, wait_readable

SLOTS, KEPT = range(3, 16), (4, 5, 13, 14, 15)
IN_WRITE = 13
PIDFD = -1  # among a box's files: the keeper's own
# Stand-ins for a shim: its descriptors, named; then it stays.
LISTS = "for n in {3..20}; do readlink /proc/self/fd/$n || echo; done >list; mv list slots"
STAYS = "exec sleep 1000"


@dataclass
class Box:
    """A run of which the keeper knows, whatever its shim does. `files` are what the shim's slots are filled with."""

    node: Node
    keeper: Keeper
    directory: pathlib.Path
    files: dict[int, int] = field(default_factory=dict)

    def request(self, program: str, slots: Sequence[int | str], adopt: bool = False) -> bytes:
        plain = launch.spawn_request("box", 1, "", str(self.directory), program, adopt=adopt)
        pairs = fields.decode(plain).pairs
        return fields.encode("exitd-spawn", [*pairs, *(("seat", slot) for slot in slots)])

    def stand_in(self, script: str) -> str:
        """The path of a script for bash: other shells' own descriptors may lie in a slot."""
        path = self.node.directory / f"script{next(keepers.NUMBERS)}"
        path.write_text(f"#!/bin/bash\n{script}\n")
        path.chmod(0o755)
        return str(path)

    def begin(self, script: str, slots: Mapping[int, int], adopt: bool = False) -> int:
        """The pidfd of a stand-in."""
        (self.directory / "slots").unlink(missing_ok=True)
        program = self.stand_in(script)
        assert self.keeper.socket is not None
        _, passed = launch.ask(self.keeper.socket, self.request(program, [*slots], adopt), [*slots.values()])
        return passed[0]

    def listed(self, slots: Mapping[int, int], adopt: bool = False) -> dict[int, str]:
        """What a stand-in finds in its slots."""
        ended(self.begin(LISTS, slots, adopt))
        lines = (self.directory / "slots").read_text().splitlines()
        return {slot: line for slot, line in enumerate(lines, 3) if line}

    def refused(self, slots: Sequence[int | str], count: int) -> int:
        """The errno with which the keeper refuses to spawn."""
        assert self.keeper.socket is not None
        with pytest.raises(launch.KeeperRefused) as caught, open("/dev/null") as file:
            launch.ask(self.keeper.socket, self.request("/nowhere/exitd-shim", slots), [file.fileno()] * count)
        return caught.value.number

    def ask(self, kind: str, *pairs: tuple[str, str | int], fds: Sequence[int] = ()) -> fields.Message:
        assert self.keeper.socket is not None
        return launch.ask(self.keeper.socket, fields.encode(kind, [*launch.key("box", 1), *pairs]), [*fds])[0]

    def register(self, pid: int, *master: int) -> None:
        self.ask("exitd-register", ("pid", pid), ("started", 1), ("oom", ""), fds=master)

    def held(self) -> int:
        """How many descriptors the keeper has open."""
        self.keeper.settle()
        return len(open_files(self.keeper.process.pid))


def ended(pidfd: int) -> None:
    assert wait_readable(pidfd)
    os.close(pidfd)


def killed(pidfd: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    ended(pidfd)


def link(fd: int) -> str:
    return os.readlink(f"/proc/self/fd/{fd}")


@pytest.fixture
def box() -> Iterator[Box]:
    with keepers.node() as node:
        keeper = node.keeper()
        made = Box(node, keeper, node.directory / "run")
        made.directory.mkdir()
        try:
            for slots in ((4, 6), (5, 7), (12, 13), (14, 15)):
                made.files.update(zip(slots, os.pipe(), strict=True))
            made.files |= {slot: os.open(f"/proc/self/ns/{name}", os.O_RDONLY) for slot, name in NAMESPACES}
            made.files[3], other = (s.detach() for s in socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET))
            os.close(other)
            yield made
        finally:
            for fd in made.files.values():
                os.close(fd)
            made.keeper.close()


NAMESPACES = ((8, "net"), (9, "ipc"), (10, "uts"), (11, "pid"))


@pytest.mark.parametrize(
    "order",
    [
        [3],
        [3, 4, 5, 6, 7, 14, 15],
        [15, 14, 13, 12, 7, 6, 5, 4, 3],
        [*SLOTS],
        [*reversed(SLOTS)],
        [3, 14, 15, 9, 8],
    ],
)
def test_each_descriptor_comes_to_the_slot_it_was_meant_for_and_to_no_other(box: Box, order: list[int]) -> None:
    before = box.held()
    assert box.listed({slot: box.files[slot] for slot in order}) == {slot: link(box.files[slot]) for slot in order}
    assert box.held() == before + len(set(order) & set(KEPT))
    box.keeper.acknowledge("box")
    assert box.held() == before


def test_without_names_they_sit_in_their_order_as_older_daemons_mean_it(box: Box) -> None:
    program = box.stand_in(LISTS)
    order = [3, 4, 5, 6, 7, 8, 9]
    assert box.keeper.socket is not None
    request = box.request(program, [])
    ended(launch.ask(box.keeper.socket, request, [box.files[slot] for slot in order])[1][0])
    lines = (box.directory / "slots").read_text().splitlines()
    assert lines == [link(box.files[slot]) for slot in order] + [""] * 11
    assert box.listed({3: box.files[3]}, adopt=True).keys() == {3, 4, 5}


@pytest.mark.parametrize(
    ("slots", "count"),
    [
        ([3, 3], 2),
        ([3, 4], 1),
        ([3], 2),
        ([3], 0),
        ([4, 5], 2),
        ([3, 2], 2),
        ([3, 16], 2),
        ([3, -4], 2),
        ([3, ""], 2),
        ([3, "4x"], 2),
        ([3, "99999999999999999999"], 2),
        ([*SLOTS, 3], 13),
        ([*SLOTS, *SLOTS], 13),
        ([], 10),
    ],
)
def test_a_slot_that_is_none_taken_or_without_its_descriptor_is_refused(
    box: Box, slots: list[int | str], count: int
) -> None:
    before = box.held()
    assert box.refused(slots, count) == errno.EINVAL
    assert box.held() == before
    assert box.keeper.ask("exitd-list", ("at", 0)).kind == "exitd-ok"


def test_no_list_of_slots_crashes_the_keeper_or_costs_it_a_descriptor(box: Box) -> None:
    before = box.held()

    @settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
    @given(
        st.sampled_from(["exitd-spawn", "exitd-release", "exitd-register"]),
        st.lists(st.integers(-1, 17) | st.sampled_from(["", "x", "3 ", "9" * 30]), max_size=16),
        st.integers(0, 14),
        st.booleans(),
    )
    def try_one(kind: str, slots: list[int | str], count: int, adopt: bool) -> None:
        message = box.request("/nowhere/exitd-shim", slots, adopt).replace(b"exitd-spawn", kind.encode(), 1)
        with launch.connect(str(box.keeper.state)) as client, open("/dev/null") as file:
            socket.send_fds(client, [message], [file.fileno()] * count)
            assert fields.decode(launch.receive(client)[0]).kind == "exitd-refused"

    try_one()
    assert box.keeper.alive and abs(box.held() - before) <= 1  # a connection's end may not have been seen yet


def test_a_replacement_gets_what_was_kept_and_nothing_else_but_its_status_socket(box: Box) -> None:
    killed(box.begin(STAYS, box.files))
    expected = {slot: link(box.files[slot]) for slot in (3, *KEPT)}
    before = box.held()
    for _ in range(3):
        assert box.listed({3: box.files[3]}, adopt=True) == expected
        assert box.listed(box.files, adopt=True) == expected  # what it is sent besides is none of its
        assert box.held() == before
    box.keeper.acknowledge("box")


def test_exitd_has_copies_of_all_that_a_replacement_needs_but_the_input_and_another_keeper_takes_them(box: Box) -> None:
    killed(box.begin(STAYS, box.files))
    assert box.keeper.socket is not None
    message, passed = launch.ask(box.keeper.socket, fields.encode("exitd-copies", launch.key("box", 1)), [])
    copies = dict(zip([int(slot) for _, slot in message.pairs], passed, strict=True))
    try:
        assert {slot: link(fd) for slot, fd in copies.items()} == {
            slot: link(box.files[slot]) for slot in KEPT if slot != IN_WRITE
        }
        box.keeper.close()
        box.keeper = box.node.keeper()
        expected = {slot: link(box.files[slot]) for slot in (3, *copies)}
        assert box.listed({3: box.files[3], **copies}, adopt=True) == expected
        assert box.listed({3: box.files[3]}, adopt=True) == expected  # it keeps them
        box.keeper.acknowledge("box")
        with pytest.raises(launch.KeeperRefused, match="unknown run"):
            box.ask("exitd-copies")
    finally:
        for fd in copies.values():
            os.close(fd)


def test_an_upgrade_keeps_every_slot(box: Box) -> None:
    killed(box.begin(STAYS, box.files))
    expected = {slot: link(box.files[slot]) for slot in (3, *KEPT)}
    before = box.held()
    for _ in range(2):
        upgrade(box.keeper)
        assert box.held() == before
        assert box.listed({3: box.files[3]}, adopt=True) == expected
    box.keeper.acknowledge("box")
    assert box.held() == before - len(KEPT)


def test_input_stays_open_when_the_shim_is_killed_until_the_keepers_copy_is_released(box: Box) -> None:
    slots = dict(box.files)
    container = slots.pop(12)
    shim = box.begin(STAYS, slots)
    os.close(box.files.pop(13))
    killed(shim)
    assert not wait_readable(container, 0.05)
    ended(box.begin("echo more >&13", {3: slots[3]}, adopt=True))
    assert os.read(container, 100) == b"more\n"
    assert not wait_readable(container, 0.05)
    for _ in range(2):
        assert box.ask("exitd-release", ("seat", 13)).kind == "exitd-ok"
        assert os.read(container, 100) == b""
    assert box.listed({3: slots[3]}, adopt=True).keys() == {3, 4, 5, 14, 15}
    box.keeper.acknowledge("box")


@pytest.mark.parametrize("slots", [[], [3], [13, 12], [16], ["x"]])
def test_only_what_is_ever_kept_can_be_released(box: Box, slots: list[int | str]) -> None:
    killed(box.begin(STAYS, box.files))
    before = box.held()
    with pytest.raises(launch.KeeperRefused) as caught:
        box.ask("exitd-release", *(("seat", slot) for slot in slots))
    assert (caught.value.number, box.held()) == (errno.EINVAL, before)
    box.keeper.acknowledge("box")
    with pytest.raises(launch.KeeperRefused) as caught:
        box.ask("exitd-release", ("seat", 13))
    assert caught.value.number == errno.ENOENT


# A process of a terminal: it says what it reads there, and ends by nothing but a hangup.
def line(fd: int) -> bytes:
    """To its end: Python may write it in pieces."""
    said = b""
    while not said.endswith(b"\n") and (more := os.read(fd, 100)):
        said += more
    return said


ON_TERMINAL = """
import contextlib, fcntl, os, signal, sys, termios
os.setsid()
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
print("ready", flush=True)
with contextlib.suppress(OSError):
    for line in sys.stdin:
        print("read", line, end="", flush=True)
signal.pause()
"""


def test_a_terminal_goes_on_when_its_shim_is_killed_and_is_hung_up_when_the_run_is_over(box: Box) -> None:
    master, slave = pty.openpty()
    said, says = os.pipe()
    before = box.held()
    shim = box.begin(STAYS, {slot: box.files[slot] for slot in (3, 14, 15)})
    with contextlib.ExitStack() as stack:
        process = stack.enter_context(subprocess.Popen([sys.executable, "-c", ON_TERMINAL], stdin=slave, stdout=says))
        stack.callback(process.kill)  # before it is waited for, whatever has gone wrong
        for fd in (slave, says):
            os.close(fd)
        assert line(said) == b"ready\n"
        for _ in range(2):  # reported again, as by a shim whose keeper made way for another
            box.register(process.pid, master)
        terminal = link(master)
        os.close(master)
        killed(shim)
        assert box.held() == before + 3
        upgrade(box.keeper)
        box.register(process.pid)
        assert box.listed({3: box.files[3]}, adopt=True) == {
            **{slot: link(box.files[slot]) for slot in (3, 14, 15)},
            4: terminal,
        }
        ended(box.begin("echo hello >&4", {3: box.files[3]}, adopt=True))
        assert line(said) == b"read hello\n"
        assert process.poll() is None
        box.keeper.acknowledge("box")
        assert process.wait(LIMIT_SECONDS) == -signal.SIGHUP
    os.close(said)
    assert box.held() == before


def test_a_registration_with_two_descriptors_or_of_nobody_keeps_none(box: Box) -> None:
    killed(box.begin(STAYS, {3: box.files[3]}))
    before = box.held()
    with pytest.raises(launch.KeeperRefused):
        box.register(os.getpid(), box.files[4], box.files[5])
    with pytest.raises(launch.KeeperRefused):
        box.register(1, box.files[4])
    box.keeper.acknowledge("box")
    with pytest.raises(launch.KeeperRefused):
        box.register(os.getpid(), box.files[4])
    assert box.held() == before


def anew(box: Box, *slots: int) -> None:
    """What a shim says whose keeper is another one than at its begin."""
    pairs: list[tuple[str, str | int]] = [("pid", os.getpid()), ("started", 1), ("oom", "")]
    pairs += [("seat", slot) for slot in slots]
    box.ask("exitd-register", *pairs, fds=[box.files.get(slot, box.files[3]) for slot in slots])


def test_a_run_that_registers_anew_is_known_with_all_that_its_shim_has_and_again_with_no_more(box: Box) -> None:
    before = box.held()
    for _ in range(3):
        anew(box, *KEPT)
        assert box.held() == before + len(KEPT)
    assert box.listed({3: box.files[3]}, adopt=True) == {slot: link(box.files[slot]) for slot in (3, *KEPT)}
    box.ask("exitd-release", ("seat", 13))
    box.keeper.acknowledge("box")
    assert box.held() == before


def test_an_input_that_is_not_named_any_more_is_given_up(box: Box) -> None:
    anew(box, *KEPT)
    os.close(box.files.pop(13))
    assert not wait_readable(box.files[12], 0.05)
    anew(box, 4, 5, 14, 15)
    assert wait_readable(box.files[12])
    box.keeper.acknowledge("box")


@pytest.mark.parametrize("slots", [(3,), (4, 6), (99,), (4, 5, 13, 14, 15, 8)])
def test_of_a_run_that_registers_with_what_is_never_kept_nothing_is_known(box: Box, slots: tuple[int, ...]) -> None:
    before = box.held()
    with pytest.raises(launch.KeeperRefused):
        anew(box, *slots)
    with pytest.raises(launch.KeeperRefused):
        box.register(os.getpid())
    assert box.held() == before


def test_a_pump_registers_with_what_it_has_though_it_knows_no_init(box: Box) -> None:
    before = box.held()
    named: list[tuple[str, str | int]] = [("shim", os.getpid()), ("shim_started", 1), ("oom", "")]
    for _ in range(2):
        answer = box.ask("exitd-register", *named, ("seat", 4), ("seat", 13), fds=[box.files[4], box.files[13]])
        assert answer.number("pid") == box.keeper.process.pid
        assert box.held() == before + 2
    found = box.keeper.ask("exitd-list", ("at", 0))
    assert (found.number("init_pid"), found.number("shim_pid")) == (0, os.getpid())
    assert box.listed({3: box.files[3]}, adopt=True).keys() == {3, 4, 13}
    box.keeper.acknowledge("box")
    assert box.held() == before


def test_an_orphan_is_not_taken_for_the_program_of_a_pump(box: Box) -> None:
    assert box.keeper.socket is not None
    exec_: list[tuple[str, str | int]] = [
        ("id", "other"),
        ("run", 1),
        ("exec", "e1"),
        ("shim", gone()),
        ("shim_started", 1),
        ("oom", ""),
    ]
    launch.ask(box.keeper.socket, fields.encode("exitd-register", exec_), [])
    os.mkfifo(box.directory / "go")
    ended(box.begin("setsid sh -c 'read go; exit 3' <go &", {3: box.files[3]}))
    (box.directory / "go").write_text("go\n")
    until(lambda: children_of(box.keeper.process.pid) == [], "it does not end")
    box.keeper.settle()
    assert not box.keeper.entries()


@pytest.mark.parametrize("limit", [12, 18])
def test_a_keeper_without_descriptors_refuses_to_take_over_and_knows_nothing(node: Node, limit: int) -> None:
    """12: there is no room for what comes with the message; 18: none where it is to lie."""
    keeper = node.keeper("/bin/sh", "-c", f'ulimit -n {limit}; exec "$@"', "sh")
    box = Box(node, keeper, node.directory / "run")
    before = box.held()
    with contextlib.ExitStack() as stack:
        stack.callback(keeper.close)
        file = stack.enter_context(open("/dev/null"))
        box.files = dict.fromkeys((3, *KEPT), file.fileno())
        for _ in range(3):
            with pytest.raises(launch.KeeperRefused) as caught:
                anew(box, *KEPT)
            assert caught.value.number == errno.EMFILE
            assert box.held() == before
        assert keeper.ask("exitd-list", ("at", 0)).kind == "exitd-ok"


def gone() -> int:
    """Return a pid that no process has now."""
    with subprocess.Popen(["true"]) as process:
        return process.pid


def stranger(box: Box, script: str, shim: int = 0) -> subprocess.Popen[bytes]:
    """A process that is no child of the keeper's, and registered as a run's init."""
    process = subprocess.Popen(["/bin/sh", "-c", f"read go; {script}"], stdin=subprocess.PIPE)
    started = native.process_stat(process.pid)[2]
    own: list[tuple[str, str | int]] = [("shim", shim or os.getpid()), ("shim_started", 1)]
    box.ask("exitd-register", ("pid", process.pid), ("started", started), ("oom", ""), *own)
    return process


# Its first thread leaves alone, with a code that does not count; then another one ends the process.
LEADER_LEAVES = """
import ctypes, os, pathlib, threading
def rest():
    while pathlib.Path("/proc/self/stat").read_text().rpartition(")")[2].split()[0] != "Z":
        pass
    os._exit(43)
threading.Thread(target=rest).start()
ctypes.CDLL(None).syscall({"x86_64": 60, "aarch64": 93}[os.uname().machine], 3)
"""
OTHER_THREAD = f"exec {shlex.join([sys.executable, '-Sc', LEADER_LEAVES])}"


@pytest.mark.parametrize(
    ("script", "code", "number"), [("exit 43", 43, None), ("kill -9 $$", None, 9), (OTHER_THREAD, 43, None)]
)
def test_how_a_strangers_child_ends_is_journalled_once_it_is_reaped_where_the_kernel_says_it(
    box: Box, script: str, code: int | None, number: int | None
) -> None:
    before = box.held()
    process = stranger(box, script)
    assert box.held() == before + 1
    upgrade(box.keeper)
    assert box.held() == before + 1
    process.communicate(b"go\n", timeout=LIMIT_SECONDS)
    until(lambda: box.held() == before, "the keeper still holds a pidfd")
    if not kernel_reports():
        assert not box.keeper.entries()
        return
    (entry,) = box.keeper.entries()
    assert (entry.id, entry.pid, entry.code, entry.signal, entry.began) == ("box", process.pid, code, number, True)
    box.keeper.acknowledge("box")
    assert not box.keeper.entries()


RACES, RACES_LOST = 300, 3


def test_the_code_that_is_journalled_is_that_of_wait_also_where_the_leader_leaves_while_another_thread_ends_all(
    box: Box, tmp_path: pathlib.Path
) -> None:
    """For the pidfd the kernel keeps the leader's own code where the leader is the last to go. Its zombie shows the
    true one. Who is the last is luck: it is tried until the pidfd was wrong a few times."""
    if not kernel_reports():
        return
    program, lost = str(tmp_path / "leaver"), 0
    source = pathlib.Path(__file__).with_name("leaver.c")
    words = ["cc", "-O1", "-pthread", "-Wall", "-Wextra", "-Werror", "-o", program, str(source)]
    subprocess.run(words, check=True, timeout=LIMIT_SECONDS)
    for number in range(RACES):
        process = stranger(box, f"exec {program} {number * 37 % 3000}")
        pidfd, before = os.pidfd_open(process.pid), box.held()
        assert process.stdin is not None
        with process.stdin as written:
            written.write(b"go\n")
            written.flush()
            until(lambda: os.readlink(f"/proc/{process.pid}/exe") == program, "the program")  # noqa: B023
            written.write(b"go\n")
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        box.keeper.settle()
        code = process.wait(LIMIT_SECONDS)
        until(lambda: box.held() < before, "the keeper still holds a pidfd")  # noqa: B023
        is_wrong = native.pidfd_exit_status(pidfd) != code << 8
        os.close(pidfd)
        assert [entry.code for entry in box.keeper.entries()] == [code]
        box.keeper.acknowledge("box")
        lost += is_wrong
        if lost == RACES_LOST:
            break


def test_a_strangers_zombie_is_no_end_yet_and_wakes_nobody(box: Box) -> None:
    process = stranger(box, "exit 43")
    assert process.stdin is not None
    process.stdin.close()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    box.keeper.settle()
    assert not box.keeper.entries()
    pidfd = os.pidfd_open(box.keeper.process.pid)
    assert wait_state(box.keeper.process.pid, pidfd, "S")
    os.close(pidfd)
    process.wait(LIMIT_SECONDS)
    box.keeper.acknowledge("box")


def test_requests_do_not_make_the_keeper_try_more_often_what_there_is_no_room_for(box: Box) -> None:
    box.ask("exitd-register", ("shim", os.getpid()), ("shim_started", 1), ("oom", ""))
    with failing(box.node, box.keeper.process.pid, "epoll_create1", "ENFILE") as failed:
        upgrade(box.keeper)
        until(lambda: len(failed.times()) > 1, "the keeper tries again")
        began = time.monotonic()
        before = len(failed.times())
        for _ in range(100):
            box.keeper.settle()
        assert len(failed.times()) - before <= (time.monotonic() - began) / 0.25 + 1
    box.keeper.acknowledge("box")


@pytest.mark.parametrize(
    ("call", "error"), [("epoll_create1", "ENFILE"), ("signalfd4", "ENFILE"), ("mmap,brk", "ENOMEM")]
)
def test_an_upgrade_without_room_for_a_descriptor_or_memory_loses_nothing(box: Box, call: str, error: str) -> None:
    orphan = box.begin("exit 0", {3: box.files[3]})
    process = stranger(box, "exit 43")
    with failing(box.node, box.keeper.process.pid, call, error) as failed:
        box.keeper.process.send_signal(signal.SIGHUP)
        until(lambda: len(failed.times()) > 2, "the keeper tries again")
        reconnect(box.keeper)
        if error == "ENFILE":
            assert box.keeper.ask("exitd-list", ("at", 0)).get("id") == "box"
    process.communicate(b"go\n", timeout=LIMIT_SECONDS)
    if kernel_reports():
        until(lambda: [entry.code for entry in box.keeper.entries()] == [43], "the entry")
    ended(orphan)
    killed(box.begin(STAYS, {3: box.files[3]}, adopt=True))
    until(lambda: children_of(box.keeper.process.pid) == [], "it is not reaped")
    box.keeper.acknowledge("box")


@contextlib.contextmanager
def passing(node: Node, name: str) -> Iterator[Box]:
    """A run at a keeper that ends when it has nothing to keep."""
    with contextlib.ExitStack() as stack:
        keeper = Keeper(node.directory / name, stay=False)
        stack.callback(keeper.close)
        assert keeper.connect()
        pidfd = os.pidfd_open(keeper.ask("exitd-hello").number("pid"))
        stack.callback(killed, pidfd)
        box = Box(node, keeper, node.directory / f"run-{name}")
        box.files[PIDFD] = pidfd
        yield box


def leave(box: Box) -> None:
    """From now on the keeper has no client."""
    assert box.keeper.socket is not None
    box.keeper.socket.close()


def test_an_end_of_a_strangers_child_that_cannot_be_written_down_is_tried_again(box: Box) -> None:
    if not kernel_reports():
        return
    process = stranger(box, "exit 43")
    with failing(box.node, box.keeper.process.pid, "pwrite64", "EIO") as failed:
        process.communicate(b"go\n", timeout=LIMIT_SECONDS)
        until(lambda: len(failed.times()) > 2, "the keeper tries again")
        assert not box.keeper.entries()
    until(lambda: [entry.code for entry in box.keeper.entries()] == [43], "the entry")
    box.keeper.acknowledge("box")


def test_an_end_is_known_although_the_process_leaves_while_the_kernel_is_asked(box: Box) -> None:
    """It answers ESRCH then, though it has stored the status."""
    if not kernel_reports():
        return
    process = stranger(box, "exit 43")
    with failing(box.node, box.keeper.process.pid, "ioctl", "ESRCH:when=1") as failed:
        process.communicate(b"go\n", timeout=LIMIT_SECONDS)
        until(lambda: [entry.code for entry in box.keeper.entries()] == [43], "the entry")
        assert len(failed.times()) == 1
    box.keeper.acknowledge("box")


def test_an_idle_keeper_ends_and_one_does_not_that_has_output_or_an_end_that_only_it_has(node: Node) -> None:
    with contextlib.ExitStack() as stack:
        output, end, idle = (stack.enter_context(passing(node, name)) for name in ("output", "end", "idle"))
        read, write = os.pipe()
        os.write(write, b"on its way to the log")
        ended_shim: list[tuple[str, str | int]] = [("shim", gone()), ("shim_started", 1), ("oom", "")]
        output.ask("exitd-register", *ended_shim, ("seat", 14), ("seat", 15), fds=[read, write])
        for fd in (read, write):
            os.close(fd)
        pid = end.keeper.ask("exitd-hello").number("pid")
        with failing(node, pid, "pwrite64", "EIO") as failed:
            process = stranger(end, "exit 43", gone())
            process.communicate(b"go\n", timeout=LIMIT_SECONDS)
            for box in (output, end, idle):
                leave(box)
            assert wait_readable(idle.files[PIDFD])
            assert not wait_readable(output.files[PIDFD], 0)
            assert not wait_readable(end.files[PIDFD], 0)
            assert failed.times() or not kernel_reports()
