"""exitd over shims that are odd, each in one way that some real one is: what the ledger says is true, or unknown with
its cause, once; and nothing of them is left, whether a create came to anything or not."""

import os
import pathlib
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from supervisor.errors import ExitdError
from tests.fakeshim.making import RUNTIME, FakeShim, make
from tests.system import oracle
from tests.system.daemonrig import Daemon, spec, until
from tests.system.lives import directory, events, ledger, run, types, up, word
from tests.system.shimclientrig import QUICK
from tests.system.shimrig import end_process, processes_of

LIMITS = "[limits]\ncreate_seconds = 2.0\nruntime_seconds = 2.0\n"

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
# Of these no container comes.
FAILURES: list[dict[str, Any]] = [
    *({"start": start} for start in ("fails", "hangs", "garbage", "nothing", "json4", "grpc", "vsock", "late-dead")),
    *({method: ("Create",)} for method in ("never", "dies_on", "freezes_on")),
    {"refused": {"Create": (2, "no such file")}},
    {"dies_on": ("Connect",)},
    {"never": ("Create", "Delete", "Shutdown")},
]


class Odd:
    """An exitd, and the fake shim on its PATH."""

    def __init__(self, base: pathlib.Path) -> None:
        (base / "e").mkdir()
        (base / "f").mkdir()
        (base / "exitd.toml").write_text(LIMITS)
        self.fake: FakeShim = make(base / "f")
        words = (*QUICK, "--config", str(base / "exitd.toml"))
        self.daemon = Daemon(base / "e", extra=words, environment={"PATH": f"{base}/f:{os.environ['PATH']}"})

    def does(self, **how: object) -> None:
        """Its version is asked once for each state of the file."""
        self.fake.does(**how)
        os.utime(self.fake.program)

    def left(self) -> list[str]:
        """Besides what is counted everywhere."""
        sockets = [str(path) for path in self.fake.directory.iterdir() if path.is_socket()]
        return [*processes_of(self.fake.directory), *sockets]


@pytest.fixture(scope="module")
def odd() -> Iterator[Odd]:
    with directory() as base:
        made = Odd(base)
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


def test_a_memory_kill_in_a_virtual_machine_is_told_while_its_container_lives(odd: Odd) -> None:
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


def test_an_end_for_memory_in_a_virtual_machine_has_its_reason_and_is_told_before_the_exit(odd: Odd) -> None:
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


@pytest.mark.parametrize("how", FAILURES, ids=str)
def test_a_create_under_an_odd_shim_fails_and_leaves_nothing(odd: Odd, how: dict[str, Any]) -> None:
    odd.does(**how)
    with odd.daemon.client() as client:
        with pytest.raises(ExitdError):
            client.create(spec("sleep", "1000", runtime=RUNTIME))
        nothing_left(odd)
