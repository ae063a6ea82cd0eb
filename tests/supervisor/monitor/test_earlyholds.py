"""Real processes, held before their look-up."""

import errno
import os
import signal

import pytest

from supervisor.model.values import Process
from supervisor.monitor.earlyholds import EarlyHolds
from supervisor.monitor.epoll import read_ready
from supervisor.monitor.kernelword import BY_PIDFD, KernelWord
from tests.supervisor.children import child, name_of
from tests.supervisor.descriptors import held_now, opened_since
from tests.supervisor.narrow import Narrow


class Seen(KernelWord):
    """What the kernel's witness was asked to observe, and still does."""

    def __init__(self) -> None:
        super().__init__()
        self.observed: dict[Process, int] = {}

    def hold(self, process: Process, pidfd: int) -> None:
        assert self.observed.setdefault(process, pidfd) == pidfd

    def let_go(self, process: Process, pidfd: int) -> None:
        assert self.observed.pop(process, pidfd) == pidfd


def test_one_that_is_reaped_before_it_is_taken_is_taken_with_the_kernels_word() -> None:
    early = EarlyHolds(BY_PIDFD)
    with child() as process:
        name = name_of(process)
        early.hold("c1", name)
        process.send_signal(signal.SIGTERM)
        process.wait()
    held = early.take(name)
    assert held is not None and read_ready(held.pidfd)
    assert (held.parent, held.executed) == (os.getpid(), True)
    assert BY_PIDFD.of(name, held.pidfd).status in (signal.SIGTERM, None)  # None: a kernel before 6.15
    os.close(held.pidfd)
    early.close()


def test_it_is_held_once_and_whoever_takes_it_has_a_descriptor_of_his_own() -> None:
    """A look-up that fails lets go of it, and takes it again."""
    seen, before = Seen(), held_now()
    early = EarlyHolds(seen)
    with child() as process:
        name = name_of(process)
        early.hold("c1", name)
        early.hold("c2", name)
        assert list(seen.observed) == [name]
        first = early.take(name)
        assert first is not None
        os.close(first.pidfd)
        second = early.take(name)
        assert second is not None and list(seen.observed) == [name] and second.pidfd not in seen.observed.values()
        early.release("c2")
        assert list(seen.observed) == [name]
        early.release("c1")
        early.close()
        assert not seen.observed and early.take(name) is None and os.fstat(second.pidfd)
        os.close(second.pidfd)
    assert not opened_since(before)


def test_without_room_for_another_descriptor_whoever_takes_it_has_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, before = Seen(), held_now()
    early = EarlyHolds(seen)
    with child() as process:
        name = name_of(process)
        early.hold("c1", name)
        Narrow(monkeypatch, os, "dup", errno.EMFILE)
        held = early.take(name)
        early.release("c1")
        assert held is not None and seen.observed == {name: held.pidfd} and early.take(name) is None
        os.close(held.pidfd)
    assert not opened_since(before)


def test_it_is_let_go_with_its_container() -> None:
    seen, before = Seen(), held_now()
    early = EarlyHolds(seen)
    with child() as first, child() as second, child() as exec_:
        with_pipes = held_now()
        for container, process in (("c1", first), ("c1", exec_), ("c2", second)):
            early.hold(container, name_of(process))
        early.release("c1")
        early.release("c1")
        assert list(seen.observed) == [name_of(second)] and early.take(name_of(first)) is None
        early.close()
        assert not seen.observed and not opened_since(with_pipes)
    assert not opened_since(before)


@pytest.mark.parametrize("which", ["reaped", "another", "nobody"])
def test_only_that_very_process_is_held(which: str) -> None:
    seen, before = Seen(), held_now()
    early = EarlyHolds(seen)
    with child() as process:
        name = name_of(process)
        if which == "reaped":
            process.kill()
            process.wait()
        others = {"another": Process(name.pid, name.started_ticks + 1), "nobody": Process(1 << 30, 1)}
        early.hold("c1", others.get(which, name))
        assert not seen.observed
    assert not opened_since(before)


def test_without_a_descriptor_it_is_left_to_its_look_up(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, before = Seen(), held_now()
    early = EarlyHolds(seen)
    with child() as process:
        narrow = Narrow(monkeypatch, os, "pidfd_open", errno.EMFILE)
        early.hold("c1", name_of(process))
        assert narrow.refused == 1 and not seen.observed and early.take(name_of(process)) is None
    assert not opened_since(before)
