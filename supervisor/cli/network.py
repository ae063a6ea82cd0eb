"""`network ls|inspect` and `port`: the networks that are configured, and the ports that containers publish."""

import json

import click

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.cli import output, portwords
from supervisor.cli.app import Verbs, complain, connect, exit_code
from supervisor.cli.shape import Document
from supervisor.model.errors import BadRequest, NoSuchNetwork

HEADINGS = ("NETWORK NAME", "PLUGINS", "CONTAINERS", "FILE")


@click.group(cls=Verbs)
def network() -> None:
    """List networks, which files of CNI configure: `run --network NAME` puts a container into one."""


@network.command()
@click.option("-q", "--quiet", is_flag=True, help="Print only names.")
@output.option("table")
@click.pass_context
def ls(ctx: click.Context, quiet: bool, format_: str) -> int:
    """List the networks that are configured, in the order of their files; * is the default."""
    wanted = output.format_of(format_)
    found = connect(ctx).networks()
    if quiet:
        print("".join(f"{each.name}\n" for each in found if not each.error), end="")
    else:
        output.show(wanted, [document_of(each) for each in found if not each.error], HEADINGS, _row)
    for each in found:
        if each.error:
            complain(f"{each.file}: {each.error}")
    return 0


@network.command()
@output.option("json")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.pass_context
def inspect(ctx: click.Context, format_: str, names: tuple[str, ...]) -> int:
    """Show everything about networks."""
    wanted = output.format_of(format_)
    known = {each.name: each for each in reversed(connect(ctx).networks()) if not each.error}
    missing = [name for name in names if name not in known]
    output.show(wanted, [document_of(known[name]) for name in names if name in known], HEADINGS, _row)
    for name in missing:
        complain(f"no network {name}; exitctl network ls shows them")
    return exit_code(NoSuchNetwork("")) if missing else 0


def document_of(found: pb.Network) -> Document:
    """Return a network with docker's field names where docker has them."""
    return {
        "Name": found.name,
        "Driver": next(iter(found.plugins), ""),
        "Default": found.default,
        "File": found.file,
        "CniVersion": found.cni_version,
        "Plugins": list(found.plugins),
        "Publishes": found.publishes,
        "Containers": list(found.containers),
        "Config": json.loads(found.config),
    }


def _row(document: Document) -> list[str]:
    plugins, containers = document["Plugins"], document["Containers"]
    assert isinstance(plugins, list) and isinstance(containers, list)
    name = f"{document['Name']}{'*' if document['Default'] else ''}"
    return [name, ",".join(plugins), str(len(containers)), str(document["File"])]


@click.command()
@click.argument("container", metavar="ID")
@click.argument("wanted", required=False, default="", metavar="[PORT[/PROTOCOL]]")
@click.pass_context
def port(ctx: click.Context, container: str, wanted: str) -> int:
    """Show the ports that a container publishes: its own, and the machine's that leads there."""
    found = connect(ctx).inspect(container)
    if not wanted:
        print("".join(f"{portwords.inside(each)} -> {portwords.outside(each)}\n" for each in found.spec.ports), end="")
        return 0
    name = wanted if "/" in wanted else f"{wanted}/tcp"
    lines = [portwords.outside(each) for each in found.spec.ports if portwords.inside(each) == name]
    if not lines:
        raise BadRequest(f"{found.spec.name} publishes no port {name}; exitctl port {container} shows which it does")
    print("\n".join(lines))
    return 0
