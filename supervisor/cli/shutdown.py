"""`node-shutdown`: what exitd-containers.service calls when the host goes down."""

import shutil
import subprocess

import click

from supervisor.cli.app import complain, connect

ANSWER_SECONDS = 10.0
STOPPING = "stopping"  # systemctl(1), is-system-running: shutdown.target is active, or its job is queued
LEFT = 1


@click.command("node-shutdown")
@click.option(
    "-t", "--time", "seconds", type=click.IntRange(1, 600), default=30, show_default=True, metavar="S",
    help="Time for all of them together; five sixths of it are the longest grace.",
)  # fmt: skip
@click.option("--if-stopping", is_flag=True, help="Do nothing unless systemd is shutting the host down.")
@click.pass_context
def node_shutdown(ctx: click.Context, seconds: int, if_stopping: bool) -> int:
    """Stop exitd's own containers because the host goes down, and begin none.

    All at once, each with its own grace period; containerd's tasks are left to containerd. Restart policies take up
    again in the next boot. Exits 1 if a container still lives when the time has passed.
    """
    if if_stopping and (word := system_state()) != STOPPING:
        print(f"the host is {word or 'in an unknown state'} and not {STOPPING}: containers live on")
        return 0
    reply = connect(ctx).shut_down_node(seconds)
    print(f"{len(reply.ended)} containers have ended")
    for id in reply.left:
        complain(f"{id} has not ended in {seconds} s")
    return LEFT if reply.left else 0


def system_state() -> str:
    """Return systemd's word for the state of the host; empty if it gives none."""
    program = shutil.which("systemctl")
    if program is None:
        return ""
    try:
        command = [program, "is-system-running"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=ANSWER_SECONDS, check=False)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()
