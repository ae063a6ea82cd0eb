"""Events for containerd, published through its relays, in order, each until containerd has accepted it.

containerd refuses an envelope without a time, a valid namespace and topic; version 1.6 crashes on one without an event.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable

import structlog
from google.protobuf.any_pb2 import Any
from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from protos.containerd import events_pb2 as pb
from protos.containerd import forward_pb2, types_pb2
from protos.containerd.forward_pb2 import ForwardRequest
from supervisor.containerd.callers import Hello
from supervisor.containerd.couriers import Couriers, packed
from supervisor.containerd.forwarded import Forwarded
from supervisor.containerd.outbox import Outbox, queue_of
from supervisor.model.errors import CannotStart, Code, Compacted, StoreFailed
from supervisor.model.taskfacts import Notice, Task
from supervisor.model.values import Container, Event, fold
from supervisor.store.events import Bookmark, EventLog, Lost
from supervisor.system.aside import Aside
from supervisor.system.background import Background
from supervisor.ttrpc.client import TtrpcClient
from supervisor.ttrpc.faults import CallFailed, Closed

# -- envelopes


FORWARD = "containerd.services.events.ttrpc.v1.Events/Forward"
MOST_ROOTFS_BYTES = 1 << 20  # if there is more, the mounts are left out: the whole must fit into one frame


def request(event: Event, notice: Notice) -> forward_pb2.ForwardRequest:
    """Return the request that forwards the event to containerd: topic, namespace, time and message."""
    topic, message = _word(event, notice)
    envelope = forward_pb2.Envelope(
        timestamp=_timestamp(event.time_ns),
        namespace=event.namespace,
        topic=f"/tasks/{topic}",
        event=Any(type_url=message.DESCRIPTOR.full_name, value=message.SerializeToString()),
    )
    return forward_pb2.ForwardRequest(envelope=envelope)


def _word(event: Event, notice: Notice) -> tuple[str, Message]:
    """Return the topic and its message. A task's id is the container's name."""
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


# -- publishing

# containerd learns of its tasks' events from the durable log, in order, until it has accepted each one.

# Each address at which a containerd receives events has a sender: a reader of the log, an outbox, and a connection. A
# containerd that is away delays no other; its events wait in the log. An event is noted as sent after containerd's
# answer: if exitd is killed in between, the next daemon sends it once more. A task's relay sends the event and
# recognises the repetition. If the relay is gone, exitd sends it to containerd itself, and then perhaps twice.


CALL_SECONDS = 10.0
CONNECT_SECONDS = 5.0
PAUSE_SECONDS, MOST_PAUSE_SECONDS = 1.0, 30.0  # between attempts; each pause is twice the last
NOTE_EVERY = 1000  # events for other clients, until the floor is noted all the same
AWAY = frozenset({Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED})  # not about the event, so no other event would be accepted

log = structlog.get_logger(__name__)


class RelayLink:
    """The connection to one containerd while there is one, and growing pauses while there is none."""

    def __init__(self, address: str, looks: Aside) -> None:
        """`looks`: threads that look the address up, which containerd has named."""
        self._path = address.removeprefix("unix://")
        self._looks = looks
        self._client: TtrpcClient | None = None
        self._connecting = asyncio.Lock()
        self._open = asyncio.Event()
        self._open.set()
        self._round = 0  # of attempts: those of one round that fail cause one pause
        self._pause = PAUSE_SECONDS
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_resting(self) -> bool:
        return not self._open.is_set()

    async def send(
        self, message: ForwardRequest, bring: Callable[[], Awaitable[bool]], is_wanted: Callable[[], bool]
    ) -> None:
        """Send an event when the pause, if any, has ended, unless it is no longer wanted by then. It goes through
        `bring`, or from here if there is no relay for that. Raises CallFailed."""
        await self._open.wait()
        began = self._round
        try:
            if not await bring():
                client = await self._connected(began)
                if is_wanted():
                    await client.call(FORWARD, message, Empty, CALL_SECONDS)
        except CallFailed as error:
            if error.code in AWAY and began == self._round:
                self._rest(error)
            raise
        if self._pause != PAUSE_SECONDS:
            log.info("containerd takes events again", address=self._path)
        self._pause = PAUSE_SECONDS

    def wake(self) -> None:
        """End the pause now."""
        self._pause = PAUSE_SECONDS
        self._go_on()

    def close(self) -> None:
        self._go_on()
        if self._client is not None:
            self._client.close()

    async def _connected(self, began: int) -> TtrpcClient:
        async with self._connecting:
            if began != self._round:
                raise Closed("another call has just tried to connect")
            if self._client is None or self._client.is_closed:
                self._client = await TtrpcClient.connect(self._path, seconds=CONNECT_SECONDS, looks=self._looks)
            return self._client

    def _rest(self, error: CallFailed) -> None:
        if self._pause == PAUSE_SECONDS:
            log.warning("containerd takes no events, they wait", address=self._path, why=str(error))
        self._round += 1
        self._open.clear()
        self._timer = asyncio.get_running_loop().call_later(self._pause, self._go_on)
        self._pause = min(2 * self._pause, MOST_PAUSE_SECONDS)

    def _go_on(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._open.set()


class AddressSender:
    """Everything that goes to one address."""

    def __init__(self, address: str, floor: int, of: "Publisher") -> None:
        noted = of.noted
        self.outbox = Outbox(address, floor, noted.places[address])
        self.link = RelayLink(address, of.looks)
        self._noted = noted
        self._events = of.events
        self._couriers = of.couriers
        self._moved = of.moved
        self._sending: set[str] = set()
        self._room = asyncio.Event()
        self._tasks = Background()
        noted.note(address, floor)
        self._noted_seq = floor

    def begin(self) -> None:
        self._tasks.spawn(self._read())

    async def close(self) -> None:
        await self._tasks.close()
        self.link.close()

    def drop(self, task: str) -> None:
        self._noted.note(self.outbox.address, self.outbox.floor, task, self.outbox.drop(task))
        self._room.set()
        self._moved.set()

    async def _read(self) -> None:
        async with contextlib.aclosing(reading(self._events, self.outbox.floor, self._take_at_once)) as items:
            async for item in items:
                while not self.outbox.has_room:
                    self._room.clear()
                    await self._room.wait()
                self._take(item)

    def _take_at_once(self, event: Event) -> bool:
        """Take an event in the moment of its publication: containerd's clients wait for it."""
        if not self.outbox.has_room:
            return False
        self._take(event)
        return True

    def _take(self, item: Event | int) -> None:
        self._moved.set()
        if isinstance(item, int):
            return self.outbox.passed(item)
        if (place := self.outbox.take(item)) is not None:
            self._noted.note(self.outbox.address, self.outbox.floor, item.id, place)
        elif item.seq >= self._noted_seq + NOTE_EVERY:
            self._noted_seq = item.seq
            self._noted.note(self.outbox.address, self.outbox.floor)
        queue = queue_of(item)
        if queue not in self._sending and self.outbox.next(queue) is not None:
            self._sending.add(queue)
            self._tasks.spawn(self._send_all(queue))

    async def _send_all(self, queue: str) -> None:
        try:
            while (event := self.outbox.next(queue)) is not None:
                await self._send(event)
                if (place := self.outbox.sent(event)) is not None:
                    self._noted.note(self.outbox.address, self.outbox.floor, event.id, place)
                self._room.set()
                self._moved.set()
        finally:
            self._sending.discard(queue)

    async def _send(self, event: Event) -> None:
        """Send it until containerd has it, or it has been given up."""
        assert event.task is not None
        message, courier, pause = request(event, event.task), event.task.courier, PAUSE_SECONDS
        data = packed(event.seq, FORWARD, message) if courier else b""

        def is_wanted() -> bool:
            return self.outbox.next(queue_of(event)) is event

        async def bring() -> bool:
            return bool(courier) and await self._couriers.hand_over(courier, event.seq, data, is_wanted)

        while is_wanted():
            is_away = False
            try:
                return await self.link.send(message, bring, is_wanted)
            except CallFailed as error:
                if error.code == Code.INVALID_ARGUMENT:
                    log.error("containerd will not have an event", **_about(event), why=str(error))
                    return
                is_away = error.code in AWAY
                if not is_away:
                    log.warning("containerd refuses an event, trying again", **_about(event), why=str(error))
            except OSError as error:  # there is no descriptor to hold the relay's process by
                log.warning("an event cannot be handed over, trying again", **_about(event), why=str(error))
            if not is_away:
                await asyncio.sleep(pause)
                pause = min(2 * pause, MOST_PAUSE_SECONDS)
            if lost := self.outbox.forget_before(self._events.oldest_seq):
                log.error("events that containerd has not received are no longer kept", events=lost)


class Publisher:
    """Make it inside its event loop, before anything happens to a task that containerd must learn of. Tasks may be
    given up before `begin`."""

    def __init__(self, events: EventLog, state: str, boot_id: str) -> None:
        """Raises CannotStart."""
        path = f"{state}/shimv2/forwarded"
        try:
            self.noted = Forwarded(path, boot_id, events.last_seq)
        except OSError as error:
            raise CannotStart(f"{path}: {error.strerror}") from error
        self.events = events
        self.couriers = Couriers()
        self.looks = Aside()
        self.moved = asyncio.Event()  # an event was read or sent
        self._tasks = Background()
        self._begun = False
        self._looked = self.noted.floors[""]
        self.senders: dict[str, AddressSender] = {}
        for address, floor in [*self.noted.floors.items()]:
            if address:
                self._sender(address, floor)

    def begin(self) -> None:
        self._begun = True
        for sender in self.senders.values():
            sender.begin()
        self._tasks.spawn(self._look_for_addresses())

    async def close(self) -> None:
        """Stop. The next daemon sends what has not been sent."""
        await self._tasks.close()
        for sender in self.senders.values():
            await sender.close()
        self.couriers.close()
        self.noted.close()

    def drop(self, container: Container) -> None:
        """Send nothing more of this task: containerd reports the rest itself."""
        if container.spec.task is not None:
            self._sender(container.spec.task.address, self.noted.floors[""]).drop(container.id)

    def has_dropped(self, container: Container) -> bool:
        """Return whether nothing more of this task is sent, see `drop`."""
        task = container.spec.task
        sender = self.senders.get(task.address) if task is not None else None
        place = sender.outbox.places.get(container.id) if sender is not None else None
        return place is not None and place.dropped

    def wake(self, address: str) -> None:
        """The containerd that receives events at this address is alive: end its pause."""
        if address in self.senders:
            self.senders[address].link.wake()

    async def settled(self, hello: Hello, newest: int, seconds: float) -> bool:
        """Return True once it is noted that the relay has sent everything up to that number of the log, so that it will
        get no more events; False if that takes longer."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not self._is_settled(hello, newest):
                    self.moved.clear()
                    await self.moved.wait()
        return self._is_settled(hello, newest)

    def _is_settled(self, hello: Hello, newest: int) -> bool:
        if not hello.courier or not hello.address:
            return True
        sender = self.senders.get(hello.address)
        return self._looked >= newest if sender is None else sender.outbox.is_settled(hello.courier, newest)

    def _sender(self, address: str, floor: int) -> AddressSender:
        if address not in self.senders:
            self.senders[address] = AddressSender(address, floor, self)
            if self._begun:
                self.senders[address].begin()
        return self.senders[address]

    async def _look_for_addresses(self) -> None:
        with contextlib.suppress(StoreFailed):  # it is read event by event then, which says so
            self._looked = await self.events.before_tasks(self._looked)
            self.moved.set()
        async with contextlib.aclosing(reading(self.events, self._looked, self._look_at)) as items:
            async for item in items:
                self._look_at(item)

    def _look_at(self, item: Event | int) -> bool:
        if isinstance(item, Event) and item.task is not None and item.task.address:
            self._sender(item.task.address, item.seq - 1)
        self._looked = item if isinstance(item, int) else item.seq
        self.moved.set()
        if self._looked >= self.noted.floors[""] + NOTE_EVERY:
            self.noted.note("", self._looked)
        return True


async def reading(
    events: EventLog, seq: int, at_once: Callable[[Event], bool] | None = None
) -> AsyncGenerator[Event | int, None]:
    """Yield the log behind `seq`, without an end: events, and numbers up to which there are no others. `at_once`: as
    for `EventLog.subscribe`."""
    while True:
        try:
            async with contextlib.aclosing(await events.subscribe(seq + 1, at_once=at_once)) as items:
                async for item in items:
                    match item:
                        case Event():
                            seq = item.seq
                            yield item
                        case Bookmark(seq):
                            yield seq
                        case Lost(first, seq):
                            log.error(
                                "events that containerd has not received are no longer kept", first=first, last=seq
                            )
                            yield seq
            return
        except Compacted:
            log.error("events that containerd has not received are no longer kept", first=seq + 1)
            seq = events.oldest_seq - 1
        except StoreFailed as error:
            log.warning("the event log cannot be read, trying again", why=str(error))
            await asyncio.sleep(PAUSE_SECONDS)


def _about(event: Event) -> dict[str, object]:
    return {"task": event.name, "namespace": event.namespace, "type": event.type, "seq": event.seq}
