"""A network namespace for a daemon, with a bridge of CNI's own plugins in it: nothing of this machine's network is
touched, and nothing of it may be left there."""

import contextlib
import ctypes
import json
import os
import pathlib
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from supervisor.network import namespace
from tests.system import daemons
from tests.system.daemons import Daemon
from tests.system.exitctl import Cli
from tests.system.runtimes import Gates
from tests.system.waits import until

SECONDS = 30.0
ADDRESS = "range .NetworkSettings.Networks}}{{.IPAddress}}{{end"
PLUGINS = "/usr/lib/cni"
SUBNET, SECOND_SUBNET = "10.99.0.0/24", "10.96.0.0/24"


@dataclass(frozen=True)
class Net:
    """The daemon's namespace, bound at `path`; `base` has the configurations and the leases of addresses."""

    base: pathlib.Path

    @property
    def path(self) -> str:
        return str(self.base / "net")

    @property
    def configurations(self) -> pathlib.Path:
        return self.base / "cni"

    def write(self, name: str, *plugins: dict[str, Any], number: int = 10, version: str = "1.0.0") -> None:
        document = {"cniVersion": version, "name": name, "plugins": list(plugins)}
        path = self.configurations / f"{number}-{name}.conflist"
        path.write_text(json.dumps(document))
        path.chmod(0o644)

    def bridge(self, subnet: str = SUBNET, **more: Any) -> dict[str, Any]:
        """The plugin of a bridge, whose addresses are kept below `base`."""
        ipam = {
            "type": "host-local",
            "dataDir": str(self.base / "leases"),
            "ranges": [[{"subnet": subnet}]],
            "routes": [{"dst": "0.0.0.0/0"}],
        }
        return {"type": "bridge", "bridge": "exitd0", "isGateway": True, "ipMasq": True, "ipam": ipam, **more}

    def write_second(self) -> None:
        """Another network, `second`, which gives the addresses that are asked for, and publishes no ports."""
        takes = {"ips": True, "mac": True}
        self.write("second", self.bridge(SECOND_SUBNET, bridge="exitd2", capabilities=takes), number=20)

    def run(self, *words: str) -> str:
        """What a command printed that ran in the daemon's namespace."""
        found = subprocess.run(
            ["nsenter", f"--net={self.path}", *words], capture_output=True, text=True, timeout=SECONDS, check=True
        )
        return found.stdout

    def leases(self) -> list[str]:
        """The addresses that are taken."""
        return sorted(each.name for each in self.base.glob("leases/*/*") if each.name[:1].isdigit())

    def links(self) -> list[str]:
        """The interfaces of containers on the daemon's side."""
        found = json.loads(self.run("ip", "-json", "link"))
        return sorted(each["ifname"] for each in found if each["ifname"].startswith("veth"))

    def rules(self) -> list[str]:
        """The rules that stand for a container: masquerading and published ports."""
        found = self.run("iptables-save", "-t", "nat")
        return [line for line in found.splitlines() if "id: " in line or line.startswith("-A CNI-DN")]

    def left(self, daemon: Daemon) -> dict[str, list[str]]:
        """What is there of containers' networks."""
        return {
            "leases": self.leases(),
            "links": self.links(),
            "rules": self.rules(),
            "records": sorted(each.name for each in daemon.root.glob("networks/*")),
            "namespaces": sorted(each.name for each in daemon.state.glob("netns/*")),
        }


NOTHING: dict[str, list[str]] = {"leases": [], "links": [], "rules": [], "records": [], "namespaces": []}
PORTMAP = {"type": "portmap", "capabilities": {"portMappings": True}}


def enter(fd: int) -> None:
    """Take the calling thread into a network namespace, for good: Python 3.11 has no setns(2)."""
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.setns(fd, 0x40000000) == 0, os.strerror(ctypes.get_errno())


@contextlib.contextmanager
def net() -> Iterator[Net]:
    with daemons.directory() as base:
        made = Net(base)
        made.configurations.mkdir()
        namespace.make(made.path)
        try:
            made.write("pods", made.bridge(), PORTMAP)
            yield made
        finally:
            namespace.unmake(made.path)


GATED = """#!/bin/sh
gate={gates}/{name}-$CNI_COMMAND
for each in $gate-$CNI_IFNAME.before $gate-$CNI_IFNAME.after; do
	[ ! -p $each ] || gate=$gate-$CNI_IFNAME
done
if [ -p $gate.before ]; then echo $$ >$gate.here; read line <$gate.before; fi
if [ -p $gate.after ]; then
	{plugins}/{name}
	status=$?
	echo $$ >$gate.here
	read line <$gate.after
	exit $status
fi
exec {plugins}/{name}
"""
OF_BRIDGE = """#!/bin/sh
if [ "$(cat /proc/$PPID/comm)" = bridge ] && [ -p {gates}/iptables-$CNI_COMMAND.before ]; then
	echo $$ >{gates}/iptables-$CNI_COMMAND.here
	read line <{gates}/iptables-$CNI_COMMAND.before
fi
exec {iptables} "$@"
"""


class PluginGates(Gates):
    """Plugins that can be halted before or after their work: `bridge-ADD.before`, `host-local-DEL.after`, ...,
    and those of one interface alone: `bridge-ADD-eth1.before`. At
    `iptables-DEL.before` bridge has removed the interface, by which alone it finds the rules that it is to remove."""

    def __init__(self, directory: pathlib.Path) -> None:
        super().__init__(directory)
        for name in ("bridge", "host-local", "portmap"):
            path = directory / name
            path.write_text(GATED.format(gates=directory, name=name, plugins=PLUGINS))
            path.chmod(0o755)
        path = directory / "iptables"
        path.write_text(OF_BRIDGE.format(gates=directory, iptables=shutil.which("iptables")))
        path.chmod(0o755)

    @property
    def environment(self) -> dict[str, str]:
        """Of a daemon whose plugins find the gated iptables."""
        return {"PATH": f"{self.directory}:{os.environ['PATH']}"}


@contextlib.contextmanager
def gates(made: Net) -> Iterator[PluginGates]:
    found = PluginGates(made.base / "gates")
    try:
        yield found
    finally:
        found.end()


def options(made: Net, *plugin_dirs: str, config: str = "") -> tuple[str, ...]:
    """Of a daemon that has this network as its default. `config`: more of its configuration."""
    return ("--config", str(_config(made, [*plugin_dirs, PLUGINS], config)), "--default-network", "auto")


def _config(made: Net, plugin_dirs: list[str], more: str) -> pathlib.Path:
    path = made.base / "config.toml"
    network = f'[network]\nconf_dir = "{made.configurations}"\nplugin_dirs = {json.dumps(plugin_dirs)}\n'
    path.write_text(network + more)
    path.chmod(0o600)
    return path


@contextlib.contextmanager
def cli(daemon: Daemon, made: Net) -> Iterator[Cli]:
    """Its commands; afterwards nothing of a container's network is left."""
    yield Cli(daemon)
    with daemon.client() as client:
        daemons.remove_all(client)
    until(lambda: made.left(daemon) == NOTHING, f"left behind: {made.left(daemon)}")


@contextlib.contextmanager
def daemon(made: Net, *plugin_dirs: str, config: str = "", **how: Any) -> Iterator[Daemon]:
    """A daemon in that namespace. `plugin_dirs`: before the machine's own."""
    extra = (*options(made, *plugin_dirs, config=config), *how.pop("extra", ()))
    with daemons.daemon(wrapper=("nsenter", f"--net={made.path}"), extra=extra, **how) as found:
        yield found
