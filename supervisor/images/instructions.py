"""The configuration of an image that is made of a container: the image's, what the container was started with, and the
instructions of a Dockerfile that `commit -c` has. Pure.

Sources: OCI image-spec, config.md; "Dockerfile reference" of docker's documentation, for the instructions' two forms.
"""

import json
import posixpath
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from shim.frozen import frozen
from supervisor.images.merge import DEFAULT_STOP_SIGNAL
from supervisor.model import parsing, values
from supervisor.model.errors import BadRequest
from supervisor.model.values import Spec

MOST_CHANGES = 100
MOST_TEXT = 8192
_PORT = re.compile(r"[0-9]{1,5}(?:-[0-9]{1,5})?(?:/(?:tcp|udp|sctp))?")

Config = dict[str, Any]  # `config` of an image's configuration, of which other fields than these are kept as they are


@frozen
class CommitWords:
    """What the caller says of the image."""

    changes: tuple[str, ...] = ()
    message: str = ""
    author: str = ""


def document(base: bytes, spec: Spec, words: CommitWords, diff_id: str, created: str) -> bytes:
    """Return the configuration of the image of this container, with one more layer. `base` is its image's, which has
    been parsed before. Raises BadRequest for a change that cannot be."""
    root: dict[str, Any] = json.loads(base)
    config = _of_container(dict(root.get("config") or {}), spec)
    for change in words.changes:
        apply(config, change)
    rootfs = dict(root["rootfs"])
    rootfs["diff_ids"] = [*(rootfs.get("diff_ids") or ()), diff_id]
    step = {"created": created, "created_by": "exitctl commit"}
    step |= {"author": words.author} if words.author else {}
    step |= {"comment": words.message} if words.message else {}
    root |= {"config": config, "rootfs": rootfs, "created": created, "history": [*(root.get("history") or ()), step]}
    if words.author:
        root["author"] = words.author
    return json.dumps(root, sort_keys=True).encode()


def check(changes: Sequence[str]) -> None:
    """Raise BadRequest for a change that cannot be."""
    if len(changes) > MOST_CHANGES:
        raise BadRequest(f"{len(changes)} changes: at most {MOST_CHANGES}", field="changes")
    for change in changes:
        apply({}, change)


def apply(config: Config, change: str) -> None:
    """Apply one instruction: `CMD ["a", "b"]`, `ENV A=1 B=2`. Raises BadRequest, which quotes it."""
    if len(change) > MOST_TEXT or "\0" in change:
        raise _wrong(change, f"longer than {MOST_TEXT} characters, or with a zero byte in it")
    name, _, text = change.strip().partition(" ")
    act = _INSTRUCTIONS.get(name.upper())
    if act is None:
        raise _wrong(change, f"it must begin with one of {', '.join(_INSTRUCTIONS)}")
    if not text.strip():
        raise _wrong(change, "nothing follows the instruction")
    act(config, text.strip(), change)


def _of_container(config: Config, spec: Spec) -> Config:
    """What the container was started with stands in place of what its image says."""
    entrypoint = [str(word) for word in config.get("Entrypoint") or ()]
    begins = spec.args[: len(entrypoint)] == tuple(entrypoint)
    config["Entrypoint"] = entrypoint if begins else None
    config["Cmd"] = [*spec.args[len(entrypoint) if begins else 0 :]]
    config["Env"] = [f"{name}={value}" for name, value in _pairs(spec.env).items()]
    config["Labels"] = dict(spec.labels)
    config["WorkingDir"], config["User"] = spec.cwd, spec.user
    if spec.stop_signal != DEFAULT_STOP_SIGNAL:
        config["StopSignal"] = f"{spec.stop_signal}"
    return {key: value for key, value in config.items() if value not in (None, [], {}, "")}


def _pairs(words: Sequence[str]) -> dict[str, str]:
    return {name: value for name, _, value in (word.partition("=") for word in words)}


def _command(field: str) -> Callable[[Config, str, str], None]:
    def act(config: Config, text: str, change: str) -> None:
        if field == "Entrypoint":
            config.pop("Cmd", None)
        config[field] = _words(text, change) if text.startswith("[") else [*values.SHELL, text]

    return act


def _words(text: str, change: str) -> list[str]:
    """A JSON list of texts."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _wrong(change, "what follows is no JSON list") from error
    if not isinstance(found, list) or not all(isinstance(word, str) and "\0" not in word for word in found):
        raise _wrong(change, "what follows is no JSON list of texts")
    return found


def _env(config: Config, text: str, change: str) -> None:
    pairs = _pairs(config.get("Env") or ())
    pairs.update(_assignments(text, change))
    config["Env"] = [f"{name}={value}" for name, value in pairs.items()]


def _label(config: Config, text: str, change: str) -> None:
    config["Labels"] = {**(config.get("Labels") or {}), **_assignments(text, change)}


def _assignments(text: str, change: str) -> dict[str, str]:
    """`A=1 B="two words"`, or docker's old `A the rest`."""
    first = text.split(None, 1)
    if "=" not in first[0]:
        if len(first) < 2:
            raise _wrong(change, "NAME=VALUE must follow")
        return {first[0]: first[1]}
    try:
        found = [word.partition("=") for word in shlex.split(text)]
    except ValueError as error:
        raise _wrong(change, str(error)) from error
    if any(not name or not equals for name, equals, _ in found):
        raise _wrong(change, "NAME=VALUE must follow")
    return {name: value for name, _, value in found}


def _expose(config: Config, text: str, change: str) -> None:
    ports: Mapping[str, object] = config.get("ExposedPorts") or {}
    found = text.split()
    for port in found:
        if not _PORT.fullmatch(port):
            raise _wrong(change, f"{port!r} is no port: 80, 80/udp, 8000-8010")
    config["ExposedPorts"] = {**ports, **{port if "/" in port else f"{port}/tcp": {} for port in found}}


def _volume(config: Config, text: str, change: str) -> None:
    places = _words(text, change) if text.startswith("[") else text.split()
    if any(not place.startswith("/") for place in places):
        raise _wrong(change, "a volume's place is an absolute path")
    config["Volumes"] = {**(config.get("Volumes") or {}), **{place: {} for place in places}}


def _workdir(config: Config, text: str, change: str) -> None:
    config["WorkingDir"] = posixpath.normpath(posixpath.join(config.get("WorkingDir") or "/", text))


def _user(config: Config, text: str, change: str) -> None:
    config["User"] = text


def _stop_signal(config: Config, text: str, change: str) -> None:
    if parsing.number_of(text) is None:
        raise _wrong(change, f"{text[:80]!r} is no signal")
    config["StopSignal"] = text


_INSTRUCTIONS: dict[str, Callable[[Config, str, str], None]] = {
    "CMD": _command("Cmd"),
    "ENTRYPOINT": _command("Entrypoint"),
    "ENV": _env,
    "EXPOSE": _expose,
    "LABEL": _label,
    "STOPSIGNAL": _stop_signal,
    "USER": _user,
    "VOLUME": _volume,
    "WORKDIR": _workdir,
}


def _wrong(change: str, why: str) -> BadRequest:
    return BadRequest(f"change {change[:80]!r}: {why}", field="changes")
