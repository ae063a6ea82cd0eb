"""Where a container's log goes: settled when it is made, from the configuration of that moment, and kept with it."""

import os
import stat
from collections.abc import Iterable
from dataclasses import replace

from supervisor.config.settings import Config
from supervisor.model.errors import BadRequest, WrongState
from supervisor.model.values import Container, LogDriver, LogSpec, Spec

JOURNAL = "/run/systemd/journal/socket"
WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def chosen(spec: Spec, config: Config) -> Spec:
    """The spec with all of its log. BadRequest for a path that whoever is not root could turn into another, WrongState
    for the journal of a host that has none: all output would be lost."""
    asked = spec.log
    driver = asked.driver or config.log_driver
    log = LogSpec(driver, asked.path, 0, 0, asked.mode, asked.buffer_bytes)
    if log.to_file:
        max_bytes = config.log_max_size if asked.max_bytes is None else asked.max_bytes
        log = replace(log, max_bytes=max_bytes, max_files=asked.max_files or config.log_max_files)
    elif asked.path or asked.max_bytes or asked.max_files:
        raise _bad(asked.path, f"the configuration's log driver {driver} writes no file; choose cri or json-file")
    if driver is LogDriver.JOURNALD and not os.path.exists(JOURNAL):
        raise WrongState(f"log driver journald: there is no journal here, {JOURNAL} is missing; choose another driver")
    check_path(log.path)
    return replace(spec, log=log)


def below(spec: Spec, log_directory: str) -> Spec:
    """A member's log path may be relative to its pod's log directory, as the CRI has it."""
    path = spec.log.path
    if not path or path.startswith("/") or not log_directory:
        return spec
    return replace(spec, log=replace(spec.log, path=f"{log_directory.rstrip('/')}/{path}"))


def refuse_shared(spec: Spec, others: Iterable[Container]) -> None:
    """WrongState: two shims would rotate one file."""
    for other in others if spec.log.path else ():
        if other.spec.log.path == spec.log.path:
            raise WrongState(f"log path {spec.log.path} is that of {other.spec.name} already", id=other.id)


def check_path(path: str) -> None:
    """BadRequest unless the file is there or can be made in its directory, and only root can put another one there."""
    if not path:
        return
    if not path.startswith("/"):
        raise _bad(path, "is relative, and there is no pod with a log directory; write an absolute path")
    directory = os.path.dirname(path)
    try:
        if (real := os.path.realpath(directory, strict=True)) != directory:
            raise _bad(path, f"there is a link in {directory}; write {real}/{os.path.basename(path)}")
        _check_directory(path, directory)
        mode = os.stat(path, follow_symlinks=False).st_mode
    except FileNotFoundError as error:
        if error.filename != path:
            raise _bad(path, f"there is no directory {directory}; make it first") from error
        return
    except OSError as error:
        raise _bad(path, f"{error.filename}: {error.strerror}") from error
    if not stat.S_ISREG(mode):
        what = "a link, and links are not followed" if stat.S_ISLNK(mode) else "no regular file"
        raise _bad(path, f"it is {what}")


def _check_directory(path: str, directory: str) -> None:
    """What belongs to root in a sticky directory on the way, nobody else can rename."""
    above = directory
    while True:
        found = os.stat(above, follow_symlinks=False)
        if not stat.S_ISDIR(found.st_mode):
            raise _bad(path, f"{above} is no directory")
        if found.st_uid != os.geteuid() and found.st_uid != 0:
            raise _bad(path, f"{above} does not belong to root")
        sticky = above != directory and found.st_mode & stat.S_ISVTX
        if found.st_mode & WRITABLE_BY_OTHERS and not sticky:
            raise _bad(path, f"others than root can write to {above}")
        if above == "/":
            return
        above = os.path.dirname(above)


def _bad(path: str, why: str) -> BadRequest:
    return BadRequest(f"log path {path}: {why}" if path else f"log: {why}", field="log.path")
