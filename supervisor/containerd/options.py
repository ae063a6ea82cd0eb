"""What containerd's clients ask of a runtime, whichever message they use for it. Pure.

There are four kinds: runc's options; their older forms; and what CRI and `ctr --runtime-config-path` send to a runtime
that is not called runc: a path, or the text of the runtime's section in containerd's configuration. Other kinds are
ignored with a note, so that a container of a newer client runs nevertheless.
"""

import json
import tomllib
import typing

from google.protobuf.any_pb2 import Any
from google.protobuf.message import DecodeError, Message

from protos.containerd import linux_runc_pb2 as older
from protos.containerd import runc_pb2 as runc
from protos.containerd import runtimeoptions_pb2 as custom
from shim.frozen import frozen, replace
from supervisor.model.errors import BadRequest

JSON_TYPES = "types.containerd.io/opencontainers/runtime-spec/1/"  # before Process, LinuxResources and the like
MAX_ID = 2**32 - 2
MOST_BYTES = 16 << 10  # of TOML: tomllib takes 1.6 s for the worst text of this size, growing with its square
MOST_PATH_BYTES = 4095
MOST_SHOWN, MOST_NOTES = 100, 20  # characters of a client's name, and notes of one task

M = typing.TypeVar("M", bound=Message)


@frozen
class TaskOptions:
    """The options that a task depends on. Empty: exitd's default."""

    binary: str = ""  # the runtime: a name on PATH, or a path
    root: str = ""  # where the Go shim would keep its state; exitd has its own place for each run
    systemd_cgroup: bool = False
    no_pivot_root: bool = False
    no_new_keyring: bool = False
    io_uid: int = 0  # the owner of its output's pipes
    io_gid: int = 0
    shim_cgroup: str = ""
    criu_path: str = ""
    criu_image_path: str = ""
    criu_work_path: str = ""
    config_path: str = ""  # a file with the same options in TOML, for `with_config`
    notes: tuple[str, ...] = ()  # what was not understood, for the log

    @property
    def create_words(self) -> tuple[str, ...]:
        """Return the arguments for the runtime's create."""
        asked = (("--no-pivot", self.no_pivot_root), ("--no-new-keyring", self.no_new_keyring))
        return tuple(word for word, is_asked in asked if is_asked)


def parse(given: Any | None) -> TaskOptions:
    """Parse the options of a Create. Raises BadRequest when a known message cannot be read."""
    match type_of(given):
        case "":
            return TaskOptions()
        case "containerd.runc.v1.Options":
            return _of_runc(_unpack(given, runc.Options()))
        case "containerd.linux.runc.RuncOptions":
            old = _unpack(given, older.RuncOptions())
            return TaskOptions(old.runtime, old.runtime_root, old.systemd_cgroup, criu_path=old.criu_path)
        case "containerd.linux.runc.CreateOptions":
            return _of_create(_unpack(given, older.CreateOptions()))
        case "runtimeoptions.v1.Options":
            asked = _unpack(given, custom.Options())
            return with_config(TaskOptions(config_path=asked.config_path), asked.config_body, "config_body")
        case name:
            return TaskOptions(notes=(f"options of the type {name[:MOST_SHOWN]} mean nothing here",))


def with_config(options: TaskOptions, text: bytes, origin: str) -> TaskOptions:
    """Return `options` changed to what the TOML says; `origin` is for error messages. A key may be written as in
    containerd's configuration (SystemdCgroup) or as in the message (systemd_cgroup). Raises BadRequest."""
    if len(text) > MOST_BYTES:
        raise BadRequest(f"runtime options: {origin} has more than {MOST_BYTES >> 10} KiB")
    try:
        values = tomllib.loads(text.decode())
    except (ValueError, RecursionError) as error:  # no text, no TOML, a number of 5,000 digits; nested too deeply
        raise BadRequest(f"runtime options: {origin} is not TOML: {str(error)[:MOST_SHOWN]}") from error
    names = {key: FIELDS.get(key.replace("_", "").lower()) for key in values}
    unknown = [key[:MOST_SHOWN] for key, name in names.items() if name is None]
    notes = [f"option {key} of {origin} means nothing here" for key in unknown[:MOST_NOTES]]
    if len(unknown) > MOST_NOTES:
        notes.append(f"nor do {len(unknown) - MOST_NOTES} others")
    options = replace(options, notes=(*options.notes, *notes))
    for key, value in values.items():
        if (name := names[key]) is not None:
            changes: dict[str, typing.Any] = {name: _checked(key, value, getattr(options, name), origin)}
            options = replace(options, **changes)
    return options


def type_of(given: Any | None) -> str:
    """Return the full name of the message, without its url's prefix; a JSON type keeps its own. Empty: there is
    none."""
    url = given.type_url if given is not None else ""
    return url if url.startswith(JSON_TYPES) else url.rpartition("/")[2]


def document(given: Any | None, kind: str) -> dict[str, object]:
    """Return the JSON object in an Any of runtime-spec's types. `kind` is Process or LinuxResources. Raises
    BadRequest."""
    if given is None or type_of(given) != JSON_TYPES + kind:
        found_type = type_of(given)[:MOST_SHOWN] or "none"
        raise BadRequest(f"a {kind} of runtime-spec is needed, and the type is {found_type!r}")
    try:
        found = json.loads(given.value)
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"the {kind} is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise BadRequest(f"the {kind} is not a JSON object")
    return found


# Names of runc's options in containerd's configuration, without case and underscores.
FIELDS = {
    "binaryname": "binary",
    "root": "root",
    "systemdcgroup": "systemd_cgroup",
    "nopivotroot": "no_pivot_root",
    "nonewkeyring": "no_new_keyring",
    "iouid": "io_uid",
    "iogid": "io_gid",
    "shimcgroup": "shim_cgroup",
    "criupath": "criu_path",
    "criuimagepath": "criu_image_path",
    "criuworkpath": "criu_work_path",
    "configpath": "config_path",
}


def _checked(key: str, value: object, before: object, origin: str) -> object:
    """Return a value of the same type as `before`. Raises BadRequest."""
    if type(value) is not type(before) or (isinstance(value, int) and not 0 <= value <= MAX_ID):
        wanted = {bool: "true or false", int: "a number of a user or group", str: "a text"}[type(before)]
        raise BadRequest(f"runtime options: {key} of {origin} is {repr(value)[:MOST_SHOWN]}; it must be {wanted}")
    return value


def _unpack(given: Any | None, message: M) -> M:
    """Unpack, whatever precedes the name in the url."""
    assert given is not None
    try:
        message.ParseFromString(given.value)
    except DecodeError as error:
        raise BadRequest(f"{type_of(given)} cannot be read: {error}") from error
    return message


def _of_runc(asked: runc.Options) -> TaskOptions:
    return TaskOptions(
        binary=asked.binary_name,
        root=asked.root,
        systemd_cgroup=asked.systemd_cgroup,
        no_pivot_root=asked.no_pivot_root,
        no_new_keyring=asked.no_new_keyring,
        io_uid=asked.io_uid,
        io_gid=asked.io_gid,
        shim_cgroup=asked.shim_cgroup,
        criu_path=asked.criu_path,
        criu_image_path=asked.criu_image_path,
        criu_work_path=asked.criu_work_path,
    )


def _of_create(asked: older.CreateOptions) -> TaskOptions:
    """What it says of a restore is runc's business then."""
    return TaskOptions(
        no_pivot_root=asked.no_pivot_root,
        no_new_keyring=asked.no_new_keyring,
        io_uid=asked.io_uid,
        io_gid=asked.io_gid,
        shim_cgroup=asked.shim_cgroup,
        criu_image_path=asked.criu_image_path,
        criu_work_path=asked.criu_work_path,
    )
