"""The networks of containers: their ports, ADD before a run, and DEL once after everything of it has ended.

A record on the disk stands for an attachment from before its ADD until after its DEL (`network/records.py`). So at any
moment, whatever is killed, the records say what is to be taken down; `NetworkService.look` takes down those that
nothing uses any more. A DEL that fails is tried again, behind the back of everything else: the next run has a record,
and an id for the plugins, of its own. Decision 47.
"""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from operator import attrgetter
from typing import TypeVar

import structlog

from shim.frozen import replace
from supervisor.config.settings import Config
from supervisor.engine.networkchoice import NetworkChoice, preferred, refuse_untaken, unpublished
from supervisor.engine.node import Node
from supervisor.engine.participants import Participant
from supervisor.model import networks
from supervisor.model.errors import BadRequest, Busy, ExitdError, NoSuchNetwork, ShimFailed, ToolFailed, WrongState
from supervisor.model.networks import (
    AddressWish,
    Attached,
    NetworkView,
    PrunedNetworks,
    PublishedPort,
    StuckAttachment,
    TakenPorts,
)
from supervisor.model.values import Container, Phase, Spec
from supervisor.network import calls, files, hostports, namespace, plugins
from supervisor.network.calls import Endpoint, NotAnswer
from supervisor.network.conflist import NetworkConfig
from supervisor.network.records import AttachmentRecord, NetworkLink
from supervisor.runtime.oci import namespaces
from supervisor.system import room
from supervisor.system.background import pauses

FIRST_SECONDS = 10.0  # how long a clean-up waits for the first DEL
IDLE_SECONDS = 35.0  # for plugins of an earlier exitd, which outlive it by less
AGAIN_SECONDS = (1.0, 5.0, 30.0, 120.0, 600.0)  # between two DELs of one attachment; the last is repeated
ADDS_AT_ONCE, OTHERS_AT_ONCE = 8, 4  # plugins take processors, and wait for the locks of iptables
LETS_GO_SECONDS = 30.0  # how long an ADD waits for the ports of what has ended
TURN_SECONDS = 120.0  # how long an ADD waits until so many others are done
FIRST_LOOK_SECONDS, MOST_LOOK_SECONDS = 0.02, 1.0  # between two looks at plugins of an earlier exitd
PRUNE_SECONDS = 100.0  # for the last tries of all that is stuck

T = TypeVar("T")

log = structlog.get_logger(__name__)


class TakingDown:
    """DELs of one record that have begun."""

    def __init__(self) -> None:
        self.tried = asyncio.Event()  # set after the first try
        self.ended = asyncio.Event()  # there is no record any more, or exitd stops
        self.tries, self.why = 0, ""  # those that have failed
        self.is_last = self.is_given_up = False
        self._hurried = asyncio.Event()

    async def pause(self, seconds: float) -> None:
        """Wait for the next try."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._hurried.wait(), seconds)

    def hurry(self) -> None:
        """Have the next try begin now. It is the last one."""
        self.is_last = True
        self._hurried.set()

    def over(self) -> None:
        self.tried.set()
        self.ended.set()


class NetworkService(Participant):
    """Owns the records of attachments. One per daemon; belongs to its event loop."""

    def __init__(self, node: Node, config: Callable[[], Config], root: str, state: str) -> None:
        self._node = node
        self._config = config
        self.choice = NetworkChoice(config)
        self._directory = f"{root}/networks"
        self._state = state
        self._records: dict[str, AttachmentRecord] = {}
        self._inherited: set[str] = set()  # those of an earlier exitd, whose plugins may still be at work
        self._promised: dict[str, tuple[PublishedPort, ...]] = {}  # of containers that are being admitted
        self._taken_down: dict[str, TakingDown] = {}
        self._adding = asyncio.Semaphore(ADDS_AT_ONCE)
        self._resting = asyncio.Semaphore(OTHERS_AT_ONCE)  # CHECKs and DELs: none of them keeps an ADD waiting

    # -- the ports of a request

    def claim_ports(self, spec: Spec, exposed: Iterable[tuple[int, str]], container_id: str) -> Spec:
        """Return the spec with a port of the machine for each that it publishes; from here on they are the container's,
        until it is discarded. `exposed`: those that its image names, which `publish_all` publishes, too. Raises
        BadRequest, WrongState."""
        wanted, named = list(spec.ports), {(each.container_port, each.protocol) for each in spec.ports}
        if spec.publish_all:
            every = dict.fromkeys((*spec.expose, *exposed))
            wanted += [PublishedPort(port, 0, protocol) for port, protocol in every if (port, protocol) not in named]
        if not wanted:
            return spec
        if len(wanted) > networks.MOST_PUBLISHED:
            raise BadRequest(f"ports: {len(wanted)} of them, at most {networks.MOST_PUBLISHED}", field="ports")
        if twice := next(networks.doubled(wanted), None):
            raise BadRequest(f"ports: {twice.host_port}/{twice.protocol} is there twice", field="ports")
        settled = wanted
        if not all(port.host_port for port in wanted):
            taken = TakenPorts((*self._claimed(), *wanted))
            among = hostports.numbers()  # going on where the port before has been found
            settled = [port if port.host_port else hostports.choose(port, taken, among) for port in wanted]
        self._promised[container_id] = tuple(settled)
        return replace(spec, ports=tuple(settled))

    def _claimed(self) -> Iterator[PublishedPort]:
        """Yield all ports that are not to be chosen: of the containers that there are, of those that are being made,
        and of what is still to be taken down."""
        containers = self._node.containers
        for id in [id for id in self._promised if id in containers]:
            del self._promised[id]
        for container in containers.values():
            yield from container.spec.ports
        for ports in self._promised.values():
            yield from ports
        for record in self._records.values():
            yield from record.ports

    async def discarded(self, container_id: str) -> None:
        self._promised.pop(container_id, None)

    # -- a run begins

    async def attach(self, container: Container) -> Container:
        """Return the container with what its network has given this run, whose namespace is bound then; a member of a
        pod with what the pod has. Raises NoSuchNetwork, BadRequest, WrongState, ShimFailed, ToolFailed, ToolMissing,
        TimedOut, Busy; what has been done by then is undone when the failed run is cleaned up."""
        spec = container.spec
        if spec.sandbox:
            pause = self._node.containers.get(spec.sandbox)
            return replace(container, networks=pause.networks if pause is not None else ())
        if not networks.has_own(spec.network, spec.sandbox):
            return container
        links = await self._links(spec)
        record = AttachmentRecord(container.id, container.run)
        path = namespaces.network_of(self._state, container.id, container.run)
        if port := await asyncio.to_thread(hostports.first_taken, spec.ports):
            raise WrongState(f"port {_shown(port)}: a program of this machine has it already", id=container.id)
        attached: list[Attached] = []
        await self._await_ports(container)
        async with self._turn_to_add(f"network {', '.join(spec.networks)}"):
            self._refuse_taken(container)
            for link in links:
                if link.ports:  # another may have got them while the networks before this one were put up
                    self._refuse_taken(container)
                record = await self._noted(record.with_link(link))
                if not attached:
                    await self._on_disk(f"a network namespace at {path}", lambda: namespace.make(path, spec.ids))
                result = await plugins.add(link.network, _endpoint(record, link, path), link.plugin_dirs)
                record = self._records[record.id] = record.with_link(replace(link, result=result))
                attached.append(_answer(link, result, path))
        await self._noted(record)
        for each in attached:
            what = {"container": container.id, "run": container.run, "network": each.network}
            log.info("attached", **what, ips=each.addresses)
        return replace(container, networks=tuple(attached))

    async def _links(self, spec: Spec) -> list[NetworkLink]:
        """Return what is to be put up, in the order of the interfaces: the first network that publishes has the
        ports. Raises NoSuchNetwork, ToolMissing; BadRequest where a file has changed, and no plugin takes the ports or
        the addresses any more."""
        dirs, links, ports = self._config().network.plugin_dirs, [], spec.ports
        for index, name in enumerate(spec.networks):
            network = await self.choice.configured(name)
            if kind := await asyncio.to_thread(files.missing, network, dirs):
                raise plugins.missing(network, kind, dirs)
            wish = next((each for each in spec.wishes if each.network == network.name), AddressWish())
            refuse_untaken(network, wish)
            link = NetworkLink(networks.interface(index), network, dirs, ips=wish.ips, mac=wish.mac)
            if network.publishes:
                link, ports = replace(link, ports=ports), ()
            links.append(link)
        if ports:
            raise unpublished(spec.networks)
        return links

    async def _noted(self, record: AttachmentRecord) -> AttachmentRecord:
        """Put a record on the disk. Raises ShimFailed."""
        self._records[record.id] = record
        await self._on_disk(f"the record of {record.id}", lambda: files.write(self._directory, record))
        return record

    @contextlib.asynccontextmanager
    async def _turn_to_add(self, what: str) -> AsyncIterator[None]:
        """Hold the block up while as many others as may be at it at once are. Raises Busy."""
        try:
            async with asyncio.timeout(TURN_SECONDS):
                await self._adding.acquire()
        except TimeoutError as error:
            raise Busy(
                f"{what}: the plugins of {ADDS_AT_ONCE} other containers are still at work; try again"
            ) from error
        try:
            yield
        finally:
            self._adding.release()

    async def _await_ports(self, container: Container) -> None:
        """Return when nothing that has ended has a port which the container is to have, or will keep it."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LETS_GO_SECONDS):
                while (taken := self._taken(container)) and (let_go := self._letting_go(taken[0])):
                    await let_go

    def _taken(self, container: Container) -> tuple[AttachmentRecord, PublishedPort] | None:
        """Return a port of the container that another has, or has had and the rules of its network are still there:
        they would take its connections."""
        wanted = TakenPorts(container.spec.ports)
        for record in self._records.values():
            ports = () if record.container == container.id else record.ports
            if port := next(filter(wanted.clashes, ports), None):
                return record, port
        return None

    def _letting_go(self, record: AttachmentRecord) -> Awaitable[object] | None:
        """Return what to wait for until the record may have gone, as everything of its run has ended; None if that
        lives, or its network could not be taken down."""
        using = list(self._using(record))
        if not using:
            tried = self._take_down(record)
            return None if self._taken_down[record.id].tries else tried.wait()
        if any(each.phase not in (Phase.EXITED, Phase.REMOVING) for each in using):
            return None
        return self._node.containers.changes.until(using[0].id, using[0], lambda now: now is None or now.clean)

    def _refuse_taken(self, container: Container) -> None:
        """Raises WrongState."""
        if (taken := self._taken(container)) is None:
            return
        record, port = taken
        other = self._node.containers.get(record.container)
        name = other.spec.name if other is not None else record.container[:12]
        why = f"is published by {name} already"
        if not self._is_used(record):
            why = f"was published by {name}, whose network is still being taken down: {record.id} in exitd's log"
        raise WrongState(f"port {_shown(port)} {why}", id=container.id)

    # -- a run has ended

    async def after_clean_up(self, container_id: str) -> None:
        container = self._node.containers.get(container_id)
        of_pod = container.spec.sandbox if container is not None else ""
        asked = [each for each in self._records.values() if each.container in (container_id, of_pod)]
        begun = [self._take_down(each) for each in asked if not self._is_used(each, container_id)]
        if begun:
            waits = [asyncio.ensure_future(tried.wait()) for tried in begun]
            _, late = await asyncio.wait(waits, timeout=FIRST_SECONDS)
            for each in late:
                each.cancel()

    def look(self) -> None:
        """Take down what nothing uses: after a daemon start, and now and then."""
        for record in list(self._records.values()):
            is_known = record.container in self._node.containers
            is_leaked = not is_known and os.path.isdir(f"{self._state}/c/{record.container}")  # it is ended first
            if not is_leaked and not self._is_used(record):
                self._take_down(record)

    def _is_used(self, record: AttachmentRecord, cleaned: str = "") -> bool:
        """Return whether anything of the record's run may live. `cleaned`: a container of whose last run nothing
        does."""
        return any(each.id != cleaned for each in self._using(record))

    def _using(self, record: AttachmentRecord) -> Iterator[Container]:
        """Yield the containers of which something may live that uses the record's attachment."""
        containers = self._node.containers
        own = containers.get(record.container)
        if own is not None and not own.clean and (own.damaged or own.run == record.run):
            yield own
        runs = (0, record.run)  # 0: not known. What is being made joins a run that its row does not name yet
        for each in containers.members(record.container):
            if not each.clean and (each.phase is Phase.CREATING or each.sandbox_run in runs):
                yield each

    def _take_down(self, record: AttachmentRecord) -> asyncio.Event:
        under_way = self._taken_down.get(record.id)
        if under_way is None:
            under_way = self._taken_down[record.id] = TakingDown()
            self._node.spawn(self._until_down(record, under_way))
        return under_way.tried

    async def _until_down(self, record: AttachmentRecord, under_way: TakingDown) -> None:
        try:
            while True:
                record, is_last = self._records.get(record.id, record), under_way.is_last
                try:
                    await self._delete(record)
                    return
                except (ExitdError, OSError) as error:
                    record = self._records.get(record.id, record)  # without what has been taken down
                    seconds = AGAIN_SECONDS[min(under_way.tries, len(AGAIN_SECONDS) - 1)]
                    under_way.tries, under_way.why = under_way.tries + 1, str(error)
                    what = {"container": record.container, "run": record.run, "again_in_seconds": seconds}
                    log.warning("network not taken down", **what, network=", ".join(record.networks), why=str(error))
                if await self._is_given_up(record, is_last=is_last):
                    under_way.is_given_up = True
                    return
                under_way.tried.set()
                await under_way.pause(seconds)
        finally:
            under_way.over()
            self._taken_down.pop(record.id, None)

    async def _is_given_up(self, record: AttachmentRecord, *, is_last: bool) -> bool:
        """Return whether the record's file has been removed by hand, or this was its last try: it is forgotten then."""
        if not is_last and await asyncio.to_thread(files.exists, self._directory, record):
            return False
        path = namespaces.network_of(self._state, record.container, record.run)
        if not await self._is_unmade(path):
            self._node.spawn(self._until_unmade(path))  # no record of it is left by which another would come back to it
        event = "network given up, its record was removed"
        if is_last:
            event = "network given up, as was asked"
            try:
                await asyncio.to_thread(files.remove, self._directory, record)
            except OSError as error:
                log.error("a record stays, and comes back with the next exitd", record=record.id, why=error.strerror)
        log.warning(event, container=record.container, run=record.run)
        self._records.pop(record.id, None)
        return True

    async def _until_unmade(self, path: str) -> None:
        for seconds in pauses(AGAIN_SECONDS):
            await asyncio.sleep(seconds)
            if await self._is_unmade(path):
                return

    async def _is_unmade(self, path: str) -> bool:
        """Unmake the namespace of a network that is given up. Return whether nothing of it is left."""
        try:
            await self._on_disk(f"the network namespace at {path}", lambda: namespace.unmake(path))
        except ShimFailed as error:
            log.warning("a namespace of a network that is given up stays", path=path, why=str(error))
            return False
        return True

    async def _delete(self, record: AttachmentRecord) -> None:
        """Take down what there is of it, the last first. Raises the first failure, after all have been tried."""
        path = namespaces.network_of(self._state, record.container, record.run)
        if record.id in self._inherited:
            what = f"the plugins of {record.id}"
            if not await self._idle(what, path):
                log.warning("a process that a plugin has left keeps its lock", container=record.container, path=path)
            self._inherited.discard(record.id)
        bound = await asyncio.to_thread(namespace.is_there, path)
        failures: list[Exception] = []
        left = record
        async with self._resting:
            for link in reversed(record.links):
                endpoint = replace(_endpoint(record, link, path), namespace=path if bound else "")
                try:
                    await plugins.delete(link.network, endpoint, self._plugin_dirs(link), link.result)
                except (ExitdError, OSError) as error:
                    failures.append(error)
                else:
                    left = left.without(link.interface)
        if failures:
            await self._note_left(record, left)
            raise failures[0]
        await self._on_disk(f"the network namespace at {path}", lambda: namespace.unmake(path))
        await self._on_disk(f"the record of {record.id}", lambda: files.remove(self._directory, record))
        self._records.pop(record.id, None)
        log.info("detached", container=record.container, run=record.run, network=", ".join(record.networks))

    async def _note_left(self, record: AttachmentRecord, left: AttachmentRecord) -> None:
        """Note which links are still to be taken down. What cannot be noted is taken down once more by the next exitd,
        which CNI allows."""
        if left == record or not await asyncio.to_thread(files.exists, self._directory, record):
            return
        self._records[record.id] = left
        try:
            await asyncio.to_thread(files.write, self._directory, left)
        except OSError as error:
            log.warning("what is left of a network is not noted", container=record.container, why=error.strerror)

    async def _idle(self, what: str, path: str) -> bool:
        """Return when no plugin of an earlier exitd works on the attachment: they outlive it by a limit. False if one
        works on, or what it has left keeps its lock for another reason: the caller goes on then, too. Raises
        ShimFailed."""
        loop, seconds = asyncio.get_running_loop(), FIRST_LOOK_SECONDS
        end = loop.time() + IDLE_SECONDS
        try:
            while not namespace.is_idle(path):  # in memory: nothing that the loop would wait for
                if loop.time() > end:
                    return False
                await asyncio.sleep(seconds)
                seconds = min(seconds * 2, MOST_LOOK_SECONDS)
        except OSError as error:
            if room.is_used_up(error):
                raise ShimFailed(f"{what}: {error.strerror}") from error
            log.warning("whether plugins are at work is not known", path=path, why=error.strerror)  # holds no DEL back
        return True

    def _plugin_dirs(self, link: NetworkLink) -> tuple[str, ...]:
        """Return where its plugins were, and then where they are by today's configuration: they may have moved."""
        return tuple(dict.fromkeys((*link.plugin_dirs, *self._config().network.plugin_dirs)))

    # -- what cannot be taken down

    def stuck(self) -> tuple[StuckAttachment, ...]:
        """Return what has failed to be taken down at least once, and is still tried."""
        return tuple(sorted((stuck for stuck, _ in self._stuck()), key=attrgetter("record")))

    def _stuck(self) -> list[tuple[StuckAttachment, TakingDown]]:
        found = ((self._records[id], each) for id, each in self._taken_down.items() if id in self._records)
        return [(_stuck(record, each), each) for record, each in found if each.tries]

    async def prune_networks(self) -> PrunedNetworks:
        """Try once more what has failed to be taken down, and give up what fails again. Raises Busy while plugins are
        still at work after a limit."""
        wanted = self._stuck()
        for _, each in wanted:
            each.hurry()
        try:
            async with asyncio.timeout(PRUNE_SECONDS):
                for _, each in wanted:
                    await each.ended.wait()
        except TimeoutError as error:
            raise Busy("plugins are still at work on what is to be taken down; try again") from error
        given_up = tuple(replace(stuck, why=each.why) for stuck, each in wanted if each.is_given_up)
        gone = (stuck for stuck, each in wanted if not each.is_given_up and stuck.record not in self._records)
        return PrunedNetworks(tuple(gone), given_up)

    # -- after a daemon start

    async def load(self) -> None:
        """Read the records that earlier exitds have left; what is none is put aside."""
        try:
            found = await room.retry(lambda: asyncio.to_thread(lambda: list(files.read(self._directory))))
        except OSError as error:
            log.error("the records of networks cannot be read", directory=self._directory, why=error.strerror)
            return
        for each in found:
            if isinstance(each, AttachmentRecord):
                self._records[each.id] = each
                self._inherited.add(each.id)
            elif each.stays:
                log.error("a record of a network is left as it is", file=ascii(each.name)[:200], why=each.why)
            else:
                await self._put_aside(each.name, each.why)

    async def _put_aside(self, name: str, why: str) -> None:
        try:
            path = await asyncio.to_thread(files.put_aside, self._directory, name)
        except OSError as error:
            path = f"it stays, {error.strerror}"
        log.error("a file among the records of networks is none", file=ascii(name)[:200], why=why, put_aside=path)

    def begin(self) -> None:
        """After `load`, and once the containers are loaded: take down what is left over, and check the rest."""
        self.look()
        for record in self._records.values():
            if record.id not in self._taken_down:
                self._node.spawn(self._check(record))

    async def _check(self, record: AttachmentRecord) -> None:
        """CHECK an attachment that an earlier exitd has made, once its container has been looked up."""
        path = namespaces.network_of(self._state, record.container, record.run)
        try:
            await self._node.containers.find(record.container)
            if not (self._is_used(record) and await asyncio.to_thread(namespace.is_there, path)):
                return
        except (ExitdError, OSError) as error:
            if self._is_used(record):
                names = ", ".join(record.networks)
                log.warning("the network cannot be checked", container=record.container, network=names, why=str(error))
            return
        for link in record.links:
            await self._check_link(record, link, path)

    async def _check_link(self, record: AttachmentRecord, link: NetworkLink, path: str) -> None:
        what = {"container": record.container, "network": link.network.name}
        try:
            async with self._resting:
                await plugins.check(link.network, _endpoint(record, link, path), self._plugin_dirs(link), link.result)
            log.info("network checked", **what)
        except (ExitdError, OSError) as error:
            if self._is_used(record):
                found = "a plugin finds the network not as it was made"
                log.warning(
                    found if isinstance(error, ToolFailed) else "the network cannot be checked", **what, why=str(error)
                )

    # -- what callers are shown

    async def list_networks(self) -> tuple[NetworkView, ...]:
        """Return the configurations in their order, also those that are none."""
        settings = self._config().network
        found = await self.choice.found()
        try:
            default = (await self.choice.configured(preferred(settings))).name
        except NoSuchNetwork:
            default = ""
        return tuple(self._view(file, each, default) for file, each in found)

    def _view(self, file: str, found: NetworkConfig | str, default: str) -> NetworkView:
        if isinstance(found, str):
            return NetworkView(file, error=found)
        users = sorted(
            c.id for c in self._node.containers.values() if any(each.network == found.name for each in c.networks)
        )
        plugins_ = tuple(plugin.type for plugin in found.plugins)
        is_default = found.name == default and self._config().network.default not in (networks.NONE, networks.HOST)
        return NetworkView(
            file, found.name, found.version, plugins_, is_default, found.publishes, found.text, containers=tuple(users)
        )

    async def _on_disk(self, what: str, work: Callable[[], T]) -> T:
        try:
            return await asyncio.to_thread(work)
        except OSError as error:
            raise ShimFailed(f"{what}: {error.strerror or error}") from error


def _endpoint(record: AttachmentRecord, link: NetworkLink, path: str) -> Endpoint:
    return Endpoint(record.id, path, path, link.interface, link.ports, link.ips, link.mac)


def _answer(link: NetworkLink, result: str, path: str) -> Attached:
    try:
        return calls.answer(result, link.network.name, path, link.interface)
    except NotAnswer as error:
        raise ToolFailed(f"network {link.network.name}: what its plugins answered: {error}") from error


def _stuck(record: AttachmentRecord, under_way: TakingDown) -> StuckAttachment:
    names = record.networks
    return StuckAttachment(record.id, record.container, record.run, names, record.ports, under_way.tries, under_way.why)


def _shown(port: PublishedPort) -> str:
    return f"{port.host_ip or '0.0.0.0'}:{port.host_port}/{port.protocol}"
