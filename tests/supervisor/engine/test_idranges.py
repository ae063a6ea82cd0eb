"""Who gets which ids: each container its own, whatever its row says, until nothing is left of it."""

import asyncio
import json
import pathlib
import threading
from dataclasses import replace

import pytest

from supervisor.config.settings import Config, UsernsSettings
from supervisor.engine import idranges
from supervisor.engine.containers import Containers
from supervisor.engine.idranges import IdRanges
from supervisor.model.errors import BadRequest, TimedOut, WrongState
from supervisor.model.idranges import COUNT, IdRange
from supervisor.model.values import Container, Phase, Pod, Spec
from supervisor.runtime.oci import bundle
from supervisor.system.aside import Aside
from tests.supervisor.fakes import in_loop

BASE = 1 << 20
CONFIG = Config(userns=UsernsSettings(BASE, 3 * COUNT))
WANTED = Spec(name="c", userns="auto")


def ranges(root: pathlib.Path, *there: Container, config: Config = CONFIG) -> IdRanges:
    containers = Containers()
    for each in there:
        containers[each.id] = each
    return IdRanges(containers, lambda: config, str(root))


async def first(ids: IdRanges, container_id: str) -> int:
    found = (await ids.claim(WANTED, container_id)).ids
    assert found is not None
    return found.first


@in_loop
async def test_those_that_are_made_at_once_get_ranges_of_their_own_until_they_are_discarded(
    tmp_path: pathlib.Path,
) -> None:
    ids = ranges(tmp_path)
    assert await asyncio.gather(*(first(ids, id) for id in "abc")) == [BASE, BASE + COUNT, BASE + 2 * COUNT]
    with pytest.raises(WrongState, match="all 3 ranges"):
        await ids.claim(WANTED, "d")
    await ids.discarded("b")
    assert await first(ids, "d") == BASE + COUNT
    assert (await ids.claim(replace(WANTED, userns="host"), "e")).ids is None


@in_loop
async def test_what_a_row_or_a_configuration_names_is_taken(tmp_path: pathlib.Path) -> None:
    known = Container("known", replace(WANTED, ids=IdRange(BASE)), Phase.EXITED, 1, 1)
    damaged = Container("damaged", Spec(name="d"), Phase.RUNNING, 1, 1, damaged="its row cannot be read")
    for id, at in (("damaged", BASE + COUNT), ("gone", BASE + 2 * COUNT), ("known", 0)):
        (directory := tmp_path / "c" / id / "bundle").mkdir(parents=True)
        linux = {"uidMappings": [{"containerID": 0, "hostID": at, "size": COUNT}]}
        config = {"process": {}, "root": {"path": "/"}, "linux": linux}
        (directory / "config.json").write_text(json.dumps(config))
    (tmp_path / "c/empty").mkdir()
    (tmp_path / "c/file").touch()
    ids = ranges(tmp_path, known, damaged)
    with pytest.raises(WrongState, match="all 3 ranges"):
        await ids.claim(WANTED, "new")
    (tmp_path / "c/gone/bundle/config.json").unlink()
    assert await first(ids, "new") == BASE + 2 * COUNT


@in_loop
async def test_a_look_at_files_that_hangs_has_a_limit(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hangs = threading.Event()
    monkeypatch.setattr(bundle, "all_ids", lambda root: hangs.wait() and [])
    monkeypatch.setattr(idranges, "Aside", lambda most: Aside(most, limit_seconds=0.01))
    ids = ranges(tmp_path)
    try:
        with pytest.raises(TimedOut, match="the ids of containers"):
            await asyncio.wait_for(first(ids, "c"), 10)
    finally:
        hangs.set()


@in_loop
async def test_who_cannot_have_one_is_refused(tmp_path: pathlib.Path) -> None:
    ids = ranges(tmp_path)
    for spec, why in (
        (replace(WANTED, sandbox="p"), "pod"),
        (replace(WANTED, pod=Pod()), "pod"),
        (replace(WANTED, runtime_type="io.containerd.kata.v2"), "a shim of its own"),
    ):
        with pytest.raises(BadRequest, match=why):
            await ids.claim(spec, "c")
    with pytest.raises(WrongState, match=r"set userns\.base"):
        await ranges(tmp_path, config=Config()).claim(WANTED, "c")
