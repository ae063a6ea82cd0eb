"""`exitctl watch --node` and `exitctl live`: everything on this machine, by the names that its engines have for it."""

import json
import pathlib
import signal
import subprocess
from collections.abc import Iterator

import pytest

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api.client import Client
from tests.system.daemons import Daemon, daemon
from tests.system.exitctl import Cli
from tests.system.waits import LIMIT_SECONDS, until
from tests.system.watched import Engine, alone_with, end_of, watch_of

AWAY = "exitctl: exitd is away; waiting for it ...\n"
IDS = ("c3" * 32, "d4" * 32)


class Podman(Engine):
    """runc, with bundles and names where podman has them."""

    def _bundle(self, id: str, args: list[str], memory_bytes: int) -> pathlib.Path:
        made = super()._bundle(id, args, memory_bytes)
        storage = self.base / "overlay-containers"
        bundle = storage / id / "userdata"
        bundle.mkdir(parents=True)
        config = json.loads((made / "config.json").read_text())
        config["annotations"] = {"io.container.manager": "libpod"}
        (bundle / "config.json").write_text(json.dumps(config))
        entries = [
            {"id": id, "names": [name], "metadata": json.dumps({"image-name": "docker.io/library/shop:1"})}
            for name, id in zip(("web", "bomb"), IDS, strict=True)
        ]
        (storage / "containers.json").write_text(json.dumps(entries))
        return bundle


@pytest.fixture
def podman(tmp_path: pathlib.Path) -> Iterator[Podman]:
    made = Podman("runc", tmp_path / "x")
    made.root.mkdir(parents=True)
    try:
        yield made
    finally:
        made.end()


def begun(cli: Cli, out: pathlib.Path, err: pathlib.Path, *words: str) -> "subprocess.Popen[bytes]":
    with out.open("wb") as to, err.open("wb") as wrong:
        return subprocess.Popen(
            [*cli.program, *words], env=cli.environment, stdin=subprocess.DEVNULL, stdout=to, stderr=wrong
        )


def lines(path: pathlib.Path, word: str) -> list[list[str]]:
    return [line.split() for line in path.read_text().splitlines() if word in line]


def subscribers(client: Client) -> int:
    return int(client.info().settings["subscribers"])


def test_live_shows_each_end_of_the_machine_once_by_its_engines_names_over_a_restart(
    tmp_path: pathlib.Path, podman: Podman
) -> None:
    web, bomb = IDS
    out, err, json_out = tmp_path / "out", tmp_path / "err", tmp_path / "json"
    podman.run(web, "go; exit 7")
    with daemon(extra=("--watch-node",), wrapper=alone_with(podman.root)) as made:
        cli = Cli(made)
        with made.client() as client:
            others = subscribers(client)
        shown = [begun(cli, out, err, "live"), begun(cli, json_out, tmp_path / "err2", "live", "--format", "json")]
        try:
            with made.client() as client:
                until(lambda: any(watch.processes for watch in client.watches()), "nothing is watched")
                assert watch_of(client, "/run/runc").found_by == "node"
            until(lambda: "TIME" in out.read_text(), "live has not begun")
            with made.client() as client:
                until(lambda: subscribers(client) == others + 2, "the other has not begun")
            podman.go(web)
            until(lambda: lines(out, "web"), "the first end is not shown")
            cli.run("--name", "own", "sh", "-c", "exit 3")
            until(lambda: lines(out, "own"), "exitd's own is not shown")
            podman.run(bomb, "go; exec tail /dev/zero", memory_bytes=16 << 20)
            with made.client() as client:
                until(lambda: f"{bomb}@" in str([*client.events(_stored())]), "it is not watched")
            made.kill()
            until(lambda: err.read_text() == AWAY, "live has not noticed it")
            made.start()
            podman.go(bomb)
            until(lambda: lines(out, "bomb"), "the last end is not shown")
            until(lambda: "bomb" in json_out.read_text(), "the last end is not shown as JSON")
            _check_ledger(cli, made)
        finally:
            for each in shown:
                each.send_signal(signal.SIGKILL)
                each.wait(LIMIT_SECONDS)
    first, own, last = (lines(out, word) for word in ("web", "own", "bomb"))
    (cells,) = first
    assert cells[1:6] == ["web", "-", "podman", "docker.io/library/shop:1", "7"]
    assert cells[6] == "self"
    assert [cells[1:3] + cells[5:7] for cells in own] == [["own", "-", "3", "self"]]
    (cells,) = last
    assert cells[1:11] == [
        "bomb",
        "-",
        "podman",
        "docker.io/library/shop:1",
        "137",
        "SIGKILL",
        "oom",
        "at",
        "16",
        "MiB",
    ]
    documents = [json.loads(line) for line in json_out.read_text().splitlines()]
    known = [each for each in documents if each["ID"].startswith(IDS) or each["Name"] == "own"]
    assert [each["ContainerName"] or each["Name"] for each in known] == ["web", "own", "bomb"]
    assert known[0]["Image"] == "docker.io/library/shop:1"
    assert known[0]["Watch"] == "/run/runc"


def _stored() -> pb.EventsRequest:
    return pb.EventsRequest(from_seq=0, no_follow=True, filters=("type=watch",))


def _check_ledger(cli: Cli, made: Daemon) -> None:
    """The names are in the ledger, too, from which ends are counted; and the watch of the machine ends as a whole."""
    web, bomb = IDS
    with made.client() as client:
        assert end_of(client, f"{web}@/run/runc").names.image == "docker.io/library/shop:1"
        assert end_of(client, f"{bomb}@/run/runc").oom.limit_bytes == 16 << 20
    assert "\nweb " in cli.ok("exits", "--by", "container")
    assert "   web   " in cli.ok("exits")
    assert [row[0] for row in map(str.split, cli.ok("exits", "--by", "reason", "--since", "1h").splitlines()[1:])]
    since = cli.begin("live", "--since", "1h", "-n", "1", "--no-watch", "--reconnect-seconds", "0")
    out, err = since.communicate(timeout=LIMIT_SECONDS)
    assert (since.returncode, "web" in out.splitlines()[1], err) == (0, True, "")
    assert cli.ok("watch", "--stop", "node") == "node"
    assert cli.ok("watch", "--list").splitlines()[1:] == []
    assert cli.ok("watch", "--node", "-d", "--reconnect-seconds", "0") == "node"
    assert "/run/runc" in cli.ok("watch", "--list")
