"""A plugin of pytest: a line of JSON for each test that has ended, in the file that EXITD_VM_OUTCOMES names.

Written as it comes: of a run that is cut off, it is known which tests have ended, and which one had begun.
"""

import json
import os
import pathlib

import pytest

LAST_CHARACTERS = 2000  # of a failure's report


class Outcomes:
    """What became of each test: passed, failed or skipped, in all phases together; begun, if it has not ended."""

    def __init__(self, path: pathlib.Path) -> None:
        self._path = path
        self._outcome, self._why, self._seconds = "passed", "", 0.0

    def _say(self, test: str, outcome: str) -> None:
        line = {"test": test, "outcome": outcome, "seconds": round(self._seconds, 1), "why": self._why}
        with self._path.open("a") as file:
            file.write(json.dumps(line) + "\n")

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._outcome, self._why, self._seconds = "passed", "", 0.0
        self._say(nodeid, "begun")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds += report.duration
        if report.failed:
            self._outcome, self._why = "failed", f"{report.when}: {report.longreprtext}"[-LAST_CHARACTERS:]
        elif report.skipped and self._outcome == "passed":
            self._outcome, self._why = "skipped", report.longreprtext[-LAST_CHARACTERS:]

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._say(nodeid, self._outcome)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A file that cannot even be imported."""
        if report.failed:
            self._why = report.longreprtext[-LAST_CHARACTERS:]
            self._say(report.nodeid, "failed")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Outcomes(pathlib.Path(os.environ["EXITD_VM_OUTCOMES"])), "outcomes")
