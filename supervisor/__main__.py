"""exitd: flags, logs, and a daemon in the foreground until SIGTERM."""

import gc
import os
import sys

gc.disable()  # until the daemon serves: imports and recovery make hundreds of thousands of objects, and no garbage
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"  # grpc reads it when it is imported: before every import that could do so

from _operator import _compare_digest
from _pickle import PicklingError

from shim.later import OF_INSPECT, PURE_PROTOBUF, later, without
from supervisor.system import late

later(PURE_PROTOBUF)
later("bz2")
later("lzma")  # shutil only notes whether they are there
later("inspect", **OF_INSPECT)  # for click and asyncio
later("platform", system=lambda: os.uname().sysname, python_version=lambda: sys.version.split()[0])  # for uuid, Version
later("pickle", PicklingError=PicklingError)  # for structlog's loggers, when they are pickled
later("hmac", compare_digest=_compare_digest)  # for secrets
for _name in ("hashlib", "tarfile", "tempfile", "filecmp", "shlex"):  # for images, volumes and logs
    later(_name)
for _name in ("tomllib", "ipaddress", "difflib"):  # for a configuration, for addresses, for the advice on a wrong name
    later(_name)
late.put_off()
with without("ssl"):  # 4 ms of processor and 1 MB for TLS, of which exitd's event loop speaks none; grpc brings its own
    import asyncio
import datetime
import json
import logging
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any

import click
import structlog

from supervisor import __version__
from supervisor.config import file as configfile
from supervisor.config.reload import Configuration
from supervisor.config.settings import FLAG, CgroupDriver, Config, Given, Values
from supervisor.daemon import check, claimed, complete_stdio, prepare_process, serve
from supervisor.engine.operations import Settings
from supervisor.model.errors import CannotStart, ExitdError
from supervisor.system import journal
from supervisor.system.inotify import Inotify
from supervisor.system.journal import JournalLogger

DEFAULTS = Config()


# Each flag that sets a key of the configuration file.
KEYS = {
    "root": ("root",),
    "state": ("state",),
    "runtime": ("default_runtime",),
    "cgroup_driver": ("cgroup_driver",),
    "exit_retention": ("retention", "exit_seconds"),
    "watch_node": ("watch_node",),
    "reconcile_seconds": ("limits", "reconcile_seconds"),
    "runtime_seconds": ("limits", "runtime_seconds"),
    "default_network": ("network", "default"),
}
PATHS = ("root", "state")
LEVELS = {"warn": "warning", "exception": "error"}  # of methods that are not called by their level


@click.command("exitd", context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--config", "file", metavar="FILE", help=f"The configuration file.  [default: {configfile.FILE}, if it is there]"
)
@click.option("--root", help=f"Directory for what outlives a boot of the host.  [default: {DEFAULTS.root}]")
@click.option(
    "--state",
    help=f"Directory for sockets and runs, which die with the host.  [default: EXITD_STATE or {DEFAULTS.state}]",
)
@click.option(
    "--runtime",
    metavar="NAME|PATH",
    help=f"Default OCI runtime: a name in the configuration or on PATH.  [default: {DEFAULTS.default_runtime}]",
)
@click.option(
    "--cgroup-driver",
    type=click.Choice([each.value for each in CgroupDriver]),
    help="What makes the containers' cgroups; auto: systemd if it is init.  [default: auto]",
)
@click.option(
    "--default-network",
    metavar="NAME",
    help="Network of containers that name none: auto (the first configured one, else none), none, host or a name.  "
    f"[default: {DEFAULTS.network.default}]",
)
@click.option(
    "--exit-retention",
    type=float,
    metavar="SECONDS",
    help="How long the exit of a container that removed itself can be found by its name.  "
    f"[default: {DEFAULTS.retention.exit_seconds:g}]",
)
@click.option(
    "--watch-node",
    is_flag=True,
    default=None,
    help="Watch how the containers of this machine's other engines end.",
)
@click.option(
    "--keeper",
    type=click.Choice(["start", "wait"]),
    default="start",
    show_default=True,
    help="Start exitd-keeper if none runs, or leave that to the service manager.",
)
@click.option(
    "--log-format",
    type=click.Choice(["json", "console", "journald"]),
    default=None,
    help="Default: console on a tty, journald where stderr is the journal's, else json.",
)
@click.option("--debug", is_flag=True, help="Log every step with its effects.")
@click.option("--reconcile-seconds", type=click.FloatRange(0.05, 86400), hidden=True)
@click.option("--runtime-seconds", type=click.FloatRange(0.1, 3600), hidden=True)
@click.version_option(__version__, prog_name="exitd")
def main(file: str | None, keeper: str, log_format: str | None, debug: bool, **flags: str | float | None) -> None:
    """Run containers, and report each exit exactly once.

    A flag overrides the configuration file, which is read again at SIGHUP and when it changes.
    """
    complete_stdio()
    _set_up_logs(log_format or _usual_log_format(), debug=debug)
    try:
        configuration = Configuration(
            os.path.abspath(file or configfile.FILE), required=file is not None, given=_given(flags)
        )
        now = configuration.now()
        settings = Settings(now.root, now.state, keeper == "start", configuration.now)
        prepare_process()
        check(settings)
        with claimed(settings.state, 0o711), claimed(settings.root, 0o700):
            asyncio.run(serve(settings, configuration, _inotify()))
    except ExitdError as error:
        for line in str(error).splitlines():
            click.echo(f"exitd: {line}", err=True)
        sys.exit(1)


def _inotify() -> Inotify:
    """Raises CannotStart."""
    try:
        return Inotify()
    except OSError as error:
        raise CannotStart(
            f"inotify: {error}; raise fs.inotify.max_user_instances, or the limit of open files"
        ) from error


def _given(flags: Mapping[str, str | float | None]) -> Values:
    """Return what the command line and the environment set. Raises click.BadParameter for values that the configuration
    file would not accept either."""
    given: Values = {}
    for name, value in flags.items():
        if value is not None:
            given[KEYS[name]] = Given(_read(name, value), FLAG)
    if state := os.environ.get("EXITD_STATE"):
        given.setdefault(("state",), Given(os.path.abspath(state), "EXITD_STATE"))
    return given


def _read(name: str, value: str | float) -> object:
    try:
        return configfile.KEYS[".".join(KEYS[name])](os.path.abspath(str(value)) if name in PATHS else value)
    except configfile.WrongValue as error:
        raise click.BadParameter(f"{error}, and is {value!r}", param_hint=f"--{name.replace('_', '-')}") from error


def _usual_log_format() -> str:
    if sys.stderr.isatty():
        return "console"
    return "journald" if journal.is_stderr() else "json"


def _set_up_logs(form: str, *, debug: bool) -> None:
    encode = json.JSONEncoder(default=repr).encode
    renderers: list[structlog.typing.Processor] = [lambda logger, method, entry: encode(entry)]
    factory: Callable[..., object] = structlog.WriteLoggerFactory(file=sys.stderr)
    if form == "console":
        colors = sys.stderr.isatty() and "NO_COLOR" not in os.environ
        renderers = [structlog.dev.ConsoleRenderer(colors=colors)]
    elif form == "journald":
        renderers = []  # the journal's logger takes the entry as it is
        the_journal = JournalLogger(sys.stderr.write)
        factory = lambda *_: the_journal  # noqa: E731  (one for all modules)
    structlog.configure(
        processors=[_complete, *renderers],
        wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG if debug else logging.INFO),
        logger_factory=factory,
        cache_logger_on_first_use=True,
    )


def _complete(logger: object, method: str, entry: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Add level and time to an entry, and the trace of an error: each exit has one, and structlog's own processors for
    these take four times as many calls."""
    entry["level"] = LEVELS.get(method, method)
    entry["timestamp"] = f"{datetime.datetime.now(datetime.UTC).replace(tzinfo=None).isoformat()}Z"
    return structlog.processors.format_exc_info(logger, method, entry) if "exc_info" in entry else entry


if __name__ == "__main__":
    main()
