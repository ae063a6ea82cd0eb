"""What is shown, from what is known."""

import pathlib
import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from supervisor.metrics import families
from supervisor.metrics.exposition import lines
from supervisor.metrics.families import Snapshot, shown
from supervisor.model import evidence
from supervisor.model.values import Container, Exited, Names, Phase, Reason, Signaled, Source, Spec, Unknown
from supervisor.store import counts
from supervisor.store.counts import Count
from supervisor.system.histogram import Histogram
from tests.supervisor.stored import ended

SUPERVISOR = pathlib.Path(families.__file__).parents[1]
NOTHING = Histogram().now()
EMPTY = Snapshot("1.0", "3.11", 5.0, True, {}, True, {}, (), 0, 0, False, {"seen": NOTHING}, {"ring": NOTHING}, NOTHING)
Read = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def read(now: Snapshot) -> Read:
    """All samples, as a scraper has them."""
    text = "".join(line for family in families.families(now) for line in lines(family))
    samples = [each for family in text_string_to_metric_families(text) for each in family.samples]
    found = {(each.name, tuple(sorted(each.labels.items()))): each.value for each in samples}
    assert len(found) == len(samples), "a series comes twice"
    return found


def of(found: Read, name: str) -> dict[tuple[str, ...], float]:
    """One family's samples, by the words of their labels in the order of the labels' names."""
    return {tuple(word for _, word in labels): value for (each, labels), value in found.items() if each == name}


def counted(found: Read, name: str) -> dict[tuple[str, ...], float]:
    return {words: value for words, value in of(found, name).items() if value}


def grouped(found: Iterable[Count]) -> dict[str, list[Count]]:
    by_name: dict[str, list[Count]] = {}
    families.add_by_name(by_name, found)
    return by_name


def ends(*given: Any) -> dict[str, list[Count]]:
    return grouped(counts.merged(count for exit in given for count in counts.of_exit(exit)))


def test_ends_are_shown_by_kind_and_reason_and_each_family_adds_up_to_the_same() -> None:
    unknown = ended("c", 3, status=Unknown("monitors-killed"))
    given = (ended("c"), ended("c", 2), unknown, ended("c", exec_id="e"), ended("1@pid", status=Signaled(9)))
    found = read(replace(EMPTY, counts=ends(*given, replace(ended("r"), decision="restart"))))
    assert counted(found, "exitd_container_exits_total") == {("exited", "self"): 3, ("unknown", "self"): 1}
    assert counted(found, "exitd_exec_exits_total") == {("exited", "self"): 1}
    assert counted(found, "exitd_watched_exits_total") == {("signaled", "self"): 1}
    assert counted(found, "exitd_exit_unknown_total") == {("monitors-killed",): 1}
    assert counted(found, "exitd_exit_source_total") == {("record",): 6}
    assert of(found, "exitd_policy_restarts_total") == {(): 1}


def test_without_any_end_all_that_may_come_is_there_and_zero() -> None:
    """What comes into being with its first event is not seen as an increase."""
    found = read(EMPTY)
    for name in ("container_exits", "exec_exits", "watched_exits"):
        assert len(of(found, f"exitd_{name}_total")) == 3 * len(Reason) and not counted(found, f"exitd_{name}_total")
    assert len(of(found, "exitd_exit_source_total")) == len(Source)
    assert of(found, "exitd_exit_unknown_total").keys() == {(cause,) for cause in (*families.CAUSES, "other")}
    assert of(found, "exitd_node_oom_kills_total") == {("container",): 0, ("watched",): 0}
    assert of(found, "exitd_shim_deaths_total") == {(): 0}
    assert of(found, "exitd_ready") == {(): 1} and of(found, "exitd_counters_fresh") == {(): 1}
    assert of(found, "exitd_build_info") == {("3.11", "1.0"): 1}


def test_counters_that_were_never_read_are_not_shown_as_zero() -> None:
    found = read(replace(EMPTY, counts=None, is_fresh=False))
    assert not [name for name, _ in found if name.endswith("_exits_total") or "oom" in name]
    assert of(found, "exitd_counters_fresh") == {(): 0}


def test_memory_kills_are_shown_by_container_with_the_time_of_the_last() -> None:
    kills = counts.of_kills(counts.WATCHED, Names("shop", "web-0", "app", "img"), 3, 7 * 10**9)
    found = read(replace(EMPTY, counts=grouped(kills)))
    assert of(found, "exitd_oom_kills_total") == {("app", "shop", "web-0"): 3}
    assert of(found, "exitd_oom_last_kill_timestamp_seconds") == {("app", "shop", "web-0"): 7}
    assert of(found, "exitd_node_oom_kills_total")[("watched",)] == 3


def container(phase: Phase, **fields: Any) -> Container:
    return Container("c1", Spec("web"), phase, 2, 1, restart_count=4, **fields)


def test_each_container_is_shown_where_that_is_wanted_and_nowhere_else() -> None:
    exit = replace(ended("c1", 1, 8 * 10**9, Exited(3)), names=Names("default", "", "web"))
    own = shown("c1", Names("default", "", "web", "img"), "web", container(Phase.EXITED, exit=exit))
    watched = shown("x@/s/n", Names("shop", "web-0", "app"), "x", None)
    now = replace(EMPTY, counts=ends(exit), containers=(own, watched))
    found, labels = read(now), ("c1", "img", "web", "default", "")
    assert of(found, "exitd_container_running") == {labels: 0, ("x@/s/n", "", "app", "shop", "web-0"): 1}
    assert of(found, "exitd_container_run") == {labels: 2} and of(found, "exitd_container_restarts") == {labels: 4}
    assert of(found, "exitd_container_last_exit_code") == {labels: 3}
    assert of(found, "exitd_container_last_exit_timestamp_seconds") == {labels: 8}
    assert of(found, "exitd_named_exits_total") == {("", "web", "default", "", "self"): 1}
    assert of(found, "exitd_oom_kills_total") == {("app", "shop", "web-0"): 0, ("web", "default", ""): 0}
    without = read(replace(now, containers=None))
    assert not [name for name, _ in without if "exitd_container_r" in name or "named" in name]


def test_gauges_are_of_this_moment() -> None:
    now = replace(EMPTY, phases={"running": 2}, watches=(("/s", "containerd", 7),), pending_commits=1, events=9)
    found = read(replace(now, keeper_up=True))
    assert of(found, "exitd_containers") == {("running",): 2}
    assert of(found, "exitd_watched_processes") == {("containerd", "/s"): 7}
    values = (of(found, f"exitd_{name}")[()] for name in ("pending_commits", "events", "keeper_up"))
    assert list(values) == [1, 9, 1]


def test_durations_are_histograms_in_seconds() -> None:
    histogram = Histogram()
    histogram.observe(0.003)
    latencies = {stage: histogram.now() for stage in ("seen", "stored", "cleaned")}
    found = read(replace(EMPTY, latencies=latencies, flushes={"ring": histogram.now()}, loop_lag=histogram.now()))
    assert of(found, "exitd_exit_latency_seconds_count") == {("seen",): 1, ("stored",): 1, ("cleaned",): 1}
    assert of(found, "exitd_store_flush_seconds_sum") == {("ring",): 0.003}
    assert of(found, "exitd_loop_lag_seconds_bucket")[("0.0025",)] == 0
    assert of(found, "exitd_loop_lag_seconds_bucket")[("0.005",)] == 1


def test_every_cause_that_the_product_gives_is_shown_from_the_beginning() -> None:
    """Each is a constant of the modules that give it, or a word there."""
    rooms = ("model", "monitor", "runtime", "engine", "external", "containerd")
    text = "".join(path.read_text() for room in rooms for path in sorted((SUPERVISOR / room).rglob("*.py")))
    words = set(re.findall(r'\bUnknown\(\s*"([a-z0-9-]+)"', text))
    for name in re.findall(r"\bUnknown\(\s*(?:\w+\.)?([A-Z_]{3,})\b", text):
        words |= set(re.findall(rf'^{name} = "([a-z0-9-]+)"', text, re.MULTILINE))
    words |= {evidence.MONITORS_KILLED, evidence.JOURNAL_UNREAD, evidence.RECORD_UNREAD, evidence.STATE_LOST}
    assert len(words) > 10 and words <= set(families.CAUSES)
