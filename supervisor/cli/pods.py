"""Pods in crictl's words: `pods`, `runp`, `stopp`, `rmp`, `inspectp`."""

import json
import re
import sys
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path

import click
import yaml

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api.client import Client
from supervisor.api.rights import MOST_PIDS
from supervisor.cli import parse, podview, table, template
from supervisor.cli.app import complain, connect, each, now_ns
from supervisor.cli.manifest.sandboxconfig import read_config
from supervisor.cli.shape import Document
from supervisor.cli.spelling import Spelled
from supervisor.cli.spoken import nanoseconds
from supervisor.model.errors import BadRequest, NoSuchContainer

Command = Callable[..., int]

MOST_TEXT_BYTES = 16 << 20  # of a file with manifests, or with a sandbox
STATES = click.Choice(("ready", "notready"), case_sensitive=False)


def chosen(function: Command) -> Command:
    """Add the options that select pods, as crictl has them."""
    for one in (
        click.option("-n", "--last", type=parse.UINT32, default=0, metavar="N", help="List only the N newest."),
        click.option("-l", "--latest", is_flag=True, help="List only the newest."),
        click.option("--label", "labels", multiple=True, metavar="KEY=VALUE", help="Only pods with this label."),
        click.option("-s", "--state", type=STATES, help="Only pods that are ready or notready."),
        click.option("--namespace", default="", metavar="REGEX", help="Only pods with a matching namespace."),
        click.option("--name", default="", metavar="REGEX", help="Only pods with a matching name."),
    ):
        function = one(function)
    return function


@click.command(cls=Spelled)
@click.option("--id", "id_", default="", metavar="ID", help="Only the pod whose id begins so.")
@chosen
@click.option("-q", "--quiet", is_flag=True, help="Print only ids.")
@click.option("-v", "--verbose", is_flag=True, help="Print everything about each pod.")
@click.option("--no-trunc", is_flag=True, help="Print whole ids.")
@click.option("-o", "--output", type=click.Choice(("table", "json", "yaml")), default="table", help="Default table.")
@click.pass_context
def pods(
    ctx: click.Context, id_: str, name: str, namespace: str, state: str | None, labels: tuple[str, ...],
    latest: bool, last: int, quiet: bool, verbose: bool, no_trunc: bool, output: str,
) -> int:  # fmt: skip
    """List pods, the newest first."""
    found = _choose(connect(ctx), id_, name, namespace, state, labels, 1 if latest else last)
    if output != "table":
        _print({"items": [podview.item(pod) for pod in found]}, output)
    elif quiet:
        print("".join(f"{pod.id}\n" for pod in found), end="")
    elif verbose:
        for pod in found:
            lines = [f"{name}: {value}" for name, value in podview.details(pod) if value]
            print(*map(_printable, lines), "", sep="\n")
    else:
        rows = [podview.row(pod, now_ns(), whole=no_trunc) for pod in found]
        print(table.columns([podview.HEADINGS, *rows]), end="")
    return 0


@click.command(cls=Spelled)
@click.option("-r", "--runtime", default="", metavar="HANDLER", help="As for run; default: the daemon's.")
@click.option(
    "--on-pause-exit",
    type=click.Choice(("stop", "keep")),
    default="stop",
    help="What to do with the members when the pause container has ended; default stop.",
)
@click.option(
    "--pids-limit",
    type=click.IntRange(min=0, max=MOST_PIDS),
    default=0,
    metavar="N",
    help="Limit of processes and threads in the whole pod; default 0: only each container's own limit.",
)
@click.argument("config", metavar="CONFIG.json|yaml")
@click.pass_context
def runp(ctx: click.Context, runtime: str, on_pause_exit: str, pids_limit: int, config: str) -> int:
    """Run a new pod from a CRI PodSandboxConfig and print its id."""
    wanted = read_config(read_text(config), config, lambda: str(uuid.uuid4()))
    for warning in wanted.warnings:
        complain(warning)
    spec = wanted.spec
    spec.runtime = str(Path(runtime).absolute()) if "/" in runtime else runtime
    spec.pod.on_pause_exit = on_pause_exit
    spec.pod.pids_limit = pids_limit
    print(connect(ctx).run_pod(spec).id, flush=True)
    return 0


@click.command(cls=Spelled)
@click.option(
    "-t",
    "--timeout",
    "--time",
    "seconds",
    type=parse.UINT32,
    metavar="S",
    help="Grace period before SIGKILL; default: each container's own (10).",
)
@click.argument("words", nargs=-1, required=True, metavar="POD...")
@click.pass_context
def stopp(ctx: click.Context, words: tuple[str, ...], seconds: int | None) -> int:
    """Stop pods: their members, then their pause containers. One that is already NotReady is no error."""
    client = connect(ctx)

    def stop(word: str) -> None:
        client.stop_pod(word, seconds)
        print(f"Stopped sandbox {word}", flush=True)

    return each(words, stop, quiet=True)


@click.command(cls=Spelled)
@click.option("-f", "--force", is_flag=True, help="Stop it first if it is ready.")
@click.option("-a", "--all", "all_of_them", is_flag=True, help="Remove all pods.")
@click.argument("words", nargs=-1, metavar="POD...")
@click.pass_context
def rmp(ctx: click.Context, words: tuple[str, ...], force: bool, all_of_them: bool) -> int:
    """Remove pods and their members. Their exits stay in the ledger."""
    if bool(words) == all_of_them:
        raise BadRequest("which pods? Name some, or all of them with --all")
    client = connect(ctx)

    def remove(word: str) -> None:
        if force and client.inspect_pod(word).state == "SANDBOX_READY":
            client.stop_pod(word)
            print(f"Stopped sandbox {word}", flush=True)
        client.remove_pod(word, force=force)
        print(f"Removed sandbox {word}", flush=True)

    return each((pod.id for pod in client.pods()) if all_of_them else words, remove, quiet=True)


@click.command(cls=Spelled)
@chosen
@click.option("-q", "--quiet", is_flag=True, help="Print only CRI's fields, without info.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(("json", "yaml", "go-template", "table")),
    default="json",
    help="Default json.",
)
@click.option("--template", "template_", metavar="TEMPLATE", help="For -o go-template, as in {{.status.id}}.")
@click.argument("words", nargs=-1, metavar="POD...")
@click.pass_context
def inspectp(
    ctx: click.Context, words: tuple[str, ...], name: str, namespace: str, state: str | None,
    labels: tuple[str, ...], latest: bool, last: int, quiet: bool, output: str, template_: str | None,
) -> int:  # fmt: skip
    """Show everything about pods: CRI's status, and exitd's own info."""
    if (output == "go-template") != (template_ is not None):
        raise BadRequest("--template TEMPLATE and -o go-template go together")
    pattern = None if template_ is None else template.parse(template_)
    client = connect(ctx)
    if not words:
        words = tuple(p.id for p in _choose(client, "", name, namespace, state, labels, 1 if latest else last))
    if not words:
        raise NoSuchContainer("no pod: name some; `exitctl pods` lists them")
    found: list[pb.Pod] = []
    worst = each(words, lambda word: found.append(client.inspect_pod(word)), quiet=True)
    if output == "table":
        print(*("".join(_table(pod)) for pod in found), sep="\n", end="")
        return worst
    documents = [_document(pod, quiet=quiet) for pod in found]
    if pattern is not None:
        print("".join(f"{pattern.render(document)}\n" for document in documents), end="")
    elif documents:
        _print(documents[0] if len(documents) == 1 else documents, output)
    return worst


def read_text(file: str) -> str:
    """Return the file's text, of MOST_TEXT_BYTES at most; - is standard input. Raises BadRequest."""
    parse.refuse_address(file)
    try:
        if file == "-":
            data = sys.stdin.buffer.read(MOST_TEXT_BYTES + 1)
        else:
            with open(file, "rb") as opened:
                data = opened.read(MOST_TEXT_BYTES + 1)
        if len(data) > MOST_TEXT_BYTES:
            raise BadRequest(f"{file}: more than {MOST_TEXT_BYTES >> 20} MiB, too much for such a file")
        return data.decode("utf-8-sig")
    except OSError as error:
        raise BadRequest(f"{file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BadRequest(f"{file}: no UTF-8 text; the byte {error.start} is wrong") from error


def _choose(
    client: Client, id_: str, name: str, namespace: str, state: str | None, labels: Iterable[str], most: int
) -> list[pb.Pod]:
    """Return the pods, newest first; `most` 0: all."""
    filters = [f"label={key}={value}" for key, value in (parse.pair(label, "label") for label in labels)]
    filters += [f"id={id_}"] if id_ else []
    filters += [f"state={state}"] if state else []
    wanted = (_pattern("--name", name), _pattern("--namespace", namespace))
    found = [
        pod
        for pod in client.pods(tuple(filters))
        if wanted[0].search(pod.spec.name) and wanted[1].search(pod.spec.namespace)
    ]
    found.sort(key=lambda pod: nanoseconds(pod.pause.created_at), reverse=True)
    return found[: most or None]


def _pattern(option: str, text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise BadRequest(f"{option} {text!r} is no regular expression: {error}") from error


def _document(pod: pb.Pod, *, quiet: bool) -> Document:
    own: Document = {} if quiet else {"info": podview.info(pod)}
    return {"status": podview.status(pod), **own}


def _table(pod: pb.Pod) -> list[str]:
    lines = [f"{name}: {value}\n" for name, value in podview.details(pod) if value]
    lines += [f"Member: {member.id} {member.spec.name}\n" for member in pod.members]
    return [_printable(line.rstrip("\n")) + "\n" for line in lines]


def _print(document: object, output: str) -> None:
    if output == "yaml":
        print(yaml.safe_dump(document, sort_keys=False, allow_unicode=True), end="")
    else:
        print(json.dumps(document, indent=2, ensure_ascii=False))


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in text)
