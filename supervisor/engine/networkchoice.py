"""What a request means by its networks: their names, their order and their addresses, by the configurations of the
moment."""

import asyncio
from collections.abc import Callable, Iterable

from shim.frozen import replace
from supervisor.config.settings import Config, NetworkSettings
from supervisor.model import networks
from supervisor.model.errors import BadRequest, NoSuchNetwork
from supervisor.model.networks import AddressWish
from supervisor.model.values import Spec
from supervisor.network import files
from supervisor.network.conflist import IPS, MAC, NetworkConfig


class NetworkChoice:
    """Reads the configurations anew for each question."""

    def __init__(self, config: Callable[[], Config]) -> None:
        self._config = config

    async def settled(self, spec: Spec) -> Spec:
        """Return the spec of a container that is no member of a pod, with its network settled. Raises BadRequest,
        NoSuchNetwork."""
        publishes = bool(spec.ports or spec.publish_all)
        networks.refuse_mixed(spec.network, spec.more_networks)
        if spec.network in (networks.NONE, networks.HOST):
            return _refuse_addresses(_refuse_ports(spec) if publishes else spec)
        settings = self._config().network
        if not spec.network and not publishes:
            if spec.bundle or spec.task is not None:
                return _refuse_addresses(replace(spec, network=networks.NONE))
            spec = await self._by_default(spec, settings)
            if not spec.wishes or not networks.has_own(spec.network, spec.sandbox):
                return _refuse_addresses(spec)
        network, hint = await self._chosen(spec.network or preferred(settings))
        found = [network, *[await self.configured(name) for name in spec.more_networks]]
        names = [each.name for each in found]
        if publishes and not any(each.publishes for each in found):
            raise unpublished(names)
        if twice := next((name for name in names if names.count(name) > 1), ""):
            raise BadRequest(f"more_networks: network {twice} is there twice", field="more_networks")
        wishes = _settled_wishes(spec, found)
        return replace(
            spec,
            network=network.name,
            more_networks=tuple(names[1:]),
            wishes=wishes,
            network_hint=spec.network_hint or hint,
        )

    async def _by_default(self, spec: Spec, settings: NetworkSettings) -> Spec:
        if settings.default in (networks.NONE, networks.HOST):
            return replace(spec, network=settings.default)
        if settings.default != networks.AUTO:
            return replace(spec, network=(await self.configured(settings.default)).name)
        network, passed = _first(await self.found())
        if network is None:
            hint = f"no network is configured in {settings.conf_dir}"
        elif kind := await asyncio.to_thread(files.missing, network, settings.plugin_dirs):
            hint = f"network {network.name} needs the plugin {kind}, which is not installed"
        else:
            return replace(spec, network=network.name, network_hint=passed)
        return replace(
            spec, network=networks.NONE, network_hint=f"{hint}: the container has a loopback interface alone"
        )

    async def configured(self, name: str) -> NetworkConfig:
        """Return the network of that name, as `_chosen`. Raises NoSuchNetwork."""
        return (await self._chosen(name))[0]

    async def _chosen(self, name: str) -> tuple[NetworkConfig, str]:
        """Return the network of that name; for `bridge`, where none is called so, and `auto`, the first, and with it
        the words about a file that was passed over. Raises NoSuchNetwork."""
        found, directory = await self.found(), self._config().network.conf_dir
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

    async def found(self) -> list[files.Config]:
        """Return all files, also those that are none."""
        return await asyncio.to_thread(files.configurations, self._config().network.conf_dir)


def preferred(settings: NetworkSettings) -> str:
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


def _refuse_addresses(spec: Spec) -> Spec:
    if spec.wishes:
        raise BadRequest(
            f"addresses: with network {spec.network} there is none to choose; leave them out, or name a network",
            field="addresses",
        )
    return spec


def unpublished(names: Iterable[str]) -> BadRequest:
    """Return the refusal of ports that none of these networks publishes."""
    return BadRequest(
        f"ports: network {' or '.join(names)} has no plugin that publishes ports; add portmap to its file, "
        'with "capabilities": {"portMappings": true}',
        field="ports",
    )


def refuse_untaken(network: NetworkConfig, wish: AddressWish) -> None:
    """Raise BadRequest for addresses that no plugin of the network takes."""
    for capability, value in ((IPS, wish.ips), (MAC, wish.mac)):
        if value and not network.takes(capability):
            raise BadRequest(
                f"addresses: network {network.name} gives none that is asked for; add "
                f'"capabilities": {{"{capability}": true}} to the plugin in its file that does (bridge, macvlan)',
                field="addresses",
            )


def _settled_wishes(spec: Spec, found: list[NetworkConfig]) -> tuple[AddressWish, ...]:
    """Return the wishes with the names of their networks, `found`, one for each. Raises BadRequest for a network that
    takes none."""
    known = {"": found[0], **dict(zip(spec.networks, found, strict=True)), **{each.name: each for each in found}}
    settled: dict[str, AddressWish] = {}
    for wish in spec.wishes:
        network = known.get(wish.network)
        if network is None:
            raise BadRequest(
                f"addresses: {wish.network} is none of its networks, {', '.join(each.name for each in found)}",
                field="addresses",
            )
        refuse_untaken(network, wish)
        if network.name in settled:
            raise BadRequest(f"addresses: those of network {network.name} are there twice", field="addresses")
        settled[network.name] = replace(wish, network=network.name)
    return tuple(settled.values())
