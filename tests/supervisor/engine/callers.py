"""What callers ask of the engine, on the node of `fakes`."""

from collections.abc import Callable
from typing import cast

from supervisor.config.settings import Config
from supervisor.engine.admission import Admission
from supervisor.engine.execlife import Execs
from supervisor.engine.operations import Settings
from supervisor.engine.services import EngineServices, services_over
from supervisor.runtime.managers import ContainerRuntimes
from tests.supervisor.exec_fakes import FakeExecManager
from tests.supervisor.fakes import World


def services_of(
    w: World, admission: object, execs: Execs | None = None, config: Callable[[], Config] = Config
) -> EngineServices:
    """`execs`: of the world's node; none by default."""
    manager = cast(ContainerRuntimes, w.manager)  # only what the seam has, and two questions more
    execs = execs or Execs(w.node, FakeExecManager())
    settings = Settings("/root", "/state", now=config)
    return services_over(w.runs, manager, execs, cast(Admission, admission), settings)
