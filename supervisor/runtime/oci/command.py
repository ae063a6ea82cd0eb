"""Why a create failed: the command is missing (127), it cannot be executed (126), or the runtime has trouble (125).

This is decided by looking into the root file system, never by the runtime's message: runc and crun word it
differently, and runc has changed its wording between versions. What they do (observed with runc 1.1.5 and crun 1.8.1):

| command | fails at | seen |
|---|---|---|
| missing, in PATH or by path; links in a circle; a file as a directory | create | status 1, no pid file, no state |
| a directory; no x bit | create | status 1, no pid file, no state |
| out of the user's reach (directory 0700 of another user) | create (runc), init (crun) | status 1 |
| script or ELF with a missing interpreter; interpreter without x bit | init | create 0, start 0, init ends with 1 |
| exec format error: no `#!`, empty file, other machine | init | create 0, start 0, init ends with 1 |
| working directory missing | never | both make it |

Those that fail at init have executed nothing, which `Watch.beginning` sees: the start has failed, and the end has no
code.
"""

import errno
import os
import stat
from collections.abc import Iterable

from shim.frozen import field, frozen
from supervisor.model.errors import CommandNotExecutable, CommandNotFound, RuntimeFailed
from supervisor.model.idranges import IdRange
from supervisor.runtime.oci.inroot import open_in_root
from supervisor.runtime.oci.users import Ids

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@frozen
class FoundCommand:
    """The command was found at `path`, and can be executed."""

    path: str


@frozen
class NotFound:
    """`because` is for people."""

    because: str


@frozen
class NotExecutable:
    """The command exists and cannot be executed."""

    because: str


Lookup = FoundCommand | NotFound | NotExecutable


@frozen
class Command:
    """What the runtime was to execute, where, and as which user."""

    rootfs: str
    argv0: str
    path_env: str = DEFAULT_PATH
    cwd: str = "/"
    user: Ids = field(default_factory=Ids)
    mounts: tuple[str, ...] = ()  # where the caller's own directories and files are mounted over the root file system
    ids: IdRange | None = None  # of its own users: the owners that the root file system shows are of these


def path_of(env: Iterable[str]) -> str:
    """Return the PATH among `K=V` lines: the last one, since the runtimes set them in order."""
    values = [line.removeprefix("PATH=") for line in env if line.startswith("PATH=")]
    return values[-1] if values else DEFAULT_PATH


def blame(
    command: Command, runtime_error: str, verb: str = "the runtime could not create the container"
) -> CommandNotFound | CommandNotExecutable | RuntimeFailed:
    """Return the error of a failed create or exec. `runtime_error` is the runtime's own message, quoted and never
    interpreted; `verb` precedes it if the command is not to blame."""
    if not os.path.isdir(command.rootfs):  # there is nothing to look into
        return RuntimeFailed(f"the root file system {command.rootfs} is not there: {runtime_error}")
    said = f"(the runtime says: {runtime_error or 'nothing'})"
    match find_command(command):
        case NotFound() | NotExecutable() if _may_be_mounted(command):  # only the container would see what is there
            return RuntimeFailed(f"{verb}: {runtime_error or 'it said nothing'}")
        case NotFound(because):
            return CommandNotFound(f"{command.argv0!r}: {because} {said}", command=command.argv0)
        case NotExecutable(because):
            return CommandNotExecutable(f"{command.argv0!r}: {because} {said}", command=command.argv0)
        case FoundCommand():
            return RuntimeFailed(f"{verb}: {runtime_error or 'it said nothing'}")


def refuse_missing(command: Command) -> None:
    """Raise CommandNotFound or CommandNotExecutable for a command that an init program is to begin: what never began
    would have that program's code."""
    if _may_be_mounted(command):
        return  # only the container sees what is there
    match find_command(command):
        case NotFound(because):
            raise CommandNotFound(f"{command.argv0!r}: {because}", command=command.argv0)
        case NotExecutable(because):
            raise CommandNotExecutable(f"{command.argv0!r}: {because}", command=command.argv0)


def never_executed(argv0: str, runtime_error: str = "", more: str = "") -> CommandNotExecutable:
    """Return the error of a process that ended before it had executed its command. `more` is appended to the next
    step."""
    why = f"{argv0!r} was never executed, its process ended without it ({runtime_error or 'the kernel refused it'})"
    return CommandNotExecutable(f"{why}; look at its format, its #! line and its interpreter{more}", command=argv0)


def find_command(command: Command) -> Lookup:
    """Look for the command as execvp(3) does: a name with a slash is a path, else every directory of PATH is tried.

    In PATH a directory of that name is skipped, and a file that cannot be executed counts only if no other can.
    """
    if "/" in command.argv0:
        return _look(command, command.argv0)
    blocked: NotExecutable | None = None
    for directory in command.path_env.split(":") if command.argv0 else ():
        match _look(command, f"{directory or '.'}/{command.argv0}"):
            case FoundCommand() as found:
                return found
            case NotExecutable(because) as result if because != _DIRECTORY:
                blocked = blocked or result
    return blocked or NotFound(f"not found in PATH ({command.path_env})")


def _may_be_mounted(command: Command) -> bool:
    """Return whether a place where the command was looked for is one of the mounts, or inside one."""
    names = [command.argv0] if "/" in command.argv0 else [f"{d}/{command.argv0}" for d in command.path_env.split(":")]
    places = [os.path.normpath(os.path.join("/", command.cwd, name)) for name in names]
    return any(os.path.commonpath((place, mount)) == mount for place in places for mount in command.mounts)


_DIRECTORY = "is a directory"


def _look(command: Command, path: str) -> Lookup:
    full = os.path.join("/", command.cwd, path)
    try:
        found_fd = open_in_root(command.rootfs, full, may_search=lambda status: _may_execute(status, command))
    except PermissionError:
        return NotExecutable("a directory on its path may not be searched by the container's user")
    except OSError as error:
        return NotFound(os.strerror(error.errno or errno.ENOENT).lower())
    try:
        status = os.fstat(found_fd)
    finally:
        os.close(found_fd)
    if stat.S_ISDIR(status.st_mode):
        return NotExecutable(_DIRECTORY)
    if not stat.S_ISREG(status.st_mode):
        return NotExecutable("is not a regular file")
    return FoundCommand(full) if _may_execute(status, command) else NotExecutable("has no execute permission")


def _may_execute(status: os.stat_result, command: Command) -> bool:
    """Decide by the mode bits alone. Root searches every directory and executes any file with an x bit,
    capabilities(7)."""
    user, owner, group = command.user, status.st_uid, status.st_gid
    if command.ids is not None:
        owner, group = command.ids.inside(owner), command.ids.inside(group)
    if user.uid == 0:
        return stat.S_ISDIR(status.st_mode) or bool(status.st_mode & 0o111)
    if owner == user.uid:
        return bool(status.st_mode & stat.S_IXUSR)
    if group == user.gid or group in user.additional_gids:
        return bool(status.st_mode & stat.S_IXGRP)
    return bool(status.st_mode & stat.S_IXOTH)
