"""Every metric family that exitd shows, from what is known at one moment. Pure; docs/metrics.md explains them."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import product

from shim.frozen import frozen
from supervisor.metrics.exposition import Labels, MetricFamily, Samples, text_of
from supervisor.model import names
from supervisor.model.status import fold
from supervisor.model.values import LIVE, Container, Exit, Names, Reason, Source
from supervisor.store import counts
from supervisor.store.counts import Count
from supervisor.system.histogram import Durations


@frozen
class Shown:
    """One container that exitd runs or watches, by the text of its labels."""

    text: str
    place: str  # the same of its memory kills
    container: Container | None = None  # None: it is only watched


ByName = Mapping[str, list[Count]]  # counters, by their name


@frozen
class Snapshot:
    """What is known at one moment. `counts` is None where the database has never been read."""

    version: str
    python: str
    started_seconds: float  # wall time of exitd's start
    is_ready: bool
    counts: ByName | None
    is_fresh: bool  # they are the database's of this moment
    phases: Mapping[str, int]  # how many containers are in each
    watches: tuple[tuple[str, str, int], ...]  # target, kind, processes
    pending_commits: int
    events: int  # the number of the newest
    keeper_up: bool
    latencies: Mapping[str, Durations]  # of ends, by stage
    flushes: Mapping[str, Durations]
    loop_lag: Durations
    containers: tuple[Shown, ...] | None = None  # None: no series for each


def families(now: Snapshot) -> Iterator[MetricFamily]:
    """Yield them all. Samples are made when they are asked for, a few at a time."""
    yield from _of_itself(now)
    if now.counts is not None:
        yield from _counters(now.counts, now.containers)
    yield from _of_now(now)
    if now.containers is not None:
        yield from _of_containers(now.containers)


def _of_itself(now: Snapshot) -> Iterator[MetricFamily]:
    labels = (("version", now.version), ("python", now.python))
    yield _gauge("exitd_build_info", "The version of exitd that runs; always 1.", ((labels, 1),))
    yield _gauge("exitd_start_time_seconds", "When exitd started, as a Unix time.", (((), now.started_seconds),))
    text = "Whether all that was stored before the start is looked up, and every end can be stored."
    yield _gauge("exitd_ready", text, (((), int(now.is_ready)),))
    fresh = now.counts is not None and now.is_fresh
    text = "Whether the counters are the database's of this moment, and not of the last time it could be read."
    yield _gauge("exitd_counters_fresh", text, (((), int(fresh)),))


# -- counters


EXITS = (
    (counts.CONTAINER, "exitd_container_exits_total", "Ends of exitd's own containers that were stored."),
    (counts.EXEC, "exitd_exec_exits_total", "Ends of execs that were stored, those of health checks included."),
    (counts.WATCHED, "exitd_watched_exits_total", "Ends of watched processes that were stored."),
)
SINGLE = (
    (counts.SHIM_DEATHS, "exitd_shim_deaths_total", "Shims that died before the end of their container or exec."),
    (counts.SHIM_ADOPTIONS, "exitd_shim_adoptions_total", "Shims that have taken the place of a dead one."),
    (counts.CONTAINERS_ADOPTED, "exitd_containers_adopted_total", "Adopted containers that exitd had not started."),
)


# Prometheus' increase() does not see the first event of a series that begins with it: these begin with 0.
CAUSES = (
    *("monitors-killed", "journal-unread", "record-unread", "empty-record", "fifo-number-only", "state-lost"),
    *("host-rebooted", "never-started", "start-unconfirmed", "row-damaged", "watcher-away", "kernel-did-not-tell"),
    *("ended-before-watch", "shim-lost", "shim-lost-undeleted", "shim-number-only", "shim-number-impossible"),
    "shim-255",
)
KINDS = tuple(product(("exited", "signaled", "unknown"), [each.value for each in Reason]))


def add_by_name(found: dict[str, list[Count]], some: Iterable[Count]) -> None:
    """Add some counters to those that are grouped already."""
    for each in some:
        found.setdefault(each.name, []).append(each)


def _counters(by_name: ByName, containers: tuple[Shown, ...] | None) -> Iterator[MetricFamily]:
    stored = (each for each in by_name.get(counts.EXITS, ()) if len(each.words) == 6)
    ends = [(counts.ExitClass(*each.words), each.value) for each in stored]
    for what, name, text in EXITS:
        kinds = Counter[Labels]({(("kind", kind), ("reason", reason)): 0 for kind, reason in KINDS})
        for end, value in ends:
            if end.what == what:
                kinds[("kind", end.kind), ("reason", end.reason)] += value
        yield _counter(name, text, kinds)
    causes = Counter[Labels]({(("cause", cause),): 0 for cause in (*CAUSES, counts.OTHER)})
    sources, restarts = Counter[Labels]({(("source", source.value),): 0 for source in Source}), 0
    for end, value in ends:
        sources[(("source", end.source),)] += value
        if end.kind == "unknown":
            causes[(("cause", end.cause),)] += value
        restarts += value if end.decision == "restart" else 0
    yield _counter("exitd_exit_unknown_total", "Ends of all three kinds that are unknown, by cause.", causes)
    yield _counter("exitd_exit_source_total", "Ends of all three kinds, by the witness that was believed.", sources)
    text = "Ends after which a policy or a rule chose a restart."
    yield _counter("exitd_policy_restarts_total", text, {(): restarts})
    for key, name, text in SINGLE:
        yield _counter(name, text, {(): sum(each.value for each in by_name.get(key, ()))})
    yield from _kills(by_name, containers or ())
    if containers is not None:
        yield from _named(by_name.get(counts.NAMED, ()))


def _kills(by_name: ByName, present: tuple[Shown, ...]) -> Iterator[MetricFamily]:
    """`present`: whose counters are shown before there is anything to count."""
    of_node: dict[Labels, float] = {(("of", what),): 0 for what in (counts.CONTAINER, counts.WATCHED)}
    of_node |= {(("of", each.words[0]),): each.value for each in by_name.get(counts.NODE_KILLS, ()) if each.words}
    text = "Processes killed for memory, in exitd's own containers and in watched ones."
    yield _counter("exitd_node_oom_kills_total", text, of_node)
    kills = [each for each in by_name.get(counts.KILLS, ()) if len(each.words) == 3]
    text = "Processes killed for memory, by container."
    yield MetricFamily("exitd_oom_kills_total", "counter", text, _with_zeros(kills, present))
    text = "When a process of the container was last counted as killed for memory, as a Unix time."
    newest = ((_place(each.words), each.at_ns / 1e9) for each in kills)
    yield _gauge("exitd_oom_last_kill_timestamp_seconds", text, newest)


def _with_zeros(kills: list[Count], present: tuple[Shown, ...]) -> Iterator[tuple[str, float]]:
    seen = set[str]()
    for each in kills:
        place = _place(each.words)
        seen.add(place)
        yield place, each.value
    for one in present:
        if one.place not in seen:
            seen.add(one.place)
            yield one.place, 0


def _place(words: tuple[str, ...]) -> str:
    return text_of(tuple(zip(("namespace", "pod", "container"), words, strict=True)))


def _named(found: Iterable[Count]) -> Iterator[MetricFamily]:
    labels = ("namespace", "pod", "name", "image", "reason")
    samples = ((tuple(zip(labels, each.words, strict=True)), each.value) for each in found if len(each.words) == 5)
    yield MetricFamily(
        "exitd_named_exits_total", "counter", "Ends by container and reason, watched ones included.", samples
    )


# -- gauges and histograms


def _of_now(now: Snapshot) -> Iterator[MetricFamily]:
    samples = (((("phase", phase),), count) for phase, count in sorted(now.phases.items()))
    yield _gauge("exitd_containers", "Containers that exitd has now.", samples)
    watches = (((("target", target), ("kind", kind)), count) for target, kind, count in now.watches)
    yield _gauge("exitd_watched_processes", "Processes of others that exitd watches now.", watches)
    text = "Exits that are known and not stored yet."
    yield _gauge("exitd_pending_commits", text, (((), now.pending_commits),))
    yield _gauge("exitd_events", "The number of the newest event.", (((), now.events),))
    text = "Whether exitd is connected with a keeper, which there is while containers run."
    yield _gauge("exitd_keeper_up", text, (((), int(now.keeper_up)),))
    text = "Of ends of exitd's own containers: until exitd knew (seen), from then until on disk and reported (stored), "
    text += "and from then until nothing of the run was left (cleaned)."
    yield _histogram("exitd_exit_latency_seconds", text, "stage", now.latencies)
    text = "How long writes took until they were on the disk: commits of the database, and blocks of ends in the ring."
    yield _histogram("exitd_store_flush_seconds", text, "of", now.flushes)
    text = "How late a timer of the event loop was, asked once a second."
    yield MetricFamily("exitd_loop_lag_seconds", "histogram", text, (((), now.loop_lag),))


# -- series of each container


def shown(id: str, known: Names, name: str, container: Container | None) -> Shown:
    """`name`: what a pod's own sandbox is shown by, which has no container's name. `container` is None for one that is
    watched."""
    words = (id, known.container or names.clean(name), known.namespace, known.pod, known.image)
    text = text_of(tuple(zip(("id", "name", "namespace", "pod", "image"), words, strict=True)))
    return Shown(text, _place((known.namespace, known.pod, known.container)), container)


def _of_containers(found: tuple[Shown, ...]) -> Iterator[MetricFamily]:
    def own() -> Iterator[tuple[str, Container]]:
        return ((each.text, each.container) for each in found if each.container is not None)

    def ended() -> Iterator[tuple[str, Exit]]:
        return ((labels, c.exit) for labels, c in own() if c.exit is not None)

    text = "Whether the container has a process, or is watched."
    running = ((each.text, int(each.container is None or each.container.phase in LIVE)) for each in found)
    yield _gauge("exitd_container_running", text, running)
    text = "The number of the container's current or newest run."
    yield _gauge("exitd_container_run", text, ((labels, c.run) for labels, c in own()))
    text = "Restarts by policy since a caller last started the container."
    yield _gauge("exitd_container_restarts", text, ((labels, c.restart_count) for labels, c in own()))
    text = "The newest end as one number: the code, 128 and the signal, or 255 where it is unknown."
    yield _gauge("exitd_container_last_exit_code", text, ((labels, fold(exit.status)) for labels, exit in ended()))
    text = "When that was, as a Unix time."
    times = ((labels, exit.at_ns / 1e9) for labels, exit in ended())
    yield _gauge("exitd_container_last_exit_timestamp_seconds", text, times)


# -- families of one kind


def _gauge(name: str, text: str, samples: Samples) -> MetricFamily:
    return MetricFamily(name, "gauge", text, samples)


def _counter(name: str, text: str, values: Mapping[Labels, float]) -> MetricFamily:
    return MetricFamily(name, "counter", text, sorted(values.items()))


def _histogram(name: str, text: str, label: str, found: Mapping[str, Durations]) -> MetricFamily:
    return MetricFamily(name, "histogram", text, [(((label, word),), observed) for word, observed in found.items()])
