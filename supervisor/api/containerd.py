"""exitd as a client of a containerd: it lists tasks and hears of new ones, of all namespaces. It changes nothing."""

import gc
from collections.abc import AsyncGenerator
from types import TracebackType
from typing import Any, Self

import grpc
import grpc.aio
from google.protobuf.message import DecodeError, Message

from protos.containerd import containers_pb2, events_pb2, forward_pb2, process_pb2, services_pb2
from supervisor.external.containerdtasks import LiveTask, NoAnswer
from supervisor.model import names
from supervisor.model.values import NO_NAMES, Names

SERVICES = "containerd.services"
CALL_SECONDS = 10.0
AGAIN_MS = 200
MOST_BYTES = 64 << 20  # of a reply: thousands of tasks
BEGINNINGS: dict[str, Any] = {"/tasks/create": events_pb2.TaskCreate, "/tasks/start": events_pb2.TaskStart}
LIVE = frozenset({process_pb2.CREATED, process_pb2.RUNNING, process_pb2.PAUSED, process_pb2.PAUSING})


class Containerd:
    """One channel, which connects again by itself. Raises NoAnswer, and nothing else, for whatever goes wrong there."""

    def __init__(self, socket: str) -> None:
        options = [
            ("grpc.max_receive_message_length", MOST_BYTES),
            ("grpc.use_local_subchannel_pool", 1),
            *((f"grpc.{name}_reconnect_backoff_ms", AGAIN_MS) for name in ("initial", "min", "max")),
        ]
        self._channel = grpc.aio.insecure_channel(f"unix:{socket}", options=options)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Calls that are over hold the connection until the collector has found them."""
        await self._channel.close()
        gc.collect()

    async def tasks(self) -> tuple[LiveTask, ...]:
        """Return the tasks that have not ended, of all namespaces."""
        listed = await self._call("namespaces.v1.Namespaces/List", "", services_pb2.ListNamespacesResponse)
        found = []
        for namespace in listed.namespaces:
            reply = await self._call("tasks.v1.Tasks/List", namespace.name, services_pb2.ListTasksResponse)
            found += [
                LiveTask(namespace.name, task.id or task.container_id, task.pid)
                for task in reply.tasks
                if task.pid and task.status in LIVE
            ]
        return tuple(found)

    async def names(self, namespace: str, id: str) -> Names:
        """Return the names of the container of a task; no names for one that is gone."""
        request = containers_pb2.GetContainerRequest(id=id)
        try:
            kind = containers_pb2.GetContainerResponse
            reply = await self._call("containers.v1.Containers/Get", namespace, kind, request)
        except NoAnswer as error:
            if isinstance(error.__cause__, grpc.RpcError) and error.__cause__.code() is grpc.StatusCode.NOT_FOUND:
                return NO_NAMES
            raise
        return names.of_labels(reply.container.labels, reply.container.image)

    async def beginnings(self) -> AsyncGenerator[LiveTask, None]:
        """Yield each task that is created or started, from some moment after the call on; end with the connection."""
        filters = [f'topic=="{topic}"' for topic in BEGINNINGS]
        subscribe = self._channel.unary_stream(
            f"/{SERVICES}.events.v1.Events/Subscribe", _bytes_of, forward_pb2.Envelope.FromString
        )
        call = subscribe(services_pb2.SubscribeRequest(filters=filters))
        try:
            async for envelope in call:
                kind = BEGINNINGS.get(envelope.topic)
                if kind is not None:
                    event = kind.FromString(envelope.event.value)
                    yield LiveTask(envelope.namespace, event.container_id, event.pid)
        except (grpc.RpcError, DecodeError) as error:
            raise _no_answer(error) from error
        finally:
            call.cancel()

    async def _call(self, name: str, namespace: str, reply: Any, request: Message | None = None) -> Any:
        method = self._channel.unary_unary(f"/{SERVICES}.{name}", _bytes_of, reply.FromString)
        metadata = (("containerd-namespace", namespace),) if namespace else None
        try:
            asked = services_pb2.SubscribeRequest() if request is None else request
            return await method(asked, metadata=metadata, timeout=CALL_SECONDS)
        except (grpc.RpcError, DecodeError) as error:
            raise _no_answer(error) from error


def _bytes_of(message: Message) -> bytes:
    return message.SerializeToString()


def _no_answer(error: Exception) -> NoAnswer:
    if isinstance(error, grpc.RpcError):
        return NoAnswer(f"{error.code().name.lower().replace('_', ' ')}: {error.details()}")
    return NoAnswer(str(error))
