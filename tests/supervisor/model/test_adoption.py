"""Every kind of directory that may lie about, and what becomes of it."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shim.mark import MARK, Mark, Started
from supervisor.model import adoption
from supervisor.model.adoption import (
    NEEDED,
    Adopt,
    DirectoryEntry,
    EntryKind,
    KnownRuns,
    Leave,
    Refuse,
    Remove,
    UnknownRun,
    Verdict,
)
from supervisor.model.values import Phase, Process
from tests.supervisor.happenings import container, moment

ROOT, NOBODY = 0, 65534
OWN_ID = "0123456789abcdef" * 4
INIT, SHIM = Process(40, 4), Process(41, 4)
MADE = Mark("box", "/bundle", "runc", "boot", 1_000, ("sleep", "1"))
ENTRIES = tuple((name, DirectoryEntry(kind, ROOT)) for name, kind in NEEDED.items())
WAY = (
    ("c", DirectoryEntry(EntryKind.DIRECTORY, ROOT)),
    ("by-hand", DirectoryEntry(EntryKind.DIRECTORY, ROOT)),
    ("1", DirectoryEntry(EntryKind.DIRECTORY, ROOT)),
)
RUNNING = UnknownRun(
    "by-hand",
    "1",
    WAY,
    ENTRIES,
    mark=MADE,
    planned=("by-hand", 1),
    init=INIT,
    shim=SHIM,
    started=Started(2_000, 200),
    init_alive=True,
)
STRANGE = KnownRuns()


def judged(known: KnownRuns = STRANGE, **changed: Any) -> Verdict:
    return adoption.judge(replace(RUNNING, **changed), known, ROOT)


def refusal(known: KnownRuns = STRANGE, **changed: Any) -> str:
    verdict = judged(known, **changed)
    assert isinstance(verdict, Refuse), verdict
    return verdict.why


def with_entry(name: str, entry: DirectoryEntry) -> tuple[tuple[str, DirectoryEntry], ...]:
    return tuple((each, entry if each == name else was) for each, was in ENTRIES)


def without(name: str) -> tuple[tuple[str, DirectoryEntry], ...]:
    return tuple((each, entry) for each, entry in ENTRIES if each != name)


def test_one_that_runs_is_adopted() -> None:
    assert judged() == Adopt(MADE, INIT)


@pytest.mark.parametrize(
    "changed",
    [
        {"shim": None},
        {"shim": None, "init_alive": False},
        {"shim": None, "init_alive": False, "recorded": True},
        {"started": None, "init_alive": False, "recorded": True},
        {"started": None, "quiet_seconds": 60.0},
    ],
    ids=["shim lost", "nobody saw its end", "ended meanwhile", "ended before its start was noted", "never started"],
)
def test_one_that_has_an_init_or_had_one_is_adopted_whatever_became_of_it(changed: dict[str, Any]) -> None:
    assert judged(**changed) == Adopt(MADE, INIT)


def test_one_that_is_between_create_and_start_is_waited_for() -> None:
    assert judged(started=None, quiet_seconds=4.0) == Leave(6.0)


def test_one_that_the_runtime_is_making_is_left_to_it_however_long_it_takes() -> None:
    assert isinstance(judged(init=None, started=None, quiet_seconds=100.0), Leave)


@pytest.mark.parametrize("name", NEEDED)
def test_one_that_is_being_made_has_time_and_one_that_was_made_by_half_is_named(name: str) -> None:
    assert judged(entries=without(name), quiet_seconds=1.0) == Leave(9.0)
    assert refusal(entries=without(name), quiet_seconds=11.0).startswith(f"{name} is missing")


def test_one_without_a_run_or_without_a_shim_is_waited_for_and_then_named() -> None:
    assert judged(run="", way=WAY[:2], entries=(), quiet_seconds=0.0) == Leave(10.0)
    assert refusal(run="", way=WAY[:2], entries=(), quiet_seconds=10.0) == "there is no run directory in it"
    assert refusal(init=None, shim=None, quiet_seconds=10.0) == "no shim has made a container in it"


@pytest.mark.parametrize("level", range(3))
@pytest.mark.parametrize(
    ("entry", "words"),
    [
        (DirectoryEntry(EntryKind.LINK, ROOT), "is a link"),
        (DirectoryEntry(EntryKind.FILE, ROOT), "is a file, not a directory"),
        (DirectoryEntry(EntryKind.DIRECTORY, NOBODY), "belongs to uid 65534, not to root"),
        (DirectoryEntry(EntryKind.DIRECTORY, ROOT, open_to_others=True), "can be written by others"),
    ],
)
def test_no_level_of_its_way_may_be_anybody_elses(level: int, entry: DirectoryEntry, words: str) -> None:
    way = tuple((name, entry if at == level else was) for at, (name, was) in enumerate(WAY))
    why = refusal(way=way)
    assert words in why and repr(WAY[level][0]) in why


@pytest.mark.parametrize("name", NEEDED)
@pytest.mark.parametrize(
    ("entry", "words"),
    [
        (DirectoryEntry(EntryKind.LINK, ROOT), "is a link"),
        (DirectoryEntry(EntryKind.OTHER, ROOT), "is a special file, must be a"),
        (DirectoryEntry(EntryKind.FILE, NOBODY), "belongs to uid 65534"),
        (DirectoryEntry(EntryKind.FILE, ROOT, open_to_others=True), "can be written by others"),
    ],
)
def test_nothing_in_it_may_be_anybody_elses(name: str, entry: DirectoryEntry, words: str) -> None:
    assert words in refusal(entries=with_entry(name, entry))


def test_a_link_that_nobody_needs_is_refused_too() -> None:
    assert "'rt' is a link" in refusal(entries=(*ENTRIES, ("rt", DirectoryEntry(EntryKind.LINK, ROOT))))


def test_a_daemon_that_is_not_root_takes_its_own_and_roots_and_no_others() -> None:
    mine = tuple((name, replace(entry, uid=1000)) for name, entry in ENTRIES)
    assert adoption.judge(replace(RUNNING, entries=mine), STRANGE, 1000) == Adopt(MADE, INIT)
    assert isinstance(adoption.judge(replace(RUNNING, entries=mine), STRANGE, 1001), Refuse)


@pytest.mark.parametrize("id", [OWN_ID, ".hidden", "a b", "\udcff", "x" * 64, "ä"])
def test_an_id_that_is_exitds_own_or_none_is_refused(id: str) -> None:
    assert "none that can be adopted" in refusal(id=id, planned=(id, 1))
    assert refusal(id=id, planned=(id, 1)).isascii()


@pytest.mark.parametrize("run", ["0", "2", "01"])
def test_only_the_first_run_can_be_adopted(run: str) -> None:
    assert refusal(run=run) == f"run {run} cannot be adopted, only run 1"


def test_a_plan_for_something_else_is_refused() -> None:
    assert "plan is of run 1 of 'other'" in refusal(planned=("other", 1))
    assert "plan is of run 2 of 'by-hand'" in refusal(planned=("by-hand", 2))


@pytest.mark.parametrize(("name", "changed"), [(MARK, {"mark": None}), ("plan", {"planned": None})])
def test_a_file_that_cannot_be_read_is_refused_with_its_reason_once_nobody_writes_it(
    name: str, changed: dict[str, Any]
) -> None:
    broken = {**changed, "unreadable": {name: "incomplete"}, "quiet_seconds": 20.0}
    assert refusal(**broken) == f"{name} cannot be read: incomplete"
    assert isinstance(judged(**{**broken, "quiet_seconds": 0.0}), Leave)


@pytest.mark.parametrize("changed", [{}, {"entries": without(MARK)}, {"entries": ()}])
def test_what_exitd_knows_and_works_on_is_left_alone(changed: dict[str, Any]) -> None:
    known = replace(container(), id="by-hand", run=1)
    assert judged(KnownRuns(known), **changed) == Leave()
    assert judged(KnownRuns(replace(known, run=3, clean=False)), **changed) == Leave()


def test_a_directory_of_an_earlier_run_is_a_leftover_and_one_of_a_later_run_is_not() -> None:
    known = KnownRuns(replace(container(Phase.EXITED), id="by-hand", run=3, clean=True))
    assert judged(known, run="2", entries=without(MARK)) == Remove()
    assert refusal(known, run="4", entries=without(MARK)) == "run 4 cannot be adopted, only run 1"
    assert "that of another container" in refusal(known)


def test_a_directory_with_exitds_own_kind_of_id_and_no_mark_is_a_leftover_whatever_its_run_is() -> None:
    for run in ("1", "7"):
        assert judged(id=OWN_ID, run=run, entries=without(MARK)) == Remove()
    assert judged(id=OWN_ID, run="", entries=()) == Leave()


@given(
    st.sampled_from([OWN_ID, "by-hand", "\udcff"]),
    st.sampled_from(["", "1", "2"]),
    st.sampled_from([ENTRIES, without(MARK), without("plan"), ()]),
    st.sampled_from([EntryKind.DIRECTORY, EntryKind.LINK, EntryKind.FILE]),
    st.sampled_from([ROOT, NOBODY]),
    st.booleans(),
    st.floats(0, 100),
)
def test_only_what_is_provably_our_own_is_ever_removed(
    id: str, run: str, entries: Any, kind: EntryKind, uid: int, in_ledger: bool, quiet: float
) -> None:
    way = (*WAY[:2], ("1", DirectoryEntry(kind, uid)))
    known = KnownRuns(None, in_ledger, INIT if in_ledger else None)
    found = replace(RUNNING, id=id, run=run, entries=entries, way=way, quiet_seconds=quiet)
    if isinstance(adoption.judge(found, known, ROOT), Remove):
        reported = in_ledger and found.init == INIT and entries is ENTRIES
        assert (kind, uid) == (EntryKind.DIRECTORY, ROOT)
        assert reported or (id == OWN_ID and (MARK, DirectoryEntry(EntryKind.FILE, ROOT)) not in entries)


def test_an_end_that_the_ledger_has_is_not_reported_twice_and_another_one_of_that_name_not_swallowed() -> None:
    assert judged(KnownRuns(None, True, INIT)) == Remove()
    assert "the ledger has an exit of run 1 of by-hand already" in refusal(KnownRuns(None, True, SHIM))
    assert "the ledger has" in refusal(KnownRuns(None, True, None))


def test_it_becomes_a_container_with_what_it_said_of_itself() -> None:
    made = adoption.container_of(RUNNING, Adopt(MADE, INIT), "box", "")
    assert (made.id, made.spec.name, made.spec.bundle, made.spec.runtime) == ("by-hand", "box", "/bundle", "runc")
    assert (made.phase, made.run, made.init, made.shim, made.clean) == (Phase.RUNNING, 1, INIT, SHIM, False)
    assert (made.created_ns, made.started_ns, made.started_boot_ns, made.boot_id) == (1_000, 2_000, 200, "boot")
    assert made.spec.args == ("sleep", "1") and made.spec.restart.policy == "no" and not made.spec.auto_remove


@pytest.mark.parametrize(
    ("state", "phase"),
    [("created", Phase.CREATED), ("running", Phase.RUNNING), ("paused", Phase.PAUSED), ("", Phase.RUNNING)],
)
def test_without_a_noted_start_the_runtimes_word_decides_and_no_time_is_made_up(state: str, phase: Phase) -> None:
    made = adoption.container_of(replace(RUNNING, started=None), Adopt(MADE, INIT), "box", state)
    assert (made.phase, made.started_ns, made.started_boot_ns) == (phase, None, None)


def test_its_create_and_start_are_reported_as_an_adoption() -> None:
    made = adoption.container_of(RUNNING, Adopt(MADE, INIT), "box", "")
    events = adoption.events_of(made, moment())
    assert [(event.type, dict(event.attributes)["adopted"]) for event in events] == [
        ("create", "yes"),
        ("start", "yes"),
    ]
    waiting = replace(made, phase=Phase.CREATED)
    assert [event.type for event in adoption.events_of(waiting, moment())] == ["create"]
