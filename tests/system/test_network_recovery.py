"""A network when a plugin fails, exitd is killed, the host is booted, or what is on the disk is damaged."""

import json
import pathlib
from collections.abc import Iterator

import pytest

from tests.system import daemons, networks
from tests.system.daemons import Daemon
from tests.system.exitctl import Cli
from tests.system.networks import NOTHING, PLUGINS, Net
from tests.system.oracle import Revived
from tests.system.test_damaged_rows import damaging, unreadable
from tests.system.test_recovery import pretended_boot
from tests.system.waits import LIMIT_SECONDS, until

FAILS = """#!/bin/sh
echo $CNI_COMMAND $CNI_IFNAME >>{directory}/calls
[ $CNI_COMMAND = ADD ] && exec cat {directory}/answer
[ -e {directory}/mended ] && exit 0
echo '{{"cniVersion": "1.0.0", "code": 11, "msg": "the switch does not answer"}}'
exit 1
"""


@pytest.fixture(scope="module")
def net() -> Iterator[Net]:
    with networks.net() as made:
        made.write_second()
        yield made


@pytest.fixture(scope="module")
def daemon(net: Net) -> Iterator[Daemon]:
    plugins = net.base / "own"
    plugins.mkdir()
    with networks.daemon(net, str(plugins), extra=("--reconcile-seconds", "0.2")) as made:
        yield made


@pytest.fixture
def cli(daemon: Daemon, net: Net) -> Iterator[Cli]:
    yield Cli(daemon)
    Revived(daemon).revive()
    with daemon.client() as client:
        daemons.remove_all(client)
    until(lambda: net.left(daemon) == NOTHING, f"left behind: {net.left(daemon)}")


def logged(daemon: Daemon, event: str) -> list[dict[str, object]]:
    lines = (json.loads(line) for line in daemon.log.read_text().splitlines() if line.startswith("{"))
    return [line for line in lines if line["event"] == event]


def test_what_lives_on_keeps_its_network_and_is_checked_and_what_differs_is_logged(
    cli: Cli, daemon: Daemon, net: Net
) -> None:
    cli.background("one", "--network", "pods,second", "sleep", "1000")
    cli.background("two", "sleep", "1000")
    before, id, whole = net.left(daemon), cli.field("two", ".Id"), cli.field("one", ".Id")
    daemon.kill()
    net.run("nsenter", f"--net={daemon.state}/netns/{id}-1", "ip", "route", "delete", "default")
    daemon.start()
    checked = [{"container": whole, "network": name} for name in ("pods", "second")]
    until(
        lambda: [{key: line[key] for key in checked[0]} for line in logged(daemon, "network checked")] == checked,
        "the one that is whole is not checked in each of its networks",
    )
    warning = "a plugin finds the network not as it was made"
    until(lambda: [line["container"] for line in logged(daemon, warning)] == [id], "the other is not reported")
    assert net.left(daemon) == before


def test_a_row_that_cannot_be_read_keeps_its_network_until_it_is_removed(cli: Cli, daemon: Daemon, net: Net) -> None:
    cli.background("one", "-p", "8080:80", "sleep", "1000")
    before, id = net.left(daemon), cli.field("one", ".Id")
    with damaging(daemon) as database:
        unreadable(database, id)
    until(lambda: cli.field(id, ".Exitd.Damaged") not in ("", "<nil>"), "the row is not damaged")
    assert net.left(daemon) == before
    cli.ok("rm", "-f", id)
    until(lambda: net.left(daemon) == NOTHING, f"left behind: {net.left(daemon)}")


def test_a_row_that_has_gone_costs_the_network_with_it(cli: Cli, daemon: Daemon, net: Net) -> None:
    cli.background("one", "sleep", "1000")
    with damaging(daemon) as database:
        database.execute("DELETE FROM containers")
    until(lambda: net.left(daemon) == NOTHING, f"left behind: {net.left(daemon)}")


def test_odd_files_among_the_records_are_put_aside_and_hold_up_no_start(cli: Cli, daemon: Daemon, net: Net) -> None:
    cli.background("one", "sleep", "1000")
    top, id = daemon.root / "networks", cli.field("one", ".Id")
    whole = (top / f"{id}-1").read_text()
    daemon.kill()
    (top / "notes").write_text("no record")
    (top / f"{id}-2").write_text(whole)
    (top / f"{id}-3").write_text('{"version": 1, "container": [')
    (top / f"{id}-4").symlink_to("/dev/zero")
    (top / f"{id}-5").mkdir()
    (top / f"{id}-6.new").write_text("half")
    daemon.start()
    until(lambda: len(logged(daemon, "a file among the records of networks is none")) == 5, "they are not put aside")
    assert sorted(each.name for each in top.iterdir()) == [f"{id}-1", "odd"]
    assert len(list((top / "odd").iterdir())) == 5
    assert cli.ok("exec", "one", "cat", "/sys/class/net/eth0/operstate") == "up"
    for each in (top / "odd").iterdir():
        each.rmdir() if each.is_dir() and not each.is_symlink() else each.unlink()
    (top / "odd").rmdir()


def test_a_del_that_fails_holds_up_neither_the_next_run_nor_the_removal_and_is_tried_again(
    cli: Cli, daemon: Daemon, net: Net
) -> None:
    own = net.base / "own"
    (own / "switch").write_text(FAILS.format(directory=own))
    (own / "switch").chmod(0o755)
    answer = {"cniVersion": "1.0.0", "ips": [{"address": "10.97.0.2/24"}], "dns": {"nameservers": ["192.0.2.53"]}}
    (own / "answer").write_text(json.dumps(answer))
    net.write("switched", {"type": "switch"}, number=40)
    failed = "network not taken down"
    before = len(logged(daemon, failed))
    cli.background("one", "--network", "switched", "sleep", "1000")
    assert "nameserver 192.0.2.53" in cli.ok("exec", "one", "cat", "/etc/resolv.conf")
    cli.ok("restart", "-t", "0", "one")
    daemon.kill()
    count = len(logged(daemon, failed))
    daemon.start()
    until(lambda: len(logged(daemon, failed)) > count, "the next exitd does not try while the next run lives")
    assert logged(daemon, failed)[-1]["run"] == 1
    cli.ok("rm", "-f", "one")
    assert len(list((daemon.root / "networks").glob("*-[12]"))) == 2
    until(lambda: len(logged(daemon, failed)) >= before + 2, "its failure is not logged")
    assert "the switch does not answer" in str(logged(daemon, failed)[-1]["why"])
    daemon.kill()
    count = len(logged(daemon, failed))
    daemon.start()
    until(lambda: len(logged(daemon, failed)) >= count + 2, "the next exitd does not try")
    first, second = sorted((daemon.root / "networks").glob("*-[12]"))
    first.unlink()
    until(lambda: logged(daemon, "network given up, its record was removed"), "what was removed by hand is tried on")
    (own / "mended").touch()
    until(lambda: not second.exists(), "it is not taken down", 2 * LIMIT_SECONDS)  # half a minute after a third failure
    (net.configurations / "40-switched.conflist").unlink()


def test_a_port_is_refused_to_others_while_rules_lead_from_it_to_a_container_that_has_gone(
    cli: Cli, daemon: Daemon, net: Net
) -> None:
    """And a DEL uses the directories of the plugins as they are now, too."""
    own, later = net.base / "own", net.base / "later"
    (own / "switch").write_text(FAILS.format(directory=own))
    (own / "switch").chmod(0o755)
    (own / "mended").unlink(missing_ok=True)
    (own / "answer").write_text(json.dumps({"cniVersion": "1.0.0", "ips": [{"address": "10.97.0.2/24"}]}))
    net.write("switched", {"type": "switch", "capabilities": {"portMappings": True}}, number=40)
    cli.background("one", "--network", "switched", "-p", "8080:80", "sleep", "1000")
    id = cli.field("one", ".Id")
    cli.ok("restart", "-t", "0", "one")  # its own port is not refused to it
    cli.ok("rm", "-f", "one")
    refused = cli("run", "-d", "--name", "two", "-p", "8080:80", "--rootfs", "/", "sleep", "1000")
    assert (refused.code, f"was published by {id[:12]}" in refused.err) == (125, True), refused
    daemon.kill()
    (own / "mended").touch()
    later.mkdir()
    (own / "switch").rename(later / "switch")
    config = net.base / "config.toml"
    config.write_text(config.read_text().replace(f'"{own}"', f'"{own}", "{later}"'))
    daemon.start()
    until(lambda: not list((daemon.root / "networks").glob("*-[12]")), "it is not taken down")
    cli.background("two", "-p", "8080:80", "sleep", "1000")
    (net.configurations / "40-switched.conflist").unlink()


def test_of_several_networks_each_is_taken_down_once_the_last_first_and_what_fails_alone_is_repeated(
    cli: Cli, daemon: Daemon, net: Net
) -> None:
    own = net.base / "own"
    good, bad = own / "good", own / "switch"
    good.mkdir()
    for program, directory in ((own / "well", good), (bad, own)):
        program.write_text(FAILS.format(directory=directory))
        program.chmod(0o755)
        (directory / "answer").write_text(json.dumps({"cniVersion": "1.0.0", "ips": [{"address": "10.97.0.2/24"}]}))
    (good / "mended").touch()
    for each in (own / "mended", own / "calls"):
        each.unlink(missing_ok=True)
    names = ("one", "two", "three")
    for number, name in enumerate(names):
        net.write(name, {"type": "switch" if name == "two" else "well"}, number=40 + number)
    cli.background("web", "--network", ",".join(names), "sleep", "1000")
    cli.ok("rm", "-f", "web")
    until(lambda: (own / "calls").read_text().count("DEL") > 1, "it is not tried again")
    assert (good / "calls").read_text().split() == ["ADD", "eth0", "ADD", "eth2", "DEL", "eth2", "DEL", "eth0"]
    (left,) = (daemon.root / "networks").glob("*-1")
    assert [each["interface"] for each in json.loads(left.read_text())["links"]] == ["eth1"]
    daemon.kill()
    (own / "mended").touch()
    daemon.start()
    until(lambda: not left.exists(), "it is not taken down")
    assert (good / "calls").read_text().count("DEL") == 2
    assert set((own / "calls").read_text().split()) == {"ADD", "DEL", "eth1"}
    for path in net.configurations.glob("4*"):
        path.unlink()


def test_what_cannot_be_taken_down_is_shown_and_given_up_by_prune(cli: Cli, daemon: Daemon, net: Net) -> None:
    own = net.base / "own"
    (own / "switch").write_text(FAILS.format(directory=own))
    (own / "switch").chmod(0o755)
    (own / "mended").unlink(missing_ok=True)
    (own / "answer").write_text(json.dumps({"cniVersion": "1.0.0", "ips": [{"address": "10.97.0.2/24"}]}))
    net.write("switched", {"type": "switch", "capabilities": {"portMappings": True}}, number=40)
    cli.background("one", "--network", "switched", "-p", "8080:80", "sleep", "1000")
    record = f"{cli.field('one', '.Id')}-1"
    cli.ok("rm", "-f", "one")
    (shown,) = json.loads(cli.ok("network", "inspect", "switched"))[0]["Stuck"]
    assert (shown["Record"], shown["Ports"]["80/tcp"][0]["HostPort"]) == (record, "8080")
    words = f"{record}: network switched is not taken down after "
    for said in (cli("network", "ls").err, cli("doctor").out):
        assert words in said and "keeps 0.0.0.0:8080/tcp" in said and "exitctl network prune" in said, said
    refused = cli("network", "prune")
    assert (refused.code != 0, "give up what fails again?" in refused.err) == (True, True), refused
    pruned = cli("network", "prune", "-f")
    assert (pruned.code, pruned.out) == (0, f"{record}\n"), pruned
    assert f"given up: {record}" in pruned.err and "the switch does not answer" in pruned.err
    assert net.left(daemon) == NOTHING and cli.ok("network", "prune", "-f") == ""
    cli.background("two", "-p", "8080:80", "--network", "pods", "sleep", "1000")
    (net.configurations / "40-switched.conflist").unlink()


def test_a_plugin_that_answers_nonsense_is_refused_and_its_words_reach_no_file(cli: Cli, net: Net) -> None:
    own = net.base / "own"
    (own / "switch").write_text(FAILS.format(directory=own))
    (own / "switch").chmod(0o755)
    (own / "mended").touch()
    net.write("switched", {"type": "switch"}, number=40)
    nameserver = {"cniVersion": "1.0.0", "dns": {"nameservers": ["192.0.2.1\nnameserver 192.0.2.66"]}}
    for answer in ("", "[]", "x" * 100_000, json.dumps(nameserver), json.dumps({"ips": [{"address": "here"}]})):
        (own / "answer").write_text(answer)
        said = cli("run", "--network", "switched", "--rootfs", "/", "true")
        assert (said.code, "switch" in said.err, "Traceback" in said.err) == (125, True, False), (answer[:50], said)
    (net.configurations / "40-switched.conflist").unlink()


def test_after_a_boot_the_addresses_of_what_ran_are_free(net: Net, tmp_path: pathlib.Path) -> None:
    with pretended_boot(tmp_path) as (boot_id, wrapper):
        enter = (*wrapper, "nsenter", f"--net={net.path}")
        with daemons.daemon(wrapper=enter, extra=networks.options(net, PLUGINS)) as daemon:
            cli = Cli(daemon)
            cli.background("once", "sleep", "1000")
            cli.background("again", "--restart", "always", "-p", "8080:80", "sleep", "1000")
            assert len(net.leases()) == 2
            daemon.kill()
            boot_id.write_text("33333333-2222-4222-8222-222222222222\n")
            daemon.start()
            cli.until_status("again", "running")
            until(lambda: net.leases() == [cli.field("again", networks.ADDRESS)], "an address is taken still")
            until(lambda: [each.name[-2:] for each in (daemon.root / "networks").iterdir()] == ["-2"], "a record stays")
            cli.ok("rm", "-f", "again")
    until(lambda: (net.leases(), net.links(), net.rules()) == ([], [], []), "something is left")
