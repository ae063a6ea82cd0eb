"""`run` and `create`."""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import click

from protos.exitd.v1 import exitd_pb2 as pb
from shim.frozen import frozen, replace
from supervisor.api.client import Client
from supervisor.cli import checks, keys, parse, session
from supervisor.cli.app import complain, connect
from supervisor.cli.away import reconnect
from supervisor.cli.fetch import fetch_image, fetch_missing, is_plain
from supervisor.cli.session import Manner, SessionTarget, TerminalSession
from supervisor.cli.spec import ALWAYS, NEVER, container_spec, run_options
from supervisor.cli.spelling import Spelled
from supervisor.model.errors import BadRequest, ExitdError, NoSuchContainer, NoSuchImage

GONE_SECONDS = 30.0  # from the end of a container to its removal by --rm
LOGS_OF_OURS = ("", "cri", "json-file")  # drivers whose log the daemon can show; it does not keep the others' output
SHORT = {
    "name": (),
    "workdir": ("-w",),
    "user": ("-u",),
    "memory": ("-m",),
    "env": ("-e",),
    "volume": ("-v",),
    "label": ("-l",),
    "hostname": ("-h",),
    "cpu_shares": ("-c",),
    "network": ("--net",),
    "publish": ("-p",),
}
VALUES = {
    "name": ("NAME", "Its name; default: one is made up."),
    "runtime": ("RUNTIME", "runc, crun or a path; default: the daemon's."),
    "rootfs": ("DIR", "No IMAGE: a read-only view of DIR with a scratch layer on top. / is this host's own."),
    "bundle": ("DIR", "No IMAGE: an OCI bundle, taken as it is."),
    "workdir": ("DIR", "Working directory in the container."),
    "user": ("USER", "name|uid[:group|gid]"),
    "memory": ("SIZE", "Memory limit, as in 64m."),
    "storage": ("WHERE", "Where it writes over its image: disk, tmpfs or tmpfs:SIZE; default: the daemon's (disk)."),
    "restart": ("POLICY", "no, always, on-failure[:n] or unless-stopped."),
    "stop_signal": ("SIGNAL", "What stop sends; default SIGTERM."),
    "ip": ("ADDRESS", "The address that its first network is to give."),
    "ip6": ("ADDRESS", "The IPv6 address that its first network is to give."),
    "mac_address": ("ADDRESS", "The hardware address of its first interface."),
    "ipc": ("MODE", "private (default) or host: this machine's shared memory."),
    "pid": ("MODE", "own (default), pod (a member's: that of its pod) or host."),
    "userns": ("MODE", "host (default), or auto: users of its own, 65,536 ids that nothing else on this machine has."),
    "pod": ("POD", "Make it a member of this pod."),
    "on_pause_exit": ("WHAT", "A pause container's: stop (default) or keep its members when it has ended."),
    "cpus": ("N", "CPU limit, as in 1.5."),
    "hostname": ("NAME", "Host name in the container."),
    "memory_reservation": ("SIZE", "When memory is short, it is not taken from below this much."),
    "memory_swap": ("SIZE", "Memory and swap together; -1: no limit; default: as --memory, so no swap."),
    "cpuset_cpus": ("LIST", "The processors that it may use, as in 0-3,7."),
    "cpuset_mems": ("LIST", "The memory nodes that it may use, as in 0-1."),
    "shm_size": ("SIZE", "Size of its /dev/shm; default 64m."),
    "pull": ("WHEN", "Fetch its image always, missing (default: if exitd's store has none of that name) or never."),
    "namespace": ("NAME", "exitd's namespace, for events and lists."),
    "log_driver": ("DRIVER", "Where its output is kept: cri, json-file, journald or none; default: the daemon's."),
    "log_mode": ("MODE", "A sink that cannot keep up: blocking (default) holds it up, non-blocking misses a part."),
}
LISTS = {
    "env": ("K=V", "Environment variable; a bare K takes this shell's value."),
    "env_file": ("FILE", "A file with an environment variable in each line; # begins a comment."),
    "annotation": ("K=V", "Annotation of the OCI configuration."),
    "label": ("K[=V]", "Label, for filters."),
    "label_file": ("FILE", "A file with a label in each line; # begins a comment."),
    "cap_add": ("CAP", "Give it this capability besides docker's default set, as in NET_ADMIN; ALL for all."),
    "cap_drop": ("CAP", "Take this capability away; ALL for all but those of --cap-add."),
    "ulimit": ("NAME=SOFT[:HARD]", "A limit of each of its processes, as in nofile=1024:65536; -1 is no limit."),
    "group_add": ("GID", "A group of its first process besides those of its user, by number."),
    "volume": (
        "SRC:DST[:OPTION,...]",
        "Mount SRC: a path, or a volume's name; options: ro, flags of mount(8).",
    ),
    "mount": (
        "K=V,...",
        "By type=bind, volume or tmpfs, src=, dst=, ro, bind-propagation=, volume-subpath=, tmpfs-size=, tmpfs-mode=.",
    ),
    "tmpfs": ("DST[:OPTION,...]", "An empty file system in memory; options: size=, mode=, ro, flags of mount(8)."),
    "device": ("SRC[:DST][:rwm]", "A device of this machine, or a directory of them."),
    "network": (
        "NAME[,NAME...]",
        "bridge, networks' names, or none, host or pod; NAME:ip=ADDRESS,mac=ADDRESS; default: the daemon's.",
    ),
    "publish": ("[[IP:][HOST]:]PORT", "Publish a port, or a range as in 7000-7009:7000-7009/udp; implies bridge."),
    "expose": ("PORT", "A port that it serves, for -P."),
    "add_host": ("NAME:ADDRESS", "A line of its /etc/hosts."),
    "dns": ("ADDRESS", "A name server, in place of those of this machine."),
    "dns_search": ("DOMAIN", "A domain in which names are looked up."),
    "dns_option": ("OPTION", "An option of resolv.conf(5)."),
    "sysctl": ("NAME=VALUE", "Kernel parameter of its own namespaces, as in net.core.somaxconn=1024."),
    "log_opt": ("K=V", "max-size=SIZE, max-file=N, path=FILE or max-buffer-size=SIZE."),
    "security_opt": (
        "OPT",
        "seccomp=FILE|unconfined|builtin, no-new-privileges[=false], apparmor=PROFILE or label=PART:VALUE.",
    ),
    "restart_rule": ("RULE", "'exit in 42,43 => no' or '... => restart'; before --restart, the first that fits."),
}
# Options end at the first word that is none; -h is the host name's, as everywhere.
WORDS = {"allow_interspersed_args": False, "help_option_names": ["--help"]}
Command = Callable[..., Any]


def container_options(function: Command) -> Command:
    """Add the options that `run` and `create` share. Options end at the first word that is none, so that `--` may be
    left out."""
    decorate: list[Callable[[Command], Command]] = [
        click.option("--rm", is_flag=True, help="Remove the container after its end; the ledger keeps the exit."),
        click.option(
            "--privileged", is_flag=True, help="Give it all capabilities and devices, with nothing hidden or read-only."
        ),
        click.option(
            "--pids-limit",
            type=parse.INT32,
            metavar="N",
            help="Limit of processes and threads; default 2048; 0 or -1: no limit.",
        ),
        click.option(*_flags("cpu_shares"), type=parse.INT32, metavar="N", help="Weight for CPU time; default 1024."),
        click.option("--cpu-quota", type=parse.INT32, metavar="US", help="CPU time in each period; --cpus is simpler."),
        click.option("--cpu-period", type=parse.INT32, metavar="US", help="The period of --cpu-quota; default 100000."),
        click.option("--oom-score-adj", type=parse.INT32, metavar="N", help="How soon it dies when memory is short."),
        click.option(
            "-P", "--publish-all", is_flag=True, help="Publish the ports of --expose and of its image at free ones."
        ),
        click.option("--no-hosts", is_flag=True, help="Its /etc/hosts, hostname and resolv.conf are its image's."),
        click.option("--init", is_flag=True, help="Begin its command under exitd's init program, which reaps orphans."),
        click.option("--read-only", is_flag=True, help="Make its root file system read-only."),
        click.option("--stop-timeout", type=parse.UINT32, metavar="S", help="Grace period of stop; default 10."),
        click.option("-t", "--tty", is_flag=True, help="Give it a terminal; with -i, this one."),
        click.option(
            "-i", "--interactive", is_flag=True, help="Send it this command's input; with -d, keep its input open."
        ),
        click.option("--replace", "replaces", is_flag=True, help="First remove the container that has its --name."),
        click.option("--cidfile", metavar="FILE", default="", help="Write the id to FILE, which must not exist."),
        click.option("--pidfile", metavar="FILE", default="", help="Write the pid of its first process to FILE."),
        click.option("--entrypoint", metavar="WORD", help="Used instead of the image's entrypoint; '' for none."),
        click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[IMAGE] [CMD]..."),
    ]
    for name, (metavar, text) in VALUES.items():
        decorate.append(click.option(*_flags(name), metavar=metavar, default="", help=text))
    for name, (metavar, text) in LISTS.items():
        decorate.append(click.option(*_flags(name), metavar=metavar, multiple=True, help=text))
    decorate += checks.OPTIONS
    for one in reversed(decorate):
        function = one(function)
    return function


def _flags(name: str) -> tuple[str, ...]:
    return (*SHORT.get(name, ()), f"--{name.replace('_', '-')}", name)


@click.command(cls=Spelled, context_settings=WORDS)
@click.option("-d", "--detach", is_flag=True, help="Print the id and leave it running.")
@session.detach_keys
@session.sig_proxy
@reconnect
@container_options
@click.pass_context
def run(
    ctx: click.Context, /, detach: bool, detach_keys: str, sig_proxy: bool | None, patience: float, cidfile: str,
    pidfile: str, replaces: bool, **words: Any,
) -> int:  # fmt: skip
    """Create a container, start it and follow it to its end; exit with its code."""
    options = run_options(words)
    spec = container_spec(options, os.environ)
    making = Making(cidfile, options.pull, replaces=replaces)
    manner = Manner(options.tty, options.interactive, keys.parse(detach_keys), sig_proxy, patience=patience)
    if not detach:
        manner.check("leave -t out")
    client = connect(ctx)
    container = _create(client, spec, making)
    if detach:
        with _nothing_left(client, container):
            _start(client, container, pidfile)
        print(container.id, flush=True)
        return 0
    by_log = not options.tty and container.spec.log.driver in LOGS_OF_OURS
    target = SessionTarget(container.id, container.run or 1, log_files=session.log_files(container.spec.log))
    followed = TerminalSession(client, target, replace(manner, by_log=by_log))
    with ExitStack() as stack:
        with _nothing_left(client, container):
            stack.enter_context(followed)
            _start(client, container, pidfile)
        followed.begin()
        followed.follow()
        if container.spec.auto_remove and not followed.was_left:
            _gone(client, container)
    return followed.code()


@click.command(cls=Spelled, context_settings=WORDS)
@container_options
@click.pass_context
def create(ctx: click.Context, /, cidfile: str, pidfile: str, replaces: bool, **words: Any) -> int:
    """Create a container without starting it; print its id."""
    options = run_options(words)
    spec = container_spec(options, os.environ)
    container = _create(connect(ctx), spec, Making(cidfile, options.pull, replaces=replaces))
    _write_pid(container, pidfile)
    print(container.id, flush=True)
    return 0


@frozen
class Making:
    """How a container is made, beside its spec. `pull`: when its image is fetched; `replaces`: the container that has
    its name is removed first."""

    cidfile: str = ""
    pull: str = ""
    replaces: bool = False


def _create(client: Client, spec: pb.ContainerSpec, making: Making) -> pb.Container:
    if making.replaces and not spec.name:
        raise BadRequest("--replace: which container? Add its --name")
    fetch_image(client, spec, anew=making.pull == ALWAYS)
    container = _made_of_any(client, spec, making)
    if ignored := _ignored(spec, container):
        _remove(client, container.id)
        if making.cidfile:
            os.unlink(making.cidfile)
        raise BadRequest(f"{ignored}: this exitd is older than exitctl, and has ignored it; restart exitd")
    if container.network_hint:
        complain(container.network_hint)
    return container


def _ignored(spec: pb.ContainerSpec, made: pb.Container) -> str:
    """Return what of the spec an older exitd has left out without a word; empty: nothing."""
    if _below(made.spec) != _below(spec):
        return "volume-subpath"
    return "userns auto" if spec.userns == "auto" and not made.HasField("ids") else ""


def _below(spec: pb.ContainerSpec) -> list[str]:
    """Return the paths in volumes; without them the container would have the whole of each."""
    return [mount.sub_path for mount in spec.mounts if mount.sub_path]


def _made_of_any(client: Client, spec: pb.ContainerSpec, making: Making) -> pb.Container:
    """Make it of the image of that name in exitd's store, or of a registry's if there is none there, as docker does."""
    try:
        return _made(client, spec, making)
    except NoSuchImage as error:
        if making.pull == NEVER or spec.image_id or not is_plain(spec.image):
            raise
        fetch_missing(client, spec, error)
    return _made(client, spec, making)


def _made(client: Client, spec: pb.ContainerSpec, making: Making) -> pb.Container:
    if not making.cidfile:
        return client.create(spec, replace=making.replaces)
    try:
        with open(making.cidfile, "x") as file:  # before the container is made: two must not share the file
            container = client.create(spec, replace=making.replaces)
            file.write(container.id)
    except OSError as error:
        raise BadRequest(f"--cidfile {making.cidfile}: {error.strerror}") from error
    except ExitdError:
        with suppress(FileNotFoundError):
            os.unlink(making.cidfile)
        raise
    return container


def _start(client: Client, container: pb.Container, pidfile: str) -> None:
    _write_pid(container, pidfile)
    client.start(container.id)


@contextmanager
def _nothing_left(client: Client, container: pb.Container) -> Iterator[None]:
    """If the container cannot be started and --rm was given, remove it."""
    try:
        yield
    except ExitdError:
        if container.spec.auto_remove:
            _remove(client, container.id)
        raise


def _remove(client: Client, container_id: str) -> None:
    try:
        client.remove(container_id, force=True)
    except NoSuchContainer:
        pass  # the daemon has removed it already
    except ExitdError as error:
        complain(f"and it could not be removed: {error}")


def _gone(client: Client, container: pb.Container) -> None:
    """Wait until --rm is done: its name is free, and nothing of it is left."""
    try:
        client.begin_wait(container.id, condition="removed").result(GONE_SECONDS)
    except NoSuchContainer:
        pass  # gone before the request arrived
    except ExitdError as error:
        complain(f"it ended, and is not removed yet: {error}")


def _write_pid(container: pb.Container, pidfile: str) -> None:
    if not pidfile:
        return
    try:
        with open(pidfile, "w") as file:
            file.write(f"{container.init.pid}\n")
    except OSError as error:
        raise BadRequest(f"--pidfile {pidfile}: {error.strerror}") from error
