"""What commands use of the processor, and what a daemon takes among containers that do nothing."""

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from bench.cpumeter import metered, of_process_ms
from bench.figures import EXITD
from bench.ours import Daemon
from bench.peers import Containerd
from bench.rows import Bench
from supervisor.compare.harness import few_at_once, in_turns
from supervisor.compare.machine import pss_kb, run
from supervisor.compare.podman import Podman

TRUE = "true"
AFTER_SECONDS = 0.05  # what goes on behind a command
# Each verb with its goal, over podman's of the same round.
VERBS = {"--help": 1.8, "ps": 1.8, "exec": 1.2, "run --rm": 1.2}
IDLE_SECONDS, QUICK_IDLE_SECONDS = 10.0, 0.5
IDLE_GOAL_MS, PSS_GOAL_KB = 0.5, 40 * 1024.0  # of a second, which is 0.05 % of a core; of daemon and keeper
REST_SECONDS = 2.0  # from the last start to the first look

Command = Callable[[], None]


def cli(bench: Bench) -> None:
    """The processor time of a command and of all that works for it, over podman's for the same verb."""
    with contextlib.ExitStack() as stack:
        used_ms = stack.enter_context(metered())
        daemon = stack.enter_context(contextlib.closing(Daemon(bench.scratch)))
        client = stack.enter_context(daemon.client())
        container = daemon.start_one(client)
        stack.callback(container.close)
        ways: dict[str, dict[str, Command]] = {EXITD: _exitctl(daemon, container.id)}
        if bench.has(Podman.name):
            ways[Podman.name] = _podman(bench, stack.enter_context(contextlib.closing(Podman(bench.scratch))))
        for verb, goal in VERBS.items():
            took = in_turns(list(ways), bench.count(20, 2), partial(_used, used_ms, verb, ways))
            for who, values in took.items():
                bench.add("cli", f"{verb}: processor of everybody", who, "ms", values)
            if Podman.name in took:
                over = [one / other for one, other in zip(took[EXITD], took[Podman.name], strict=True)]
                bench.add("cli", f"{verb}: the same over podman", EXITD, "x", over, goal=goal)


def _exitctl(daemon: Daemon, container: str) -> dict[str, Command]:
    words: dict[str, tuple[str, ...]] = {"--help": ("--help",), "ps": ("ps",), "exec": ("exec", container, TRUE)}
    words["run --rm"] = ("run", "--rm", "/", TRUE)
    return {verb: partial(run, *daemon.exitctl(*each)) for verb, each in words.items()}


def _podman(bench: Bench, podman: Podman) -> dict[str, Command]:
    plain = ("--network", "none", "--security-opt", "seccomp=unconfined")
    name = bench.id()
    podman.run(name, *plain)
    return {
        "--help": lambda: _called(podman, "--help"),
        "ps": lambda: _called(podman, "ps"),
        "exec": lambda: podman.exec(name, TRUE),
        "run --rm": lambda: _called(podman, "run", "--rm", *plain, "--rootfs", "/:O", TRUE),
    }


def _called(podman: Podman, *words: str) -> None:
    podman.call(*words)


def _used(used_ms: Callable[[], float], verb: str, ways: Mapping[str, Mapping[str, Command]], who: str) -> float:
    """Milliseconds, those included that follow behind it."""
    before = used_ms()
    ways[who][verb]()
    time.sleep(AFTER_SECONDS)
    return used_ms() - before


def idle(bench: Bench) -> None:
    """A daemon among containers that sleep: what it uses of the processor, and its memory. Once with a client that
    speaks gRPC, which has it begun, and once with one of ttrpc alone, as exitctl is."""
    count = bench.count(300, 3)
    for way in ("gRPC", "ttrpc"):
        with contextlib.closing(Daemon(bench.scratch, f"idle-{way}", by_ttrpc=way == "ttrpc")) as daemon:
            daemon.start_many(count)
            pids = (daemon.process.pid, daemon.keeper())
            goals = (IDLE_GOAL_MS, PSS_GOAL_KB)
            _at_rest(bench, f"{EXITD}: {way}", count, pids, f"daemon and keeper, its client speaks {way}", goals)
    if bench.has(Containerd.name):
        with contextlib.closing(Containerd(bench.scratch, tells=False)) as containerd:
            for container in few_at_once(containerd.start, [bench.id() for _ in range(count)]):
                container.close()
            _at_rest(bench, Containerd.name, count, (containerd.server_pid(),), "without its shims")


def _at_rest(
    bench: Bench, who: str, count: int, pids: Sequence[int], note: str,
    goals: tuple[float | None, float | None] = (None, None),
) -> None:  # fmt: skip
    """`goals`: of the processor, and of the memory."""
    seconds = QUICK_IDLE_SECONDS if bench.quick else IDLE_SECONDS
    time.sleep(REST_SECONDS)
    before = sum(map(of_process_ms, pids))
    time.sleep(seconds)
    used = (sum(map(of_process_ms, pids)) - before) / seconds
    what, size = f"{count} containers idle", float(sum(map(pss_kb, pids)))
    bench.add("idle", f"{what}: processor per second", who, "ms", (used,), goal=goals[0], note=note)
    bench.add("idle", f"{what}: PSS", who, "kB", (size,), goal=goals[1], note=note)


CLI_ROWS: dict[str, Callable[[Bench], None]] = {"cli": cli, "idle": idle}
