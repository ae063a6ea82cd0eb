"""`container prune`, and the place of all other verbs in docker's long spelling."""

from collections.abc import Iterable

import click

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.cli import parse, spoken
from supervisor.cli.app import Verbs, complain, connect, exit_code, now_ns
from supervisor.model.errors import BadRequest, ExitdError, NoSuchContainer

OVER = (pb.PHASE_EXITED, pb.PHASE_CREATED)
FILTERS = ("until", "label", "label!")


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
    before_ns, without, wanted = _conditions(filters, now_ns())
    if not force and not click.confirm("This removes all containers that do not run. Go on?", err=True):
        return 0
    client = connect(ctx)
    found = [
        each
        for each in client.list(all_of_them=True, filters=wanted)
        if is_pruned(each, before_ns) and not any(_has(each, word) for word in without)
    ]
    usage = client.disk_usage([each.id for each in found]).containers if found else ()
    sizes = {each.id: each.layer_bytes for each in usage}
    freed, worst = 0, 0
    for each in found:
        try:
            client.remove(each.id, force=False)
        except NoSuchContainer:
            continue
        except ExitdError as error:  # it was started just now, say
            complain(str(error))
            worst = max(worst, exit_code(error))
        else:
            freed += sizes.get(each.id, 0)
            print(each.id, flush=True)
    print(f"Total reclaimed space: {spoken.size(freed)}")
    return worst


def is_pruned(container: pb.Container, before_ns: int | None) -> bool:
    """Return whether it does not run, was made before that time if there is one, and is no pod and no task of
    containerd's."""
    if container.phase not in OVER or container.spec.HasField("pod") or container.of_containerd:
        return False
    return before_ns is None or spoken.nanoseconds(container.created_at) < before_ns


def _conditions(filters: Iterable[str], now: int) -> tuple[int | None, list[str], tuple[str, ...]]:
    """Return the time before which they were made, labels that they must not have, and filters of the daemon's. Raises
    BadRequest."""
    before_ns: int | None = None
    without, wanted = list[str](), list[str]()
    for word in filters:
        key, equals, value = word.partition("=")
        if key not in FILTERS or not equals or not value:
            raise BadRequest(f"--filter {word}: write until=TIME, label=K[=V] or label!=K[=V]")
        if key == "until":
            moment = parse.moment_ns(value, now)
            before_ns = moment if before_ns is None else min(before_ns, moment)
        elif key == "label":
            wanted.append(word)
        else:
            without.append(value)
    return before_ns, without, tuple(wanted)


def _has(container: pb.Container, label: str) -> bool:
    key, equals, value = label.partition("=")
    labels = container.spec.labels
    return key in labels and (not equals or labels[key] == value)
