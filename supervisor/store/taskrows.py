"""Rows of tasks: the statements that change them, for the store's writer. Pure."""

from collections.abc import Iterable, Iterator

from supervisor.model.taskfacts import TaskExec, Tombstone
from supervisor.store import rows

KEPT_NS = 3600 * 10**9  # of a tombstone whose client has never said that it has the answer
EXPIRED = "boot_id <> ? OR boot_ns < ?"

# Of which namespace, task and exec. json_extract of what is no JSON would be an error of the whole query.
TOMBSTONE_OF = " AND ".join(
    f"CASE WHEN json_valid(body) THEN json_extract(body, '$.{field}') END = ?"
    for field in ("namespace", "task", "exec")
)

Statement = tuple[str, tuple[object, ...]]


def statements(
    added: Iterable[TaskExec], removed: Iterable[TaskExec], tombstones: Iterable[Tombstone]
) -> Iterator[Statement]:
    for each in removed:
        yield "DELETE FROM task_execs WHERE container = ? AND name = ?", (each.container, each.name)
    for each in added:
        body = rows.encode(each)
        yield "INSERT OR REPLACE INTO task_execs VALUES (?, ?, ?)", (each.container, each.name, body)
    for one in tombstones:
        yield f"DELETE FROM tombstones WHERE {EXPIRED}", (one.boot_id, one.made_boot_ns - KEPT_NS)
        place = (*key_parts(one.key), one.boot_id, one.made_boot_ns, rows.encode(one))
        yield "INSERT OR REPLACE INTO tombstones VALUES (?, ?, ?, ?, ?, ?)", place


def key_parts(key: str) -> tuple[str, int, int]:
    """Of a request's key; what is none has no connection and no stream."""
    relay, _, rest = key.partition("/")
    connection, _, stream = rest.partition("/")
    return relay, int(connection or 0), int(stream or 0)
