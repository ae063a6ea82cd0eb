"""`volume create|ls|inspect|rm|prune`: directories that outlive the containers that mount them."""

import secrets

import click

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api.client import Client
from supervisor.cli import output
from supervisor.cli.app import Verbs, complain, connect, each, exit_code
from supervisor.cli.shape import Document, time_text
from supervisor.model.errors import ExitdError, NoSuchVolume, VolumeInUse

HEADINGS = ("VOLUME NAME", "CREATED", "CONTAINERS")


@click.group(cls=Verbs)
def volume() -> None:
    """Create, list and remove volumes: `run -v NAME:/DIR` mounts one, and makes it if it is not there."""


@volume.command()
@click.option("--ignore", is_flag=True, expose_value=False, help="Changes nothing: one that is there is no error.")
@click.argument("name", required=False, default="")
@click.pass_context
def create(ctx: click.Context, name: str) -> int:
    """Make a volume and print its NAME; without one it is made up. One that is there stays as it is."""
    print(connect(ctx).create_volume(name or secrets.token_hex(16)).name)
    return 0


@volume.command()
@click.option("-q", "--quiet", is_flag=True, help="Print only names.")
@output.option("table")
@click.pass_context
def ls(ctx: click.Context, quiet: bool, format_: str) -> int:
    """List volumes, and how many containers mount each."""
    wanted = output.format_of(format_)
    found = connect(ctx).volumes()
    if quiet:
        print("".join(f"{each.name}\n" for each in found), end="")
        return 0
    output.show(wanted, [document_of(each) for each in found], HEADINGS, _row)
    return 0


@volume.command()
@output.option("json")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.pass_context
def inspect(ctx: click.Context, format_: str, names: tuple[str, ...]) -> int:
    """Show everything about volumes."""
    wanted = output.format_of(format_)
    known = {each.name: each for each in connect(ctx).volumes()}
    missing = [name for name in names if name not in known]
    output.show(wanted, [document_of(known[name]) for name in names if name in known], HEADINGS, _row)
    for name in missing:
        complain(f"no volume {name}; exitctl volume ls shows them")
    return exit_code(NoSuchVolume("")) if missing else 0


@volume.command()
@click.option("-f", "--force", is_flag=True, help="A missing volume is no error. One in use is never removed.")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.pass_context
def rm(ctx: click.Context, force: bool, names: tuple[str, ...]) -> int:
    """Remove volumes that no container mounts, with all that is in them."""
    client = connect(ctx)

    def remove(name: str) -> None:
        try:
            client.remove_volume(name)
        except NoSuchVolume:
            if not force:
                raise

    return each(names, remove)


@volume.command()
@click.option("-a", "--all", is_flag=True, expose_value=False, help="Changes nothing: those with a name go, too.")
@click.option("-f", "--force", is_flag=True, help="Ask nothing.")
@click.pass_context
def prune(ctx: click.Context, force: bool) -> int:
    """Remove all volumes that no container mounts."""
    client = connect(ctx)
    unused = [each.name for each in client.volumes() if not each.containers]
    if unused and not force:
        click.confirm(f"Remove {len(unused)} volumes that no container mounts?", abort=True, err=True)
    return _pruned(client, unused)


def _pruned(client: Client, names: list[str]) -> int:
    worst = 0
    for name in names:
        try:
            client.remove_volume(name)
        except (NoSuchVolume, VolumeInUse):
            continue  # removed, or mounted, since the list was made
        except ExitdError as error:
            complain(str(error))
            worst = max(worst, exit_code(error))
        else:
            print(name, flush=True)
    return worst


def document_of(found: pb.Volume) -> Document:
    """Return a volume with docker's field names, and the containers that mount it."""
    return {
        "Name": found.name,
        "Driver": "local",
        "Mountpoint": found.path,
        "CreatedAt": time_text(found.created_at),
        "Scope": "local",
        "Anonymous": found.anonymous,
        "Containers": list(found.containers),
    }


def _row(document: Document) -> list[str]:
    containers = document["Containers"]
    assert isinstance(containers, list)
    return [str(document["Name"]), str(document["CreatedAt"]), str(len(containers))]
