"""exitd: flags, logs, and a daemon in the foreground until SIGTERM."""

import asyncio
import logging
import os
import sys

import click
import structlog

from supervisor import __version__
from supervisor.daemon import check, claimed, complete_stdio, prepare_process, serve
from supervisor.errors import ExitdError
from supervisor.inotify import Inotify
from supervisor.operations import Settings


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--root", default="/var/lib/exitd", show_default=True, help="What outlives a boot of the host.")
@click.option(
    "--state",
    default=lambda: os.environ.get("EXITD_STATE", "/run/exitd"),
    show_default="EXITD_STATE or /run/exitd",
    help="What dies with the host: sockets and run directories.",
)
@click.option("--runtime", default="runc", show_default=True, help="Default OCI runtime: a name on PATH or a path.")
@click.option(
    "--keeper",
    type=click.Choice(["start", "wait"]),
    default="start",
    show_default=True,
    help="Start exitd-keeper when there is none, or leave that to the service manager.",
)
@click.option("--log-format", type=click.Choice(["json", "console"]), default=None, help="Default: console on a tty.")
@click.option("--debug", is_flag=True, help="Log every step with its effects.")
@click.option("--reconcile-seconds", type=click.FloatRange(0.05, 86400), default=30.0, hidden=True)
@click.option("--runtime-seconds", type=click.FloatRange(0.1, 3600), default=30.0, hidden=True)
@click.version_option(__version__, prog_name="exitd")
def main(
    root: str,
    state: str,
    runtime: str,
    keeper: str,
    log_format: str | None,
    debug: bool,
    reconcile_seconds: float,
    runtime_seconds: float,
) -> None:
    """Watches containers end, and tells it exactly once."""
    complete_stdio()
    _set_up_logs(log_format or ("console" if sys.stderr.isatty() else "json"), debug=debug)
    directories = (os.path.abspath(root), os.path.abspath(state))
    settings = Settings(*directories, runtime, reconcile_seconds, keeper == "start", runtime_seconds)
    try:
        prepare_process()
        check(settings)
        with claimed(settings.state, 0o711), claimed(settings.root, 0o711):
            asyncio.run(serve(settings, Inotify()))
    except ExitdError as error:
        click.echo(f"exitd: {error}", err=True)
        sys.exit(1)


def _set_up_logs(form: str, *, debug: bool) -> None:
    renderer: structlog.typing.Processor = structlog.processors.JSONRenderer()
    if form == "console":
        renderer = structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty() and "NO_COLOR" not in os.environ)
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.StackInfoRenderer(),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG if debug else logging.INFO),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )


if __name__ == "__main__":
    main()
