"""Rows of watches: the statements that change them, for the store's writer. Pure."""

from collections.abc import Iterable, Iterator

from supervisor.model.watched import Observed, Target
from supervisor.store import rows
from supervisor.store.taskrows import Statement


def begun(targets: Iterable[Target] = (), observed: Iterable[Observed] = ()) -> Iterator[Statement]:
    """Or changed."""
    for target in targets:
        yield "INSERT OR REPLACE INTO watches VALUES (?, ?)", (target.where, rows.encode(target))
    for one in observed:
        yield "INSERT OR REPLACE INTO observed VALUES (?, ?, ?)", (one.container, one.run, rows.encode(one))


def over(targets: Iterable[Target] = (), observed: Iterable[Observed] = ()) -> Iterator[Statement]:
    for target in targets:
        yield "DELETE FROM watches WHERE target = ?", (target.where,)
    for one in observed:
        yield "DELETE FROM observed WHERE container = ? AND run = ?", (one.container, one.run)
