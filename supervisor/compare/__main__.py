"""The process that measures: `python -m supervisor.compare STATE ROOT PLAN`, begun by `exitctl compare` in a mount
namespace of its own. The report is ROOT/report.json; what happens meanwhile is said on stderr."""

import os

os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"  # read when grpc is imported; what measures starts processes all the time

import pathlib
import signal
import sys
from collections.abc import Sequence
from types import FrameType

from shim import native
from supervisor.compare import contest, facts, machine, plan
from supervisor.runtime.oci import cgroups

SOCKETS = "/run/containerd"  # of all containerds' shims: the one place that a configuration cannot name
UNIFIED = f"{cgroups.ROOT}/unified"
INTERRUPTED = 130


def main(words: Sequence[str]) -> int:
    state, root, text = words
    wanted = plan.decode(text)
    _own_view()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupted)
    try:
        with machine.scratch(state, root) as place:
            conditions = contest.conditions(place, wanted)
            found = contest.Contest(place, wanted, _say)
            found.run()
            report = found.report([*conditions, ("load average after", machine.load())])
    except KeyboardInterrupt:
        return INTERRUPTED
    pathlib.Path(f"{root}/report.json").write_text(facts.encode(report))
    return 0


def _own_view() -> None:
    """Of this process and all below it."""
    pathlib.Path(SOCKETS).mkdir(exist_ok=True)
    native.mount("tmpfs", SOCKETS, "tmpfs", 0, "")
    if cgroups.mode() is cgroups.Mode.HYBRID:  # crun (1.8) refuses a hybrid host: all see one with v1 alone
        native.unmount(UNIFIED)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _interrupted(number: int, frame: FrameType | None) -> None:
    """Once: what then goes on is the clearing up."""
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
