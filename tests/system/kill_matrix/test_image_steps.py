"""The image store by itself, in a process that is killed before any line of its code: no half of an image is left."""

import os
import pathlib
import signal
import sys
from types import FrameType
from typing import Any

import pytest

from supervisor.images import store as store_module
from supervisor.images.store import Images
from tests.supervisor.images.building import write_layout
from tests.system.test_images import SMALL, TALL, check_whole, entries_of, whole_entries
from tests.system.waits import scaled

SOURCES = os.path.dirname(store_module.__file__)


def killed_at(step: int, root: pathlib.Path, layout: str, where: tuple[str, ...]) -> int:
    """A process that loads, removes and loads again, and is killed before the step-th line of the modules `where`.
    Returns its wait status. A negative step is never reached."""
    pid = os.fork()
    if pid == 0:
        try:
            _live(step, root, layout, where)
        finally:
            os._exit(1)
    return os.waitpid(pid, 0)[1]


def _live(step: int, root: pathlib.Path, layout: str, where: tuple[str, ...]) -> None:
    seen, sources = 0, tuple(f"{SOURCES}/{name}" for name in where)

    def trace(frame: FrameType, event: str, arg: Any) -> Any:
        nonlocal seen
        if not frame.f_code.co_filename.startswith(sources):
            return None
        seen += event == "line"
        if seen == step:
            os.kill(os.getpid(), signal.SIGKILL)
        return trace

    sys.settrace(trace)
    images = Images(str(root))
    images.tidy()
    images.load(layout)
    images.remove(TALL.id)
    images.load(layout)
    sys.settrace(None)
    (root / "steps").write_text(str(seen))
    os._exit(0)


@pytest.mark.parametrize(("where", "kills"), [(("store.py", "disk.py"), scaled(2000)), (("",), scaled(1000))])
def test_no_kill_at_any_moment_leaves_half_an_image(tmp_path: pathlib.Path, where: tuple[str, ...], kills: int) -> None:
    layout, root = str(write_layout(tmp_path / "l", {"t": TALL})), tmp_path / "root"
    images = Images(str(root))
    kept = images.load(str(write_layout(tmp_path / "small", {"t": SMALL})))[0]
    images.close()
    assert killed_at(-1, root, layout, where) == 0
    steps = int((root / "steps").read_text())
    whole = whole_entries(root)
    outcomes = set()
    for kill in range(kills):
        assert killed_at(1 + kill * steps // kills, root, layout, where) == signal.SIGKILL
        images = Images(str(root))
        images.tidy()
        check_whole(images, root)
        assert kept in images.list()
        tall = [image for image in images.list() if image.id == TALL.id]
        assert [entries_of(image, images) for image in tall] == [whole] * len(tall)
        outcomes.add(len(tall))
        if tall:  # every process begins with the same store, and has as many steps
            images.remove(TALL.id)
        images.close()
    assert outcomes == {0, 1}
