"""Names of containers, changed: what keeps its own, and which no other may take."""

from pathlib import Path

import pytest

from supervisor.model.errors import WrongState
from supervisor.model.values import By, Container, Phase, Pod, Spec
from tests.supervisor.engine.callers import services_of
from tests.supervisor.fakes import in_loop, world

USER = By(uid=0)


@in_loop
async def test_a_sidecar_keeps_its_name_and_no_other_member_gets_it(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        changing = services_of(w, None).changing
        w.node.containers["p"] = Container("p", Spec("pod", pod=Pod(sidecars=("proxy", "late"))), Phase.RUNNING, 1, 0)
        for name in ("proxy", "app"):
            w.node.containers[name] = Container(name, Spec(name, sandbox="p"), Phase.EXITED, 1, 0)
        with pytest.raises(WrongState, match="proxy is a sidecar of its pod, and keeps its name"):
            await changing.rename("proxy", "other", USER)
        with pytest.raises(WrongState, match="late is the name of a sidecar"):
            await changing.rename("app", "late", USER)
        await changing.rename("proxy", "proxy", USER)
        await changing.rename("app", "other", USER)
        assert [each.spec.name for each in w.node.containers.members("p")] == ["proxy", "other"]
