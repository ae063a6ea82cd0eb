"""What a report says of the Python it was measured with, and of the load that was made."""

import sys

import pytest

from supervisor.compare import machine
from supervisor.compare.contest import conditions
from supervisor.compare.machine import Scratch, python_build
from supervisor.compare.plan import Plan


def test_the_python_is_named_with_its_build_and_whose_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version", "3.11.2 (main, Apr 28 2025, 14:11:48)\n[GCC 12.2.0]")
    monkeypatch.setattr(sys, "_base_executable", "/opt/own/bin/python3")
    of_its_own = python_build()
    monkeypatch.setattr(sys, "_base_executable", machine.DISTRIBUTION_PYTHON)
    build = "3.11.2 (main, Apr 28 2025, 14:11:48) [GCC 12.2.0]"
    assert of_its_own == f"{build}, not the distribution's /usr/bin/python3"
    assert python_build() == f"{build}, the distribution's own /usr/bin/python3"


def test_a_report_says_which_python_it_is_of_and_what_busy_means(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "first_line", lambda *argv: "absent")
    found = dict(conditions(Scratch("/", "/", {}), Plan()))
    assert found["python"] == python_build()
    assert found["busy"] == "an endless loop at nice 0 on every processor"
