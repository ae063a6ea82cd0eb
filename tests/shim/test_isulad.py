"""isulad-shim's contract as a function: what iSulad's daemon says, and the plan that comes of it."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shim import isulad, plan
from shim.isulad import Call, Refused

STATE = "/run/isulad/runc/box"
CALL_WORDS = ("box", "/var/lib/isulad/engines/runc/box", "runc")
CALL = Call(*CALL_WORDS)
LOGS = {"ISULAD_SHIIM_LOG_PATH": "fifo:/run/isulad/log", "ISULAD_SHIIM_LOG_LEVEL": "info"}
DOCUMENT: dict[str, Any] = {
    "args": ["sh"],
    "cwd": "/",
    "env": ["PATH=/bin"],
    "user": {"uid": 0, "gid": 0},
    "exit_fifo": f"{STATE}/exit_fifo",
    "attach_socket": f"{STATE}/attach.sock",
    "runtime": "runc",
    "terminal": False,
    "isuladStdin": None,
    "logPath": "/logs/console.log",
    "logMaxfile": 3,
}


def which(command: str) -> str | None:
    return {"runc": "/usr/sbin/runc", "/opt/kata": "/opt/kata"}.get(command)


def planned(call: Call = CALL, environ: Mapping[str, str] = LOGS, **changed: Any) -> plan.Plan:
    process = isulad.process_of(json.dumps({**DOCUMENT, **changed}).encode())
    return isulad.plan_of(call, process, environ, STATE, which)


def line(words: tuple[str, ...]) -> str:
    return " ".join(words)


def test_the_command_lines_are_those_that_isulad_shim_would_have_used() -> None:
    wanted = planned()
    assert line(wanted.create) == (
        f"/usr/sbin/runc --log {STATE}/log.json --log-format json --root {STATE}/runc create "
        f"--bundle {CALL.bundle} --pid-file {STATE}/pid.new box"
    )
    assert line(wanted.kill) == f"/usr/sbin/runc --root {STATE}/runc kill --all box SIGKILL"
    assert line(wanted.remove) == (
        f"/usr/sbin/runc --log {STATE}/log.json --log-format json --root {STATE}/runc delete --force box"
    )


def test_the_report_comes_last_and_the_set_up_has_two_minutes() -> None:
    wanted = planned()
    assert (wanted.report_last, wanted.create_ms, wanted.rest_ms, wanted.keeper) == (True, 120_000, 0, "")


def test_everything_the_daemon_may_add_to_a_command_line_stands_where_it_belongs() -> None:
    wanted = planned(runtimeArgs=["--debug", "--criu=x"], systemdCgroup=True, noPivotRoot=True)
    assert line(wanted.create).startswith("/usr/sbin/runc --debug --criu=x --log ")
    assert "--systemd-cgroup create --bundle" in line(wanted.create)
    assert f"{CALL.bundle} --no-pivot --pid-file" in line(wanted.create)
    assert line(wanted.kill).startswith("/usr/sbin/runc --debug --criu=x --root ")
    assert line(wanted.remove).startswith("/usr/sbin/runc --debug --criu=x --log ")


def test_a_root_in_memory_forces_no_pivot() -> None:
    assert "--no-pivot" in planned(environ={**LOGS, "ISULAD_RAMDISK": "1"}).create
    assert "--no-pivot" not in planned().create


def test_only_kata_keeps_its_own_root() -> None:
    call = Call("box", "/b", "/opt/kata")
    assert "--root" not in (own := planned(call, runtime="kata-runtime")).create + own.kill + own.remove
    assert f"{STATE}/katas" in planned(call, runtime="katas").create


def test_fifty_runtime_arguments_fit_and_one_more_does_not() -> None:
    fifty = [f"--a{n}" for n in range(50)]
    assert len(isulad.encoded(planned(runtimeArgs=fifty, systemdCgroup=True, noPivotRoot=True))) < plan.PLAN_MAX_BYTES
    with pytest.raises(Refused, match="51 runtimeArgs, at most 50"):
        planned(runtimeArgs=[*fifty, "--one-more"])


def test_the_log_is_the_daemons_file_with_its_bounds_and_never_less_than_its_least() -> None:
    wanted = planned(logMaxsize=10_000)
    assert (wanted.log, wanted.json_log, wanted.log_bytes, wanted.log_files) == ("", "/logs/console.log", 10_000, 3)
    assert planned(logPath=None).json_log == planned(logPath="").json_log == ""
    least = planned(logMaxsize=1, logMaxfile=None)
    assert (least.log_bytes, least.log_files) == (4096, 2)
    assert [planned(logMaxsize=size).log_bytes for size in (None, 0, -1)] == [0, 0, 0]
    assert isulad.encoded(planned(logMaxsize=2**70, logMaxfile=2**40))


def test_the_clients_fifos_and_the_terminal_are_the_plans() -> None:
    fifos: dict[str, Any] = {f"isulad{name}": f"{STATE}/start/1/{name}" for name in ("Stdin", "Stdout", "Stderr")}
    wanted = planned(**fifos, terminal=True, consoleSize={"height": 24, "width": 80})
    assert (wanted.in_from, wanted.sink_out, wanted.sink_err) == tuple(fifos.values())
    assert (wanted.isulad, wanted.tty, wanted.rows, wanted.cols) == (True, True, 24, 80)
    assert line(wanted.create).endswith(f"--pid-file {STATE}/pid.new --console-socket {plan.CONSOLE} box")
    assert "--console-socket" not in planned().create


@pytest.mark.parametrize(
    "size", [None, {}, {"height": 24}, {"height": 24, "width": 70_000}, {"height": -1, "width": 1}]
)
def test_a_size_that_no_terminal_has_is_left_to_the_runtime(size: object) -> None:
    wanted = planned(terminal=True, consoleSize=size)
    assert (wanted.rows, wanted.cols) == (0, 0)


def command(cwd: str = f"{STATE}/exec/one", **changed: Any) -> plan.Plan:
    process = isulad.process_of(json.dumps({**DOCUMENT, "exec": True, "exit_fifo": None, **changed}).encode())
    return isulad.plan_of(Call(*CALL_WORDS, timeout_seconds=5), process, LOGS, cwd, which)


def test_a_command_in_a_container_has_its_own_files_and_the_containers_root() -> None:
    wanted, own = command(resizeFifo=f"{STATE}/exec/one/resize_fifo", systemdCgroup=True), f"{STATE}/exec/one"
    assert line(wanted.create) == (
        f"/usr/sbin/runc --log {own}/log.json --log-format json --root {STATE}/runc exec -d "
        f"--process {own}/process.json --pid-file {own}/pid.new box"
    )
    assert (wanted.id, wanted.exec_id, wanted.limit_ms, wanted.resize) == ("box", "one", 5000, f"{own}/resize_fifo")
    assert (wanted.kill, wanted.remove, wanted.json_log) == ((), (), "")
    assert isulad.encoded(wanted)
    with pytest.raises(Refused, match="must be STATE/exec/EXEC-ID"):
        command(STATE)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"args": None}, "'args' is missing"),
        ({"args": []}, "'args' is missing"),
        ({"args": "sh"}, "'args' is 'sh', must be a list"),
        ({"args": ["sh", 1]}, "'args' holds 1, must be texts"),
        ({"cwd": None}, "'cwd' is missing"),
        ({"cwd": 5}, "'cwd' is 5, must be text"),
        ({"exit_fifo": None}, "'exit_fifo' is missing"),
        ({"runtime": None}, "'runtime' is '', must be the runtime's name"),
        ({"runtime": "../up"}, "must be the runtime's name"),
        ({"runtime": ".."}, "must be the runtime's name"),
        ({"terminal": "yes"}, "'terminal' is 'yes', must be true or false"),
        ({"systemdCgroup": 1}, "'systemdCgroup' is 1, must be true or false"),
        ({"rootUID": True}, "'rootUID' is True, must be a whole number"),
        ({"rootGID": -1}, "'rootGID' is -1, must be the number of a user or group"),
        ({"logPath": 5}, "'logPath' is 5, must be text"),
        ({"logMaxsize": "1"}, "'logMaxsize' is '1', must be a whole number"),
        ({"isuladStdin": ["in"]}, r"'isuladStdin' is \['in'\], must be text"),
        ({"consoleSize": 5}, "'consoleSize' is 5, must be an object"),
        ({"exec": 1}, "'exec' is 1, must be true or false"),
    ],
)
def test_a_field_that_lacks_or_is_wrong_is_named(changed: dict[str, Any], words: str) -> None:
    with pytest.raises(Refused, match=words):
        planned(**changed)


def test_broken_json_is_reported_with_its_line() -> None:
    with pytest.raises(Refused, match=r"process\.json, line 2 column 10"):
        isulad.process_of(b'{"cwd": "/",\n "args": ]}')


@given(
    st.binary(max_size=60)
    | st.recursive(st.none() | st.text(), lambda e: st.lists(e)).map(lambda v: json.dumps(v).encode())
)
def test_whatever_is_no_process_json_is_refused_and_never_a_crash(data: bytes) -> None:
    with pytest.raises(Refused):
        isulad.process_of(data)


@pytest.mark.parametrize("argv", [[], ["box"], ["box", "/b"], ["box", "/b", "runc", "info", "5", "more"]])
def test_too_few_or_too_many_arguments_are_reported_with_the_usage(argv: list[str]) -> None:
    with pytest.raises(Refused, match=f"{len(argv)} arguments: usage: python -m shim ID BUNDLE RUNTIME"):
        isulad.call_of(argv)


@pytest.mark.parametrize("timeout", ["-1", "1.5", "5s", "", "٣"])
def test_a_timeout_that_is_no_number_of_seconds_is_refused(timeout: str) -> None:
    with pytest.raises(Refused, match="must be whole seconds"):
        isulad.call_of(["box", "/b", "runc", "info", timeout])


def test_arguments_are_taken_as_they_stand() -> None:
    assert isulad.call_of(["box", "/b", "runc"]) == Call("box", "/b", "runc")
    assert isulad.call_of(["box", "/b", "/x/runc", "debug", "30"]) == Call("box", "/b", "/x/runc", 30)


@pytest.mark.parametrize("place", range(3))
def test_an_empty_argument_is_named(place: int) -> None:
    argv = ["box", "/b", "runc"]
    argv[place] = ""
    with pytest.raises(Refused, match=f"{('ID', 'BUNDLE', 'RUNTIME')[place]} is empty"):
        isulad.call_of(argv)


@pytest.mark.parametrize("name", LOGS)
def test_a_missing_log_variable_is_named(name: str) -> None:
    with pytest.raises(Refused, match=f"{name} is not set"):
        isulad.log_fifo_of({key: value for key, value in LOGS.items() if key != name})


@pytest.mark.parametrize("value", ["/run/isulad/log", "file:/run/isulad/log", "fifo:log"])
def test_a_log_that_is_no_fifo_by_its_word_is_refused(value: str) -> None:
    with pytest.raises(Refused, match="must be fifo: and an absolute path"):
        isulad.log_fifo_of({**LOGS, "ISULAD_SHIIM_LOG_PATH": value})


def test_the_runtime_sees_nothing_of_the_daemons_log_nor_of_systemd() -> None:
    environ = {**LOGS, "NOTIFY_SOCKET": "/run/systemd/notify", "http_proxy": "p", "ISULAD_RAMDISK": "1"}
    assert isulad.environment_of(environ) == {"http_proxy": "p", "ISULAD_RAMDISK": "1"}


def test_a_runtime_that_is_not_there_is_named() -> None:
    with pytest.raises(Refused, match="RUNTIME crun: no such program"):
        planned(Call("box", "/b", "crun"))


@pytest.mark.parametrize("id", ['a"b', "x" * 128, "ä"])
def test_an_id_that_no_record_could_carry_is_refused_before_anything_is_made(id: str) -> None:
    with pytest.raises(Refused, match="the shim cannot take this: id"):
        isulad.encoded(planned(Call(id, "/b", "runc")))
