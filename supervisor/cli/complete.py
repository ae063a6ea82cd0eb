"""Live names for a shell's completion: containers, pods, images, volumes. Loaded only while a shell asks for them.

exitd is asked for a moment at most, and an exitd that is away, busy or not ours to ask gives no names and no words.
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api.client import Client
from supervisor.cli import spoken
from supervisor.model.errors import ExitdError

SECONDS = 1.0  # of exitd's, for all names
MOST = 1000  # names; a person reads no more, and a shell is slow with them
LIVE = (pb.PHASE_RUNNING, pb.PHASE_PAUSED)
OF_LIVE = frozenset(("attach", "exec", "kill", "pause", "stop", "top", "unpause", "stats", "live"))


def containers(client: Client) -> Iterable[str]:
    return (_name(each) for each in client.list(all_of_them=True))


def live_containers(client: Client) -> Iterable[str]:
    return (_name(each) for each in client.list(all_of_them=True) if each.phase in LIVE)


def pods(client: Client) -> Iterable[str]:
    return (each.spec.name or spoken.short_id(each.id) for each in client.pods())


def images(client: Client) -> Iterable[str]:
    return (name for each in client.images() for name in each.names)


def volumes(client: Client) -> Iterable[str]:
    return (each.name for each in client.volumes())


Connect = Callable[..., Client]
Look = Callable[[Client], Iterable[str]]
BY_METAVAR: dict[str, Look] = {
    "ID": containers,
    "ID...": containers,
    "CONTAINER": containers,
    "CONTAINER...": containers,
    "POD...": pods,
    "IMAGE": images,
    "IMAGE...": images,
    "[IMAGE] [CMD]...": images,
}
FILES = frozenset(("FILE", "FILE...", "CONFIG.json|yaml"))


def prepare(command: click.Command, words: str, connect: Connect) -> None:
    """Let the arguments of a command complete to what there is. `words` are its own, as `volume rm`; `connect` makes a
    client of a context."""
    for each in command.params:
        if isinstance(each, click.Argument):
            metavar = each.metavar or (each.name or "").upper()
            look = volumes if words.startswith("volume ") else BY_METAVAR.get(metavar)
            if words in OF_LIVE and look is containers:
                look = live_containers
            if look is not None:
                each.type = Living(look, connect, first_only=metavar.startswith("["))
            elif metavar in FILES:
                each.type = click.Path()


if TYPE_CHECKING:
    _Type = click.ParamType[str]
else:
    _Type = click.ParamType  # not generic before click 8.4


class Living(_Type):
    """An argument that takes any word, and proposes the names of what is there."""

    name = "text"

    def __init__(self, look: Look, connect: Connect, *, first_only: bool) -> None:
        self._look = look
        self._connect = connect
        self._first_only = first_only  # the words after the first are the container's own

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        given = ctx.params.get(param.name or "") or ()
        if self._first_only and given:
            return []
        try:
            client = self._connect(ctx, most_seconds=SECONDS)
            found = {name for name in self._look(client) if name.startswith(incomplete) and name.isprintable()}
        except ExitdError:
            return []
        return [CompletionItem(name) for name in sorted(found - set(given))[:MOST]]


def _name(container: pb.Container) -> str:
    return container.spec.name or spoken.short_id(container.id)
