"""`export` and `diff`: the root file system of a container as a tar, and what of it differs from the image."""

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator

import click

from supervisor.cli import choice, output
from supervisor.cli.app import connect
from supervisor.cli.shape import Document
from supervisor.cli.spelling import Spelled
from supervisor.model.errors import BadRequest

KINDS = {"added": "A", "changed": "C", "deleted": "D"}
STREAM = "-"


@click.command(cls=Spelled)
@click.option(
    "-o", "--output", "output_", metavar="FILE", default=STREAM, help="Write to FILE, not to standard output."
)
@click.argument("container", metavar="ID")
@click.pass_context
def export(ctx: click.Context, container: str, output_: str) -> int:
    """Write the whole root file system of a container as a tar, without what is mounted in it."""
    write_tar(connect(ctx).export(container), output_)
    return 0


@click.command(cls=Spelled)
@output.option("table")
@choice.container()
@click.pass_context
def diff(ctx: click.Context, container: str, format_: str) -> int:
    """Show what a container has added (A), changed (C) and deleted (D) of its image's files."""
    wanted = output.format_of(format_)
    found = connect(ctx).changes(container)
    if wanted.kind == "table":
        for each in found:
            sys.stdout.buffer.write(KINDS.get(each.kind, "?").encode() + b" " + each.path + b"\n")
        sys.stdout.buffer.flush()
        return 0
    documents: list[Document] = [
        {"Kind": KINDS.get(each.kind, "?"), "Path": each.path.decode(errors="replace")} for each in found
    ]
    output.show(wanted, documents, ("KIND", "PATH"), lambda document: [str(document["Kind"]), str(document["Path"])])
    return 0


def write_tar(parts: Iterable[bytes], path: str) -> None:
    """Write the parts to a new file at the path, which is there when all of them are; `-`: to standard output."""
    if path == STREAM:
        if sys.stdout.isatty():
            raise BadRequest("the tar is no text for a terminal: redirect it, >FILE, or name a file with -o")
        for part in parts:
            sys.stdout.buffer.write(part)
        sys.stdout.buffer.flush()
        return
    with _new_file(path) as fd:
        for part in parts:
            view = memoryview(part)
            while view:
                view = view[os.write(fd, view) :]


@contextlib.contextmanager
def _new_file(path: str) -> Iterator[int]:
    """Half a file never has the name."""
    try:
        if os.path.exists(path) and not os.path.isfile(path):  # a device, a pipe
            fd, new = os.open(path, os.O_WRONLY | os.O_CLOEXEC), ""
        else:
            fd, new = tempfile.mkstemp(prefix=".exitctl-", dir=os.path.dirname(path) or ".")
            os.fchmod(fd, 0o600)
    except OSError as error:
        raise BadRequest(f"{path}: {error.strerror}") from error
    try:
        yield fd
        if new:
            os.rename(new, path)
            new = ""
    except OSError as error:
        raise BadRequest(f"{path}: {error.strerror}") from error
    finally:
        os.close(fd)
        if new:
            os.unlink(new)
