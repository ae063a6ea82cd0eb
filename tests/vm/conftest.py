"""A machine for all checks of its kind, and what it was. A process has one machine at a time."""

import os
import pathlib
import sys
from collections.abc import Generator, Iterator, Sequence

import pytest

from tests.conftest import AtOnce, in_ci
from tests.vm import machine as machines
from tests.vm import suite
from tests.vm.collected import FACTS, Collected
from tests.vm.image import Kind
from tests.vm.machine import Machine

# The machine with the tests comes first: its files of checks are the longest. The others come in this order, when the
# plain one is done with.
LONGEST = "machine_with_tests"
OTHERS = ("machine_quick", "machine_with_tasks", "machine_beside")
FRESH = "check_smoke.py"
KVM = bool(os.environ.get("EXITD_VM_KVM"))  # use it where it works; the clock is the host's then


COLLECTED = Collected()


@pytest.hookimpl(trylast=True)  # after the one that makes the reporter
def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(COLLECTED, "collected")
    terminal = config.pluginmanager.get_plugin("terminalreporter")
    if terminal is not None and not in_ci():  # there they are for all tests
        config.pluginmanager.register(AtOnce(terminal), "failures-at-once")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """The machine that a process of pytest-xdist's has is the page's."""
    report = yield
    report.user_properties.append((FACTS, COLLECTED.facts))
    return report


def pytest_report_header() -> str:
    return f"seed of the system tests in the machine: EXITD_VM_SEED={suite.SEED}"


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of what needs the plain machine what is about a fresh boot comes first."""
    items.sort(key=lambda item: (_other(getattr(item, "fixturenames", ())), item.path.name != FRESH))


def _other(fixtures: Sequence[str]) -> int:
    """Less than 0 for what comes first, 0 for the plain machine, and else the number of the other one."""
    if LONGEST in fixtures:
        return -1
    return max((number for number, name in enumerate(OTHERS, 1) if name in fixtures), default=0)


class Bench:
    """Has the machine of one kind. Asked for one of another kind, it ends the first. Each file of checks finds it
    without containers."""

    def __init__(self) -> None:
        self._kind: Kind | None = None
        self._file: pathlib.Path | None = None
        self._running: Iterator[Machine] | None = None
        self._machine: Machine | None = None

    def machine(self, kind: Kind, file: pathlib.Path) -> Machine:
        if self._machine is None or self._kind is not kind:
            self.end()
            self._kind, self._running = kind, started(kind)
            self._machine = next(self._running)
        elif self._file != file:
            self._machine.python("lives.py", "clear")
        self._file = file
        return self._machine

    def end(self) -> None:
        if self._running is not None:
            next(self._running, None)
        self._running = self._machine = None


def started(kind: Kind) -> Iterator[Machine]:
    with machines.machine(kind, KVM) as made:
        made.say("systemctl", "is-active", "exitd.service", "exitd-keeper.service")
        facts = made.say(
            "sh",
            "-c",
            "uname -r; systemctl --version | head -n 1; stat -fc %T /sys/fs/cgroup; runc --version | head -n 1;"
            " crun --version | head -n 1; python3 --version",
        )
        clock, used = made.booted[-1]
        up = f"the machine, up after {clock:.0f} s, {used:.0f} of the processor's, by {made.by}:"
        print(up, *facts.splitlines(), sep="\n  ", file=sys.stderr)
        COLLECTED.facts = f"Linux {', '.join(facts.splitlines())}"
        yield made


@pytest.fixture(scope="session")
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.end()


@pytest.fixture
def machine(bench: Bench, request: pytest.FixtureRequest) -> Machine:
    return bench.machine(Kind.PLAIN, request.path)


@pytest.fixture
def machine_quick(bench: Bench, request: pytest.FixtureRequest) -> Machine:
    """What docs/quickstart.md has installed is there."""
    return bench.machine(Kind.QUICK, request.path)


@pytest.fixture
def machine_with_tasks(bench: Bench, request: pytest.FixtureRequest) -> Machine:
    """Debian's containerd is there, and the archive of an image."""
    return bench.machine(Kind.TASKS, request.path)


@pytest.fixture
def machine_beside(bench: Bench, request: pytest.FixtureRequest) -> Machine:
    """podman is there, and the manifests that it and exitd play."""
    return bench.machine(Kind.BESIDE, request.path)


@pytest.fixture
def machine_with_tests(bench: Bench, request: pytest.FixtureRequest) -> Machine:
    """The tree is there, and an environment that runs its tests."""
    return bench.machine(Kind.TESTS, request.path)
