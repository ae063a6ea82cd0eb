"""How a shim v2 binary is called, and what it prints: names, arguments, environment, stdin and stdout. Pure, but for
the search along PATH.

What `start` prints has four forms: the address alone; JSON of version 2 or 3; since containerd 2.3 a message. What it
reads has two: the options, or since containerd 2.3 a message around them. Neither says which form it has: `-v` does.
"""

import json
import re
import shutil
from collections.abc import Mapping
from enum import Enum
from typing import Any

from google.protobuf.any_pb2 import Any as Packed
from google.protobuf.message import DecodeError

from protos.containerd import bootstrap_pb2, task_pb2
from shim.frozen import frozen
from shim.patterns import LatePattern
from supervisor.model.errors import BadRequest, RuntimeMissing, ShimFailed
from supervisor.runtime.foreign_shim.verdict import instant_ns
from supervisor.runtime.oci.runtime import NOT_PASSED_ON, SEARCH_PATH

# As the program that publishes events: some shims require a name, but none calls it any more.
NO_PUBLISHER = "/bin/false"
FIRST_SHOWN, LAST_SHOWN = 100, 400  # characters of a shim's output in an error: the reason is at the end
FIRST_BOOTSTRAP = (2, 3)  # the first release of containerd whose shims expect the message on stdin
VERSIONS = (2, 3)  # of the Task service
SCHEMES = ("unix", "vsock", "hvsock")
RUNC_FAMILY = ("runc", "exitd")  # their containers are processes of this host, in the cgroups that their bundles name

_PART = LatePattern(r"[A-Za-z0-9][A-Za-z0-9_-]*")
_VERSION = LatePattern(r"^\s*Version:\s*v?(\d+)\.(\d+)", re.MULTILINE)  # as shims on containerd's framework print it
_ABSTRACT = LatePattern(r"/[!-~]{1,106}")


@frozen
class Shim:
    """Which binary to call, and for which container. `address` stands for containerd's: nothing need listen on it, but
    shims derive their socket's name from it, the namespace and the id. Events go to `ttrpc_address`, a path."""

    binary: str
    namespace: str
    id: str
    address: str
    ttrpc_address: str
    publish_binary: str = NO_PUBLISHER
    debug: bool = False


@frozen
class Address:
    """Where a shim serves tasks: with its scheme; without one it is the name of an abstract socket."""

    address: str
    version: int
    protocol: str = "ttrpc"


@frozen
class Deleted:
    """The end of a process as a `delete` reports it. If the binary reports it, it was not observed."""

    pid: int
    exit_status: int
    exited_at_ns: int


class Era(Enum):
    """What `start` expects on its stdin."""

    ANY = "options"  # or nothing
    BOOTSTRAP = "a message around them"
    UNKNOWN = "whatever works"


def program_name(runtime: str) -> str:
    """Return containerd-shim-runc-v2 for io.containerd.runc.v2. Raises BadRequest."""
    parts = runtime.split(".")
    if len(parts) < 2 or not all(_PART.fullmatch(part) for part in parts):
        raise BadRequest(f"runtime {runtime!r}: a shim is named like io.containerd.runc.v2", runtime=runtime)
    return f"containerd-shim-{parts[-2]}-{parts[-1]}"


def is_of_runc(runtime: str) -> bool:
    """Return whether it takes runc's options, and puts a container into the cgroup that its bundle names."""
    return runtime.split(".")[-2] in RUNC_FAMILY


def find(runtime: str, path: str) -> str:
    """Return the absolute path of a runtime's shim, searched along `path`. Raises BadRequest, RuntimeMissing."""
    program = program_name(runtime)
    places = ":".join(place for place in path.split(":") if place.startswith("/"))
    found = shutil.which(program, path=places) if places else None
    if found is None:
        text = f"runtime {runtime} is the program {program}, which is in none of {places or 'no directories'}"
        raise RuntimeMissing(f"{text}: install it, or put its directory on exitd's PATH", runtime=runtime)
    return found


def era_of(version_text: str) -> Era:
    """Judge by the output of `-v`. Only shims built on containerd's own framework print its version in this form."""
    found = _VERSION.search(version_text)
    if found is None:
        return Era.UNKNOWN
    return Era.BOOTSTRAP if (int(found[1]), int(found[2])) >= FIRST_BOOTSTRAP else Era.ANY


def start_words(shim: Shim) -> list[str]:
    """Return the command that starts a shim, as containerd's documentation of runtime v2 has it
    (core/runtime/v2/README.md)."""
    return [*_words(shim), *(["-debug"] if shim.debug else []), "start"]


def delete_words(shim: Shim, bundle: str) -> list[str]:
    """Return the command that removes what a shim has left, as containerd's documentation of runtime v2 has it
    (core/runtime/v2/README.md)."""
    return [*_words(shim), "-bundle", bundle, *(["-debug"] if shim.debug else []), "delete"]


def _words(shim: Shim) -> list[str]:
    named = ["-namespace", shim.namespace, "-address", shim.address, "-publish-binary", shim.publish_binary]
    return [shim.binary, *named, "-id", shim.id]


def environment(shim: Shim, base: Mapping[str, str]) -> dict[str, str]:
    """`base` is exitd's own; the shim passes it on to its runtime, which is searched on PATH and interprets some
    variables."""
    return {
        **{name: value for name, value in base.items() if name not in NOT_PASSED_ON},
        "PATH": ":".join(filter(None, (base.get("PATH"), SEARCH_PATH))),
        "TTRPC_ADDRESS": shim.ttrpc_address,
        "GRPC_ADDRESS": shim.address,
        "NAMESPACE": shim.namespace,
        "MAX_SHIM_VERSION": "2",
        "GOMAXPROCS": "2",
    }


def start_input(shim: Shim, era: Era, options: bytes) -> bytes:
    """Return what `start` gets on stdin. `options`: a serialized Any, or nothing. Raises BadRequest."""
    if era is not Era.BOOTSTRAP:
        return options
    level = bootstrap_pb2.DEBUG if shim.debug else bootstrap_pb2.INFO
    params = bootstrap_pb2.BootstrapParams(
        instance_id=shim.id,
        namespace=shim.namespace,
        log_level=level,
        containerd_ttrpc_address=shim.ttrpc_address,
        containerd_grpc_address=shim.address,
        containerd_binary=shim.publish_binary,
    )
    if options:
        try:
            params.extensions.add(value=Packed.FromString(options))
        except DecodeError as error:
            raise BadRequest(f"the options of {shim.id} cannot be read: {error}") from error
    return params.SerializeToString()


def read_start_output(printed: bytes) -> Address:
    """Return the address that was printed. Raises ShimFailed, with the output, when it is none."""
    if printed.startswith(b"\x08"):  # the version's tag; no text begins with it
        return _read_message(printed)
    try:
        text = printed.decode().strip()
    except UnicodeDecodeError:
        raise _unreadable("no address", printed) from None
    if not text:
        raise ShimFailed("the shim's start has printed nothing, where it must print an address")
    if text.startswith("{"):
        return _read_json(text, printed)
    return _checked(text, 2, "ttrpc", printed)


def _read_message(printed: bytes) -> Address:
    for data in (printed, printed.strip()):
        try:
            found = bootstrap_pb2.BootstrapResult.FromString(data)
        except DecodeError:
            continue
        return _checked(found.address, found.version, found.protocol, printed)
    raise _unreadable("a message that cannot be read", printed)


def _read_json(text: str, printed: bytes) -> Address:
    try:
        found: Any = json.loads(text)
    except (ValueError, RecursionError):
        raise _unreadable("JSON that cannot be read", printed) from None
    address, version, protocol = (found.get(key) for key in ("address", "version", "protocol"))
    if not (isinstance(address, str) and type(version) is int and isinstance(protocol, str)):
        raise _unreadable("JSON without address, version and protocol", printed)
    return _checked(address, version, protocol, printed)


def _checked(address: str, version: int, protocol: str, printed: bytes) -> Address:
    if version not in VERSIONS:
        raise _unreadable(f"version {version}, and versions 2 and 3 are known here", printed)
    if protocol.lower() != "ttrpc":
        raise _unreadable(f"the protocol {protocol!r}, and only ttrpc is spoken here", printed)
    scheme, is_named, rest = address.partition("://")
    if not is_named:
        # containerd 1.6 takes any text for the name of an abstract socket; those that shims have ever printed begin so.
        if not _ABSTRACT.fullmatch(address):
            raise _unreadable("no address", printed)
    elif scheme not in SCHEMES:
        raise _unreadable("no address of a kind that is known here", printed)
    elif not _is_place(scheme, rest):
        raise _unreadable("an address that names nothing", printed)
    return Address(address, version, "ttrpc")


def _is_place(scheme: str, rest: str) -> bool:
    """Return False if more was printed after the address."""
    is_path = scheme != "unix" or (rest[:1] in ("/", "@") and len(rest) > 1)
    return is_path and bool(rest) and rest.isprintable() and " " not in rest


def _unreadable(what: str, printed: bytes) -> ShimFailed:
    return ShimFailed(f"the shim's start has printed {what}: {shown(printed)!r}")


def shown(printed: bytes) -> str:
    """Shorten the output for an error or the log."""
    text = printed.decode(errors="backslashreplace").strip()
    most = FIRST_SHOWN + LAST_SHOWN
    return text if len(text) <= most else f"{text[:FIRST_SHOWN]} ... {text[-LAST_SHOWN:]}"


def read_delete_output(printed: bytes) -> Deleted | None:
    """Return the end that was printed; None if there is none. Without its time it counts as none: an empty message
    would be an exit with 0."""
    try:
        found = task_pb2.DeleteResponse.FromString(printed)
    except DecodeError:
        return None
    at_ns = instant_ns(found.exited_at)
    return Deleted(found.pid, found.exit_status, at_ns) if at_ns > 0 else None
