"""An exec that containerd's client asks for, while exitd, its shim, the keeper, the relay or the runtime is killed:
before its program begins, when it has begun and the runtime has not returned, when it has ended by then, and while it
runs. The program notes that it begins and how it ends; exitd's ledger, containerd's event and the client's answer are
compared with that."""

import pathlib
import subprocess
from collections import Counter
from dataclasses import dataclass

import pytest

from protos.exitd.v1 import exitd_pb2 as pb
from tests.system.containerd.events import Event, Recorder
from tests.system.containerd.server import EXITD, Box, Containerd
from tests.system.execs import exec_directories, shims_of
from tests.system.kill_matrix.table import Case, cases
from tests.system.kill_matrix.tasklife import ledger
from tests.system.oracle import BY_KERNEL
from tests.system.processes import cgroup_pids, commands, end_process
from tests.system.runtimes import Gates, gated
from tests.system.waits import LIMIT_SECONDS, until

CODE, UNKNOWN, KILLED = 43, 255, 9
SCRIPT = f"""set -- "$1" $(cat /proc/$$/stat)
ticks=${{23}}
echo "$ticks begun" >>/mnt/truth
eval "$1"
echo "$ticks {CODE}" >>/mnt/truth
exit {CODE}"""
AT_ONCE, WHEN_TOLD = ":", "until [ -e /mnt/go ]; do sleep 0.02; done"


@dataclass
class Play:
    """One task, one exec of it, and who is killed when."""

    box: Box
    gates: Gates
    case: Case

    @property
    def place(self) -> pathlib.Path:
        return self.box.containerd.base / f"go-{self.box.id}"

    def truth(self) -> dict[int, int | None]:
        """By start time: the code, None before the end."""
        path, found = self.place / "truth", dict[int, int | None]()
        for line in path.read_text().splitlines() if path.exists() else ():
            ticks, word = line.split()
            found[int(ticks)] = None if word == "begun" else int(word)
        return found

    def begun(self) -> "Play":
        self.place.mkdir()
        mount = ("--mount", f"type=bind,src={self.place},dst=/mnt,options=rbind")
        self.box.started("--null-io", *self.gates.flags(), *mount, "--", "sleep", "1000")
        return self

    def make_and_kill(self) -> "subprocess.Popen[bytes]":
        """The client's command, which waits for the exec's end."""
        daemon = self.box.containerd.with_exitd()
        gate = {"before": "exec.before", "runs": ""}.get(self.case.moment, "exec.after")
        if gate:
            self.gates.close(gate)
        what = AT_ONCE if self.case.moment == "ended" else WHEN_TOLD
        asked = self.box.containerd.begin(*self.box.exec_words("e", "--", "sh", "-c", SCRIPT, "sh", what))
        runtime = self.gates.reached(gate) if gate else 0
        if self.case.moment != "before":
            until(self.truth, f"{self}: the program does not begin")
        if self.case.moment == "ended":
            until(lambda: list(self.truth().values()) == [CODE], f"{self}: the program does not end")
        (directory,) = exec_directories(daemon)
        if self.case.moment == "runs":
            until(lambda: (directory / "created").exists(), f"{self}: it is not made")
        (shim,) = shims_of(daemon, directory.name)
        (relay,) = self.box.containerd.shims(self.box.id)
        victims = {"runtime": runtime, "relay": relay, "shim": shim}
        if "exitd" in self.case.victims:
            daemon.kill()  # before it can see the others die
        if "keeper" in self.case.victims:
            end_process(until(daemon.keeper_pid, "there is no keeper"))
        for name in victims.keys() & set(self.case.victims):
            end_process(victims[name])
        self.gates.open()
        if "exitd" in self.case.victims:
            daemon.start()
        (self.place / "go").touch()
        return asked

    def nothing_runs(self) -> None:
        """Wait for whoever could begin the program yet, and for the program: the truth is all of it from then on."""
        containerd, state = self.box.containerd, str(self.box.containerd.with_exitd().state).encode()

        def makers() -> list[int]:
            return [pid for pid, words in commands() if b"\0exec\0" in words and state in words]

        until(lambda: not makers(), f"{self}: a runtime is still there")
        alone = 0 if self.case.victim == "relay" else 1  # the task's init
        until(lambda: len(cgroup_pids(containerd.cgroup)) == alone, f"{self}: the program is still there")

    def judge(self, returned: int, said: str, events: list[Event], rows: list[pb.Exit]) -> str:
        """Wrong is what the program did not do, and whatever comes twice. In a word, how it ended."""
        about = f"{self}: {returned} {said!r}, {[event.fields for event in events]}, {rows}, {self.truth()}"
        truth = self.truth()
        assert len(truth) <= 1 and len(rows) <= 1 and len(events) <= len(rows), about
        if not truth:
            unsure = self.case.victim == "keeper+shim"  # nobody is left who knows whether it began
            assert all(row.kind == "unknown" and (unsure or row.cause == "never-started") for row in rows), about
            assert {event.fields["exit_status"] for event in events} <= {UNKNOWN}, about
            assert returned not in (0, CODE), about
            return "failed"
        assert rows, about  # it began: its end has a row, whoever was killed
        (row,), ((ticks, code),) = rows, truth.items()
        assert not row.HasField("init") or row.init.started_ticks == ticks, about
        if row.kind == "exited":
            assert row.code == code == CODE, about
        elif row.kind == "signaled":
            assert (self.case.victim, row.signal) == ("relay", KILLED) and code in (None, CODE), (
                about
            )  # noted, then killed
        else:
            unnamed = not row.HasField("init")  # it began, and who knew its pid was killed before exitd did
            assert row.cause and self.case.victim == "keeper+shim", about
            assert unnamed or f"{row.kind} by {row.source}" in BY_KERNEL, about
        number = {"exited": row.code, "signaled": 128 + row.signal}.get(row.kind, UNKNOWN)
        if self.case.victim != "relay":  # whose tasks containerd has given up: it says no more of their execs
            assert [event.fields["exit_status"] for event in events] == [number] and returned == number, about
        return row.kind

    def __str__(self) -> str:
        return str(self.case)


def ends_of_exec(events: list[Event]) -> list[Event]:
    return [event for event in events if event.topic == "/tasks/exit" and event.fields.get("id") == "e"]


def how_it_ends(play: Play, events: Recorder) -> str:
    """The whole case, with its task removed in the end."""
    containerd, daemon, box = play.box.containerd, play.box.containerd.with_exitd(), play.box
    asked = play.begun().make_and_kill()
    _, said = asked.communicate(timeout=LIMIT_SECONDS)
    until(lambda: not exec_directories(daemon), f"{play}: its exec is not cleaned up")
    play.nothing_runs()
    rows = ledger(box, execs=True)
    if play.case.victim != "relay" and rows and play.truth():
        until(lambda: ends_of_exec(events.of(box.id)), f"{play}: containerd does not tell of its end")
    told = ends_of_exec(events.settled().of(box.id))
    word = play.judge(asked.returncode, said.decode(), told, rows)
    if play.case.victim != "relay":
        box.end()
    else:
        until(lambda: not containerd.wanted("task", "ls", "-q"), f"{play}: the task is not given up")
        containerd.wanted("container", "rm", box.id)
    return word


@pytest.mark.timeout(1200)
def test_whoever_is_killed_while_containerds_exec_is_made_or_runs_its_end_is_reported_once_and_as_it_was(
    containerd: Containerd,
) -> None:
    ends = Counter[str]()
    tried = cases("task, its exec's makers") + cases("task, its exec's runtime")
    for case in tried:
        with gated(containerd.with_exitd()) as gates, containerd.events() as events:
            ends[how_it_ends(Play(containerd.box(EXITD, "exec"), gates, case), events)] += 1
    containerd.left_is()
    print(ends)
    assert ends["exited"] >= len(tried) // 4
