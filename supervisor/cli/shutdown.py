"""`node-shutdown`: what exitd-containers.service calls when the host goes down."""

import click

from supervisor.cli.app import complain, connect
from supervisor.cli.spelling import Spelled
from supervisor.runtime.hoststate import STOPPING, system_state

LEFT = 1


@click.command("node-shutdown", cls=Spelled)
@click.option(
    "-t", "--time", "seconds", type=click.IntRange(1, 600), default=30, show_default=True, metavar="S",
    help="Time for all of them together; five sixths of it are the longest grace.",
)  # fmt: skip
@click.option("--if-stopping", is_flag=True, help="Do nothing unless systemd is shutting the host down.")
@click.pass_context
def node_shutdown(ctx: click.Context, seconds: int, if_stopping: bool) -> int:
    """Stop exitd's containers because the host goes down, and begin none.

    All at once, each with its own grace period; containerd's tasks that exitd runs are among them. Restart policies
    take up again in the next boot. Exits 1 if a container still lives when the time has passed.
    """
    if if_stopping and (word := system_state()) != STOPPING:
        print(f"the host is {word or 'in an unknown state'} and not {STOPPING}: containers live on")
        return 0
    reply = connect(ctx).shut_down_node(seconds)
    print(f"{len(reply.ended)} containers have ended")
    for id in reply.left:
        complain(f"{id} has not ended in {seconds} s")
    return LEFT if reply.left else 0
