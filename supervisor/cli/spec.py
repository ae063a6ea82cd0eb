"""Converts the options of `run` and `create` to a ContainerSpec."""

import os
from collections.abc import Mapping
from typing import Any

from protos.exitd.v1 import exitd_pb2 as pb
from shim.frozen import field, fields_of, frozen
from supervisor.cli import parse
from supervisor.cli.checks import CheckWords, check_spec
from supervisor.cli.limitwords import LimitWords, cpu_limit_milli, devices, limits_spec
from supervisor.cli.logwords import log_spec
from supervisor.cli.mountwords import MountWords, mounts
from supervisor.cli.namewords import NameWords, resolver_spec
from supervisor.cli.networkwords import NetworkWords, put_networks
from supervisor.cli.portwords import PortWords, expose_spec, ports
from supervisor.cli.rightswords import RightsWords, rights_spec
from supervisor.cli.securitywords import security_spec
from supervisor.images import reference
from supervisor.model.errors import BadRequest

NO_IMAGE = """which IMAGE? The first word after the options is one of
  pause                  exitd's own program that does nothing
  /DIR or ./DIR          a directory with a root file system; / is a read-only view of this host's own
  oci:DIR[:TAG]          an OCI image layout
  docker-archive:FILE    what docker save and podman save write
  docker://NAME          an image of a registry
  NAME                   an image of exitd's own store (exitctl image ls|load|pull|import), or else of a registry
or there is none, and every word is the command:
  --rootfs DIR           the same as IMAGE /DIR
  --bundle DIR           an OCI bundle (config.json and rootfs), taken as it is
for example: exitctl run / sh -c 'exit 7'"""

ALWAYS, NEVER = "always", "never"
PULLS = ("", ALWAYS, "missing", NEVER)


@frozen
class RunOptions:
    """What stood on the command line, word for word. Without rootfs and bundle the first word of `command` is IMAGE."""

    command: tuple[str, ...] = ()
    entrypoint: str | None = None
    pull: str = ""
    name: str = ""
    rm: bool = False
    runtime: str = ""
    rootfs: str = ""
    bundle: str = ""
    env: tuple[str, ...] = ()
    env_file: tuple[str, ...] = ()
    workdir: str = ""
    user: str = ""
    memory: str = ""
    annotation: tuple[str, ...] = ()
    restart: str = ""
    restart_rule: tuple[str, ...] = ()
    stop_signal: str = ""
    stop_timeout: int | None = None
    label: tuple[str, ...] = ()
    label_file: tuple[str, ...] = ()
    hostname: str = ""
    read_only: bool = False
    namespace: str = ""
    tty: bool = False
    interactive: bool = False
    pid: str = ""
    ipc: str = ""
    init: bool = False
    pod: str = ""
    on_pause_exit: str = ""
    cpus: str = ""
    log_driver: str = ""
    log_opt: tuple[str, ...] = ()
    log_mode: str = ""
    security_opt: tuple[str, ...] = ()
    storage: str = ""
    userns: str = ""
    check: CheckWords = field(default_factory=CheckWords)
    rights: RightsWords = field(default_factory=RightsWords)
    limits: LimitWords = field(default_factory=LimitWords)
    mounts: MountWords = field(default_factory=MountWords)
    names: NameWords = field(default_factory=NameWords)
    ports: PortWords = field(default_factory=PortWords)
    networks: NetworkWords = field(default_factory=NetworkWords)


def run_options(words: dict[str, Any]) -> RunOptions:
    """Put each option, as click names it, into the part that it is about."""
    parts: dict[str, type[Any]] = {
        "check": CheckWords,
        "rights": RightsWords,
        "limits": LimitWords,
        "mounts": MountWords,
        "names": NameWords,
        "ports": PortWords,
        "networks": NetworkWords,
    }
    taken = {name: _taken(words, part) for name, part in parts.items()}
    rest = {name: value for name, value in words.items() if not any(name in each for each in taken.values())}
    return RunOptions(**rest, **{name: part(**taken[name]) for name, part in parts.items()})


def _taken(words: dict[str, Any], part: type[Any]) -> dict[str, Any]:
    return {name: words[name] for name in fields_of(part) if name in words}


def container_spec(options: RunOptions, own_environment: Mapping[str, str]) -> pb.ContainerSpec:
    """Build the request. Paths become absolute, since the daemon has another working directory. Raises BadRequest."""
    _check(options)
    image, args = _image_and_command(options)
    spec = pb.ContainerSpec(
        name=options.name,
        image=image,
        entrypoint=() if options.entrypoint is None else (options.entrypoint,),
        args=args,
        env=parse.environment((*parse.lines_of("--env-file", options.env_file), *options.env), own_environment),
        cwd=options.workdir,
        user=options.user,
        rootfs=_absolute(options.rootfs),
        bundle=_absolute(options.bundle),
        runtime=_absolute(options.runtime) if "/" in options.runtime else options.runtime,
        memory_bytes=parse.size_bytes(options.memory) if options.memory else 0,
        annotations=dict(parse.pair(word, "annotation") for word in options.annotation),
        restart=options.restart,
        restart_rules=options.restart_rule,
        auto_remove=options.rm,
        stop_signal=options.stop_signal,
        stop_timeout_seconds=options.stop_timeout,
        ports=ports(options.ports.publish),
        expose=expose_spec(options.ports),
        labels=_labels(options),
        hostname=options.hostname,
        read_only=options.read_only,
        mounts=mounts(options.mounts),
        namespace=options.namespace,
        tty=options.tty,
        stdin=options.interactive,
        pid=options.pid,
        ipc=_ipc(options.ipc),
        init=options.init,
        sandbox=options.pod,
        pod=_pod(options),
        cpu_limit_milli=cpu_limit_milli(options.cpus, options.limits),
        rights=rights_spec(options.rights),
        health=check_spec(options.check),
        log=log_spec(options.log_driver, options.log_opt, options.log_mode),
        security=security_spec(options.security_opt),
        limits=limits_spec(options.limits),
        devices=devices(options.limits.device),
        sysctls=dict(parse.pair(word, "sysctl") for word in options.limits.sysctl),
        resolver=resolver_spec(options.names),
        storage=options.storage,
        userns=options.userns,
    )
    put_networks(spec, options.networks)
    return spec


def _labels(options: RunOptions) -> dict[str, str]:
    """A label without a value is empty, as with docker."""
    words = (*parse.lines_of("--label-file", options.label_file), *options.label)
    return dict(parse.pair(word if "=" in word else f"{word}=", "label") for word in words)


def _check(options: RunOptions) -> None:
    if options.rootfs and options.bundle:
        raise BadRequest("--rootfs and --bundle exclude each other: a bundle brings its own root file system")
    if options.rootfs and not options.command and not options.entrypoint:
        raise BadRequest("which command? It comes after the options: exitctl run --rootfs / -- sh -c 'exit 7'")
    if options.rm and options.restart not in ("", "no"):
        raise BadRequest("--rm and --restart exclude each other: a removed container cannot be restarted")


def _ipc(word: str) -> str:
    """Docker's words: an ipc namespace that others may join is its own, too. Raises BadRequest."""
    if word in ("", "host"):
        return word
    if word in ("private", "shareable"):
        return "own"
    cure = "members of a pod share theirs (exitctl runp)" if word.startswith("container:") else "write private or host"
    raise BadRequest(f"--ipc {word}: {cure}")


def _image_and_command(options: RunOptions) -> tuple[str, tuple[str, ...]]:
    if options.rootfs or options.bundle:
        return "", options.command
    if not options.command:
        raise BadRequest(NO_IMAGE)
    return str(_pulled(reference.parse(options.command[0], here()), options.pull)), options.command[1:]


def _pulled(image: reference.Reference, pull: str) -> reference.Reference:
    """Return where the image is to come from: `--pull always` makes a plain name that of a registry, `never` keeps one
    of a registry's to the store. Raises BadRequest."""
    if pull not in PULLS:
        raise BadRequest(f"--pull {pull}: write always, missing or never")
    match image:
        case reference.Stored(_, reference.Name() as name) if pull == ALWAYS:
            return reference.Registry(name)
        case reference.Registry(name) if pull == NEVER:
            return reference.Stored(str(name), name)
    return image


def _pod(options: RunOptions) -> pb.PodSpec | None:
    """Return the options of a pod's pause container; its annotations say that it is one. Raises BadRequest."""
    if not options.on_pause_exit:
        return None
    from supervisor.model import pods

    if pods.place(dict(parse.pair(word, "annotation") for word in options.annotation)).role is not pods.Role.SANDBOX:
        family = pods.FAMILIES[0]
        raise BadRequest(
            "--on-pause-exit is a pause container's; what makes it one is "
            f"--annotation {family.type_key}={family.sandbox_word} (or exitctl runp)"
        )
    return pb.PodSpec(on_pause_exit=options.on_pause_exit)


def here() -> str:
    """Return the working directory, at which relative paths begin; empty if it has been removed."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        return ""


def _absolute(path: str) -> str:
    return os.path.abspath(path) if path else ""
