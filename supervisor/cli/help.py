"""`help` and `completion`: what exitctl has, for people and for their shells."""

import sys

import click
from click.shell_completion import get_completion_class

from supervisor.cli import examples
from supervisor.cli.spelling import Spelled

SHELLS = ("bash", "zsh", "fish")
# click's script for fish ends an option's description at its first comma.
CUTS, WHOLE = '(string split "," $completion)', '(string split --max 1 "," $completion)'


@click.command(cls=Spelled)
@click.argument("words", nargs=-1, metavar="[VERB]...")
@click.pass_context
def help(ctx: click.Context, words: tuple[str, ...]) -> int:
    """Show the help of a verb, as of `run` or `image ls`; without one, all verbs."""
    shown = ctx.find_root()
    for word in words:
        group = shown.command
        found = group.get_command(shown, word) if isinstance(group, click.Group) else None
        if found is None:
            ctx.fail(f"{' '.join(words)}: {_instead(' '.join(words))}")
        shown = found.context_class(found, info_name=word, parent=shown, resilient_parsing=True)
    if words:
        shown.command.epilog = examples.epilog(" ".join(words))
    print(shown.command.get_help(shown))
    return 0


def _instead(words: str) -> str:
    from supervisor.cli import verbs  # imported on demand, as where such a verb is typed

    return verbs.REFUSED.get(words, "there is no such verb; `exitctl help` lists them")


@click.command(cls=Spelled)
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> int:
    """Print what completes verbs, options and living names in a shell; the Debian package has installed it.

    bash: eval "$(exitctl completion bash)"; zsh: the same after compinit; fish: exitctl completion fish | source.
    """
    chosen = get_completion_class(shell)
    assert chosen is not None  # SHELLS are click's own
    script = chosen(ctx.find_root().command, {}, "exitctl", "_EXITCTL_COMPLETE").source()
    sys.stdout.write(script.replace(CUTS, WHOLE))
    return 0
