"""The services over the node, put together: what callers and policies ask for."""

from shim.frozen import frozen
from supervisor.engine.admission import Admission
from supervisor.engine.changing import Changing
from supervisor.engine.ending import Ending
from supervisor.engine.execlife import Execs
from supervisor.engine.execops import ExecOperations
from supervisor.engine.health_checks import Prober, Probing
from supervisor.engine.hooks import HookKeeper, HookRunner
from supervisor.engine.lastwords import LastWords
from supervisor.engine.ledger import Ledger
from supervisor.engine.nodeshutdown import NodeShutdown
from supervisor.engine.operations import Operations, Settings
from supervisor.engine.pods import PodKeeper, PodOperations
from supervisor.engine.runs import Runs
from supervisor.engine.views import Views
from supervisor.runtime.managers import ContainerRuntimes


@frozen
class EngineServices:
    """One service of each kind. `ending`, `hooks`, `prober`, `pod_keeper`, `changing` and `last_words` are
    participants, to be joined to the node; `prober` and `shutdown` are to be closed."""

    ending: Ending
    hooks: HookKeeper
    prober: Prober
    containers: Operations
    pods: PodOperations
    execs: ExecOperations
    pod_keeper: PodKeeper
    shutdown: NodeShutdown
    changing: Changing
    last_words: LastWords


def services_over(
    runs: Runs, manager: ContainerRuntimes, execs: Execs, admission: Admission, settings: Settings
) -> EngineServices:
    """Return the services over the node of these runs. `execs` are the node's."""
    node = runs.node
    probing = Probing(node, execs)
    runner = HookRunner(node, probing.run)
    ending = Ending(node, manager, execs, runner)
    prober = Prober(node, probing.run, ending.by_policy)
    views = Views(node, manager, execs, settings.root, settings.state)
    ledger = Ledger(node.store, node.clock, lambda: settings.now().retention)
    last_words = LastWords(node.containers, settings.root, node.spawn)
    containers = Operations(runs, manager, admission, ending, prober, views, ledger, last_words)
    pod_keeper = PodKeeper(node, containers, ending)
    return EngineServices(
        ending,
        HookKeeper(node, runner, ending.by_policy),
        prober,
        containers,
        PodOperations(runs, containers, views, ledger),
        ExecOperations(node.containers, node.store, execs, ledger),
        pod_keeper,
        NodeShutdown(node, ending, pod_keeper.look_at_all),
        Changing(runs, manager),
        last_words,
    )
