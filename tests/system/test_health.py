"""Health checks on real containers: what they find, what follows, and that a thousand probes leave nothing."""

import json
import pathlib
import sqlite3
import tempfile
from collections.abc import Iterator
from typing import Any

import pytest

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api.client import Client
from tests.supervisor.images.building import Made, docker_archive
from tests.system import images, lives, oracle
from tests.system.daemons import Daemon, left, spec
from tests.system.exitctl import Cli
from tests.system.lives import events, first_exit, types
from tests.system.waits import scaled, until

# Of a probe that was frozen in the middle nobody wants the output.
pytestmark = pytest.mark.limits({"supervisor.runtime.oci.execs.HOLD_MS": 1000})

MS, SECOND = 10**6, 10**9
WELL = ("sh", "-c", "test -e /mnt/well")
COUNTS = ("sh", "-c", "echo >>/mnt/count-$HOSTNAME")
HEEDS_STOP = ("sh", "-c", "trap 'exit 3' TERM; while :; do sleep 0.01; done")


@pytest.fixture(autouse=True)
def nothing_stays(daemon: Daemon) -> Iterator[None]:
    yield
    oracle.clear(daemon)


@pytest.fixture
def client(daemon: Daemon) -> Iterator[Client]:
    with daemon.client() as client:
        yield client


@pytest.fixture
def share(daemon: Daemon) -> pathlib.Path:
    """/mnt of the containers."""
    return pathlib.Path(tempfile.mkdtemp(prefix="share-", dir=daemon.base))


def begin(client: Client, share: pathlib.Path, probe: tuple[str, ...], *words: str, **check: Any) -> str:
    """The id of a started container; its probes are 100 ms apart unless something else is said."""
    check = {"interval_ns": 100 * MS, "timeout_ns": 20 * SECOND, **check}
    mount = pb.Mount(source=str(share), destination="/mnt")
    health = pb.HealthSpec(args=probe, **check)
    id = client.create(spec(*(words or ("sleep", "1000")), health=health, mounts=[mount])).id
    client.start(id)
    return id


def status(client: Client, id: str) -> str:
    return client.inspect(id).health.status


def until_status(client: Client, id: str, word: str) -> pb.Health:
    until(lambda: status(client, id) == word, f"not {word}")
    return client.inspect(id).health


def told(client: Client, id: str) -> list[str]:
    return [event.attributes["health"] for event in events(client, id) if event.type == "health_status"]


def test_health_comes_goes_and_comes_back_and_each_change_is_one_event(client: Client, share: pathlib.Path) -> None:
    probe = ("sh", "-c", "echo look; echo well? >&2; test -e /mnt/well || exit 4")
    # Its start lasts until it is well, whenever that is looked at.
    id = begin(client, share, probe, retries=2, start_period_ns=3600 * SECOND)
    assert status(client, id) == "starting"
    (share / "well").touch()
    until_status(client, id, "healthy")
    (share / "well").unlink()
    health = until_status(client, id, "unhealthy")
    last = health.log[-1]
    assert (last.kind, last.code, last.timed_out, last.output) == ("exited", 4, False, b"look\nwell?\n")
    assert health.failing_streak >= 2
    (share / "well").touch()
    assert until_status(client, id, "healthy").failing_streak == 0
    assert told(client, id) == ["healthy", "unhealthy", "healthy"]
    assert set(types(client, id)) == {"create", "start", "health_status"}


def test_a_probe_beyond_its_limit_has_failed_and_is_ended_with_all_it_has_started(
    client: Client, share: pathlib.Path
) -> None:
    id = begin(client, share, ("sh", "-c", "echo begun; sleep 999 & sleep 999"), timeout_ns=200 * MS, retries=1)
    last = until_status(client, id, "unhealthy").log[-1]
    assert (last.kind, last.signal, last.timed_out, last.output) == ("signaled", 9, True, b"begun\n")
    until(lambda: len(lives.members(id)) == 1, "something of a probe is left")


def test_a_command_that_is_not_there_is_a_failure_that_says_so(client: Client, share: pathlib.Path) -> None:
    id = begin(client, share, ("no-such-probe",), retries=1)
    last = until_status(client, id, "unhealthy").log[-1]
    assert (last.kind, last.code) == ("exited", 127)
    assert b"no-such-probe" in last.output


def test_of_much_output_the_beginning_is_kept(client: Client, share: pathlib.Path) -> None:
    id = begin(client, share, ("sh", "-c", "seq 1 100000"))
    kept = until_status(client, id, "healthy").log[-1].output
    assert len(kept) == 4096 and kept.startswith(b"1\n2\n3\n")


def test_failures_in_the_start_period_do_not_count(client: Client, share: pathlib.Path) -> None:
    id = begin(client, share, WELL, retries=1, start_period_ns=3600 * SECOND)
    until(lambda: len(client.inspect(id).health.log) == 5, "five probes")
    assert (status(client, id), client.inspect(id).health.failing_streak) == ("starting", 0)
    (share / "well").touch()
    until_status(client, id, "healthy")
    (share / "well").unlink()
    until_status(client, id, "unhealthy")


@pytest.mark.parametrize(
    ("action", "number", "decision"), [("kill", 9, "ended"), ("stop", 3, "ended"), ("restart", 3, "restart")]
)
def test_an_unhealthy_container_is_ended_and_its_exit_says_why(
    client: Client, share: pathlib.Path, action: str, number: int, decision: str
) -> None:
    id = begin(client, share, WELL, *HEEDS_STOP, retries=1, on_failure=action)
    exit_ = first_exit(client, id)
    assert (exit_.reason, exit_.by.policy, exit_.decision) == ("health", "health", decision)
    assert (exit_.signal if action == "kill" else exit_.code) == number
    assert types(client, id)[:5] == ["create", "start", "health_status", "health", "exit"]
    if action == "restart":
        (share / "well").touch()
        until(lambda: client.inspect(id).run >= 2 and status(client, id) == "healthy", "a healthy next run")


def test_no_probe_is_made_and_none_is_under_way_while_it_is_paused(client: Client, share: pathlib.Path) -> None:
    slow = ("sh", "-c", "echo >>/mnt/count-paused; sleep 0.2")
    id, other = begin(client, share, slow, retries=1), begin(client, share, COUNTS)
    until(lambda: client.inspect(id).execs, "a probe under way")
    client.pause(id)
    assert not client.inspect(id).execs
    before, others = (len(lines(share, name)) for name in ("count-paused", f"count-{other[:12]}"))
    until(lambda: len(lines(share, f"count-{other[:12]}")) > others + 5, "the other one's probes")
    assert len(lines(share, "count-paused")) == before
    client.resume(id)
    until_status(client, id, "healthy")
    assert "unhealthy" not in told(client, id) + told(client, other)


def lines(share: pathlib.Path, name: str) -> list[str]:
    path = share / name
    return path.read_text().splitlines() if path.exists() else []


def test_probes_go_on_after_a_restart_of_the_daemon_in_the_middle_of_one(
    daemon: Daemon, client: Client, share: pathlib.Path
) -> None:
    id = begin(client, share, ("sh", "-c", "echo >>/mnt/count; sleep 0.3; test -e /mnt/well"), retries=1)
    until_status(client, id, "unhealthy")
    until(lambda: client.inspect(id).execs, "a probe under way")
    daemon.restart()
    count = len(lines(share, "count"))
    with daemon.client() as again:
        assert status(again, id) == "unhealthy"
        until(lambda: len(lines(share, "count")) > count + 2, "the next probes")
        assert told(again, id) == ["unhealthy"]
        (share / "well").touch()
        until_status(again, id, "healthy")
        assert told(again, id) == ["unhealthy", "healthy"]
        assert len(again.inspect(id).execs) <= 1


def test_the_end_of_a_container_takes_its_probe_along_and_that_is_no_failure(
    client: Client, share: pathlib.Path
) -> None:
    id = begin(client, share, ("sleep", "1000"), *HEEDS_STOP, retries=1, on_failure="restart")
    until(lambda: client.inspect(id).execs, "a probe under way")
    client.kill(id, "TERM")
    exit_ = first_exit(client, id)
    assert (exit_.code, exit_.reason) == (3, "kill")
    assert told(client, id) == []
    until(lambda: client.inspect(id).phase == pb.PHASE_EXITED, "it goes on")


def test_probes_leave_no_event_no_row_no_descriptor_no_line_in_the_log(
    daemon: Daemon, client: Client, share: pathlib.Path
) -> None:
    id = begin(client, share, COUNTS, interval_ns=MS)
    name = f"count-{id[:12]}"
    until(lambda: len(lines(share, name)) > 5, "the first probes")
    client.pause(id)
    until(lambda: not leftovers(daemon), "the last one goes on")
    before, said, seq = left(daemon), spoken(daemon), len(events(client))
    client.resume(id)
    many = len(lines(share, name)) + scaled(1000)
    until(lambda: len(lines(share, name)) > many, "many probes", 120)
    client.pause(id)
    until(lambda: not leftovers(daemon), "something of a probe is left")
    until(lambda: left(daemon) == before, f"{left(daemon)}, was {before}")
    assert [event.type for event in events(client)[seq:]] == ["resume", "pause"]
    assert spoken(daemon) == said
    assert list(client.exits(pb.ExitsRequest(id=id))) == []
    with sqlite3.connect(f"file:{daemon.root}/exitd.db?mode=ro", uri=True) as database:
        assert database.execute("SELECT count(*) FROM execs").fetchone() == (0,)


def leftovers(daemon: Daemon) -> list[pathlib.Path]:
    return list((daemon.state / "c").glob("*/*/e/*"))


def spoken(daemon: Daemon) -> list[str]:
    """The log at its default level."""
    found = [json.loads(line) for line in daemon.log.read_text().splitlines()]
    return [line["event"] for line in found if line["level"] != "debug"]


def test_an_images_own_check_counts_is_shown_and_can_be_switched_off(daemon: Daemon, client: Client) -> None:
    check = {"Test": ["CMD-SHELL", "echo fine"], "Interval": 100 * MS, "Retries": 7}
    made = Made([images.base_layer()], {"Cmd": ["/bin/sleep", "1000"], "Healthcheck": check})
    archive = daemon.base / "checked.tar"
    archive.write_bytes(docker_archive((made, ["checked:1"])))
    cli = Cli(daemon)
    image = f"docker-archive:{archive}"
    ids = [cli.ok("run", "-d", "--name", name, *words, image) for name, words in RUNS.items()]
    until_status(client, ids[0], "healthy")
    until_status(client, ids[1], "healthy")
    shown = [cli.ok("ps", "--filter", f"name={name}", "--format", "{{.Status}}") for name in RUNS]
    assert [text.partition("(")[2] for text in shown] == ["healthy)", "healthy)", ""]
    assert cli.ok("ps", "-q", "--filter", "health=none") == ids[2][:12]
    assert cli.field(ids[0], ".Config.Healthcheck.Test") == "[CMD /bin/sh -c echo fine]"
    assert cli.field(ids[1], ".Config.Healthcheck.Test") == "[CMD /bin/true]"
    assert [cli.field(id, ".Config.Healthcheck.Retries") for id in ids[:2]] == ["7", "2"]
    (first, *_) = json.loads(cli.ok("inspect", "-f", "{{json .State.Health.Log}}", ids[0]))
    assert (first["ExitCode"], first["Output"]) == (0, "fine\n")
    assert "health=healthy" in cli.ok("events", "--no-follow", "--from-seq", "1", "--filter", "type=health_status")


RUNS: dict[str, tuple[str, ...]] = {
    "images": (),
    "own": ("--health-cmd", '["/bin/true"]', "--health-retries", "2"),
    "none": ("--no-healthcheck",),
}
