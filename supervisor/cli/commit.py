"""`commit`: an image of a container."""

import click

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.cli.app import connect
from supervisor.cli.fetch import patience
from supervisor.cli.spelling import Spelled


@click.command(cls=Spelled)
@click.option(
    "-c", "--change", "changes", multiple=True, metavar="INSTRUCTION",
    help="Change its configuration, as in a Dockerfile: 'CMD [\"sh\"]'. CMD, ENTRYPOINT, ENV, EXPOSE, LABEL, "
    "STOPSIGNAL, USER, VOLUME, WORKDIR.",
)  # fmt: skip
@click.option("-m", "--message", metavar="TEXT", default="", help="A comment, shown by history.")
@click.option("-a", "--author", metavar="TEXT", default="", help="Who has made it.")
@click.option("-p", "--pause/--no-pause", default=True, help="Freeze the container while its files are read; default.")
@click.option("-q", "--quiet", is_flag=True, help="Print no message while it takes long.")
@click.argument("container", metavar="ID")
@click.argument("name", required=False, default="", metavar="[NAME[:TAG]]")
@click.pass_context
def commit(
    ctx: click.Context, container: str, name: str, changes: tuple[str, ...], message: str, author: str, pause: bool,
    quiet: bool,
) -> int:  # fmt: skip
    """Make an image of a container's image and of what it has written, without its volumes. Prints its id."""
    request = pb.CommitRequest(
        id=container, name=name, changes=changes, message=message, author=author, no_pause=not pause
    )
    with patience(f"making an image of {container}", quiet=quiet):
        print(connect(ctx).commit(request).id)
    return 0
