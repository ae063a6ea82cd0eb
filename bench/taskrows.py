"""The rows about containerd's tasks: exitd behind its relay beside containerd's own shim, under the same containerd."""

import contextlib
import statistics
import time
from collections.abc import Callable, Mapping, Sequence

from bench.cri import CriNode, CriPod
from bench.figures import BUSY, EXITD
from bench.peers import Bare, Containerd, Peer
from bench.rows import Bench, ended, settle
from bench.streamrows import true_call
from bench.tasks import Node, Told, Waited, WaitedApi
from supervisor.compare.harness import at_once, in_turns, timed
from supervisor.compare.machine import Work, private_kb, run, status_kb, until

PAIR = (EXITD, Containerd.name)
BARE = "bare runc"
CROWDED_GOAL = 1.2  # of exec-sync at load 25, over containerd's shim
REST_SECONDS = 0.05  # what goes on behind a command counts as its processor time, too
TRUE = Work(args=("/usr/bin/true",))
STAYS = {EXITD: 4, Containerd.name: 1}  # processes with a pod of pause and two: relay and shims, or one shim
Command = Callable[[str], Sequence[str]]
Samples = dict[str, list[float]]


def task_run(bench: Bench, node: Node) -> None:
    """`ctr run --rm` of `true`, and what all that take part in it use of the processor."""
    bundle = bench.scratch.bundle("task-true", work=TRUE)
    config, root = f"{bundle}/config.json", bench.scratch.state_place("bare-run")
    ways: dict[str, Command] = {BARE: lambda id: ("runc", "--root", root, "run", "--bundle", bundle, id)}
    for who in PAIR:
        ways[who] = lambda id, who=who: node.ctr_run(who, id, config)  # type: ignore[misc]  # bound now
    for load in bench.loads():
        took, used = _commands(bench, node, ways)
        _compared(bench, "task-run", "`ctr run --rm` of `true`", took, _countable(used, load), 0.9, load)


def task_exec(bench: Bench, node: Node) -> None:
    """`ctr task exec` of `true` in a running task, the same way."""
    bare = Bare(bench.scratch)
    with contextlib.ExitStack() as stack:
        slept = bare.start(bench.id())
        stack.callback(bare.clean, slept)
        ways: dict[str, Command] = {BARE: lambda _: bare.exec_words(slept.id, *TRUE.args)}
        for who in PAIR:
            task = node.run_one(who, bench.id())
            stack.callback(node.end_one, task)
            ways[who] = lambda _, id=task.id: node.ctr_exec(id, *TRUE.args)  # type: ignore[misc]  # bound now
        for load in bench.loads():
            took, used = _commands(bench, node, ways)
            _compared(bench, "task-exec", "`ctr task exec` of `true`", took, _countable(used, load), 1.0, load)


def exec_sync(bench: Bench) -> None:
    """An exec of `true` to its end, without a command's own start: by CRI's ExecSync under both runtimes, and over
    exitd's API."""
    if not bench.has(Containerd.name):
        return
    what, node, bare = "exec of `true` until its end is reported", bench.shared(CriNode), Bare(bench.scratch)
    with contextlib.ExitStack() as stack:
        slept = bare.start(bench.id())
        stack.callback(bare.clean, slept)
        container = node.daemon.start_one(node.client)
        stack.callback(node.client.remove, container.id, force=True)
        stack.callback(container.close)
        ways: dict[str, Callable[[str], object]] = {
            BARE: lambda _: bare.exec(slept.id, *TRUE.args),
            f"{EXITD}: API": lambda _: true_call(node.client, container.id),
        }
        for who in PAIR:
            pod = stack.enter_context(contextlib.closing(CriPod(node, who, bench.id())))
            ways[who] = lambda _, pod=pod: pod.exec_sync("/bin/true")  # type: ignore[misc]  # bound now
        for load in bench.loads():
            took, used = _calls(bench, node, ways)
            _compared(bench, "exec-sync", what, took, _countable(used, load), 1.0, load)
        with bench.crowded() as load:
            took, _ = _calls(bench, node, ways, bench.count(20, 2))
            _compared(bench, "exec-sync", what, took, {}, CROWDED_GOAL, load)


def _countable(used: Samples, load: str) -> Samples:
    """Nothing under busy cores: what keeps them busy is counted, too."""
    return {} if load.startswith(BUSY) else used


def _commands(bench: Bench, node: Node, ways: dict[str, Command]) -> tuple[Samples, Samples]:
    """The same, each a command."""
    return _calls(bench, node, {who: lambda id, way=way: run(*way(id)) for who, way in ways.items()})  # type: ignore[misc]


def _calls(
    bench: Bench, node: Node | CriNode, ways: Mapping[str, Callable[[str], object]], rounds: int = 0
) -> tuple[Samples, Samples]:
    """Each once per round: milliseconds, and milliseconds of the processor."""

    def one(who: str) -> tuple[float, float]:
        id = bench.id()
        settle()
        before = node.used_ms()
        took, _ = timed(lambda: ways[who](id))
        time.sleep(REST_SECONDS)
        return took, node.used_ms() - before

    found = in_turns(list(ways), rounds or bench.count(60, 2), one)
    return _part(found, 0), _part(found, 1)


def _part(samples: Mapping[str, Sequence[Sequence[float]]], at: int) -> Samples:
    """One of the things that were measured together."""
    return {who: [each[at] for each in values] for who, values in samples.items()}


def _compared(
    bench: Bench, row: str, what: str, took: Samples, used: Samples, goal: float | None, load: str = ""
) -> None:
    """`took` as it is and as a quotient, then `used`, the same way; empty where busy cores are counted, too."""
    rows = ((what, took, goal), (f"{what}: processor time of all", used, None))
    for name, samples, limit in rows[: 1 + bool(used)]:
        for who, values in samples.items():
            bench.add(row, name, who, "ms", values, note="runc alone" if who == BARE else "", load=load)
        _quotient(bench, row, name, samples, limit, load)


def _quotient(
    bench: Bench, row: str, what: str, samples: Samples, goal: float | None, load: str = "", *, busy_too: bool = False
) -> None:
    """Of two of the same round."""
    over = [ours / theirs for ours, theirs in zip(samples[EXITD], samples[Containerd.name], strict=True)]
    bench.add(row, f"{what}, over containerd's shim", EXITD, "x", over, goal=goal, load=load, busy_too=busy_too)


def task_memory(bench: Bench, node: Node) -> None:
    """All that stays with a pod of pause and two: its own processes, and what daemon and keeper have grown by."""
    count = bench.count(10, 2)
    for who in PAIR:
        node.end_pod(node.run_pod(who, bench.id(), 2))  # whatever is needed only once is there now
        until(lambda: not node.shims_of(who), "the end of its shims")  # noqa: B023  # used at once
        behind = (node.daemon.process.pid, node.daemon.keeper()) if who == EXITD else ()
        before = [_sizes(pid) for pid in behind]
        pods = [node.run_pod(who, bench.id(), 2) for _ in range(count)]
        time.sleep(REST_SECONDS)
        grown = [(new[0] - old[0], new[1] - old[1]) for new, old in zip(map(_sizes, behind), before, strict=True)]
        own = [_sizes(pid) for pid in node.shims_of(who)]
        if len(own) != count * STAYS[who]:
            raise RuntimeError(f"{who}: {len(own)} processes stay with {count} pods, not {STAYS[who]} with each")
        for kind, name in enumerate(("private memory", "RSS")):
            mine, more = (sum(size[kind] for size in sizes) / count for sizes in (own, grown))
            note = f"relay and three shims {mine:.0f} + daemon and keeper {more:.0f}" if behind else "one shim"
            what = f"{name} of all that stays with a pod of pause and 2, {count} running"
            goal = 250 if who == EXITD and kind == 0 else None
            bench.add("task-memory", what, who, "kB", (mine + more,), goal=goal, note=note)
        if who == EXITD:
            what = f"private memory of a pod's relay alone, {count} of pause and 2 running"
            bench.add_memory("task-memory", what, who, node.relays(), 60)
        for pod in pods:
            node.end_pod(pod)


def _sizes(pid: int) -> tuple[int, int]:
    """Private memory and RSS."""
    return sum(private_kb(pid)), status_kb(pid, "VmRSS")


def task_event(bench: Bench, node: Node) -> None:
    """A task's init killed until a subscriber of containerd has its `/tasks/exit`."""
    what = "init killed until a subscriber has /tasks/exit"
    with contextlib.closing(node.api.exits()) as exits:
        peers: list[Peer] = [*(Told(node, who, exits) for who in PAIR), Bare(bench.scratch)]
        for load in bench.loads():
            took = ended(bench, peers, bench.count(100, 2))
            for who, values in took.items():
                note = "" if who in PAIR else "the end alone, no containerd"
                bench.add("task-event", what, who, "ms", values, note=note, load=load)
            _quotient(bench, "task-event", what, took, 0.95, load, busy_too=True)


def task_wait(bench: Bench, node: Node) -> None:
    """Init killed until a pending Wait is answered over ttrpc: by exitd's API, by the relay, by containerd's shim."""
    what = "init killed until Wait is answered over ttrpc"
    api = WaitedApi(node, "exitd: API")
    others = [Waited(node, EXITD, "exitd: relay"), Waited(node, Containerd.name, Containerd.name)]
    rounds = bench.count(100, 2)
    for load in bench.loads():
        took = ended(bench, [api, *others], rounds)
        flushes = api.flushes[-rounds:]
        for who, values in took.items():
            note = f"flush {statistics.median(flushes):.2f} of it" if who == api.name else ""
            goal = 1.6 if who.startswith(EXITD) else None
            bench.add("task-wait", what, who, "ms", values, goal=goal, note=note, load=load)
        note = "the relay's is of the same kind"
        bench.add("task-wait", "the store's flush in it", api.name, "ms", flushes, note=note, load=load)


def task_pods(bench: Bench, node: Node) -> None:
    """Pods of pause and one, all asked for at once over containerd's API, until all run, and until all are gone."""
    count = bench.count(100, 2)
    names = ("until all run", "until all are gone again", "processor time of all")

    def one(who: str) -> tuple[float, float, float]:
        ids = [bench.id() for _ in range(count)]
        before = node.used_ms()
        running, pods = at_once(lambda id: node.run_pod(who, id, 1), ids)
        ending, _ = at_once(node.end_pod, pods)
        until(lambda: not node.shims_of(who), "the end of the shims")
        return running, running + ending, (node.used_ms() - before) / 1000

    found = in_turns(PAIR, bench.count(5, 1), one, warm_up=0)
    for at, name in enumerate(names):
        what, samples = f"{count} pods of pause and 1 at once, {name}", _part(found, at)
        for who, values in samples.items():
            bench.add("task-pods", what, who, "s", values)
        _quotient(bench, "task-pods", what, samples, 0.9 if name == names[1] else None)


def _on_node(row: Callable[[Bench, Node], None]) -> Callable[[Bench], None]:
    def on_node(bench: Bench) -> None:
        if bench.has(Containerd.name):
            row(bench, bench.shared(Node))

    return on_node


TASK_ROWS: dict[str, Callable[[Bench], None]] = {
    "task-memory": _on_node(task_memory),  # the first one: it wants a daemon that has not done much
    "task-run": _on_node(task_run),
    "task-exec": _on_node(task_exec),
    "exec-sync": exec_sync,
    "task-event": _on_node(task_event),
    "task-wait": _on_node(task_wait),
    "task-pods": _on_node(task_pods),
}
