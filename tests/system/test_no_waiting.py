"""No file that another can make is opened in a way that waits: traps of containers, bundles, watched directories."""

import contextlib
import json
import os
import pathlib
import socket
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api.client import Client
from supervisor.model.errors import BadRequest, TimedOut
from tests.fakeshim.making import RUNTIME, FakeShim, make
from tests.system import daemons, faultyfs, lives
from tests.system.daemons import Daemon, spec
from tests.system.lives import word
from tests.system.processes import processes_of
from tests.system.runtimes import Wrapper
from tests.system.waits import LIMIT_SECONDS, until

pytestmark = pytest.mark.grpc  # containerd is asked over it, and its descriptors stay
LIMITS = {"supervisor.runtime.foreign_shim.peer.OPEN_SECONDS": 2.0}


def test_a_containers_link_to_the_kernels_log_as_its_passwd_holds_nobody(client: Client) -> None:
    box = lives.up(
        client, "sh", "-c", "ln -sf /proc/kmsg /etc/passwd; echo up; exec sleep 1000", stop_timeout_seconds=1
    )
    follow = client.logs(pb.LogsRequest(id=box.id, follow=True))
    assert next(iter(follow)).data == b"up\n"
    follow.cancel()
    for _ in range(2):
        with pytest.raises(BadRequest, match="no user 'nobody'"):
            client.exec(box.id, pb.ExecSpec(args=["true"], user="nobody"))
    assert word(lives.run(client, "true", user="nobody")[1]) == "exited 0"  # another container's


def test_a_bundle_whose_configuration_is_a_fifo_is_refused(client: Client, tmp_path: pathlib.Path) -> None:
    os.mkfifo(tmp_path / "config.json")
    with pytest.raises(BadRequest, match=r"config\.json: not a regular file"):
        client.create(spec("true", rootfs="", bundle=str(tmp_path)))


def test_a_fifo_in_a_watched_directory_holds_nobody_also_after_a_restart(tmp_path: pathlib.Path) -> None:
    watched = tmp_path / "watched"
    (watched / "x").mkdir(parents=True)
    os.mkfifo(watched / "x/state.json")
    daemon = Daemon(tmp_path)
    try:
        daemon.start()
        with daemon.client() as client:
            client.watch(pb.WatchRequest(runc_root=str(watched)))
        daemon.restart()
        with daemon.client() as client:
            pid = os.getpid()
            started = int(pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
            state = {"init_process_pid": pid, "init_process_start": started}
            (watched / "y").mkdir()
            (watched / "y/state.json.new").write_text(json.dumps(state))
            (watched / "y/state.json.new").rename(watched / "y/state.json")
            until(lambda: client.watches()[0].processes == 1, "what is beside the fifo is not seen")
    finally:
        daemon.end()


@contextlib.contextmanager
def never_for_the_loop(daemon: Daemon, base: pathlib.Path) -> Iterator[pathlib.Path]:
    """A file system that answers everybody but the thread in which the daemon does all that must not wait."""
    with faultyfs.mounted(base) as disk:
        (made := disk.path / "d").mkdir(mode=0o755)
        with disk.failing(f"* * stall {daemon.pid}"):
            yield made


def state_of(pid: int) -> str:
    started = int(pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    return json.dumps({"init_process_pid": pid, "init_process_start": started})


def test_a_watched_directory_whose_file_system_hangs_for_the_loop_is_watched(
    daemon: Daemon, client: Client, tmp_path: pathlib.Path
) -> None:
    with never_for_the_loop(daemon, tmp_path) as root, subprocess.Popen(["sleep", "1000"]) as one:
        try:
            (root / "before").mkdir()
            (root / "before/state.json").write_text(state_of(one.pid))
            client.watch(pb.WatchRequest(runc_root=str(root)))
            (watch,) = client.watches()
            assert (watch.processes, watch.trouble) == (1, "")
            (root / "later").mkdir()  # its file comes when its directory is watched, or not yet
            (root / "new").write_text(state_of(os.getpid()))
            (root / "new").rename(root / "later/state.json")
            until(lambda: client.watches()[0].processes == 2, "what came later is not seen")
        finally:
            client.end_watch(str(root))
            one.kill()


def test_a_log_whose_file_system_hangs_for_the_loop_is_made_read_and_followed(
    daemon: Daemon, client: Client, tmp_path: pathlib.Path
) -> None:
    with never_for_the_loop(daemon, tmp_path) as directory:
        log = pb.LogSpec(path=f"{directory}/log", max_bytes=4096, max_files=20)
        box = client.create(spec("sh", "-c", "for x in $(seq 1000); do echo line $x; done; exit 3", log=log)).id
        follow = client.logs(pb.LogsRequest(id=box, follow=True))
        client.start(box)
        lines = b"".join(b"line %d\n" % number for number in range(1, 1001))
        assert b"".join(each.data for each in follow) == lines
        assert b"".join(each.data for each in client.logs(pb.LogsRequest(id=box))) == lines
        assert b"".join(each.data for each in client.logs(pb.LogsRequest(id=box, tail_lines=1))) == b"line 1000\n"
        assert word(lives.last_exit(client, box)) == "exited 3"
        client.remove(box, force=False)


def test_a_socket_of_containerds_whose_file_system_hangs_for_the_loop_holds_nobody(
    daemon: Daemon, client: Client, tmp_path: pathlib.Path
) -> None:
    with never_for_the_loop(daemon, tmp_path) as directory, socket.socket(socket.AF_UNIX) as listening:
        listening.bind(where := f"{directory}/sock")
        listening.listen()
        client.watch(pb.WatchRequest(containerd=where))
        until(lambda: client.watches()[0].trouble, "nothing is said of what does not answer")
        client.end_watch(where)


def test_a_runtime_whose_file_system_hangs_for_the_loop_does_all_that_it_is_asked(
    daemon: Daemon, client: Client, tmp_path: pathlib.Path
) -> None:
    with never_for_the_loop(daemon, tmp_path) as directory:
        runtime = Wrapper.make(directory).name
        box = lives.up(client, runtime=runtime, security=pb.SecuritySpec(seccomp="builtin"))
        client.pause(box.id)
        client.resume(box.id)
        made = client.exec(box.id, pb.ExecSpec(args=["sh", "-c", "exit 5"]))
        assert word(lives.ended(client.begin_wait(box.id, exec_id=made.id).result(LIMIT_SECONDS))) == "exited 5"
        client.stop(box.id, 0)
        client.start(box.id)
        client.remove(box.id, force=True)


def test_a_runtime_whose_file_system_begins_to_hang_holds_up_its_own_calls_alone_and_they_are_refused_by_name(
    tmp_path: pathlib.Path,
) -> None:
    with (
        daemons.daemon(extra=("--runtime-seconds", "3")) as daemon,
        faultyfs.mounted(tmp_path) as disk,
        daemon.client() as client,
        ThreadPoolExecutor(3) as others,
    ):
        runtime = Wrapper.make(disk.path).name
        made = client.create(spec("sleep", "1000", runtime=runtime)).id
        running, ended = lives.up(client, runtime=runtime).id, lives.up(client, runtime=runtime).id

        def called(call: Callable[[Client], object]) -> object:
            with daemon.client() as own:
                return call(own)

        with disk.failing("* * stall"):
            start = others.submit(called, lambda own: own.start(made))
            pause = others.submit(called, lambda own: own.pause(running))
            remove = others.submit(called, lambda own: own.remove(ended, force=True))
            while not (start.done() and pause.done()):
                assert word(lives.run(client, "true", auto_remove=True)[1]) == "exited 0"
            for refused in (start, pause):
                with pytest.raises(TimedOut, match=f"{runtime} took more than 3 s"):
                    refused.result()
            # The shim's own delete waits in the kernel, where nothing kills it, and may go on as soon as it can.
            until(lambda: "did not leave, killing it" in daemon.log.read_text(), "its shim is not ended")
            assert word(lives.run(client, "true", auto_remove=True)[1]) == "exited 0"
            assert not remove.done()
        remove.result()
        client.pause(running)
        client.resume(running)


@contextlib.contextmanager
def with_fake(base: pathlib.Path) -> Iterator[tuple[Daemon, FakeShim]]:
    """A daemon with a fake shim on its PATH."""
    (base / "e").mkdir()
    (base / "f").mkdir()
    fake = make(base / "f")
    daemon = Daemon(base / "e", environment={"PATH": f"{base}/f:{os.environ['PATH']}"}, limits=LIMITS)
    try:
        yield daemon.start(), fake
    finally:
        with contextlib.ExitStack() as steps:  # the last one first
            steps.callback(until, lambda: not processes_of(base), "processes of the daemon or of its shims are left")
            steps.callback(daemon.end)


def test_a_shim_that_takes_no_connections_holds_up_its_own_container_alone() -> None:
    with daemons.directory() as base, with_fake(base) as (daemon, fake), daemon.client() as client:
        fake.does(start="deaf")
        with ThreadPoolExecutor(1) as others, daemon.client() as own:
            create = others.submit(own.create, spec("true", runtime=RUNTIME))
            answered = 0
            while not create.done():
                assert word(lives.run(client, "true", auto_remove=True)[1]) == "exited 0"
                answered += 1
            with pytest.raises(TimedOut, match="no shim answers"):
                create.result()
        assert answered
        until(lambda: not client.list(all_of_them=True), "it is not removed")


def test_a_shim_whose_sockets_file_system_hangs_for_the_loop_serves_its_container(tmp_path: pathlib.Path) -> None:
    with (
        daemons.directory() as base,
        with_fake(base) as (daemon, fake),
        daemon.client() as client,
        never_for_the_loop(daemon, tmp_path) as directory,
    ):
        fake.does(sockets=str(directory))
        id, exit_ = lives.run(client, "sh", "-c", "exit 7", runtime=RUNTIME)
        assert word(exit_) == "exited 7"
        client.remove(id, force=False)
        assert list(directory.iterdir()) == []


def test_a_shim_whose_sockets_file_system_hangs_holds_up_its_own_container_alone(tmp_path: pathlib.Path) -> None:
    """An exitd that starts again looks for the shims of all that runs."""
    with daemons.directory() as base, with_fake(base) as (daemon, fake), faultyfs.mounted(tmp_path) as disk:
        fake.does(sockets=str(disk.path))
        with daemon.client() as client:
            box = lives.up_trapping(client, "trap 'exit 7' TERM; sleep 1000 & wait", runtime=RUNTIME).id
        daemon.kill()
        with disk.failing("* * stall"):
            daemon.start()
            with daemon.client() as client:
                for _ in range(3):
                    assert word(lives.run(client, "true", auto_remove=True)[1]) == "exited 0"
                assert client.inspect(box).phase == pb.PHASE_RUNNING
        with daemon.client() as client:
            client.kill(box, "TERM")
            assert word(lives.last_exit(client, box)) == "exited 7"
            client.remove(box, force=False)
