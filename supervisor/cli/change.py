"""`rename` and `update`: what is changed of containers that are there."""

import click

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.cli import choice, parse
from supervisor.cli.app import connect, each
from supervisor.cli.limitwords import LimitWords, cpu_limit_milli
from supervisor.cli.spelling import Spelled
from supervisor.model.limits import NO_SWAP_LIMIT

NO_LIMIT = ("-1", "0")


@click.command(cls=Spelled)
@click.argument("container", metavar="ID")
@click.argument("name", metavar="NAME")
@click.pass_context
def rename(ctx: click.Context, container: str, name: str) -> int:
    """Give a container another name. Its ends until now keep the name that they had; a log of journald's has the new
    one from its next run on.
    """
    connect(ctx).rename(container, name)
    return 0


@click.command(cls=Spelled)
@click.option("-m", "--memory", metavar="SIZE", help="Memory limit, as in 64m; 0: none.")
@click.option("--memory-reservation", metavar="SIZE", help="It is not taken from below this much; 0: nothing is kept.")
@click.option("--memory-swap", metavar="SIZE", help="Memory and swap together; -1: no limit; 0: no swap.")
@click.option("--cpus", metavar="N", help="CPU limit, as in 1.5; 0: none.")
@click.option(
    "-c", "--cpu-shares", type=click.IntRange(min=0, max=2**32 - 1), metavar="N", help="Weight for CPU time; 0: 1024."
)
@click.option("--cpu-quota", type=parse.INT32, metavar="US", help="CPU time in each period; -1: no limit.")
@click.option("--cpu-period", type=parse.INT32, metavar="US", help="The period of --cpu-quota; default 100000.")
@click.option("--cpuset-cpus", metavar="LIST", help="The processors that it may use, as in 0-3,7; '': all.")
@click.option("--cpuset-mems", metavar="LIST", help="The memory nodes that it may use; '': all.")
@click.option("--pids-limit", type=parse.INT32, metavar="N", help="Limit of processes and threads; 0 or -1: none.")
@click.option("--restart", metavar="POLICY", help="no, always, on-failure[:n] or unless-stopped, for ends from now on.")
@choice.containers(cidfile=False)
@click.pass_context
def update(
    ctx: click.Context, containers: tuple[str, ...], memory: str | None, memory_reservation: str | None,
    memory_swap: str | None, cpus: str | None, cpu_shares: int | None, cpu_quota: int | None, cpu_period: int | None,
    cpuset_cpus: str | None, cpuset_mems: str | None, pids_limit: int | None, restart: str | None,
) -> int:  # fmt: skip
    """Change the limits and the restart policy of containers, running or not. They hold for the run that there is and
    all that follow; what is not named stays. A pod has --memory, --cpus and --pids-limit, of all its containers
    together.
    """
    request = pb.UpdateRequest(
        memory_bytes=_size("--memory", memory),
        memory_swap_bytes=NO_SWAP_LIMIT if memory_swap == "-1" else _size("--memory-swap", memory_swap),
        memory_reservation_bytes=_size("--memory-reservation", memory_reservation),
        cpu_limit_milli=_cpus(cpus, LimitWords(cpu_quota=cpu_quota, cpu_period=cpu_period)),
        cpu_shares=cpu_shares,
        cpuset_cpus=cpuset_cpus,
        cpuset_mems=cpuset_mems,
        pids_limit=None if pids_limit is None else max(0, min(pids_limit, 2**31 - 1)),
        restart=restart,
    )
    client = connect(ctx)

    def change(word: str) -> None:
        asked = pb.UpdateRequest()
        asked.CopyFrom(request)
        asked.id = word
        client.update(asked)

    return each(containers, change)


def _size(option: str, text: str | None) -> int | None:
    if text is None:
        return None
    return 0 if text in NO_LIMIT else parse.size_of(f"{option} {text}", text)


def _cpus(cpus: str | None, words: LimitWords) -> int | None:
    if cpus is None and words.cpu_quota is None and words.cpu_period is None:
        return None
    is_cleared = cpus is not None and cpus.strip() in NO_LIMIT
    return cpu_limit_milli("" if is_cleared else cpus or "", words)
