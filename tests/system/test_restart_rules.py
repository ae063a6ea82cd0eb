"""Rules by exit code on real containers: which one decided, and what follows."""

import os
import signal

import pytest

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api.client import Client
from supervisor.model.errors import BadRequest
from tests.system import daemons, lives
from tests.system.daemons import Daemon, spec
from tests.system.exitctl import Cli
from tests.system.lives import events, ledger, word
from tests.system.waits import until

# Each run ends with one less than the one before it; it remembers in what is mounted.
COUNTDOWN = "n=$(cat /mnt/n); echo $((n - 1)) >/mnt/n; exit $n"


def counting_down(daemon: Daemon, client: Client, begin: int, **fields: object) -> str:
    (daemon.base / "n").write_text(str(begin))
    mounts = [pb.Mount(source=str(daemon.base), destination="/mnt")]
    return lives.up(client, "sh", "-c", COUNTDOWN, mounts=mounts, **fields).id


def over(client: Client, container: str) -> list[tuple[str, str, str]]:
    until(lambda: client.inspect(container).phase == pb.PHASE_EXITED, "its last end")
    return [(word(exit_), exit_.decision, exit_.rule) for exit_ in ledger(client, container)]


def test_a_rule_restarts_without_a_policy_until_a_code_that_it_does_not_name(daemon: Daemon, client: Client) -> None:
    rule = "exit in 43,44 => restart"
    container = counting_down(daemon, client, 44, restart_rules=[rule])
    assert over(client, container) == [
        ("exited 44", "restart", rule),
        ("exited 43", "restart", rule),
        ("exited 42", "ended", ""),
    ]
    told = [dict(event.attributes) for event in events(client, container) if event.type == "exit"]
    assert [each.get("rule") for each in told] == [rule, rule, None]


def test_a_rule_ends_what_its_policy_would_have_restarted_for_ever(daemon: Daemon, client: Client) -> None:
    container = counting_down(daemon, client, 3, restart="always", restart_rules=["exit in 1,2 => no"])
    assert over(client, container) == [("exited 3", "restart", ""), ("exited 2", "ended", "exit in 1,2 => no")]


def test_the_first_rule_that_fits_decides_also_when_it_says_not_in(daemon: Daemon, client: Client) -> None:
    rules = ["exit in 5 => restart", "exit not in 4 => no", "exit in 4 => restart"]
    container = counting_down(daemon, client, 5, restart="always", restart_rules=rules)
    assert over(client, container) == [
        ("exited 5", "restart", rules[0]),
        ("exited 4", "restart", rules[2]),
        ("exited 3", "ended", rules[1]),
    ]


def test_a_signal_counts_as_128_and_its_number(client: Client) -> None:
    rule = "exit in 137 => no"
    container = lives.up(client, restart="always", restart_rules=[rule])
    os.kill(container.init.pid, signal.SIGKILL)
    assert over(client, container.id) == [("signaled 9", "ended", rule)]


def test_a_user_who_stops_is_stronger_than_a_rule(client: Client) -> None:
    container = lives.up(client, restart_rules=["exit not in 0 => restart"]).id
    client.stop(container, 0)
    assert over(client, container) == [("signaled 9", "ended", "")]


def test_a_rule_is_kept_over_a_daemons_death_and_applied_by_the_next_one() -> None:
    with daemons.daemon() as daemon:
        with daemon.client() as client:
            rule = "exit in 137 => restart"
            container = lives.up(client, restart_rules=[rule])
        daemon.kill()
        os.kill(container.init.pid, signal.SIGKILL)
        daemon.start()
        with daemon.client() as client:
            until(lambda: client.inspect(container.id).run == 2, "the next run")
            (exit_,) = ledger(client, container.id)
            assert (word(exit_), exit_.decision, exit_.rule) == ("signaled 9", "restart", rule)


def test_what_is_no_rule_and_a_rule_that_contradicts_rm_are_refused(client: Client) -> None:
    with pytest.raises(BadRequest, match="exit not in 0 => restart"):
        client.create(spec("true", restart_rules=["exit 42"]))
    with pytest.raises(BadRequest, match="exclude each other"):
        client.create(spec("true", restart_rules=["exit in 42 => restart"], auto_remove=True))
    assert not client.list(all_of_them=True)


def test_the_command_line_takes_several_rules_and_shows_who_decided(daemon: Daemon) -> None:
    cli = Cli(daemon)
    rules = ["exit in 42,43 => no", "exit not in 0 => restart"]
    options = [word for rule in rules for word in ("--restart-rule", rule)]
    cli.ok("run", "-d", "--name", "ruled", *options, "--rootfs", "/", "sh", "-c", "exit 43")
    cli.until_status("ruled", "exited")
    assert cli.field("ruled", "json .Exitd.RestartRules") == '["exit in 42,43 => no","exit not in 0 => restart"]'
    assert "The restart rule 'exit in 42,43 => no' does not start it again." in cli.ok("why", "ruled")
    refused = cli("run", "--restart-rule", "on 42 no", "--rootfs", "/", "true")
    assert refused.code == 125 and "write 'exit in 42,43 => no'" in refused.err
    cli.ok("rm", "ruled")
