"""Fifos of a client that are held open while a task is made anew, also where their file system hangs."""

import os
import threading
from pathlib import Path

import pytest

from supervisor.containerd import making
from supervisor.containerd.holding import HeldStreams
from supervisor.model.taskfacts import Task
from supervisor.model.values import Container, ForeignStreams, Phase, Spec
from supervisor.system.aside import Aside
from tests.supervisor.descriptors import held_now, opened_since
from tests.supervisor.fakes import in_loop, until


def being_made(directory: Path) -> Container:
    for name in ("out", "err"):
        os.mkfifo(directory / name)
    streams = ForeignStreams(out=str(directory / "out"), err=str(directory / "err"))
    return Container("1", Spec("web", task=Task(str(directory)), foreign=streams), Phase.CREATING, 1, 0)


def has_writer(path: Path) -> bool:
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        os.read(fd, 1)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


@in_loop
async def test_the_fifos_have_a_writer_until_they_are_released(tmp_path: Path) -> None:
    c, before = being_made(tmp_path), held_now()
    held = HeldStreams(making.Asides())
    await held.hold(c)
    await held.hold(c)
    assert has_writer(tmp_path / "out") and has_writer(tmp_path / "err")
    held.release(c)
    held.release(c)
    assert not has_writer(tmp_path / "out") and not opened_since(before)


@in_loop
async def test_what_is_no_fifo_or_has_gone_is_not_held(tmp_path: Path) -> None:
    c, before = being_made(tmp_path), held_now()
    (tmp_path / "out").unlink()
    (tmp_path / "err").unlink()
    (tmp_path / "err").write_text("")
    await HeldStreams(making.Asides()).hold(c)
    assert not opened_since(before)


@in_loop
async def test_fifos_whose_file_system_hangs_are_given_up_and_closed_when_it_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    c, before = being_made(tmp_path), held_now()
    hung, stat, opened, real = threading.Event(), os.stat, list[int](), os.open

    def hangs(path: str, **more: object) -> os.stat_result:
        if str(path).startswith(str(tmp_path)):
            assert threading.current_thread() is not threading.main_thread()
            hung.wait()
        return stat(path)

    def opens(path: str, flags: int) -> int:
        opened.append(real(path, flags))
        return opened[-1]

    with monkeypatch.context() as patched:
        patched.setattr(os, "stat", hangs)
        patched.setattr(os, "open", opens)
        await HeldStreams(making.Asides(asked=Aside(limit_seconds=0.05))).hold(c)
        assert opened == []
        hung.set()
        await until(lambda: len(opened) == 2, "the fifos")
    await until(lambda: not opened_since(before), "the fifos closed")
