"""Whoever takes part in the making of an exec is killed, daemon, shim, keeper, runtime: before its program runs, while
it does, and after its end. The program notes that it begins, and how it ends; what exitd says is compared with that."""

import contextlib
import os
import pathlib
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.model.errors import ExitdError
from tests.system.daemons import Daemon, daemon
from tests.system.execs import exec_directories, shims_of
from tests.system.kill_matrix.table import Case, cases
from tests.system.lives import events, ledger, up
from tests.system.oracle import BY_KERNEL, SCRIPT
from tests.system.processes import killed, stopped
from tests.system.runtimes import Wrapper, program
from tests.system.waits import LIMIT_SECONDS, until

# What the wrapper does in the place of `runtime exec`, in steps at which it may be halted: before the program begins,
# when that has begun and there is no pid file, and when it has written the pid file, which the shim has not read yet.
EXEC = """
halt() {{ if [ -e {base}/at.$1 ]; then echo $$ >{base}/here.new; mv {base}/here.new {base}/here
	while :; do sleep 0.01; done; fi; }}
pid_file=
for word; do [ "$last" != --pid-file ] || pid_file=$word; last=$word; done
halt before
if [ -e {base}/at.written ]; then {runtime} "$@" || exit; halt written; exit 0; fi
set -- "$@" --
count=$#
while [ $count -gt 1 ]; do
	case $1 in --pid-file) shift 2; count=$((count - 2)) ;; *) set -- "$@" "$1"; shift; count=$((count - 1)) ;; esac
done
shift
{runtime} "$@" || exit
halt begun
exit 0
"""
# The shim dies, and the runtime goes on for a moment: it is killed only when the shim has closed all that it had open.
OUTLIVES = """
dies="kill -9 $PPID; while [ -e /proc/$PPID/fd/0 ]; do :; done"
exec setpriv --pdeathsig clear sh -c "$dies; exec runc \\"\\$@\\"" runc "$@"
"""
CODE = 43


@dataclass
class Box:
    """A running container whose execs can be halted in their making."""

    daemon: Daemon
    id: str
    here: pathlib.Path
    mount: pathlib.Path

    def truth(self) -> dict[int, int | None]:
        """As that of an oracle's subject: by start time, the code, None before the end."""
        found: dict[int, int | None] = {}
        with contextlib.suppress(FileNotFoundError):
            for line in (self.mount / "truth").read_text().splitlines():
                ticks, word = line.split()
                found[int(ticks)] = None if word == "begun" else int(word)
        return found

    @contextlib.contextmanager
    def halted(self, when: str) -> Iterator[None]:
        """Execs stop at `when`, for the block."""
        gate = self.daemon.base / f"at.{'begun' if when == 'ended' else when}"
        gate.touch()
        try:
            yield
        finally:
            gate.unlink()
            self.here.unlink(missing_ok=True)

    def runtime(self) -> int:
        return int(until(lambda: self.here.exists() and self.here.read_text(), "nobody came to make an exec"))


@contextlib.contextmanager
def boxed(runtime: str = "runc", **fields: object) -> Iterator[Box]:
    with daemon(extra=("--reconcile-seconds", "0.2")) as d:
        (mount := d.base / "mnt").mkdir()
        used = program(runtime, d.base)
        wrapper = Wrapper.make(d.base, runtime=used)
        wrapper.on("exec", EXEC.format(base=d.base, runtime=used))
        with d.client() as client:
            mounts = [pb.Mount(source=str(mount), destination="/mnt")]
            id = up(client, runtime=wrapper.name, mounts=mounts, **fields).id
        yield Box(d, id, d.base / "here", mount)
        with d.client() as client:
            client.remove(id, force=True)
            until(lambda: not exec_directories(d), "the directories of execs")


def make_and_kill(box: Box, case: Case) -> None:
    """One exec, whoever is named killed at that moment, and the daemon there again."""
    d, ends = box.daemon, case.moment == "ended"
    before = len(box.truth())
    go = box.mount / "go"
    go.unlink(missing_ok=True)
    wait = ":" if ends else "until [ -e /mnt/go ]; do sleep 0.01; done"
    command = ("sh", "-c", SCRIPT, "sh", wait, str(CODE))
    with box.halted(case.moment), d.client() as client, ThreadPoolExecutor(1) as caller:
        asked = caller.submit(client.exec, box.id, pb.ExecSpec(args=command))
        runtime = box.runtime()
        (directory,) = exec_directories(d)
        (shim,) = shims_of(d, directory.name)
        if case.moment != "before":
            until(lambda: len(box.truth()) > before, "the program does not begin")
        if ends:
            until(lambda: None not in box.truth().values(), "the program does not end")
        named = {"runtime": runtime, "shim": shim, "exitd": d.pid, "keeper": d.keeper_pid()}
        for victim in sorted(case.victims, key=list(named).index, reverse=True):
            if victim == "exitd":
                d.kill()
            elif victim != "keeper" or named[victim]:
                with contextlib.suppress(ProcessLookupError):
                    killed(named[victim])
        if case.victim in ("exitd", "keeper"):
            os.kill(runtime, signal.SIGKILL)  # or it would be halted for ever
        with contextlib.suppress(ExitdError):
            asked.result(LIMIT_SECONDS)
    if "exitd" in case.victims:
        d.start()
    go.touch()


def judge(box: Box, case: Case) -> None:
    """What the program wrote down is what exitd says: once, in ledger and event log alike."""
    about = str(case)
    with box.daemon.client() as client:
        until(lambda: not client.inspect(box.id).execs and not exec_directories(box.daemon), f"{about}: its end")
        truth, rows = box.truth(), [row for row in ledger(client, box.id) if row.exec_id]
        told = [(event.type, event.exec_id) for event in events(client, box.id) if event.exec_id]
    said = {row.init.started_ticks: row for row in rows if row.HasField("init")}
    for ticks, code in truth.items():
        row = said.get(ticks)
        if row is None:  # whoever knew its pid was killed with the shim, and exitd says that it does not know
            assert {"keeper", "shim"} <= {*case.victims}, f"{about} lost: {truth}, {rows}, {told}"
            (row,) = (one for one in rows if not one.HasField("init"))
            assert (row.kind, row.source) == ("unknown", "none") and row.cause, f"{about}: {rows}"
            continue
        if row.kind == "exited":
            assert row.code == code, f"{about} invented: {truth}, {rows}"
        else:
            assert row.cause and f"{row.kind} by {row.source}" in BY_KERNEL, f"{about}: {rows}"
    assert set(said) <= set(truth), f"{about} invented: {truth}, {rows}"
    assert sorted(told) == sorted(set(told)), f"{about} doubled: {told}"
    assert {id for type, id in told if type == "exit"} == {row.exec_id for row in rows}
    assert {id for type, id in told if type == "failed"}.isdisjoint(row.exec_id for row in rows), about
    if case.moment == "before":
        assert not truth, f"{about}: {truth}"
    if "keeper" not in case.victims or truth:
        assert len(rows) == len(truth), f"{about}: {truth}, {rows}"


def test_whoever_is_killed_while_an_exec_is_made_its_end_is_reported_as_it_was() -> None:
    for case in cases("exec"):
        with boxed() as box:
            make_and_kill(box, case)
            judge(box, case)


def test_a_program_that_began_while_its_shim_was_dying_is_no_failed_exec(tmp_path: pathlib.Path) -> None:
    """Its runtime has a place for the pid that is its own. Without one it would kill and reap the program, unseen."""
    (mount := tmp_path / "mnt").mkdir()
    with daemon() as d, d.client() as client:
        wrapper = Wrapper.make(d.base)
        wrapper.on("exec", OUTLIVES)
        mounts = [pb.Mount(source=str(mount), destination="/mnt")]
        id = up(client, runtime=wrapper.name, mounts=mounts).id
        made = client.exec(id, pb.ExecSpec(args=("sh", "-c", SCRIPT, "sh", "sleep 0.2", str(CODE))))
        until(lambda: not client.inspect(id).execs, "the end")
        (row,) = (row for row in ledger(client, id) if row.exec_id)
        assert (row.exec_id, row.kind, row.code) == (made.id, "exited", CODE), row
        assert len((mount / "truth").read_text().splitlines()) == 2


def test_a_shim_that_a_slow_keeper_starts_when_its_exec_was_given_up_runs_nothing() -> None:
    """exitd is killed while the keeper has its request, and the next one finds an exec without a shim."""
    with boxed() as box, box.daemon.client() as client, ThreadPoolExecutor(1) as caller:
        d = box.daemon
        with stopped(d.keeper_pid()):
            asked = caller.submit(client.exec, box.id, pb.ExecSpec(args=("sh", "-c", SCRIPT, "sh", ":", str(CODE))))
            until(lambda: exec_directories(d), "the run directory")
            for _ in range(5):  # turns of exitd's loop, in which it asks the keeper
                client.version()
            d.restart()
            assert asked.exception(LIMIT_SECONDS)
            with d.client() as later:
                until(lambda: any(event.type == "failed" for event in events(later, box.id)), "it is not given up")
        with d.client() as later:
            until(lambda: not exec_directories(d) and not later.inspect(box.id).execs, "it is still there")
            judge(box, Case("exitd", "before"))


def test_the_same_holds_under_crun() -> None:
    """Whose program leads no session of its own, up to crun 1.8 at least: a process in between does, and ends."""
    for case in cases("exec, crun"):
        with boxed("crun") as box:
            make_and_kill(box, case)
            judge(box, case)


def test_the_same_holds_in_the_hosts_pid_namespace() -> None:
    for case in cases("exec, host's pids"):
        with boxed(pid="host") as box:
            make_and_kill(box, case)
            judge(box, case)
