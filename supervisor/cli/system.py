"""`system df|prune`: what exitd takes of the disk, and how it is given back."""

from collections.abc import Iterator, Sequence

import click

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.cli import output, pruning, spoken
from supervisor.cli.app import Verbs, connect, now_ns
from supervisor.cli.shape import Document
from supervisor.model.errors import BadRequest

HEADINGS = ("TYPE", "TOTAL", "ACTIVE", "SIZE")


@click.group(cls=Verbs)
def system() -> None:
    """Show what exitd takes of the disk, and give it back."""


@system.command()
@output.option("table")
@click.pass_context
def df(ctx: click.Context, format_: str) -> int:
    """Show what images, their layers, volumes, the writable layers of containers and their logs take."""
    wanted = output.format_of(format_)
    reply = connect(ctx).disk_usage(images=True)
    output.show(wanted, list(usage_documents(reply)), HEADINGS, _row)
    return 0


@system.command()
@click.option("-a", "--all", "all_", is_flag=True, help="All images that no container uses, not only unnamed ones.")
@click.option("--volumes", is_flag=True, help="Also the anonymous volumes that no container mounts.")
@click.option("--filter", "filters", multiple=True, metavar="KEY=VALUE", help=f"{pruning.KEYS}; not of volumes.")
@click.option("-f", "--force", is_flag=True, help="Ask nothing.")
@click.pass_context
def prune(ctx: click.Context, all_: bool, volumes: bool, filters: tuple[str, ...], force: bool) -> int:
    """Remove containers that do not run, images without a name that no container uses, and, with --volumes, volumes."""
    wanted = pruning.filter_of(filters, now_ns())
    if volumes and wanted.before_ns is not None:
        raise BadRequest("--filter until: a volume is not removed by its age; prune in two steps")
    more = " and the anonymous volumes that no container mounts" if volumes else ""
    kind = "all images" if all_ else "all images without a name"
    pruning.confirm(f"This removes all containers that do not run, {kind} that none uses{more}.", force=force)
    client = connect(ctx)
    gone, freed, worst = pruning.containers(client, wanted)
    if gone:
        print("Deleted Containers:", *gone, sep="\n")
    if volumes:
        names, code = pruning.volumes(client)
        worst = max(worst, code)
        if names:
            print("Deleted Volumes:", *names, sep="\n")
    reply = pruning.images(client, wanted, all_of_them=all_)
    pruning.show_images(reply)
    pruning.show_space(freed + reply.reclaimed_bytes)
    return worst


def usage_documents(reply: pb.DiskUsageReply) -> Iterator[Document]:
    """Yield a line for each kind, with docker's field names for its templates where docker has them."""
    yield _document("Images", reply.images)
    yield _document("Image layers", reply.layers)
    for kind, in_memory in (("Containers on disk", False), ("Containers in memory", True)):
        those = [each for each in reply.containers if each.in_memory is in_memory]
        yield _document(kind, _together(those))
    if reply.HasField("volumes"):  # of an exitd that knows of them
        yield _document("Volumes", reply.volumes)
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
