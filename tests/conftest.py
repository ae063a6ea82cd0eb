"""What holds for every test: the mark `system` and its needs, and that nothing is skipped where it counts."""

import faulthandler
import gc
import os
import pathlib
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Generator
from typing import Any

import pytest
import structlog
from hypothesis import HealthCheck, settings

SYSTEM_TESTS = pathlib.Path(__file__).parent / "system"
# The longest files of `make system`, the longest first, as a whole run had them: two thirds of its time were theirs.
LONG = (
    *("test_upgrade.py", "test_shimclient_fakes.py", "kill_matrix/test_orders.py", "kill_matrix/test_pod.py"),
    *("../test_packaging.py", "test_runtimes.py", "test_bench.py", "kill_matrix/test_container_commands.py"),
    *("test_faulty_disk.py", "test_compare.py", "test_no_waiting.py", "test_pods_reboot.py", "test_cli_terminal.py"),
    *("test_adoption.py", "test_shimclient_life.py", "kill_matrix/test_task.py"),
    *("kill_matrix/test_container_calls.py", "test_recovery.py", "test_races.py", "test_never_began.py"),
    *("kill_matrix/test_pod_members.py", "test_demo.py", "kill_matrix/test_image.py", "test_watch_runtimes.py"),
    *("test_containerd_cri.py", "test_odd_messages.py", "test_pods_races.py", "test_storage.py"),
    *("kill_matrix/test_output.py", "test_cli.py", "test_exec.py", "kill_matrix/test_monitors.py"),
    *("test_doors_tasks.py", "test_unfinished.py", "test_docs_pods.py", "test_play.py", "test_containerd_numbers.py"),
    *("kill_matrix/test_foreign_shim.py", "test_policies.py", "test_containerd_stdio.py", "test_few_pids.py"),
    *("kill_matrix/test_network.py", "test_join.py", "test_standstill.py", "test_procevents.py"),
    *("test_containerd_verbs.py", "test_network_recovery.py", "test_docs_pages.py", "test_containerd_streams.py"),
    *("test_images_cli.py", "test_attack.py", "test_faults.py", "test_images_failures.py"),
    *("kill_matrix/test_probe_end.py", "test_complaints_daemon.py", "kill_matrix/test_task_exec.py"),
    *("test_keeper_slots.py", "test_metrics.py", "kill_matrix/test_task_making.py", "test_keeper.py"),
    *("test_containerd_crowd.py",),
)
GRACE_SECONDS = 60.0  # for a test, past its limit
END_SECONDS = 60.0  # for the run to end, after its last test
SETTINGS = pytest.StashKey[Any]()  # pytest-timeout's, of a test
STDERR = pytest.StashKey[int]()  # a descriptor, also while what is written there is captured
LAST_CHARACTERS = 1500  # of a failure's report, printed at once
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"  # as in exitd and exitctl; grpc reads it when it is imported
# Hypothesis knows a slow example, but not that it was the machine which was slow; where it sees CI it does the same.
settings.register_profile("any-machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any-machine")


def in_ci() -> bool:
    return os.environ.get("CI", "").lower() not in ("", "0", "false")


def heed_signals() -> None:
    """Undo what the starter ignores: under nohup, or in the background of a script, SIGHUP and SIGINT do nothing."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(SYSTEM_TESTS):
            item.add_marker("system")
    if hasattr(config, "workerinput"):
        _long_files_first(items)


def pytest_collection_finish() -> None:
    """Tests that count descriptors collect garbage first. What has been imported by now is none, and is thousands of
    times as much as what a test makes: in a process that has read all tests a look at it takes half a second."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """A test that hangs where no signal is heard, in C, ends its process, which shows where."""
    _ends_when_deaf(item)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


@pytest.hookimpl(tryfirst=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> None:
    item.stash[SETTINGS] = settings


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """When a test fails, pytest and pytest-timeout end its limits, for whoever looks at it in a debugger. What comes
    then may hang as well, most of all after a failure: it has limits of its own."""
    if (settings := item.stash.get(SETTINGS, None)) is not None:
        item.config.hook.pytest_timeout_cancel_timer(item=item)
        item.config.hook.pytest_timeout_set_timer(item=item, settings=settings)
    _ends_when_deaf(item)


@pytest.hookimpl(optionalhook=True)
def pytest_handlecrashitem(crashitem: str, sched: Any) -> None:
    """A test that has ended its process is not run once more: pytest-xdist gives all that is left of its file, the test
    too, to the next process."""
    for tests in getattr(sched, "workqueue", {}).values():
        if crashitem in tests:
            tests[crashitem] = True  # done


def _ends_when_deaf(item: pytest.Item) -> None:
    mark = item.get_closest_marker("timeout")
    own = mark.args[0] if mark is not None and mark.args else item.config.getoption("timeout")
    if seconds := float(own or item.config.getini("timeout") or 0):
        faulthandler.dump_traceback_later(seconds + GRACE_SECONDS, exit=True, file=item.config.stash[STDERR])


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """So does a thread that never ends, which would keep the run from ending. A worker waits for its controller."""
    if not hasattr(config, "workerinput"):
        sys.stdout.flush()  # what ends it so flushes nothing
        faulthandler.dump_traceback_later(END_SECONDS, exit=True, file=config.stash[STDERR])


def _long_files_first(items: list[pytest.Item]) -> None:
    """No process begins a long file when the others are nearly done: LONG comes first, then files with many tests."""
    count = Counter(item.path for item in items)
    place = {(SYSTEM_TESTS / name).resolve(): place for place, name in enumerate(LONG)}
    items.sort(key=lambda item: (place.get(item.path, len(LONG)), -count[item.path], item.path))


@pytest.fixture(autouse=True, scope="session")
def signals_name_a_process() -> Generator[None, None, None]:
    """To kill(2), 0 and below are process groups: the tests' own, stopped, would hang them all for ever."""
    kill = os.kill

    def checked(pid: int, number: int) -> None:
        assert pid > 1, f"signal {number} to {pid}, which names no process"
        kill(pid, number)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "kill", checked)
        yield


@pytest.fixture(autouse=True)
def logs_are_as_they_were() -> Generator[None, None, None]:
    """A test that calls exitd's own main has its log configured for the whole process."""
    yield
    structlog.reset_defaults()


def pytest_runtest_setup(item: pytest.Item) -> None:
    if (root := item.get_closest_marker("root")) is not None and os.geteuid() != 0:
        pytest.skip(root.args[0])
    if item.get_closest_marker("system") is None:
        return
    if os.geteuid() != 0:
        pytest.skip("needs root")
    if shutil.which("runc") is None:
        pytest.skip("needs runc (`make deps` installs it)")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    # An expected failure is reported as skipped too, but it did run.
    if in_ci() and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped, which is a failure in CI: {_reason(report)}"
    return report


class AtOnce:
    """Tells a failure when it happens: of a run that is cut off, the end with all reports is never seen."""

    def __init__(self, terminal: pytest.TerminalReporter) -> None:
        self._terminal = terminal

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._terminal.write_line(f"\n{report.nodeid} ({report.when}, {report.duration:.1f} s)")
            self._terminal.write_line(report.longreprtext[-LAST_CHARACTERS:])


@pytest.hookimpl(trylast=True)  # after the one that makes the reporter
def pytest_configure(config: pytest.Config) -> None:
    heed_signals()
    config.stash[STDERR] = os.dup(2)
    terminal = config.pluginmanager.get_plugin("terminalreporter")
    if in_ci() and terminal is not None:
        config.pluginmanager.register(AtOnce(terminal), "at-once")


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    if in_ci() and report.skipped:
        report.outcome = "failed"
        report.longrepr = f"skipped, which is a failure in CI: {_reason(report)}"
    return report


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    """A skip is reported as (file, line, reason)."""
    return str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr)
