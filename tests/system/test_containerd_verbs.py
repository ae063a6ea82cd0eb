"""ctr's verbs against a real containerd: each has the same outcome with exitd as with the runtime containerd brings."""

import json
import pathlib

import pytest

from tests.system.containerd.server import IMAGE, RUNC, Box, Containerd, Said
from tests.system.containerd.verbs import OURS, TRUTH, Scenario, agree, outcome, reason, require
from tests.system.processes import cgroup_directories
from tests.system.waits import LIMIT_SECONDS, until

CHILD = "sleep 1000 & echo up; wait $!; echo code $?; exit 5"
MEGABYTE = 1 << 20
SCORE = "/proc/self/oom_score_adj"


def run_rm(box: Box) -> object:
    script = "echo out; echo err >&2; exit {}"
    said = [box.another().run("--rm", "--", "sh", "-c", script.format(code)) for code in (0, 3, 255)]
    require(box, said == [Said(code, "out\n", "err\n") for code in (0, 3, 255)], said)
    missing = box.run("--rm", "--", "sh", "-c", "no-such-program")
    assert missing.code == 127
    require(box, "no-such-program" in missing.err, missing)
    return *said, missing


def run_rm_and_a_signal(box: Box) -> object:
    running = box.begun("--rm", "--", "sleep", "1000")
    box.until("RUNNING")
    killed = box.task("kill", "-s", "SIGKILL")
    ends = running.communicate(timeout=LIMIT_SECONDS)
    assert running.returncode == 137
    return killed, running.returncode, ends


def run_rm_what_is_not_there(box: Box) -> object:
    said = box.run("--rm", "--", "no-such-program")
    assert "no-such-program" in said.err
    return said.out, reason(said), box.row()


def run_with_everything(box: Box) -> object:
    (place := box.containerd.base / box.id).mkdir()
    (place / "file").write_text("from the host\n")
    mount = f"type=bind,src={place},dst=/mnt,options=rbind:ro"
    script = "pwd; echo $A; cat /mnt/file; echo x >/mnt/file; echo x >/file; id -u"
    flags = ("--cwd", "/bin", "--env", "A=b", "--mount", mount, "--read-only", "--label", "x=y", "--net-host")
    said = box.run("--rm", *flags, "--", "sh", "-c", script)
    require(box, said.out.startswith("/bin\nb\nfrom the host\n"), said)
    return said


def the_oom_score(box: Box) -> object:
    """Of a container that asks for none, and of an exec in it: its shim's, which is containerd's and one more. exitd's
    own, and the keeper's, is another."""
    box.started("--", "sleep", "1000")
    inits, execs = pathlib.Path(f"/proc/{box.pid}/oom_score_adj").read_text(), box.exec("e", "--", "cat", SCORE)
    inherited = int(pathlib.Path(f"/proc/{box.containerd.pid}/oom_score_adj").read_text()) + 1
    assert inits == f"{min(inherited, 1000)}\n"
    require(box, execs == Said(0, inits, ""), execs)
    return inits, execs, box.end()


def run_detached(box: Box) -> object:
    file = box.containerd.base / f"{box.id}.pid"
    box.started("--pid-file", str(file), "--null-io", "--", "sleep", "1000")
    pid, state = box.row()
    assert file.read_text() == str(pid)
    again = box.run("-d", "--", "true")
    return state, box.program(), reason(again), box.end(), box.row()


def run_a_root(box: Box) -> object:
    """One that is no image: nothing is mounted."""
    box.started("--", "sleep", "1000")
    root = f"{box.containerd.base}/s/io.containerd.runtime.v2.task/{box.containerd.namespace}/{box.id}/rootfs"
    other = box.another()
    words = ("--runtime", box.runtime, "--fifo-dir", str(box.containerd.fifos), "--env", "PATH=/bin")
    said = box.containerd.ctr("run", "--rm", "--rootfs", *words, root, other.id, "sh", "-c", "echo here; exit 4")
    require(box, said == Said(4, "here\n", ""), said)
    return said, box.end()


def create_start_delete(box: Box) -> object:
    """What `run` does in one, step by step."""
    box.containerd.wanted("container", "create", "--runtime", box.runtime, IMAGE, box.id, "cat", "none")
    none = reason(box.task("kill"))
    started = box.task("start", "-d", "--null-io")
    box.until("STOPPED")
    pid, _ = box.row()
    assert pid > 1
    twice = reason(box.task("start", "-d", "--null-io"))
    removed = box.task("rm")
    again = box.task("start", "--fifo-dir", str(box.containerd.fifos))
    box.containerd.wanted("container", "rm", box.id)
    return none, started, twice, removed, again


def kill(box: Box) -> object:
    """Init alone: one that asks for no signal gets none, as pid 1. Then every process."""
    running = box.begun("--rm", "--", "sh", "-c", CHILD)
    assert running.stdout is not None and running.stdout.read(3) == b"up\n"
    said = [box.task("kill"), box.task("kill", "-s", "SIGUSR1"), box.task("kill", "-a", "-s", "15")]
    ends = running.communicate(timeout=LIMIT_SECONDS)
    assert running.returncode == 5
    require(box, ends[0] == b"code 143\n", ends)
    return said, ends


def kill_what_does_not_run(box: Box) -> object:
    box.started("--", "sh", "-c", "exit 7")
    box.until("STOPPED")
    said = [reason(box.task("kill", *flags)) for flags in ((), ("-s", "9"), ("-a", "-s", "9"))]
    unknown = box.containerd.ctr("task", "kill", "nobody")
    return said, reason(unknown), box.row()[1], box.end()


def kill_with_a_wrong_signal(box: Box) -> object:
    box.started("--", "sleep", "1000")
    said = reason(box.task("kill", "-s", "64000"))[0], reason(box.task("kill", "-s", "SIGNO"))
    return said, box.state, box.end()


def pause_and_resume(box: Box) -> object:
    box.started("--null-io", "--", "sh", "-c", CHILD)
    said: list[object] = [reason(box.task("resume")), box.task("pause"), box.state]
    said += [reason(box.exec("one", "--", "true")), reason(box.task("pause")), reason(box.task("rm"))]
    said += [box.task("resume"), box.state, box.exec("two", "--", "sh", "-c", "exit 3")]
    assert said[1::6] == [Said(0, "", ""), "RUNNING"]
    return said, box.end()


def kill_while_paused(box: Box) -> object:
    """The signal thaws it, without a resume."""
    box.started("--", "sleep", "1000")
    said = box.task("pause"), box.task("kill", "-s", "9")
    box.until("STOPPED")
    return said, box.end()


def remove(box: Box) -> object:
    """What runs is removed by force only; who asks for the code of what has ended gets it."""
    box.started("--", "sleep", "1000")
    refused = reason(box.task("rm"))
    assert box.state == "RUNNING"
    forced = box.task("rm", "-f")
    (other := box.another()).started("--", "sh", "-c", "exit 21")
    other.until("STOPPED")
    ended = other.task("rm")
    assert "exit code 21" in ended.err
    return refused, forced, ended, [reason(one.task("rm")) for one in (box, other)], [box.end().code, other.end().code]


def ps(box: Box) -> object:
    """Which processes there are, and whose. Afterwards init's alone, or none."""
    box.started("--null-io", "--", "sh", "-c", CHILD)
    assert box.exec("one", "-d", "--", "sleep", "1000") == Said(0, "", "")
    rows = [line.split() for line in box.task("ps").out.splitlines()[1:]]
    until(lambda: len(box.task("ps").out.splitlines()) == 4, "three processes")
    rows = [line.split() for line in box.task("ps").out.splitlines()[1:]]
    names = [row[1] for row in rows]
    init = [row[0] for row in rows].index(str(box.pid))
    said = box.task("kill", "--exec-id", "one", "-s", "9")
    until(lambda: len(box.task("ps").out.splitlines()) == 3, "two processes")
    gone = box.task("rm", "--exec-id", "one")
    return sorted(names), names[init], said, gone, box.end()


def metrics(box: Box) -> object:
    """All the same messages are there, and numbers that can be."""
    box.started("--memory-limit", "67108864", "--", "sleep", "1000")
    box.program()
    said = json.loads(box.containerd.wanted("task", "metrics", "--format", "json", box.id))
    memory, cpu = said["memory"], said["cpu"]
    if isinstance(memory["usage"], dict):  # of cgroup v1
        used, limit, cpu_time = memory["usage"]["usage"], memory["usage"]["limit"], cpu["usage"]["total"]
    else:
        used, limit, cpu_time = memory["usage"], memory["usage_limit"], cpu["usage_usec"]
    assert 0 < used < limit == 64 << 20 and cpu_time > 0 and said["pids"]["current"] == 1
    table = [line.split()[:1] for line in box.task("metrics").out.splitlines()]
    # Not alike, and meant so: every message is there in ours, those too that the host has nothing for. containerd's
    # collector asks for what is in them without asking whether they are there.
    always: dict[str, object] = {"rdma": {}, "cgroup_stats": {}} if isinstance(memory["usage"], dict) else {}
    shape = _shape(said)
    assert box.runtime == RUNC or always.keys() <= shape.keys()
    return always | shape, table, box.end()


def _shape(value: dict[str, object]) -> dict[str, object]:
    """Its messages; a number that is 0 is left out of them."""
    return {key: _shape(one) for key, one in value.items() if isinstance(one, dict)}


def limits(box: Box) -> object:
    flags = ("--memory-limit", "33554432", "--cpus", "0.5", "--cpu-shares", "77")
    box.started("--cgroup", f"{box.containerd.cgroup}/by/hand", *flags, "--", "sleep", "1000")
    places = sorted(line.partition("/")[2] for line in pathlib.Path(f"/proc/{box.pid}/cgroup").read_text().splitlines())
    texts = {
        name: path.read_text()
        for directory in cgroup_directories(f"{box.containerd.cgroup}/by/hand")
        for name in ("memory.limit_in_bytes", "memory.max", "cpu.cfs_quota_us", "cpu.max", "cpu.shares", "cpu.weight")
        if (path := directory / name).exists() and not path.is_relative_to("/sys/fs/cgroup/unified")
    }
    assert "33554432\n" in texts.values()
    said = box.end()
    for directory in cgroup_directories(f"{box.containerd.cgroup}/by"):
        directory.rmdir()
    return places, texts, said


def out_of_memory(box: Box) -> object:
    """`tail` keeps all that comes without a newline. Ours are told of it every time, once, and before the end."""
    with box.containerd.events() as events:
        said = box.run("--rm", "--memory-limit", "16777216", "--", "tail", "/dev/zero")
        events.wait(box.id, "/tasks/delete")
        topics = [event.topic.rpartition("/")[2] for event in events.settled().of(box.id)]
    assert said.code == 137
    assert box.runtime == RUNC or topics == ["create", "start", "oom", "exit", "delete"], topics
    return said


def two_in_a_group(box: Box) -> object:
    """One shim serves both, and goes with the last."""
    group, other = f"group-{box.id}", box.another()
    box.containerd.keys.add(group)
    for one in (box, other):
        one.started("--annotation", f"io.containerd.runc.v2.group={group}", "--", "sleep", "1000")
    assert len(box.containerd.shims()) == 1
    first, state = box.end(), other.state
    return first, state, other.exec("one", "--", "sh", "-c", "echo lives"), other.end()


def a_user_namespace(box: Box) -> object:
    """Its output is writable for its root, who is nobody outside, by name too."""
    script = "id -u; cat /proc/self/uid_map; echo out >/dev/stdout; echo err >/dev/stderr; exit 3"
    said = box.run("--rm", "--uidmap", "0:100000:1000", "--gidmap", "0:100000:1000", "--", "sh", "-c", script)
    require(box, (said.code, said.out.split(), said.err) == (3, ["0", "0", "100000", "1000", "out"], "err\n"), said)
    return said


VERBS: tuple[Scenario, ...] = (
    *(run_rm, run_rm_and_a_signal, run_rm_what_is_not_there, run_with_everything, the_oom_score, run_detached),
    *(run_a_root, create_start_delete, kill, kill_what_does_not_run, kill_with_a_wrong_signal, pause_and_resume),
    *(kill_while_paused, remove, ps, metrics, limits, out_of_memory, two_in_a_group, a_user_namespace),
)


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.__name__)
def test_a_verb_has_the_outcome_it_has_with_containerds_own_runtime(containerd: Containerd, verb: Scenario) -> None:
    truth, ours = (outcome(containerd, runtime, verb) for runtime in (TRUTH, OURS))
    assert agree(ours, truth), (ours, truth)


def test_all_that_a_running_container_has_is_seen_by_the_census(containerd: Containerd) -> None:
    box = containerd.box(OURS, "seen").started("--", "sleep", "1000")
    seen = vars(containerd.left())
    assert [name for name, found in seen.items() if not found] == (["rows"] if OURS == RUNC else [])
    box.end()
    containerd.left_is()
