"""`version` and `info`."""

import json
import platform

import click

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor import __version__
from supervisor.cli import output, table
from supervisor.cli.app import complain, connect, exit_code
from supervisor.cli.shape import Document
from supervisor.cli.spelling import Spelled
from supervisor.model.errors import ExitdError

API = pb.DESCRIPTOR.package


@click.command(cls=Spelled)
@output.option("table")
@click.pass_context
def version(ctx: click.Context, format_: str) -> int:
    """Show the versions of exitctl and exitd; exit 125 when the daemon does not answer."""
    wanted = output.format_of(format_)
    code = 0
    client: Document = {"Version": __version__, "Api": API, "Python": platform.python_version()}
    server: Document | None = None
    try:
        reply = connect(ctx).version()
        server = {"Version": reply.version, "Api": reply.api, "Python": reply.python}
    except ExitdError as error:
        failure, code = error, exit_code(error)
    if wanted.kind == "json":
        print(json.dumps({"Client": client, "Server": server}, indent=4))
    elif wanted.kind != "table":
        print(output.line(wanted, {"Client": client, "Server": server}))
    else:
        print(_line("exitctl", client) + (_line("exitd", server) if server else ""), end="")
    if code:
        complain(str(failure))
    return code


@click.command(cls=Spelled)
@output.option("table")
@click.pass_context
def info(ctx: click.Context, format_: str) -> int:
    """Show the daemon's settings and state."""
    wanted = output.format_of(format_)
    reply = connect(ctx).info()
    document = info_document(reply)
    if wanted.kind == "json":
        print(json.dumps(document, indent=4, ensure_ascii=False))
    elif wanted.kind != "table":
        print(output.line(wanted, document))
    else:
        rows = ([f"{name}:", _plain(value)] for name, value in document.items() if name != "Configuration")
        print(table.columns(rows), end="")
        print("Configuration:")
        print(table.columns([["  NAME", "VALUE", "ORIGIN"], *map(_in_force, reply.configuration)]), end="")
    return 0


def info_document(reply: pb.InfoReply) -> Document:
    """Return what `info` prints: evidence sources by name, with whether they work on that machine."""
    return {
        "Version": reply.version,
        "Pid": reply.pid,
        "Root": reply.root,
        "State": reply.state,
        "StateFileSystem": reply.state_file_system,
        "BootID": reply.boot_id,
        "DefaultRuntime": reply.default_runtime,
        "Cgroup": reply.cgroup,
        "Evidence": dict(sorted(reply.evidence.items())),
        "Containers": reply.containers,
        "Running": reply.running,
        "KeeperPid": reply.keeper.pid or None,
        "PendingCommits": reply.pending_commits,
        "Seq": reply.seq,
        "Settings": dict(sorted(reply.settings.items())),
        "Configuration": [{"Name": s.name, "Value": s.value, "Origin": s.origin} for s in reply.configuration],
    }


def _in_force(setting: pb.Setting) -> list[str]:
    return [f"  {setting.name}", setting.value, setting.origin]


def _line(who: str, document: Document) -> str:
    return f"{who:8} {document['Version']} (API {document['Api']}, Python {document['Python']})\n"


def _plain(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_plain(one)}" for key, one in value.items()) or "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "-" if value in (None, "") else str(value)
