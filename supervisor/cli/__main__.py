"""exitctl: from argv to an exit code, and never a traceback for users."""

import gc

COLLECT_AFTER = 100_000  # new objects; imports make tens of thousands, and no garbage
gc.set_threshold(COLLECT_AFTER)  # before them

import os

from shim.later import PURE_PROTOBUF, cleandoc, later

later("inspect", cleandoc=cleandoc)  # click and dataclasses use nothing else of it
later("platform", system=lambda: os.uname().sysname)  # for uuid, which click imports
later(PURE_PROTOBUF)
later("bz2")
later("lzma")  # shutil only notes whether they are there

import sys
from collections.abc import Sequence
from typing import Never

import click

from supervisor import __version__
from supervisor.cli.app import OF_A_CONTAINER, OWN_FAILURE, READER_GONE, Commands, complain, exit_code
from supervisor.model.errors import ExitdError

MOST_SHOWN = 200  # characters of a word
INTERRUPTED = 130  # 128 + SIGINT


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--address",
    "-a",
    metavar="SOCKET",
    help="The daemon's socket. Default: $EXITD_ADDRESS, else exitd.sock in $EXITD_STATE (/run/exitd).",
)
@click.version_option(__version__, "-v", "--version", prog_name="exitctl")
@click.option("--grpc", is_flag=True, help="Use gRPC, even if exitd.ttrpc exists beside exitd.sock.")
def exitctl(address: str | None, grpc: bool) -> None:
    """Run containers whose every exit is reported once, with the true code, or as unknown with the reason.

    Exit codes: a command's own results, 2 for a wrong command line (run, create, exec: 125), 125 when exitctl or exitd
    failed; run: the container's code, 128+n after signal n, 126 not executable, 127 not found, 255 unknown.
    """


def main(arguments: Sequence[str] | None = None) -> Never:
    """The console script: ends the process."""
    code = run(arguments)
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        code = _reader_gone()
    # Every command has closed what it opened; a regular interpreter shutdown would take a sixth of the whole time.
    os._exit(code)


def run(arguments: Sequence[str] | None = None) -> int:
    """Execute `arguments` (default: the process's own) and return the exit code."""
    try:
        result = exitctl.main(arguments, prog_name="exitctl", standalone_mode=False)
    except ExitdError as error:
        complain(str(error))
        return exit_code(error)
    except click.ClickException as error:
        error.show()
        return _usage_code(error)
    except (KeyboardInterrupt, click.Abort):
        return INTERRUPTED
    except UnicodeEncodeError as error:  # no message holds it: a word or a variable has bytes that are no text
        complain(f"{error.object[:MOST_SHOWN]!r} is no UTF-8 text")
        return OWN_FAILURE
    except Exception as error:  # the door to people: whatever is wrong with exitctl, they get words, not a stack
        complain(f"internal error: {type(error).__name__}: {error} (EXITCTL_DEBUG=1 shows where)")
        if os.environ.get("EXITCTL_DEBUG"):
            import traceback

            traceback.print_exc()
        return OWN_FAILURE
    return result if isinstance(result, int) else 0


def _usage_code(error: click.ClickException) -> int:
    """Return click's code, 2 for a wrong command line; of commands that exit with a container's code, 125 as docker."""
    context = error.ctx if isinstance(error, click.UsageError) else None
    verb = context.command_path.removeprefix("exitctl ").removeprefix("container ") if context is not None else ""
    return OWN_FAILURE if verb in OF_A_CONTAINER else error.exit_code


def _reader_gone() -> int:
    """There is nothing to print, and nothing more to flush at the interpreter's end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return READER_GONE


if __name__ == "__main__":
    main()
