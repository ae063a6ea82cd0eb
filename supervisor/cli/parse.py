"""Converts words of the command line to values: sizes, times, pairs, lines of files. Errors are BadRequest."""

import math
import re
import shlex
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import click

from shim.patterns import LatePattern
from supervisor.model import parsing
from supervisor.model.errors import BadRequest

SECOND_NS = 1_000_000_000
MOST_NS = 2**63 - 1  # the year 2262; of times, and of lengths of time
MOST_SECONDS = 1e9  # of a limit, thirty years: more does not fit into every call that waits
MOST_DIGITS = 19  # of a Unix time
MOST_FILE = 1 << 20  # characters of a file with a line for each variable or label
_DURATION = LatePattern(r"(?:\d+(?:\.\d+)?(?:ns|us|ms|s|m|h|d))+")
_DURATION_PART = LatePattern(r"(\d+(?:\.\d+)?)(ns|us|ms|s|m|h|d)")
_UNITS_NS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9, "d": 86400 * 10**9}
_FRACTION = LatePattern(r"\.(\d{1,9})(?=Z|z|[+-]|$)")


def size_bytes(text: str) -> int:
    """Return the bytes of `64m` (67108864); see `parsing.parse`."""
    try:
        return parsing.parse(text)
    except ValueError as error:
        raise BadRequest(str(error)) from error


def size_of(what: str, text: str) -> int:
    """Return the bytes of a size, 0 for an empty text. Raises BadRequest, which begins with `what`: the option."""
    try:
        return size_bytes(text) if text else 0
    except BadRequest as error:
        raise BadRequest(f"{what}: {error}") from error


def cpus_milli(text: str) -> int:
    """Return thousandths of a CPU: 1500 for `1.5`. More digits are refused, not rounded."""
    match = re.fullmatch(r"(?=\.?\d)(\d{0,6})(?:\.(\d{0,3})0*)?", text.strip(), re.ASCII)
    milli = int(match[1] or "0") * 1000 + int((match[2] or "").ljust(3, "0")) if match else 0
    if not milli:
        raise BadRequest(f"{text!r} is no number of CPUs: write 0.5, 1.5 or 2")
    return milli


class WholeNumber(click.types.IntParamType):
    """A number between these two. click's IntRange would show numbers in the help that mean nothing to people."""

    def __init__(self, least: int, most: int) -> None:
        self.least, self.most = least, most

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        found: int = super().convert(value, param, ctx)
        if not self.least <= found <= self.most:
            self.fail(f"{value} is not between {self.least} and {self.most}.", param, ctx)
        return found


# What fits into a field of a message.
INT32, UINT32, UINT64 = WholeNumber(-(2**31), 2**31 - 1), WholeNumber(0, 2**32 - 1), WholeNumber(0, 2**64 - 1)


class LimitSeconds(click.types.FloatParamType):
    """A number of seconds, from `least` on, or above it. click's FloatRange takes nan for any, and inf."""

    def __init__(self, least: float = 0, most: float = MOST_SECONDS, *, is_above: bool = False) -> None:
        self.least, self.most, self.is_above = least, most, is_above

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        found: float = super().convert(value, param, ctx)
        if math.isnan(found) or not self.least <= found <= self.most or (self.is_above and found == self.least):
            wanted = f"above {self.least:g}" if self.is_above else f"at least {self.least:g}"
            self.fail(f"{value} is no number of seconds {wanted} and at most {self.most:g}.", param, ctx)
        return found


def duration_ns(text: str) -> int:
    """Return the nanoseconds of `1h30m`, `10m`, `2.5s`, or plain seconds."""
    stripped = text.strip()
    if re.fullmatch(r"\d+(\.\d+)?", stripped):
        found = float(stripped) * SECOND_NS
    elif _DURATION.fullmatch(stripped) is None:
        raise BadRequest(f"{text!r} is no duration: write it as 90s, 10m or 1h30m")
    else:
        found = sum(float(number) * _UNITS_NS[unit] for number, unit in _DURATION_PART.findall(stripped))
    if found >= MOST_NS:
        raise BadRequest(f"{text!r} is longer than any duration may be: {MOST_NS // SECOND_NS} s")
    return round(found)


def moment_ns(text: str, now_ns: int) -> int:
    """Return ns since 1970 for RFC 3339 (local time without a zone), a Unix time, or a duration ago."""
    stripped = text.strip()
    if re.fullmatch(r"\d{9,}(\.\d+)?", stripped):  # the reverse of docker's rule: 10 digits are a date
        whole, _, fraction = stripped.partition(".")
        found = int(whole) * SECOND_NS + int((fraction + "0" * 9)[:9]) if len(whole) <= MOST_DIGITS else MOST_NS + 1
    elif _DURATION.fullmatch(stripped) or re.fullmatch(r"\d+(\.\d+)?", stripped):
        return max(0, now_ns - duration_ns(stripped))
    else:
        found = _date_ns(stripped)
    if not 0 <= found <= MOST_NS:
        raise BadRequest(f"{text!r} is no time between 1970 and 2262")
    return found


def _date_ns(text: str) -> int:
    fraction = _FRACTION.search(text)
    nanoseconds = int((fraction[1] + "0" * 9)[:9]) if fraction else 0
    whole = _FRACTION.sub("", text)
    try:
        moment = datetime.fromisoformat(whole)
    except ValueError:
        raise BadRequest(f"{text!r} is no time: write it as 10m (ago), 2026-01-31T12:00:00Z or 2026-01-31") from None
    try:
        return int(moment.astimezone(UTC).timestamp()) * SECOND_NS + nanoseconds
    except (OverflowError, ValueError):  # in another zone its year has more or fewer digits than a year may have
        return MOST_NS + 1


def pair(text: str, what: str) -> tuple[str, str]:
    """Split `key=value`; the value may be empty and may contain further `=`."""
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise BadRequest(f"{what} {text!r} is not of the form KEY=VALUE")
    return key, value


def environment(words: Iterable[str], own: Mapping[str, str]) -> tuple[str, ...]:
    """Return `K=V` words unchanged; a bare `K` gets its value from `own`, and is left out if it has none (docker's
    rule)."""
    complete = []
    for word in words:
        if word.startswith("=") or not word:
            raise BadRequest(f"environment variable {word!r} has no name")
        if "=" in word:
            complete.append(word)
        elif word in own:
            complete.append(f"{word}={own[word]}")
    return tuple(complete)


def refuse_address(file: str) -> None:
    """Raises BadRequest when it is the address of a file that is elsewhere."""
    if file.startswith(("http://", "https://")):
        context = click.get_current_context(silent=True)
        command = context.command_path if context is not None else "exitctl"
        raise BadRequest(f"{file}: exitctl fetches no files; pipe it in: curl -fsSL {shlex.quote(file)} | {command} -")


def lines_of(flag: str, files: Iterable[str]) -> tuple[str, ...]:
    """Return the lines of such files, without those that are empty or begin with `#`. Raises BadRequest, which names
    the option and the file."""
    found = []
    for file in files:
        try:
            with open(file, encoding="utf-8") as opened:
                text = opened.read(MOST_FILE + 1)
        except (OSError, ValueError) as error:
            raise BadRequest(f"{flag} {file}: {getattr(error, 'strerror', None) or 'this is no text'}") from error
        if len(text) > MOST_FILE:
            raise BadRequest(f"{flag} {file}: more than {MOST_FILE} characters")
        lines = (line.lstrip() for line in text.removeprefix("\ufeff").splitlines())
        found += [line for line in lines if line and not line.startswith("#")]
    return tuple(found)
