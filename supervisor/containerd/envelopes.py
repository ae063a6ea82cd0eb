"""An event of ours in containerd's words. Pure.

containerd refuses an envelope without a time, a valid namespace and topic, and 1.6 dies of one without an event.
"""

from google.protobuf.any_pb2 import Any
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from protos.containerd import events_pb2 as pb
from protos.containerd import forward_pb2, types_pb2
from supervisor.model.taskfacts import Notice, Task
from supervisor.model.values import Event, fold

FORWARD = "containerd.services.events.ttrpc.v1.Events/Forward"
MOST_ROOTFS_BYTES = 1 << 20  # with more the mounts are left out: the whole must fit into one frame


def request(event: Event, notice: Notice) -> forward_pb2.ForwardRequest:
    topic, message = _word(event, notice)
    envelope = forward_pb2.Envelope(
        timestamp=_timestamp(event.time_ns),
        namespace=event.namespace,
        topic=f"/tasks/{topic}",
        event=Any(type_url=message.DESCRIPTOR.full_name, value=message.SerializeToString()),
    )
    return forward_pb2.ForwardRequest(envelope=envelope)


def _word(event: Event, notice: Notice) -> tuple[str, Message]:
    """The topic and its message. A task's id is the container's name."""
    id, pid, exec_id = event.name, notice.pid, notice.exec_name
    match event.type:
        case "create":
            return "create", _create(id, pid, notice.made or Task(""))
        case "start":
            return "start", pb.TaskStart(container_id=id, pid=pid)
        case "exit":
            return "exit", _exit(event, notice)
        case "remove":
            at = _timestamp(notice.at_ns)
            return "delete", pb.TaskDelete(container_id=id, pid=pid, exit_status=notice.status, exited_at=at)
        case "oom":
            return "oom", pb.TaskOOM(container_id=id)
        case "pause":
            return "paused", pb.TaskPaused(container_id=id)
        case "resume":
            return "resumed", pb.TaskResumed(container_id=id)
        case "exec":
            return "exec-started", pb.TaskExecStarted(container_id=id, exec_id=exec_id, pid=pid)
        case "exec_added":
            return "exec-added", pb.TaskExecAdded(container_id=id, exec_id=exec_id)
    raise ValueError(f"containerd has no word for {event.type}")


def _create(id: str, pid: int, made: Task) -> pb.TaskCreate:
    io = made.stdio
    message = pb.TaskCreate(
        container_id=id,
        bundle=made.bundle,
        rootfs=[types_pb2.Mount(type=m.type, source=m.source, target=m.target, options=m.options) for m in made.rootfs],
        io=pb.TaskIO(stdin=io.stdin, stdout=io.stdout, stderr=io.stderr, terminal=io.terminal),
        pid=pid,
    )
    if message.ByteSize() > MOST_ROOTFS_BYTES:
        del message.rootfs[:]
    return message


def _exit(event: Event, notice: Notice) -> pb.TaskExit:
    if event.exit is None:
        raise ValueError(f"event {event.seq} is an exit without one")
    pid = event.exit.init.pid if event.exit.init is not None else notice.pid
    return pb.TaskExit(
        container_id=event.name,
        id=notice.exec_name or event.name,
        pid=pid,
        exit_status=fold(event.exit.status),
        exited_at=_timestamp(event.exit.at_ns),
    )


def _timestamp(ns: int) -> Timestamp:
    return Timestamp(seconds=ns // 10**9, nanos=ns % 10**9)
