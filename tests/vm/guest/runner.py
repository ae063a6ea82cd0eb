"""Runs commands for the host: a line of JSON in at the virtio port, a line of JSON out. Imports nothing of exitd."""

import json
import subprocess
import sys
from typing import Any


def done(order: dict[str, Any]) -> dict[str, Any]:
    try:
        run = subprocess.run(
            order["argv"], input="", capture_output=True, text=True, errors="replace", timeout=order["seconds"]
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return {"id": order["id"], "status": 255, "out": "", "err": repr(error)}
    return {"id": order["id"], "status": run.returncode, "out": run.stdout, "err": run.stderr}


with open(sys.argv[1], "r+b", buffering=0) as port:
    kept = b""
    while True:
        kept += port.read(65536) or b""
        *lines, kept = kept.split(b"\n")
        for line in filter(None, lines):
            answer = json.dumps(done(json.loads(line))).encode() + b"\n"
            while answer:
                answer = answer[port.write(answer) :]
