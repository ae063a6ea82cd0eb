"""The three stream fields of a task or an exec, and what its shim does with them.

| field                 | stdout, stderr                                   | stdin                      |
|-----------------------|--------------------------------------------------|----------------------------|
| empty, /dev/null      | output is dropped                                | closed from the beginning  |
| PATH, fifo://PATH     | a fifo of the client; a file is appended to      | a fifo of the client       |
| file://PATH           | made with its directories, 0644, and appended to | refused                    |
| binary://PATH?key=val | a logger program gets both streams               | refused                    |

The shim opens both ends of a fifo, without waiting: no client need be there, and one that leaves does not hurt the
container. If there is no reader, first the fifo fills, then the shim's buffer, and then the container blocks. Data that
is unread at the end waits for its client for a third of the drain limit.
"""

import os
import stat
from urllib.parse import parse_qsl, unquote, urlsplit

from shim.frozen import frozen, replace
from shim.patterns import LatePattern
from shim.plan import COMMAND_MAX_WORDS
from supervisor.model.errors import BadRequest
from supervisor.model.values import ForeignStreams

NULL = "/dev/null"
OUTPUT = ("fifo", "file", "binary", "binary-v2")  # the last must report when it is ready; exitd waits for that in both
INPUT = ("fifo",)
MOST_CHARACTERS = 4096  # of a field; three of them fit into the shim's plan
_URI = LatePattern(r"[A-Za-z][A-Za-z0-9+.-]*://")


@frozen
class Words:
    """The fields of a Create or an Exec. `id` is the container's, for an exec the exec's own."""

    namespace: str
    id: str
    stdin: str = ""
    stdout: str = ""
    stderr: str = ""
    terminal: bool = False


@frozen
class WantedStdio:
    """What the fields mean. `to_make`: the paths that are made if they do not exist."""

    streams: ForeignStreams
    to_make: tuple[str, ...] = ()


@frozen
class _Word:
    scheme: str = ""  # empty: no such stream
    path: str = ""
    arguments: tuple[str, ...] = ()


def parse(words: Words, owner: tuple[int, int] = (0, 0)) -> WantedStdio:
    """Parse the fields; pure. `owner`: io_uid and io_gid of the options. Raises BadRequest, which names the stream and
    the scheme."""
    stdin = _read("stdin", words.stdin, INPUT)
    out = _read("stdout", words.stdout, OUTPUT)
    err = _Word() if words.terminal else _read("stderr", words.stderr, OUTPUT)  # a terminal has one output
    streams = ForeignStreams(stdin=stdin.path, uid=owner[0], gid=owner[1])
    if out.scheme.startswith("binary") or err.scheme.startswith("binary"):
        if err not in (_Word(), out):
            raise BadRequest(
                f"stderr {words.stderr}: one program gets both streams, so this must be as stdout, or empty"
            )
        env = (f"CONTAINER_ID={words.id}", f"CONTAINER_NAMESPACE={words.namespace}")
        return WantedStdio(replace(streams, logger=(out.path, *out.arguments), logger_env=env))
    files = {word.path for word in (out, err) if word.scheme == "file"}
    return WantedStdio(replace(streams, out=out.path, err=err.path), tuple(sorted(files)))


def settle(wanted: WantedStdio) -> ForeignStreams:
    """Return what the shim can open, for a Spec or an ExecSpec: files are made, links resolved, and everything is
    checked. Never blocks. Repeatable. Raises BadRequest for what does not exist, or is neither a fifo nor a file."""
    streams = wanted.streams
    for path in wanted.to_make:
        _make(path)
    out, err = (_checked(name, path) for name, path in (("stdout", streams.out), ("stderr", streams.err)))
    stdin = _checked("stdin", streams.stdin, only_fifo=True)
    if streams.logger and not os.access(streams.logger[0], os.X_OK):
        raise BadRequest(f"stdout: {streams.logger[0]} is no program that could be executed")
    return replace(streams, out=out, err=err, stdin=stdin)


def _read(stream: str, word: str, schemes: tuple[str, ...]) -> _Word:
    """A field without a scheme is a literal path, percent signs included."""
    if word in ("", NULL):
        return _Word()
    if "\0" in word or len(word) > MOST_CHARACTERS:
        raise BadRequest(f"{stream} {word[:200]!r}: at most {MOST_CHARACTERS} characters, and no zero byte")
    if not _URI.match(word):
        found = _Word("fifo", word)
    else:
        uri = urlsplit(word)
        found = _Word(uri.scheme, unquote(uri.netloc + uri.path), _arguments(stream, uri.query))
    if found.scheme not in schemes:
        raise BadRequest(f"{stream} {word}: no scheme {found.scheme} here; it must be one of {', '.join(schemes)}")
    if not found.path.startswith("/") or "\0" in "".join((found.path, *found.arguments)):
        raise BadRequest(f"{stream} {word}: the path must be absolute, as in {found.scheme}:///path")
    return found


def _arguments(stream: str, query: str) -> tuple[str, ...]:
    """Return key, value, key, value, each key once with the first of its values."""
    pairs: dict[str, str] = {}
    for key, value in parse_qsl(query, keep_blank_values=True):
        pairs.setdefault(key, value)
    if 1 + 2 * len(pairs) > COMMAND_MAX_WORDS:
        raise BadRequest(f"{stream}: {len(pairs)} arguments, at most {(COMMAND_MAX_WORDS - 1) // 2}")
    return tuple(word for pair in pairs.items() for word in pair)


def _make(path: str) -> None:
    """O_NONBLOCK: opening a fifo in its place would wait for a reader."""
    try:
        os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK | os.O_CLOEXEC, 0o644))
    except OSError as error:
        raise BadRequest(f"output file {path}: {error.strerror}") from error


def _checked(stream: str, path: str, *, only_fifo: bool = False) -> str:
    """Return the path without links: the shim follows none."""
    if not path:
        return ""
    try:
        real = os.path.realpath(path, strict=True)
        mode = os.stat(real, follow_symlinks=False).st_mode
    except OSError as error:
        raise BadRequest(f"{stream} {path}: {error.strerror}") from error
    if not (stat.S_ISFIFO(mode) or (stat.S_ISREG(mode) and not only_fifo)):
        raise BadRequest(f"{stream} {path}: must be a fifo{'' if only_fifo else ', or a file'}")
    return real
