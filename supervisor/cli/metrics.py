"""`metrics`: what the ledger and the list of containers show, and the counters of exitd, as numbers for Prometheus.

Source: the text exposition format, version 0.0.4.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

import click

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.cli.app import connect
from supervisor.cli.spelling import Spelled

Labels = tuple[tuple[str, str], ...]
HELP = "# HELP "
ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


@click.command(cls=Spelled)
@click.pass_context
def metrics(ctx: click.Context) -> int:
    """Print exits, restarts and memory kills in Prometheus' text format, and all that exitd shows over HTTP.

    For the textfile collector of node_exporter: print into a file beside the one it reads, and rename it.
    """
    client = connect(ctx)
    page = client.metrics()
    shown = client.info(), client.list(all_of_them=True), client.exits(pb.ExitsRequest()), client.watches()
    own = exposition(*shown)
    print(without(page, families_in(own)) + own, end="")
    return 0


def families_in(text: str) -> frozenset[str]:
    """Return the names of the families in a text."""
    return frozenset(line.split(" ", 3)[2] for line in text.split("\n") if line.startswith(HELP))


def without(page: str, names: frozenset[str]) -> str:
    """Return the families of a page that are not among these, each of which begins with its help."""
    kept, keeps = [], True
    for line in page.split("\n"):  # a name may have what else ends a line
        if line.startswith(HELP):
            keeps = line.split(" ", 3)[2] not in names
        if keeps or not line:
            kept.append(line)
    return "\n".join(kept)


def exposition(
    info: pb.InfoReply, containers: Iterable[pb.Container], exits: Iterable[pb.Exit], watches: Iterable[pb.Watch]
) -> str:
    """Return all metric families, each with its help and type."""
    containers, kills = tuple(containers), Counter[Labels]()
    counted = Counter[Labels]()
    for exit_ in exits:
        counted[_labels_of(exit_)] += 1
        kills[(("watched", _watched(exit_)),)] += exit_.oom.kills
    phases: Counter[Labels] = Counter((("phase", _phase(each)),) for each in containers)
    restarts: dict[Labels, int] = {
        (("container", each.spec.name), ("id", each.id)): each.restart_count for each in containers
    }
    families: tuple[tuple[str, str, Mapping[Labels, int]], ...] = (
        ("exitd_exits", "Exits in the ledger, those of execs and of what is watched included.", counted),
        ("exitd_memory_kills", "Processes that were killed for memory, by the exits in the ledger.", kills),
        ("exitd_containers", "Containers that exitd has now.", phases),
        ("exitd_restarts", "Restarts by policy of each container that exitd has now.", restarts),
        ("exitd_watched_processes", "Processes of others that exitd watches now.", _watched_now(watches)),
        ("exitd_pending_commits", "Exits that are known and not stored yet.", {(): info.pending_commits}),
        ("exitd_events", "The number of the newest event.", {(): info.seq}),
    )
    return "".join(line for name, help_, values in families for line in _family(name, help_, values))


def _family(name: str, help_: str, values: Mapping[Labels, int]) -> Iterator[str]:
    """All are gauges: exits that the ledger forgets are no longer counted."""
    yield f"# HELP {name} {help_}\n"
    yield f"# TYPE {name} gauge\n"
    for labels, value in sorted(values.items()):
        text = ",".join(f'{key}="{word.translate(ESCAPES)}"' for key, word in labels)
        yield f"{name}{{{text}}} {value}\n" if text else f"{name} {value}\n"


def _labels_of(exit_: pb.Exit) -> Labels:
    code = str(exit_.code) if exit_.HasField("code") else ""
    signal = str(exit_.signal) if exit_.HasField("signal") else ""
    return (
        ("kind", exit_.kind),
        ("code", code),
        ("signal", signal),
        ("cause", exit_.cause),
        ("source", exit_.source),
        ("reason", exit_.reason),
        ("exec", "yes" if exit_.exec_id else "no"),
        ("watched", _watched(exit_)),
    )


def _watched(exit_: pb.Exit) -> str:
    """The id of a process that is only watched names its place."""
    return "yes" if "@" in exit_.container_id else "no"


def _phase(container: pb.Container) -> str:
    return "recovering" if container.recovering else pb.Phase.Name(container.phase).removeprefix("PHASE_").lower()


def _watched_now(watches: Iterable[pb.Watch]) -> dict[Labels, int]:
    return {(("target", watch.target), ("kind", watch.kind)): watch.processes for watch in watches}
