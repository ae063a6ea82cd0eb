"""How a process ended is known from the kernel, whoever has reaped it; and a gate opens when somebody is there."""

import os
import pathlib
import signal
import subprocess
import threading

import pytest

from supervisor.compare import truth
from supervisor.compare.gate import open_gate
from supervisor.compare.podspec import join
from supervisor.compare.way import WayContainer
from supervisor.model.values import Exited, ExitStatus, Signaled


@pytest.mark.parametrize(
    ("script", "made_to_be"),
    [("exit 43", Exited(43)), ("exit 0", Exited(0)), ("kill -9 $$", Signaled(signal.SIGKILL))],
)
def test_the_witness_says_how_a_process_ended(script: str, made_to_be: ExitStatus) -> None:
    child = subprocess.Popen(["sh", "-c", f"read line; {script}"], stdin=subprocess.PIPE)
    container = WayContainer("one", child.pid).hold()
    child.communicate(b"\n", timeout=30)
    assert truth.end_of(container, made_to_be) == made_to_be
    container.close()


def test_where_the_kernel_reports_to_nobody_has_to_be_believed() -> None:
    if not truth.kernel_reports():  # then what a container was made to be is all there is
        return
    child = subprocess.Popen(["sh", "-c", "read line; exit 7"], stdin=subprocess.PIPE)
    container = WayContainer("one", child.pid).hold()
    child.communicate(b"\n", timeout=30)
    assert truth.end_of(container, Exited(43)) == Exited(7)
    container.close()


def test_a_gate_is_opened_as_soon_as_somebody_waits_at_it(tmp_path: pathlib.Path) -> None:
    path = f"{tmp_path}/go"
    os.mkfifo(path)
    opened = threading.Thread(target=open_gate, args=(path,))
    opened.start()
    with open(path) as gate:
        assert gate.readline() == "go\n"
    opened.join(30)
    assert not opened.is_alive()


def test_a_member_joins_what_pods_share_and_nothing_else() -> None:
    kinds = ("pid", "network", "ipc", "uts", "mount")
    spec = {"linux": {"namespaces": [{"type": kind} for kind in kinds]}}
    join(spec, 7)
    assert spec["linux"]["namespaces"] == [
        {"type": "pid"},
        {"type": "network", "path": "/proc/7/ns/net"},
        {"type": "ipc", "path": "/proc/7/ns/ipc"},
        {"type": "uts", "path": "/proc/7/ns/uts"},
        {"type": "mount"},
    ]
