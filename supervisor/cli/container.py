"""`container prune`, and the place of all other verbs in docker's long spelling."""

import click

from supervisor.cli import pruning
from supervisor.cli.app import Verbs, connect, now_ns


class ContainerVerbs(Verbs):
    """Its own verb, and those that are another word for one of exitctl's."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        from supervisor.cli import verbs  # imported on demand: exitctl must start fast

        super().format_commands(ctx, formatter)
        same = {words: to for words, to in verbs.SAME.items() if words.startswith("container ")}
        with formatter.section("Other words for"):
            formatter.write_dl([(words.removeprefix("container "), f"exitctl {to}") for words, to in same.items()])


@click.group(cls=ContainerVerbs)
def container() -> None:
    """Containers, in docker's words."""


@container.command()
@click.option("-f", "--force", is_flag=True, help="Do not ask.")
@click.option(
    "--filter", "filters", multiple=True, metavar="K=V",
    help="Only those made before until=TIME (or a duration ago), or with label=K[=V], or without label!=K[=V].",
)  # fmt: skip
@click.pass_context
def prune(ctx: click.Context, force: bool, filters: tuple[str, ...]) -> int:
    """Remove all containers that do not run. Their exits stay in the ledger. Pods and tasks of containerd's stay.

    \b
    exitctl container prune --filter until=24h
    """
    wanted = pruning.filter_of(filters, now_ns())
    pruning.confirm("This removes all containers that do not run.", force=force)
    gone, freed, worst = pruning.containers(connect(ctx), wanted)
    print("".join(f"{id}\n" for id in gone), end="")
    pruning.show_space(freed)
    return worst
