"""What goes in and out of containers and execs under a real containerd: with exitd as with containerd's own runtime."""

import contextlib
import pathlib

import pytest

from tests.system.containerd.history import STOPPED, Who
from tests.system.containerd.server import RUNC, Box, Containerd, Said
from tests.system.containerd.tasks import Tasks
from tests.system.containerd.verbs import OURS, TRUTH, Scenario, Screen, agree, outcome, reason, require
from tests.system.waits import until

BYTES = bytes(range(256)) * 1500
TALK = 'echo up; read x; echo "got $x"; exit 6'
SIZES = (
    'for size in "40 100" "50 120"; do until [ "$(stty size)" = "$size" ]; do sleep 0.01; done; echo "is $size"; done'
)
# A logger of `binary://`: how it was called, then both streams, each to a file.
LOGGER = """#!/bin/sh
trap "" TERM
echo "$CONTAINER_NAMESPACE $CONTAINER_ID $*" >"$2/called"
exec 5>&-
cat <&4 >"$2/err" &
cat <&3 >"$2/out"
wait
echo done >"$2/done"
"""


def numbers(last: int) -> str:
    """What seq says."""
    return "".join(f"{number}\n" for number in range(1, last + 1))


def output_to_the_byte(box: Box) -> object:
    """More than a pipe holds, on both streams, and no newline at the end."""
    said = box.run("--rm", "--", "sh", "-c", "seq 200000; seq 50000 >&2; echo -n end")
    require(box, said == Said(0, numbers(200000) + "end", numbers(50000)), (len(said.out), len(said.err)))
    return said.code


def input_to_its_end(box: Box) -> object:
    text = BYTES.hex().encode()
    said = box.run("--rm", "--", "cat", stdin=text)
    require(box, said == Said(0, text.decode(), ""), len(said.out))
    short = box.another().run("--rm", "--", "sh", "-c", "read x; read y; echo $x-$y", stdin=b"one\ntwo\nthree\n")
    return short


def no_streams(box: Box) -> object:
    return box.run("--rm", "--null-io", "--", "sh", "-c", "read x; echo out; echo err >&2; exit 8", stdin=b"word\n")


def a_terminal(box: Box) -> object:
    screen = Screen(box.containerd, *box.words("--rm", "-t", "--", "sh", "-c", f"{SIZES}; {TALK}"), size=(40, 100))
    screen.until("is 40 100").resize(50, 120, "is 50 120").until("up").pty.type(b"word\r")
    ended = screen.ended()
    assert ended.code == 6
    require(box, "got word" in ended.text, ended)
    return ended


def a_terminals_keys(box: Box) -> object:
    """They are the container's, not ctr's."""
    script = 'trap "echo told; exit 12" INT; echo up; while :; do sleep 0.05; done'
    screen = Screen(box.containerd, *box.words("--rm", "-t", "--", "sh", "-c", script))
    screen.until("up").pty.type(b"\x03")
    code, text, restored = screen.ended()
    assert code == 12
    # containerd's own shim loses a terminal's last words now and then: ours may not.
    assert box.runtime == RUNC or "told" in text, text
    return code, text.replace("told\r\r\n", ""), restored


def attach(box: Box) -> object:
    """The input of who comes later, and the code. What was put out before is for whom read it: nobody did."""
    box.started("--", "sh", "-c", 'read x; echo "got $x"; exit 6')
    said = box.task("attach", stdin=b"word\n")
    assert said.code == 6
    return said, box.containerd.wanted("container", "rm", box.id)


def attach_to_a_terminal(box: Box) -> object:
    first = Screen(box.containerd, *box.words("-d", "-t", "--", "sh", "-c", TALK))
    detached = first.ended()[0]
    second = Screen(box.containerd, "task", "attach", box.id)
    second.pty.type(b"word\r")
    ended = second.ended()
    assert ended.code == 6
    require(box, ended.text.count("got word") == 1, ended)
    return detached, ended.code, ended.restored, box.containerd.wanted("container", "rm", box.id)


def exec_(box: Box) -> object:
    box.started("--null-io", "--env", "A=b", "--", "sleep", "1000")
    said = [box.exec("one", "--", "sh", "-c", "echo out; echo err >&2; exit 5")]
    require(box, said == [Said(5, "out\n", "err\n")], said)
    said += [box.exec("two", "--cwd", "/bin", "--", "sh", "-c", "pwd; echo $A; id -u")]
    said += [box.exec("two", "--user", "1000", "--", "id", "-u"), box.exec("two", "--", "cat", stdin=b"in\n")]
    text = box.exec("two", "--", "sh", "-c", "seq 100000").out
    missing = box.exec("two", "--", "no-such-program")
    require(box, text == numbers(100000), len(text))
    return said, missing.out, reason(missing), box.exec("two", "--", "sh", "-c", "kill -9 $$"), box.end()


def exec_where_nothing_runs(box: Box) -> object:
    box.started("--null-io", "--", "true")
    box.until("STOPPED")
    said = [reason(box.exec("one", "--", "true"))]
    box.task("rm")
    return said, reason(box.exec("one", "--", "true")), box.end().code


def exec_twice_by_one_name(box: Box) -> object:
    box.started("--null-io", "--", "sleep", "1000")
    said = [box.exec("one", "-d", "--", "sleep", "1000"), box.task("kill", "--exec-id", "none")]
    again = reason(box.exec("one", "--", "true"))
    said += [box.task("kill", "--exec-id", "one", "-s", "9")]
    # Its process may be gone a moment before its end is known, and a kill in between is no mistake.
    with contextlib.closing(Tasks(box.containerd)) as clients:
        one = Who(box.id, "one")
        until(lambda: clients.begin("state", one).call().status == STOPPED, "the exec does not end")
    said += [box.task("kill", "--exec-id", "one", "-s", "9"), box.task("rm", "--exec-id", "one")]
    return [reason(one) for one in said], again, box.exec("one", "--", "true"), box.end()


def exec_on_a_terminal(box: Box) -> object:
    box.started("--null-io", "--", "sleep", "1000")
    words = box.exec_words("one", "-t", "--", "sh", "-c", f"{SIZES}; {TALK}")
    screen = Screen(box.containerd, *words, size=(40, 100))
    screen.until("is 40 100").resize(50, 120, "is 50 120").until("up").pty.type(b"word\r")
    ended = screen.ended()
    assert ended.code == 6
    require(box, "got word" in ended.text, ended)
    return ended, box.end()


def an_execs_child_keeps_its_output(box: Box) -> object:
    """The exec's end is reported though a child of it holds the pipe, and what the child says still comes."""
    box.started("--null-io", "--", "sleep", "1000")
    said = box.exec("one", "--", "sh", "-c", "echo out; { sleep 0.5; echo late; } & exit 4")
    require(box, (said.code, said.out) == (4, "out\nlate\n"), said)
    return said, box.end()


def whole(box: Box, file: pathlib.Path, said: str) -> bool:
    """Ours has all of it. containerd's own runtime now and then loses the last lines."""
    return box.runtime == RUNC or sorted(file.read_text()) == sorted(said)


def log_to_a_file(box: Box) -> object:
    """The lines of both streams; what is there already stays."""
    said, file = "out\nerr\nend", box.containerd.base / box.id / "deep" / "log"
    box.started("--log-uri", f"file://{file}", "--", "sh", "-c", "echo out; echo err >&2; echo -n end >&2")
    box.until("STOPPED")
    first = box.task("rm"), whole(box, file, said)
    assert box.task("start", "-d", "--log-uri", f"file://{file}") == Said(0, "", "")
    box.until("STOPPED")
    ended = box.end()
    return first, whole(box, file, 2 * said), file.stat().st_mode, ended


def log_of_an_exec(box: Box) -> object:
    (place := box.containerd.base / box.id).mkdir()
    box.started("--null-io", "--", "sleep", "1000")
    said = box.exec("one", "--log-uri", f"file://{place}/log", "--", "sh", "-c", "echo out; exit 3")
    return said, whole(box, place / "log", "out\n"), box.end()


def log_to_a_program(box: Box) -> object:
    (place := box.containerd.base / box.id).mkdir()
    (program := place / "logger").write_text(LOGGER)
    program.chmod(0o755)
    box.started("--log-uri", f"binary://{program}?into={place}", "--", "sh", "-c", "seq 50000; echo err >&2; exit 2")
    box.until("STOPPED")
    ended = box.end()
    until((place / "done").exists, "the logger does not end")
    complete = whole(box, place / "out", numbers(50000)), whole(box, place / "err", "err\n")
    return (place / "called").read_text(), complete, ended


def log_to_nowhere(box: Box) -> object:
    """A logger that is not there: no container, and no events."""
    said = box.run("-d", "--log-uri", f"binary://{box.containerd.base}/none?a=b", "--", "sleep", "1000")
    assert said.code == 1
    return said.code, box.row(), box.containerd.ctr("container", "rm", box.id).code


STREAMS: tuple[Scenario, ...] = (
    *(output_to_the_byte, input_to_its_end, no_streams, a_terminal, a_terminals_keys, attach, attach_to_a_terminal),
    *(exec_, exec_where_nothing_runs, exec_twice_by_one_name, exec_on_a_terminal, an_execs_child_keeps_its_output),
    *(log_to_a_file, log_of_an_exec, log_to_a_program, log_to_nowhere),
)


@pytest.mark.parametrize("streams", STREAMS, ids=lambda streams: streams.__name__)
def test_streams_go_as_they_go_with_containerds_own_runtime(containerd: Containerd, streams: Scenario) -> None:
    truth, ours = (outcome(containerd, runtime, streams) for runtime in (TRUTH, OURS))
    assert agree(ours, truth), (ours, truth)
