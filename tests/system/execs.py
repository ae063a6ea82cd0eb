"""Execs of a real daemon in a line each."""

import glob
import pathlib

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api.client import Client
from tests.system.daemons import Daemon
from tests.system.lives import ended
from tests.system.processes import commands, cwd_of
from tests.system.waits import LIMIT_SECONDS


def begin(client: Client, id: str, *args: str, **fields: object) -> str:
    return client.exec(id, pb.ExecSpec(args=args, **fields)).id  # type: ignore[arg-type]


def end_of(client: Client, id: str, exec_id: str) -> pb.Exit:
    return ended(client.begin_wait(id, exec_id=exec_id).result(LIMIT_SECONDS))


def run(client: Client, id: str, *args: str, **fields: object) -> pb.Exit:
    return end_of(client, id, begin(client, id, *args, **fields))


def script(client: Client, id: str, text: str, **fields: object) -> pb.Exit:
    return run(client, id, "sh", "-c", text, **fields)


def shims_of(d: Daemon, exec_id: str) -> list[int]:
    """The pids of the exec's shims, by the directory that they work in."""
    places = {pid: cwd_of(pid) for pid, command in commands() if b"exitd-shim" in command}
    return [pid for pid, cwd in places.items() if cwd.endswith(f"/e/{exec_id}") and cwd.startswith(str(d.base))]


def shim_of(d: Daemon, exec_id: str) -> int:
    """The one that there is."""
    (pid,) = shims_of(d, exec_id)
    return pid


UNTIL_LET_GO = "until [ -e /go ]; do sleep 0.02; done; "


def let_go(d: Daemon, id: str) -> None:
    """What waits in that container with UNTIL_LET_GO goes on."""
    (d.root / "c" / id / "rootfs" / "merged" / "go").touch()


def command_of(pid: int) -> bytes:
    return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()


def exec_directories(d: Daemon) -> list[pathlib.Path]:
    """Those that are removed meanwhile glob.glob does not mind, and Path.glob does."""
    return [pathlib.Path(path) for path in glob.glob(f"{d.state}/c/*/*/e/*")]
