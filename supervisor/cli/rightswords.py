"""Converts --cap-add, --cap-drop, --privileged, --ulimit, --pids-limit, --group-add, in docker's words, to a
RightsSpec."""

from collections.abc import Iterable

from protos.exitd.v1 import exitd_pb2 as pb
from shim.frozen import frozen
from shim.patterns import LatePattern
from supervisor.model.errors import BadRequest
from supervisor.model.rights import LIMITS, UNLIMITED

MOST_GROUP = 2**32 - 2
_NUMBER = LatePattern(r"\d{1,19}")


@frozen
class RightsWords:
    """The options about rights and limits, literally."""

    privileged: bool = False
    cap_add: tuple[str, ...] = ()
    cap_drop: tuple[str, ...] = ()
    ulimit: tuple[str, ...] = ()
    pids_limit: int | None = None
    group_add: tuple[str, ...] = ()


def rights_spec(words: RightsWords) -> pb.RightsSpec | None:
    """Return None if no option was given. Raises BadRequest."""
    found = pb.RightsSpec(
        privileged=words.privileged,
        cap_add=_listed(words.cap_add),
        cap_drop=_listed(words.cap_drop),
        ulimits=[_ulimit(word) for word in words.ulimit],
        pids_limit=words.pids_limit,
        groups=[_group(word) for word in words.group_add],
    )
    return found if found.ListFields() else None


def ulimit_words(ulimits: Iterable[pb.Ulimit]) -> list[dict[str, object]]:
    """Return them as `docker inspect` shows them: -1 is unlimited."""
    return [{"Name": each.name, "Soft": _signed(each.soft), "Hard": _signed(each.hard)} for each in ulimits]


def _signed(limit: int) -> int:
    return -1 if limit == UNLIMITED else limit


def _listed(words: Iterable[str]) -> list[str]:
    """`A,B` means both, as with podman."""
    return [part.strip() for word in words for part in word.split(",")]


def _ulimit(word: str) -> pb.Ulimit:
    name, equals, limits = word.partition("=")
    soft, colon, hard = limits.partition(":")
    if not equals or name not in LIMITS:
        raise BadRequest(f"--ulimit {word}: write NAME=SOFT[:HARD], of {', '.join(LIMITS)}")
    return pb.Ulimit(name=name, soft=_limit(word, soft), hard=_limit(word, hard if colon else soft))


def _group(word: str) -> int:
    """Numbers only: names are the image's, which exitctl does not have."""
    if not _NUMBER.fullmatch(word) or int(word) > MOST_GROUP:
        raise BadRequest(f"--group-add {word}: write the group's number, 0 to {MOST_GROUP}")
    return int(word)


def _limit(word: str, text: str) -> int:
    if text in ("-1", "unlimited"):
        return UNLIMITED
    if not _NUMBER.fullmatch(text):
        raise BadRequest(f"--ulimit {word}: {text!r} is no number; -1 or unlimited is no limit")
    return int(text)
