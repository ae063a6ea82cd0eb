"""`run` and `create`."""

import os
import queue
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import click

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api.client import Client, Stream, Unreachable
from supervisor.cli.app import complain, connect
from supervisor.cli.fetch import fetch_image
from supervisor.cli.shape import number_of, status_of, time_text
from supervisor.cli.spec import Options, container_spec
from supervisor.cli.spoken import SHORT_ID
from supervisor.errors import BadRequest, ExitdError, NoSuchContainer, ShuttingDown
from supervisor.facts import Unknown

GONE = (Unreachable, ShuttingDown)
FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
SHORT = {
    "name": (),
    "workdir": ("-w",),
    "user": ("-u",),
    "memory": ("-m",),
    "env": ("-e",),
    "volume": ("-v",),
    "label": ("-l",),
}
VALUES = {
    "name": ("NAME", "Its name; default: one is made up."),
    "runtime": ("RUNTIME", "runc, crun or a path; default: the daemon's."),
    "rootfs": ("DIR", "No IMAGE: a read-only view of DIR with a scratch layer on top. / is this host's own."),
    "bundle": ("DIR", "No IMAGE: an OCI bundle, taken as it is."),
    "workdir": ("DIR", "Working directory in the container."),
    "user": ("USER", "name|uid[:group|gid]"),
    "memory": ("SIZE", "Memory limit, as in 64m."),
    "restart": ("POLICY", "no, always, on-failure[:n] or unless-stopped."),
    "stop_signal": ("SIGNAL", "What stop sends; default SIGTERM."),
    "network": ("MODE", "none (default), host, or pod (a member's default: that of its pod)."),
    "pid": ("MODE", "own (default), pod (a member's: that of its pod) or host."),
    "pod": ("POD", "Make it a member of this pod."),
    "on_pause_exit": ("WHAT", "A pause container's: stop (default) or keep its members when it has ended."),
    "cpus": ("N", "CPU limit, as in 1.5."),
    "hostname": ("NAME", "Host name in the container."),
    "namespace": ("NAME", "exitd's namespace, for events and lists."),
}
LISTS = {
    "env": ("K=V", "Environment variable; a bare K takes this shell's value."),
    "annotation": ("K=V", "Annotation of the OCI configuration."),
    "label": ("K=V", "Label, for filters."),
    "volume": ("SRC:DST[:ro]", "Bind mount."),
    "restart_rule": ("RULE", "'exit in 42,43 => no' or '... => restart'; before --restart, the first that fits."),
}
Command = Callable[..., Any]


def container_options(function: Command) -> Command:
    """The options `run` and `create` share. They end at the first word that is none, so that `--` may be left out."""
    decorate: list[Callable[[Command], Command]] = [
        click.option("--rm", is_flag=True, help="Remove it after its end; the ledger keeps the exit."),
        click.option("--read-only", is_flag=True, help="Nothing in its root file system can be written."),
        click.option(
            "--stop-timeout", type=click.IntRange(min=0), metavar="S", help="Grace period of stop; default 10."
        ),
        click.option("-t", "--tty", is_flag=True, help="A terminal for it; taken, and of no effect yet."),
        click.option("-i", "--interactive", is_flag=True, help="Its input stays open; taken, and of no effect yet."),
        click.option("--cidfile", metavar="FILE", default="", help="Write the id there; must not exist."),
        click.option("--pidfile", metavar="FILE", default="", help="Write the pid of its first process there."),
        click.option("--entrypoint", metavar="WORD", help="Before CMD, instead of the image's own; '' for none."),
        click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[IMAGE] [CMD]..."),
    ]
    for name, (metavar, text) in VALUES.items():
        decorate.append(click.option(*_flags(name), metavar=metavar, default="", help=text))
    for name, (metavar, text) in LISTS.items():
        decorate.append(click.option(*_flags(name), metavar=metavar, multiple=True, help=text))
    for one in reversed(decorate):
        function = one(function)
    return function


def _flags(name: str) -> tuple[str, ...]:
    return (*SHORT.get(name, ()), f"--{name.replace('_', '-')}", name)


@click.command(context_settings={"allow_interspersed_args": False})
@click.option("-d", "--detach", is_flag=True, help="Print the id and leave it running.")
@container_options
@click.pass_context
def run(ctx: click.Context, /, detach: bool, cidfile: str, pidfile: str, **words: Any) -> int:
    """Create a container, start it and follow it to its end; exit with its code."""
    spec = container_spec(Options(**words), os.environ)
    client = connect(ctx)
    container = _create(client, spec, cidfile)
    if detach:
        _start(client, container, pidfile)
        print(container.id, flush=True)
        return 0
    return _follow(client, container, pidfile)


@click.command(context_settings={"allow_interspersed_args": False})
@container_options
@click.pass_context
def create(ctx: click.Context, /, cidfile: str, pidfile: str, **words: Any) -> int:
    """Create a container without starting it; print its id."""
    spec = container_spec(Options(**words), os.environ)
    container = _create(connect(ctx), spec, cidfile)
    _write_pid(container, pidfile)
    print(container.id, flush=True)
    return 0


def _create(client: Client, spec: pb.ContainerSpec, cidfile: str) -> pb.Container:
    fetch_image(client, spec)
    if not cidfile:
        return client.create(spec)
    try:
        with Path(cidfile).open("x") as file:  # before the container: two of them must not share the file
            container = client.create(spec)
            file.write(container.id)
    except OSError as error:
        raise BadRequest(f"--cidfile {cidfile}: {error.strerror}") from error
    except ExitdError:
        Path(cidfile).unlink(missing_ok=True)
        raise
    return container


def _start(client: Client, container: pb.Container, pidfile: str) -> None:
    """A container that --rm promised to remove does not stay behind when it cannot be started."""
    try:
        _write_pid(container, pidfile)
        client.start(container.id)
    except ExitdError:
        if container.spec.auto_remove:
            _remove(client, container.id)
        raise


def _remove(client: Client, container_id: str) -> None:
    try:
        client.remove(container_id, force=True)
    except NoSuchContainer:
        pass  # the daemon was quicker
    except ExitdError as error:
        complain(f"and it could not be removed: {error}")


def _write_pid(container: pb.Container, pidfile: str) -> None:
    if not pidfile:
        return
    try:
        Path(pidfile).write_text(f"{container.init.pid}\n")
    except OSError as error:
        raise BadRequest(f"--pidfile {pidfile}: {error.strerror}") from error


def _follow(client: Client, container: pb.Container, pidfile: str) -> int:
    """Wait and log are asked for before the start: --rm may take the container away the moment it ends."""
    run_number = container.run or 1
    waiting = client.begin_wait(container.id, run=run_number)
    log = client.logs(pb.LogsRequest(id=container.id, follow=True, run=run_number))
    proxy = SignalProxy(client, container.id, log)
    proxy.begin()
    try:
        _start(client, container, pidfile)
        proxy.started()
        try:
            copy_log(log)
        except GONE:
            pass  # whoever waits hears of it, too
        except ExitdError as error:  # told, but it does not hide the exit
            complain(f"its output cannot be followed: {error}")
        exit_ = _exit_of(client, waiting.result, container.id, run_number)
    finally:
        proxy.end()
        waiting.cancel()
        log.cancel()
    status = None if exit_ is None else status_of(exit_)
    if exit_ is None or isinstance(status, Unknown):
        complain(f"how it ended is unknown: {(exit_ and exit_.cause) or 'no exit was recorded'}")
    return number_of(exit_)


def copy_log(log: Stream, *, timestamps: bool = False) -> None:
    """The container's output to ours, stream by stream."""
    for reply in log:
        target = sys.stderr.buffer if reply.stream == "stderr" else sys.stdout.buffer
        target.write(time_text(reply.time).encode() + b" " + reply.data if timestamps else reply.data)
        target.flush()


def _exit_of(
    client: Client, result: Callable[[], pb.Exit | None], container_id: str, run_number: int
) -> pb.Exit | None:
    """The exit of that run; from the ledger when the container was removed before the question came in."""
    try:
        return result()
    except NoSuchContainer:
        ledger = client.exits(pb.ExitsRequest(id=container_id))
        return next((exit_ for exit_ in ledger if exit_.run == run_number and not exit_.exec_id), None)
    except GONE as error:
        again = f"the container goes on; ask later: exitctl wait {container_id[:SHORT_ID]}"
        raise Unreachable(f"the daemon went away, {again}") from error


class SignalProxy:
    """Signals to exitctl go to the container. The handler only puts them in a queue: a gRPC call made inside it could
    meet a lock that the interrupted thread holds."""

    def __init__(self, client: Client, container_id: str, log: Stream) -> None:
        self._client = client
        self._id = container_id
        self._log = log
        self._queue: queue.SimpleQueue[int] = queue.SimpleQueue()  # its put is reentrant, made for this
        self._started = threading.Event()
        self._former: dict[int, Any] = {}

    def begin(self) -> None:
        threading.Thread(target=self._forward, daemon=True).start()
        for number in FORWARDED:
            if signal.getsignal(number) != signal.SIG_IGN:  # nohup stays nohup
                self._former[number] = signal.signal(number, self._noticed)

    def started(self) -> None:
        """From now on there is somebody to signal; what came before is delivered now."""
        self._started.set()

    def end(self) -> None:
        for number, handler in self._former.items():
            signal.signal(number, handler)
        self._queue.put(0)
        self._started.set()

    def _noticed(self, number: int, _: FrameType | None) -> None:
        self._queue.put(number)

    def _forward(self) -> None:
        self._started.wait()
        while number := self._queue.get():
            try:
                self._client.kill(self._id, str(number))
            except ExitdError as error:
                # It has ended, or the daemon is gone: whoever still waits for output is let go.
                complain(f"{signal.Signals(number).name} was not forwarded: {error}")
                self._log.cancel()
