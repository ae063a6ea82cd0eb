"""How much text a container may carry. Each change stores all of it again, so a request with more is refused."""

from collections.abc import Iterable

MOST_PAIRS_BYTES = 256 << 10  # labels, or annotations: as much as Kubernetes allows
MOST_WORDS_BYTES = 2 << 20  # arguments, or environment: what execve(2) takes of both, at the usual stack limit


def size_of(texts: Iterable[str]) -> int:
    """Return the size in bytes, each text with its terminator; a lone surrogate counts as one character."""
    return sum(len(text.encode("utf-8", "surrogatepass")) + 1 for text in texts)


def size_of_pairs(pairs: Iterable[tuple[str, str]]) -> int:
    """Return the size in bytes, each name and each value with its terminator: see `size_of`."""
    return sum(size_of(pair) for pair in pairs)
