"""Stop, kill, pause and rm: who asked is in the exit, and every state has its answer."""

import os
import pathlib
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api.client import Client
from supervisor.model.errors import BadRequest, NoSuchContainer, WrongState
from tests.system import lives, tinyroot
from tests.system.daemons import spec
from tests.system.lives import last_exit, ledger, types, word
from tests.system.waits import LIMIT_SECONDS, until

HARMLESS = {"SIGCHLD", "SIGCONT", "SIGURG", "SIGWINCH", "SIGSTOP", "SIGTSTP", "SIGTTIN", "SIGTTOU"}
DEADLY = [number.name for number in signal.Signals if number.name not in HARMLESS]
READY = "/tmp/ready"
OBEDIENT = f"trap 'exit 4' TERM; trap 'exit 5' USR1; : >{READY}; while :; do sleep 0.05; done"
STUBBORN = f"trap '' TERM; : >{READY}; while :; do sleep 0.05; done"


def ready(client: Client, script: str, **fields: object) -> str:
    """A container whose traps are set."""
    container = lives.up(client, "sh", "-c", script, **fields)
    until(lambda: os.path.exists(f"/proc/{container.init.pid}/root{READY}"), "its traps")
    return container.id


def is_mine(exit_: pb.Exit, reason: str) -> bool:
    return (exit_.reason, exit_.by.uid, exit_.by.pid) == (reason, os.getuid(), os.getpid())


def test_a_stop_that_is_obeyed_gives_the_containers_own_code_and_says_who_asked(client: Client) -> None:
    container = ready(client, OBEDIENT)
    client.stop(container, 30)
    exit_ = last_exit(client, container)
    assert word(exit_) == "exited 4" and is_mine(exit_, "stop")


def test_a_stop_that_is_not_obeyed_becomes_sigkill_after_the_grace_and_is_still_a_stop(client: Client) -> None:
    container = ready(client, STUBBORN)
    client.stop(container, 1)
    exit_ = last_exit(client, container)
    assert word(exit_) == "signaled 9" and is_mine(exit_, "stop")
    assert types(client, container) == ["create", "start", "stop", "stop", "exit"]


def test_a_stop_uses_the_containers_own_signal_and_grace(client: Client) -> None:
    container = ready(client, OBEDIENT, stop_signal="USR1", stop_timeout_seconds=60)
    client.stop(container, None)
    assert word(last_exit(client, container)) == "exited 5"
    container = ready(client, STUBBORN, stop_timeout_seconds=0)
    client.stop(container, None)
    assert word(last_exit(client, container)) == "signaled 9"


def test_a_stop_of_a_created_container_ends_it_at_once(client: Client) -> None:
    container = client.create(spec("true")).id
    client.stop(container, 60)
    exit_ = last_exit(client, container)
    assert word(exit_) == "unknown never-started" and is_mine(exit_, "stop") and not exit_.HasField("started_at")


def test_a_stop_of_a_paused_container_ends_it_at_once(client: Client) -> None:
    container = ready(client, OBEDIENT)
    client.pause(container)
    assert client.inspect(container).phase == pb.PHASE_PAUSED
    client.stop(container, 60)
    assert is_mine(last_exit(client, container), "stop")


def test_a_stop_of_an_ended_container_is_no_error_and_no_event(client: Client) -> None:
    container, _ = lives.run(client, "true")
    client.stop(container, 5)
    assert types(client, container) == ["create", "start", "exit"]


def test_a_paused_container_goes_on_where_it_was(client: Client) -> None:
    container = ready(client, OBEDIENT)
    client.pause(container)
    with pytest.raises(WrongState, match="is paused, not running"):
        client.pause(container)
    client.kill(container, "TERM")
    client.resume(container)
    assert word(last_exit(client, container)) == "exited 4"  # what was sent meanwhile is heard afterwards
    with pytest.raises(WrongState, match="not paused"):
        client.resume(container)
    assert types(client, container) == ["create", "start", "pause", "kill", "resume", "exit"]


@pytest.mark.parametrize("step", ["created", "running", "paused"])
def test_a_kill_ends_a_container_in_every_state_and_says_who_sent_it(client: Client, step: str) -> None:
    container = client.create(spec("sleep", "1000")).id
    if step != "created":
        client.start(container)
    if step == "paused":
        client.pause(container)
    client.kill(container, "")
    exit_ = last_exit(client, container)
    assert word(exit_) == ("signaled 9" if step != "created" else "unknown never-started") and is_mine(exit_, "kill")
    with pytest.raises(WrongState, match="is exited"):
        client.kill(container, "KILL")


def test_every_deadly_signal_is_reported_as_what_it_is(client: Client, tmp_path: pathlib.Path) -> None:
    """In the host's pid namespace: in one of its own an init is deaf to all but SIGKILL."""
    bundle = tinyroot.bundle(tmp_path, ["sleep", "1000"], "", host_pids=True)

    def one(name: str) -> tuple[str, str, str]:
        started = client.start(client.create(pb.ContainerSpec(bundle=str(bundle))).id)
        container, name_of_init = started.id, pathlib.Path(f"/proc/{started.init.pid}/comm")
        # The runtime's last step has handlers of its own; its program's path does not always tell it apart.
        until(lambda: name_of_init.read_text() == "sleep\n", "the program")
        client.kill(container, name)
        exit_ = last_exit(client, container)
        return word(exit_), exit_.source, exit_.reason

    with ThreadPoolExecutor(10) as pool:
        found = list(pool.map(one, DEADLY))
    assert found == [(f"signaled {getattr(signal, name):d}", "record", "kill") for name in DEADLY]


@pytest.mark.parametrize("text", ["TERM", "term", "SIGTERM", "15"])
def test_a_signal_has_many_spellings(client: Client, text: str) -> None:
    container = ready(client, OBEDIENT)
    client.kill(container, text)
    exit_ = last_exit(client, container)
    assert word(exit_) == "exited 4" and is_mine(exit_, "kill")


@pytest.mark.parametrize("text", ["0", "65", "-9", "NOPE", "SIGSIGTERM", "9 9"])
def test_what_is_no_signal_is_refused_and_sent_to_nobody(client: Client, text: str) -> None:
    container = lives.up(client).id
    with pytest.raises(BadRequest, match="signal"):
        client.kill(container, text)
    assert client.inspect(container).phase == pb.PHASE_RUNNING


def test_a_kill_of_all_reaches_every_process(client: Client) -> None:
    script = f"trap '' USR1; (trap 'exit 0' USR1; : >{READY}; while :; do sleep 0.05; done); exit 6"
    container = ready(client, script)
    client.kill(container, "USR1", everyone=True)
    assert word(last_exit(client, container)) == "exited 6"


def test_a_running_container_is_removed_only_by_force(client: Client) -> None:
    container = lives.up(client).id
    with pytest.raises(WrongState, match="is running; stop it first, or use force"):
        client.remove(container, force=False)
    client.pause(container)
    with pytest.raises(WrongState, match="is paused"):
        client.remove(container, force=False)
    client.remove(container, force=True)
    with pytest.raises(NoSuchContainer):
        client.inspect(container)
    (exit_,) = ledger(client, container)
    assert word(exit_) == "signaled 9" and is_mine(exit_, "kill")


def test_what_does_not_exist_is_said_so_at_once_by_every_call(client: Client) -> None:
    for call in (
        lambda: client.start("nobody"),
        lambda: client.stop("nobody", 5),
        lambda: client.kill("nobody", "KILL"),
        lambda: client.pause("nobody"),
        lambda: client.resume("nobody"),
        lambda: client.remove("nobody", force=False),
        lambda: client.remove("nobody", force=True),
        lambda: client.inspect("nobody"),
        lambda: client.begin_wait("nobody").result(LIMIT_SECONDS),
    ):
        with pytest.raises(NoSuchContainer, match="nobody"):
            call()


def test_a_restart_is_a_stop_and_a_start(client: Client) -> None:
    container = ready(client, OBEDIENT)
    client.restart(container, 30)
    assert client.inspect(container).run == 2
    assert [(e.run, word(e), e.reason) for e in ledger(client, container)] == [(1, "exited 4", "stop")]
    client.stop(container, 0)
    client.restart(container, 0)
    assert client.inspect(container).run == 3


def test_a_signal_that_did_not_end_it_is_not_blamed_for_a_later_end(client: Client) -> None:
    script = f"trap : USR1; : >{READY}; until [ -e {READY}.go ]; do sleep 0.01; done; exit 3"
    container = ready(client, script)
    client.kill(container, "USR1")
    pathlib.Path(f"/proc/{client.inspect(container).init.pid}/root{READY}.go").touch()
    exit_ = last_exit(client, container)
    assert (word(exit_), exit_.reason) == ("exited 3", "self")


def test_two_stops_at_once_are_both_answered(client: Client) -> None:
    container = ready(client, STUBBORN)
    with ThreadPoolExecutor(2) as pool:
        for result in [pool.submit(client.stop, container, grace) for grace in (1, 2)]:
            result.result(LIMIT_SECONDS)
    assert last_exit(client, container).reason == "stop"
    assert len(ledger(client, container)) == 1
