"""`stats`: what containers use, between two readings."""

import sys
import time
from collections.abc import Iterable, Mapping, Sequence

import click

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api.client import Client
from supervisor.cli import choice, output, parse, spoken, table
from supervisor.cli.app import connect
from supervisor.cli.output import Format
from supervisor.cli.shape import Document
from supervisor.cli.spelling import Spelled

INTERVAL_SECONDS = 1.0
HOME, CLEAR_LINE, CLEAR_REST = "\x1b[H", "\x1b[K", "\x1b[J"
CLEAR = "\x1b[2J"
NOTHING = "--"
COLUMNS = {
    "CONTAINER ID": "ID",
    "NAME": "Name",
    "CPU %": "CPUPerc",
    "MEM USAGE / LIMIT": "MemUsage",
    "MEM %": "MemPerc",
    "NET I/O": "NetIO",
    "BLOCK I/O": "BlockIO",
    "PIDS": "PIDs",
}
# For templates and JSON; docker has no such words.
PRESSURES = {"CPUPressure": "cpu_pressure", "MemPressure": "memory_pressure", "IOPressure": "io_pressure"}
Readings = Mapping[str, pb.ContainerStats]


@click.command(cls=Spelled)
@click.option("-a", "--all", "all_of_them", is_flag=True, help="Show containers that do not run, too.")
@click.option("--no-stream", is_flag=True, help="Show one look, and end.")
@click.option("--no-reset", is_flag=True, help="Print each look below the last one: do not clear the screen.")
@click.option("--no-trunc", is_flag=True, help="Print whole ids.")
@click.option(
    "-i", "--interval", type=parse.LimitSeconds(0.1, 3600), default=INTERVAL_SECONDS, metavar="S",
    help="Seconds between two looks; default 1.",
)  # fmt: skip
@output.option("table")
@choice.containers(cidfile=False, required=False)
@click.pass_context
def stats(
    ctx: click.Context, containers: tuple[str, ...], all_of_them: bool, no_stream: bool, no_reset: bool,
    no_trunc: bool, interval: float, format_: str,
) -> int:  # fmt: skip
    """Show what containers use, all that run or those that are named: CPU time (100 % is one processor), memory, what
    went over their networks and to block devices, and processes. It goes on until it is interrupted.
    """
    wanted = output.format_of(format_)
    client = connect(ctx)
    before = _read(client, containers, all_of_them=all_of_them)
    redraws = wanted.kind == "table" and not (no_stream or no_reset) and sys.stdout.isatty()
    if redraws:
        print(CLEAR, end="")
    while True:
        time.sleep(interval)
        now = _read(client, containers, all_of_them=all_of_them)
        _show(wanted, documents(before, now.values(), whole=no_trunc), redraws=redraws)
        if no_stream:
            return 0
        before = now


def _read(client: Client, containers: Sequence[str], *, all_of_them: bool) -> Readings:
    ids = containers or ([each.id for each in client.list(all_of_them=True)] if all_of_them else ())
    if all_of_them and not ids:
        return {}
    return {each.id: each for each in client.stats(ids)}


def _show(wanted: Format, shown: Sequence[Document], *, redraws: bool) -> None:
    if not redraws:
        output.show(wanted, shown, tuple(COLUMNS), _row)
    else:
        text = table.columns([tuple(COLUMNS), *map(_row, shown)])
        print(HOME, text.replace("\n", f"{CLEAR_LINE}\n"), CLEAR_REST, sep="", end="")
    sys.stdout.flush()


def _row(document: Document) -> list[str]:
    return [str(document[name]) for name in COLUMNS.values()]


def documents(before: Readings, now: Iterable[pb.ContainerStats], *, whole: bool = False) -> list[Document]:
    """Return a line for each container, with docker's field names for its templates."""
    return [document(before.get(each.id), each, whole=whole) for each in now]


def document(before: pb.ContainerStats | None, now: pb.ContainerStats, *, whole: bool = False) -> Document:
    """Return what one has used between two readings. What was not measured is `--`, as with docker."""
    short = now.id if whole else now.id[: spoken.SHORT_ID]
    named: Document = {"ID": short, "Container": short, "Name": now.name}
    if not now.measured:
        words = ("CPUPerc", "MemUsage", "MemPerc", "NetIO", "BlockIO", "PIDs", *PRESSURES)
        return {**named, **dict.fromkeys(words, NOTHING)}
    net = now.network
    return {
        **named,
        "CPUPerc": f"{cpu_percent(before, now):.2f}%",
        "MemUsage": _two(now.memory_bytes, now.memory_limit_bytes),
        "MemPerc": f"{_part(now.memory_bytes, now.memory_limit_bytes):.2f}%",
        "NetIO": _two(net.received_bytes, net.sent_bytes) if now.HasField("network") else NOTHING,
        "BlockIO": _two(now.read_bytes, now.written_bytes),
        "PIDs": str(now.pids),
        **{name: _pressure(now, field) for name, field in PRESSURES.items()},
    }


def _pressure(now: pb.ContainerStats, field: str) -> str:
    """Return how much of the last ten seconds at least one of its processes has waited."""
    return f"{getattr(now, field).some.avg10:.2f}%" if now.HasField(field) else NOTHING


def _two(first_bytes: int, second_bytes: int) -> str:
    return f"{spoken.size(first_bytes)} / {spoken.size(second_bytes)}"


def cpu_percent(before: pb.ContainerStats | None, now: pb.ContainerStats) -> float:
    """Return the CPU time between two readings in hundredths of one processor; 0 where there is no earlier one, or its
    run was another one."""
    if before is None or not before.measured or now.read_boot_ns <= before.read_boot_ns:
        return 0.0
    return 100.0 * max(0, now.cpu_ns - before.cpu_ns) / (now.read_boot_ns - before.read_boot_ns)


def _part(part: int, whole: int) -> float:
    return 100.0 * part / whole if whole else 0.0
