"""Shim and keeper are killed, and stopped, at every system call of their lives, alone and in pairs. The container ends
with 43 each time: whoever says something says 43, and somebody says it as long as one witness lived.

strace does the killing (inject=CALL:signal=KILL:when=N), on the programs as they are shipped. It does not follow
children: each program is killed by its own count of calls, whatever the others do meanwhile.
"""

import contextlib
import os
import pathlib
import random
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import pytest

from shim import fields, journal, launch, native
from tests.system import keepers, lives
from tests.system.daemons import Daemon
from tests.system.keepers import Keeper, Node, Run
from tests.system.processes import empty_cgroup, open_files, wait_state
from tests.system.waits import LIMIT_SECONDS, SCALE, until, wait_readable

CODE = 43
SEED = 20_261
KILL, STOP = "KILL", "STOP"


@dataclass(frozen=True)
class Call:
    """The n-th call of one system call in a program's life."""

    name: str
    number: int

    def __str__(self) -> str:
        return f"{self.name}{self.number}"

    def inject(self, name: str) -> tuple[str, ...]:
        return ("-o", "/dev/null", "-e", f"inject={self.name}:signal={name}:when={self.number}")


def calls(trace: pathlib.Path) -> list[tuple[Call, str]]:
    """Every call in a trace, with its line. The first execve is the tracer's."""
    seen: Counter[str] = Counter()
    found = []
    for line in trace.read_text().splitlines():
        if match := re.match(r"(\w+)\(", line):
            seen[match[1]] += 1
            found.append((Call(match[1], seen[match[1]]), line))
    return found[1:]


def sampled(everything: list[Call], share: float, at_least: int) -> list[Call]:
    """All of it at full scale, else a part that is the same every time, in its order."""
    count = len(everything) if SCALE >= 1 else min(len(everything), max(at_least, int(len(everything) * share)))
    chosen = set(random.Random(SEED).sample(range(len(everything)), count))
    return [call for i, call in enumerate(everything) if i in chosen]


@pytest.fixture
def node() -> Iterator[Node]:
    """The test inherits what a dead keeper leaves and does not reap it before the verdict: so it shows, on any kernel,
    whether the status was still there to be had."""
    native.set_subreaper(True)
    try:
        with keepers.node() as made:
            yield made
    finally:
        native.set_subreaper(False)
        bury()


def bury() -> None:
    """Reaps whatever this process has inherited and has ended."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


@pytest.fixture
def bundle(node: Node) -> pathlib.Path:
    return node.bundle("/bin/sh", "-c", f"exit {CODE}")


def evidence(keeper: Keeper, run: Run) -> dict[str, int | None]:
    """What each source says about how this run ended, the ladder of the daemon from the top."""
    said: dict[str, int | None] = {}
    if (written := run.record()) is not None:
        said["record"] = written.code
    if number := run.fifo():
        said["fifo"] = int.from_bytes(number, "little")
    for entry in keeper.entries():
        if entry.id == run.id:
            assert (entry.pid, entry.started) == (run.created.pid, run.created.started)
            said["keeper"] = entry.code
    with contextlib.suppress(ProcessLookupError):
        state, _, started, wait_status = native.process_stat(run.created.pid)
        if (state, started) == ("Z", run.created.started):
            said["zombie"] = os.waitstatus_to_exitcode(wait_status)
    with contextlib.suppress(OSError):
        if (told := native.pidfd_exit_status(run.created.pidfd)) is not None:
            said["pidfd"] = os.waitstatus_to_exitcode(told)
    return said


def find_shim(run: Run) -> None:
    """The pidfd of a shim whose keeper died before it could pass it, by the lock that the shim signed."""
    signed = (run.directory / "lock").read_bytes()
    if run.shim_pidfd >= 0 or not signed:
        return
    message = fields.decode(signed, "exitd-lock")
    with contextlib.suppress(ProcessLookupError):
        pidfd = os.pidfd_open(message.number("pid"))
        if native.process_stat(message.number("pid"))[2] == message.number("started"):
            run.shim_pidfd, run.shim_pid = pidfd, message.number("pid")
        else:
            os.close(pidfd)


def make(keeper: Keeper, id: str, bundle: pathlib.Path, shim: str = "") -> Run:
    with contextlib.suppress(ConnectionError):
        # The tracer holds the output's ends as well: nobody sees them end.
        keeper.make(id, bundle, shim=shim, drain_ms=50)
    find_shim(keeper.last)
    return keeper.last


def settled(keeper: Keeper) -> bool:
    """True when the keeper lives and has looked at its children."""
    try:
        keeper.settle()
    except (ConnectionError, TimeoutError):
        keeper.process.wait(LIMIT_SECONDS)
        return False
    return True


def judge(case: str, keeper: Keeper, run: Run) -> dict[str, int | None]:
    """Nothing invented, nothing lost: who says something says 43, and a witness that lived did say it."""
    alive = settled(keeper)
    said = evidence(keeper, run)
    assert set(said.values()) <= {CODE}, (case, said)
    known_to_keeper = alive and run.created.keeper_knows
    assert not known_to_keeper or "record" in said or "keeper" in said, (case, said)
    assert said.keys() - {"pidfd"}, (case, said)
    return said


def clean(node: Node, keeper: Keeper, run: Run) -> None:
    """What the daemon does, after which nothing may be left of the run."""
    run.clean()
    bury()
    empty_cgroup(node.cgroup)
    with contextlib.suppress(ConnectionError):
        keeper.acknowledge(run.id)
        assert keeper.entries() == []
        assert keeper.ask("exitd-list", ("at", 0)).kind == "exitd-ok"


def learn_shim(node: Node, keeper: Keeper, bundle: pathlib.Path) -> tuple[list[Call], list[Call]]:
    """The calls of a shim's whole life: until it has said `created`, and from then on."""
    trace = node.directory / "trace"
    run = keeper.make("trace", bundle, shim=node.traced_shim("-o", str(trace)), drain_ms=50)
    run.start()
    assert wait_readable(run.shim_pidfd)
    found = calls(trace)
    said = next(i for i, (_, line) in enumerate(found) if line.startswith("sendmsg(3"))
    judge("trace", keeper, run)
    clean(node, keeper, run)
    return [call for call, _ in found[: said + 1]], [call for call, _ in found[said + 1 :]]


def test_a_shim_killed_at_any_call_of_its_life_loses_no_exit_and_leaves_nothing(
    node: Node, bundle: pathlib.Path
) -> None:
    keeper = node.keeper()
    before, after = learn_shim(node, keeper, bundle)
    files, results = open_files(keeper.process.pid).keys(), Counter[str]()
    for call in [*sampled(before, SCALE * 10, 40), *after]:
        run = make(keeper, str(call), bundle, node.traced_shim(*call.inject(KILL)))
        if isinstance(run.status, launch.Created):
            run.start()
            assert run.ended(), call
            assert wait_readable(run.shim_pidfd), call
            results["+".join(judge(str(call), keeper, run))] += 1
        else:
            results["not created"] += 1
        clean(node, keeper, run)
        assert open_files(keeper.process.pid).keys() == files, call
    print(dict(results))
    assert any("record" in key for key in results) and any("keeper" in key for key in results)
    keeper.close()


def test_a_shim_stopped_at_any_call_after_created_leaves_the_code_to_be_read(node: Node, bundle: pathlib.Path) -> None:
    keeper = node.keeper()
    _, after = learn_shim(node, keeper, bundle)
    results = Counter[str]()
    for call in after:
        run = make(keeper, str(call), bundle, node.traced_shim(*call.inject(STOP)))
        run.start()
        assert run.ended(), call
        wait_state(run.shim_pid, run.shim_pidfd, "Tt")
        # A traced shim stops for a moment at every call: the look may have been at one that went on.
        said = until(partial(_told, keeper, run), f"{call}: neither record nor zombie")
        assert set(said.values()) == {CODE}, (call, said)
        run.kill_shim()
        results["+".join(said) + " then " + "+".join(judge(str(call), keeper, run))] += 1
        clean(node, keeper, run)
    print(dict(results))
    assert any(key.startswith("zombie") for key in results)
    keeper.close()


def _told(keeper: Keeper, run: Run) -> dict[str, int | None]:
    """By the shim's record, or the zombie that it has not reaped; nothing else counts."""
    said = evidence(keeper, run)
    return said if said.keys() & {"record", "zombie"} else {}


def orphaned_exit(keeper: Keeper, bundle: pathlib.Path, id: str, shim: str = "") -> Run:
    """A run whose shim is killed before its container ends: the keeper's part, from spawn to reaping."""
    run = make(keeper, id, bundle, shim)
    if isinstance(run.status, launch.Created):
        run.kill_shim()
        settled(keeper)
        run.start()
        assert run.ended(), id
    return run


def learn_keeper(node: Node, bundle: pathlib.Path) -> tuple[list[Call], list[Call]]:
    """The calls of a keeper's life from the first spawn request on: until init is registered, and from then on."""
    trace = node.directory / "keeper-trace"
    keeper = node.keeper("strace", "-DDD", "-o", str(trace))
    run = orphaned_exit(keeper, bundle, "trace")
    assert "keeper" in judge("trace", keeper, run)
    clean(node, keeper, run)
    keeper.close()
    forget(node)
    found = calls(trace)
    asked = next(i for i, (_, line) in enumerate(found) if "exitd-spawn 1" in line)
    registered = next(i for i, (_, line) in enumerate(found) if "exitd-register 1" in line)
    return [call for call, _ in found[asked:registered]], [call for call, _ in found[registered:]]


def forget(node: Node) -> None:
    """A new state directory for the next keeper: what a dead one leaves is for the daemon to read, not for the test."""
    assert keepers.left_of(node.state) == []
    shutil.rmtree(node.state)


def shim_and_keeper_case(node: Node, bundle: pathlib.Path, case: str, keeper: Keeper, run: Run) -> str:
    """The end of every case in which the keeper may be dead by now."""
    created = isinstance(run.status, launch.Created)
    result = "+".join(judge(case, keeper, run)) if created else "not created"
    clean(node, keeper, run)
    keeper.close()
    forget(node)
    return result


def test_a_keeper_killed_at_any_call_since_spawn_invents_and_hides_nothing(node: Node, bundle: pathlib.Path) -> None:
    results = Counter[str]()
    early, late = learn_keeper(node, bundle)
    for call in [*early, *late]:
        keeper = node.keeper("strace", "-DDD", *call.inject(KILL))
        run = orphaned_exit(keeper, bundle, str(call))
        results[shim_and_keeper_case(node, bundle, str(call), keeper, run)] += 1
    print(dict(results))
    assert any("keeper" in key for key in results)


def test_a_shim_whose_keeper_was_killed_at_any_call_still_records_the_exit(node: Node, bundle: pathlib.Path) -> None:
    early, late = learn_keeper(node, bundle)
    for call in sampled([*early, *late], SCALE * 4, 12):
        keeper = node.keeper("strace", "-DDD", *call.inject(KILL))
        run = make(keeper, str(call), bundle)
        if isinstance(run.status, launch.Created):
            run.start()
            assert wait_readable(run.shim_pidfd)
            assert "record" in judge(str(call), keeper, run), call
        shim_and_keeper_case(node, bundle, str(call), keeper, run)


def pairs(shim: tuple[list[Call], list[Call]], keeper: tuple[list[Call], list[Call]]) -> list[tuple[Call, Call]]:
    """Which calls to kill at: all with all, or a sample in which most containers come to be created."""
    early, late = [[(a, b) for a in shim[i] for b in keeper[i]] for i in (0, 1)]
    if SCALE >= 1:
        return [(a, b) for a in shim[0] + shim[1] for b in keeper[0] + keeper[1]]
    chosen = random.Random(SEED)
    return [*chosen.sample(early, int(300 * SCALE)), *chosen.sample(late, int(1200 * SCALE))]


def test_shim_and_keeper_both_killed_leave_the_true_code_or_none(node: Node, bundle: pathlib.Path) -> None:
    keeper = node.keeper()
    shim_calls = learn_shim(node, keeper, bundle)
    keeper.close()
    forget(node)
    results = Counter[str]()
    for shim_call, keeper_call in pairs(shim_calls, learn_keeper(node, bundle)):
        case = f"{shim_call}-{keeper_call}"
        keeper = node.keeper("strace", "-DDD", *keeper_call.inject(KILL))
        run = make(keeper, case, bundle, node.traced_shim(*shim_call.inject(KILL)))
        if isinstance(run.status, launch.Created):
            run.start()
            assert run.ended(), case
            if run.shim_pidfd >= 0:
                assert wait_readable(run.shim_pidfd), case
        results[shim_and_keeper_case(node, bundle, case, keeper, run)] += 1
    print(dict(results))
    assert len(results) > 1


@pytest.mark.parametrize("restarted", [False, True], ids=["daemon lives", "daemon is away"])
def test_a_record_and_a_keepers_entry_of_one_end_are_one_exit(daemon: Daemon, restarted: bool) -> None:
    """The shim is killed between its record and its reaping: the keeper inherits the zombie and reports it too."""
    with daemon.client() as client:
        container = lives.up(client, "sh", "-c", "until [ -e /tmp/exitd-test-go ]; do sleep 0.01; done; exit 43")
    inject = ("-e", "trace=waitid", "-e", "inject=waitid:signal=KILL:when=2")
    tracer = subprocess.Popen(
        ["strace", "-p", str(container.shim.pid), "-o", "/dev/null", *inject], stderr=subprocess.PIPE, text=True
    )
    assert tracer.stderr is not None and "attached" in tracer.stderr.readline()
    if restarted:
        daemon.kill()
    pathlib.Path(f"/proc/{container.init.pid}/root/tmp/exitd-test-go").touch()
    tracer.communicate(timeout=LIMIT_SECONDS)
    if restarted:
        until(lambda: container.id in journalled(daemon), "the keeper's entry")
        daemon.start()
    with daemon.client() as again:
        exit_ = lives.last_exit(again, container.id)
        assert (lives.word(exit_), exit_.source) == ("exited 43", "record")
        again.remove(container.id, force=False)
        until(lambda: container.id not in journalled(daemon), "the keeper's entry, acknowledged")
        assert [lives.word(e) for e in lives.ledger(again, container.id)] == ["exited 43"]
        assert lives.types(again, container.id) == ["create", "start", "exit", "remove"]


def journalled(daemon: Daemon) -> list[str]:
    return [
        entry.id for path in daemon.state.glob("keeper-*.journal") for entry in journal.read(path.read_bytes()).entries
    ]
