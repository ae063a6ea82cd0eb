"""From a Create to a container of ours, and the word that is left in its bundle."""

import asyncio
import os
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest
from google.protobuf.any_pb2 import Any

from protos.containerd import runc_pb2, runtimeoptions_pb2, types_pb2
from protos.containerd import task_pb2 as pb
from shim import fields
from supervisor.containerd import making, mounts, sockets, stdio
from supervisor.containerd.callers import Caller, Hello
from supervisor.containerd.tasks import STOPPED, TaskLook
from supervisor.model.errors import BadRequest, ShimFailed, TimedOut
from supervisor.model.taskfacts import RootMount, Stdio, Task
from supervisor.model.values import (
    By,
    Container,
    Exit,
    Exited,
    ExitStatus,
    LogDriver,
    Oom,
    Phase,
    Process,
    Reason,
    RunKey,
    Signaled,
    Source,
    Spec,
    Unknown,
)
from supervisor.system import regular
from supervisor.system.aside import Aside
from supervisor.ttrpc.faults import CallFailed
from tests.supervisor.fakes import in_loop

CALLER = Caller(Hello("00ff", 1, (1,), 77, "ns", "/run/c.ttrpc"), "00ff/1/3", 0, By(uid=0, pid=os.getpid()))

ASIDES = making.Asides()

EXIT = Exit(RunKey("c1", 1), "box", "ns", Exited(7), Source.RECORD, Reason.SELF, By(), Oom(), 77, 5, Process(40, 4))


def _own_score() -> int:
    return int(Path("/proc/self/oom_score_adj").read_text())


def options(message: runc_pb2.Options | runtimeoptions_pb2.Options) -> Any:
    return Any(type_url=message.DESCRIPTOR.full_name, value=message.SerializeToString())


@in_loop
async def test_what_a_create_says_is_in_the_spec() -> None:
    mount = types_pb2.Mount(type="overlay", source="overlay", options=["lowerdir=/l"])
    asked = runc_pb2.Options(binary_name="/usr/bin/crun", no_pivot_root=True, io_uid=7, io_gid=8)
    request = pb.CreateTaskRequest(id="box", bundle="/b", terminal=True, rootfs=[mount], options=options(asked))
    spec = await making.spec_of(request, CALLER, ASIDES)
    assert (spec.name, spec.namespace, spec.bundle, spec.runtime) == ("box", "ns", "/b", "/usr/bin/crun")
    assert (spec.tty, spec.stdin, spec.log.driver) == (True, False, LogDriver.NONE)
    assert spec.create_options == ("--no-pivot",) and (spec.foreign.uid, spec.foreign.gid) == (7, 8)
    root = (RootMount("overlay", "overlay", "", ("lowerdir=/l",)),)
    assert spec.task == Task("/b", root, Stdio(terminal=True), "00ff", "/run/c.ttrpc", "00ff/1/3", _own_score())


@in_loop
async def test_the_create_of_a_relay_that_has_gone_makes_nothing() -> None:
    gone = replace(CALLER, by=By(uid=0, pid=(1 << 22) + 1))  # above the kernel's largest
    with pytest.raises(ShimFailed, match="No such file"):
        await making.spec_of(pb.CreateTaskRequest(id="box", bundle="/b"), gone, ASIDES)


@in_loop
async def test_a_file_of_options_is_read(tmp_path: Path) -> None:
    (tmp_path / "o.toml").write_text('BinaryName = "crun"\n')
    asked = options(runtimeoptions_pb2.Options(config_path=str(tmp_path / "o.toml")))
    spec = await making.spec_of(pb.CreateTaskRequest(id="box", bundle="/b", options=asked), CALLER, ASIDES)
    assert spec.runtime == "crun"
    missing = options(runtimeoptions_pb2.Options(config_path=str(tmp_path / "none")))
    with pytest.raises(BadRequest, match="No such file"):
        await making.spec_of(pb.CreateTaskRequest(id="box", bundle="/b", options=missing), CALLER, ASIDES)


@pytest.mark.parametrize("request_", [pb.CreateTaskRequest(bundle="/b"), pb.CreateTaskRequest(id="box", bundle="b")])
def test_a_task_has_an_id_and_a_bundle(request_: pb.CreateTaskRequest) -> None:
    @in_loop
    async def ask() -> None:
        with pytest.raises(BadRequest):
            await making.spec_of(request_, CALLER, ASIDES)

    ask()


@in_loop
async def test_a_restore_is_not_implemented() -> None:
    with pytest.raises(CallFailed) as failure:
        await making.spec_of(pb.CreateTaskRequest(id="box", bundle="/b", checkpoint="/c"), CALLER, ASIDES)
    assert failure.value.code == 12


@in_loop
async def test_the_word_in_the_bundle_names_init_and_the_run_directory(tmp_path: Path) -> None:
    spec = Spec("box", task=Task(str(tmp_path)))
    c = Container("c1", spec, Phase.CREATED, 1, 1, init=Process(40, 4))
    for _ in range(2):  # a create that is asked for again writes it again
        await making.leave_word(c, "/state", ASIDES)
    word = fields.decode((tmp_path / "exitd.task").read_bytes(), "task")
    assert (word.get("directory"), word.number("pid"), word.number("started")) == ("/state/c/c1/1", 40, 4)
    with pytest.raises(ShimFailed):
        await making.leave_word(
            Container("c1", Spec("box", task=Task("/none")), Phase.CREATED, 1, 1, Process(4, 4)), "/s", ASIDES
        )


@in_loop
async def test_the_end_in_the_bundle_is_read_as_it_was_left(tmp_path: Path) -> None:
    spec = Spec("box", namespace="ns", task=Task(str(tmp_path)))
    exit_ = replace(EXIT, init=Process(40, 4), at_ns=77)
    c = Container("c1", spec, Phase.EXITED, 1, 1, exit=exit_)
    assert await making.read_end(str(tmp_path), "ns", "box", ASIDES) is None
    await making.leave_word(c, "/state", ASIDES)
    assert await making.read_end(str(tmp_path), "ns", "box", ASIDES) is None
    (tmp_path / "exitd.task.new").symlink_to(tmp_path / "bait")  # of somebody else, or of an exitd that died there
    statuses: list[tuple[ExitStatus, int]] = [(Exited(43), 43), (Signaled(9), 137), (Unknown("monitors-killed"), 255)]
    for status, code in statuses:
        await making.leave_word(c, "/state", ASIDES)
        await making.leave_end(replace(c, exit=replace(exit_, status=status)), "/state", ASIDES)
        assert await making.read_end(str(tmp_path), "ns", "box", ASIDES) == TaskLook(STOPPED, 40, code, 77)
    assert os.listdir(tmp_path) == ["exitd.task"]
    await making.leave_end(c, "/state", ASIDES)  # it is there already
    assert await making.read_end(str(tmp_path), "ns", "box", ASIDES) == TaskLook(STOPPED, 40, 255, 77)
    for other in (("ns", "other"), ("other", "box")):
        assert await making.read_end(str(tmp_path), *other, ASIDES) is None


@in_loop
async def test_a_bundle_that_has_gone_or_cannot_be_written_keeps_no_task_from_its_removal(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for bundle in (tmp_path / "none", tmp_path / "file"):
        spec = Spec("box", namespace="ns", task=Task(str(bundle)))
        c = Container("c1", spec, Phase.EXITED, 1, 1, exit=EXIT, init=Process(40, 4))
        await making.leave_end(c, "/state", ASIDES)
        assert await making.read_end(str(bundle), "ns", "box", ASIDES) is None
    await making.leave_end(replace(c, spec=Spec("box", namespace="ns")), "/state", ASIDES)


@in_loop
async def test_the_end_of_a_task_is_not_left_in_the_bundle_of_the_next_one(tmp_path: Path) -> None:
    spec = Spec("box", namespace="ns", task=Task(str(tmp_path)))
    old = Container("c1", spec, Phase.EXITED, 1, 1, exit=EXIT, init=Process(40, 4))
    await making.leave_end(old, "/state", ASIDES)  # made anew by containerd, which has not asked for the task yet
    assert os.listdir(tmp_path) == []
    await making.leave_word(Container("c2", spec, Phase.CREATED, 1, 1, init=Process(50, 5)), "/state", ASIDES)
    await making.leave_end(old, "/state", ASIDES)
    assert await making.read_end(str(tmp_path), "ns", "box", ASIDES) is None


@pytest.mark.parametrize("key", ["pid", "code", "at_ns"])
@pytest.mark.parametrize("value", ["", "x", "-1", "9223372036854775808"])
def test_an_end_in_the_bundle_that_is_none_is_nothing(tmp_path: Path, key: str, value: str) -> None:
    @in_loop
    async def look() -> None:
        name = {"namespace": "ns", "id": "box"}
        pairs = {**name, "pid": "40", "started": "4", "code": "7", "at_ns": "77"} | {key: value}
        (tmp_path / "exitd.task").write_bytes(fields.encode("task", pairs.items()))
        assert await making.read_end(str(tmp_path), "ns", "box", ASIDES) is None

    look()


@in_loop
async def test_a_fifo_or_a_link_in_the_bundle_is_nothing(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "exitd.task")
    assert await making.read_end(str(tmp_path), "ns", "box", ASIDES) is None
    (tmp_path / "exitd.task").unlink()
    (tmp_path / "exitd.task").symlink_to("/proc/kmsg")
    assert await making.read_end(str(tmp_path), "ns", "box", ASIDES) is None


def brief() -> making.Asides:
    """That give up at once."""
    return making.Asides(*(Aside(limit_seconds=0.05) for _ in range(3)))


@pytest.fixture
def hung() -> Iterator[threading.Event]:
    """What hangs goes on when this is set, at the end at the latest."""
    let_go = threading.Event()
    yield let_go
    let_go.set()


@in_loop
async def test_a_bundle_that_hangs_proves_nothing_and_keeps_no_task_from_its_removal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hung: threading.Event
) -> None:
    monkeypatch.setattr(regular, "read", lambda *args, **more: hung.wait())
    monkeypatch.setattr(making, "write", lambda *args: hung.wait())
    spec = Spec("box", namespace="ns", task=Task(str(tmp_path)))
    c = Container("c1", spec, Phase.EXITED, 1, 1, exit=EXIT, init=Process(40, 4))
    await making.leave_end(c, "/state", brief())
    assert not await making.is_forgotten(c, brief(), str(tmp_path))
    with pytest.raises(TimedOut, match=f"writing {tmp_path}/exitd.task took more than"):
        await making.leave_word(c, "/state", brief())
    with pytest.raises(TimedOut, match=f"reading {tmp_path}/exitd.task took more than"):
        await making.read_end(str(tmp_path), "ns", "box", brief())


@in_loop
async def test_the_end_is_left_also_where_no_thread_can_be_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(thread: threading.Thread) -> NoReturn:
        raise RuntimeError("can't start new thread")

    spec, asides = Spec("box", namespace="ns", task=Task(str(tmp_path))), making.Asides()
    c = Container("c1", spec, Phase.EXITED, 1, 1, exit=EXIT, init=Process(40, 4))
    monkeypatch.setattr(threading.Thread, "start", refused)
    await making.leave_word(c, "/state", asides)
    await making.leave_end(c, "/state", asides)
    assert await making.read_end(str(tmp_path), "ns", "box", asides) == TaskLook(STOPPED, 40, 7, 77)


@in_loop
async def test_streams_and_a_file_of_options_that_hang_fail_their_create_alone(
    monkeypatch: pytest.MonkeyPatch, hung: threading.Event
) -> None:
    asked = options(runtimeoptions_pb2.Options(config_path="/hung/o.toml"))
    monkeypatch.setattr(regular, "read", lambda *args, **more: hung.wait())
    with pytest.raises(TimedOut, match=r"runtime options: reading /hung/o\.toml took more than"):
        await making.spec_of(pb.CreateTaskRequest(id="box", bundle="/b", options=asked), CALLER, brief())
    monkeypatch.setattr(stdio, "settle", lambda wanted: hung.wait())
    with pytest.raises(TimedOut, match="the look at the streams of box took more than"):
        await making.spec_of(pb.CreateTaskRequest(id="box", bundle="/b"), CALLER, brief())


@in_loop
async def test_a_mount_that_hangs_is_given_up_by_its_name_and_undone_once_it_has_come_back(
    monkeypatch: pytest.MonkeyPatch, hung: threading.Event
) -> None:
    done, asides = list[str](), making.Asides()

    def mount_all(asked: tuple[RootMount, ...], rootfs: str) -> None:
        hung.wait()
        done.append(f"mounted {rootfs}")

    def unmount_all(rootfs: str) -> tuple[str, ...]:
        done.append(f"unmounted {rootfs}")
        return ()

    monkeypatch.setattr(mounts, "mount_all", mount_all)
    monkeypatch.setattr(mounts, "unmount_all", unmount_all)
    root = (RootMount("nfs", "host:/gone"),)
    first, c, other = (Container(i, Spec(i, task=Task(f"/b/{i}", root)), Phase.CREATING, 1, 1) for i in ("a", "b", "c"))
    with pytest.raises(TimedOut, match="mounting /b/a/rootfs took more than"):
        await making.mount(first, brief())
    given_up = asyncio.create_task(making.mount(c, asides))
    await asyncio.sleep(0)
    given_up.cancel()
    await asyncio.wait([given_up])
    undone = asyncio.create_task(making.unmount(c, asides))
    await making.unmount(other, asides)
    assert done == ["unmounted /b/c/rootfs"] and not undone.done()
    hung.set()
    await undone
    assert [each for each in done if "/b/b/" in each] == ["mounted /b/b/rootfs", "unmounted /b/b/rootfs"]


@in_loop
async def test_a_task_remembers_the_socket_of_its_relay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its bundle, which names the socket to others, may have gone before the task."""
    monkeypatch.setattr(sockets, "SOCKETS", str(tmp_path / "s"))
    (bundle := tmp_path / "b").mkdir()
    (bundle / "address").write_text(f"unix://{tmp_path}/s/abc")
    spec = await making.spec_of(pb.CreateTaskRequest(id="box", bundle=str(bundle)), CALLER, ASIDES)
    assert spec.task is not None and spec.task.socket == f"{tmp_path}/s/abc"
