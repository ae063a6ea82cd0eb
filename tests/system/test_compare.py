"""`exitctl compare` as a person runs it: on every way there is, with a way that breaks, and interrupted."""

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from supervisor.compare.facts import CompareReport, decode
from supervisor.compare.machine import cgroup_of
from tests.system.processes import commands

LIMIT_SECONDS = 240
TINY = ("--quick", "--pods", "1", "--containers", "1", "--rounds", "1")
SIZES = (0, 1)
VERDICTS = {"right", "unknown", "wrong", "lost"}
MUST = {"exitd-runc", "exitd-crun", "exitd-shimv2", "containerd-runc", "containerd-exitd"}
EXITDS = {"exitd-runc", "exitd-crun", "exitd-shimv2"}
NATIVE = {"daemon", "shim", "keeper"}
VICTIMS = {
    "exitd-runc": NATIVE,
    "exitd-crun": NATIVE,
    "exitd-shimv2": {"daemon", "shim"},
    "containerd-runc": {"containerd", "shim"},
    "containerd-exitd": {"containerd", "relay", *NATIVE},
    "conmon": {"conmon"},
    "podman": {"conmon"},
}
HAS_NO_DAEMON = {"conmon", "podman"}


@dataclass
class Comparison:
    """One run, and what it may not leave."""

    place: pathlib.Path
    process: "subprocess.Popen[str]"
    said: list[str] = field(default_factory=list)

    def lines(self) -> Iterator[str]:
        """What it says while it goes on."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said.append(line)
            yield line

    def until_it_says(self, words: str) -> None:
        assert any(line.startswith(words) for line in self.lines()), self.said

    def worker(self) -> int:
        """The process that measures."""
        pid = self.process.pid
        return int(pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])

    def ended(self) -> int:
        list(self.lines())
        return self.process.wait(LIMIT_SECONDS)

    def report(self) -> CompareReport:
        return decode((self.place / "report.json").read_text())

    def own(self) -> list[tuple[int, str]]:
        """pid and command line of whoever names one of its directories."""
        name = f"/xc{self.process.pid}-".encode()
        return [(pid, line.decode(errors="replace")) for pid, line in commands() if name in line]


@pytest.fixture
def begun() -> Iterator[contextlib.ExitStack]:
    with contextlib.ExitStack() as stack:
        yield stack


def begin(stack: contextlib.ExitStack, place: pathlib.Path, *words: str) -> Comparison:
    command = [sys.executable, "-m", "supervisor.cli", "compare", *TINY, *words, "--json", f"{place}/report.json"]
    with (place / "table").open("w") as table:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=table,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "TMPDIR": str(place)},
        )
    limit = threading.Timer(LIMIT_SECONDS, process.terminate)
    limit.start()
    stack.callback(limit.cancel)
    stack.callback(process.communicate)
    stack.callback(process.terminate)
    return Comparison(place, process)


def nothing_is_left(comparison: Comparison, worker: int) -> None:
    assert comparison.own() == []
    name = f"xc{comparison.process.pid}-"
    assert [
        left for path in ("/run", "/dev/shm", comparison.place) for left in pathlib.Path(path).glob(f"{name}*")
    ] == []
    assert name not in pathlib.Path("/proc/self/mountinfo").read_text()
    assert list(pathlib.Path("/sys/fs/cgroup").glob(f"*{cgroup_of(worker)}")) == []


def test_every_way_that_is_here_is_measured_and_nothing_is_left(
    begun: contextlib.ExitStack, tmp_path: pathlib.Path
) -> None:
    comparison = begin(begun, tmp_path, "--out", f"{tmp_path}/out", "--picture", f"{tmp_path}/picture.svg")
    comparison.until_it_says("memory")
    worker = comparison.worker()
    assert comparison.ended() == 0, comparison.said
    nothing_is_left(comparison, worker)
    assert not [line for line in comparison.said if "was left" in line]
    report = comparison.report()
    assert decode((tmp_path / "out/report.json").read_text()) == report
    assert (tmp_path / "out/report.html").exists() and (tmp_path / "picture.svg").exists()
    here = {way.key for way in report.ways if not way.why_not}
    assert here >= MUST, [way for way in report.ways if way.why_not]
    assert {(one.way, one.members) for one in report.memory} == {(way, size) for way in here for size in SIZES}
    assert all(one.processes >= 1 and min(one.private_kb) > 0 for one in report.memory)
    assert all(pss >= private for one in report.memory for private, pss in zip(one.private_kb, one.pss_kb, strict=True))
    assert {(one.way, one.what, one.load) for one in report.latencies} == {
        (way, what, load) for way in here for what in ("start", "exit") for load in ("idle", "busy")
    }
    assert all(value > 0 for one in report.latencies for value in one.ms)
    assert {one.way: [len(ms) for ms in one.rounds_ms] for one in report.storms} == {way: [1] for way in here}
    assert {one.way for one in report.restarts} == here - HAS_NO_DAEMON
    for one in report.restarts:
        assert (one.live, one.ended, one.right + one.unknown + one.wrong + one.lost) == (1, 1, 1)
    faults_are_true(report, here)


def faults_are_true(report: CompareReport, here: set[str]) -> None:
    """exitd makes no exit up, whoever is killed or stopped."""
    assert {(one.way, one.victim, one.act) for one in report.faults} == {
        (way, victim, act) for way in here for victim in VICTIMS[way] for act in ("kill", "stop")
    }
    assert {one.truth for one in report.faults} == {"exited 43"}
    assert {one.verdict for one in report.faults} <= VERDICTS
    assert {one.verdict for one in report.faults if one.way in EXITDS} <= {"right", "unknown"}
    assert {one.verdict for one in report.faults if one.way == "containerd-exitd"} <= {"right", "unknown", "lost"}


def test_a_way_that_breaks_says_so_and_the_others_go_on(begun: contextlib.ExitStack, tmp_path: pathlib.Path) -> None:
    comparison = begin(begun, tmp_path, "--way", "exitd-runc", "--way", "containerd-runc")
    comparison.until_it_says("memory")
    worker = comparison.worker()
    (victim,) = [pid for pid, line in comparison.own() if line.startswith("containerd\0")]
    os.kill(victim, signal.SIGKILL)
    assert comparison.ended() == 0, comparison.said
    report = comparison.report()
    assert {way.key: bool(way.why_not) for way in report.ways} == {"exitd-runc": False, "containerd-runc": True}
    for figures in (report.memory, report.latencies, report.storms, report.restarts, report.faults):
        assert {one.way for one in figures} == {"exitd-runc"}
    nothing_is_left(comparison, worker)


def test_an_interrupted_comparison_leaves_nothing(begun: contextlib.ExitStack, tmp_path: pathlib.Path) -> None:
    comparison = begin(begun, tmp_path, "--way", "containerd-exitd")
    comparison.until_it_says("latencies, busy")
    worker = comparison.worker()
    comparison.process.send_signal(signal.SIGINT)
    assert comparison.ended() == 130, comparison.said
    nothing_is_left(comparison, worker)
    assert not (tmp_path / "report.json").exists()


def test_what_a_killed_measurement_leaves_is_ended_and_removed(
    begun: contextlib.ExitStack, tmp_path: pathlib.Path
) -> None:
    comparison = begin(begun, tmp_path, "--way", "exitd-runc", "--way", "containerd-runc")
    comparison.until_it_says("memory")
    worker = comparison.worker()
    os.kill(worker, signal.SIGKILL)
    assert comparison.ended() == 125
    assert comparison.said[-1] == "exitctl: the process that measures ended with 137\n"
    nothing_is_left(comparison, worker)
