"""Containers under containerd's own shim for runc, from exitctl's words to the ledger's; with exitd started again
meanwhile, and the shim killed or stopped."""

import subprocess
import time

import pytest

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api.client import Client
from supervisor.monitor import probe
from tests.system import oracle
from tests.system.daemons import Daemon
from tests.system.exitctl import Cli
from tests.system.foreign_shims import RUNC, addresses, begun, nothing_left, observed
from tests.system.lives import events, last_exit, ledger, run, up
from tests.system.processes import killed, stopped
from tests.system.waits import LIMIT_SECONDS, until

# What an end waits for those of its execs: a second is too little for a machine that does much else.
LIMITS = {"supervisor.engine.execlife.BEFORE_END_SECONDS": LIMIT_SECONDS}
pytestmark = [
    pytest.mark.observed(),
    pytest.mark.limits(LIMITS),
    pytest.mark.usefixtures("has_had_a_foreign_shim"),
]

KERNEL_TELLS = probe.pidfd().works


def kind_of(exit_: pb.Exit) -> str:
    return f"{exit_.kind} {exit_.code or exit_.signal or exit_.cause}"


@pytest.mark.parametrize("code", [0, 43, 137, 255])
def test_a_code_is_reported_as_it_is_also_one_that_looks_like_a_signal(client: Client, code: int) -> None:
    _, exit_ = run(client, "sh", "-c", f"exit {code}", runtime=RUNC)
    known = KERNEL_TELLS or code != 137
    assert (exit_.kind, exit_.code) == (("exited", code) if known else ("unknown", code))
    assert exit_.source == "shimv2-wait"


def test_a_signal_is_reported_as_one_by_the_kernels_word(client: Client) -> None:
    _, exit_ = run(client, "sh", "-c", "ulimit -c 0; kill -KILL $$", runtime=RUNC, pid="host")
    assert kind_of(exit_) == ("signaled 9" if KERNEL_TELLS else "unknown 137")


def test_stop_kill_pause_unpause_and_wait_are_typed_as_ever(cli: Cli) -> None:
    cli.background("a", "--runtime", RUNC, "sh", "-c", "trap 'exit 5' TERM; while :; do sleep 0.05; done")
    cli.ok("pause", "a")
    cli.until_status("a", "paused")
    cli.ok("unpause", "a")
    cli.until_status("a", "running")
    cli.ok("stop", "a")
    assert cli.ok("wait", "a") == "5"
    cli.ok("start", "a")
    cli.ok("kill", "a")
    assert cli.ok("wait", "a") == "137"
    cli.ok("rm", "a")


def test_what_is_over_the_memory_limit_is_told_so(client: Client) -> None:
    eats = ("python3", "-c", "b = bytearray(1 << 30)")
    _, exit_ = run(client, *eats, runtime=RUNC, memory_bytes=16 << 20)
    assert (exit_.reason, kind_of(exit_)) == ("oom", "signaled 9" if KERNEL_TELLS else "unknown 137")


def test_policies_make_a_new_run_when_the_last_one_has_gone(daemon: Daemon) -> None:
    subject = observed(daemon, code=3, restart="on-failure:2")
    oracle.whole_life(oracle.Revived(daemon), subject)
    with daemon.client() as client:
        assert sum(oracle.judge(client, subject).values()) == 3
    nothing_left(daemon)


def test_one_that_removes_itself_is_gone_and_its_code_is_known(cli: Cli, daemon: Daemon) -> None:
    said = cli.run("--rm", "--runtime", RUNC, "sh", "-c", "echo out; echo err >&2; exit 9")
    assert (said.code, said.out, said.err) == (9, "out\n", "err\n")
    nothing_left(daemon)


def test_what_is_typed_goes_in_and_an_exec_has_its_own_code(cli: Cli) -> None:
    words = [*cli.program, "run", "-i", "--name", "a", "--runtime", RUNC, "--rootfs", "/", "sh", "-c", "cat; exit 4"]
    sent = subprocess.run(words, input="hello\n", env=cli.environment, capture_output=True, text=True, timeout=30)
    assert (sent.returncode, sent.stdout, sent.stderr) == (4, "hello\n", "")
    assert cli.ok("logs", "a") == "hello"
    cli.ok("rm", "a")
    cli.background("b", "--runtime", RUNC, "sleep", "1000")
    assert cli("exec", "b", "sh", "-c", "exit 6").code == 6


def test_the_end_is_reported_by_a_daemon_that_was_started_meanwhile(daemon: Daemon) -> None:
    """And of an exec likewise, which must not keep its container from being found."""
    subject = begun(daemon)
    with daemon.client() as client:
        client.exec(subject.id, pb.ExecSpec(args=["sleep", "1000"]))
    daemon.restart()
    with daemon.client() as client:
        waiting = client.begin_wait(subject.id)
        subject.go()
        waiting.result(LIMIT_SECONDS)
        said = [(row.init.started_ticks in subject.truth(), kind_of(row)) for row in ledger(client, subject.id)]
    assert said == [(False, "signaled 9" if KERNEL_TELLS else "unknown 137"), (True, "exited 43")]


def test_an_end_while_exitd_is_away_is_reported_with_its_true_code(daemon: Daemon) -> None:
    subject = begun(daemon)
    with oracle.down(daemon):
        subject.go()
        until(lambda: None not in subject.truth().values(), "it does not end")
    assert oracle.end_and_judge(daemon, subject) == ["exited by shimv2-wait"]


def test_a_shim_that_is_killed_is_an_unknown_end_with_the_number_of_its_delete_beside_it(daemon: Daemon) -> None:
    subject, sockets = begun(daemon), addresses(daemon)
    killed(oracle.shim_of(daemon, subject))
    with daemon.client() as client:
        exit_ = last_exit(client, subject.id)
        assert (exit_.kind, exit_.cause, exit_.source) == ("unknown", "shim-lost", "shimv2-delete")
    assert oracle.end_and_judge(daemon, subject) == ["unknown by shimv2-delete"]
    nothing_left(daemon, sockets)


def test_a_shim_that_is_killed_while_exitd_is_away_is_one_too(daemon: Daemon) -> None:
    subject, sockets = begun(daemon), addresses(daemon)
    shim = oracle.shim_of(daemon, subject)
    with oracle.down(daemon):
        killed(shim)
    assert oracle.end_and_judge(daemon, subject) == ["unknown by shimv2-delete"]
    nothing_left(daemon, sockets)


def test_the_true_code_is_known_of_what_had_ended_before_its_shim_was_killed(daemon: Daemon) -> None:
    """The shim stands still, so nobody but the kernel has seen it."""
    subject, sockets = begun(daemon), addresses(daemon)
    shim = oracle.shim_of(daemon, subject)
    with stopped(shim):
        subject.go()
        until(lambda: None not in subject.truth().values(), "it does not end")
        until(lambda: oracle.inspect(daemon, subject).monitored_by == "unresponsive", "it is not shown")
        oracle.inspect(daemon, subject)  # exitd has heard of the end when it answers once more
        shim_lived_ns = time.time_ns()
        killed(shim)
    with daemon.client() as client:
        exit_ = last_exit(client, subject.id)
        assert exit_.at.ToNanoseconds() < shim_lived_ns and not exit_.at_is_found
    said = oracle.end_and_judge(daemon, subject)
    assert said == (["exited by pidfd"] if KERNEL_TELLS else ["unknown by shimv2-delete"])
    nothing_left(daemon, sockets)


def test_a_shim_that_stands_still_is_shown_so_and_no_end_is_made_up(daemon: Daemon) -> None:
    subject = begun(daemon)
    shim = oracle.shim_of(daemon, subject)
    with stopped(shim):
        until(lambda: oracle.inspect(daemon, subject).monitored_by == "unresponsive", "it is not shown")
    until(lambda: oracle.inspect(daemon, subject).monitored_by == "shim-v2", "it is shown still")
    with stopped(shim):
        until(lambda: oracle.inspect(daemon, subject).monitored_by == "unresponsive", "it is not shown")
        subject.go()
        until(lambda: None not in subject.truth().values(), "it does not end")
        with daemon.client() as client:
            assert ledger(client, subject.id) == []
    with daemon.client() as client:
        last_exit(client, subject.id)
        told = [event.type for event in events(client, subject.id) if event.type.endswith("responsive")]
        assert told[:3] == ["unresponsive", "responsive", "unresponsive"]
    assert oracle.end_and_judge(daemon, subject) == ["exited by shimv2-wait"]


def test_a_shim_that_stands_still_holds_up_no_other_one_when_exitd_is_started_again(daemon: Daemon) -> None:
    still, other = begun(daemon), begun(daemon)
    with stopped(oracle.shim_of(daemon, still)):
        daemon.restart()
        other.go()
        with daemon.client() as client:
            exit_ = last_exit(client, other.id)
            assert (exit_.kind, exit_.source) == ("exited", "shimv2-wait")
            client.remove(other.id, force=True)
        still.go()
    assert oracle.end_and_judge(daemon, still) == ["exited by shimv2-wait"]


def test_one_whose_shim_stands_still_is_removed_by_force(daemon: Daemon, cli: Cli) -> None:
    subject, sockets = begun(daemon), addresses(daemon)
    with stopped(oracle.shim_of(daemon, subject)):
        until(lambda: oracle.inspect(daemon, subject).monitored_by == "unresponsive", "it is not shown")
        cli.ok("rm", "-f", subject.id)
    nothing_left(daemon, sockets)


@pytest.mark.parametrize(("traps", "end"), [("exit 5", "exited 5"), ("", "signaled 9")])
def test_stop_reaches_what_runs_under_a_shim_that_stands_still(daemon: Daemon, cli: Cli, traps: str, end: str) -> None:
    with daemon.client() as client:
        container = up(client, "sh", "-c", f"trap '{traps}' TERM; echo up; while :; do sleep 0.1; done", runtime=RUNC)
        until(lambda: cli("logs", container.id).out == "up\n", "its trap")
        sockets = addresses(daemon)
        with stopped(container.shim.pid):
            until(lambda: client.inspect(container.id).monitored_by == "unresponsive", "it is not shown")
            cli.ok("stop", "-t", "3" if traps else "1", container.id)
            exit_ = last_exit(client, container.id)
            assert (kind_of(exit_), exit_.reason, exit_.source) == (end, "stop", "zombie")
            cli.ok("rm", container.id)
    nothing_left(daemon, sockets)
