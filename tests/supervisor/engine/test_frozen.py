"""What exitd itself has frozen, over its own restarts."""

from pathlib import Path
from typing import Any

from supervisor.config.settings import Config
from supervisor.engine.fileservice import FROZEN, FileService
from supervisor.engine.operations import Settings
from supervisor.model import lifecycle as life
from supervisor.model.values import By, Phase, Reason, Spec
from supervisor.runtime.oci import bundle
from tests.supervisor.engine.callers import services_of
from tests.supervisor.fakes import in_loop, until, world

NONE: Any = None


@in_loop
async def test_an_end_that_is_taken_up_waits_for_the_thaw_of_what_a_killed_exitd_has_frozen(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        services = services_of(w, None)
        service = FileService(w.node, services.containers, NONE, Settings(str(tmp_path), str(tmp_path), now=Config))
        w.join(services.ending, service)
        id, other = await w.running(Spec(name="web")), await w.running(Spec(name="other"))
        mark = Path(bundle.directory_of(str(tmp_path), id)) / FROZEN
        mark.parent.mkdir(parents=True)
        mark.touch()
        await w.node.apply(id, life.Paused())
        for each in (id, other):
            await service.before_find(each)
        assert w.node.frozen == {id}
        w.manager.on_kill = lambda c, number: w.manager.ends(c.id) if number == 15 else None
        ending = services.ending.by_policy(id, Reason.STOP, By(policy="p"), 3600.0)
        w.node.spawn(ending)
        await until(lambda: w.node.containers[id].ending is not None, "the end")
        assert w.manager.count("kill") == 0
        await service.thaw_left()
        await until(lambda: w.node.containers[id].phase is Phase.EXITED, "its end")
        assert w.manager.count("kill") == 1 and not mark.exists() and w.node.frozen == set()
