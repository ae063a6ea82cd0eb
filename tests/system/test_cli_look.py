"""exitctl as a person uses it: what is, what happens and what has been, on a real daemon."""

import contextlib
import json
import os
import pathlib
import pty
import re
import signal
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from shim import native
from tests.supervisor.cli.test_shape import EXIT_KEYS
from tests.system.daemons import Daemon
from tests.system.exitctl import EXITCTL, Cli
from tests.system.waits import until

STATE_KEYS = [
    "Status",
    "Running",
    "Paused",
    "Restarting",
    "OOMKilled",
    "Pid",
    "ExitCode",
    "Error",
    "StartedAt",
    "FinishedAt",
    "Health",
]
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?Z")


@pytest.fixture(scope="module")
def cli(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cli]:
    """With three containers: `seven` has exited with 7, `killed` by SIGKILL, `alive` runs."""
    cli = Cli(Daemon(tmp_path_factory.mktemp("look")).start())
    assert cli.run("--name", "seven", "--label", "tier=a", "sh", "-c", "echo said; echo cried >&2; exit 7").code == 7
    cli.background("killed", "sleep", "60")
    cli.ok("kill", "killed")
    assert cli.ok("wait", "killed") == "137"
    cli.background("alive", "sleep", "600")
    yield cli
    cli.daemon.end()


def document(cli: Cli, name: str) -> dict[str, Any]:
    found = json.loads(cli.ok("inspect", "--format", "json", name))
    assert len(found) == 1
    result: dict[str, Any] = found[0]
    return result


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


# -- ps and inspect


def test_ps_lists_what_runs_and_with_all_what_has_ended_too(cli: Cli) -> None:
    assert cli.ok("ps", "--format", "{{.Name}}") == "alive"
    assert set(cli.ok("ps", "-a", "--format", "{{.Name}}").split()) == {"alive", "seven", "killed"}
    table = cli.ok("ps", "-a")
    assert re.search(r"seven .* Exited \(7\) ", table) and re.search(r"killed .* Exited \(137\) ", table)
    assert table.splitlines()[0].split("  ")[0] == "CONTAINER ID"


def test_ps_quiet_prints_ids_that_every_command_takes(cli: Cli) -> None:
    (short,) = cli.ok("ps", "-q").split()
    (whole,) = cli.ok("ps", "-q", "--no-trunc").split()
    assert whole.startswith(short) and cli.field(short, ".Name") == cli.field(whole, ".Name") == "alive"


def test_ps_filters_and_prints_json_and_templates(cli: Cli) -> None:
    assert cli.ok("ps", "--filter", "status=exited", "--filter", "label=tier=a", "--format", "{{.Name}}") == "seven"
    (only,) = lines(cli.ok("ps", "-a", "--filter", "name=killed", "--format", "jsonl"))
    assert (only["Name"], only["State"], only["ExitCode"], only["Exit"]["Signal"]) == ("killed", "exited", 137, 9)
    assert [one["Name"] for one in json.loads(cli.ok("ps", "--format", "json"))] == ["alive"]
    assert cli.ok("ps", "--format", "table {{.Name}}\t{{.Runtime}}").splitlines()[0].split() == ["NAME", "RUNTIME"]


def test_inspect_has_dockers_shape_and_the_truth_beside_it(cli: Cli) -> None:
    seven = document(cli, "seven")
    assert {"Id", "Name", "Created", "Config", "HostConfig", "State", "RestartCount", "Exit"} <= set(seven)
    assert list(seven["State"]) == STATE_KEYS and list(seven["Exit"]) == EXIT_KEYS
    state, exit_ = seven["State"], seven["Exit"]
    assert (state["Status"], state["Running"], state["Pid"], state["ExitCode"]) == ("exited", False, 0, 7)
    assert (exit_["Kind"], exit_["Code"], exit_["Signal"], exit_["Number"]) == ("exited", 7, None, None)
    assert (exit_["Source"], exit_["Reason"], exit_["Run"]) == ("record", "self", 1)
    assert state["StartedAt"] <= state["FinishedAt"] and TIME.fullmatch(exit_["At"])
    assert (seven["Config"]["Cmd"][0], seven["Config"]["Labels"]) == ("sh", {"tier": "a"})


def test_inspect_of_a_killed_one_names_the_signal_and_who_asked(cli: Cli) -> None:
    killed = document(cli, "killed")
    exit_ = killed["Exit"]
    assert killed["State"]["ExitCode"] == 128 + signal.SIGKILL
    assert (exit_["Kind"], exit_["Code"], exit_["Signal"]) == ("signaled", None, signal.SIGKILL)
    assert (exit_["Reason"], exit_["By"]["Uid"]) == ("kill", os.getuid())
    assert exit_["By"]["Pid"] > 0


def test_inspect_of_a_running_one_has_no_exit(cli: Cli) -> None:
    alive = document(cli, "alive")
    state = alive["State"]
    assert (state["Status"], state["Running"], state["ExitCode"], alive["Exit"]) == ("running", True, 0, None)
    assert pathlib.Path(f"/proc/{state['Pid']}/comm").read_text() == "sleep\n"


def test_templates_name_any_field_and_a_wrong_one_is_reported_with_what_is_there(cli: Cli) -> None:
    assert cli.ok("inspect", "-f", "{{.Name}}: {{.State.ExitCode}} {{json .Exit.Code}}", "seven") == "seven: 7 7"
    said = cli("inspect", "-f", "{{.State.Pidd}}", "seven")
    assert said.code == 2 and ".State.Pidd" in said.err and "ExitCode" in said.err
    assert "--format" in cli("ps", "-f", "{{.Name}}").err


def test_inspect_goes_on_after_one_that_is_not_there(cli: Cli) -> None:
    said = cli("inspect", "-f", "{{.Name}}", "nobody", "seven")
    assert (said.code, said.out) == (125, "seven\n") and "nobody" in said.err


# -- events


def test_events_are_numbered_lines_that_name_container_and_exit(cli: Cli) -> None:
    all_of_them = lines(cli.ok("events", "--from-seq", "1", "--no-follow", "--format", "jsonl"))
    assert [one["Seq"] for one in all_of_them] == list(range(1, len(all_of_them) + 1))
    mine = [one for one in all_of_them if one["Name"] == "seven"]
    assert [one["Type"] for one in mine] == ["create", "start", "exit"]
    assert all({"Seq", "Time", "Type", "ID", "Name", "Namespace", "PodID"} <= set(one) for one in mine)
    assert ["Exit" in one for one in mine] == [False, False, True]
    assert mine[2]["Exit"] == document(cli, "seven")["Exit"]


def test_events_go_on_from_any_number_and_from_any_time(cli: Cli) -> None:
    numbers = [one["Seq"] for one in lines(cli.ok("events", "--no-follow", "--from-seq", "4", "--format", "jsonl"))]
    assert numbers[0] == 4
    started = document(cli, "alive")["State"]["StartedAt"]
    since = lines(cli.ok("events", "--no-follow", "--since", started, "--format", "jsonl"))
    assert since and all(one["Name"] == "alive" or one["Time"] >= started for one in since)
    assert lines(cli.ok("events", "--no-follow", "--since", "1h", "--format", "jsonl"))[0]["Seq"] == 1


def test_events_are_filtered_by_name_and_type(cli: Cli) -> None:
    words = ("events", "--no-follow", "--from-seq", "1", "-f", "{{.Type}} {{.Name}}")
    assert cli.ok(*words, "--filter", "name=seven", "--filter", "type=exit") == "exit seven"
    assert cli.ok(*words, "--filter", "container=seven", "--filter", "event=die") == "exit seven"
    assert cli.ok(*words, "--filter", "label=tier=a", "--filter", "type=container").split()[::2] == [
        *("create", "start", "exit")
    ]
    assert cli.ok(*words, "--filter", "image=nothing") == ""
    refused = cli("events", "--no-follow", "--filter", "type=image")
    assert refused.code == 125 and "the log has events of containers alone" in refused.err
    assert cli("events", "--no-follow", "--filter", "color=red").code == 125


def test_events_of_containers_with_a_label_are_followed_to_their_removal(cli: Cli) -> None:
    there = cli.ok("create", "--label", "tier=passing", "--rootfs", "/", "true")
    following = cli.begin("events", "--filter", "label=tier=passing", "--from-seq", "1", "-f", "{{.Type}}")
    assert following.stdout is not None
    assert following.stdout.readline() == "create\n"  # it follows now; of what was removed before, it would see nothing
    assert cli.run("--rm", "--label", "tier=passing", "sh", "-c", "exit 5").code == 5
    seen = [following.stdout.readline() for _ in range(4)]
    following.send_signal(signal.SIGINT)
    assert (following.communicate(timeout=30)[0], following.returncode) == ("", 128 + signal.SIGINT)
    assert seen == ["create\n", "start\n", "exit\n", "remove\n"]
    cli.ok("rm", there)


def test_events_follow_what_happens(cli: Cli) -> None:
    following = cli.begin("events", "--filter", "name=passing", "--from-seq", "1", "--format", "jsonl")
    assert cli.run("--rm", "--name", "passing", "sh", "-c", "exit 5").code == 5
    assert following.stdout is not None
    seen = [json.loads(following.stdout.readline()) for _ in range(4)]
    following.send_signal(signal.SIGINT)
    assert (following.communicate(timeout=30)[0], following.returncode) == ("", 128 + signal.SIGINT)
    assert [one["Type"] for one in seen] == ["create", "start", "exit", "remove"]
    assert seen[2]["Exit"]["Code"] == 5


# -- logs, why, exits


def test_logs_keep_the_streams_apart_and_follow_to_the_end(cli: Cli) -> None:
    said = cli("logs", "seven")
    assert (said.code, said.out, said.err) == (0, "said\n", "cried\n")
    cli.background("talker", "sh", "-c", "echo one; read x; sleep 0.3; echo two; echo three")
    following = cli.begin("logs", "-f", "talker")
    assert (following.communicate(timeout=30), following.returncode) == (("one\ntwo\nthree\n", ""), 0)
    assert cli.ok("logs", "-n", "2", "talker") == "two\nthree"
    stamp, text = cli.ok("logs", "-t", "-n", "1", "talker").split(" ")
    assert TIME.fullmatch(stamp) and text == "three"
    cli.ok("rm", "talker")


def test_why_tells_what_was_seen_by_whom_and_who_asked_for_it(cli: Cli) -> None:
    story = cli("why", "seven").out
    assert story.startswith("seven, run 1, exited 7.\n")
    assert "Its shim, the parent process, saw the end" in story and "No client asked for it" in story
    assert "| said" in story and "| cried" in story
    story = cli.ok("why", "killed")
    assert "was ended by signal 9 (SIGKILL)" in story and f"by user {os.getuid()} in process" in story
    assert "has not ended yet (Up" in cli.ok("why", "alive")
    assert cli("why", "nobody").code == 125


def test_why_does_not_call_a_strangers_sigkill_the_programs_own_doing(cli: Cli) -> None:
    cli.background("struck", "sleep", "60")
    os.kill(int(cli.field("struck", ".State.Pid")), signal.SIGKILL)
    assert cli.ok("wait", "struck") == "137"
    assert "the signal came from elsewhere" in cli.ok("why", "struck")
    cli.ok("rm", "struck")


def test_a_container_that_ends_at_once_does_not_end_before_its_start(cli: Cli) -> None:
    assert cli.run("--name", "instant", "true").code == 0
    state = document(cli, "instant")["State"]
    assert state["StartedAt"] <= state["FinishedAt"]
    assert "set back" not in cli.ok("why", "instant")
    cli.ok("rm", "instant")


def test_exits_is_the_ledger_of_all_ends(cli: Cli) -> None:
    assert cli.run("--rm", "--name", "gone", "sh", "-c", "exit 17").code == 17
    rows = {row["Name"]: row for row in lines(cli.ok("exits", "--since", "10m", "--format", "jsonl"))}
    assert rows["gone"]["Exit"]["Code"] == 17 and rows["gone"]["Decision"] == "remove"
    assert rows["seven"]["Exit"] == document(cli, "seven")["Exit"]
    assert re.search(r"seven .* 7 +self +record +ended$", cli.ok("exits"), re.MULTILINE)
    assert cli.ok("exits", "--since", "2099-01-01", "--format", "jsonl") == ""


def test_the_ledger_is_numbers_for_prometheus_too(cli: Cli) -> None:
    counts = re.findall(
        r'^exitd_exits{kind="exited",code="7",.*reason="self".*} (\d+)$', cli.ok("metrics"), re.MULTILINE
    )
    assert sum(map(int, counts)) >= 1


# -- nobody knows


@contextlib.contextmanager
def heir_of_orphans() -> Iterator[None]:
    """This process gets what loses its parent, so that it can be reaped here and now."""
    native.set_subreaper(True)
    try:
        yield
    finally:
        native.set_subreaper(False)


def kill_and_reap(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    until(lambda: reaped(pid), f"{pid} is not ours to reap")


def reaped(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return not os.path.exists(f"/proc/{pid}")


def test_an_end_that_nobody_saw_is_unknown_with_its_cause_everywhere(tmp_path: pathlib.Path) -> None:
    daemon = Daemon(tmp_path)
    cli = Cli(daemon)
    with heir_of_orphans():
        daemon.start()
        cli.background("lost", "sleep", "600")
        pids = [int(cli.field("lost", path)) for path in (".Exitd.Shim.Pid", ".State.Pid")]
        keeper = int(cli.ok("info", "-f", "{{.KeeperPid}}"))
        daemon.kill()
        for pid in (keeper, *pids):
            kill_and_reap(pid)
    daemon.start()
    try:
        assert cli.ok("wait", "lost") == "unknown"
        assert cli("wait", "--exit-code", "lost").code == 255
        lost = document(cli, "lost")
        assert (lost["State"]["ExitCode"], lost["State"]["Error"]) == (255, "monitors-killed")
        assert cli.field("lost", ".State.ExitCode") == cli.ok("ps", "-a", "--format", "{{.ExitCode}}") == "unknown"
        exit_ = lost["Exit"]
        assert (exit_["Kind"], exit_["Code"], exit_["Signal"], exit_["Number"]) == ("unknown", None, None, None)
        assert (exit_["Source"], exit_["Cause"], exit_["Reason"]) == ("none", "monitors-killed", "unknown")
        assert "Exited (unknown: monitors-killed)" in cli.ok("ps", "-a")
        assert "how is unknown" in cli.ok("why", "lost")
        assert [row["Name"] for row in lines(cli.ok("exits", "--unknown", "--format", "jsonl"))] == ["lost"]
    finally:
        daemon.end()


# -- which daemon, and how it looks


def test_version_shows_both_ends_and_is_125_without_a_daemon(cli: Cli, tmp_path: pathlib.Path) -> None:
    assert re.fullmatch(r"exitctl +\S+ .*\nexitd +\S+ .*", cli.ok("version"))
    alone = Cli(Daemon(tmp_path))("version")
    assert alone.code == 125 and alone.out.startswith("exitctl ") and "exitd.sock" in alone.err


def test_two_daemons_side_by_side_and_the_address_wins_over_the_state_directory(
    cli: Cli, tmp_path: pathlib.Path
) -> None:
    other = Daemon(tmp_path).start()
    try:
        socket, question = str(other.state / "exitd.sock"), ("info", "-f", "{{.State}}")
        assert cli.ok(*question) == str(cli.daemon.state)
        assert Cli(other).ok(*question) == str(other.state)
        for address in (socket, f"unix:{socket}", f"unix://{socket}"):
            assert Cli(cli.daemon, {"EXITD_ADDRESS": address}).ok(*question) == str(other.state)
        pointed = Cli(cli.daemon, {"EXITD_ADDRESS": "/no/such/socket"})
        assert pointed.ok("--address", socket, *question) == str(other.state)
        assert "seven" not in Cli(other).ok("ps", "-a")
    finally:
        other.end()


def test_nothing_a_container_is_called_steers_a_terminal(cli: Cli) -> None:
    """On a terminal, and with NO_COLOR: no escape sequence, neither ours nor one from a command line."""
    cli.ok("create", "--name", "painted", "--rootfs", "/", "echo", "\x1b[31mred")
    for words in (("ps", "-a"), ("exits",), ("why", "killed"), ("doctor",), ("events", "--no-follow")):
        assert "\x1b" not in on_a_terminal(cli, *words), words
    cli.ok("rm", "painted")


def on_a_terminal(cli: Cli, *words: str) -> str:
    ours, theirs = pty.openpty()
    environment = {**cli.environment, "NO_COLOR": "1", "TERM": "xterm-256color"}
    process = subprocess.Popen([EXITCTL, *words], env=environment, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    text = b""
    with contextlib.suppress(OSError):  # EIO: the last writer is gone
        while chunk := os.read(ours, 65536):
            text += chunk
    os.close(ours)
    assert process.wait(30) == 0, text
    return text.decode()


def test_top_shows_a_containers_processes_as_ps_does(cli: Cli) -> None:
    pid = cli.field("alive", ".State.Pid")
    heading, line = cli.ok("top", "alive").splitlines()
    assert heading.split()[1] == "PID" and line.split()[1] == pid and line.endswith("sleep 600")
    assert cli.ok("top", "alive", "-o", "pid,comm").splitlines()[1].split() == [pid, "sleep"]
    (only,) = cli.ok("container", "top", "alive", "-eo", "pid").splitlines()[1:]
    assert only.strip() == pid
    refused = {
        ("seven",): (125, "is not running"),
        ("alive", "-o", "comm"): (2, "no column PID"),
        ("alive", "--no"): (125, "ps --no"),
    }
    for words, (code, complaint) in refused.items():
        said = cli("top", *words)
        assert (said.code, said.out, complaint in said.err) == (code, "", True), said


def test_exits_are_counted_by_what_they_have_in_common(cli: Cli) -> None:
    heading, *rows = [line.split() for line in cli.ok("exits", "--by", "container").splitlines()]
    assert heading == ["CONTAINER", "ENDS", "OK", "FAILED", "SIGNALED", "OOM", "UNKNOWN", "LAST"]
    counts = {name: words for name, *words in rows}
    assert counts["seven"][:6] == ["1", "0", "1", "0", "0", "0"]
    assert counts["killed"][:6] == ["1", "0", "0", "1", "0", "0"]
    by_reason = [json.loads(line) for line in cli.ok("exits", "--by", "reason", "--format", "jsonl").splitlines()]
    assert {"self", "kill"} <= {each["Reason"] for each in by_reason}
    said = cli("exits", "--by", "colour")
    assert said.code != 0 and "colour" in said.err
