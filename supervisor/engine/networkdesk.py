"""The networks of containers: what a request means, ADD before a run, and DEL once after everything of it has ended.

A record on the disk stands for an attachment from before its ADD until after its DEL (`network/records.py`). So at any
moment, whatever is killed, the records say what is to be taken down; `NetworkDesk.look` takes down those that nothing
uses any more. A DEL that fails is tried again, behind the back of everything else: the next run has a record, and an id
for the plugins, of its own. Decision 47.
"""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable, Iterable
from typing import TypeVar

import structlog

from shim.frozen import replace
from supervisor.config.settings import Config, NetworkSettings
from supervisor.engine.node import Node
from supervisor.engine.participants import Participant
from supervisor.model import networks
from supervisor.model.errors import BadRequest, Busy, ExitdError, NoSuchNetwork, ShimFailed, ToolFailed, WrongState
from supervisor.model.networks import NetworkView, PublishedPort, TakenPorts
from supervisor.model.values import Container, Phase, Spec
from supervisor.network import calls, files, hostports, namespace, plugins
from supervisor.network.calls import Endpoint, NotAnswer
from supervisor.network.conflist import NetworkConfig
from supervisor.network.records import AttachmentRecord
from supervisor.runtime.oci import namespaces
from supervisor.system import room

FIRST_SECONDS = 10.0  # how long a clean-up waits for the first DEL
IDLE_SECONDS = 35.0  # for plugins of an earlier exitd, which outlive it by less
AGAIN_SECONDS = (1.0, 5.0, 30.0, 120.0, 600.0)  # between two DELs of one attachment; the last is repeated
ADDS_AT_ONCE, OTHERS_AT_ONCE = 8, 4  # plugins take processors, and wait for the locks of iptables
TURN_SECONDS = 120.0  # how long an ADD waits until so many others are done
FIRST_LOOK_SECONDS, MOST_LOOK_SECONDS = 0.02, 1.0  # between two looks at plugins of an earlier exitd

T = TypeVar("T")

log = structlog.get_logger(__name__)


class NetworkDesk(Participant):
    """Owns the records of attachments. One per daemon; belongs to its event loop."""

    def __init__(self, node: Node, config: Callable[[], Config], root: str, state: str) -> None:
        self._node = node
        self._config = config
        self._directory = f"{root}/networks"
        self._state = state
        self._records: dict[str, AttachmentRecord] = {}
        self._inherited: set[str] = set()  # those of an earlier exitd, whose plugins may still be at work
        self._taken_down: dict[str, asyncio.Event] = {}  # DELs that have begun; set after the first try
        self._adding = asyncio.Semaphore(ADDS_AT_ONCE)
        self._resting = asyncio.Semaphore(OTHERS_AT_ONCE)  # CHECKs and DELs: none of them keeps an ADD waiting

    # -- what a request means

    async def settled(self, spec: Spec) -> Spec:
        """Return the spec of a container that is no member of a pod, with its network settled. Raises BadRequest,
        NoSuchNetwork."""
        publishes = bool(spec.ports or spec.publish_all)
        if spec.network in (networks.NONE, networks.HOST):
            return _refuse_ports(spec) if publishes else spec
        settings = self._config().network
        if not spec.network and not publishes:
            if spec.bundle or spec.task is not None:
                return replace(spec, network=networks.NONE)
            return await self._by_default(spec, settings)
        network, hint = await self._chosen(spec.network or _preferred(settings))
        if publishes and not network.publishes:
            raise BadRequest(
                f"ports: network {network.name} has no plugin that publishes ports; add portmap to its file, with "
                '"capabilities": {"portMappings": true}',
                field="ports",
            )
        return replace(spec, network=network.name, network_hint=hint)

    async def _by_default(self, spec: Spec, settings: NetworkSettings) -> Spec:
        if settings.default in (networks.NONE, networks.HOST):
            return replace(spec, network=settings.default)
        if settings.default != networks.AUTO:
            return replace(spec, network=(await self._configured(settings.default)).name)
        network, passed = _first(await self._found())
        if network is None:
            hint = f"no network is configured in {settings.conf_dir}"
        elif kind := await asyncio.to_thread(files.missing, network, settings.plugin_dirs):
            hint = f"network {network.name} needs the plugin {kind}, which is not installed"
        else:
            return replace(spec, network=network.name, network_hint=passed)
        return replace(
            spec, network=networks.NONE, network_hint=f"{hint}: the container has a loopback interface alone"
        )

    async def _configured(self, name: str) -> NetworkConfig:
        return (await self._chosen(name))[0]

    async def _chosen(self, name: str) -> tuple[NetworkConfig, str]:
        """Return the network of that name; for `bridge`, where none is called so, and `auto`, the first, and with it
        the words about a file that was passed over. Raises NoSuchNetwork."""
        found, directory = await self._found(), self._config().network.conf_dir
        known = [each for _, each in found if isinstance(each, NetworkConfig)]
        named = next((each for each in known if each.name == name), None)
        if named is not None:
            return named, ""
        first, passed = _first(found)
        if first is not None and name in (networks.BRIDGE, networks.AUTO):
            return first, passed
        wrong = "".join(f"; {file}: {why}" for file, why in found if isinstance(why, str))
        there = ", ".join(each.name for each in known) or "none"
        raise NoSuchNetwork(
            f"no network {name} is configured: there is {there}; write a configuration of CNI into {directory} "
            f"(docs/networks.md has one){wrong}",
            network=name,
        )

    async def _found(self) -> list[files.Config]:
        return await asyncio.to_thread(files.configurations, self._config().network.conf_dir)

    def with_ports(self, spec: Spec, exposed: Iterable[tuple[int, str]]) -> Spec:
        """Return the spec with a port of the machine for each that it publishes. `exposed`: those that its image
        names, which `publish_all` publishes, too. Raises BadRequest, WrongState."""
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
        if all(port.host_port for port in wanted):
            return replace(spec, ports=tuple(wanted))
        taken = TakenPorts(port for each in self._node.containers.values() for port in each.spec.ports)
        for port in wanted:
            taken.add(port)
        settled: list[PublishedPort] = []
        among = hostports.numbers()  # going on where the port before has been found
        for port in wanted:
            settled.append(port if port.host_port else hostports.choose(port, taken, among))
        return replace(spec, ports=tuple(settled))

    # -- a run begins

    async def attach(self, container: Container) -> Container:
        """Return the container with what its network has given this run, whose namespace is bound then; a member of a
        pod with what the pod has. Raises NoSuchNetwork, WrongState, ShimFailed, ToolFailed, ToolMissing, TimedOut,
        Busy; what has been done by then is undone when the failed run is cleaned up."""
        spec = container.spec
        if spec.sandbox:
            pause = self._node.containers.get(spec.sandbox)
            return replace(container, networks=pause.networks if pause is not None else ())
        if not networks.has_own(spec.network, spec.sandbox):
            return container
        network, settings = await self._configured(spec.network), self._config().network
        if kind := await asyncio.to_thread(files.missing, network, settings.plugin_dirs):
            raise plugins.missing(network, kind, settings.plugin_dirs)
        record = AttachmentRecord(container.id, container.run, network, settings.plugin_dirs, spec.ports)
        path = namespaces.network_of(self._state, container.id, container.run)
        if port := await asyncio.to_thread(hostports.first_taken, spec.ports):
            raise WrongState(f"port {_shown(port)}: a program of this machine has it already", id=container.id)
        async with self._turn_to_add(f"network {network.name}"):
            self._refuse_taken(container)
            self._records[record.id] = record
            await self._on_disk(f"the record of {record.id}", lambda: files.write(self._directory, record))
            await self._on_disk(f"a network namespace at {path}", lambda: namespace.make(path))
            result = await plugins.add(network, Endpoint(record.id, path, path, spec.ports), settings.plugin_dirs)
        complete = self._records[record.id] = record.with_result(result)
        try:
            attached = calls.answer(result, network.name, path)
        except NotAnswer as error:
            raise ToolFailed(f"network {network.name}: what its plugins answered: {error}") from error
        await self._on_disk(f"the record of {record.id}", lambda: files.write(self._directory, complete))
        log.info("attached", container=container.id, run=container.run, network=network.name, ips=attached.addresses)
        return replace(container, networks=(attached,))

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

    def _refuse_taken(self, container: Container) -> None:
        """Raise WrongState for a port that another container has, or has had and the rules of its network are still
        there: they would take its connections."""
        wanted = TakenPorts(container.spec.ports)
        for record in self._records.values():
            taken = () if record.container == container.id else record.ports
            if port := next(filter(wanted.clashes, taken), None):
                other = self._node.containers.get(record.container)
                name = other.spec.name if other is not None else record.container[:12]
                why = f"is published by {name} already"
                if not self._is_used(record):
                    why = (
                        f"was published by {name}, whose network is still being taken down: {record.id} in exitd's log"
                    )
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
            is_stray = not is_known and os.path.isdir(f"{self._state}/c/{record.container}")  # it is ended first
            if not is_stray and not self._is_used(record):
                self._take_down(record)

    def _is_used(self, record: AttachmentRecord, cleaned: str = "") -> bool:
        """Return whether anything of the record's run may live. `cleaned`: a container of whose last run nothing
        does."""
        containers = self._node.containers
        own = containers.get(record.container)
        if own is not None and own.id != cleaned and not own.clean and (own.damaged or own.run == record.run):
            return True
        members = containers.members(record.container)
        runs = (0, record.run)  # 0: not known. What is being made joins a run that its row does not name yet
        living = [c for c in members if not c.clean and c.id != cleaned]
        return any(c.phase is Phase.CREATING or c.sandbox_run in runs for c in living)

    def _take_down(self, record: AttachmentRecord) -> asyncio.Event:
        tried = self._taken_down.get(record.id)
        if tried is None:
            tried = self._taken_down[record.id] = asyncio.Event()
            self._node.spawn(self._until_down(record, tried))
        return tried

    async def _until_down(self, record: AttachmentRecord, tried: asyncio.Event) -> None:
        attempt = 0
        try:
            while True:
                try:
                    await self._delete(record)
                    return
                except (ExitdError, OSError) as error:
                    seconds = AGAIN_SECONDS[min(attempt, len(AGAIN_SECONDS) - 1)]
                    what = {"container": record.container, "run": record.run, "again_in_seconds": seconds}
                    log.warning("network not taken down", **what, network=record.network.name, why=str(error))
                if await self._is_given_up(record):
                    return
                tried.set()
                await asyncio.sleep(seconds)
                attempt += 1
        finally:
            tried.set()
            self._taken_down.pop(record.id, None)

    async def _is_given_up(self, record: AttachmentRecord) -> bool:
        """Return whether the record's file has been removed by hand: then exitd forgets it."""
        if await asyncio.to_thread(files.exists, self._directory, record):
            return False
        path = namespaces.network_of(self._state, record.container, record.run)
        with contextlib.suppress(ShimFailed):
            await self._on_disk(path, lambda: namespace.unmake(path))
        log.warning("network given up, its record was removed", container=record.container, run=record.run)
        self._records.pop(record.id, None)
        return True

    async def _delete(self, record: AttachmentRecord) -> None:
        path = namespaces.network_of(self._state, record.container, record.run)
        if record.id in self._inherited:
            what = f"the plugins of {record.id}"
            if not await self._idle(what, path):
                log.warning("a process that a plugin has left keeps its lock", container=record.container, path=path)
            self._inherited.discard(record.id)
        bound = await asyncio.to_thread(namespace.is_there, path)
        endpoint = Endpoint(record.id, path if bound else "", path, record.ports)
        async with self._resting:
            await plugins.delete(record.network, endpoint, self._plugin_dirs(record), record.result)
        await self._on_disk(f"the network namespace at {path}", lambda: namespace.unmake(path))
        await self._on_disk(f"the record of {record.id}", lambda: files.remove(self._directory, record))
        self._records.pop(record.id, None)
        log.info("detached", container=record.container, run=record.run, network=record.network.name)

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

    def _plugin_dirs(self, record: AttachmentRecord) -> tuple[str, ...]:
        """Return where its plugins were, and then where they are by today's configuration: they may have moved."""
        return tuple(dict.fromkeys((*record.plugin_dirs, *self._config().network.plugin_dirs)))

    # -- after a daemon start

    async def load(self) -> None:
        """Read the records that earlier exitds have left; what is none is put aside."""
        try:
            found = await room.surely(lambda: asyncio.to_thread(lambda: list(files.read(self._directory))))
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
            if self._is_used(record) and await asyncio.to_thread(namespace.is_there, path):
                endpoint = Endpoint(record.id, path, path, record.ports)
                async with self._resting:
                    await plugins.check(record.network, endpoint, self._plugin_dirs(record), record.result)
                log.info("network checked", container=record.container, network=record.network.name)
        except (ExitdError, OSError) as error:
            if self._is_used(record):
                found = "a plugin finds the network not as it was made"
                event = found if isinstance(error, ToolFailed) else "the network cannot be checked"
                log.warning(event, container=record.container, network=record.network.name, why=str(error))

    # -- what callers are shown

    async def list_networks(self) -> tuple[NetworkView, ...]:
        """Return the configurations in their order, also those that are none."""
        settings = self._config().network
        found = await self._found()
        wanted = _preferred(settings)
        try:
            default = (await self._configured(wanted)).name if wanted not in (networks.NONE, networks.HOST) else ""
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


def _preferred(settings: NetworkSettings) -> str:
    """Return the network for containers that publish ports and name none."""
    return networks.BRIDGE if settings.default in (networks.NONE, networks.HOST, networks.AUTO) else settings.default


def _first(found: list[files.Config]) -> tuple[NetworkConfig | None, str]:
    """Return the first network, and the words about a file before it that is none: it was to be the first."""
    network = next((each for _, each in found if isinstance(each, NetworkConfig)), None)
    file, why = found[0] if found else ("", "")
    if network is None or not isinstance(why, str):
        return network, ""
    return network, f"{file}: {why}; the container is in the next network, {network.name}"


def _refuse_ports(spec: Spec) -> Spec:
    why = "they are the machine's" if spec.network == networks.HOST else "nothing reaches them"
    raise BadRequest(f"ports: with network {spec.network} {why}; leave the ports out, or name a network", field="ports")


def _shown(port: PublishedPort) -> str:
    return f"{port.host_ip or '0.0.0.0'}:{port.host_port}/{port.protocol}"
