"""`system df` and `ps -s`: what the daemon has counted, in columns."""

import json

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.model.errors import TimedOut
from tests.supervisor.cli.conftest import Exitctl
from tests.supervisor.cli.fake_daemon import ID, FakeDaemon, container
from tests.supervisor.cli.test_commands import raising

USAGE = pb.DiskUsageReply(
    containers=[
        pb.ContainerUsage(id=ID, active=True, layer_bytes=3 << 20, log_files=2, log_bytes=4096, complete=True),
        pb.ContainerUsage(id="2" * 64, layer_bytes=1 << 20, log_files=1, log_bytes=4096),
        pb.ContainerUsage(id="3" * 64, active=True, in_memory=True, layer_bytes=8192, complete=True),
    ],
    images=pb.Occupied(count=3, active=1, bytes=6 << 30, complete=True),
    layers=pb.Occupied(count=5, active=2, bytes=4 << 30, complete=True),
)
TABLE = """\
TYPE                   TOTAL   ACTIVE   SIZE
Images                 3       1        6 GiB
Image layers           5       2        4 GiB
Containers on disk     2       1        4 MiB+
Containers in memory   1       1        8 KiB
Log files              3       2        8 KiB
"""


def test_what_is_taken_is_a_line_for_each_kind(daemon: FakeDaemon, exitctl: Exitctl) -> None:
    daemon.answers.DiskUsage = lambda _: USAGE
    assert exitctl("system", "df").out == TABLE
    assert daemon.asked_for(pb.DiskUsageRequest)[-1].images
    documents = [json.loads(line) for line in exitctl("system", "df", "--format", "jsonl").out.splitlines()]
    assert documents[2] == {
        "Type": "Containers on disk", "TotalCount": 2, "Active": 1, "Size": "4 MiB+", "SizeBytes": 4 << 20,
        "Complete": False,
    }  # fmt: skip


def test_ps_shows_sizes_when_asked_and_none_of_what_has_gone_meanwhile(daemon: FakeDaemon, exitctl: Exitctl) -> None:
    gone = pb.Container(id="4" * 64, spec=pb.ContainerSpec(name="gone"))
    daemon.answers.List = lambda _: pb.ListReply(containers=[container(), gone])
    daemon.answers.DiskUsage = lambda _: USAGE
    heading, first, second = exitctl("ps", "-a", "-s").out.splitlines()
    assert heading.endswith("POD ID   SIZE") and first.endswith("3 MiB") and "MiB" not in second
    assert list(daemon.asked_for(pb.DiskUsageRequest)[-1].ids) == [ID, "4" * 64]
    assert exitctl("ps", "-a", "-s", "--format", "{{.SizeBytes}}").out == f"{3 << 20}\n<nil>\n"
    daemon.answers.DiskUsage = raising(TimedOut("the look took more than 25 s"))
    assert exitctl("ps", "-a").code == 0
    assert exitctl("ps", "-a", "-s").code == 125
