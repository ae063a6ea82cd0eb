"""Metric families as text. Pure. Source: Prometheus' text exposition format, version 0.0.4."""

from collections.abc import Iterable, Iterator

from shim.frozen import frozen
from supervisor.system.histogram import Durations

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
HELP_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n"})

Labels = tuple[tuple[str, str], ...]
Samples = Iterable[tuple[Labels | str, float | Durations]]


@frozen
class MetricFamily:
    """One name, with its samples: labels, or their text, and a value each, or a histogram."""

    name: str
    kind: str  # counter | gauge | histogram
    help: str
    samples: Samples


def lines(family: MetricFamily) -> Iterator[str]:
    """Yield the family's lines, each with its newline; a histogram's samples together."""
    yield f"# HELP {family.name} {family.help.translate(HELP_ESCAPES)}\n# TYPE {family.name} {family.kind}\n"
    for labels, value in family.samples:
        if isinstance(value, Durations):
            assert not isinstance(labels, str)
            yield _histogram(family.name, labels, value)
        else:
            yield f"{family.name}{labels if isinstance(labels, str) else text_of(labels)} {_number(value)}\n"


def _histogram(name: str, labels: Labels, value: Durations) -> str:
    parts, total = [], 0
    for bound, count in zip((*value.bounds, float("inf")), value.counts, strict=True):
        total += count
        parts.append(f"{name}_bucket{text_of((*labels, ('le', _bound(bound))))} {total}\n")
    parts.append(f"{name}_sum{text_of(labels)} {_number(value.total_seconds)}\n{name}_count{text_of(labels)} {total}\n")
    return "".join(parts)


def _bound(bound: float) -> str:
    return "+Inf" if bound == float("inf") else _number(bound)


def _number(value: float) -> str:
    """Whole numbers of any size keep all their digits."""
    return str(value) if isinstance(value, int) else repr(round(value, 9))


def text_of(labels: Labels) -> str:
    """Return labels as they stand behind a name."""
    if not labels:
        return ""
    inner = ",".join(f'{name}="{word.translate(ESCAPES)}"' for name, word in labels)
    return f"{{{inner}}}"
