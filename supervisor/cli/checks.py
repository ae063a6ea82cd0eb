"""Health checks on the command line: the options of `run` and `create`."""

from collections.abc import Callable
from typing import Any

import click

from protos.exitd.v1 import exitd_pb2 as pb
from shim.frozen import frozen
from supervisor.cli import parse
from supervisor.model.errors import BadRequest

NONE = "none"  # podman's alternative to --no-healthcheck
OPTIONS: tuple[Callable[[Callable[..., Any]], Callable[..., Any]], ...] = (
    click.option(
        "--health-cmd",
        metavar="CMD",
        default="",
        help="Run this at intervals, by its shell or as a JSON list of words; healthy if it ends with 0.",
    ),
    click.option("--health-interval", metavar="TIME", default="", help="Time between two probes; default 30s."),
    click.option("--health-timeout", metavar="TIME", default="", help="Time limit of a probe; default 30s."),
    click.option("--health-retries", metavar="N", default="", help="Unhealthy after N failures in a row; default 3."),
    click.option(
        "--health-start-period", metavar="TIME", default="", help="Failures do not count for this time; default 0s."
    ),
    click.option(
        "--health-on-failure", metavar="WHAT", default="", help="When unhealthy: none (default), kill, restart or stop."
    ),
    click.option("--no-healthcheck", is_flag=True, help="No health check, even if its image has one."),
)


@frozen
class CheckWords:
    """The options of a health check, literally."""

    health_cmd: str = ""
    health_interval: str = ""
    health_timeout: str = ""
    health_retries: str = ""
    health_start_period: str = ""
    health_on_failure: str = ""
    no_healthcheck: bool = False


def check_spec(words: CheckWords) -> pb.HealthSpec | None:
    """None: nothing was said, the image's own counts. Raises BadRequest."""
    if words == CheckWords():
        return None
    if words.no_healthcheck or words.health_cmd == NONE:
        if words not in (CheckWords(no_healthcheck=True), CheckWords(NONE)):
            raise BadRequest(
                "--no-healthcheck (or --health-cmd none) and the other options of a check exclude each other"
            )
        return pb.HealthSpec(args=("",))
    return pb.HealthSpec(
        args=_command(words.health_cmd),
        interval_ns=_duration("interval", words.health_interval),
        timeout_ns=_duration("timeout", words.health_timeout),
        retries=_retries(words.health_retries),
        start_period_ns=_duration("start-period", words.health_start_period),
        on_failure=words.health_on_failure,
    )


def _command(text: str) -> tuple[str, ...]:
    """A JSON list of words is executed directly; everything else is a line for the shell."""
    if not text:
        return ()
    import json

    from supervisor.model import values  # with all that a daemon knows of containers

    try:
        words = json.loads(text) if text.startswith("[") else None
    except ValueError:
        words = None
    if isinstance(words, list) and words and all(isinstance(word, str) for word in words) and words[0]:
        return tuple(words)
    return (*values.SHELL, text)


def _duration(name: str, text: str) -> int:
    try:
        return parse.duration_ns(text) if text else 0
    except BadRequest as error:
        raise BadRequest(f"--health-{name}: {error}") from error


def _retries(text: str) -> int:
    if text and not (text.isascii() and text.isdigit() and len(text) < 10 and int(text)):
        raise BadRequest(f"--health-retries {text!r} is no number of failures: write 1, 3 or 5")
    return int(text or 0)
