"""What the system tests share: a file's daemon, its client, a keeper; and short paths, because sockets lie below them
(unix(7): 107 bytes). Where a file has a fixture of its own by one of these names, that one stands."""

import pathlib
import shutil
import tempfile
from collections.abc import Iterator

import pytest

from supervisor.api.client import Client
from tests.system import imagerig, isuladrig, lives, observedpods, oracle, podrig, shimrig
from tests.system.clirig import Cli
from tests.system.daemonrig import Daemon, left, remove_all, until
from tests.system.gates import Gates
from tests.system.shimrig import Keeper, Rig


@pytest.fixture
def tmp_path() -> Iterator[pathlib.Path]:
    """Instead of pytest's own, which is the longer the more of them run at once."""
    directory = pathlib.Path(tempfile.mkdtemp(prefix="exitd-t-"))
    yield directory
    if f" {directory}/" not in pathlib.Path("/proc/self/mountinfo").read_text():  # left to be looked at
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="module")
def daemon(request: pytest.FixtureRequest) -> Iterator[Daemon]:
    """One for all tests of a file. With the mark `observed` it is the oracle's, with the mark's words besides."""
    observed = request.node.get_closest_marker("observed")
    with lives.daemon() if observed is None else oracle.warm_daemon(*observed.args) as made:
        yield made


@pytest.fixture(autouse=True)
def cleared(request: pytest.FixtureRequest) -> Iterator[None]:
    """After each test of a file with the mark `observed`."""
    yield
    if request.node.get_closest_marker("observed") is not None and "daemon" in request.fixturenames:
        oracle.clear(request.getfixturevalue("daemon"))


@pytest.fixture
def client(daemon: Daemon) -> Iterator[Client]:
    """Whatever a test does: afterwards the machine is as it was before."""
    with daemon.client() as made:
        daemon.warm(made)
        before = left(daemon)
        yield made
        remove_all(made)
        until(lambda: left(daemon) == before, f"left behind: {left(daemon)}, not {before}")


@pytest.fixture
def gates(daemon: Daemon) -> Iterator[Gates]:
    with observedpods.gated(daemon) as made:
        yield made


@pytest.fixture(scope="module")
def cli(daemon: Daemon) -> Cli:
    return Cli(daemon)


@pytest.fixture
def rig() -> Iterator[Rig]:
    with shimrig.rig() as made:
        yield made


@pytest.fixture
def keeper(rig: Rig) -> Iterator[Keeper]:
    made = rig.keeper()
    yield made
    made.close()


@pytest.fixture
def pod(rig: Rig, keeper: Keeper) -> Iterator[podrig.Pod]:
    with podrig.pod(rig, keeper) as made:
        yield made


@pytest.fixture
def isulad() -> Iterator[isuladrig.Daemon]:
    with isuladrig.daemon() as made:
        yield made


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return imagerig.small_shelf(tmp_path_factory.mktemp("shelf"))


@pytest.fixture(scope="module")
def registry(shelf: pathlib.Path) -> Iterator[imagerig.Registry]:
    with imagerig.registry(shelf / "layout") as server:
        yield server


@pytest.fixture
def no_image_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """After the test, where it has a daemon: that lives, its store is empty, and nothing of a container is there."""
    yield
    if "daemon" in request.fixturenames:
        made = request.getfixturevalue("daemon")
        oracle.Revived(made).revive()
        imagerig.clear(made)
        oracle.nothing_left(made)
