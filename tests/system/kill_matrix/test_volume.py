"""exitd is killed at its system calls over the life of a named volume: made, written, read by the next container,
refused while it is in use, removed. What was written is there until the volume goes, and nothing of it stays then."""

import os
from collections import Counter
from collections.abc import Callable

import pytest

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api.client import Client, Unreachable
from supervisor.model.errors import NoSuchVolume, VolumeInUse
from tests.system import oracle
from tests.system.daemons import Daemon
from tests.system.kill_matrix.calls import killed_at_each
from tests.system.kill_matrix.table import row
from tests.system.oracle import Revived, Subject

pytestmark = pytest.mark.observed()

WRITES = "echo kept >/srv/file"
READS = 'test "$(cat /srv/file)" = kept || code=1'  # it ends as it notes, with another code than it was given


class Life:
    """A volume's. Each call is repeated until a daemon has answered it."""

    def __init__(self, daemon: Daemon) -> None:
        self.daemon, self.up = daemon, Revived(daemon)
        self.name = oracle.fresh_name()
        self.writer, self.reader = self.user(WRITES), self.user(READS)

    def user(self, before_end: str) -> Subject:
        mount = pb.Mount(volume=self.name, destination="/srv")
        made = oracle.observed(self.daemon, oracle.fresh_name(), before_end)
        made.spec.mounts.append(mount)
        return made

    def retry(self, ask: Callable[[Client], object]) -> object:
        while True:
            try:
                return self.up.call(ask)
            except Unreachable:
                continue

    def live(self) -> None:
        self.retry(lambda client: client.create_volume(self.name))
        self.run(self.writer)
        self.retry(self.refused)
        oracle.removed(self.up, self.writer)
        self.run(self.reader)
        oracle.removed(self.up, self.reader)
        self.retry(self.remove)

    def run(self, subject: Subject) -> None:
        oracle.created(self.up, subject)
        oracle.started(self.up, subject)
        oracle.over(self.up, subject)

    def refused(self, client: Client) -> None:
        with pytest.raises(VolumeInUse):
            client.remove_volume(self.name)

    def remove(self, client: Client) -> None:
        """One that a daemon has removed before it was killed is not there any more."""
        try:
            client.remove_volume(self.name)
        except NoSuchVolume:
            assert self.name not in [volume.name for volume in client.volumes()]


def test_exitd_killed_at_any_system_call_of_a_volumes_life_keeps_what_was_written_and_leaves_nothing(
    daemon: Daemon,
) -> None:
    def life() -> Life:
        lived = Life(daemon)
        lived.live()
        return lived

    def judge(lived: Life, case: str) -> Counter[str]:
        said = Counter[str]()
        with daemon.client() as client:
            for subject in (lived.writer, lived.reader):
                said += oracle.judge(client, subject, case)
                assert list(subject.truth().values()) == [43], f"{case}: {subject.truth()}"
            client.create_volume("after")  # waits for the removals that were cut off
            client.remove_volume("after")
        assert os.listdir(daemon.root / "v") == [], case
        oracle.nothing_left(daemon)
        return said

    life()  # every thread there is going to be is there
    said = killed_at_each(daemon, row("volume, at calls").count, life, judge)
    assert set(said) <= {"exited by record", "exited by fifo"}, said
