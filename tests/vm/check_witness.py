"""The kernel's word, by its process events where its pidfds know no codes: the true code of an end without shim and
keeper is known, and so is that of a process which exitd only watches."""

import sys

import pytest

from tests.vm.machine import Machine

ENDS = {"code": ["exited", 7], "signal": ["signaled", 9], "thread": ["exited", 7]}
ONCE = 1


def ends(machine: Machine, *words: str) -> list[object]:
    """Of each end: kind, number or cause, source, and how often the ledger has it."""
    found: list[object] = list(machine.python("witness.py", *words))
    print(*words, found, file=sys.stderr)
    return found


def check_exitd_takes_the_best_way_that_this_kernel_has(machine: Machine) -> None:
    lines = machine.run("/opt/exitd/bin/exitctl", "doctor").out.splitlines()
    of = {source: next(line for line in lines if f"source {source}" in line) for source in ("pidfd", "procevents")}
    print(*of.values(), sep="\n", file=sys.stderr)
    source = machine.kernels_source()
    assert ("does not report exits through pidfds" in of["pidfd"]) is (source == "procevents")
    assert "reported 43 for a" in of[source]
    assert source in machine.say("/opt/exitd/bin/exitctl", "info", "--format", "{{.Settings.kernel_witness}}")


@pytest.mark.parametrize("what", ["container", "exec"])
@pytest.mark.parametrize("first", ["shim", "keeper"])
@pytest.mark.parametrize("daemon", ["there", "back"])
@pytest.mark.parametrize("end", ["code", "signal", "thread"])
def check_the_kernel_knows_an_end_without_shim_and_keeper(
    machine: Machine, what: str, first: str, daemon: str, end: str
) -> None:
    """Where pidfds know codes, the next keeper may hold one: a replacement shim has registered the process there."""
    count = 3
    found = ends(machine, what, first, daemon, end, str(count))
    source = machine.kernels_source()
    sources = (source, "keeper") if source == "pidfd" else (source,)
    assert len(found) == count and all(each in [[*ENDS[end], of, ONCE] for of in sources] for each in found), found


@pytest.mark.parametrize("what", ["container", "exec"])
def check_an_end_without_shim_and_keeper_is_unknown_where_exitd_was_away(machine: Machine, what: str) -> None:
    count = 3
    found = ends(machine, what, "keeper", "away", "code", str(count))
    assert found == [["unknown", "monitors-killed", "none", ONCE]] * count


@pytest.mark.parametrize("what", ["pid", "runc-root"])
@pytest.mark.parametrize("daemon", ["there", "back"])
@pytest.mark.parametrize("end", ["code", "signal", "thread"])
def check_the_kernel_knows_the_end_of_what_is_only_watched(machine: Machine, what: str, daemon: str, end: str) -> None:
    count = 3
    found = ends(machine, what, "nobody", daemon, end, str(count))
    assert found == [[*ENDS[end], machine.kernels_source(), ONCE]] * count


@pytest.mark.parametrize("what", ["pid", "runc-root"])
def check_what_is_only_watched_and_ends_while_exitd_is_away_is_unknown(machine: Machine, what: str) -> None:
    count = 3
    found = ends(machine, what, "nobody", "away", "code", str(count))
    assert found == [["unknown", "watcher-away", "none", ONCE]] * count
