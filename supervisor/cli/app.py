"""The frame of all commands: a group that imports a command when it is called, and the connection to the daemon."""

import importlib
import os
import sys
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import click

from supervisor.cli.spelling import Spelled
from supervisor.model.errors import BadRequest, ExitdError

if TYPE_CHECKING:
    from supervisor.api.client import Client

OWN_FAILURE = 125  # exitctl or exitd failed; docker's and env(1)'s number
READER_GONE = 141  # 128 + SIGPIPE: the reader of the output has closed it
NOT_EXECUTABLE = 126
NOT_FOUND = 127
TIMED_OUT = 124  # timeout(1)'s
USAGE = 2  # a wrong command line, click's number
OF_A_CONTAINER = ("run", "create", "exec")  # 2 may be their container's code
OF_A_FILE = ("play", "runp", "cp", "export")  # a file may be what is wrong
VERB = f"{__name__}.verb"  # the innermost one, in click's meta of the whole command line

EXIT_CODES = {"COMMAND_NOT_EXECUTABLE": NOT_EXECUTABLE, "COMMAND_NOT_FOUND": NOT_FOUND}

# command -> (module, summary); importing grpc and the messages for `--help` would cost more than the help.
COMMANDS = {
    "run": ("run", "Create a container, start it and follow it to its end"),
    "create": ("run", "Create a container without starting it"),
    "exec": ("exec", "Run another command in a running container"),
    "attach": ("attach", "Connect to the input and output of a running container"),
    "start": ("life", "Start created containers, or ended ones again"),
    "stop": ("life", "Stop containers: stop signal, grace period, SIGKILL"),
    "kill": ("life", "Send a signal to containers"),
    "restart": ("life", "Stop containers and start them again"),
    "pause": ("life", "Freeze all processes of containers"),
    "unpause": ("life", "Resume paused containers"),
    "rename": ("change", "Give a container another name"),
    "update": ("change", "Change limits and restart policy of containers"),
    "rm": ("life", "Remove containers"),
    "container": ("container", "Containers, in docker's words; and prune"),
    "cp": ("cp", "Copy files between a container and this machine"),
    "diff": ("files", "Show what a container has changed of its image's files"),
    "export": ("files", "Write a container's root file system as a tar"),
    "commit": ("commit", "Make an image of a container"),
    "image": ("image", "List, load, save and remove images"),
    "network": ("network", "List and show the networks that are configured"),
    "port": ("network", "Show the ports that a container publishes"),
    "volume": ("volume", "Create, list and remove volumes"),
    "ps": ("look", "List containers"),
    "top": ("top", "Show the processes of a container"),
    "stats": ("stats", "Show what containers use, live"),
    "inspect": ("look", "Show everything about containers"),
    "healthcheck": ("healthcheck", "Run the health check of a container now"),
    "wait": ("watch", "Wait for containers to end and print their codes"),
    "pods": ("pods", "List pods"),
    "runp": ("pods", "Run a pod from a CRI sandbox configuration"),
    "stopp": ("pods", "Stop pods"),
    "rmp": ("pods", "Remove pods"),
    "inspectp": ("pods", "Show everything about pods"),
    "play": ("play", "Make the pods of Kubernetes manifests, or take them down"),
    "watch": ("observe", "Watch what other engines run: all of this machine, or one source"),
    "live": ("live", "Show how containers end, as they end, of every engine on this machine"),
    "events": ("watch", "Follow the numbered log of events"),
    "logs": ("watch", "Show what a container wrote"),
    "why": ("past", "Explain how and why a container ended"),
    "exits": ("past", "Show the ledger of exits, removed containers included"),
    "system": ("system", "Show what exitd takes of the disk, and give it back"),
    "node-shutdown": ("shutdown", "Stop exitd's containers because the host goes down"),
    "compare": ("compare", "Compare the ways to run pods on this machine by measuring them"),
    "metrics": ("metrics", "Print exits, restarts and memory kills for Prometheus"),
    "doctor": ("doctor", "Check this machine, with the cure for what is wrong"),
    "version": ("about", "Show the versions of exitctl and exitd"),
    "info": ("about", "Show the daemon's settings and state"),
    "help": ("help", "Show the help of a verb"),
    "completion": ("help", "Print what completes commands and names in a shell"),
}
ASKS_FOR_HELP = frozenset(("--help", "-h"))


class Verbs(Spelled, click.Group):
    """A group that also takes docker's and podman's verbs, and refuses those that exitd lacks with what to do
    instead."""

    command_class = Spelled

    @property
    def path(self) -> str:
        """The words between exitctl and a verb of this group, as `image`."""
        return self.name or ""

    def list_commands(self, ctx: click.Context) -> list[str]:
        own = super().list_commands(ctx)
        if own:
            return own
        from supervisor.cli import verbs  # imported on demand: exitctl must start fast

        return [words.removeprefix(f"{self.path} ") for words in verbs.SAME if words.startswith(f"{self.path} ")]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        own = super().get_command(ctx, cmd_name)
        if own is not None:
            return own
        from supervisor.cli import verbs

        words = f"{self.path} {cmd_name}".strip()
        if words in verbs.GROUPS:
            return Verbs(words, help=verbs.GROUPS[words])
        found: click.Command | None = ctx.find_root().command if words in verbs.SAME else None
        for word in verbs.SAME.get(words, "").split():
            found = found.get_command(ctx, word) if isinstance(found, click.Group) else None
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if not ctx.resilient_parsing and self.get_command(ctx, args[0]) is None:
            from supervisor.cli import verbs

            words = f"{self.path} {args[0]}".strip()
            if words in verbs.REFUSED:
                ctx.fail(f"{words}: {verbs.REFUSED[words]}")
        name, command, rest = super().resolve_command(ctx, args)
        ctx.meta[VERB] = name
        if command is not None and name is not None:
            self._prepare(ctx, command, name, rest)
        return name, command, rest

    def _prepare(self, ctx: click.Context, command: click.Command, name: str, rest: list[str]) -> None:
        """Add what only help and completion need, when one of them is wanted: exitctl must start fast."""
        words = f"{self.path} {name}".strip()
        if ctx.resilient_parsing:
            from supervisor.cli import complete

            complete.prepare(command, words, connect)
        elif not isinstance(command, click.Group) and not ASKS_FOR_HELP.isdisjoint(rest):
            from supervisor.cli import examples

            command.epilog = examples.epilog(words)


class Commands(Verbs):
    """The table above as a click group."""

    @property
    def path(self) -> str:
        return ""

    def invoke(self, ctx: click.Context) -> object:
        """click would exit with 1 after a closed pipe, as a container may. What exitctl itself finds wrong with a word
        is a wrong command line, as what click finds is."""
        try:
            result: object = super().invoke(ctx)
        except BrokenPipeError:
            ctx.exit(READER_GONE)
        except BadRequest as error:
            if error.is_answer or ctx.meta.get(VERB) in (*OF_A_CONTAINER, *OF_A_FILE):
                raise
            complain(str(error))
            ctx.exit(USAGE)
        return result

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return super().get_command(ctx, cmd_name)
        module = importlib.import_module(f"supervisor.cli.{COMMANDS[cmd_name][0]}")
        command: click.Command = getattr(module, cmd_name.replace("-", "_"))
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, help_) for name, (_, help_) in COMMANDS.items()])


def connect(ctx: click.Context, *, most_seconds: float | None = None) -> "Client":
    """Return a client of the daemon named by --address or the environment, over ttrpc where possible. Closed with the
    command. `most_seconds`: a limit of each of its calls that comes before their own."""
    from supervisor.api.client import Client, socket_path, ttrpc_beside

    options = ctx.find_root().params
    path = socket_path(options.get("address"), os.environ)
    client = Client(path, None if options.get("grpc") else ttrpc_beside(path), most_seconds=most_seconds)
    ctx.call_on_close(client.close)
    return client


def exit_code(error: ExitdError) -> int:
    """Choose by the error's reason, never by its text."""
    return EXIT_CODES.get(error.reason, OWN_FAILURE)


def complain(text: str) -> None:
    """Print one message for a person, after everything that went to stdout before."""
    sys.stdout.flush()
    print(f"exitctl: {text}", file=sys.stderr, flush=True)


def each(words: Iterable[str], act: Callable[[str], object], *, quiet: bool = False) -> int:
    """Do it for all, even if some fail; print those that succeeded, unless `quiet`. Return the exit code."""
    worst = 0
    for word in words:
        try:
            act(word)
        except ExitdError as error:
            complain(str(error))
            worst = max(worst, exit_code(error))
        else:
            if not quiet:
                print(word, flush=True)
    return worst


def now_ns() -> int:
    return time.time_ns()
