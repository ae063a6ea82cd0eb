"""`cp`: files between a container and this machine, or two containers, as a stream that nothing keeps in between."""

import contextlib
import os
import stat
import sys
from collections.abc import Iterator

import click

from shim.frozen import frozen
from supervisor.api.client import Client
from supervisor.cli import copyrules
from supervisor.cli.app import complain, connect
from supervisor.cli.copyrules import CopyEnd, CopyTarget
from supervisor.cli.spelling import Spelled
from supervisor.images.extract import ChunkSource, ExtractedCounts, Keeping, extract
from supervisor.images.pack import pack
from supervisor.images.tar import TarReader
from supervisor.model.errors import BadRequest, NoSuchPath

STREAM = "-"
CHUNK_BYTES = 128 << 10


@frozen
class CopyManner:
    """How it is copied: `-a` and `-L`."""

    owner: bool
    follow: bool


@click.command(cls=Spelled)
@click.option("-a", "--archive", is_flag=True, help="Keep the owner of each file, and on this machine its attributes.")
@click.option("-L", "--follow-link", is_flag=True, help="If SOURCE is a symbolic link, copy what it leads to.")
@click.option("-q", "--quiet", is_flag=True, help="Print nothing when it is done.")
@click.argument("source", metavar="SOURCE")
@click.argument("destination", metavar="DEST")
@click.pass_context
def cp(ctx: click.Context, source: str, destination: str, archive: bool, follow_link: bool, quiet: bool) -> int:
    """Copy files: SOURCE and DEST are CONTAINER:PATH or a path of this machine; - is a tar on standard input or output.
    DIR/. is the content of DIR. Of a container that does not run, too.
    """
    client, manner = connect(ctx), CopyManner(archive, follow_link)
    from_container, from_path = copyrules.split(source)
    to_container, to_path = copyrules.split(destination)
    if not from_container and not to_container:
        raise BadRequest("which container? One of SOURCE and DEST is CONTAINER:PATH")
    if from_container and to_container:
        done = _between(client, from_container, from_path, to_container, to_path, manner)
    elif from_container:
        done = _out(client, from_container, from_path, to_path, manner)
    else:
        done = _into(client, from_path, to_container, to_path, manner)
    if done.left_out:
        complain(f"{done.left_out} device nodes are left out")
    if not quiet and destination != STREAM:
        complain(f"copied {done.entries} files and directories")
    return 0


def _out(client: Client, container: str, path: str, to_path: str, manner: CopyManner) -> ExtractedCounts:
    source = _end_in(client, container, path, follow=manner.follow)
    if to_path == STREAM:
        if sys.stdout.isatty():
            raise BadRequest("the tar is no text for a terminal: exitctl cp CONTAINER:PATH - >FILE")
        for part in client.copy_from(container, path, follow=manner.follow):
            sys.stdout.buffer.write(part)
        sys.stdout.buffer.flush()
        return ExtractedCounts()
    target = copyrules.place(source, _end_here(to_path, follow=True))
    keeping = Keeping(owner=manner.owner, xattrs=manner.owner)
    with _opened(target.directory) as into_fd:
        parts = client.copy_from(container, path, follow=manner.follow, name=target.name)
        return extract(TarReader(ChunkSource(parts)), into_fd, keeping)


def _into(client: Client, path: str, container: str, to_path: str, manner: CopyManner) -> ExtractedCounts:
    destination = _end_in(client, container, to_path, follow=True, is_destination=True)
    if path == STREAM:
        if not (destination.is_there and destination.is_directory):
            raise BadRequest(f"{to_path}: a tar goes into a directory that is there")
        return _sent(client, container, to_path, _standard_input(), manner)
    source = _end_here(path, follow=manner.follow)
    if not source.is_there:
        raise BadRequest(f"{path}: no such file or directory")
    target = copyrules.place(source, destination)
    parts = _packed(path, target, follow=manner.follow)
    return _sent(client, container, target.directory, parts, manner)


def _between(
    client: Client, container: str, path: str, to_container: str, to_path: str, manner: CopyManner
) -> ExtractedCounts:
    source = _end_in(client, container, path, follow=manner.follow)
    destination = _end_in(client, to_container, to_path, follow=True, is_destination=True)
    target = copyrules.place(source, destination)
    parts = client.copy_from(container, path, follow=manner.follow, name=target.name)
    return _sent(client, to_container, target.directory, parts, manner)


def _sent(
    client: Client, container: str, directory: str, parts: Iterator[bytes], manner: CopyManner
) -> ExtractedCounts:
    done = client.copy_to(container, directory, parts, keep_owner=manner.owner)
    return ExtractedCounts(done.entries, done.left_out)


def _end_in(client: Client, container: str, path: str, *, follow: bool, is_destination: bool = False) -> CopyEnd:
    """Raises NoSuchPath for a source that is not there."""
    path = path if path.startswith("/") else f"/{path}"
    try:
        found = client.stat_path(
            container, path.rstrip("/") or "/", follow=follow or copyrules.asks_for_directory(path)
        )
    except NoSuchPath:
        if not is_destination:
            raise
        return CopyEnd(path, is_there=False, is_directory=False)
    return CopyEnd(path, is_there=True, is_directory=stat.S_ISDIR(found.mode))


def _end_here(path: str, *, follow: bool) -> CopyEnd:
    try:
        found = os.stat(path, follow_symlinks=follow or copyrules.asks_for_directory(path))
    except (FileNotFoundError, NotADirectoryError):
        return CopyEnd(path, is_there=False, is_directory=False)
    except OSError as error:
        raise BadRequest(f"{path}: {error.strerror}") from error
    return CopyEnd(path, is_there=True, is_directory=stat.S_ISDIR(found.st_mode))


def _packed(path: str, target: CopyTarget, *, follow: bool) -> Iterator[bytes]:
    flags = os.O_PATH | os.O_CLOEXEC | (0 if follow or copyrules.asks_for_directory(path) else os.O_NOFOLLOW)
    try:
        fd = os.open(path, flags)
    except OSError as error:
        raise BadRequest(f"{path}: {error.strerror}") from error
    try:
        yield from pack(fd, target.name, fuse=True)
    except OSError as error:
        raise BadRequest(f"{path}: {error.filename or ''}: {error.strerror}") from error
    finally:
        os.close(fd)


def _standard_input() -> Iterator[bytes]:
    if sys.stdin.isatty():
        raise BadRequest("which tar? Pipe it in: exitctl cp - CONTAINER:DIR <FILE")
    while data := os.read(sys.stdin.fileno(), CHUNK_BYTES):
        yield data


@contextlib.contextmanager
def _opened(directory: str) -> Iterator[int]:
    try:
        fd = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise BadRequest(f"{directory}: {error.strerror}") from error
    try:
        yield fd
    finally:
        os.close(fd)
