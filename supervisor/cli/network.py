"""`network ls|inspect|prune` and `port`: the networks that are configured, what of them cannot be taken down, and the
ports that containers publish."""

import json
from collections.abc import Iterable

import click

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.cli import output, portwords
from supervisor.cli.app import Verbs, complain, connect, exit_code
from supervisor.cli.shape import Document
from supervisor.cli.spelling import Spelled
from supervisor.model.errors import BadRequest, NoSuchNetwork

CURE = "mend what its plugin says, or give it up: exitctl network prune"
HEADINGS = ("NETWORK NAME", "PLUGINS", "CONTAINERS", "FILE")


@click.group(cls=Verbs)
def network() -> None:
    """List networks, which files of CNI configure: `run --network NAME` puts a container into one."""


@network.command()
@click.option("-q", "--quiet", is_flag=True, help="Print only names.")
@click.option("--no-trunc", is_flag=True, expose_value=False, help="Changes nothing: names are whole.")
@output.option("table")
@click.pass_context
def ls(ctx: click.Context, quiet: bool, format_: str) -> int:
    """List the networks that are configured, in the order of their files; * is the default."""
    wanted = output.format_of(format_)
    reply = connect(ctx).networks()
    found = [each for each in reply.networks if not each.error]
    if quiet:
        print("".join(f"{each.name}\n" for each in found), end="")
    else:
        output.show(wanted, [document_of(each, reply.stuck) for each in found], HEADINGS, _row)
    for each in reply.networks:
        if each.error:
            complain(f"{each.file}: {each.error}")
    for stuck in reply.stuck:
        complain(f"{stuck_words(stuck)}; {CURE}")
    return 0


@network.command()
@output.option("json")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.pass_context
def inspect(ctx: click.Context, format_: str, names: tuple[str, ...]) -> int:
    """Show everything about networks."""
    wanted = output.format_of(format_)
    reply = connect(ctx).networks()
    known = {each.name: each for each in reversed(reply.networks) if not each.error}
    missing = [name for name in names if name not in known]
    found = [document_of(known[name], reply.stuck) for name in names if name in known]
    output.show(wanted, found, HEADINGS, _row)
    for name in missing:
        complain(f"no network {name}; exitctl network ls shows them")
    return exit_code(NoSuchNetwork("")) if missing else 0


@network.command()
@click.option("-f", "--force", is_flag=True, help="Ask nothing.")
@click.pass_context
def prune(ctx: click.Context, force: bool) -> int:
    """Take down what is left of ended runs, and give up what cannot be: its ports are free then."""
    client = connect(ctx)
    stuck = client.networks().stuck
    for each in stuck:
        complain(stuck_words(each))
    if not stuck:
        return 0
    if not force:
        click.confirm("Try once more, and give up what fails again?", abort=True, err=True)
    done = client.prune_networks()
    print("".join(f"{each.record}\n" for each in (*done.taken_down, *done.given_up)), end="")
    for each in done.given_up:
        complain(f"given up: {each.record}: rules, interfaces and addresses of it may be left: {each.why}")
    return 0


def stuck_words(stuck: pb.StuckAttachment) -> str:
    """Return what is wrong, and which ports are kept from others by it."""
    ports = ", ".join(f"{portwords.outside(each)}/{each.protocol}" for each in stuck.ports)
    kept = f", and keeps {ports}" if ports else ""
    names = ", ".join(stuck.networks)
    return f"{stuck.record}: network {names} is not taken down after {stuck.tries} tries{kept}: {stuck.why}"


def document_of(found: pb.Network, stuck: Iterable[pb.StuckAttachment] = ()) -> Document:
    """Return a network with docker's field names where docker has them. `stuck`: of all networks."""
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
        "Stuck": [_stuck_document(each) for each in stuck if found.name in each.networks],
    }


def _stuck_document(stuck: pb.StuckAttachment) -> Document:
    return {
        "Record": stuck.record,
        "Container": stuck.container,
        "Run": stuck.run,
        "Ports": portwords.by_port(stuck.ports),
        "Tries": stuck.tries,
        "Why": stuck.why,
        "Cure": CURE,
    }


def _row(document: Document) -> list[str]:
    plugins, containers = document["Plugins"], document["Containers"]
    assert isinstance(plugins, list) and isinstance(containers, list)
    name = f"{document['Name']}{'*' if document['Default'] else ''}"
    return [name, ",".join(plugins), str(len(containers)), str(document["File"])]


@click.command(cls=Spelled)
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
