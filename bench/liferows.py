"""What the life of a container costs the processor: its create, its start, its end and its removal."""

import contextlib
import signal
import time
from collections.abc import Callable

from bench.cpumeter import metered, of_process_ms
from bench.figures import EXITD
from bench.ours import Daemon
from bench.ownconfig import OwnConfig, own_config
from bench.peers import Bare
from bench.rows import Bench
from supervisor.api.client import Client
from supervisor.compare.harness import in_turns
from supervisor.compare.machine import LIMIT_SECONDS, until
from supervisor.compare.way import WayContainer

BARE = "bare runc"
DAEMON_GOAL_MS = 8.0
AFTER_SECONDS = 0.2  # what goes on behind the last one
LIFE = "create, start, end and removal of a container"


def life_cpu(bench: Bench) -> None:
    """Some tens of lives at a stretch, one after the other, and what they have used, divided by their number."""
    lives = bench.count(10, 2)
    with contextlib.ExitStack() as stack:
        used_ms = stack.enter_context(metered())
        daemon = stack.enter_context(contextlib.closing(Daemon(bench.scratch, by_ttrpc=True)))
        client = stack.enter_context(daemon.client())
        bare, config = Bare(bench.scratch), own_config(bench.scratch, daemon, client)
        live: dict[str, Callable[[], None]] = {
            EXITD: lambda: _lived(daemon, client),
            BARE: lambda: _lived_bare(bare, config, bench.id()),
        }

        def one(who: str) -> tuple[float, ...]:
            looks = (used_ms, *(lambda pid=pid: of_process_ms(pid) for pid in (daemon.process.pid, daemon.keeper())))
            before = [look() for look in looks]
            for _ in range(lives):
                live[who]()
            until(lambda: not daemon.shims(), "the end of the shims")
            time.sleep(AFTER_SECONDS)
            return tuple((look() - past) / lives for look, past in zip(looks, before, strict=True))

        took = in_turns(list(live), bench.count(10, 2), one)
    everybody, by_daemon, by_keeper = zip(*took[EXITD], strict=True)
    alone = [used for used, *_ in took[BARE]]
    note = f"{lives} lives each"
    bench.add("life-cpu", f"{LIFE}: the daemon", EXITD, "ms", by_daemon, goal=DAEMON_GOAL_MS, note=note)
    bench.add("life-cpu", f"{LIFE}: the keeper", EXITD, "ms", by_keeper, note=note)
    bench.add("life-cpu", f"{LIFE}: everybody", EXITD, "ms", everybody, note=f"{note}; daemon, keeper, shim and runc")
    bench.add("life-cpu", f"{LIFE}: everybody", BARE, "ms", alone, note=f"{note}; runc create, start, delete")
    more = [one - other for one, other in zip(everybody, alone, strict=True)]
    bench.add("life-cpu", f"{LIFE}: daemon, keeper and shim, over bare runc", EXITD, "ms", more, note=note)


def _lived(daemon: Daemon, client: Client) -> None:
    """By exitd, asked as exitctl asks it."""
    container = daemon.start_one(client)
    ended = client.begin_wait(container.id)
    container.kill()
    exit = ended.result(LIMIT_SECONDS)
    if exit is None or exit.signal != signal.SIGKILL:
        raise RuntimeError(f"exitd reports {exit} for a SIGKILL")
    container.close()
    client.remove(container.id, force=False)


def _lived_bare(bare: Bare, config: OwnConfig, id: str) -> None:
    """In the same place as exitd's containers, whose own work is not counted either."""
    container: WayContainer = bare.start(id, config.bundle(id, f"/exitd/{id}"))
    container.kill()
    bare.clean(container)


LIFE_ROWS: dict[str, Callable[[Bench], None]] = {"life-cpu": life_cpu}
