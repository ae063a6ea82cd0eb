"""Where a copy goes: docker's rules about directories that are there and slashes at the end of a path. Pure.

| DEST | a file | a directory, or `DIR/.` for its content |
|---|---|---|
| is not there | is made; its parent must be there, and a slash at its end is an error | is made, with the content |
| is a file | is replaced | an error |
| is a directory | gets the file by its own name | gets the directory by its own name, or its content |

Source: `docker cp --help`, "docker container cp", of docker's documentation.
"""

from shim.frozen import frozen
from supervisor.model.errors import BadRequest

HERE = "."  # the name of a directory's own entry, under which its content is


@frozen
class CopyEnd:
    """One end of a copy. `path` as it was typed; `is_there` is always true of a source."""

    path: str
    is_there: bool
    is_directory: bool


@frozen
class CopyTarget:
    """The directory that gets the tar, and the name of its first entry; `HERE`: all of it goes into the directory."""

    directory: str
    name: str


def place(source: CopyEnd, destination: CopyEnd) -> CopyTarget:
    """Return where the source goes. Raises BadRequest, which names the path."""
    if asks_for_directory(source.path) and not source.is_directory:
        raise BadRequest(f"{source.path}: not a directory")
    if destination.is_there and destination.is_directory:
        content = source.is_directory and is_content(source.path)
        return CopyTarget(destination.path, HERE if content else base(source.path))
    if destination.is_there:
        if asks_for_directory(destination.path):
            raise BadRequest(f"{destination.path}: not a directory")
        if source.is_directory:
            raise BadRequest(f"{source.path} is a directory, and {destination.path} is none")
    elif asks_for_directory(destination.path) and not source.is_directory:
        raise BadRequest(f"{destination.path}: there is no such directory")
    return CopyTarget(parent(destination.path), base(destination.path))


def asks_for_directory(path: str) -> bool:
    return path.endswith("/") or path.rpartition("/")[2] in (".", "..")


def is_content(path: str) -> bool:
    """Whether the path means what is in the directory, and not the directory: `DIR/.`, as with docker."""
    return path == HERE or path.endswith("/.")


def base(path: str) -> str:
    """Return the name that a copy of the path gets; `HERE` where it has none, as `/`."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    return parts[-1] if parts and parts[-1] != ".." else HERE


def parent(path: str) -> str:
    """Return the directory that the path is in; of a path without a slash, the one that it begins at."""
    text = path.rstrip("/")
    while text.endswith("/."):
        text = text[:-2].rstrip("/")
    above, slash, _ = text.rpartition("/")
    return above or ("/" if slash or (path and not text) else ".")


def split(word: str) -> tuple[str, str]:
    """Return container and path of CONTAINER:PATH; no container for a path of this machine: one with a slash, or a dot
    alone, before the first colon is one, as with docker."""
    container, colon, path = word.partition(":")
    if not colon or not container or word.startswith(("/", "./", "../")) or "/" in container:
        return "", word
    return container, path
