"""The options of `run` and `create` into one ContainerSpec."""

import os
from collections.abc import Mapping
from dataclasses import dataclass

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.cli import parse
from supervisor.errors import BadRequest

NO_ROOT = """which root file system? There are no images yet; choose one of
  --rootfs /      a read-only view of this host's own files with a scratch layer on top
  --rootfs DIR    the same over a directory (a debootstrap, an unpacked tarball, a busybox)
  --bundle DIR    an OCI bundle (config.json and rootfs), taken as it is
for example: exitctl run --rootfs / -- sh -c 'exit 7'"""


@dataclass(frozen=True, slots=True)
class Options:
    """What stood on the command line, word for word."""

    command: tuple[str, ...] = ()
    name: str = ""
    rm: bool = False
    runtime: str = ""
    rootfs: str = ""
    bundle: str = ""
    env: tuple[str, ...] = ()
    workdir: str = ""
    user: str = ""
    memory: str = ""
    annotation: tuple[str, ...] = ()
    restart: str = ""
    stop_signal: str = ""
    stop_timeout: int | None = None
    network: str = ""
    label: tuple[str, ...] = ()
    hostname: str = ""
    read_only: bool = False
    volume: tuple[str, ...] = ()
    namespace: str = ""


def container_spec(options: Options, own_environment: Mapping[str, str]) -> pb.ContainerSpec:
    """Paths become absolute here, since the daemon's working directory is another. Raises BadRequest."""
    _check(options)
    return pb.ContainerSpec(
        name=options.name,
        args=options.command,
        env=parse.environment(options.env, own_environment),
        cwd=options.workdir,
        user=options.user,
        rootfs=_absolute(options.rootfs),
        bundle=_absolute(options.bundle),
        runtime=_absolute(options.runtime) if "/" in options.runtime else options.runtime,
        memory_bytes=parse.size_bytes(options.memory) if options.memory else 0,
        annotations=dict(parse.pair(word, "annotation") for word in options.annotation),
        restart=options.restart,
        auto_remove=options.rm,
        stop_signal=options.stop_signal,
        stop_timeout_seconds=options.stop_timeout,
        network=options.network,
        labels=dict(parse.pair(word, "label") for word in options.label),
        hostname=options.hostname,
        read_only=options.read_only,
        mounts=[_mount(word) for word in options.volume],
        namespace=options.namespace,
    )


def _check(options: Options) -> None:
    if options.rootfs and options.bundle:
        raise BadRequest("--rootfs and --bundle exclude each other: a bundle brings its own root file system")
    if not options.rootfs and not options.bundle:
        raise BadRequest(NO_ROOT)
    if options.rootfs and not options.command:
        raise BadRequest("which command? It comes after the options: exitctl run --rootfs / -- sh -c 'exit 7'")
    if options.rm and options.restart not in ("", "no"):
        raise BadRequest("--rm and --restart exclude each other: a removed container cannot be restarted")


def _absolute(path: str) -> str:
    return os.path.abspath(path) if path else ""


def _mount(word: str) -> pb.Mount:
    source, destination, read_only = parse.mount(word)
    return pb.Mount(source=source, destination=destination, read_only=read_only)
