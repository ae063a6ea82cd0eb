"""Requests for execs become facts here, checked: BadRequest names the field and what is allowed. Pure."""

import math

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api import requests, values
from supervisor.model import bounds
from supervisor.model.errors import BadRequest
from supervisor.model.execs import ExecSpec

MOST_SECONDS = 10 * 365 * 24 * 3600.0


def spec_of(message: pb.ExecSpec) -> ExecSpec:
    """Return the checked spec of an exec. Raises BadRequest."""
    requests.refuse_nul(message)
    if not message.args or not message.args[0]:
        raise BadRequest("args: a command is needed", field="args")
    if message.HasField("size") and not message.tty:
        raise BadRequest("size: only a terminal has one", field="size")
    requests.within("args", bounds.size_of(message.args), bounds.MOST_WORDS_BYTES)
    return ExecSpec(
        args=tuple(message.args),
        env=requests.env_of(message.env),
        cwd=values.absolute("cwd", message.cwd),
        user=requests.user_of(message.user),
        tty=message.tty,
        stdin=message.stdin,
        timeout_seconds=_seconds(message.timeout_seconds),
        attach=message.attach,
        size=values.size_of(message.size) if message.HasField("size") else None,
    )


def _seconds(seconds: float) -> float:
    if not math.isfinite(seconds) or not 0 <= seconds <= MOST_SECONDS:
        raise BadRequest(f"timeout_seconds {seconds:g}: 0 (no limit) to ten years", field="timeout_seconds")
    return float(seconds)
