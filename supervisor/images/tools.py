"""Programs run for the store: skopeo, zstd, sync. Each dies with the daemon and has a time limit."""

import os
import shutil
import signal
import subprocess
from typing import IO

import structlog

from shim import programs
from supervisor.images.deadline import Deadline
from supervisor.model.errors import ImageStoreFailed, ToolFailed, ToolMissing

PULL_SECONDS = 600.0
SYNC_SECONDS = 300.0
DEATH_SECONDS = 10.0
MOST_ERROR_BYTES = 2000
SEARCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
DEBIAN = {"skopeo": "skopeo", "zstd": "zstd", "sync": "coreutils"}
Stream = IO[bytes] | int | None

log = structlog.get_logger(__name__)


def find(name: str) -> str:
    """Return the program's path. Raises ToolMissing, which names the next step."""
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:{SEARCH_PATH}")
    if not found:
        raise ToolMissing(f"{name} is not installed (Debian: {DEBIAN.get(name, name)})", tool=name)
    return os.path.abspath(found)


def start(
    argv: list[str], *, stdin: Stream = None, stdout: Stream = None, stderr: Stream = None, tmp: str = ""
) -> "subprocess.Popen[bytes]":
    """Start a child in its own process group, which dies with this thread. Streams that are not given are /dev/null."""
    try:
        launcher = programs.find("exitd-launch")
    except FileNotFoundError as error:
        raise ToolMissing(str(error), tool="exitd-launch") from error
    return subprocess.Popen(
        [launcher, str(os.getpid()), "--", *argv],
        stdin=subprocess.DEVNULL if stdin is None else stdin,
        stdout=subprocess.DEVNULL if stdout is None else stdout,
        stderr=subprocess.DEVNULL if stderr is None else stderr,
        env={**os.environ, **({"TMPDIR": tmp} if tmp else {})},
        process_group=0,
    )


def end(process: "subprocess.Popen[bytes]") -> None:
    """Kill what is left of a child's group and reap the child. One that the kernel does not let die is left to it."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)  # not yet reaped, so the number is still this group's
        try:
            process.wait(DEATH_SECONDS)
        except subprocess.TimeoutExpired:
            log.error("still there after SIGKILL", command=process.args, pid=process.pid)
    if process.stdout:
        process.stdout.close()


def pull(name: str, layout: str, scratch: str, deadline: Deadline) -> None:
    """Copy an image of a registry into a new OCI layout, under the tag `pulled`. skopeo uses the host's policy
    (containers-policy.json(5)) and credentials. Raises ToolMissing, ToolFailed, and what the deadline raises."""
    argv = [find("skopeo"), "copy", "--quiet", f"docker://{name}", f"oci:{layout}:pulled"]
    log = f"{scratch}/skopeo.log"
    with open(log, "w+b") as errors:
        process = start(argv, stderr=errors, tmp=scratch)
        try:
            status = deadline.wait(process)
        finally:
            end(process)
        if status:
            raise ToolFailed(f"skopeo could not pull {name}: {_last_words(errors)}", image=name, tool="skopeo")


def sync_file_system(path: str, deadline: Deadline) -> None:
    """Write everything on the file system of `path` to its disk: syncfs(2) by sync(1), since Python has no such call
    and an fsync for each of many thousand files takes minutes. Raises ImageStoreFailed, TimedOut."""
    process = start([find("sync"), "--file-system", path])
    try:
        status = deadline.wait(process)
    finally:
        end(process)
    if status:
        raise ImageStoreFailed(f"{path}: the disk could not be written (sync ended with {status})")


def _last_words(file: IO[bytes]) -> str:
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - MOST_ERROR_BYTES))
    return file.read().decode("utf-8", "replace").strip() or "it said nothing"
