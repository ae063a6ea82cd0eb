"""Names of images, as on a command line, and the values that they mean. Pure: nothing is looked up here.

| text | means |
|---|---|
| `pause` | exitd's own pause program |
| `/DIR`, `./DIR`, `../DIR` | a directory with a root file system |
| `oci:DIR[:TAG]` | an OCI image layout; DIR ends at its first colon, as with skopeo |
| `docker-archive:FILE[:NAME]` | what `docker save` writes; FILE ends at its first colon |
| `docker://NAME` | an image of a registry |
| NAME[:TAG], NAME@DIGEST, a digest, an id or the beginning of one | an image of exitd's own store |

The grammar of names is that of the distribution project's reference package.
"""

import os.path
import re
from typing import TypeAlias

from shim.frozen import frozen, replace
from shim.patterns import LatePattern
from supervisor.model.errors import BadRequest

WAYS = (
    "an IMAGE is `pause`, a directory (/DIR or ./DIR), `oci:DIR[:TAG]`, `docker-archive:FILE`, `docker://NAME`, "
    "or the name of an image in exitd's own store (`exitctl image ls` shows them)"
)
MOST_NAME_CHARACTERS = 255
MOST_WORD_CHARACTERS = 8192
DEFAULT_TAG = "latest"
DIGEST = LatePattern(r"sha256:[0-9a-f]{64}")

_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_LABEL = r"[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?"
_HOST = rf"(?:{_LABEL}(?:\.{_LABEL})*|\[[0-9a-fA-F:]+\])(?::[0-9]+)?"
_NAME = LatePattern(
    rf"(?P<repository>(?:{_HOST}/)?{_PART}(?:/{_PART})*)"
    r"(?::(?P<tag>[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}))?"
    r"(?:@(?P<digest>sha256:[0-9a-f]{64}))?",
    re.ASCII,
)


@frozen
class Pause:
    """exitd's own pause program."""

    def __str__(self) -> str:
        return "pause"


@frozen
class ImageDirectory:
    """A directory with a root file system."""

    path: str

    def __str__(self) -> str:
        return self.path


@frozen
class Layout:
    """`tag` is the text of the annotation org.opencontainers.image.ref.name; empty: the only image."""

    path: str
    tag: str = ""

    def __str__(self) -> str:
        return f"oci:{self.path}" + (f":{self.tag}" if self.tag else "")


@frozen
class Archive:
    """`name` selects one of several images; empty: the only one."""

    path: str
    name: str = ""

    def __str__(self) -> str:
        return f"docker-archive:{self.path}" + (f":{self.name}" if self.name else "")


@frozen
class Name:
    """A repository with a tag, a digest, or both. Without either it gets the tag `latest`."""

    repository: str
    tag: str = ""
    digest: str = ""

    def __str__(self) -> str:
        return self.repository + (f":{self.tag}" if self.tag else "") + (f"@{self.digest}" if self.digest else "")


@frozen
class Registry:
    """An image of a registry."""

    name: Name

    def __str__(self) -> str:
        return f"docker://{self.name}"


@frozen
class Stored:
    """A text to look up in the store: a name, or the beginning of an id. `name` is None if it cannot be a name."""

    word: str
    name: Name | None

    def __str__(self) -> str:
        return self.word


Reference: TypeAlias = Pause | ImageDirectory | Layout | Archive | Registry | Stored


def parse(word: str, cwd: str = "") -> Reference:
    """Return what the name of an image means. Relative paths begin at `cwd`; without one they are refused, since a
    daemon's own working directory means nothing to its caller. The text of the result can be parsed again, with the
    same result. Raises BadRequest."""
    if len(word) > MOST_WORD_CHARACTERS or not word.isprintable():
        raise BadRequest(f"IMAGE {word[:80]!r}: not a printable text of a sensible length; {WAYS}")
    if word == "pause":
        return Pause()
    if word.startswith("docker://"):
        return Registry(parse_name(word.removeprefix("docker://"), word))
    scheme, _, rest = word.partition(":")
    match scheme:
        case "oci":
            path, tag = _split(word, rest)
            return Layout(_absolute(path, word, cwd), tag)
        case "docker-archive":
            path, name = _split(word, rest)
            return Archive(_absolute(path, word, cwd), str(parse_name(name, word)) if name else "")
    if word.startswith("/") or word in (".", "..") or word.startswith(("./", "../")):
        return ImageDirectory(_absolute(word, word, cwd))
    return _stored(word)


def parse_remote(word: str, cwd: str = "") -> Registry | Layout | Archive:
    """Return what to fetch: a registry's name with or without docker://, oci:DIR[:TAG], or docker-archive:FILE[:NAME].
    Raises BadRequest."""
    known = word.startswith(("docker://", "oci:", "docker-archive:"))
    wanted = parse(word if known else f"docker://{word}", cwd)
    assert isinstance(wanted, Registry | Layout | Archive)
    return wanted


def parse_name(text: str, word: str = "") -> Name:
    """Parse NAME[:TAG][@DIGEST]; without both the tag is `latest`. Raises BadRequest, quoting `word`, or the text
    itself."""
    name = as_name(text)
    if name is None:
        raise BadRequest(f"IMAGE {word or text!r}: {text!r} is not an image's name; {WAYS}")
    return name


def as_name(text: str) -> Name | None:
    """As `parse_name`; None if the text is not a name. A digest, or its 64 digits, is never a name."""
    match = _NAME.fullmatch(text)
    if not match or len(match["repository"]) > MOST_NAME_CHARACTERS or _is_digest(text):
        return None
    tag, digest = match["tag"] or "", match["digest"] or ""
    return Name(match["repository"], tag if tag or digest else DEFAULT_TAG, digest)


def ends_with(stored: Name, short: Name) -> bool:
    """Return whether `short` is the stored name without some leading components: busybox:1 for
    docker.io/library/busybox:1."""
    if short.tag and stored.tag != short.tag:
        return False
    return stored.repository == short.repository or stored.repository.endswith("/" + short.repository)


def canonical(name: Name) -> Name:
    """Return the form in which a registry's name is stored: with its host, or docker's defaults if it has none."""
    host, slash, _ = name.repository.partition("/")
    if slash and (host == "localhost" or "." in host or ":" in host):
        return name
    repository = name.repository if slash else f"library/{name.repository}"
    return replace(name, repository=f"docker.io/{repository}")


def _stored(word: str) -> Stored:
    name = as_name(word)
    if name is None and not _is_digest(word):
        raise BadRequest(f"IMAGE {word!r}: {WAYS}")
    return Stored(word, name)


def _is_digest(text: str) -> bool:
    return bool(DIGEST.fullmatch(f"sha256:{text.removeprefix('sha256:')}"))


def _split(word: str, rest: str) -> tuple[str, str]:
    path, colon, choice = rest.partition(":")
    if not path or (colon and not choice):
        raise BadRequest(f"IMAGE {word!r}: nothing before or after a colon; {WAYS}")
    return path, choice


def _absolute(path: str, word: str, cwd: str) -> str:
    if not path.startswith("/"):
        if not cwd.startswith("/"):
            raise BadRequest(f"IMAGE {word!r}: {path} is not an absolute path; {WAYS}")
        path = f"{cwd}/{path}"
        if ":" in cwd and word.startswith(("oci:", "docker-archive:")):
            raise BadRequest(f"IMAGE {word!r}: a colon ends the path, and the directory {cwd} has one in its name")
    return "/" + os.path.normpath(path).lstrip("/")
