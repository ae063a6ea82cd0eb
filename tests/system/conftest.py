"""What the system tests share: a file's daemon, its client, a keeper; and short paths, because sockets lie below them
(unix(7): 107 bytes). Where a file has a fixture of its own by one of these names, that one stands."""

import pathlib
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import replace

import pytest

from supervisor.api.client import Client
from tests.supervisor.cli.fake_attach import Pty
from tests.system import daemons, images, keepers, lives, oracle, pods
from tests.system import isulad as isulads
from tests.system.containerd.server import Containerd, for_one_test, running
from tests.system.daemons import Daemon, left, remove_all
from tests.system.exitctl import Cli
from tests.system.foreign_shims import RUNC
from tests.system.keepers import Keeper, Node
from tests.system.relay import Relays, relays_in
from tests.system.runtimes import Gates, gated
from tests.system.tasks import Tasks, alone, of_daemon
from tests.system.waits import until


@pytest.fixture
def tmp_path() -> Iterator[pathlib.Path]:
    """Instead of pytest's own, which is the longer the more of them run at once."""
    directory = pathlib.Path(tempfile.mkdtemp(prefix="exitd-t-"))
    yield directory
    if f" {directory}/" not in pathlib.Path("/proc/self/mountinfo").read_text():  # left to be looked at
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="module")
def daemon(request: pytest.FixtureRequest) -> Iterator[Daemon]:
    """One for all tests of a file. With the mark `observed` it is the oracle's, with the mark's words besides; with the
    mark `limits` some limits of the program are others, with the mark `grpc` its clients speak gRPC, see `Daemon`."""
    observed, limits, grpc = (request.node.get_closest_marker(name) for name in ("observed", "limits", "grpc"))
    how = {"limits": limits.args[0]} if limits is not None else {}
    how |= {"grpc": True} if grpc is not None else {}
    with daemons.daemon(**how) if observed is None else oracle.warm_daemon(*observed.args, **how) as made:
        yield made


@pytest.fixture(scope="module")
def has_had_a_foreign_shim(daemon: Daemon) -> None:
    """What exitd opens for the first container under one stays open: the socket for their events."""
    with daemon.client() as client:
        client.remove(lives.run(client, "true", runtime=RUNC)[0], force=False)


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
    with daemon.client() as made:  # calls at once had lines of their own
        made.version()
        until(lambda: left(daemon) == before, f"left behind: {left(daemon)}, not {before}")


@pytest.fixture
def killable(daemon: Daemon) -> Iterator[Daemon]:
    """The file's daemon, which a test may kill and start: it is up afterwards, and nothing is left of its containers.
    Its descriptors are not counted: the line to a keeper that was killed may not be there yet."""
    with daemon.client() as made:
        daemon.warm(made)
    before = replace(left(daemon), descriptors=0)
    yield daemon
    oracle.Revived(daemon).revive()
    with daemon.client() as made:
        remove_all(made)
    until(lambda: replace(left(daemon), descriptors=0) == before, f"left behind: {left(daemon)}, not {before}")


@pytest.fixture
def gates(daemon: Daemon) -> Iterator[Gates]:
    with gated(daemon) as made:
        yield made


@pytest.fixture(scope="module")
def cli(daemon: Daemon) -> Cli:
    return Cli(daemon)


@pytest.fixture
def pty() -> Iterator[Pty]:
    made = Pty()
    yield made
    made.close()


@pytest.fixture
def node() -> Iterator[Node]:
    with keepers.node() as made:
        yield made


@pytest.fixture
def keeper(node: Node) -> Iterator[Keeper]:
    made = node.keeper()
    yield made
    made.close()


@pytest.fixture
def pod(node: Node, keeper: Keeper) -> Iterator[pods.Pod]:
    with pods.pod(node, keeper) as made:
        yield made


@pytest.fixture(scope="module")
def containerd_of_file() -> Iterator[Containerd]:
    with running() as made:
        yield made


@pytest.fixture
def containerd(containerd_of_file: Containerd) -> Iterator[Containerd]:
    """One for all tests of a file: it runs and has no task when the next test begins."""
    with for_one_test(containerd_of_file) as made:
        yield made


@pytest.fixture
def tasks(daemon: Daemon, tmp_path: pathlib.Path) -> Iterator[Tasks]:
    with of_daemon(daemon, tmp_path) as made:
        yield made


@pytest.fixture
def lone_tasks(daemon: Daemon, tmp_path: pathlib.Path) -> Iterator[Tasks]:
    with alone(daemon, tmp_path) as made:
        yield made


@pytest.fixture
def relays(tmp_path: pathlib.Path) -> Iterator[Relays]:
    with relays_in(tmp_path) as made:
        yield made


@pytest.fixture
def isulad() -> Iterator[isulads.Daemon]:
    with isulads.daemon() as made:
        yield made


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return images.small_shelf(tmp_path_factory.mktemp("shelf"))


@pytest.fixture(scope="module")
def registry(shelf: pathlib.Path) -> Iterator[images.Registry]:
    with images.registry(shelf / "layout") as server:
        yield server


@pytest.fixture
def no_image_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """After the test, where it has a daemon: that lives, its store is empty, and nothing of a container is there."""
    yield
    if "daemon" in request.fixturenames:
        made = request.getfixturevalue("daemon")
        oracle.Revived(made).revive()
        images.clear(made)
        oracle.nothing_left(made)
