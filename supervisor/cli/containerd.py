"""`doctor`'s lines about containerd: whether it finds the relay, the relay finds exitd, and its configuration has the
runtime."""

import os
import shutil
import socket
import struct
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

from protos.containerd import task_pb2 as pb
from shim import programs
from shim.frozen import frozen
from supervisor import __version__
from supervisor.model.errors import Code
from supervisor.monitor import probe
from supervisor.monitor.probe import Capability
from supervisor.ttrpc.blocking import BlockingClient, connected
from supervisor.ttrpc.faults import CallFailed, Closed

ADDRESS = "/run/containerd/containerd.sock"
CONFIG = "/etc/containerd/config.toml"
SOCKETS = "/run/containerd/s"  # of the relays, whatever containerd's own state directory is
STATE = "/run/exitd"  # the relay's default
RELAY = "containerd-shim-exitd-v2"
RUNTIME = "io.containerd.exitd.v2"
CRI = {"io.containerd.grpc.v1.cri", "io.containerd.cri.v1.runtime"}
SHARE = "share/exitd/containerd"
SECONDS = 5.0


@frozen
class ContainerdSetup:
    """The containerd that runs, as its process was started; pid 0: the one that would be started from here."""

    program: str
    pid: int = 0
    config: str = ""  # as given to it; empty: its default
    path: str = ""  # where it looks for shims
    state: str = STATE  # where its relays look for exitd


def chain(state: str) -> Iterator[tuple[str, Capability]]:
    """Yield the lines; one quiet line if there is no containerd. `state` is exitd's state directory."""
    address = os.environ.get("CONTAINERD_ADDRESS") or ADDRESS
    pid, why = listener(address)
    found = looked_at(pid, os.environ)
    if not pid and not found.program:
        yield "containerd", Capability(True, "not on this machine; exitd works without it")
        return
    yield "containerd", _alive(found, pid, why or f"listens on {address}")
    yield "relay", relay(found.path)
    yield "relay to exitd", answer(state, found.state)
    yield "mount namespace", mounts(pid, listener(f"{found.state}/shimv2.sock")[0])
    yield "relay sockets", sockets()
    yield "CRI handler", handler(found)


def listener(address: str) -> tuple[int, str]:
    """Return the process that listens there, or 0 and why it is not known."""
    try:
        with connected(address, SECONDS) as connection:
            size = struct.calcsize("3i")
            pid, _, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
            return int(pid), ""
    except Closed as error:
        return 0, error.text


def looked_at(pid: int, ours: Mapping[str, str]) -> ContainerdSetup:
    """Inspect it through /proc, as far as permitted; otherwise use this process's environment."""
    try:
        program = os.readlink(f"/proc/{pid}/exe")
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
        environ = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return ContainerdSetup(shutil.which("containerd") or "", path=ours.get("PATH", ""), state=_state(ours))
    theirs = dict(pair.split("=", 1) for pair in environ if "=" in pair)
    path = f"{theirs.get('PATH', '')}:{os.path.dirname(program)}"  # the last place in which it looks
    return ContainerdSetup(program, pid, config_of(words), path, _state(theirs))


def config_of(words: list[str]) -> str:
    """Return the configuration file that a containerd's command line names."""
    for word, after in zip(words, [*words[1:], ""], strict=True):
        name, equals, value = word.partition("=")
        if name in ("-c", "--config", "-config"):
            return value if equals else after
    return ""


def _state(environ: Mapping[str, str]) -> str:
    """Return the state directory as the relay reads it."""
    named = environ.get("EXITD_STATE", "")
    return named if named.startswith("/") else STATE


def _alive(found: ContainerdSetup, pid: int, said: str) -> Capability:
    if not pid:
        cure = "start it (systemctl start containerd), or name its socket with CONTAINERD_ADDRESS"
        return Capability(False, f"{found.program} is installed; {said}", cure)
    if not found.pid:
        return Capability(
            False, f"process {pid} {said}; how it was started cannot be read", "run exitctl doctor as root"
        )
    return Capability(True, f"{found.program}, process {pid}, {said}")


def relay(path: str) -> Capability:
    """Check that the program is where containerd looks, and has exitctl's version."""
    where = shutil.which(RELAY, path=path)
    if where is None:
        try:
            cure = f"ln -s {programs.find(RELAY)} /usr/local/bin/"
        except FileNotFoundError as error:
            cure = str(error)
        return Capability(False, f"{RELAY} is not on containerd's PATH ({path.strip(':')})", cure)
    try:
        said = _output(where, "-v").split()
    except (OSError, subprocess.SubprocessError) as error:
        return Capability(False, f"{where} -v fails: {error}", "install exitd again, and put a link to its relay there")
    version = said[said.index("Version:") + 1] if "Version:" in said[:-1] else "unknown"
    if version != __version__:
        cure = f"put a link there to the {RELAY} of this exitd"
        return Capability(False, f"{where} is of version {version}, exitd is {__version__}", cure)
    return Capability(True, f"{where}, version {version}")


def answer(state: str, theirs: str) -> Capability:
    """Check that exitd answers where the relays look for it. A call without a relay's greeting is refused, which is an
    answer."""
    if os.path.realpath(state) != os.path.realpath(theirs):
        cure = f"give containerd EXITD_STATE={state}, or look there: exitctl doctor --state {theirs}"
        return Capability(False, f"containerd's relays look for exitd in {theirs}, not in {state}", cure)
    path = f"{theirs}/shimv2.sock"
    try:
        with BlockingClient(path, SECONDS) as client:
            client.call("containerd.task.v2.Task/Connect", pb.ConnectRequest(), pb.ConnectResponse, SECONDS)
    except CallFailed as error:
        if error.code != Code.FAILED_PRECONDITION:
            cure = "start exitd (systemctl start exitd); what containerd asks waits until then"
            return Capability(False, f"no answer on {path}: {error.text}", cure)
    return Capability(True, f"exitd answers on {path}")


def mounts(theirs: int, ours: int, proc: str = "/proc") -> Capability:
    """Check that the processes containerd and exitd, 0 where there is none, see the same mounts: a fifo or a root file
    system that one of them names has to be there for the other."""
    if not theirs or not ours:
        return Capability(True, "can be looked at when both containerd and exitd run")
    try:
        found = [os.stat(f"{proc}/{pid}/ns/mnt") for pid in (theirs, ours)]
    except OSError as error:
        return Capability(False, f"{error.filename}: {error.strerror}", "run exitctl doctor as root, on the host")
    if (found[0].st_dev, found[0].st_ino) == (found[1].st_dev, found[1].st_ino):
        return Capability(True, "containerd and exitd have the same")
    cure = (
        "start both on the host itself: no container, no unshare, and in neither's unit PrivateTmp, PrivateMounts, "
        "ProtectSystem, ProtectHome, ReadWritePaths or the like"
    )
    return Capability(
        False,
        f"containerd, process {theirs}, and exitd, process {ours}, have different ones: fifos of one may not exist for "
        "the other",
        cure,
    )


def sockets(place: str = SOCKETS) -> Capability:
    """Check that a relay can make its socket there."""
    there = place if os.path.lexists(place) else probe.existing_parent(place)
    if os.path.isdir(there) and os.access(there, os.W_OK | os.X_OK):
        return Capability(True, f"can be made in {place}")
    return Capability(False, f"cannot be made in {place}", f"run as root; {there} must be a directory and writable")


def handler(found: ContainerdSetup) -> Capability:
    """Check that a runtime of CRI is exitd's, in the configuration as containerd itself assembles it."""
    words = (found.program, *(("-c", found.config) if found.config else ()), "config", "dump")
    name = found.config or CONFIG
    try:
        config = tomllib.loads(_output(*words))
    except (OSError, subprocess.SubprocessError, tomllib.TOMLDecodeError) as error:
        return Capability(False, f"{name} cannot be read: {error}", f"try it as root: {' '.join(words)}")
    if {"cri", *CRI} & set(config.get("disabled_plugins", ())):
        return Capability(True, f"CRI is disabled in {name}; ctr and nerdctl need no entry")
    names = sorted(handlers(config))
    wanted = form_of(_version(name))
    if not names:
        cure = f"for kubelet and crictl import {_share()}/{wanted}; ctr and nerdctl need no entry"
        return Capability(False, f"no runtime in {name} is of the type {RUNTIME}", cure)
    if mixed := of_another_version(name, config):
        return Capability(
            False,
            f"{name} is of version {_version(name)}, {mixed} of version {_version(mixed)}: containerd reads all as the "
            "newer, and passes over the CRI settings of the older",
            f"import {_share()}/{wanted} in its place, or bring {name} up to date: containerd config migrate",
        )
    return Capability(True, f"{', '.join(names)}, in {name} and what it imports")


def form_of(version: int) -> str:
    """Return which of exitd's files goes with a containerd configuration of this version, 0 if that is not known."""
    if not version:
        return "exitd-1.toml (without a configuration of version 2, on containerd 2.x: exitd-2.toml)"
    return "exitd-2.toml" if version >= 3 else "exitd-1.toml"


def of_another_version(name: str, dumped: dict[str, object]) -> str:
    """Return a file that configuration `name` imports and that is written in another version's form; empty if there is
    none. `dumped`: what containerd made of it all, which names the files."""
    imports, own = dumped.get("imports"), _version(name)
    for each in imports if isinstance(imports, list) else ():
        if isinstance(each, str) and own and (version := _version(each)) and (version >= 3) is not (own >= 3):
            return each
    return ""


def _version(path: str) -> int:
    """Return the version that a configuration file states; 0 if there is none, or it cannot be read."""
    try:
        with open(path, "rb") as file:
            found = tomllib.load(file).get("version")
    except (OSError, ValueError):
        return 0
    return found if isinstance(found, int) else 0


def _share() -> str:
    """Return where the files for containerd are installed: in the environment that this program runs in."""
    installed = f"{sys.prefix}/{SHARE}"
    return installed if os.path.isdir(installed) else SHARE


def handlers(config: dict[str, object]) -> Iterator[str]:
    """Yield the names of CRI's runtimes that are exitd's, in a version 2 or 3 configuration."""
    for plugin in CRI:
        runtimes = _within(config, "plugins", plugin, "containerd", "runtimes")
        yield from (name for name in runtimes if _within(runtimes, name).get("runtime_type") == RUNTIME)


def _within(table: object, *keys: str) -> dict[str, object]:
    """Return the table below these keys; an empty one if there is none."""
    for key in keys:
        table = table.get(key) if isinstance(table, dict) else None
    return table if isinstance(table, dict) else {}


def _output(*words: str) -> str:
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, timeout=SECONDS, check=True)
    return done.stdout.decode(errors="replace")
