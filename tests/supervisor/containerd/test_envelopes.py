"""Events in containerd's words."""

from dataclasses import replace
from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from protos.containerd import events_pb2 as pb
from supervisor.containerd import publish
from supervisor.model.taskfacts import Notice, RootMount
from supervisor.model.values import Event, ExitStatus, Signaled, Unknown
from tests.supervisor.containerd.taskevents import AT_NS, TASK, ended, published

AT = Timestamp(seconds=AT_NS // 10**9, nanos=5)
SAID: list[tuple[Event, str, Any]] = [
    (
        published("create"),
        "create",
        pb.TaskCreate(
            container_id="task-c1",
            bundle="/b/web",
            rootfs=[{"type": "overlay", "source": "overlay", "options": ["lowerdir=/l", "ro"]}],
            io=pb.TaskIO(stdout="/o"),
            pid=40,
        ),
    ),
    (published("start"), "start", pb.TaskStart(container_id="task-c1", pid=40)),
    (published("oom"), "oom", pb.TaskOOM(container_id="task-c1")),
    (published("pause"), "paused", pb.TaskPaused(container_id="task-c1")),
    (published("resume"), "resumed", pb.TaskResumed(container_id="task-c1")),
    (published("exec_added", exec="e"), "exec-added", pb.TaskExecAdded(container_id="task-c1", exec_id="e")),
    (published("exec", exec="e"), "exec-started", pb.TaskExecStarted(container_id="task-c1", exec_id="e", pid=40)),
    (
        published("exit", exec="e"),
        "exit",
        pb.TaskExit(container_id="task-c1", id="e", pid=40, exit_status=3, exited_at=AT),
    ),
    (
        published("exit"),
        "exit",
        pb.TaskExit(container_id="task-c1", id="task-c1", pid=40, exit_status=3, exited_at=AT),
    ),
    (published("remove"), "delete", pb.TaskDelete(container_id="task-c1", pid=40, exit_status=3, exited_at=AT)),
]


def said(event: Event) -> Any:
    assert event.task is not None
    envelope = publish.request(event, event.task).envelope
    message = getattr(pb, envelope.event.type_url.rpartition(".")[2])()
    message.ParseFromString(envelope.event.value)
    return message


@pytest.mark.parametrize(("event", "topic", "message"), SAID, ids=lambda value: value if isinstance(value, str) else "")
def test_each_event_is_said_with_all_that_containerd_needs(event: Event, topic: str, message: Any) -> None:
    assert event.task is not None
    envelope = publish.request(event, event.task).envelope
    assert envelope.topic == f"/tasks/{topic}"
    assert (envelope.namespace, envelope.timestamp) == ("k8s.io", AT)
    assert envelope.event.type_url == message.DESCRIPTOR.full_name
    assert envelope.event.value == message.SerializeToString()
    assert envelope.HasField("event")


@pytest.mark.parametrize(
    ("status", "number"), [(Signaled(9), 137), (Unknown("monitors-killed"), 255), (Unknown("x", 7), 255)]
)
def test_what_is_not_known_is_255_and_a_signal_128_and_its_number(status: ExitStatus, number: int) -> None:
    assert said(replace(published("exit"), exit=ended(status=status))).exit_status == number


def test_the_io_of_a_task_without_any_is_there_all_the_same() -> None:
    assert said(replace(published("create"), task=Notice("/a", made=replace(TASK)))).HasField("io")


def test_a_create_whose_mounts_would_not_fit_into_a_frame_is_said_without_them() -> None:
    mounts = (RootMount("overlay", "overlay", "", ("x" * (2 << 20),)),)
    message = said(replace(published("create"), task=Notice("/a", 40, made=replace(TASK, rootfs=mounts))))
    assert (message.pid, len(message.rootfs)) == (40, 0)
