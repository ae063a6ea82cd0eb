"""supervisor/cli/shape.py: docker's shape, and the truth beside it."""

import json

import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import given
from hypothesis import strategies as st

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api import answers
from supervisor.cli import shape, template
from supervisor.model.values import Exited, Signaled, Unknown

AT = Timestamp(seconds=1_700_000_000, nanos=120_000_000)
EXIT_KEYS = [
    "Run",
    "Kind",
    "Code",
    "Signal",
    "Number",
    "Core",
    "Source",
    "Cause",
    "Reason",
    "By",
    "OOM",
    "At",
    "LeftBehind",
]


def exited(code: int) -> pb.Exit:
    return pb.Exit(
        container_id="c" * 64, name="web", run=1, kind="exited", code=code, source="record", reason="self", at=AT
    )


def signaled(signal: int) -> pb.Exit:
    return pb.Exit(run=1, kind="signaled", signal=signal, core=True, source="keeper", reason="kill", at=AT)


def unknown(number: int | None = None) -> pb.Exit:
    return pb.Exit(
        run=1, kind="unknown", number=number, cause="monitors-killed", source="none", reason="unknown", at=AT
    )


def container(phase: pb.Phase, exit_: pb.Exit | None = None, **fields: object) -> pb.Container:
    made = pb.Container(
        id="c" * 64, spec=pb.ContainerSpec(name="web", args=["true"]), phase=phase, run=1, created_at=AT
    )
    made.MergeFrom(pb.Container(exit=exit_, **fields))  # type: ignore[arg-type]
    return made


@given(st.integers(min_value=0, max_value=255))
def test_an_exited_end_has_its_code_and_nothing_else(code: int) -> None:
    document = shape.exit_document(exited(code))
    assert (document["Kind"], document["Code"], document["Signal"], document["Number"]) == ("exited", code, None, None)
    assert shape.number_of(exited(code)) == code


@given(st.integers(min_value=1, max_value=64))
def test_a_signaled_end_has_its_signal_and_no_code(signal: int) -> None:
    document = shape.exit_document(signaled(signal))
    assert (document["Kind"], document["Code"], document["Signal"], document["Number"]) == (
        "signaled",
        None,
        signal,
        None,
    )
    assert document["Core"] is True
    assert shape.number_of(signaled(signal)) == 128 + signal


@pytest.mark.parametrize("number", [None, 0, 137])
def test_an_unknown_end_has_no_code_but_a_cause_and_maybe_a_number(number: int | None) -> None:
    document = shape.exit_document(unknown(number))
    assert (document["Code"], document["Signal"], document["Number"]) == (None, None, number)
    assert document["Cause"] == "monitors-killed"
    assert shape.number_of(unknown(number)) == 255


def test_the_number_of_an_unknown_end_is_255_in_json_and_unknown_in_a_template() -> None:
    document = shape.container_document(container(pb.PHASE_EXITED, unknown(0)))
    assert json.loads(json.dumps(document))["State"]["ExitCode"] == 255
    assert template.parse("{{.State.ExitCode}} {{json .State.ExitCode}}").render(document) == "unknown 255"
    document = shape.container_document(container(pb.PHASE_EXITED, signaled(9)))
    assert template.parse("{{.State.ExitCode}}").render(document) == "137"


def test_a_number_left_beside_the_wrong_kind_does_not_show() -> None:
    confused = pb.Exit(kind="unknown", code=0, signal=9)
    document = shape.exit_document(confused)
    assert (document["Code"], document["Signal"]) == (None, None)
    assert answers.status_of(confused) == Unknown("")


@pytest.mark.parametrize("kind", ["", "exited", "signaled", "evaporated"])
def test_a_kind_without_its_value_or_from_the_future_is_unknown_and_never_0(kind: str) -> None:
    assert isinstance(answers.status_of(pb.Exit(kind=kind)), Unknown)
    assert shape.number_of(pb.Exit(kind=kind)) == 255


def test_a_status_is_the_fact_the_daemon_meant() -> None:
    assert answers.status_of(exited(0)) == Exited(0)
    assert answers.status_of(signaled(11)) == Signaled(11, True)
    assert answers.status_of(unknown(137)) == Unknown("monitors-killed", 137)


def test_an_exit_has_the_keys_that_are_promised() -> None:
    assert list(shape.exit_document(exited(7))) == EXIT_KEYS


def test_by_is_null_when_nobody_is_known_and_keeps_uid_0() -> None:
    assert shape.exit_document(exited(0))["By"] is None
    by_root = exited(0)
    by_root.by.uid = 0
    by_root.by.pid = 12
    assert shape.exit_document(by_root)["By"] == {"Uid": 0, "Pid": 12, "Policy": ""}
    assert shape.exit_document(pb.Exit(by=pb.By(policy="always")))["By"] == {
        "Uid": None,
        "Pid": None,
        "Policy": "always",
    }


def test_oom_shows_the_victim_and_the_kills() -> None:
    assert shape.exit_document(pb.Exit(oom=pb.Oom(init=True, kills=2)))["OOM"] == {"Init": True, "Kills": 2}


@pytest.mark.parametrize(
    ("nanos", "text"),
    [(0, "2023-11-14T22:13:20Z"), (120_000_000, "2023-11-14T22:13:20.12Z"), (1, "2023-11-14T22:13:20.000000001Z")],
)
def test_a_time_is_rfc3339_in_utc_with_the_digits_it_needs(nanos: int, text: str) -> None:
    assert shape.time_text(Timestamp(seconds=1_700_000_000, nanos=nanos)) == text


def state(message: pb.Container) -> dict[str, object]:
    found = shape.container_document(message)["State"]
    assert isinstance(found, dict)
    return found


def test_inspect_has_dockers_keys() -> None:
    document = shape.container_document(container(pb.PHASE_RUNNING))
    assert {"Id", "Name", "Created", "Config", "HostConfig", "State", "RestartCount", "Exit"} <= set(document)
    assert list(state(container(pb.PHASE_RUNNING))) == [
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


@pytest.mark.parametrize(
    ("phase", "status", "running"),
    [
        (pb.PHASE_CREATING, "created", False),
        (pb.PHASE_CREATED, "created", False),
        (pb.PHASE_STARTING, "created", False),
        (pb.PHASE_RUNNING, "running", True),
        (pb.PHASE_PAUSED, "paused", True),
        (pb.PHASE_EXITED, "exited", False),
        (pb.PHASE_RESTARTING, "restarting", True),
        (pb.PHASE_REMOVING, "removing", False),
        (pb.PHASE_UNSPECIFIED, "unknown", False),
    ],
)
def test_every_phase_has_dockers_word(phase: pb.Phase, status: str, running: bool) -> None:
    found = state(container(phase))
    assert (found["Status"], found["Running"]) == (status, running)
    assert found["Paused"] is (phase == pb.PHASE_PAUSED)
    assert found["Restarting"] is (phase == pb.PHASE_RESTARTING)


@pytest.mark.parametrize(
    ("exit_", "number", "error"), [(exited(7), 7, ""), (signaled(9), 137, ""), (unknown(0), 255, "monitors-killed")]
)
def test_an_ended_container_has_dockers_number_and_the_cause_of_unknown(
    exit_: pb.Exit, number: int, error: str
) -> None:
    found = state(container(pb.PHASE_EXITED, exit_, init=pb.Process(pid=77), finished_at=AT))
    assert (found["ExitCode"], found["Error"], found["Pid"]) == (number, error, 0)
    assert found["FinishedAt"] == shape.time_text(AT)


def test_a_running_container_does_not_show_the_number_of_its_former_run_as_its_own() -> None:
    message = container(pb.PHASE_RUNNING, exited(7), init=pb.Process(pid=77, started_ticks=5))
    assert (state(message)["ExitCode"], state(message)["Pid"]) == (0, 77)
    assert shape.container_document(message)["Exit"] == shape.exit_document(exited(7))


def test_oom_killed_speaks_of_init_alone() -> None:
    child = exited(0)
    child.oom.kills = 1
    assert state(container(pb.PHASE_EXITED, child))["OOMKilled"] is False
    init = signaled(9)
    init.oom.init = True
    assert state(container(pb.PHASE_EXITED, init))["OOMKilled"] is True


def test_what_has_not_happened_is_gos_zero_time_in_dockers_part_and_null_in_ours() -> None:
    document = shape.container_document(container(pb.PHASE_CREATED))
    assert state(container(pb.PHASE_CREATED))["StartedAt"] == "0001-01-01T00:00:00Z"
    assert document["Exit"] is None


def test_options_come_back_in_dockers_places() -> None:
    spec = pb.ContainerSpec(
        name="n",
        args=["a"],
        env=["K=V"],
        restart="on-failure:3",
        memory_bytes=64,
        stop_timeout_seconds=0,
        mounts=[pb.Mount(source="/a", destination="/b", read_only=True), pb.Mount(empty_dir="e", destination="/c")],
        labels={"l": "1"},
        tty=True,
        cpu_limit_milli=1500,
        pid="pod",
        sandbox="c1",
        restart_rules=["exit in 3 => no"],
    )
    document = shape.container_document(pb.Container(spec=spec))
    assert document["Config"] == {
        "Hostname": "",
        "User": "",
        "Env": ["K=V"],
        "Cmd": ["a"],
        "Entrypoint": [],
        "Image": "",
        "WorkingDir": "",
        "Labels": {"l": "1"},
        "StopSignal": "SIGTERM",
        "Tty": True,
        "OpenStdin": False,
        "StopTimeout": 0,
        "Healthcheck": None,
    }
    host = document["HostConfig"]
    assert isinstance(host, dict)
    assert host["RestartPolicy"] == {"Name": "on-failure", "MaximumRetryCount": 3}
    assert host["Binds"] == ["/a:/b:ro", "e:/c:rw"]
    assert (host["NanoCpus"], host["PidMode"]) == (1_500_000_000, "container:c1")
    own = document["Exitd"]
    assert isinstance(own, dict)
    assert (own["PodID"], own["RestartRules"]) == ("c1", ["exit in 3 => no"])


def test_what_is_mounted_is_shown_in_dockers_words_with_where_it_is() -> None:
    mounts = [
        pb.Mount(source="/a", destination="/b", read_only=True, options=["noexec", "rslave"]),
        pb.Mount(source="/a", destination="/w"),
        pb.Mount(volume="data", destination="/d"),
        pb.Mount(tmpfs=True, size_bytes=64, destination="/t"),
        pb.Mount(empty_dir="e", tmpfs=True, destination="/e"),
        pb.Mount(destination="/f", files=[pb.MountFile(path="k")]),
    ]
    sources = ["/a", "/a", "/r/v/data/data", "", "/r/c/1/volumes/e", "/r/c/1/files"]
    made = pb.Container(spec=pb.ContainerSpec(mounts=mounts), mount_sources=sources)
    found = shape.container_document(made)["Mounts"]
    assert isinstance(found, list)
    assert [tuple(each[key] for key in ("Type", "Source", "Mode", "RW", "Propagation")) for each in found] == [
        ("bind", "/a", "ro,noexec", False, "rslave"),
        ("bind", "/a", "", True, "rprivate"),
        ("volume", "/r/v/data/data", "", True, ""),
        ("tmpfs", "", "rw,size=64", True, ""),
        ("bind", "/r/c/1/volumes/e", "", True, ""),
        ("bind", "/r/c/1/files", "", False, ""),
    ]
    assert [each["Destination"] for each in found] == ["/b", "/w", "/d", "/t", "/e", "/f"]
    assert (found[2]["Name"], found[2]["Driver"]) == ("data", "local") and "Name" not in found[0]


def test_an_older_exitd_says_what_it_mounts_and_only_of_paths_where_they_are() -> None:
    spec = pb.ContainerSpec(
        mounts=[pb.Mount(source="/a", destination="/b"), pb.Mount(volume="v", destination="/c")], args=["a", "b"]
    )
    document = shape.container_document(pb.Container(spec=spec))
    found = document["Mounts"]
    assert isinstance(found, list)
    assert [(each["Type"], each["Source"]) for each in found] == [("bind", "/a"), ("volume", "")]
    assert (document["Path"], document["Args"]) == ("a", ["b"])


def test_entrypoint_and_command_are_shown_apart() -> None:
    made = pb.Container(spec=pb.ContainerSpec(args=["/bin/sh", "/entry", "x"]), entrypoint_words=2)
    document = shape.container_document(made)
    config = document["Config"]
    assert isinstance(config, dict)
    assert (config["Entrypoint"], config["Cmd"]) == (["/bin/sh", "/entry"], ["x"])
    assert (document["Path"], document["Args"]) == ("/bin/sh", ["/entry", "x"])


def test_what_the_shim_has_moved_is_shown_if_it_was_reported() -> None:
    own = shape.container_document(pb.Container())["Exitd"]
    assert isinstance(own, dict) and own["Streams"] is None
    reported = pb.StreamCounters(stdout_bytes=1, stderr_bytes=2, stdin_bytes=3, lost_bytes=4, dropped_bytes=5)
    own = shape.container_document(pb.Container(streams=reported))["Exitd"]
    assert isinstance(own, dict)
    assert own["Streams"] == {"Stdout": 1, "Stderr": 2, "Stdin": 3, "Lost": 4, "Dropped": 5}


def test_an_event_has_the_keys_that_are_promised_and_an_exit_only_for_exits() -> None:
    plain = shape.event_document(pb.Event(seq=3, time=AT, type="start", id="c", name="n", namespace="default"))
    assert list(plain)[:7] == ["Seq", "Time", "Type", "ID", "Name", "Namespace", "PodID"]
    assert "Exit" not in plain
    event = pb.Event(seq=4, time=AT, type="exit", exit=exited(7))
    assert shape.event_document(event)["Exit"] == shape.exit_document(exited(7))


def test_lost_events_are_reported_with_both_ends() -> None:
    lost = pb.Lost(to=9)
    setattr(lost, "from", 5)
    assert shape.lost_document(lost) == {"Type": "lost", "From": 5, "To": 9}
