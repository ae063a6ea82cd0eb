"""Plays one manifest with one tool in the machine, looks at what came of it, and takes it away: one order in JSON as
the only word, one line of JSON out. Imports nothing of exitd."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from typing import Any

STEP_SECONDS = 2.0  # the machine works while it looks, and waits for nothing between
NO_END = 124, "no end"  # as timeout(1) has it
SAID_CHARACTERS = 2000  # the last ones


def done(script: str, seconds: float, environment: dict[str, str]) -> tuple[int, str]:
    """The status and all output; what goes on after so many seconds is killed with all that it began."""
    with subprocess.Popen(
        ["sh", "-c", script], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, errors="replace", env=environment, start_new_session=True,
    ) as running:  # fmt: skip
        try:
            said, _ = running.communicate(timeout=seconds)
            return running.returncode, said
        except subprocess.TimeoutExpired:
            os.killpg(running.pid, signal.SIGKILL)
            status, what = NO_END
            return status, f"{running.communicate()[0]}{what} in {seconds:g} s"


def looked(fact: dict[str, Any], limit: float, environment: dict[str, str]) -> dict[str, object]:
    """Whether a fact holds, at last when its seconds are over."""
    until = time.monotonic() + fact["seconds"]
    while True:
        _, said = done(fact["script"], limit, environment)
        held = bool(re.search(fact["wanted"], said, re.MULTILINE))
        if held or time.monotonic() > until:
            return {"held": held, "said": said[-SAID_CHARACTERS:]}
        time.sleep(STEP_SECONDS)


def whole(order: dict[str, Any]) -> dict[str, object]:
    environment = os.environ | order["environment"]
    limit = order["limit"]
    status, said = done(order["play"], limit, environment)
    with open(environment["PLAYED"], "w") as file:
        file.write(said)
    facts = [looked(fact, limit, environment) for fact in order["facts"]] if status == 0 else []
    _, taken = done(order["clear"], limit, environment)
    return {"status": status, "said": said[-SAID_CHARACTERS:], "facts": facts, "left": taken}


print(json.dumps(whole(json.loads(sys.argv[1]))))
