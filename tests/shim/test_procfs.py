"""What the kernel writes into small text files, and what others would have us read there."""

import os
import pathlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shim._native import ffi, lib

NAMES = st.binary(max_size=15).filter(lambda name: b"\0" not in name) | st.sampled_from(
    [b") Z 1 ", b")", b"(", b") R 1 1 1", b"\n) Z", b" ", b""]
)


def stat_line(
    name: bytes, state: str, ppid: int, started: int, exit_status: int, more: dict[int, int] | None = None
) -> bytes:
    numbers = {4: ppid, 22: started, 52: exit_status} | (more or {})
    rest = " ".join(str(numbers.get(field, -field)) for field in range(4, 53))
    return b"4711 (" + name + b") " + state.encode() + b" " + rest.encode() + b"\n"


def parse_stat(data: bytes) -> tuple[bytes, int, int, int] | None:
    out = ffi.new("struct proc_stat *")
    if lib.proc_stat_parse(out, ffi.from_buffer(data), len(data)):
        return None
    return bytes(out.state), out.ppid, out.started, out.exit_status


def parse_more(data: bytes) -> tuple[bytes, int, int, int]:
    """The name, the session, whether it is on its way out, whether it has executed a program."""
    out = ffi.new("struct proc_stat *")
    assert not lib.proc_stat_parse(out, ffi.from_buffer(data), len(data))
    return bytes(ffi.string(out.name)), out.session, out.exiting, out.began


def oom(data: bytes) -> int:
    return int(lib.oom_parse(ffi.from_buffer(data), len(data)))


def pid(data: bytes) -> int:
    return int(lib.pid_parse(ffi.from_buffer(data), len(data)))


@given(NAMES, st.sampled_from("RSDZTtXI"), st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1), st.integers(0, 65535))
def test_no_command_name_can_forge_its_process_facts(
    name: bytes, state: str, ppid: int, started: int, exit_status: int
) -> None:
    line = stat_line(name, state, ppid, started, exit_status)
    assert parse_stat(line) == (state.encode(), ppid, started, exit_status)
    assert parse_more(line)[0] == name[:15]


@pytest.mark.parametrize(("wchan", "is_shown"), [(1, 1), (0, 0), (2, 0), (2**64 - 1, 0)])
def test_whether_a_wait_status_is_shown_to_this_reader_is_known(wchan: int, is_shown: int) -> None:
    """A kernel before 5.16 has an address there."""
    line = stat_line(b"sh", "Z", 1, 2, 0, {35: wchan})
    out = ffi.new("struct proc_stat *")
    assert not lib.proc_stat_parse(out, ffi.from_buffer(line), len(line))
    assert out.is_shown == is_shown


@pytest.mark.parametrize(
    ("flags", "exiting", "began"), [(0x400040, 0, 0), (0x400000, 0, 1), (0x40014C, 1, 0), (0x40010C, 1, 1)]
)
def test_session_and_flags_are_the_kernels(flags: int, exiting: int, began: int) -> None:
    line = stat_line(b"sh", "Z", 1, 1, 0, {6: 4711, 9: flags})
    assert parse_more(line) == (b"sh", 4711, exiting, began)


@given(NAMES, st.integers(0, 2**32 - 1))
def test_who_was_forked_and_has_executed_nothing_is_known_by_its_flags(name: bytes, flags: int) -> None:
    out = ffi.new("struct proc_stat *")
    for has_executed, value in ((1, flags & ~0x40), (0, flags | 0x40)):
        line = stat_line(name, "Z", 1, 99, 0, {9: value})
        assert lib.proc_stat_parse(out, ffi.from_buffer(line), len(line)) == 0
        assert out.began == has_executed


@given(NAMES, st.integers(0, 200))
def test_a_line_cut_before_its_last_field_is_refused(name: bytes, size: int) -> None:
    line = stat_line(name, "Z", 1, 99, 11008)
    assert parse_stat(line[: min(size, len(line) - len(b" 11008\n"))]) is None


@given(st.binary(max_size=400))
def test_any_bytes_are_parsed_or_refused(data: bytes) -> None:
    parse_stat(data)
    assert oom(data) >= -1
    assert pid(data) == -22 or pid(data) > 1


def test_numbers_beyond_64_bits_stay_numbers() -> None:
    line = stat_line(b"x", "S", 1, 10**25, 0)
    assert parse_stat(line) == (b"S", 1, 2**63 - 1, 0)


def test_the_real_file_of_this_process_is_read() -> None:
    text = pathlib.Path("/proc/self/stat").read_text()
    started = int(text.rpartition(")")[2].split()[19])
    out = ffi.new("struct proc_stat *")
    assert lib.proc_stat_read(out, os.getpid()) == 0
    assert (out.ppid, out.started) == (os.getppid(), started)


@pytest.mark.parametrize("text", [b"2", b"2\n", b"4711", b"999999999\n", b"0004711"])
def test_a_pid_is_digits_and_at_most_one_newline(text: bytes) -> None:
    assert pid(text) == int(text)


@pytest.mark.parametrize(
    "text",
    [
        b"-1", b"0", b"1", b"", b"\n", b"+5", b"12x", b" 12", b"12 ", b"12\n\n", b"12\r\n", b"1.5", b"12\0",
        b"2147483648", b"4294967298", b"99999999999999999999", b"000000000000", b"\xb2",
    ],
)  # fmt: skip
def test_what_is_no_pid_of_a_container_is_refused(text: bytes) -> None:
    assert pid(text) == -22


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (b"oom_kill_disable 0\nunder_oom 0\noom_kill 3\n", 3),
        (b"low 0\nhigh 0\nmax 12\noom 2\noom_kill 1\noom_group_kill 0\n", 1),
        (b"oom_kill 7", 7),
        (b"oom_kill 0\n", 0),
        (b"oom_kill \n", -1),
        (b"oom_kill -4\n", -1),
        (b"oom_kill x\n", -1),
        (b"xoom_kill 3\n", -1),
        (b"oom_group_kill 3\n", -1),
        (b"", -1),
    ],
)
def test_the_count_of_memory_kills_is_read_in_both_cgroup_versions(text: bytes, count: int) -> None:
    assert oom(text) == count
