"""`python -m bench`: the table of docs/figures.md, measured here and now. Needs root and runc."""

import json
import os
import pathlib
import sys
import tempfile
import time

import click

from bench.clirows import CLI_ROWS
from bench.crirows import CRI_ROWS
from bench.crowdrows import CROWD_ROWS
from bench.eventrows import EVENT_ROWS
from bench.figures import document, markdown, table
from bench.liferows import LIFE_ROWS
from bench.podrows import POD_ROWS
from bench.rows import ROWS, Bench
from bench.stormrows import STORM_ROWS
from bench.streamrows import STREAM_ROWS
from bench.taskrows import TASK_ROWS
from bench.ttyrows import TTY_ROWS
from supervisor.compare.machine import facts, idle_share, load, memory_place, scratch

ALL_ROWS = {
    **ROWS, **LIFE_ROWS, **POD_ROWS, **STREAM_ROWS, **TASK_ROWS, **TTY_ROWS, **CROWD_ROWS, **STORM_ROWS, **CRI_ROWS,
    **EVENT_ROWS, **CLI_ROWS,
}  # fmt: skip
LOOK_SECONDS, QUICK_LOOK_SECONDS = 2.0, 0.1  # how long the cores are watched before a row
QUIET_SHARE = 0.9  # of the cores idle before a row: below that the row is called `loaded`


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--quick", is_flag=True, help="Few of everything, no busy cores, fewer peers: to see that it works.")
@click.option("--only", type=click.Choice(list(ALL_ROWS)), multiple=True, help="These rows alone; may be repeated.")
@click.option("--state-on", default=memory_place, show_default="a tmpfs", help="Where state directories are made.")
@click.option("--root-on", default=tempfile.gettempdir, show_default="TMPDIR", help="Where databases and logs are.")
@click.option("--out", type=click.Path(file_okay=False), help="Write results.json and figures.md into this directory.")
def main(quick: bool, only: tuple[str, ...], state_on: str, root_on: str, out: str | None) -> None:
    """Measures exitd beside other shims, in the same run and in turns."""
    if os.geteuid() != 0:
        raise click.ClickException("needs root: it starts containers")
    with scratch(state_on, root_on) as place:
        about = facts(place)
        bench = Bench(place, quick, lambda text: click.echo(text, err=True))
        with bench.kept:
            for name in only or ALL_ROWS:
                _row(bench, name, about)
                if out is not None:  # the next row may fail
                    _write(pathlib.Path(out), about, bench)
    about["load average after"] = load()
    click.echo("".join(f"{name}: {value}\n" for name, value in about.items()))
    click.echo(table(bench.figures))
    if out is not None:
        _write(pathlib.Path(out), about, bench)


def _row(bench: Bench, name: str, about: dict[str, str]) -> None:
    idle = idle_share(QUICK_LOOK_SECONDS if bench.quick else LOOK_SECONDS)
    bench.load = "quiet" if idle >= QUIET_SHARE else "loaded"
    about[f"before {name}"] = f"{idle:.0%} of the cores idle, load average {load()}"
    begun = time.monotonic()
    ALL_ROWS[name](bench)
    bench.say(f"{name}: {time.monotonic() - begun:.0f} s")


def _write(directory: pathlib.Path, about: dict[str, str], bench: Bench) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    results = {"machine": about, "quick": bench.quick, "figures": document(bench.figures)}
    (directory / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    head = "".join(f"- {name}: {value}\n" for name, value in about.items())
    (directory / "figures.md").write_text(f"{head}\n{markdown(bench.figures)}\n")


if __name__ == "__main__":
    sys.exit(main())
