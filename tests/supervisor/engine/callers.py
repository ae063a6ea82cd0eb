"""What callers ask of the engine, on the node of `fakes`: put together as the daemon does it."""

from dataclasses import dataclass
from typing import cast

from supervisor.config.settings import Retention
from supervisor.engine.admission import Admission
from supervisor.engine.ending import Ending
from supervisor.engine.execlife import Execs
from supervisor.engine.execops import ExecOperations
from supervisor.engine.health_checks import Prober, Probing
from supervisor.engine.ledger import Ledger
from supervisor.engine.operations import Operations
from supervisor.engine.pods import PodKeeper, PodOperations
from supervisor.engine.views import Views
from supervisor.model.views import Info
from supervisor.runtime.managers import ContainerRuntimes
from tests.supervisor.exec_fakes import FakeExecManager
from tests.supervisor.fakes import World


def no_info() -> Info:
    raise AssertionError("nobody asks")


@dataclass(frozen=True)
class Calls:
    containers: Operations
    pods: PodOperations
    execs: ExecOperations
    ending: Ending
    keeper: PodKeeper


class Times:
    """A retention that can be changed while calls are answered."""

    def __init__(self) -> None:
        self.exit_seconds = 300.0

    def now(self) -> Retention:
        return Retention(exit_seconds=self.exit_seconds)


def calls_of(w: World, admission: object, execs: Execs | None = None, times: Times | None = None) -> Calls:
    """`execs`: of the world's node; none by default."""
    manager = cast(ContainerRuntimes, w.manager)  # only what the seam has, and two questions more
    execs = execs or Execs(w.node, FakeExecManager())
    ending, ledger = Ending(w.node, manager, execs), Ledger(w.store, w.clock, (times or Times()).now)
    views = Views(w.node, manager, execs, "/root", "/state")
    prober = Prober(w.node, Probing(w.node, execs).run, ending.by_policy)
    parts = (w.node, manager, cast(Admission, admission), ending, prober, views, ledger, no_info)
    containers = Operations(*parts)
    return Calls(
        containers,
        PodOperations(w.node, containers, views, ledger),
        ExecOperations(w.node.containers, w.store, execs, ledger),
        ending,
        PodKeeper(w.node, containers, ending),
    )
