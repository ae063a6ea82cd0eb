"""The benchmark works. What it measures is for people to judge, never for a test."""

import json
import pathlib
import shutil
import subprocess
import sys
from typing import Any

import pytest

from bench.figures import Figure

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
LIMIT_SECONDS = 120
PEERS = frozenset({"podman", "containerd"})
EXECS = {"podman exec": "podman", "ctr task exec": "containerd"}
TASK_UNITS = {
    "task-memory": {"kB"},
    "task-run": {"ms", "x"},
    "task-exec": {"ms", "x"},
    "exec-sync": {"ms", "x"},
    "task-event": {"ms", "x"},
    "task-wait": {"ms"},
    "task-pods": {"s", "x"},
}
STREAM_UNITS = {"log-throughput": {"MB/s", "ms"}, "echo": {"ms"}, "stream-memory": {"kB"}, "exec": {"ms"}}


def bench(out: pathlib.Path, *rows: str) -> "subprocess.CompletedProcess[str]":
    only = [word for row in rows for word in ("--only", row)]
    command = [sys.executable, "-m", "bench", "--quick", *only, "--out", str(out)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_SECONDS)
    assert done.returncode == 0, done.stderr
    return done


def test_a_quick_bench_prints_its_row_and_writes_its_samples(tmp_path: pathlib.Path) -> None:
    done = bench(tmp_path, "shim-memory")
    (row,) = [line for line in done.stdout.splitlines() if line.startswith("shim-memory") and " exitd " in line]
    assert " kB " in row
    results = json.loads((tmp_path / "results.json").read_text())
    (figure,) = [figure for figure in results["figures"] if figure["who"] == "exitd"]
    assert len(figure["values"]) == 3
    assert row in done.stdout and "exitd" in (tmp_path / "figures.md").read_text()
    assert results["machine"]["state directory on"] in done.stdout


def test_pods_are_made_by_everybody_who_is_here_and_compared_with_bare_runc(tmp_path: pathlib.Path) -> None:
    said = bench(tmp_path, "pod-create", "pod-memory").stderr
    figures: list[dict[str, Any]] = json.loads((tmp_path / "results.json").read_text())["figures"]
    here = {peer for peer in PEERS if shutil.which(peer)}
    assert {peer for peer in PEERS if f"{peer} is not installed" in said} == PEERS - here
    seconds = {each["who"]: each["median"] for each in figures if each["unit"] == "s"}
    over = {each["who"]: each["median"] for each in figures if each["unit"] == "x"}
    memory = {each["who"]: each["values"] for each in figures if each["unit"] == "kB"}
    assert seconds.keys() == {"exitd", "bare runc", *here}
    assert over == {who: seconds[who] / seconds["bare runc"] for who in ("exitd", *here)}
    assert memory.keys() == {"exitd", *here}
    assert {len(values) for values in memory.values()} == {2}
    assert "something is still mounted" not in said


def test_streams_are_measured_of_exitd_and_of_everybody_who_is_here(tmp_path: pathlib.Path) -> None:
    said = bench(tmp_path, *STREAM_UNITS).stderr
    figures: list[dict[str, Any]] = json.loads((tmp_path / "results.json").read_text())["figures"]
    who = {row: {each["who"] for each in figures if each["row"] == row and each["unit"] != "x"} for row in STREAM_UNITS}
    units = {row: {each["unit"] for each in figures if each["row"] == row} - {"x"} for row in STREAM_UNITS}
    conmon = {"conmon"} if shutil.which("conmon") else set()
    others = {name for name, program in EXECS.items() if shutil.which(program)}
    assert who == {
        "log-throughput": {"exitd", "bare cat", *conmon},
        "echo": {"exitd: shim", "exitd: API", "exitd: exitctl", "bare pty", *conmon},
        "stream-memory": {"exitd", *conmon},
        "exec": {"exitd: API", "exitd: exitctl", "runc exec", *others},
    }
    assert units == STREAM_UNITS
    assert {each["what"][:9] for each in figures if each["at_least"]} == {"MB/s over" for _ in conmon}
    assert "something is still mounted" not in said


def test_tasks_of_both_runtimes_are_measured_under_one_containerd(tmp_path: pathlib.Path) -> None:
    said = bench(tmp_path, *TASK_UNITS).stderr
    figures: list[dict[str, Any]] = json.loads((tmp_path / "results.json").read_text())["figures"]
    who = {row: {each["who"] for each in figures if each["row"] == row} for row in TASK_UNITS}
    both = {"exitd", "containerd"}
    assert who == {
        "task-memory": both,
        "task-run": {*both, "bare runc"},
        "task-exec": {*both, "bare runc"},
        "exec-sync": {*both, "exitd: API", "bare runc"},
        "task-event": {*both, "bare pidfd"},
        "task-wait": {"exitd: API", "exitd: relay", "containerd"},
        "task-pods": both,
    }
    assert {row: {each["unit"] for each in figures if each["row"] == row} for row in TASK_UNITS} == TASK_UNITS
    with_goals = {each["row"] for each in figures if each["goal"] is not None}
    assert with_goals == TASK_UNITS.keys()
    assert all(value > 0 for each in figures for value in each["values"] if each["row"] != "task-memory")
    assert "something is still mounted" not in said


def test_an_end_among_execs_is_measured_of_exitd_and_of_containerds_own_shim(tmp_path: pathlib.Path) -> None:
    bench(tmp_path, "crowd-exit")
    figures: list[dict[str, Any]] = json.loads((tmp_path / "results.json").read_text())["figures"]
    assert {each["who"]: each["goal"] for each in figures} == {"exitd: API": 1000, "exitd": 1000, "containerd": None}
    assert all("0 not reported" in each["note"] for each in figures if each["goal"])


def test_a_storm_of_ends_is_measured_of_exitds_api_and_of_containerds_own_shim(tmp_path: pathlib.Path) -> None:
    bench(tmp_path, "storm")
    figures: list[dict[str, Any]] = json.loads((tmp_path / "results.json").read_text())["figures"]
    goals = {(each["what"], each["who"]): each["goal"] for each in figures}
    few, many = (f"{count} inits killed at once until the" for count in (3, 6))
    ours, theirs = "exitd: API", "containerd"
    assert goals == {
        **{(f"{few} first exit is reported", ours): 10, (f"{few} first exit is reported", theirs): None},
        **{(f"{few} last exit is reported", ours): 45, (f"{few} last exit is reported", theirs): None},
        **{(f"{many} {which} exit is reported", who): None for which in ("first", "last") for who in (ours, theirs)},
        (f"{few} last exit is reported, over containerd's shim", ours): None,
        (f"{many} last exit is reported, over containerd's shim", ours): 0.8,
    }
    medians = {(each["what"], each["who"]): each["median"] for each in figures}
    for crowd in (few, many):
        for who in (ours, theirs):
            assert 0 < medians[f"{crowd} first exit is reported", who] <= medians[f"{crowd} last exit is reported", who]


def test_an_end_until_the_next_start_is_measured_through_the_cri_of_both_runtimes(tmp_path: pathlib.Path) -> None:
    said = bench(tmp_path, "exit-restart").stderr
    figures: list[dict[str, Any]] = json.loads((tmp_path / "results.json").read_text())["figures"]
    busy = [each for each in figures if each["load"].startswith("load 1")]
    for half, goal in ((figures[:3], None), (busy, 1.1)):
        measured = [(each["who"], each["unit"], each["goal"]) for each in half]
        assert measured == [("exitd", "ms", None), ("containerd", "ms", None), ("exitd", "x", goal)]
    assert all(value > 0 for each in figures for value in each["values"])
    assert "something is still mounted" not in said


def test_another_exit_while_waits_are_pending_is_measured(tmp_path: pathlib.Path) -> None:
    bench(tmp_path, "waits")
    figures: list[dict[str, Any]] = json.loads((tmp_path / "results.json").read_text())["figures"]
    goals = {each["what"]: (each["unit"], each["goal"]) for each in figures}
    assert goals["500 Waits pending: another exit until its Wait"] == ("ms", 2.0)


@pytest.mark.parametrize(("load", "met"), [("quiet", False), ("load 25", False), ("busy", None), ("loaded", None)])
def test_a_missed_goal_is_left_open_under_a_load_that_it_is_not_meant_for(load: str, met: bool | None) -> None:
    assert Figure("row", "what", "exitd", load, "ms", (2.0,), goal=1.0).met is met
    assert Figure("row", "what", "exitd", load, "ms", (0.5,), goal=1.0).met is True


def test_process_events_are_measured_at_the_rate_that_was_reached(tmp_path: pathlib.Path) -> None:
    bench(tmp_path, "procevents")
    figures: list[dict[str, Any]] = json.loads((tmp_path / "results.json").read_text())["figures"]
    rates = [each for each in figures if each["unit"] == "/s"]
    assert len(rates) == 3 and all("10,000 a second offered" in each["note"] for each in rates)
    assert {each["who"] for each in figures if each["what"].endswith("to the listener")} == {
        f"exitd, {count} processes held" for count in (20, 301)
    }
