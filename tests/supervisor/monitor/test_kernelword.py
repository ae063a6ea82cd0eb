"""kernelword.py: which way the kernel is asked; with real events in tests/system/test_procevents.py."""

import asyncio
import errno
import os
import socket

import pytest

from supervisor.config.settings import KernelWitness
from supervisor.model.values import Source
from supervisor.monitor import kernelword
from supervisor.monitor.epoll import Monitor
from supervisor.monitor.kernelword import BY_PIDFD, NO_WORD, KernelWord, chosen
from tests.supervisor.children import child, name_of

OLD = "kernel 5.10 does not report exits through pidfds"


def chosen_here(wanted: KernelWitness, pidfd_trouble: str = "") -> KernelWord:
    async def main() -> KernelWord:
        monitor = Monitor()
        try:
            return chosen(wanted, monitor, pidfd_trouble)
        finally:
            monitor.close()

    return asyncio.run(main())


@pytest.fixture
def deaf(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without the connector."""

    def refused(buffer_bytes: int = 0) -> socket.socket:
        raise OSError(errno.EPROTONOSUPPORT, "the kernel has no connector")

    monkeypatch.setattr(kernelword, "listen", refused)


def test_a_kernel_whose_pidfds_report_is_asked_by_them() -> None:
    for wanted in (KernelWitness.AUTO, KernelWitness.PIDFD):
        word = chosen_here(wanted)
        assert (word.witness, word.trouble) == (KernelWitness.PIDFD, "")


def test_what_is_missing_is_said_of_each_way_that_was_wanted(deaf: None) -> None:
    for wanted, trouble in (
        (KernelWitness.AUTO, f"{OLD}; the kernel has no connector"),
        (KernelWitness.PIDFD, f"the configuration says kernel_witness = pidfd; {OLD}"),
        (KernelWitness.PROCEVENTS, "the configuration says kernel_witness = procevents; the kernel has no connector"),
        (KernelWitness.NONE, "the configuration says kernel_witness = none"),
    ):
        word = chosen_here(wanted, OLD)
        assert (word.witness, word.trouble) == (KernelWitness.NONE, trouble)


def test_a_kernel_that_is_not_asked_has_no_word_and_one_that_does_not_report_neither() -> None:
    with child("true") as process:
        name, pidfd = name_of(process), os.pidfd_open(process.pid)
        process.wait()
        for word in (KernelWord("why"), BY_PIDFD):
            word.hold(name, pidfd)
            assert word.of(name, pidfd).source in (Source.NONE, Source.PIDFD)
            word.let_go(name, pidfd)
            word.close()
        os.close(pidfd)
        assert BY_PIDFD.of(name, -1) == NO_WORD
