"""Crowds that cost other engines an exit: execs by the hundred over the end of init, and a shim that may not fork."""

import os
import pathlib
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api.client import Client
from supervisor.model.errors import ExitdError
from supervisor.runtime.oci import cgroups
from tests.system.containerd.server import EXITD, Containerd
from tests.system.daemons import Daemon, remove_all
from tests.system.execs import begin
from tests.system.lives import last_exit, up, word
from tests.system.waits import LIMIT_SECONDS, scaled, until

AT_ONCE = scaled(500, least=20)


@pytest.fixture
def client(daemon: Daemon) -> Iterator[Client]:
    with daemon.client() as made:
        yield made
        remove_all(made)


def test_an_init_killed_among_hundreds_of_execs_has_one_exit_and_so_has_each_of_them(client: Client) -> None:
    box = up(client)

    def asked(_: int) -> str:
        try:
            return begin(client, box.id, "sleep", "1000")
        except ExitdError:
            return ""  # refused: init has ended

    with ThreadPoolExecutor(AT_ONCE) as pool:
        execs = [pool.submit(asked, number) for number in range(AT_ONCE)]
        until(lambda: client.inspect(box.id).execs, "no exec has begun")
        os.kill(box.init.pid, signal.SIGKILL)
        begun = {each.result(LIMIT_SECONDS * 2) for each in execs} - {""}
    assert word(last_exit(client, box.id)) == "signaled 9"
    until(lambda: begun <= {row.exec_id for row in ledger_of_all(client, box.id)}, "the end of an exec is not told")
    rows = ledger_of_all(client, box.id)
    assert len({row.exec_id for row in rows}) == len(rows)
    assert client.inspect(box.id).phase == pb.PHASE_EXITED


def ledger_of_all(client: Client, id: str) -> list[pb.Exit]:
    """Of the container and its execs."""
    return list(client.exits(pb.ExitsRequest(id=id)))


def test_an_init_killed_among_many_execs_over_the_relay_has_one_exit_event(containerd: Containerd) -> None:
    box = containerd.box(EXITD, "crowd").started("--null-io", "--", "sleep", "1000")
    with containerd.events() as events:
        asking = [containerd.begin(*box.exec_words(f"e{number}", "--", "sleep", "1000")) for number in range(10)]
        events.wait(box.id, "/tasks/exec-started")
        os.kill(box.pid, signal.SIGKILL)
        for each in asking:
            each.communicate(timeout=LIMIT_SECONDS * 2)
        box.until("STOPPED")
        box.end()
        told = events.settled().wait(box.id, "/tasks/delete")
    exits = [event.fields for event in told if event.topic == "/tasks/exit" and event.fields.get("id") == box.id]
    assert [fields["exit_status"] for fields in exits] == [137]


def test_relays_that_may_not_fork_report_every_end(containerd: Containerd) -> None:
    """Fifty containers, ten to a relay."""
    groups = [f"forkless-{number}" for number in range(5)]
    containerd.keys.update(groups)
    flags = [("--null-io", "--annotation", f"io.containerd.runc.v2.group={group}") for group in groups]
    firsts = [(containerd.box(EXITD, "forkless"), flag) for flag in flags]
    for box, flag in firsts:  # the first of each group begins the relay
        box.started(*flag, "--", "sleep", "1000")
    more = [(containerd.box(EXITD, "forkless"), flag) for flag in flags for _ in range(9)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda each: each[0].started(*each[1], "--", "sleep", "1000"), more))
    boxes = [box for box, _ in [*firsts, *more]]
    top = pathlib.Path(cgroups.paths(f"/exitd-forkless-{os.getpid()}")["pids"])
    top.mkdir()
    try:
        relays = containerd.shims()
        assert len(relays) == len(groups)
        for relay in relays:
            (top / "cgroup.procs").write_text(str(relay))
        (top / "pids.max").write_text("0")
        with containerd.events() as events:
            for box in boxes:
                os.kill(box.pid, signal.SIGKILL)
            for box in boxes:
                told = events.wait(box.id, "/tasks/exit")
                exits = [
                    each.fields for each in told if each.topic == "/tasks/exit" and each.fields.get("id") == box.id
                ]
                assert [fields["exit_status"] for fields in exits] == [137]
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda box: box.end(), boxes))
        containerd.left_is()
    finally:
        until(lambda: not (top / "cgroup.procs").read_text(), "a relay stays")
        top.rmdir()
