"""What is taken down after a container's last run, where that takes its time, or does not come back."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from supervisor.model.errors import TimedOut
from supervisor.runtime.foreign_shim import place as work
from supervisor.runtime.foreign_shim.containers import ShimV2Containers
from supervisor.runtime.oci import bundle
from supervisor.runtime.oci.native import NativeContainers
from supervisor.runtime.oci.runplan import Place
from supervisor.system.aside import Aside
from tests.supervisor.fakes import in_loop, until


@in_loop
async def test_what_cannot_be_taken_down_now_holds_no_thread_that_others_need(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is given up by its name, to be tried again; as often as that is, it has one thread."""
    hung, at_it = threading.Event(), list[str]()

    def waits(*args: str) -> None:
        at_it.append(args[0])
        hung.wait()

    monkeypatch.setattr(bundle, "remove", waits)
    monkeypatch.setattr(work, "clear", waits)
    given = Place(str(tmp_path), str(tmp_path), clearing=Aside(limit_seconds=0.05))
    nobody: Any = None
    native, foreign = NativeContainers(given, nobody, nobody), ShimV2Containers(given, nobody, nobody)
    asked: tuple[tuple[Callable[[], Any], str], ...] = (
        (lambda: native.discard("c1"), "removing the files of c1 took more than"),
        (lambda: foreign._release("c2", "/s/c/c2/1"), "unmounting what is below /s/c/c2/1 took more than"),
    )
    for ask, words in asked:
        for _ in range(3):
            with pytest.raises(TimedOut, match=words):
                await ask()
    await until(lambda: len(at_it) >= 2, "a thread of each")  # begun, which is not yet to be at its work
    assert sorted(at_it) == ["/s/c/c2/1", "c1"]
    assert await asyncio.to_thread(lambda: 7) == 7
    hung.set()
