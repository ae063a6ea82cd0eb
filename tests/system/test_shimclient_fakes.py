"""exitd over shims that are odd, each in one way that some real one is: what the ledger says is true, or unknown with
its cause, once; and nothing of them is left, whether a create came to anything or not."""

import contextlib
import os
import pathlib
import signal
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api.client import Client, Unreachable
from supervisor.cli import story
from supervisor.model.errors import ExitdError, RuntimeFailed, TimedOut
from supervisor.monitor import epoll
from tests.fakeshim.making import RUNTIME, FakeShim, make
from tests.system import execs, oracle
from tests.system.daemons import Daemon, directory, spec
from tests.system.foreign_shims import QUICK
from tests.system.lives import events, last_exit, ledger, run, types, up, word
from tests.system.processes import end_process, killed, private_kb, processes_of
from tests.system.waits import LIMIT_SECONDS, until

GROWTH_KB = 100 << 10
LIMITS = "[limits]\ncreate_seconds = {}\nruntime_seconds = 4.0\n"
# Of a shim that stands still: how long exitd goes on after SIGKILL, and with containerd's `delete`.
SHORT = {
    "supervisor.engine.ending.STUCK_SECONDS": 1.0,
    "supervisor.engine.ending.DEATH_SECONDS": 2.0,
    "supervisor.runtime.foreign_shim.detach.SILENT_SECONDS": 1.0,
}
# How long a TaskExit waits for the answer to Wait, which a busy machine may bring more than a second later.
PATIENT = {**SHORT, "supervisor.runtime.foreign_shim.verdict.EVENT_PATIENCE_SECONDS": LIMIT_SECONDS}

# What is odd, what the container does, and what is said of its end.
LIVES: list[tuple[dict[str, Any], str, tuple[str, int, str]]] = [
    ({}, "exit 7", ("exited", 7, "shimv2-wait")),
    ({"start": "json2"}, "exit 7", ("exited", 7, "shimv2-wait")),
    ({"start": "json3", "services": ("v3",)}, "exit 7", ("exited", 7, "shimv2-wait")),
    ({"start": "message", "version": "2.3.0", "stdin": "message"}, "exit 7", ("exited", 7, "shimv2-wait")),
    ({"version": "kata", "stdin": "message"}, "exit 7", ("exited", 7, "shimv2-wait")),
    ({"start": "abstract"}, "exit 7", ("exited", 7, "shimv2-wait")),
    ({"explicit_ok": True, "services": ("v2",)}, "exit 7", ("exited", 7, "shimv2-wait")),
    ({"eager": True, "log": "none"}, "exit 7", ("exited", 7, "shimv2-wait")),
    ({"one_pid": True}, "exit 7", ("exited", 7, "shimv2-wait")),
    ({"exit_events": 2}, "exit 7", ("exited", 7, "shimv2-wait")),
    ({"exit_events": 0}, "exit 7", ("exited", 7, "shimv2-wait")),
    ({"wait": "after-event"}, "exit 7", ("exited", 7, "shimv2-wait")),
    ({"wait": "late"}, "exit 7", ("exited", 7, "shimv2-wait")),
    ({"wait": "never"}, "exit 7", ("exited", 7, "shimv2-event")),
    ({"shutdown": "eof"}, "exit 7", ("exited", 7, "shimv2-wait")),
    ({"status": 255}, "exit 7", ("unknown", 255, "shimv2-wait")),
    ({}, "exit 137", ("unknown", 137, "shimv2-wait")),
    ({"refused": {"Connect": (12, "no such method")}}, "exit 7", ("exited", 7, "shimv2-wait")),
    ({"delete": "fails"}, "exit 7", ("exited", 7, "shimv2-wait")),
    ({"delete": "garbage"}, "exit 7", ("exited", 7, "shimv2-wait")),
]
# Ends with values that nothing has.
HOSTILE: list[tuple[dict[str, Any], tuple[str, int, str]]] = [
    ({"odd_events": True}, ("exited", 7, "shimv2-wait")),
    *(({"status": status}, ("unknown", 0, "shimv2-wait")) for status in (2**31, 2**32 - 1)),
    ({"status": 256}, ("unknown", 256, "shimv2-wait")),
    # A time that is none says of no end; the event does.
    *(({"at": at}, ("exited", 7, "shimv2-event")) for at in ((2**62, 0), (-(2**62), 0), (2**63 - 1, 2**31 - 1))),
    ({"at": (1, -(2**31))}, ("exited", 7, "shimv2-event")),
]
NO_PIDS = (0, 2**22 + 1, 2**31, 2**32 - 1)
# Of these no container comes.
FAILURES: list[dict[str, Any]] = [
    *({"start": start} for start in ("fails", "hangs", "garbage", "nothing", "json4", "grpc", "vsock", "late-dead")),
    *({method: ("Create",)} for method in ("never", "dies_on", "freezes_on")),
    {"refused": {"Create": (2, "no such file")}},
    {"dies_on": ("Connect",)},
    {"never": ("Create", "Delete", "Shutdown")},
    *({"start": "mute", "never": silent} for silent in ((), ("Shutdown",))),
    *({"told_pid": pid} for pid in NO_PIDS),
]


class Odd:
    """An exitd, and the fake shim on its PATH."""

    def __init__(self, base: pathlib.Path, seconds: float, limits: Mapping[str, float]) -> None:
        """`seconds`: what a create may take."""
        (base / "e").mkdir()
        (base / "f").mkdir()
        (base / "exitd.toml").write_text(LIMITS.format(seconds))
        self.fake: FakeShim = make(base / "f")
        words = (*QUICK, "--config", str(base / "exitd.toml"))
        path = f"{base}/f:{os.environ['PATH']}"
        self.daemon = Daemon(base / "e", extra=words, environment={"PATH": path}, limits=limits)

    def does(self, **how: object) -> None:
        """Its version is asked once for each state of the file."""
        self.fake.does(**how)
        os.utime(self.fake.program)

    def left(self) -> list[str]:
        """Besides what is counted everywhere."""
        sockets = [str(path) for path in self.fake.directory.iterdir() if path.is_socket()]
        return [*processes_of(self.fake.directory), *sockets]


@pytest.fixture(scope="module")
def patient() -> Iterator[Odd]:
    with running(20.0, PATIENT) as made:
        yield made


@pytest.fixture(scope="module")
def impatient() -> Iterator[Odd]:
    with running(20.0, SHORT) as made:
        yield made


@pytest.fixture
def odd(request: pytest.FixtureRequest) -> Odd:
    """The second one where the answer to Wait says nothing of the end."""
    by_event = "said" in request.fixturenames and request.getfixturevalue("said")[2] == "shimv2-event"
    made: Odd = request.getfixturevalue("impatient" if by_event else "patient")
    return made


@pytest.fixture(scope="module")
def hasty() -> Iterator[Odd]:
    """For creates of which none comes to an end."""
    with running(1.0, SHORT) as made:
        yield made


@contextlib.contextmanager
def running(seconds: float, limits: Mapping[str, float]) -> Iterator[Odd]:
    with directory() as base:
        made = Odd(base, seconds, limits)
        made.daemon.start()
        try:
            yield made
        finally:
            made.fake.does()
            made.daemon.end()
            for line in processes_of(base):
                end_process(int(line.partition(":")[0]))


def nothing_left(odd: Odd) -> None:
    oracle.nothing_left(odd.daemon)
    until(lambda: odd.left() == [], f"left: {odd.left()}")


@pytest.mark.parametrize(("how", "script", "said"), LIVES, ids=lambda each: str(each) if isinstance(each, dict) else "")
def test_an_end_under_an_odd_shim_is_true_or_unknown(
    odd: Odd, how: dict[str, Any], script: str, said: tuple[str, int, str]
) -> None:
    odd.does(**how)
    with odd.daemon.client() as client:
        id, exit_ = run(client, "sh", "-c", script, runtime=RUNTIME)
        assert (exit_.kind, exit_.code or exit_.number, exit_.source) == said
        client.remove(id, force=False)
        assert ledger(client, id) == [exit_]
        assert [event.type for event in events(client, id)].count("exit") == 1
    nothing_left(odd)


@pytest.mark.parametrize(("how", "said"), HOSTILE, ids=str)
def test_what_a_shim_reports_that_cannot_be_costs_its_container_alone(
    odd: Odd, how: dict[str, Any], said: tuple[str, int, str]
) -> None:
    odd.does()
    with odd.daemon.client() as client:
        other, memory = up(client, runtime=RUNTIME), private_kb(odd.daemon.pid)
        odd.does(**how)
        id, exit_ = run(client, "sh", "-c", "exit 7", runtime=RUNTIME)
        assert (exit_.kind, exit_.code or exit_.number, exit_.source) == said
        client.remove(id, force=False)
        assert ledger(client, id) == [exit_]
        odd.does()
        assert private_kb(odd.daemon.pid) - memory < GROWTH_KB
        client.remove(other.id, force=True)
        assert len(ledger(client, other.id)) == 1
    assert "internal error" not in odd.daemon.log.read_text()
    nothing_left(odd)


@pytest.mark.parametrize("pid", NO_PIDS)
def test_an_exec_whose_pid_cannot_be_ends_with_its_code_and_takes_signals(odd: Odd, pid: int) -> None:
    odd.does(told_exec_pid=pid)
    with odd.daemon.client() as client:
        box = up(client, runtime=RUNTIME)
        short = execs.begin(client, box.id, "sh", "-c", "exit 7")
        assert word(execs.end_of(client, box.id, short)) == "exited 7"
        long, killed = (execs.begin(client, box.id, "sleep", "1000") for _ in range(2))
        client.kill(box.id, "KILL", exec_id=killed)
        assert word(execs.end_of(client, box.id, killed)) == "unknown shim-number-only"
    odd.daemon.restart()
    with odd.daemon.client() as client:
        client.kill(box.id, "KILL", exec_id=long, everyone=True)
        assert word(execs.end_of(client, box.id, long)) == "unknown shim-number-only"
        client.remove(box.id, force=True)
    assert "internal error" not in odd.daemon.log.read_text()
    nothing_left(odd)


def test_a_memory_kill_in_a_virtual_machine_is_reported_while_its_container_lives(odd: Odd) -> None:
    """No cgroup of this host counts it: only the shim reports it. Which process it was, nobody says."""
    odd.does()
    with odd.daemon.client() as client:
        container = up(client, runtime=RUNTIME)
        for kills in (1, 2):
            os.kill(container.shim.pid, signal.SIGUSR2)
            until(lambda: types(client, container.id).count("oom") == kills, "no oom event")  # noqa: B023
        client.remove(container.id, force=True)
        told = [dict(event.attributes) for event in events(client, container.id) if event.type == "oom"]
        assert told == [{"init": "unknown", "kills": "1"}, {"init": "unknown", "kills": "2"}]
        (exit_,) = ledger(client, container.id)
        assert (exit_.oom.kills, exit_.oom.init, exit_.reason) == (2, False, "kill")
    nothing_left(odd)


def test_an_end_for_memory_in_a_virtual_machine_has_its_reason_and_is_reported_before_the_exit(odd: Odd) -> None:
    odd.does(oom_at_end=True, wait="after-event")
    with odd.daemon.client() as client:
        id, exit_ = run(client, "sh", "-c", "kill -KILL $$", runtime=RUNTIME)
        assert (word(exit_), exit_.number, exit_.reason) == ("unknown shim-number-only", 137, "oom")
        assert (exit_.oom.kills, exit_.oom.init) == (1, False)
        assert types(client, id) == ["create", "start", "oom", "exit"]
        client.remove(id, force=False)
    nothing_left(odd)


def test_the_path_of_a_shim_is_a_runtime_as_for_containerd(odd: Odd) -> None:
    odd.does()
    with odd.daemon.client() as client:
        id, exit_ = run(client, "sh", "-c", "exit 7", runtime=odd.fake.program)
        assert (word(exit_), exit_.source) == ("exited 7", "shimv2-wait")
        client.remove(id, force=False)
    nothing_left(odd)


# -- in a virtual machine


def up_and_frozen(client: Client, **fields: object) -> pb.Container:
    """Under a shim that stands still, and is known to."""
    container = up(client, runtime=RUNTIME, **fields)
    os.kill(container.shim.pid, signal.SIGSTOP)
    until(lambda: client.inspect(container.id).monitored_by == "unresponsive", "it is not shown")
    return container


def pod_of_fakes(client: Client) -> tuple[str, str]:
    """Its pause container, running, and a member, created."""
    pod = client.run_pod(spec("sleep", "1000", runtime=RUNTIME, network="none", pod=pb.PodSpec())).pause.id
    return pod, client.create(spec("sleep", "1000", runtime=RUNTIME, sandbox=pod)).id


def test_stop_ends_a_shim_that_stands_still_where_there_is_no_other_way(odd: Odd) -> None:
    odd.does()
    with odd.daemon.client() as client:
        container = up_and_frozen(client)
        client.stop(container.id, 1)
        exit_ = last_exit(client, container.id)
        assert (word(exit_), exit_.reason) == ("unknown shim-lost", "stop")
        client.remove(container.id, force=False)
    nothing_left(odd)


def test_a_pod_whose_shim_stands_still_cannot_be_ended_and_the_error_names_the_shim(odd: Odd) -> None:
    odd.does()
    with odd.daemon.client() as client:
        pod, member = pod_of_fakes(client)
        shim = client.start(member).shim.pid
        os.kill(shim, signal.SIGSTOP)
        until(lambda: client.inspect(member).monitored_by == "unresponsive", "it is not shown")
        with pytest.raises(TimedOut, match=f"kill -9 {shim}` ends it"):
            client.stop(member, 1)
        with pytest.raises(TimedOut, match=f"kill -9 {shim}` ends it"):
            client.remove_pod(pod, force=True)
        killed(shim)
        assert word(last_exit(client, member)) == "unknown shim-lost"
        client.remove_pod(pod, force=True)
    nothing_left(odd)


@pytest.mark.parametrize("way", ["created", "refused"])
def test_what_was_never_started_is_removed_and_has_no_code(odd: Odd, way: str) -> None:
    """Such a shim signals nobody in it: `Sandbox not running`."""
    odd.does(vm=True, refused={"Start": (2, "no such kernel")})
    with odd.daemon.client() as client:
        id = client.create(spec("sleep", "1000", runtime=RUNTIME)).id
        if way == "refused":
            with pytest.raises(RuntimeFailed, match="no such kernel"):
                client.start(id)
            assert word(last_exit(client, id)) == "unknown never-started"
        client.remove(id, force=way == "created")
        assert [(word(row), row.source) for row in ledger(client, id)] == [("unknown never-started", "none")]
    nothing_left(odd)


def test_a_member_that_was_never_started_does_not_block_its_pod(odd: Odd) -> None:
    odd.does(vm=True)
    with odd.daemon.client() as client:
        pod, member = pod_of_fakes(client)
        client.remove_pod(pod, force=True)
        assert [word(row) for row in ledger(client, member)] == ["unknown never-started"]
    nothing_left(odd)


def test_a_start_that_was_under_way_is_not_asked_for_again_by_the_next_daemon(odd: Odd) -> None:
    """A second one is never answered, and nothing else after it."""
    odd.does(vm=True, never=("Start",))
    with odd.daemon.client() as client, ThreadPoolExecutor(1) as pool:
        id = client.create(spec("sleep", "1000", runtime=RUNTIME)).id
        starting = pool.submit(client.start, id)
        until(lambda: client.inspect(id).phase == pb.PHASE_STARTING, "its start")
        odd.daemon.kill()
        with pytest.raises(Unreachable):
            starting.result(LIMIT_SECONDS)
    odd.does(vm=True)
    odd.daemon.start()
    with odd.daemon.client() as client:
        exit_ = last_exit(client, id)
        assert word(exit_) == "unknown never-started"
        assert "not asked for it twice" in client.inspect(id).error
        client.remove(id, force=False)
    nothing_left(odd)


def test_a_delete_that_failed_is_not_called_one_and_no_next_run_begins_beside_what_it_left(odd: Odd) -> None:
    odd.does(delete="fails")
    with odd.daemon.client() as client:
        container = up(client, runtime=RUNTIME, restart="always")
        survivor = os.pidfd_open(container.init.pid)
        killed(container.shim.pid)
        until(lambda: client.inspect(container.id).run == 2, "its next run")
        assert epoll.read_ready(survivor)
        os.close(survivor)
        assert [(word(row), row.source) for row in ledger(client, container.id)] == [
            ("unknown shim-lost-undeleted", "none")
        ]
        (told,) = [event for event in events(client, container.id) if event.type == "exit"]
        assert told.exit.cause == "shim-lost-undeleted"
        assert "the shim's delete failed" in story.of(told.exit, None, [])
        odd.does()
        client.remove(container.id, force=True)
    nothing_left(odd)


@pytest.mark.parametrize("how", FAILURES, ids=str)
def test_a_create_under_an_odd_shim_fails_and_leaves_nothing(hasty: Odd, how: dict[str, Any]) -> None:
    hasty.does(**how)
    with hasty.daemon.client() as client:
        with pytest.raises(ExitdError):
            client.create(spec("sleep", "1000", runtime=RUNTIME))
        nothing_left(hasty)
