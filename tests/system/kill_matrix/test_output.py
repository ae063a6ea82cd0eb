"""A shim is killed at every system call of a batch of output, and at random moments of a long transfer; a replacement
goes on. The log has every byte once, and each attached client's part is a part of it.

strace does the killing at a call (test_monitors.py): before it does anything, and so also after the one before.
"""

import os
import pathlib
import random
import re
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from shim import launch
from tests.system import streams
from tests.system.keepers import Keeper, Node, Run
from tests.system.kill_matrix.test_monitors import KILL, Call, calls, sampled
from tests.system.processes import empty_cgroup
from tests.system.streams import Control, attached, finish, json_texts, make, replace, rotated, terminal, texts
from tests.system.waits import SCALE, until, wait_readable

SEED = 20_264
LINE_BYTES = 200
LINES = int(1_000_000_000 * SCALE) // LINE_BYTES
TTY_LINES = max(50_000, int(1_000_000 * SCALE))
MOST_KILLS, LONG_SECONDS = 2000, 120.0
BEFORE_THE_MIDDLE = 3  # shims that are killed before a long transfer goes on beyond its middle
# Both streams, in more batches than one, with characters that are cut in between.
SCRIPT = "seq 1 4000; seq -f 'ä€%.0f' 1 3000 >&2; seq 4001 9000; printf end; exit 43"
WANTED = {
    "stdout": b"".join(b"%d\n" % i for i in range(1, 9001)) + b"end",
    "stderr": b"".join("ä€%d\n".encode() % i for i in range(1, 3001)),
}
LOGS: dict[str, dict[str, int]] = {"plain": {}, "rotated": {"log_bytes": 40_000, "log_files": 1000}}


def paths(node: Node) -> dict[str, str]:
    return {"log": f"{node.directory}/box.log", "json_log": f"{node.directory}/box-json.log"}


def begun(node: Node, keeper: Keeper, kind: str, shim: str = "") -> Run:
    for old in node.directory.glob("box*"):
        old.unlink()
    streams: dict[str, Any] = {**paths(node), **LOGS[kind]}
    return make(keeper, "box", node.bundle("/bin/sh", "-c", SCRIPT), shim=shim, drain_ms=300, **streams)


def judge(case: str, node: Node) -> None:
    log = rotated(node.directory / "box.log")
    for stream, wanted in WANTED.items():
        assert texts(log, stream) == wanted, (case, stream)
    log = rotated(node.directory / "box-json.log")
    assert json_texts(log).encode() == WANTED["stdout"], case
    # Of a character that a batch's end had cut the begin may be gone with the shim: one sign, never a line.
    lines = zip(json_texts(log, "stderr").splitlines(), WANTED["stderr"].decode().splitlines(), strict=True)
    assert sum(line != wanted for line, wanted in lines) <= 1, case


def ended_by_replacements(keeper: Keeper, run: Run) -> None:
    """The shim has been killed, or has done its work; whatever is left to do another one does."""
    assert wait_readable(run.shim_pidfd)
    replace(keeper, run)
    assert run.ended()
    assert wait_readable(run.shim_pidfd)


def learn(node: Node, keeper: Keeper, kind: str) -> list[Call]:
    """The calls of a shim from the moment on at which it has said `created`."""
    trace = node.directory / "trace"
    run = begun(node, keeper, kind, node.traced_shim("-o", str(trace)))
    run.start()
    assert wait_readable(run.shim_pidfd)
    judge("trace", node)
    finish(node, keeper, run)
    found = calls(trace)
    said = next(i for i, (_, line) in enumerate(found) if line.startswith("sendmsg(3"))
    return [call for call, _ in found[said + 1 :]]


@pytest.mark.parametrize("kind", LOGS)
def test_a_shim_killed_at_any_call_of_a_batch_neither_loses_nor_doubles_a_byte(
    node: Node, keeper: Keeper, kind: str
) -> None:
    everything = learn(node, keeper, kind)
    chosen = sampled(everything, SCALE, 15)
    print(f"{len(chosen)} of {len(everything)} calls")
    for call in chosen:
        run = begun(node, keeper, kind, node.traced_shim(*call.inject(KILL)))
        if isinstance(run.status, launch.Created):
            run.start()
            ended_by_replacements(keeper, run)
            judge(f"{kind} {call}", node)
        finish_any(node, keeper, run)


def finish_any(node: Node, keeper: Keeper, run: Run) -> None:
    """The exit is the keeper's to report, unless the shim lived long enough."""
    run.clean()
    keeper.acknowledge(run.id)
    empty_cgroup(node.cgroup)


def killed_again_and_again(keeper: Keeper, run: Run, most_seconds: float, gate: pathlib.Path | None = None) -> int:
    """Until the container has ended; how often. The container goes on beyond its middle when `gate` is there: however
    quick the shims are, some of them are killed before it is through."""
    chosen, kills = random.Random(SEED), 0
    while kills < MOST_KILLS and not run.ended(chosen.uniform(0, most_seconds)):
        run.kill_shim()
        replace(keeper, run)
        kills += 1
        if gate is not None and kills == BEFORE_THE_MIDDLE:
            gate.touch()
    assert run.ended(LONG_SECONDS)
    assert wait_readable(run.shim_pidfd)
    return kills


def numbers(path: pathlib.Path) -> Iterator[bytes]:
    """The container's lines, put together from a log's."""
    line = b""
    with path.open("rb") as log:
        for each in log:
            _, stream, tag, text = each.split(b" ", 3)
            assert stream == b"stdout" and text.endswith(b"\n")
            line += text[:-1]
            if tag == b"F":
                yield line
                line = b""
    assert not line


def every_line_once(path: pathlib.Path) -> None:
    count = 0
    for count, line in enumerate(numbers(path), 1):
        assert len(line) == LINE_BYTES - 1 and int(line) == count
    assert count == LINES


def test_a_long_transfer_survives_the_deaths_of_many_shims_to_the_byte(node: Node, keeper: Keeper) -> None:
    form, middle = f"seq -f %0{LINE_BYTES - 1}.0f", LINES // 2
    gate = "until [ -e /gate ]; do sleep 0.01; done"
    path = node.directory / "box.log"
    bundle = node.bundle("/bin/sh", "-c", f"{form} 1 {middle}; {gate}; {form} {middle + 1} {LINES}; exit 43")
    run = make(keeper, "box", bundle, log=str(path))
    run.start()
    kills = killed_again_and_again(keeper, run, 0.02, bundle / "rootfs/gate")
    every_line_once(path)
    print(f"{kills} shims killed, {LINES} lines")
    assert kills >= BEFORE_THE_MIDDLE
    finish_any(node, keeper, run)


def test_a_terminal_survives_the_deaths_of_many_shims_to_the_byte(node: Node, keeper: Keeper) -> None:
    path = node.directory / "box.log"
    bundle = terminal(node.bundle("/bin/sh", "-c", f"seq 1 {TTY_LINES}; exit 43"))
    run = make(keeper, "box", bundle, tty=True, log=str(path))
    run.start()
    kills = killed_again_and_again(keeper, run, 0.02)
    count = 0
    for count, line in enumerate(numbers(path), 1):
        assert line == b"%d\r" % count
    print(f"{kills} shims killed, {count} lines")
    assert count == TTY_LINES
    finish_any(node, keeper, run)


def test_the_pieces_of_a_terminals_output_are_moved_many_at_once(node: Node, keeper: Keeper) -> None:
    """The kernel gives out 4,095 bytes at most, so a shim that moved one piece at a time would never have more."""
    path, trace = node.directory / "box.log", node.directory / "trace"
    bundle = terminal(node.bundle("/bin/sh", "-c", f"seq 1 {TTY_LINES}; exit 43"))
    run = make(keeper, "box", bundle, tty=True, log=str(path), shim=node.traced_shim("-o", str(trace)))
    run.start()
    assert run.ended(LONG_SECONDS)
    assert wait_readable(run.shim_pidfd)
    lines = list(numbers(path))
    moved = [int(line.rpartition("= ")[2]) for _, line in calls(trace) if re.match(r"tee\(.*= \d+$", line)]
    assert len(lines) == TTY_LINES and max(moved) > 2 * 4095, moved
    finish(node, keeper, run)


def attach_input(run: Run, read_fd: int) -> Control:
    control = Control(run)
    control.ok("attach", [read_fd], streams="in", mode="lossless")
    return control


def write_lines(fd: int, count: int, gate: threading.Event) -> None:
    with open(fd, "wb") as pipe:
        for number in range(1, count + 1):
            if number == count // 2:
                assert gate.wait(LONG_SECONDS)
            pipe.write(b"%0*d\n" % (LINE_BYTES - 1, number))


def test_a_long_input_whose_pipe_the_client_keeps_survives_the_deaths_of_many_shims(node: Node, keeper: Keeper) -> None:
    path, kills, chosen = node.directory / "box.log", 0, random.Random(SEED)
    run = make(keeper, "box", node.bundle("/bin/sh", "-c", "cat; exit 43"), stdin=True, log=str(path))
    run.start()
    read_fd, write_fd = os.pipe()
    gate = threading.Event()
    writer = threading.Thread(target=write_lines, args=(write_fd, LINES, gate), daemon=True)
    control = attach_input(run, read_fd)
    writer.start()
    while writer.is_alive() and kills < MOST_KILLS:
        writer.join(chosen.uniform(0, 0.03))
        control.close()
        run.kill_shim()
        replace(keeper, run)
        control, kills = attach_input(run, read_fd), kills + 1
        if kills == BEFORE_THE_MIDDLE:
            gate.set()
    writer.join(LONG_SECONDS)
    control.ok("close-stdin")
    assert run.ended(LONG_SECONDS)
    assert wait_readable(run.shim_pidfd)
    control.close()
    os.close(read_fd)
    every_line_once(path)
    print(f"{kills} shims killed, {LINES} lines")
    assert kills >= BEFORE_THE_MIDDLE
    finish_any(node, keeper, run)


LOGGER = "exec 5>&-; cat <&3 >>{0}/logged & cat <&4 >>{0}/logged; wait"


def test_a_replacement_starts_the_logger_anew_and_the_old_one_writes_what_it_has(node: Node, keeper: Keeper) -> None:
    path = node.directory / "logged"
    script = "echo one; read go; echo two; exit 43"
    logger = (node.script(LOGGER.format(node.directory)),)
    run = make(keeper, "box", node.bundle("/bin/sh", "-c", script), stdin=True, logger=logger)
    run.start()
    until(lambda: path.exists() and path.read_bytes() == b"one\n", "the first line")
    run.kill_shim()
    replace(keeper, run)
    with attached(run, "in") as client:
        client.write(b"\n")
        assert run.ended()
    assert wait_readable(run.shim_pidfd)
    assert path.read_bytes() == b"one\ntwo\n"
    finish_any(node, keeper, run)


def test_input_that_waits_when_a_shim_dies_is_read_by_the_container(node: Node, keeper: Keeper) -> None:
    run = make(keeper, "box", node.bundle("/bin/sh", "-c", "read go; echo $go; wc -c; exit 43"), stdin=True)
    with attached(run, "in") as client:
        client.write(b"go\n" + b"x" * 1000)
        until(lambda: client.control.count("in") == 1003, "the input moves")
    run.kill_shim()
    run.start()
    replace(keeper, run)
    assert not run.ended(0.05)  # no end of file by the death of the shim
    with streams.control(run) as other:
        other.ok("close-stdin")
    assert run.ended()
    assert wait_readable(run.shim_pidfd)
    assert texts((run.directory / "log").read_bytes()) == b"go\n1000\n"
    finish_any(node, keeper, run)
