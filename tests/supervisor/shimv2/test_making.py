"""From a Create to a container of ours, and the word that is left in its bundle."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
from google.protobuf.any_pb2 import Any

from protos.containerd import runc_pb2, runtimeoptions_pb2, types_pb2
from protos.containerd import task_pb2 as pb
from shim import fields
from supervisor.errors import BadRequest, ShimFailed
from supervisor.facts import (
    By,
    Container,
    Exit,
    Exited,
    ExitStatus,
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
from supervisor.logspecs import LogDriver
from supervisor.shimv2 import making
from supervisor.shimv2.callers import Caller, Hello
from supervisor.shimv2.tasks import STOPPED, Look
from supervisor.taskfacts import RootMount, Stdio, Task
from supervisor.ttrpc.faults import CallFailed
from tests.supervisor.fakes import in_loop

CALLER = Caller(Hello("00ff", 1, (1,), 77, "ns", "/run/c.ttrpc"), "00ff/1/3", 0, By(uid=0, pid=os.getpid()))

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
    spec = await making.spec_of(request, CALLER)
    assert (spec.name, spec.namespace, spec.bundle, spec.runtime) == ("box", "ns", "/b", "/usr/bin/crun")
    assert (spec.tty, spec.stdin, spec.log.driver) == (True, False, LogDriver.NONE)
    assert spec.create_options == ("--no-pivot",) and (spec.foreign.uid, spec.foreign.gid) == (7, 8)
    root = (RootMount("overlay", "overlay", "", ("lowerdir=/l",)),)
    assert spec.task == Task("/b", root, Stdio(terminal=True), "00ff", "/run/c.ttrpc", "00ff/1/3", _own_score())


@in_loop
async def test_the_create_of_a_relay_that_has_gone_makes_nothing() -> None:
    gone = replace(CALLER, by=By(uid=0, pid=(1 << 22) + 1))  # above the kernel's largest
    with pytest.raises(ShimFailed, match="No such file"):
        await making.spec_of(pb.CreateTaskRequest(id="box", bundle="/b"), gone)


@in_loop
async def test_a_file_of_options_is_read(tmp_path: Path) -> None:
    (tmp_path / "o.toml").write_text('BinaryName = "crun"\n')
    asked = options(runtimeoptions_pb2.Options(config_path=str(tmp_path / "o.toml")))
    spec = await making.spec_of(pb.CreateTaskRequest(id="box", bundle="/b", options=asked), CALLER)
    assert spec.runtime == "crun"
    missing = options(runtimeoptions_pb2.Options(config_path=str(tmp_path / "none")))
    with pytest.raises(BadRequest, match="No such file"):
        await making.spec_of(pb.CreateTaskRequest(id="box", bundle="/b", options=missing), CALLER)


@pytest.mark.parametrize("request_", [pb.CreateTaskRequest(bundle="/b"), pb.CreateTaskRequest(id="box", bundle="b")])
def test_a_task_has_an_id_and_a_bundle(request_: pb.CreateTaskRequest) -> None:
    @in_loop
    async def ask() -> None:
        with pytest.raises(BadRequest):
            await making.spec_of(request_, CALLER)

    ask()


@in_loop
async def test_a_restore_is_not_implemented() -> None:
    with pytest.raises(CallFailed) as failure:
        await making.spec_of(pb.CreateTaskRequest(id="box", bundle="/b", checkpoint="/c"), CALLER)
    assert failure.value.code == 12


@in_loop
async def test_the_word_in_the_bundle_names_init_and_the_run_directory(tmp_path: Path) -> None:
    spec = Spec("box", task=Task(str(tmp_path)))
    c = Container("c1", spec, Phase.CREATED, 1, 1, init=Process(40, 4))
    for _ in range(2):  # a create that is asked for again writes it again
        await making.leave_word(c, "/state")
    word = fields.decode((tmp_path / "exitd.task").read_bytes(), "task")
    assert (word.get("directory"), word.number("pid"), word.number("started")) == ("/state/c/c1/1", 40, 4)
    with pytest.raises(ShimFailed):
        await making.leave_word(
            Container("c1", Spec("box", task=Task("/none")), Phase.CREATED, 1, 1, Process(4, 4)), "/s"
        )


@in_loop
async def test_the_end_in_the_bundle_is_read_as_it_was_left(tmp_path: Path) -> None:
    spec = Spec("box", namespace="ns", task=Task(str(tmp_path)))
    exit_ = replace(EXIT, init=Process(40, 4), at_ns=77)
    c = Container("c1", spec, Phase.EXITED, 1, 1, exit=exit_)
    assert await making.read_end(str(tmp_path), "ns", "box") is None
    await making.leave_word(c, "/state")
    assert await making.read_end(str(tmp_path), "ns", "box") is None
    (tmp_path / "exitd.task.new").symlink_to(tmp_path / "bait")  # of somebody else, or of an exitd that died there
    statuses: list[tuple[ExitStatus, int]] = [(Exited(43), 43), (Signaled(9), 137), (Unknown("monitors-killed"), 255)]
    for status, code in statuses:
        await making.leave_end(replace(c, exit=replace(exit_, status=status)), "/state")
        assert await making.read_end(str(tmp_path), "ns", "box") == Look(STOPPED, 40, code, 77)
    assert os.listdir(tmp_path) == ["exitd.task"]
    for other in (("ns", "other"), ("other", "box")):
        assert await making.read_end(str(tmp_path), *other) is None


@in_loop
async def test_a_bundle_that_has_gone_or_cannot_be_written_keeps_no_task_from_its_removal(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for bundle in (tmp_path / "none", tmp_path / "file"):
        spec = Spec("box", namespace="ns", task=Task(str(bundle)))
        await making.leave_end(Container("c1", spec, Phase.EXITED, 1, 1, exit=EXIT, init=Process(40, 4)), "/state")
        assert await making.read_end(str(bundle), "ns", "box") is None
    await making.leave_end(
        Container("c1", Spec("box", namespace="ns"), Phase.EXITED, 1, 1, exit=EXIT, init=Process(40, 4)), "/state"
    )


@in_loop
async def test_the_end_of_a_task_is_not_left_in_the_bundle_of_the_next_one(tmp_path: Path) -> None:
    spec = Spec("box", namespace="ns", task=Task(str(tmp_path)))
    old = Container("c1", spec, Phase.EXITED, 1, 1, exit=EXIT, init=Process(40, 4))
    await making.leave_end(old, "/state")  # made anew by containerd, which has not asked for the task yet
    assert os.listdir(tmp_path) == []
    await making.leave_word(Container("c2", spec, Phase.CREATED, 1, 1, init=Process(50, 5)), "/state")
    await making.leave_end(old, "/state")
    assert await making.read_end(str(tmp_path), "ns", "box") is None


@pytest.mark.parametrize("key", ["pid", "code", "at_ns"])
@pytest.mark.parametrize("value", ["", "x", "-1", "9223372036854775808"])
def test_an_end_in_the_bundle_that_is_none_is_nothing(tmp_path: Path, key: str, value: str) -> None:
    @in_loop
    async def look() -> None:
        name = {"namespace": "ns", "id": "box"}
        pairs = {**name, "pid": "40", "started": "4", "code": "7", "at_ns": "77"} | {key: value}
        (tmp_path / "exitd.task").write_bytes(fields.encode("task", pairs.items()))
        assert await making.read_end(str(tmp_path), "ns", "box") is None

    look()


@in_loop
async def test_a_fifo_or_a_link_in_the_bundle_is_nothing(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "exitd.task")
    assert await making.read_end(str(tmp_path), "ns", "box") is None
    (tmp_path / "exitd.task").unlink()
    (tmp_path / "exitd.task").symlink_to("/proc/kmsg")
    assert await making.read_end(str(tmp_path), "ns", "box") is None
