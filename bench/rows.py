"""The rows of the table: each sets its stage, measures in turns, and clears away."""

import contextlib
import itertools
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from bench.figures import BUSY, EXITD, Figure
from bench.ours import TREE, Daemon, Shims
from bench.ownconfig import OwnConfig, own_config
from bench.peers import Bare, Conmon, Containerd, Peer
from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api.client import Client
from supervisor.api.rpc import Stub
from supervisor.compare.harness import WayNotice, in_turns, timed
from supervisor.compare.machine import LIMIT_SECONDS, Scratch, busy_cores, busy_loops, private_kb, status_kb, until
from supervisor.compare.way import WayContainer

CONNECTIONS = 10
LOOPS = 25  # what `load 25` is


class Stage(Protocol):
    """What takes time to set up."""

    def __init__(self, scratch: Scratch) -> None: ...
    def close(self) -> None: ...


S = TypeVar("S", bound=Stage)


@dataclass(slots=True)
class Bench:
    """What rows share: where to work, how much of it, and what they found."""

    scratch: Scratch
    quick: bool
    say: Callable[[str], None]
    load: str = "quiet"  # or `loaded`, when others keep the machine busy
    figures: list[Figure] = field(default_factory=list)
    ids: Iterator[int] = field(default_factory=itertools.count)
    kept: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)  # closed after the last row
    _shared: dict[type[Stage], Stage] = field(default_factory=dict)

    def id(self) -> str:
        return f"bench{os.getpid()}n{next(self.ids)}"

    def count(self, whole: int, quick: int) -> int:
        return quick if self.quick else whole

    def shared(self, kind: type[S]) -> S:
        """What several rows use: made by the first one, kept until the last."""
        if kind not in self._shared:
            self._shared[kind] = self.kept.enter_context(contextlib.closing(kind(self.scratch)))
        found = self._shared[kind]
        assert isinstance(found, kind)
        return found

    def loads(self) -> Iterator[str]:
        """Once as the machine is found, and once with every core busy."""
        yield self.load
        if not self.quick:
            with busy_cores():
                yield self._and_others(BUSY)

    @contextlib.contextmanager
    def crowded(self) -> Iterator[str]:
        """LOOPS busy loops for the block; what that load is called."""
        loops = self.count(LOOPS, 1)
        with busy_loops(loops):
            yield self._and_others(f"load {loops}")

    def _and_others(self, load: str) -> str:
        return load if self.load == "quiet" else f"{load}, {self.load}"

    def peers(self, *wanted: type[Conmon] | type[Containerd]) -> Sequence[Callable[[Scratch], Conmon | Containerd]]:
        """Those whose program is here; the others are named as absent."""
        return [peer for peer in wanted if self.has(peer.name)]

    def add(
        self, row: str, what: str, who: str, unit: str, values: Sequence[float], *, goal: float | None = None,
        note: str = "", load: str = "", at_least: bool = False, busy_too: bool = False,
    ) -> None:  # fmt: skip
        """One figure; `load` where it is not the row's."""
        load, samples = load or self.load, tuple(values)
        self.figures.append(Figure(row, what, who, load, unit, samples, goal, note, at_least, busy_too))

    def add_memory(self, row: str, what: str, who: str, pids: Sequence[int], goal: float) -> None:
        """What each process has to itself; the goal is exitd's."""
        sizes = [private_kb(pid) for pid in pids]
        clean, dirty = (statistics.median(each) for each in zip(*sizes, strict=True))
        note = f"clean {clean:.0f} + dirty {dirty:.0f}"
        values = [float(sum(size)) for size in sizes]
        self.add(row, what, who, "kB", values, goal=goal if who == EXITD else None, note=note)

    def has(self, program: str) -> bool:
        found = shutil.which(program) is not None
        if not found:
            self.say(f"{program} is not installed: absent from the table")
        return found


def shim_memory(bench: Bench) -> None:
    """Private memory of what stays in memory once per container."""
    few, many = bench.count(20, 3), bench.count(500, 0)
    for make in bench.peers(Conmon, *(() if bench.quick else (Containerd,))):
        with contextlib.closing(make(bench.scratch)) as peer:
            containers = [peer.start(bench.id()) for _ in range(few)]
            _memory(bench, peer.name, few, peer.monitors())
            for container in containers:
                peer.clean(container)
    with contextlib.closing(Daemon(bench.scratch)) as daemon:
        daemon.start_many(few)
        _memory(bench, EXITD, few, daemon.shims())
        if many:
            daemon.start_many(many - few)
            _memory(bench, EXITD, many, daemon.shims())


def _memory(bench: Bench, who: str, wanted: int, pids: Sequence[int]) -> None:
    if len(pids) != wanted:
        raise RuntimeError(f"{who}: {len(pids)} monitors for {wanted} containers")
    bench.add_memory("shim-memory", f"private memory of a shim, {wanted} running", who, pids, 40)


def exit_fifo(bench: Bench) -> None:
    """From the kill of init until the code can be read, by each peer's own way of telling."""
    what = "init killed until its code is read"
    rounds = bench.count(100, 5)
    with contextlib.ExitStack() as stack:
        peers: list[Peer] = [stack.enter_context(contextlib.closing(Shims(bench.scratch))), Bare(bench.scratch)]
        for make in bench.peers(Conmon, *(() if bench.quick else (Containerd,))):
            peers.append(stack.enter_context(contextlib.closing(make(bench.scratch))))
        for load in bench.loads():
            for who, values in ended(bench, peers, rounds).items():
                goal = 0.70 if who == EXITD else None
                note = {EXITD: "fifo and record", "conmon": "exit file", "containerd": "ctr events"}.get(who, "")
                bench.add("exit-fifo", what, who, "ms", values, goal=goal, note=note, load=load)


def ended(bench: Bench, peers: Sequence[Peer], rounds: int) -> dict[str, list[float]]:
    """A container of each peer in every round, and milliseconds from its kill until the peer tells it."""
    named = {peer.name: peer for peer in peers}

    def one(who: str) -> float:
        container = named[who].start(bench.id())
        settle()
        took = named[who].end(container)
        named[who].clean(container)
        return took

    return in_turns(list(named), rounds, one)


def settle() -> None:
    """Lets what was done before come to rest; the same for everybody."""
    time.sleep(0.02)


def exit_wait(bench: Bench) -> None:
    """From the kill of init until the answer to a Wait has arrived, the store's flush counted apart."""
    with contextlib.closing(Daemon(bench.scratch)) as daemon, daemon.client() as client:
        stub = daemon.stub()
        wait_once(daemon, client, stub)
        for load in bench.loads():
            samples = [wait_once(daemon, client, stub) for _ in range(bench.count(100, 5))]
            waited, flushes = zip(*samples, strict=True)
            note = f"flush {statistics.median(flushes):.2f} of it"
            what = "init killed until gRPC Wait is answered"
            bench.add("exit-wait", what, EXITD, "ms", waited, goal=2.3, note=note, load=load)
            bench.add("exit-wait", "the store's flush in it", EXITD, "ms", flushes, load=load)


def wait_once(daemon: Daemon, client: Client, stub: Stub) -> tuple[float, float]:
    """One container's end: milliseconds until Wait is answered, milliseconds of the flush among them."""
    container = daemon.start_one(client)
    request = pb.WaitRequest(id=container.id)
    waiter: WayNotice[pb.WaitReply] = WayNotice(lambda seconds: stub.Wait(request, timeout=seconds))
    settle()
    begun = time.perf_counter()
    container.kill()
    number = waiter.result().exit.signal
    if number != signal.SIGKILL:
        raise RuntimeError(f"Wait said signal {number}")
    flush = _setting(client, "flush_seconds")
    container.close()
    client.remove(container.id, force=True)
    return (waiter.at - begun) * 1000, flush * 1000


def shim_create(bench: Bench) -> None:
    """A shim's start until it says created, over a bare `runc create` of the same round: of exitd's own config.json."""
    with contextlib.ExitStack() as stack:
        bare, config = Bare(bench.scratch), _own_config(bench)
        shims = stack.enter_context(contextlib.closing(Shims(bench.scratch)))
        ways: dict[str, Callable[[str], float]] = {"bare runc create": lambda id: _bare_create(bare, config, id)}
        ways[EXITD] = lambda id: _shim_create(shims, config, id)
        for make in bench.peers(Conmon):
            conmon = stack.enter_context(contextlib.closing(make(bench.scratch)))
            assert isinstance(conmon, Conmon)
            ways["conmon"] = lambda id, conmon=conmon: _conmon_create(conmon, config, id)  # type: ignore[misc]  # bound now
        what = "shim's start until created"
        for load in bench.loads():
            _paired(bench, ("shim-create", what, 1.5), ways, load)


def create_call(bench: Bench) -> None:
    """The CreateContainer call until its reply, over a bare `runc create` of the same round: of the config.json that
    exitd has its runtime run."""
    bare = Bare(bench.scratch)
    with contextlib.closing(Daemon(bench.scratch)) as daemon, daemon.client() as client:
        config = own_config(bench.scratch, daemon, client)
        ways: dict[str, Callable[[str], float]] = {"bare runc create": lambda id: _bare_create(bare, config, id)}
        ways[EXITD] = lambda id: _call_create(daemon, client)
        for load in bench.loads():
            _paired(bench, ("create-call", "create call until its reply", 4.5), ways, load)


def _paired(bench: Bench, row: tuple[str, str, float], ways: dict[str, Callable[[str], float]], load: str) -> None:
    """Every way once per round; what counts is the difference to the first one in the same round."""
    name, what, goal = row

    def made(who: str) -> float:
        settle()
        return ways[who](bench.id())

    first, *others = ways
    took = in_turns([first, *others], bench.count(60, 4), made)
    bench.add(name, first, "runc", "ms", took[first], load=load)
    for who in others:
        over = [one - bare for one, bare in zip(took[who], took[first], strict=True)]
        note = f"{statistics.median(took[who]):.1f} in all"
        limit = goal if who == EXITD else None
        bench.add(name, f"{what}, over runc create", who, "ms", over, goal=limit, note=note, load=load)


def _own_config(bench: Bench) -> OwnConfig:
    with contextlib.closing(Daemon(bench.scratch)) as daemon, daemon.client() as client:
        return own_config(bench.scratch, daemon, client)


def _bare_create(bare: Bare, config: OwnConfig, id: str) -> float:
    took = bare.create(id, config.bundle(id))
    bare.delete(id)
    return took


def _shim_create(shims: Shims, config: OwnConfig, id: str) -> float:
    container, took = shims.create(id, bundle=config.bundle(id))
    shims.clean(container)
    return took


def _conmon_create(conmon: Conmon, config: OwnConfig, id: str) -> float:
    took = conmon.create_from(id, config.bundle(id))
    conmon.delete(id)
    return took


def _call_create(daemon: Daemon, client: Client) -> float:
    bundle = daemon.new_bundle()
    took, id = timed(lambda: daemon.create(client, bundle))
    client.remove(id, force=True)
    return took


def waits(bench: Bench) -> None:
    """Ten thousand Waits pending on one container, other containers' exits meanwhile, and the waking of all."""
    count = bench.count(10_000, 500)
    with contextlib.closing(Daemon(bench.scratch)) as daemon, daemon.client() as client:
        stub = daemon.stub()
        wait_once(daemon, client, stub)
        crowd = daemon.start_one(client)
        empty = status_kb(daemon.process.pid, "VmRSS") / 1024
        command = [sys.executable, "-m", "bench.waits", f"{daemon.state}/exitd.sock", crowd.id]
        waiter = subprocess.Popen(
            [*command, str(CONNECTIONS), str(count)], stdout=subprocess.PIPE, text=True, cwd=TREE, bufsize=1
        )
        assert waiter.stdout is not None
        try:
            waiter.stdout.readline()
            until(lambda: _setting(client, "waiters") == count, f"{count} pending Waits", step=0.05)
            held = status_kb(daemon.process.pid, "VmRSS") / 1024
            row, rounds = f"{count:,} Waits pending", bench.count(50, 3)
            for load in bench.loads():
                meanwhile = [wait_once(daemon, client, stub) for _ in range(rounds)]
                latencies, flushes = zip(*meanwhile, strict=True)
                flush = f"flush {statistics.median(flushes):.2f} of it"
                what = f"{row}: another exit until its Wait"
                bench.add("waits", what, EXITD, "ms", latencies, goal=2.0, note=flush, load=load)
            _wake(bench, crowd, waiter, count)
        finally:
            waiter.kill()
            waiter.wait()
        crowd.close()
        high = status_kb(daemon.process.pid, "VmHWM") / 1024
        note = f"{empty:.0f} MB before, {high:.0f} MB at its highest"
        bench.add("waits", f"{row}: the daemon's RSS", EXITD, "MB", (held,), goal=300, note=note)


def _wake(bench: Bench, crowd: WayContainer, waiter: "subprocess.Popen[str]", count: int) -> None:
    begun = time.monotonic()
    crowd.kill()
    out, _ = waiter.communicate(timeout=LIMIT_SECONDS)
    answer = json.loads(out.splitlines()[-1])
    if answer["answered"] != count or answer["wrong"]:
        raise RuntimeError(f"of {count} Waits: {answer}")
    note = f"first after {(answer['first'] - begun) * 1000:.1f} ms"
    what = f"{count:,} Waits on one exit: the last answered"
    bench.add("waits", what, EXITD, "s", (answer["last"] - begun,), goal=1.5, note=note)


def restart(bench: Bench) -> None:
    """The daemon killed and started again among live containers, for a client that speaks gRPC, which has it begun, and
    for one that speaks ttrpc, as exitctl does."""
    count = bench.count(300, 10)
    with contextlib.closing(Daemon(bench.scratch)) as daemon:
        daemon.start_many(count)
        what = f"daemon killed and restarted, {count} live"
        for load in bench.loads():
            took = in_turns(["gRPC", "ttrpc"], bench.count(5, 1), lambda way: _restarted(daemon, count, way == "ttrpc"))
            for way, samples in took.items():
                for which, goal, values in zip(
                    ("API answers", "all recovered,"), (0.3, 0.5), zip(*samples, strict=True), strict=True
                ):
                    name = f"{what}: {which} over {way}"
                    bench.add("restart", name, EXITD, "s", values, goal=goal, note="from exec", load=load)


def _restarted(daemon: Daemon, count: int, by_ttrpc: bool) -> tuple[float, float]:
    """Seconds from the exec of a new daemon until the first call is answered, and until all are recovered."""
    daemon.kill()
    begun = time.perf_counter()
    up = daemon.start(by_ttrpc=by_ttrpc)
    with daemon.client(by_ttrpc=by_ttrpc) as client:
        until(lambda: _all_known(client, count), f"{count} recovered", step=0.01)
    return up, time.perf_counter() - begun


def _setting(client: Client, name: str) -> float:
    return float(client.info().settings[name])


def _all_known(client: Client, count: int) -> bool:
    listed = client.list(all_of_them=True)
    if len(listed) != count:
        raise RuntimeError(f"{len(listed)} of {count} containers are listed")
    return not any(container.recovering for container in listed)


ROWS: dict[str, Callable[[Bench], None]] = {
    "shim-memory": shim_memory,
    "exit-fifo": exit_fifo,
    "exit-wait": exit_wait,
    "shim-create": shim_create,
    "create-call": create_call,
    "waits": waits,
    "restart": restart,
}
