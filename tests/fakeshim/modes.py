"""In what a fake shim differs from a good one. Read anew at every call, so that a test may change it in between.

Each of these some real shim does, or has done: containerd's own, kata's two, those in Rust.
"""

import json
import os
import pathlib
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Modes:
    """As it is made, it does nothing wrong."""

    sockets: str = ""  # the directory of its sockets
    # `start`: plain | json2 | json3 | json4 | message | message3 | grpc | vsock | abstract | noise | nothing | garbage
    # | fails | hangs | held (a child keeps stdout open) | late-dead (an address, and then nobody there)
    # | mute (the shim is there, and `start` never says where)
    # | deaf (its queue of connections is full, and it takes none)
    start: str = "plain"
    # What `-v` prints: a version as shims on containerd's frame print it; or kata | fails | hangs
    version: str = "1.6.20"
    # stdin of `start`: "" takes all | options (nothing else) | message (nothing else)
    stdin: str = ""
    services: tuple[str, ...] = ("v2", "v3")  # others are answered with code 12
    explicit_ok: bool = False  # success is said, where others leave the status out
    eager: bool = False  # `start` fails when nobody takes events yet
    log: str = "wanted"  # wanted: waits for a reader of BUNDLE/log, dies when there is no such fifo; or none
    log_lines: int = 1
    one_pid: bool = False  # every pid that is reported is the shim's own
    exit_events: int = 1  # per exit
    status: int = -1  # what is reported of every exit; -1 is the truth
    oom_at_end: bool = False  # an init that SIGKILL has ended was killed for memory, in a virtual machine
    wait: str = "prompt"  # | after-event | late | never | error
    late_seconds: float = 0.3
    told_pid: int = -1  # the pid that is reported of every process; -1 is the truth
    told_exec_pid: int = -1  # of every exec's alone
    at: tuple[int, ...] = ()  # seconds and nanoseconds that are reported of every end; empty: the truth
    odd_events: bool = False  # before each exit, events that mean nothing
    vm: bool = False  # as kata's: signals nobody in what was not started, deletes it; a second Start is never answered
    shutdown: str = "reply"  # | eof (as kata's) | stays
    # The binary's `delete`: number (137, as most) | garbage | nothing | fails | hangs | noise
    delete: str = "number"
    # Methods of Task
    never: tuple[str, ...] = ()  # not answered
    dies_on: tuple[str, ...] = ()  # the shim ends with status 1 as soon as it is asked
    freezes_on: tuple[str, ...] = ()  # it stops itself
    refused: dict[str, tuple[int, str]] = field(default_factory=dict)  # code and text


def path_beside(program: str) -> str:
    return f"{program}.json"


def read(program: str) -> Modes:
    words: dict[str, Any] = json.loads(pathlib.Path(path_beside(program)).read_text())
    fields: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in words.items()}
    return Modes(**fields)


VERSIONS = {
    "kata": "echo 'Kata Containers containerd shim (Golang): id: \"io.containerd.kata.v2\", version: 3.4.0, commit: 0'",
    "fails": "exit 2",
    "hangs": "exec sleep 3600",
}
GO_VERSION = "printf '%s:\\n  Version:  {}\\n  Revision: 0\\n  Go version: go1.19\\n\\n' \"$0\""


def write(program: str, modes: Modes) -> None:
    """Whole, or not at all: somebody may be reading."""
    path = path_beside(program)
    pathlib.Path(f"{path}.new").write_text(json.dumps(asdict(modes)))
    pathlib.Path(f"{program}.version").write_text(VERSIONS.get(modes.version) or GO_VERSION.format(modes.version))
    os.replace(f"{path}.new", path)
