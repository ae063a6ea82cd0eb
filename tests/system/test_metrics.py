"""Metrics over HTTP, beside what inspect and the ledger say of the same ends."""

import os
import pathlib
import random
import socket
import stat
import threading
from collections import Counter

import pytest

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api.client import Client
from supervisor.cli.shape import number_of
from tests.system import daemons, lives
from tests.system.daemons import Daemon, spec
from tests.system.exitctl import Cli
from tests.system.processes import killed
from tests.system.scrape import Page, ask, scrape, scraped
from tests.system.waits import until

FAMILIES = ("exitd_container_exits_total", "exitd_exec_exits_total", "exitd_watched_exits_total")
BOMB = "tail /dev/zero"
LIVES = 24


def ends(client: Client) -> list[pb.Exit]:
    return list(client.exits(pb.ExitsRequest()))


def agree(daemon: Daemon) -> None:
    """Every number of the page that the ledger and inspect know too."""
    with daemon.client() as client:
        page, ledger = scrape(daemon), ends(client)
        containers = {each.id: each for each in client.list(all_of_them=True)}
    for name, wanted in zip(FAMILIES[:2], (False, True), strict=True):
        shown = Counter((each.kind, each.reason) for each in ledger if bool(each.exec_id) is wanted)
        assert page.of(name, "kind", "reason") == shown
    assert page.of("exitd_exit_unknown_total", "cause") == Counter((each.cause,) for each in ledger if each.cause)
    assert page.of("exitd_exit_source_total", "source") == Counter((each.source,) for each in ledger)
    restarts = sum(each.decision == "restart" for each in ledger)
    assert page.of("exitd_policy_restarts_total", zeros=True) == {(): restarts}
    kills = sum(each.oom.kills for each in ledger if not each.exec_id)
    assert page.of("exitd_node_oom_kills_total", "of") == ({("container",): kills} if kills else {})
    names = Counter({(each.names.container,): each.oom.kills for each in ledger if each.oom.kills and not each.exec_id})
    assert page.of("exitd_oom_kills_total", "container") == names
    codes = page.of("exitd_container_last_exit_code", "id", zeros=True)
    assert codes == {(id,): number_of(each.exit) for id, each in containers.items() if each.HasField("exit")}
    running = page.of("exitd_container_running", "id", zeros=True)
    assert running == {(id,): each.phase == pb.PHASE_RUNNING for id, each in containers.items()}


def still(client: Client) -> bool:
    return all(each.phase == pb.PHASE_EXITED for each in client.list(all_of_them=True))


def test_metrics_inspect_and_ledger_agree_whatever_ends_and_whoever_is_killed() -> None:
    chance = random.Random(int(os.environ.get("EXITD_SEED", "14")))
    with scraped() as daemon:
        for number in range(LIVES):
            with daemon.client() as client:
                one_life(client, chance, number)
                if chance.random() < 0.5:
                    agree_meanwhile(daemon, client)
            if chance.random() < 0.2:
                daemon.restart()
        with daemon.client() as client:
            until(lambda: still(client), "something still runs")
        agree(daemon)
        daemon.restart()
        agree(daemon)


def one_life(client: Client, chance: random.Random, number: int) -> None:
    """Begun; some end while this returns, some later."""
    code = chance.choice((0, 1, 7, 137))
    match number % 6:
        case 0:
            lives.up(client, "sh", "-c", f"exit {code}")
        case 1:
            container = lives.up(client)
            client.kill(container.id, "SIGKILL")
        case 2:
            lives.up(client, "sh", "-c", "exit 3", restart="on-failure:1", name=f"again{number}")
        case 3:
            container = lives.up(client)
            client.exec(container.id, pb.ExecSpec(args=["sh", "-c", f"exit {code}"]))
            client.stop(container.id, 0)
        case 4:
            lives.run(client, "sh", "-c", BOMB, memory_bytes=16 << 20, name=f"bomb{number}")
        case 5:
            container = lives.up_trapping(client, f"trap 'exit {code}' TERM; while :; do sleep 0.01; done")
            killed(container.shim.pid)
            client.kill(container.id, "SIGTERM")


def agree_meanwhile(daemon: Daemon, client: Client) -> None:
    """Ends come at any moment: the page has at least those that were in the ledger before, and no more than after."""
    before = len(ends(client))
    page = scrape(daemon)
    assert before <= page.total(*FAMILIES) <= len(ends(client))


def test_no_page_is_behind_the_ledger_while_containers_end_all_the_time() -> None:
    with scraped() as daemon, daemon.client() as client:
        made = [client.create(spec("true")).id for _ in range(12)]
        work = threading.Thread(target=lambda: [client.start(id) for id in made])
        work.start()
        with daemon.client() as other:
            while work.is_alive():
                agree_meanwhile(daemon, other)
        work.join()
        until(lambda: len(ends(client)) == len(made), "not all have ended")
        agree(daemon)


def test_pruning_the_ledger_and_killing_exitd_take_nothing_from_the_counters() -> None:
    with scraped("[limits]\nreconcile_seconds = 0.1\n[retention]\nexits = 1\nevents = 1") as daemon:
        with daemon.client() as client:
            for _ in range(5):
                container, _ = lives.run(client, "sh", "-c", "exit 7")
                client.remove(container, force=False)
            until(lambda: len(ends(client)) == 1, "the ledger is not pruned")
            assert scrape(daemon).of(FAMILIES[0], "kind", "reason") == {("exited", "self"): 5}
        daemon.restart()
        assert scrape(daemon).of(FAMILIES[0], "kind", "reason") == {("exited", "self"): 5}


def test_a_shim_that_is_killed_and_replaced_is_counted_over_a_restart() -> None:
    with scraped() as daemon:
        with daemon.client() as client:
            container = lives.up(client)
            killed(container.shim.pid)
            until(lambda: scrape(daemon).total("exitd_shim_adoptions_total"), "no other shim")
            assert scrape(daemon).total("exitd_keeper_up") == 1
        daemon.restart()
        page = scrape(daemon)
        assert page.total("exitd_shim_deaths_total") == page.total("exitd_shim_adoptions_total") == 1


def test_ends_take_their_time_and_it_is_shown() -> None:
    with scraped() as daemon, daemon.client() as client:
        container, _ = lives.run(client, "true")
        client.remove(container, force=False)
        page = scrape(daemon)
        count = page.of("exitd_exit_latency_seconds_count", "stage")
        assert (count[("seen",)], count[("stored",)], count[("cleaned",)]) == (1, 1, 1)
        assert page.of("exitd_store_flush_seconds_count", "of")[("database",)] > 0
        assert page.total("exitd_build_info") == page.total("exitd_ready") == page.total("exitd_counters_fresh") == 1
        until(lambda: scrape(daemon).total("exitd_loop_lag_seconds_count"), "the loop's lag is not measured")


def test_the_other_pages_and_what_there_is_not() -> None:
    with scraped() as daemon:
        scrape(daemon)
        place = f"{daemon.base}/m"
        assert (ask(place, "/healthz"), ask(place, "/readyz")) == ((200, "ok\n"), (200, "ok\n"))
        assert ask(place, "/")[0] == 404 and ask(place, method="POST")[0] == 405
        assert ask(place, method="HEAD") == (200, "")
        assert stat.S_IMODE(os.stat(place).st_mode) in (0o600, 0o660)
        printed = Page(Cli(daemon).ok("metrics"))
        assert printed.samples.keys() >= scrape(daemon).samples.keys()
        assert printed.of("exitd_events", zeros=True).keys() == {()}


def test_without_a_place_nothing_listens_and_the_command_prints_the_counters(daemon: Daemon, cli: Cli) -> None:
    with daemon.client() as client:
        lives.run(client, "sh", "-c", "exit 7")
    page = Page(cli.ok("metrics"))
    assert page.of("exitd_container_exits_total", "kind", "reason")[("exited", "self")] >= 1
    assert page.total("exitd_exits") == page.total(*FAMILIES)
    assert page.total("exitd_loop_lag_seconds_count") == 0


def test_a_port_of_this_machine_is_served_and_one_that_is_taken_is_waited_for() -> None:
    with socket.socket() as other, daemons.directory() as base:
        other.bind(("127.0.0.1", 0))
        other.listen()
        place = other.getsockname()
        (base / "config.toml").write_text(f'[metrics]\nlisten = "127.0.0.1:{place[1]}"\n')
        daemon = Daemon(
            base, extra=("--config", f"{base}/config.toml"), limits={"supervisor.metrics.server.AGAIN_SECONDS": 0.05}
        ).start()
        try:
            until(lambda: "metrics are not served" in daemon.log.read_text(), "nothing in the log")
            with daemon.client() as client:
                assert lives.run(client, "sh", "-c", "exit 7")[1].code == 7
            other.close()
            until(lambda: "metrics are served" in daemon.log.read_text(), "nothing is served")
            assert ask(place, "/readyz") == (200, "ok\n")
            assert Page(ask(place)[1]).of("exitd_container_exits_total", "kind") == {("exited",): 1}
        finally:
            daemon.end()


@pytest.mark.parametrize("place", ["0.0.0.0:9476", "10.0.0.1:9476", "localhost:9476", "unix:relative"])
def test_a_place_that_others_could_reach_is_refused_by_its_line(place: str, tmp_path: pathlib.Path) -> None:
    (tmp_path / "config.toml").write_text(f'[metrics]\nlisten = "{place}"\n')
    daemon = Daemon(tmp_path, extra=("--config", f"{tmp_path}/config.toml"), forked=False).start(wait=False)
    assert daemon.process is not None and daemon.process.wait(60) == 1
    said = daemon.log.read_text()
    assert f"{tmp_path}/config.toml:2: metrics.listen: must be" in said and place in said
