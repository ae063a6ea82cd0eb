"""The lines of `stats`."""

import pytest

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.cli.stats import cpu_percent, document, documents
from tests.supervisor.cli.conftest import Exitctl
from tests.supervisor.cli.fake_daemon import ID, FakeDaemon

SECOND = 10**9


def reading(cpu_ns: int = 0, at_ns: int = SECOND, **fields: object) -> pb.ContainerStats:
    given: dict[str, object] = {"memory_bytes": 1 << 20, "memory_limit_bytes": 4 << 20, "pids": 2, **fields}
    return pb.ContainerStats(id=ID, name="web", measured=True, read_boot_ns=at_ns, cpu_ns=cpu_ns, **given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("before", "now", "percent"),
    [
        (reading(0), reading(SECOND // 2, 2 * SECOND), 50.0),
        (reading(SECOND), reading(3 * SECOND, 2 * SECOND), 200.0),
        (reading(SECOND), reading(0, 2 * SECOND), 0.0),  # of another run
        (reading(0), reading(SECOND), 0.0),  # at the same moment
        (None, reading(SECOND), 0.0),
        (pb.ContainerStats(id=ID), reading(SECOND), 0.0),
    ],
)
def test_cpu_time_is_what_was_used_between_two_readings(
    before: pb.ContainerStats | None, now: pb.ContainerStats, percent: float
) -> None:
    assert cpu_percent(before, now) == percent


def test_a_line_has_dockers_fields() -> None:
    network = pb.NetworkCounters(received_bytes=1024, sent_bytes=0)
    now = reading(SECOND // 4, 2 * SECOND, network=network, read_bytes=2048, written_bytes=1)
    now.memory_pressure.some.avg10 = 1.25
    assert document(reading(), now) == {
        "ID": ID[:12],
        "Container": ID[:12],
        "Name": "web",
        "CPUPerc": "25.00%",
        "MemUsage": "1 MiB / 4 MiB",
        "MemPerc": "25.00%",
        "NetIO": "1 KiB / 0 bytes",
        "BlockIO": "2 KiB / 1 bytes",
        "PIDs": "2",
        "CPUPressure": "--",
        "MemPressure": "1.25%",
        "IOPressure": "--",
    }
    (idle,) = documents({}, [pb.ContainerStats(id=ID, name="idle")], whole=True)
    assert idle["ID"] == ID and {idle[name] for name in ("CPUPerc", "MemUsage", "PIDs", "NetIO")} == {"--"}
    assert document(None, reading(memory_limit_bytes=0))["MemPerc"] == "0.00%"


def test_two_readings_make_one_look(daemon: FakeDaemon, exitctl: Exitctl) -> None:
    daemon.answers.Stats = lambda request: pb.StatsReply(containers=[reading()])
    lines = exitctl("stats", "--no-stream", "-i", "0.1", "web").out.splitlines()
    assert lines[0].split("   ")[:2] == ["CONTAINER ID", "NAME"] and "1 MiB / 4 MiB" in lines[1]
    assert [list(request.ids) for request in daemon.asked_for(pb.StatsRequest)] == [["web"], ["web"]]
    many = [pb.Container(id=f"{number:064x}") for number in range(2001)]
    daemon.answers.List = lambda request: pb.ListReply(containers=many)
    assert exitctl("stats", "--no-stream", "-i", "0.1", "--all", "--format", "{{.Name}}").code == 0
    asked = [len(request.ids) for request in daemon.asked_for(pb.StatsRequest)[2:]]
    assert asked == [1000, 1000, 1] * 2
    daemon.answers.List = lambda request: pb.ListReply()
    assert exitctl("stats", "--no-stream", "-i", "0.1", "--all", "--format", "{{.Name}}").out == ""


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("-m", "64m"), {"memory_bytes": 64 << 20}),
        (("-m", "-1"), {"memory_bytes": 0}),
        (("--memory-swap", "-1"), {"memory_swap_bytes": -1}),
        (("--memory-swap", "0"), {"memory_swap_bytes": 0}),
        (("--memory-reservation=32m",), {"memory_reservation_bytes": 32 << 20}),
        (("--cpus", "1.5"), {"cpu_limit_milli": 1500}),
        (("--cpus", "0"), {"cpu_limit_milli": 0}),
        (("--cpu-quota", "50000", "--cpu-period", "200000"), {"cpu_limit_milli": 250}),
        (("--cpu-quota=-1",), {"cpu_limit_milli": 0}),
        (("-c", "512"), {"cpu_shares": 512}),
        (("--cpuset-cpus", "", "--cpuset-mems", "0"), {"cpuset_cpus": "", "cpuset_mems": "0"}),
        (("--pids-limit", "-1"), {"pids_limit": 0}),
        (("--restart", "always"), {"restart": "always"}),
    ],
)
def test_an_update_asks_for_what_its_words_say_and_for_nothing_else(
    daemon: FakeDaemon, exitctl: Exitctl, words: tuple[str, ...], expected: dict[str, object]
) -> None:
    daemon.answers.Update = lambda request: pb.UpdateReply()
    assert exitctl("update", *words, "a", "b").out == "a\nb\n"
    first, second = daemon.asked_for(pb.UpdateRequest)
    assert first == pb.UpdateRequest(id="a", **expected) and second.id == "b"  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "words",
    [("--memory", "much"), ("--cpus", "x"), ("--cpu-shares", "-1"), ("--blkio-weight", "5"), ("--pids-limit", "x")],
)
def test_an_update_with_other_words_is_refused(daemon: FakeDaemon, exitctl: Exitctl, words: tuple[str, ...]) -> None:
    assert exitctl("update", *words, "web").code in (2, 125)
    assert daemon.asked_for(pb.UpdateRequest) == []
