"""`healthcheck run`: a container's health check, now."""

import sys

import click

from supervisor.cli.app import Verbs, complain, connect

UNHEALTHY = 1  # podman's


@click.group(cls=Verbs)
def healthcheck() -> None:
    """Health checks of containers."""


@healthcheck.command()
@click.argument("container", metavar="ID")
@click.pass_context
def run(ctx: click.Context, container: str) -> int:
    """Run the health check of a running container now, and count its result as any other's. Exit with 0 if it has
    succeeded, 1 if it has failed. Its output goes to standard error.

    \b
    exitctl healthcheck run web && echo healthy
    """
    reply = connect(ctx).run_healthcheck(container)
    result = reply.result
    print(result.output.decode("utf-8", "replace"), end="", file=sys.stderr)
    if result.kind == "exited" and result.code == 0 and not result.timed_out:
        return 0
    why = "it took too long" if result.timed_out else f"it ended with {result.code}"
    if not result.timed_out and result.kind != "exited":
        why = f"signal {result.signal} ended it" if result.kind == "signaled" else f"its end is unknown: {result.cause}"
    complain(f"the check has failed, {why}; the container is {reply.status}")
    return UNHEALTHY
