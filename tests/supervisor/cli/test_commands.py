"""exitctl from argv to exit code and output, over a real channel to a daemon with canned answers."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.model import errors
from tests.supervisor.cli.conftest import Exitctl
from tests.supervisor.cli.fake_daemon import AT, ID, FakeDaemon, container, exit_of, nobody

REPOSITORY = Path(__file__).parents[3]


def raising(error: errors.ExitdError) -> Any:
    def answer(_: object) -> None:
        raise error

    return answer


def test_run_prints_both_streams_and_exits_with_the_containers_code(daemon: FakeDaemon, exitctl: Exitctl) -> None:
    outcome = exitctl("run", "--rootfs", "/", "--", "sh", "-c", "exit 7")
    assert (outcome.code, outcome.out, outcome.err) == (7, "out\n", "err\n")


def test_run_asks_for_wait_and_log_before_the_start_so_that_rm_cannot_lose_the_code(
    daemon: FakeDaemon, exitctl: Exitctl
) -> None:
    exitctl("run", "--rm", "--rootfs", "/", "true")
    wait, logs = daemon.asked_for(pb.WaitRequest)[0], daemon.asked_for(pb.LogsRequest)[0]
    assert (wait.id, wait.run) == (ID, 1)
    assert (logs.follow, logs.run) == (True, 1)


def test_run_finds_the_code_in_the_ledger_when_the_container_is_gone_already(
    daemon: FakeDaemon, exitctl: Exitctl
) -> None:
    daemon.answers.Wait = nobody
    assert exitctl("run", "--rm", "--rootfs", "/", "true").code == 7


@pytest.mark.parametrize(
    ("exit_", "code"),
    [
        (exit_of(kind="exited", code=0), 0),
        (exit_of(kind="signaled", signal=9), 137),
        (exit_of(kind="signaled", signal=11), 139),
        (exit_of(kind="unknown", cause="monitors-killed", number=0), 255),
    ],
)
def test_run_exits_with_the_number_a_shell_would_give(
    daemon: FakeDaemon, exitctl: Exitctl, exit_: pb.Exit, code: int
) -> None:
    daemon.exit = exit_
    outcome = exitctl("run", "--rootfs", "/", "true")
    assert outcome.code == code
    assert ("monitors-killed" in outcome.err) == (exit_.kind == "unknown")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.CommandNotFound("no such command: nope"), 127),
        (errors.CommandNotExecutable("/etc/passwd cannot be executed"), 126),
        (errors.RuntimeFailed("runc said no"), 125),
    ],
)
def test_a_failed_start_has_the_shells_number_and_rm_leaves_nothing(
    daemon: FakeDaemon, exitctl: Exitctl, error: errors.ExitdError, code: int
) -> None:
    daemon.answers.Start = raising(error)
    outcome = exitctl("run", "--rm", "--rootfs", "/", "nope")
    daemon.started.set()
    assert (outcome.code, outcome.err) == (code, f"exitctl: {error}\n")
    assert daemon.asked_for(pb.RemoveRequest)[0].force


def test_options_end_at_the_first_word_that_is_none(daemon: FakeDaemon, exitctl: Exitctl) -> None:
    exitctl("create", "--rootfs", "/", "ls", "-l", "--", "--name", "x")
    spec = daemon.asked_for(pb.CreateContainerRequest)[0].spec
    assert list(spec.args) == ["ls", "-l", "--", "--name", "x"]
    assert spec.name == ""


@pytest.mark.parametrize("words", [("run", "-d"), ("create",)])
def test_run_detached_and_create_print_the_whole_id_alone(
    daemon: FakeDaemon, exitctl: Exitctl, words: tuple[str, ...]
) -> None:
    outcome = exitctl(*words, "--rootfs", "/", "--", "true")
    assert (outcome.code, outcome.out, outcome.err) == (0, f"{ID}\n", "")
    assert bool(daemon.asked_for(pb.StartRequest)) == (words[0] == "run")


@pytest.mark.parametrize("command", [("run", "-d"), ("create",)])
def test_run_and_create_ask_for_all_they_were_told(
    daemon: FakeDaemon, exitctl: Exitctl, command: tuple[str, ...], tmp_path: Path
) -> None:
    words = """--name web --runtime crun --rootfs /r --workdir /tmp --user 1:2 --memory 64m --cpus 1.5 --hostname h
        --restart always --stop-signal INT --stop-timeout 3 --network host --pid own --pod p --namespace n --read-only
        --log-driver cri --log-mode non-blocking --log-opt max-file=4 --env A=1 --label l=m --annotation a=b --tty
        --volume /a:/b:ro --security-opt apparmor=tight --privileged --cap-add NET_ADMIN --cap-drop CHOWN --interactive
        --ulimit nofile=10:20 --pids-limit 9 --group-add 7 --entrypoint /bin/sh --health-cmd [\"/probe\"]
        --health-interval 2s --health-timeout 1s --health-retries 4 --health-start-period 5s --health-on-failure kill
        --pidfile PIDFILE --restart-rule""".replace("PIDFILE", str(tmp_path / "pid"))
    outcome = exitctl(*command, *words.split(), "exit in 42 => no", "true")
    assert (outcome.code, outcome.err) == (0, "")
    assert (tmp_path / "pid").read_text() == "0\n"
    assert daemon.asked_for(pb.CreateContainerRequest)[0].spec == pb.ContainerSpec(
        name="web",
        runtime="crun",
        rootfs="/r",
        cwd="/tmp",
        user="1:2",
        memory_bytes=64 << 20,
        cpu_limit_milli=1500,
        hostname="h",
        restart="always",
        restart_rules=["exit in 42 => no"],
        stop_signal="INT",
        stop_timeout_seconds=3,
        network="host",
        pid="own",
        sandbox="p",
        namespace="n",
        read_only=True,
        log=pb.LogSpec(driver="cri", mode="non-blocking", max_files=4),
        env=["A=1"],
        labels={"l": "m"},
        annotations={"a": "b"},
        tty=True,
        stdin=True,
        mounts=[pb.Mount(source="/a", destination="/b", read_only=True)],
        security=pb.SecuritySpec(apparmor="tight"),
        rights=pb.RightsSpec(
            privileged=True,
            cap_add=["NET_ADMIN"],
            cap_drop=["CHOWN"],
            ulimits=[pb.Ulimit(name="nofile", soft=10, hard=20)],
            pids_limit=9,
            groups=[7],
        ),
        entrypoint=["/bin/sh"],
        args=["true"],
        health=pb.HealthSpec(
            args=["/probe"],
            interval_ns=2 * 10**9,
            timeout_ns=10**9,
            retries=4,
            start_period_ns=5 * 10**9,
            on_failure="kill",
        ),
    )


@pytest.mark.parametrize("command", [("run", "-d"), ("create",)])
def test_run_and_create_ask_for_what_goes_not_with_everything(
    daemon: FakeDaemon, exitctl: Exitctl, command: tuple[str, ...]
) -> None:
    pause = "io.kubernetes.cri.container-type=sandbox"
    exitctl(*command, "--rm", "--bundle", "/b", "--no-healthcheck", "--on-pause-exit", "keep", "--annotation", pause)
    (request,) = daemon.asked_for(pb.CreateContainerRequest)
    assert (request.spec.auto_remove, request.spec.bundle, list(request.spec.health.args)) == (True, "/b", [""])
    assert request.spec.pod.on_pause_exit == "keep"


def test_a_daemon_that_has_ignored_a_path_in_a_volume_is_found_out(daemon: FakeDaemon, exitctl: Exitctl) -> None:
    def older(request: pb.CreateContainerRequest) -> pb.CreateContainerReply:
        mounts = [pb.Mount(volume=each.volume, destination=each.destination) for each in request.spec.mounts]
        return pb.CreateContainerReply(container=container(spec=pb.ContainerSpec(mounts=mounts)))

    words = ("create", "--mount", "src=data,dst=/d,volume-subpath=a", "--rootfs", "/", "true")
    assert exitctl(*words).code == 0
    daemon.answers.CreateContainer = older
    outcome = exitctl(*words)
    assert (outcome.code, outcome.out, "older than exitctl" in outcome.err) == (125, "", True)
    assert [request.force for request in daemon.asked_for(pb.RemoveRequest)] == [True]


def test_a_daemon_that_has_ignored_users_of_its_own_is_found_out(
    daemon: FakeDaemon, exitctl: Exitctl, tmp_path: pathlib.Path
) -> None:
    words = ("create", "--userns", "auto", "--cidfile", str(tmp_path / "id"), "--rootfs", "/", "true")
    outcome = exitctl(*words)
    assert (outcome.code, outcome.out, "older than exitctl" in outcome.err) == (125, "", True)
    assert not (tmp_path / "id").exists()
    assert [request.force for request in daemon.asked_for(pb.RemoveRequest)] == [True]
    made = container(ids=pb.IdRange(first=1, count=65536))
    daemon.answers.CreateContainer = lambda _: pb.CreateContainerReply(container=made)
    assert exitctl(*words).code == 0


def test_a_cidfile_gets_the_id_and_is_never_written_over(daemon: FakeDaemon, exitctl: Exitctl, tmp_path: Path) -> None:
    file = tmp_path / "cid"
    assert exitctl("create", "--cidfile", str(file), "--rootfs", "/", "true").code == 0
    assert file.read_text() == ID
    outcome = exitctl("create", "--cidfile", str(file), "--rootfs", "/", "true")
    assert outcome.code == 125
    assert len(daemon.asked_for(pb.CreateContainerRequest)) == 1


def test_a_signal_to_run_is_forwarded_to_the_container(daemon: FakeDaemon, exitctl: Exitctl) -> None:
    daemon.exit = exit_of(kind="signaled", signal=15)

    def output_until_killed(_: pb.LogsRequest) -> Any:
        assert daemon.started.wait(10)
        os.kill(os.getpid(), signal.SIGTERM)
        assert daemon.killed.wait(10)
        yield pb.LogsReply(data=b"bye\n", stream="stdout")

    daemon.answers.Logs = output_until_killed
    before = signal.getsignal(signal.SIGTERM)
    outcome = exitctl("run", "--rootfs", "/", "sleep", "99")
    assert (outcome.code, outcome.out) == (143, "bye\n")
    assert daemon.asked_for(pb.KillRequest)[0].signal == "15"
    assert signal.getsignal(signal.SIGTERM) is before


def test_run_without_an_image_shows_the_ways(daemon: FakeDaemon, exitctl: Exitctl) -> None:
    outcome = exitctl("run", "--rm")
    assert outcome.code == 125
    assert "docker://NAME" in outcome.err and "--bundle DIR" in outcome.err
    assert not daemon.asked


def test_no_daemon_is_reported_with_the_next_step(exitctl: Exitctl) -> None:
    outcome = exitctl("ps")
    assert outcome.code == 125
    assert "start exitd" in outcome.err
    assert "Traceback" not in outcome.err


def test_wait_prints_one_line_per_id_in_the_order_of_the_arguments(daemon: FakeDaemon, exitctl: Exitctl) -> None:
    second_answered = threading.Event()
    ends = {
        "a": exit_of(kind="exited", code=3),
        "b": exit_of(kind="unknown", cause="monitors-killed", number=0),
        "c": exit_of(kind="signaled", signal=9),
    }

    def answer(request: pb.WaitRequest) -> pb.WaitReply:
        if request.id == "a":
            assert second_answered.wait(10)
        second_answered.set()
        return pb.WaitReply(exit=ends[request.id])

    daemon.answers.Wait = answer
    outcome = exitctl("wait", "a", "b", "c")
    assert (outcome.code, outcome.out) == (0, "3\nunknown\n137\n")


@pytest.mark.parametrize(("exit_", "code"), [(exit_of(kind="exited", code=3), 3), (exit_of(kind="unknown"), 255)])
def test_wait_exit_code_exits_with_it(daemon: FakeDaemon, exitctl: Exitctl, exit_: pb.Exit, code: int) -> None:
    daemon.started.set()
    daemon.exit = exit_
    assert exitctl("wait", "--exit-code", "a").code == code


def test_wait_gives_124_when_the_time_is_up(daemon: FakeDaemon, exitctl: Exitctl) -> None:
    outcome = exitctl("wait", "--timeout", "0.05", "a")
    daemon.started.set()
    assert (outcome.code, outcome.out) == (124, "")


def test_wait_for_a_container_that_is_not_there_fails_with_125(daemon: FakeDaemon, exitctl: Exitctl) -> None:
    daemon.answers.Wait = nobody
    outcome = exitctl("wait", "web")
    assert (outcome.code, outcome.out) == (125, "")
    assert "no container 'web'" in outcome.err


def test_ps_shows_a_table_ids_json_and_templates(daemon: FakeDaemon, exitctl: Exitctl) -> None:
    lines = exitctl("ps", "-a").out.splitlines()
    assert lines[0].split("   ")[0] == "CONTAINER ID"
    assert ID[:12] in lines[1] and "Exited (7)" in lines[1]
    assert exitctl("ps", "-q").out == f"{ID[:12]}\n"
    assert exitctl("ps", "-q", "--no-trunc").out == f"{ID}\n"
    assert json.loads(exitctl("ps", "--format", "json").out)[0]["Exit"]["Code"] == 7
    assert json.loads(exitctl("ps", "--format", "jsonl").out)["ID"] == ID
    assert exitctl("ps", "-a", "--format", r"{{.Name}}\t{{.ExitCode}}").out == "web\t7\n"
    assert exitctl("ps", "--format", r"table {{.Name}}\t{{.Runtime}}").out == "NAME   RUNTIME\nweb    runc\n"


def test_ps_has_the_field_names_of_dockers_templates(daemon: FakeDaemon, exitctl: Exitctl) -> None:
    """Those of docker ps --format, from docker's page about formatting; all but LocalVolumes."""
    names = [
        "Command",
        "CreatedAt",
        "ID",
        "Image",
        "Labels",
        "Mounts",
        "Names",
        "Networks",
        "Ports",
        "RunningFor",
        "Size",
        "State",
        "Status",
    ]
    (shown,) = json.loads(exitctl("ps", "-a", "--size", "--format", "json").out)
    assert shown.keys() >= set(names)
    assert shown["CreatedAt"].startswith("2023-11-14T22:13:24")  # AT
    for name in names:
        assert exitctl("ps", "-a", "--size", "--format", f"{{{{.{name}}}}}").code == 0


def test_ps_knows_mounts_and_networks_in_templates(daemon: FakeDaemon, exitctl: Exitctl) -> None:
    mounts = [pb.Mount(source="/a", destination="/b"), pb.Mount(volume="v", destination="/c"), pb.Mount(tmpfs=True)]
    spec = pb.ContainerSpec(name="web", mounts=mounts, network="front", more_networks=["back"])
    daemon.answers.List = lambda request: pb.ListReply(containers=[container(spec=spec), container()])
    shown = exitctl("ps", "--format", "{{.Mounts}} {{.Networks}};").out.splitlines()
    assert sorted(shown) == [" ;", "/a,v front,back;"]


def test_ps_has_a_column_for_namespaces_where_there_are_several(daemon: FakeDaemon, exitctl: Exitctl) -> None:
    assert "NAMESPACE" not in exitctl("ps").out
    task = container(spec=pb.ContainerSpec(name="task", namespace="k8s.io", runtime="runc"))
    daemon.answers.List = lambda request: pb.ListReply(containers=[container(), task])
    headings, _, line = (line.split("   ") for line in exitctl("ps").out.splitlines())
    assert headings[1].strip() == "NAMESPACE" and line[1].strip() == "k8s.io"


def test_ps_hands_filters_to_the_daemon(daemon: FakeDaemon, exitctl: Exitctl) -> None:
    exitctl("ps", "--filter", "status=exited", "--filter", "label=a=b")
    request = daemon.asked_for(pb.ListRequest)[0]
    assert (request.all, list(request.filters)) == (False, ["status=exited", "label=a=b"])


def test_an_unknown_format_or_field_is_named(daemon: FakeDaemon, exitctl: Exitctl) -> None:
    assert "'yaml'" in exitctl("ps", "--format", "yaml").err
    outcome = exitctl("inspect", "-f", "{{.State.Pidd}}", "web")
    assert outcome.code == 2 and ".State.Pidd" in outcome.err


def test_inspect_is_a_list_and_goes_on_after_one_that_is_not_there(daemon: FakeDaemon, exitctl: Exitctl) -> None:
    def answer(request: pb.InspectRequest) -> pb.InspectReply:
        return nobody(request) if request.id == "x" else pb.InspectReply(container=container())

    daemon.answers.Inspect = answer
    outcome = exitctl("inspect", "x", "web")
    assert outcome.code == 125
    assert [one["Id"] for one in json.loads(outcome.out)] == [ID]
    assert exitctl("inspect", "-f", "{{.State.Pid}} {{.Exit.Code}}", "web").out == "0 <nil>\n"


def test_events_are_json_lines_with_the_same_exit_as_inspect(daemon: FakeDaemon, exitctl: Exitctl) -> None:
    lost = pb.Lost(to=2)
    setattr(lost, "from", 1)
    daemon.answers.Events = lambda _: iter(
        [
            pb.EventsReply(lost=lost),
            pb.EventsReply(event=pb.Event(seq=3, time=AT, type="exit", id=ID, name="web", exit=daemon.exit)),
            pb.EventsReply(bookmark=9),
        ]
    )
    outcome = exitctl("events", "--from-seq", "1", "--no-follow", "--format", "jsonl", "--filter", "type=exit")
    first, second = map(json.loads, outcome.out.splitlines())
    assert (first["From"], first["To"]) == (1, 2)
    assert second["Seq"] == 3
    assert second["Exit"] == json.loads(exitctl("inspect", "web").out)[0]["Exit"]
    request = daemon.asked_for(pb.EventsRequest)[0]
    assert (request.from_seq, request.no_follow, list(request.filters)) == (1, True, ["type=exit"])


def test_events_for_people_say_code_source_and_reason(daemon: FakeDaemon, exitctl: Exitctl) -> None:
    event = pb.Event(seq=3, time=AT, type="exit", id=ID, name="web", exit=daemon.exit)
    daemon.answers.Events = lambda _: iter([pb.EventsReply(event=event)])
    assert "web (c0ffee000000) 7 [source record, reason self]" in exitctl("events").out


def test_logs_hands_over_follow_tail_and_run(daemon: FakeDaemon, exitctl: Exitctl) -> None:
    outcome = exitctl("logs", "--tail", "5", "--run", "2", "web")
    assert (outcome.code, outcome.out, outcome.err) == (0, "out\n", "err\n")
    request = daemon.asked_for(pb.LogsRequest)[0]
    assert request == pb.LogsRequest(id="web", tail_lines=5, run=2)


def test_bytes_that_are_no_text_fit_into_no_message_and_are_named(daemon: FakeDaemon, exitctl: Exitctl) -> None:
    outcome = exitctl("inspect", "caf\udce9")
    assert (outcome.code, outcome.out) == (125, "")
    assert outcome.err == "exitctl: 'caf\\udce9' is no UTF-8 text\n"


def test_a_tail_of_more_lines_than_any_log_has_is_all_of_it(daemon: FakeDaemon, exitctl: Exitctl) -> None:
    exitctl("logs", "--tail", "9" * 5000, "web")
    assert daemon.asked_for(pb.LogsRequest) == [pb.LogsRequest(id="web")]


def test_logs_hands_over_a_span_of_time_and_asks_for_times(daemon: FakeDaemon, exitctl: Exitctl) -> None:
    exitctl("logs", "--since", "2026-11-20T12:00:00.5Z", "--until", "1795176001", "--timestamps", "web")
    since, until = Timestamp(seconds=1795176000, nanos=500_000_000), Timestamp(seconds=1795176001)
    assert daemon.asked_for(pb.LogsRequest) == [pb.LogsRequest(id="web", since=since, until=until, timestamps=True)]


def test_logs_with_a_tail_of_nothing_follows_what_comes_from_now_on(daemon: FakeDaemon, exitctl: Exitctl) -> None:
    assert exitctl("logs", "--tail", "0", "web").out == ""
    assert daemon.asked_for(pb.LogsRequest) == []
    daemon.started.set()
    before = time.time()
    exitctl("logs", "-f", "--tail", "0", "web")
    (request,) = daemon.asked_for(pb.LogsRequest)
    assert before - 1 < request.since.seconds <= time.time()


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        (("start",), pb.StartRequest),
        (("stop", "-t", "3"), pb.StopRequest),
        (("kill", "-s", "TERM"), pb.KillRequest),
        (("rm", "-f"), pb.RemoveRequest),
        (("restart",), pb.RestartRequest),
        (("pause",), pb.PauseRequest),
        (("unpause",), pb.ResumeRequest),
    ],
)
def test_commands_of_life_do_each_and_print_it(
    daemon: FakeDaemon, exitctl: Exitctl, words: tuple[str, ...], kind: type
) -> None:
    outcome = exitctl(*words, "a", "b")
    assert (outcome.code, outcome.out) == (0, "a\nb\n")
    assert [request.id for request in daemon.asked_for(kind)] == ["a", "b"]


def test_a_signal_is_for_every_process_of_a_container_when_that_was_said(daemon: FakeDaemon, exitctl: Exitctl) -> None:
    assert exitctl("kill", "--all", "a").code == exitctl("kill", "a").code == 0
    assert [request.all for request in daemon.asked_for(pb.KillRequest)] == [True, False]


def test_one_failure_does_not_keep_the_others_from_being_done(daemon: FakeDaemon, exitctl: Exitctl) -> None:
    daemon.answers.Pause = lambda request: nobody(request) if request.id == "a" else pb.PauseReply()
    outcome = exitctl("pause", "a", "b")
    assert (outcome.code, outcome.out) == (125, "b\n")


def test_why_tells_the_story_with_the_last_words(daemon: FakeDaemon, exitctl: Exitctl) -> None:
    outcome = exitctl("why", "web")
    assert "web, run 1, exited 7." in outcome.out
    assert "    | out" in outcome.out
    assert daemon.asked_for(pb.LogsRequest)[0].tail_lines == 5


@pytest.mark.parametrize("word", ["web", ID[:8]])
def test_why_knows_removed_containers_by_name_and_id(daemon: FakeDaemon, exitctl: Exitctl, word: str) -> None:
    daemon.answers.Inspect = nobody
    assert "has been removed since" in exitctl("why", word).out
    assert exitctl("why", "somebody-else").code == 125


def test_exits_shows_the_ledger(daemon: FakeDaemon, exitctl: Exitctl) -> None:
    outcome = exitctl("exits", "--since", "10m", "--unknown")
    assert "web" in outcome.out.splitlines()[1]
    request = daemon.asked_for(pb.ExitsRequest)[0]
    assert request.unknown and request.HasField("since")
    assert json.loads(exitctl("exits", "--format", "jsonl").out)["Exit"]["Code"] == 7
    assert ID not in outcome.out and ID in exitctl("exits", "--no-trunc").out


@pytest.mark.parametrize("word", ["web", ID[:8]])
def test_exits_of_a_removed_container_are_found_by_name_and_id(daemon: FakeDaemon, exitctl: Exitctl, word: str) -> None:
    of_all = daemon.answers.Exits
    daemon.answers.Exits = lambda request: of_all(request) if request.id in ("", ID) else iter(())
    daemon.answers.Inspect = nobody
    assert json.loads(exitctl("exits", "--id", word, "--format", "jsonl").out)["Exit"]["Code"] == 7
    nothing = exitctl("exits", "--id", "somebody-else")
    assert (nothing.code, nothing.out) == (125, "")
    assert "no container" in nothing.err


def test_version_shows_both_ends(daemon: FakeDaemon, exitctl: Exitctl) -> None:
    assert exitctl("version").out.splitlines()[1].startswith("exitd    9.9")
    assert json.loads(exitctl("version", "--format", "json").out)["Server"]["Version"] == "9.9"


def test_version_without_a_daemon_still_shows_the_client_and_exits_125(exitctl: Exitctl) -> None:
    outcome = exitctl("version", "--format", "json")
    assert outcome.code == 125
    assert json.loads(outcome.out)["Server"] is None


def test_info_names_the_evidence_that_works(daemon: FakeDaemon, exitctl: Exitctl) -> None:
    assert "pidfd no, record yes" in exitctl("info").out
    assert json.loads(exitctl("info", "--format", "json").out)["Evidence"] == {"pidfd": False, "record": True}


def test_info_shows_what_is_in_force_and_where_each_value_is_from(daemon: FakeDaemon, exitctl: Exitctl) -> None:
    lines = exitctl("info").out.splitlines()
    assert [line.split() for line in lines[lines.index("Configuration:") + 1 :]] == [
        ["NAME", "VALUE", "ORIGIN"],
        ["root", "/r", "flag"],
        ["limits.scratch_mib", "64", "/etc/exitd/config.toml:12"],
    ]
    assert json.loads(exitctl("info", "--format", "json").out)["Configuration"] == [
        {"Name": "root", "Value": "/r", "Origin": "flag"},
        {"Name": "limits.scratch_mib", "Value": "64", "Origin": "/etc/exitd/config.toml:12"},
    ]


@pytest.mark.parametrize(("limit", "words"), [(64 << 20, ": its limit was 64 MiB"), (0, "")])
def test_run_says_that_its_container_was_killed_for_memory(
    daemon: FakeDaemon, exitctl: Exitctl, limit: int, words: str
) -> None:
    daemon.exit = exit_of(kind="signaled", signal=9, reason="oom", oom=pb.Oom(init=True, kills=1, limit_bytes=limit))
    outcome = exitctl("run", "--rootfs", "/", "sh")
    assert (outcome.code, outcome.err) == (137, f"err\nexitctl: it was killed for memory{words}\n")


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("nope",), 2),
        (("rm",), 2),
        (("kill",), 2),
        (("wait", "--timeout", "soon", "web"), 2),
        (("run", "--nope"), 125),
        (("create", "--stop-timeout", "soon"), 125),
        (("exec", "web"), 125),
        (("logs", "--tail", "x", "web"), 2),
        (("play", "/nonexistent.yaml"), 125),
    ],
)
def test_a_wrong_command_line_is_2_except_where_that_may_be_the_containers_code(
    exitctl: Exitctl, words: tuple[str, ...], code: int
) -> None:
    outcome = exitctl(*words)
    assert outcome.code == code
    assert outcome.err and "Traceback" not in outcome.err


def test_a_bug_is_reported_in_one_line(exitctl: Exitctl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("supervisor.cli.look.output.format_of", lambda _: 1 / 0)
    outcome = exitctl("ps")
    assert (outcome.code, len(outcome.err.splitlines())) == (125, 1)


def test_a_reader_that_goes_away_gets_no_complaint(daemon: FakeDaemon) -> None:
    read_fd, write_fd = os.pipe()
    os.close(read_fd)
    with os.fdopen(write_fd, "wb") as gone:
        done = subprocess.run(
            [sys.executable, "-m", "supervisor.cli", "--address", daemon.path, "ps"],
            stdout=gone,
            stderr=subprocess.PIPE,
            cwd=REPOSITORY,
            timeout=30,
            check=False,
        )
    assert (done.returncode, done.stderr) == (141, b"")


def test_help_costs_neither_grpc_nor_messages() -> None:
    code = "import sys, supervisor.cli.__main__ as m; m.run(['--help']); sys.exit('grpc' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, timeout=30, check=False)
    assert done.returncode == 0
