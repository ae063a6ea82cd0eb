"""`system df`: what exitd takes of the disk."""

from collections.abc import Iterator, Sequence

import click

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.cli import output, spoken
from supervisor.cli.app import Verbs, connect
from supervisor.cli.shape import Document

HEADINGS = ("TYPE", "TOTAL", "ACTIVE", "SIZE")


@click.group(cls=Verbs)
def system() -> None:
    """Show what exitd takes of the disk."""


@system.command()
@output.option("table")
@click.pass_context
def df(ctx: click.Context, format_: str) -> int:
    """Show what images, their layers, the writable layers of containers and their logs take."""
    wanted = output.format_of(format_)
    reply = connect(ctx).disk_usage(images=True)
    output.show(wanted, list(usage_documents(reply)), HEADINGS, _row)
    return 0


def usage_documents(reply: pb.DiskUsageReply) -> Iterator[Document]:
    """Yield a line for each kind, with docker's field names for its templates where docker has them."""
    yield _document("Images", reply.images)
    yield _document("Image layers", reply.layers)
    for kind, in_memory in (("Containers on disk", False), ("Containers in memory", True)):
        those = [each for each in reply.containers if each.in_memory is in_memory]
        yield _document(kind, _together(those))
    yield _document(
        "Log files",
        pb.Occupied(
            count=sum(each.log_files for each in reply.containers),
            active=sum(each.log_files for each in reply.containers if each.active),
            bytes=sum(each.log_bytes for each in reply.containers),
            complete=True,
        ),
    )


def _together(those: Sequence[pb.ContainerUsage]) -> pb.Occupied:
    return pb.Occupied(
        count=len(those),
        active=sum(each.active for each in those),
        bytes=sum(each.layer_bytes for each in those),
        complete=all(each.complete for each in those),
    )


def _document(kind: str, found: pb.Occupied) -> Document:
    return {
        "Type": kind,
        "TotalCount": found.count,
        "Active": found.active,
        "Size": spoken.size(found.bytes) + ("" if found.complete else "+"),
        "SizeBytes": found.bytes,
        "Complete": found.complete,
    }


def _row(document: Document) -> list[str]:
    return [str(document[name]) for name in ("Type", "TotalCount", "Active", "Size")]
