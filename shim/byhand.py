"""`python -m shim.byhand BUNDLE`: a container under exitd-shim, started without exitd. One that runs, or comes to run,
adopts it: it is listed, watched and removed like any other, and its exit is in the ledger.

Prints the container's id. With a keeper in the state directory it stands above the shim, as for every other container.
Exit status 1: the reason is on stderr; what was made has been taken back, unless the text says otherwise.
"""

import argparse
import contextlib
import json
import os
import secrets
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any, cast

from shim import fields, launch, mark, names, plan, prepare, programs, record, slots
from shim.frozen import frozen
from shim.undo import undone_on_failure

CREATE_SECONDS = 120
COMMAND_SECONDS = 30
LEAVES_SECONDS = 5.0  # a shim that has nothing to do any more
ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
BOOT_ID = "/proc/sys/kernel/random/boot_id"
CGROUPS = "/sys/fs/cgroup"


class Failed(Exception):
    """The text names the thing and the next step."""


@frozen
class Wanted:
    """What is to be started; all paths absolute."""

    id: str
    name: str
    bundle: str
    runtime: str
    state: str
    root: str
    args: tuple[str, ...] = ()
    cgroup: str = ""  # as config.json names it; empty: exitd will not know the container's cgroup

    @property
    def directory(self) -> str:
        return f"{self.state}/c/{self.id}/{mark.RUN}"

    @property
    def log_path(self) -> str:
        return f"{self.root}/c/{self.id}/container.log"

    def words(self, *command: str, log: bool = False) -> tuple[str, ...]:
        """A command line of the runtime."""
        logging = ("--log", f"{self.directory}/{names.RUNTIME_LOG}", "--log-format", "json") if log else ()
        return (self.runtime, "--root", f"{self.directory}/{names.RUNTIME_ROOT}", *logging, *command)


def main() -> None:
    try:
        print(start(wanted_of(sys.argv[1:])))
    except (Failed, launch.KeeperRefused, fields.BadMessage) as error:
        sys.exit(f"byhand: {error}")
    except OSError as error:
        sys.exit(f"byhand: {error.filename or 'exitd-shim'}: {error.strerror or error}")


def wanted_of(argv: Sequence[str]) -> Wanted:
    """The arguments, checked against the bundle. Failed, OSError."""
    parser = argparse.ArgumentParser(prog="python -m shim.byhand", description="Start a container without exitd.")
    parser.add_argument("bundle", metavar="BUNDLE", help="directory with a config.json; used as it is")
    parser.add_argument("--state", default=os.environ.get("EXITD_STATE", "/run/exitd"), help="default %(default)s")
    parser.add_argument("--root", default="/var/lib/exitd", help="where the log goes; default %(default)s")
    parser.add_argument("--runtime", default="runc", help="a name on PATH or a path; default %(default)s")
    parser.add_argument("--id", default="", help="default: a new one")
    parser.add_argument("--name", default="", help="default: the id")
    said = parser.parse_args(argv)
    id = said.id or f"hand-{secrets.token_hex(12)}"
    for what, text in (("id", id), ("name", said.name or id)):
        if not mark.ID.fullmatch(text) or mark.EXITDS_OWN_ID.fullmatch(text):
            raise Failed(f"--{what} {text!r}: at most 63 of a-z A-Z 0-9 . _ -, a letter or digit first")
    runtime = shutil.which(said.runtime)
    if runtime is None:
        raise Failed(f"--runtime {said.runtime}: no such program; install it, or give its path")
    state = os.path.abspath(said.state)
    if len(os.fsencode(state)) > names.STATE_PATH_LIMIT:
        raise Failed(f"--state {state}: at most {names.STATE_PATH_LIMIT} bytes, its sockets' paths are limited")
    bundle = os.path.abspath(said.bundle)
    args, cgroup = read_config(bundle)
    places = (bundle, os.path.abspath(runtime), state, os.path.abspath(said.root))
    return Wanted(id, said.name or id, *places, args, cgroup)


def read_config(bundle: str) -> tuple[tuple[str, ...], str]:
    """The container's command line, and its cgroup if config.json names one for the cgroupfs driver."""
    path = f"{bundle}/config.json"
    try:
        with open(path, "rb") as file:
            document = cast("dict[str, Any]", json.load(file))
        process, linux = document["process"], document.get("linux") or {}
        terminal, cgroup = process.get("terminal", False), linux.get("cgroupsPath") or ""
        args = tuple(str(word) for word in process["args"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Failed(f"{path} is no container's configuration: {error!r}") from error
    if terminal:
        raise Failed(f"{path}: process.terminal is true; terminals are not supported yet")
    return args, cgroup if cgroup.startswith("/") else ""


def start(wanted: Wanted) -> str:
    """The id of a container that runs. Failed, KeeperRefused, OSError."""
    claim(wanted)
    with undone_on_failure(lambda: take_back(wanted)), reached_keeper(wanted.state) as keeper:
        fill(wanted, keeper is not None)
        created = create(wanted, keeper)
    try:
        start_init(wanted, created.pidfd)
    finally:
        os.close(created.pidfd)
    now = mark.Started(time.time_ns(), time.clock_gettime_ns(time.CLOCK_BOOTTIME))
    prepare.write_new(f"{wanted.directory}/{mark.STARTED}", mark.encode_started(now))
    return wanted.id


def claim(wanted: Wanted) -> None:
    """Both directories, which are new."""
    os.makedirs(wanted.state, mode=0o711, exist_ok=True)
    os.makedirs(wanted.root, mode=0o700, exist_ok=True)
    made: list[str] = []
    for path in (os.path.dirname(wanted.log_path), os.path.dirname(wanted.directory)):
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)  # STATE/c and ROOT/c
        try:
            os.mkdir(path, mode=0o700)
        except FileExistsError as error:
            for other in made:
                os.rmdir(other)
            raise Failed(f"--id {wanted.id}: {path} is there already; choose another") from error
        made.append(path)


@contextlib.contextmanager
def reached_keeper(state: str) -> Iterator[socket.socket | None]:
    """A line to the state directory's keeper; None without one. None is started here: it may be a service manager's."""
    try:
        line = launch.connect(state)
    except OSError:
        yield None
        return
    with line:
        yield line


def fill(wanted: Wanted, keeper: bool) -> None:
    """The run directory, its mark before anything else."""
    path = wanted.directory
    os.mkdir(path, mode=0o700)
    with open(BOOT_ID, encoding="ascii") as file:
        boot_id = file.read().strip()
    own = mark.Mark(wanted.name, wanted.bundle, wanted.runtime, boot_id, time.time_ns(), wanted.args)
    prepare.write_new(f"{path}/{mark.MARK}", mark.encode_mark(own))
    os.mkfifo(f"{path}/{names.FIFO}", mode=0o600)
    prepare.make_record(f"{path}/{record.NAME}")
    prepare.write_new(f"{path}/{names.LOCK}", b"")
    prepare.write_new(f"{path}/{names.PLAN}", plan.encode(plan_of(wanted, keeper)))


def plan_of(wanted: Wanted, keeper: bool) -> plan.Plan:
    """Return what the shim is to do. `keeper`: there is one, and it gets the run."""
    pid_file = f"{wanted.directory}/{names.PID_FILE}"
    create = ("create", "--bundle", wanted.bundle, "--pid-file", pid_file, wanted.id)
    return plan.Plan(
        id=wanted.id,
        run=mark.RUN,
        create=wanted.words(*create, log=True),
        remove=wanted.words("delete", "--force", wanted.id),
        pid_file=pid_file,
        runtime_log=f"{wanted.directory}/{names.RUNTIME_LOG}",
        log=wanted.log_path,
        oom=oom_counter(wanted.cgroup),
        keeper=f"{wanted.state}/{launch.SOCKET_NAME}" if keeper else "",
        create_ms=CREATE_SECONDS * 1000,
    )


def oom_counter(cgroup: str) -> str:
    """The file that counts the container's memory kills; empty when its cgroup is not known."""
    if not cgroup:
        return ""
    if os.path.exists(f"{CGROUPS}/cgroup.controllers"):
        return f"{CGROUPS}{cgroup}/memory.events"
    return f"{CGROUPS}/memory{cgroup}/memory.oom_control"


def create(wanted: Wanted, keeper: socket.socket | None) -> launch.Created:
    """The shim begun and its word heard. Past the limit, or when the shim dies, what it began is ended with it."""
    program = str(programs.find("exitd-shim"))
    with contextlib.ExitStack() as stack:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        stack.enter_context(ours)
        fds = [prepare.above_slots(theirs.detach()), *prepare.output_pipes()]
        shim_fd = spawn(wanted, program, keeper, fds)
        stack.callback(os.close, shim_fd)
        ours.settimeout(CREATE_SECONDS + 5)
        with undone_on_failure(lambda: end_unmade(wanted, shim_fd, keeper)):
            return word_of(wanted, *launch.receive(ours))


def end_unmade(wanted: Wanted, shim_fd: int, keeper: socket.socket | None) -> None:
    """A shim that has made no container; the keeper may forget it."""
    end(shim_fd)
    if keeper is not None:
        launch.ask(keeper, fields.encode("exitd-ack", launch.key(wanted.id, mark.RUN)), [])


def spawn(wanted: Wanted, program: str, keeper: socket.socket | None, fds: list[int]) -> int:
    """The new shim's pidfd. Closes our copies of its descriptors: with them its death is an end of file."""
    try:
        if keeper is None:
            return spawn_directly(wanted, program, fds)
        request = launch.spawn_request(wanted.id, mark.RUN, "", wanted.directory, program, adopt=False)
        return launch.ask(keeper, request, fds)[1][0]
    except TimeoutError as error:
        raise Failed(f"exitd-keeper of {wanted.state} does not answer; is it stopped? Nothing was started") from error
    finally:
        for fd in fds:
            os.close(fd)


def spawn_directly(wanted: Wanted, program: str, fds: list[int]) -> int:
    """Our own child, and the host's init's once we have ended."""
    actions = [(os.POSIX_SPAWN_DUP2, fd, slot) for slot, fd in enumerate(fds, start=slots.STATUS_FD)]
    os.chdir(wanted.directory)
    try:
        pid = os.posix_spawn(program, ["exitd-shim", wanted.id], ENVIRONMENT, file_actions=actions)
    finally:
        os.chdir("/")
    return os.pidfd_open(pid)


def word_of(wanted: Wanted, data: bytes, descriptors: list[int]) -> launch.Created:
    """Return what the shim has reported of its create. Raises Failed, with the next step."""
    if not data:
        raise Failed("exitd-shim died during create; try again")
    status = launch.parse_status(data, descriptors)
    if isinstance(status, launch.Created) and status.pidfd >= 0:
        return status
    if isinstance(status, launch.Created):
        raise Failed("init's descriptor did not come through: too many open files")
    why = last_words(status.text) if status.stage == "runtime" else os.strerror(status.errno)
    raise Failed(f"{wanted.runtime} create of {wanted.bundle}: {status.stage}: {why or 'it said nothing'}")


def last_words(text: str) -> str:
    """What a person wants of a runtime's log; never parsed on. A message is a line of JSON, or several (crun 1.28)."""
    lines = [line for line in text.splitlines() if line.strip()]
    begins = max((number for number, line in enumerate(lines) if line.startswith("{")), default=0)
    try:
        return str(json.loads("\n".join(lines[begins:]))["msg"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return lines[-1] if lines else ""


def start_init(wanted: Wanted, init_fd: int) -> None:
    """The runtime's start. One that fails because init was quicker than it has done its work."""
    try:
        done = subprocess.run(
            wanted.words("--log-format", "json", "start", wanted.id), stdin=subprocess.DEVNULL, capture_output=True,
            text=True, timeout=COMMAND_SECONDS, errors="replace", env=ENVIRONMENT,
        )  # fmt: skip
        why = last_words(done.stderr) if done.returncode else ""
    except subprocess.TimeoutExpired:
        done, why = None, f"no end in {COMMAND_SECONDS} s"
    if (done is not None and not done.returncode) or is_ready(init_fd, 0):
        return
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(init_fd, signal.SIGKILL)
    raise Failed(f"{wanted.runtime} start of {wanted.id}: {why}; it was killed, and exitd will report its exit")


def end(shim_fd: int) -> None:
    """A shim that made nothing ends by itself; one that does not is ended, and its runtime command with it."""
    if not is_ready(shim_fd, LEAVES_SECONDS):
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(shim_fd, signal.SIGKILL)
        is_ready(shim_fd, LEAVES_SECONDS)


def is_ready(fd: int, seconds: float) -> bool:
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


def take_back(wanted: Wanted) -> None:
    """Nothing of it is left, neither in the runtime nor in the two directories."""
    if os.path.isdir(f"{wanted.directory}/{names.RUNTIME_ROOT}/{wanted.id}"):
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(
                wanted.words("delete", "--force", wanted.id), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL, timeout=COMMAND_SECONDS,
            )  # fmt: skip
    for path in (os.path.dirname(wanted.directory), os.path.dirname(wanted.log_path)):
        shutil.rmtree(path, ignore_errors=True)


if __name__ == "__main__":
    main()
