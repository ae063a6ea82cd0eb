"""Options as docker's users spell them: `--rm=true`, `-e=K=V`, and options that are docker's or podman's alone."""

from collections.abc import Iterable, Mapping, Sequence

import click

TRUTH = {
    **dict.fromkeys(("1", "t", "T", "true", "TRUE", "True"), True),
    **dict.fromkeys(("0", "f", "F", "false", "FALSE", "False"), False),
}


class Spelled(click.Command):
    """A command that reads its options as docker's parser does. An option that it lacks and docker or podman has is
    refused with what to do instead. Every usage error names the command: of an option without its value click does not
    say whose it is."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            words, said = (args, {}) if ctx.resilient_parsing else plain(self.params, args, ctx.allow_interspersed_args)
            rest = super().parse_args(ctx, words)
        except click.NoSuchOption as error:
            from supervisor.cli import refused  # imported on demand: exitctl must start fast

            instead = refused.words_of(ctx.command_path.partition(" ")[2], error.option_name)
            if instead is None:
                raise
            raise click.UsageError(f"{error.option_name}: {instead}", ctx) from error
        except click.UsageError as error:
            error.ctx = error.ctx or ctx
            raise
        ctx.params.update(said)
        return rest


def plain(
    parameters: Iterable[click.Parameter], args: Sequence[str], interspersed: bool = False
) -> tuple[list[str], dict[str, bool]]:
    """Return the words as click reads them, and the flags that were given a value, by their parameters' names.

    click has neither `--rm=false` nor `-e=K=V`. Of several values for a flag the last one holds. Options end at `--`
    and, unless they may be `interspersed`, at the first word that is none; what click refuses stays as it is. Raises
    click.UsageError for a flag's value that is no truth value.
    """
    given = [each for each in parameters if isinstance(each, click.Option)]
    options = {name: each for each in given for name in (*each.opts, *each.secondary_opts)}
    rest, words, said = list(args), list[str](), dict[str, bool]()
    while rest and rest[0] != "--":
        if rest[0] == "-" or not rest[0].startswith("-"):
            if not interspersed:
                break
            words.append(rest.pop(0))
            continue
        word = rest.pop(0)
        letters, name, value = _parted(word, options)
        for each in (*(f"-{letter}" for letter in letters), name):
            if each in options:
                said.pop(str(options[each].name), None)
        option = options.get(name)
        if option is None or (value is None and option.is_flag) or name in option.secondary_opts:
            words.append(word)
        elif option.is_flag:
            is_set = _truth(name, str(value))
            words += [f"-{letters}"] if letters else []
            if option.expose_value:
                said[str(option.name)] = is_set
            else:  # it has no value that the command sees
                words += [name] if is_set else []
        else:
            words.append(f"-{letters}{name[1:]}")
            words += rest[:1] if value is None else [value]
            rest = rest[1:] if value is None else rest
    return words + rest, said


def _parted(word: str, options: Mapping[str, click.Option]) -> tuple[str, str, str | None]:
    """Return the letters of the flags in front, the name of the option, and its value, if that stands in the word:
    `-ite=K=V` is ("it", "-e", "K=V")."""
    if word.startswith("--"):
        name, equals, value = word.partition("=")
        return "", name, value if equals else None
    at = 1
    while at < len(word) - 1 and _is_flag(word[at], options) and not (word[at + 1] == "=" and word[at + 2 :]):
        at += 1
    after = word[at + 1 :]
    return word[1:at], f"-{word[at]}", (after.removeprefix("=") or after) if after else None


def _is_flag(letter: str, options: Mapping[str, click.Option]) -> bool:
    option = options.get(f"-{letter}")
    return option is not None and option.is_flag


def _truth(name: str, value: str) -> bool:
    if value not in TRUTH:
        raise click.UsageError(f"{name}={value}: write {name}, {name}=true or {name}=false")
    return TRUTH[value]
