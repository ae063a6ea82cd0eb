"""Which containers a verb is for: those that are named, or podman's --latest, --all, --filter and --cidfile."""

import functools
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import click

from shim.frozen import frozen
from supervisor.cli.app import connect
from supervisor.model.errors import BadRequest, NoSuchContainer

if TYPE_CHECKING:
    from protos.exitd.v1 import exitd_pb2 as pb
    from supervisor.api.client import Client

Command = Callable[..., Any]
MOST_ID = 4096  # characters of a file with an id


@frozen
class Those:
    """What --all stands for. `phases`: by their names in the API, whose messages are imported with the client."""

    words: str
    phases: tuple[str, ...]


_ALIVE = ("PHASE_STARTING", "PHASE_RUNNING", "PHASE_PAUSED", "PHASE_RESTARTING")
ALL = Those("All", ("PHASE_CREATED", *_ALIVE, "PHASE_EXITED"))
RUNNING = Those("All that run or are to run again", _ALIVE)
NOT_PAUSED = Those("All that run", ("PHASE_RUNNING",))
PAUSED = Those("All that are paused", ("PHASE_PAUSED",))
NOT_RUNNING = Those("All that do not run", ("PHASE_CREATED", "PHASE_EXITED"))
latest_option = click.option("-l", "--latest", is_flag=True, help="The newest container.")
cidfile_option = click.option(
    "--cidfile", "cidfiles", multiple=True, metavar="FILE", help="The container whose id is in FILE."
)


def containers(
    those: Those | None = None, *, every: tuple[str, ...] = ("-a", "--all"),
    filters: tuple[str, ...] = ("-f", "--filter"), cidfile: bool = True, required: bool = True,
) -> Callable[[Command], Command]:  # fmt: skip
    """Add the argument `containers`, and what else can choose them. `those`: what --all stands for, and what --filter
    chooses from; without it there is neither. `every`, `filters`: how the two are spelled. `required`: without any
    container there is nothing to do."""
    options: list[Callable[[Command], Command]] = [
        latest_option,
        *([cidfile_option] if cidfile else []),
        click.argument("containers", nargs=-1, metavar="ID..." if required else "[ID]..."),
    ]
    if those is not None:
        which = f"{those.words}, but for pods and tasks of containerd's."
        options += [
            click.option(*every, "of_all", is_flag=True, help=which),
            click.option(*filters, "filters", multiple=True, metavar="K=V", help="Those, by the filters of ps."),
        ]

    def decorate(function: Command) -> Command:
        @functools.wraps(function)
        def choosing(
            containers: tuple[str, ...], latest: bool, cidfiles: tuple[str, ...] = (), of_all: bool = False,
            filters: tuple[str, ...] = (), **words: Any,
        ) -> Any:  # fmt: skip
            ctx = click.get_current_context()
            given = (*containers, *map(_id_in, cidfiles))
            if bool(given) + latest + bool(of_all or filters) > 1:
                ctx.fail("name containers, or choose them by --latest, --all or --filter: one of these")
            if latest:
                given = (newest(connect(ctx)),)
            elif those is not None and (of_all or filters):
                given = _found(connect(ctx), those, filters)
            elif not given and required:
                raise click.MissingParameter(ctx=ctx, param=argument(ctx, "containers"))
            return function(containers=given, **words)

        return _with(choosing, options)

    return decorate


def container(*, before: str = "") -> Callable[[Command], Command]:
    """Add the argument `container`, and -l instead of it. `before`: the argument behind it, whose first word is in its
    place with -l."""

    def decorate(function: Command) -> Command:
        @functools.wraps(function)
        def choosing(container: str | None, latest: bool, **words: Any) -> Any:
            ctx = click.get_current_context()
            if latest:
                if container is not None and not before:
                    ctx.fail(f"{container} or --latest: one of these")
                if before and container is not None:
                    words[before] = (container, *words[before])
                container = newest(connect(ctx))
            elif container is None:
                raise click.MissingParameter(ctx=ctx, param=argument(ctx, "container"))
            return function(container=container, **words)

        return _with(choosing, [latest_option, click.argument("container", required=False, metavar="ID")])

    return decorate


def newest(client: "Client") -> str:
    """Return the id of the newest container; pods and tasks of containerd's do not count. Raises NoSuchContainer."""
    from supervisor.cli.spoken import nanoseconds

    those = [each for each in client.list(all_of_them=True) if not each.spec.HasField("pod") and not each.of_containerd]
    if not those:
        raise NoSuchContainer("there is no container")
    return max(those, key=lambda each: nanoseconds(each.created_at)).id


def _found(client: "Client", those: Those, filters: tuple[str, ...]) -> tuple[str, ...]:
    from protos.exitd.v1 import exitd_pb2 as pb

    wanted = {pb.Phase.Value(phase) for phase in those.phases}
    found = client.list(all_of_them=True, filters=filters)
    return tuple(each.id for each in found if each.phase in wanted and _is_single(each))


def _is_single(container: "pb.Container") -> bool:
    """Return whether it is exitd's own, and no pod or part of one."""
    return not (container.spec.HasField("pod") or container.spec.sandbox or container.of_containerd)


def _id_in(file: str) -> str:
    try:
        with open(file, encoding="utf-8") as opened:
            word = opened.read(MOST_ID).strip()
    except (OSError, ValueError) as error:
        raise BadRequest(f"--cidfile {file}: {getattr(error, 'strerror', None) or 'this is no text'}") from error
    if not word:
        raise BadRequest(f"--cidfile {file}: there is no id in it")
    return word


def argument(ctx: click.Context, name: str) -> click.Parameter:
    """Return an argument of the command, for a message about it."""
    return next(each for each in ctx.command.params if each.name == name)


def _with(function: Command, options: Iterable[Callable[[Command], Command]]) -> Command:
    for option in reversed([*options]):
        function = option(function)
    return function
