"""`ps` and `inspect`."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import click

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.cli import choice, output, parse, spoken
from supervisor.cli.app import complain, connect, exit_code, now_ns
from supervisor.cli.shape import Document, container_document, exit_document, shown_number, time_text
from supervisor.cli.spelling import Spelled
from supervisor.model.errors import BadRequest, ExitdError

if TYPE_CHECKING:
    from supervisor.api.client import Client

COLUMNS = {
    "CONTAINER ID": "ID",
    "NAMESPACE": "Namespace",
    "NAME": "Name",
    "IMAGE": "Image",
    "COMMAND": "Command",
    "CREATED": "RunningFor",
    "STATUS": "Status",
    "PORTS": "Ports",
    "RUNTIME": "Runtime",
    "RUNS": "Run",
    "POD ID": "PodID",
}


@click.command(cls=Spelled)
@click.option("-a", "--all", "all_of_them", is_flag=True, help="List ended containers, too.")
@click.option("-q", "--quiet", is_flag=True, help="Print only ids.")
@click.option("--no-trunc", is_flag=True, help="Print whole ids and commands.")
@click.option("-s", "--size", is_flag=True, help="Show what each has written over its image.")
@click.option(
    "-f",
    "--filter",
    "filters",
    multiple=True,
    metavar="K=V",
    help="By id, name, status, exited, label, ancestor, before, since, volume, network, namespace, pod or health.",
)
@click.option(
    "-n", "--last", type=parse.WholeNumber(-1, 2**31 - 1), default=-1, metavar="N", help="The N newest, ended or not."
)
@click.option("-l", "--latest", is_flag=True, help="The newest one, ended or not.")
@click.option(
    "-p", "--pod", "pods", multiple=True, metavar="POD", help="Only containers of this pod, by the beginning of its id."
)
@output.option("table", short=False)
@click.pass_context
def ps(
    ctx: click.Context, all_of_them: bool, quiet: bool, no_trunc: bool, size: bool, filters: tuple[str, ...],
    last: int, latest: bool, pods: tuple[str, ...], format_: str,
) -> int:  # fmt: skip
    """List containers, the newest first.

    \b
    exitctl ps -a -f status=exited -f ancestor=busybox
    exitctl ps -l --format '{{.Name}}: {{.Status}}'
    """
    wanted = output.format_of(format_)
    for word in filters:
        if "{{" in word:
            raise BadRequest(f"-f {word}: -f is --filter here, as with docker; a template goes to --format")
    client = connect(ctx)
    most = 1 if latest else last
    found = newest(
        client.list(all_of_them=all_of_them or most >= 0, filters=(*filters, *(f"pod={pod}" for pod in pods))), most
    )
    if quiet:
        print("".join(f"{c.id if no_trunc else c.id[: spoken.SHORT_ID]}\n" for c in found), end="")
        return 0
    whole = no_trunc or wanted.kind in ("json", "jsonl")
    documents = [list_document(container, now_ns(), whole=whole) for container in found]
    shown = _columns(documents)
    if size:
        shown["SIZE"] = "Size"
        _add_sizes(client, documents, found)
    output.show(wanted, documents, tuple(shown), lambda document: [str(document[name]) for name in shown.values()])
    return 0


@click.command(cls=Spelled)
@output.option("json")
@choice.containers(cidfile=False)
@click.pass_context
def inspect(ctx: click.Context, containers: tuple[str, ...], format_: str) -> int:
    """Show everything about containers: docker's shape, and how they ended."""
    wanted = output.format_of("json" if format_ == "table" else format_)
    client = connect(ctx)
    documents, worst = [], 0
    for word in containers:
        try:
            documents.append(container_document(client.inspect(word)))
        except ExitdError as error:
            complain(str(error))
            worst = max(worst, exit_code(error))
    if wanted.kind == "json":
        print(output.whole(documents))
    else:
        output.show(wanted, documents, (), lambda _: [])
    return worst


def newest(containers: Iterable[pb.Container], most: int = -1) -> list[pb.Container]:
    """Return so many of them, the newest first; -1: all."""
    ordered = sorted(containers, key=lambda container: spoken.nanoseconds(container.created_at), reverse=True)
    return ordered if most < 0 else ordered[:most]


def list_document(container: pb.Container, now: int, *, whole: bool) -> Document:
    """Return one line of `ps`, with docker's field names for its templates where docker has them."""
    spec = container.spec
    exit_ = container.exit if container.HasField("exit") else None
    return {
        "ID": container.id if whole else container.id[: spoken.SHORT_ID],
        "Name": spec.name,
        "Names": spec.name,
        "Namespace": spec.namespace,
        "Image": spec.image,
        "Command": spoken.command(list(spec.args), whole=whole),
        "CreatedAt": time_text(container.created_at),
        "RunningFor": spoken.ago(container.created_at, now),
        "State": "recovering"
        if container.recovering
        else pb.Phase.Name(container.phase).removeprefix("PHASE_").lower(),
        "Status": spoken.status(container, now),
        "Ports": _ports(container),
        "Mounts": ",".join(filter(None, (each.volume or each.source or each.empty_dir for each in spec.mounts))),
        "Networks": ",".join(filter(None, (spec.network, *spec.more_networks))),
        "Runtime": spec.runtime,
        "Pid": container.init.pid,
        "Run": container.run,
        "RestartCount": container.restart_count,
        "PodID": _pod_id(container) if whole else _pod_id(container)[: spoken.SHORT_ID],
        "MonitoredBy": container.monitored_by,
        "Labels": dict(spec.labels),
        "ExitCode": shown_number(exit_) if exit_ is not None else None,
        "Exit": exit_document(exit_) if exit_ is not None else None,
    }


def _add_sizes(client: "Client", documents: list[Document], found: Sequence[pb.Container]) -> None:
    """Add what each container has written. One that has gone meanwhile has no size."""
    usage = client.disk_usage([container.id for container in found]).containers if found else ()
    known = {each.id: each for each in usage}
    for document, container in zip(documents, found, strict=True):
        each = known.get(container.id)
        document["Size"] = "" if each is None else spoken.size(each.layer_bytes) + ("" if each.complete else "+")
        document["SizeBytes"] = None if each is None else each.layer_bytes


def _ports(container: pb.Container) -> str:
    if not container.spec.ports:
        return ""
    from supervisor.cli.portwords import column

    return column(container.spec.ports)


def _pod_id(container: pb.Container) -> str:
    """Return the id of its pod, for a pause container its own; empty for a single container."""
    return container.id if container.spec.HasField("pod") else container.spec.sandbox


def _columns(documents: list[Document]) -> dict[str, str]:
    """Show the namespace if there are others than exitd's own: those of containerd's tasks."""
    alone = {document["Namespace"] for document in documents} <= {"", "default"}
    return {heading: name for heading, name in COLUMNS.items() if not (alone and name == "Namespace")}
