"""exitd is killed in the middle of a commit and of a volume's first fill: no half image is listed, nothing stays
frozen, and no container sees half a volume."""

import contextlib
import os
import pathlib
from collections import Counter
from collections.abc import Iterator

import pytest

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api.client import Unreachable
from supervisor.model.errors import ExitdError
from tests.system import images, oracle
from tests.system.daemons import Daemon
from tests.system.images import check, on, small
from tests.system.kill_matrix.calls import CALLS, killed_at_each
from tests.system.kill_matrix.table import row
from tests.system.oracle import Revived
from tests.system.waits import until

OF_FILES = ("symlink", "link", "fchmod", "fchown", "rename", "utimensat")

pytestmark = pytest.mark.usefixtures("no_image_left")


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    with oracle.warm_daemon() as made:
        yield made


def test_exitd_killed_at_any_system_call_of_a_commit_lists_no_half_and_leaves_nothing_frozen(
    daemon: Daemon, shelf: pathlib.Path
) -> None:
    with daemon.client() as client:
        client.pull_image(f"docker-archive:{shelf}/0.tar")
        container = client.create(on(small().id)).id
        client.start(container)
    mark = daemon.root / "c" / container / "frozen-for-commit"

    def life() -> str:
        with contextlib.suppress(Unreachable):
            Revived(daemon).call(lambda client: client.commit(pb.CommitRequest(id=container, name="made:1")))
        return ""

    def judge(_: str, case: str) -> Counter[str]:
        check(daemon)
        with daemon.client() as client:
            until(lambda: client.inspect(container).phase == pb.PHASE_RUNNING, f"{case}: it stays frozen")
            until(lambda: not mark.exists(), f"{case}: its mark stays")
            names = [name for image in client.images() for name in image.names]
            if "made:1" in names:
                client.remove_image("made:1")
            return Counter({"made": names.count("made:1")})

    judge(life(), "the first")  # every thread there is going to be is there
    killed_at_each(daemon, row("commit, at calls").count, life, judge, (*CALLS, *OF_FILES), least_deaths=2)
    images.clear(daemon)
    oracle.nothing_left(daemon)


def test_exitd_killed_at_any_system_call_of_a_volumes_fill_shows_no_container_half_of_it(
    daemon: Daemon, shelf: pathlib.Path
) -> None:
    with daemon.client() as client:
        client.pull_image(f"docker-archive:{shelf}/0.tar")
    made = daemon.root / "v/data"
    mounts = [pb.Mount(volume="data", destination="/etc")]

    def create() -> None:
        Revived(daemon).call(lambda client: client.create(on(small().id, mounts=mounts)))

    def life() -> str:
        with contextlib.suppress(Unreachable, ExitdError):
            create()
        return ""

    def judge(_: str, case: str) -> Counter[str]:
        check(daemon)
        create()
        assert os.listdir(made / "data") == ["number"] and (made / "data/number").read_text() == "0", case
        assert sorted(os.listdir(made)) == ["data", "lock", "made"], case
        with daemon.client() as client:
            for each in client.list(all_of_them=True):
                client.remove(each.id, force=True)
            client.remove_volume("data")
        oracle.nothing_left(daemon)
        return Counter()

    judge(life(), "the first")
    killed_at_each(daemon, row("volume fill, at calls").count, life, judge, (*CALLS, *OF_FILES), least_deaths=2)
    images.clear(daemon)
