"""supervisor/runtime/oci/shape.py: what the quick look calls ordinary, `check` leaves alone."""

import copy
from collections.abc import Iterator
from typing import Any

import pytest

from supervisor.model.errors import BadRequest
from supervisor.runtime.oci import shape

ORDINARY: dict[str, Any] = {
    "ociVersion": "1.0.2",
    "process": {
        "args": ["sleep", "1"],
        "env": [],
        "cwd": "/",
        "terminal": False,
        "user": {"uid": 0, "gid": 2**32 - 1, "additionalGids": [1, 2]},
        "rlimits": [{"type": "RLIMIT_NOFILE", "hard": 2**64 - 1, "soft": 0}],
        "capabilities": {"bounding": ["CAP_KILL"]},
        "oomScoreAdj": -1000,
    },
    "root": {"path": "rootfs", "readonly": True},
    "mounts": [{"destination": "/proc", "type": "proc", "source": "proc", "options": ["ro"]}, {}],
    "annotations": {"a": "b"},
    "linux": {"resources": {"memory": {}, "devices": [{"allow": False}]}, "namespaces": [{"type": "pid"}]},
}
WRONG: tuple[Any, ...] = (
    None,
    7,
    -1,
    2**64,
    True,
    "a\0b",
    "\udcff",
    [],
    [None],
    ["a\0b"],
    [7],
    {},
    {"a": None},
    {"a": 1},
    1.5,
)


def variants(value: Any) -> Iterator[Any]:
    """The value with each part of it, at any depth, replaced by each of WRONG."""
    yield from WRONG
    if isinstance(value, dict | list):
        for key in list(value) if isinstance(value, dict) else range(len(value)):
            for inner in variants(value[key]):
                changed = copy.copy(value)
                changed[key] = inner
                yield changed


def test_what_is_ordinary_is_neither_refused_nor_changed() -> None:
    assert shape.is_ordinary(ORDINARY, shape.CONFIG)
    seen = {True: 0, False: 0}
    for document in variants(ORDINARY):
        ordinary = shape.is_ordinary(document, shape.CONFIG)
        seen[ordinary] += 1
        if ordinary:
            checked, trimmed = copy.deepcopy(document), copy.deepcopy(document)
            shape.check(checked, shape.CONFIG, "")
            assert shape.trim(trimmed, shape.CONFIG)
            assert checked == trimmed == document
    assert seen[True] > 50
    assert seen[False] > 200


def test_what_is_not_ascii_goes_the_long_way_and_is_no_error() -> None:
    document = {"process": {"args": ["grüße"]}}
    assert not shape.is_ordinary(document, shape.CONFIG)
    shape.check(document, shape.CONFIG, "")
    with pytest.raises(BadRequest, match=r"args\[0\] has a zero byte"):
        shape.check({"process": {"args": ["ü\0"]}}, shape.CONFIG, "")
