"""The plan: what Python writes the core reads, and what the core would refuse Python refuses first."""

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shim import fields, plan
from shim._native import ffi, lib

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=40)
IDS = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,126}", fullmatch=True)
WORDS = st.lists(TEXT, max_size=plan.COMMAND_MAX_WORDS - 1).map(lambda words: ("/runc", *words))
JOINS = st.lists(TEXT.map(lambda path: f"/{path}"), max_size=plan.JOIN_MAX).map(tuple)
CGROUPS = st.lists(TEXT.map(lambda path: f"/{path}"), max_size=plan.CGROUPS_MAX).map(tuple)
MILLISECONDS = st.integers(0, plan.LIMIT_MAX_MS)
PLANS = st.builds(
    plan.Plan,
    id=IDS,
    run=st.integers(0, 2**63 - 1),
    create=WORDS,
    remove=WORDS | st.just(()),
    kill=WORDS | st.just(()),
    exec_id=st.just("") | IDS,
    pid_file=TEXT.filter(bool),
    runtime_log=TEXT,
    log=TEXT,
    oom=TEXT,
    keeper=TEXT,
    join=JOINS,
    cgroup=CGROUPS,
    create_ms=MILLISECONDS,
    remove_ms=MILLISECONDS,
    drain_ms=MILLISECONDS,
    rest_ms=MILLISECONDS,
    report_last=st.booleans(),
    tty=st.booleans(),
    rows=st.integers(0, plan.TTY_SIDE_MAX),
    cols=st.integers(0, plan.TTY_SIDE_MAX),
    json_log=TEXT,
    log_bytes=st.integers(0, 2**63 - 1),
    log_files=st.integers(1, plan.LOG_FILES_MAX),
    sink_out=TEXT,
    sink_err=TEXT,
    in_from=TEXT,
    logger=WORDS | st.just(()),
    logger_env=st.lists(TEXT.map(lambda text: f"NAME={text}"), max_size=plan.COMMAND_MAX_WORDS).map(tuple),
    log_mode=st.sampled_from(plan.LOG_MODES),
    buffer=st.integers(plan.BUFFER_MIN_BYTES, plan.BUFFER_MAX_BYTES),
    hold_ms=MILLISECONDS,
    isulad=st.booleans(),
    follow=st.booleans(),
    handled=st.booleans(),
    resize=TEXT,
    limit_ms=MILLISECONDS,
)
LIMITS = ("create_ms", "remove_ms", "drain_ms", "rest_ms")
COMMANDS = ("create", "kill", "remove", "logger", "logger_env")
TEXTS = (
    "id",
    "pid_file",
    "runtime_log",
    "log",
    "oom",
    "keeper",
    "json_log",
    "sink_out",
    "sink_err",
    "in_from",
    "log_mode",
    "resize",
)
NUMBERS = ("run", *LIMITS, "rows", "cols", "log_bytes", "log_files", "buffer", "hold_ms", "limit_ms")
SWITCHES = ("report_last", "tty", "isulad", "follow", "handled")
GOOD = plan.Plan(id="a", run=1, create=("/runc", "create"), remove=("/runc", "delete"))


def text(pointer: Any) -> str:
    return str(ffi.string(pointer).decode())


def words(array: Any) -> tuple[str, ...]:
    return tuple(text(array[i]) for i in range(next(i for i in range(lib.ARGV_MAX) if array[i] == ffi.NULL)))


def c_parse(data: bytes) -> plan.Plan | int:
    out, room = ffi.new("struct plan *"), ffi.from_buffer(data)
    if error := lib.plan_parse(out, room, len(data)):
        return int(error)
    found: dict[str, Any] = {
        **{name: text(getattr(out, name)) for name in TEXTS},
        **{name: int(getattr(out, name)) for name in NUMBERS},
        **{name: words(getattr(out, name)) for name in COMMANDS},
        **{name: bool(getattr(out, name)) for name in SWITCHES},
    }
    for name in ("join", "cgroup"):
        found[name] = tuple(text(getattr(out, name)[i]) for i in range(getattr(out, f"{name}_count")))
    return plan.Plan(**found, exec_id=text(out.exec))


@given(PLANS)
def test_the_core_reads_exactly_what_python_wrote(wanted: plan.Plan) -> None:
    assert c_parse(plan.encode(wanted)) == wanted


@pytest.mark.parametrize(
    "change",
    [
        {"id": ""},
        {"id": "x" * 128},
        {"id": 'a"b'},
        {"id": "a\\b"},
        {"id": "a\nb"},
        {"id": "ä"},
        {"exec_id": "x" * 128},
        {"exec_id": 'a"b'},
        {"run": -1},
        {"pid_file": ""},
        {"create": ()},
        {"create": ("/runc",) * (plan.COMMAND_MAX_WORDS + 1)},
        {"kill": ("/runc",) * (plan.COMMAND_MAX_WORDS + 1)},
        {"cgroup": ("not/absolute",)},
        {"cgroup": ("/c",) * (plan.CGROUPS_MAX + 1)},
        {"create_ms": -1},
        {"create_ms": 86_400_001},
        {"remove_ms": 86_400_001},
        {"drain_ms": 86_400_001},
        {"rest_ms": 86_400_001},
        {"join": ("/link",) * 5},
        {"join": ("/link", "relative")},
        {"join": ("",)},
        {"logger": ("/logger",) * (plan.COMMAND_MAX_WORDS + 1)},
        {"logger_env": ("A=b",) * (plan.COMMAND_MAX_WORDS + 1)},
        {"log_bytes": -1},
        {"log_files": 0},
        {"log_files": plan.LOG_FILES_MAX + 1},
        {"log_mode": "sometimes"},
        {"buffer": plan.BUFFER_MIN_BYTES - 1},
        {"buffer": plan.BUFFER_MAX_BYTES + 1},
        {"hold_ms": 86_400_001},
        {"limit_ms": 86_400_001},
        {"rows": 65_536},
        {"cols": -1},
    ],
)
def test_what_the_core_would_refuse_python_refuses_first(change: dict[str, Any]) -> None:
    bad = dataclasses.replace(GOOD, **change)
    with pytest.raises(plan.BadPlan):
        plan.encode(bad)
    pairs = [(name, getattr(bad, name)) for name in (*TEXTS, *NUMBERS)] + [("exec", bad.exec_id)]
    commands = [(name, word) for name in COMMANDS for word in getattr(bad, name)]
    joins = [(name, path) for name in ("join", "cgroup") for path in getattr(bad, name)]
    assert isinstance(c_parse(fields.encode("exitd-plan", pairs + commands + joins)), int)


def test_only_where_the_container_is_anothers_nothing_need_be_created() -> None:
    wanted = dataclasses.replace(GOOD, create=(), remove=(), follow=True)
    assert c_parse(plan.encode(wanted)) == wanted
    assert isinstance(c_parse(plan.encode(wanted).replace(b"follow=1", b"follow=0", 1)), int)


def test_a_program_that_is_no_absolute_path_is_refused() -> None:
    with pytest.raises(plan.BadPlan):
        plan.encode(dataclasses.replace(GOOD, create=("runc", "create")))


def test_a_kill_command_that_is_no_absolute_path_is_refused() -> None:
    with pytest.raises(plan.BadPlan):
        plan.encode(dataclasses.replace(GOOD, kill=("runc", "kill")))


@pytest.mark.parametrize("name", ["LOGGER", "=value", ""])
def test_a_loggers_environment_without_a_name_or_a_value_is_refused(name: str) -> None:
    with pytest.raises(plan.BadPlan):
        plan.encode(dataclasses.replace(GOOD, logger_env=(name,)))


def test_a_logger_that_is_no_absolute_path_is_refused() -> None:
    with pytest.raises(plan.BadPlan):
        plan.encode(dataclasses.replace(GOOD, logger=("logger",)))


def test_what_the_streams_are_to_do_is_told_only_where_it_is_not_the_default() -> None:
    streams: dict[str, Any] = {
        **{"tty": True, "rows": 24, "cols": 80, "json_log": "/json", "log_bytes": 4096, "log_files": 3, "hold_ms": 10},
        **{"sink_out": "/o", "sink_err": "/e", "in_from": "/i", "log_mode": "non-blocking", "buffer": 65_536},
        **{"logger": ("/bin/logger", "-t", "x"), "logger_env": ("A=1", "B=")},
    }
    whole = fields.decode(plan.encode(dataclasses.replace(GOOD, **streams)), "exitd-plan")
    for name, value in streams.items():
        words = value if isinstance(value, tuple) else (str(int(value) if isinstance(value, bool) else value),)
        assert tuple(each for key, each in whole.pairs if key == name) == words
    keys = {key for key, _ in fields.decode(plan.encode(GOOD)).pairs}
    assert keys.isdisjoint(streams)


def test_an_exec_removes_nothing() -> None:
    words = fields.decode(plan.encode(dataclasses.replace(GOOD, remove=()))).pairs
    assert "remove" not in {key for key, _ in words}


def test_a_plan_beyond_the_cores_room_is_refused() -> None:
    with pytest.raises(plan.BadPlan):
        plan.encode(dataclasses.replace(GOOD, log="x" * plan.PLAN_MAX_BYTES))


def test_a_newer_version_is_refused_as_such() -> None:
    newer = plan.encode(GOOD).replace(b"exitd-plan 1", b"exitd-plan 2", 1)
    assert c_parse(newer) == -71  # EPROTO


@pytest.mark.parametrize("newer", ["join", "kill", "logger", *plan.SWITCHES, *plan.LATER])
def test_a_plan_from_before_a_field_was_there_is_read_as_one_without_it(newer: str) -> None:
    older = plan.encode(GOOD)
    assert f"\0{newer}=".encode() not in older
    assert c_parse(older) == GOOD


def test_unknown_fields_are_for_newer_readers() -> None:
    assert c_parse(plan.encode(GOOD)[:-4] + b"tomorrow=1\0end\0") == GOOD


@given(st.binary(max_size=400))
def test_any_bytes_are_refused_without_a_crash(data: bytes) -> None:
    assert isinstance(c_parse(data), int)


@given(PLANS, st.data())
def test_damaged_plans_are_read_or_refused_but_never_crash_the_core(good: plan.Plan, data: st.DataObject) -> None:
    damaged = bytearray(plan.encode(good))
    for _ in range(3):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    result = c_parse_raw(bytes(damaged))
    assert result <= 0


def c_parse_raw(data: bytes) -> int:
    return int(lib.plan_parse(ffi.new("struct plan *"), ffi.from_buffer(data), len(data)))
