"""What nobody should ever send: one list for every door, and documents with one of these in one place."""

import copy
from collections.abc import Iterator
from typing import Any

BIG_TEXT = "x" * 10_000_000
DEEP = b"[" * 200_000
# Values of JSON, by what is wrong with them.
VALUES: dict[str, Any] = {
    "null": None,
    "bool": True,
    "negative": -1,
    "2**31": 2**31,
    "2**63": 2**63,
    "2**64": 2**64,
    "huge": 10**4000,
    "float": 0.5,
    "infinite": float("inf"),
    "nan": float("nan"),
    "empty text": "",
    "zero byte": "a\0b",
    "newline": "a\nb: c",
    "surrogate": "a\ud800b",
    "up": "../../../etc/passwd",
    "absolute": "/proc/self/root/etc/passwd",
    "number in a text": "1",
    "list": [],
    "list of null": [None],
    "list of lists": [[1]],
    "dict": {},
    "dict in a list": [{}],
    "dict of itself": {"": {"": {"": 1}}},
}
# Documents as bytes.
TEXTS: dict[str, bytes] = {
    "nothing": b"",
    "no JSON": b"{",
    "no text": b"\xff\xfe\x00",
    "zero bytes": bytes(4096),
    "too deep": DEEP,
    "a list": b"[]",
    "null": b"null",
    "a number": b"1" * 5000,
    "not a number": b"NaN",
    "surrogate": b'{"\\ud800": "\\ud800"}',
    "large": b'"' + b"x" * (9 << 20) + b'"',
    "many": b"[" + b"1," * 1_000_000 + b"1]",
    "the same key": b'{"process": 1, "process": {}, "root": [], "root": {"path": 5}}',
}


def places(document: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Every place of a document but its root."""
    if not isinstance(document, dict | list):
        return
    for key, inner in document.items() if isinstance(document, dict) else enumerate(document):
        yield (*path, key)
        yield from places(inner, (*path, key))


def replaced(document: Any, path: tuple[str | int, ...], value: Any) -> Any:
    """The document with something else in that place."""
    result = copy.deepcopy(document)
    inner = result
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return result
