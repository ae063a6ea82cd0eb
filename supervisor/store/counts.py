"""Counters that outlive restarts of exitd and the pruning of the ledger.

What is counted is stored in the same transaction: an end that the ledger refuses as a second one is not counted, and
one that is deleted later stays counted. Each counter has a name and words, which together are its key.

Memory kills of a run are reported while it lives, and once more, all of them, with its end. `memory_told` has how many
of a living run's are counted already, so that each is counted once.
"""

import json
import sqlite3
import time
from collections.abc import Iterable, Sequence
from typing import Any

from shim.frozen import frozen
from shim.patterns import LatePattern
from supervisor.model import names
from supervisor.model.values import Exit, MemoryKills, Names, RunKey, Unknown
from supervisor.model.watched import FOREIGN
from supervisor.store import codec

EXITS = "exits"  # words: ExitClass
NODE_KILLS = "node-kills"  # words: CONTAINER or WATCHED
KILLS = "kills"  # words: namespace, pod, container
NAMED = "named-exits"  # words: namespace, pod, container, image, reason
SERIES = (KILLS, NAMED)  # of what comes and goes: forgotten by number and age
SHIM_DEATHS, SHIM_ADOPTIONS, CONTAINERS_ADOPTED = "shim-deaths", "shim-adoptions", "containers-adopted"

CONTAINER, EXEC, WATCHED = "container", "exec", "watched"
CAUSE = LatePattern(r"[a-z][a-z0-9-]{0,39}")  # those that exitd gives, and no sentence
OTHER = "other"
ROWS_AT_ONCE = 1000
ROWS_BETWEEN_TURNS = 100
MOST_FILLED = 10_000  # of what comes and goes
ADD = (
    "INSERT INTO counts VALUES (?, ?, ?, ?) ON CONFLICT (name, words) DO UPDATE "
    "SET value = value + excluded.value, at_ns = max(at_ns, excluded.at_ns)"
)
TABLES = """
    CREATE TABLE counts (
        name TEXT NOT NULL, words TEXT NOT NULL, value INTEGER NOT NULL, at_ns INTEGER NOT NULL,
        PRIMARY KEY (name, words)
    ) WITHOUT ROWID;
    CREATE TABLE memory_told (
        container TEXT NOT NULL, run INTEGER NOT NULL, kills INTEGER NOT NULL, PRIMARY KEY (container, run)
    ) WITHOUT ROWID;
    """


@frozen
class Count:
    """One counter. `at_ns`: wall time of what was counted last."""

    name: str
    words: tuple[str, ...]
    value: int
    at_ns: int = 0


@frozen
class ExitClass:
    """All that ends are counted by. Each word is one of few: what an engine or a user may name is not among them."""

    what: str  # container | exec | watched
    kind: str  # exited | signaled | unknown
    reason: str
    source: str
    cause: str  # of an unknown one
    decision: str

    @property
    def words(self) -> tuple[str, ...]:
        return self.what, self.kind, self.reason, self.source, self.cause, self.decision


def class_of(exit: Exit) -> ExitClass:
    """Return what an end is counted by. A cause that CAUSE does not match, as a foreign shim may have one, is OTHER."""
    kind = codec.KIND_OF[type(exit.status)]
    cause = ""
    if isinstance(exit.status, Unknown):
        cause = exit.status.cause if CAUSE.fullmatch(exit.status.cause) else OTHER
    return ExitClass(what_of(exit.key), kind, exit.reason.value, exit.source.value, cause, exit.decision or "ended")


def what_of(key: RunKey) -> str:
    """Return whose end it is: of a container or an exec of exitd's, or of a process that is only watched."""
    if key.exec_id:
        return EXEC
    return WATCHED if FOREIGN in key.container else CONTAINER


def of_exit(exit: Exit) -> tuple[Count, ...]:
    """Return what an end adds, but for its memory kills. Pure."""
    found = [Count(EXITS, class_of(exit).words, 1, exit.at_ns)]
    if not exit.key.exec_id:
        known = names.of_exit(exit)
        named = (known.namespace, known.pod, known.container, known.image, exit.reason.value)
        found.append(Count(NAMED, named, 1, exit.at_ns))
    return tuple(found)


def of_kills(what: str, known: Names, kills: int, at_ns: int) -> tuple[Count, ...]:
    """Return what memory kills add that are not counted yet. Pure."""
    words = (known.namespace, known.pod, known.container)
    return (Count(NODE_KILLS, (what,), kills, at_ns), Count(KILLS, words, kills, at_ns)) if kills > 0 else ()


def key_of(words: Sequence[str]) -> str:
    """Return words as the table has them, in JSON; `counts_of` reads it."""
    return json.dumps(words, separators=(",", ":"))


def counts_of(rows: Iterable[tuple[Any, ...]]) -> list[Count]:
    """Decode rows of the table. One that cannot be read is passed over."""
    found = list[Count]()
    for name, words, value, at_ns in rows:
        try:
            read = json.loads(words)
        except ValueError:
            continue
        if isinstance(read, list) and all(isinstance(word, str) for word in read) and isinstance(value, int):
            found.append(Count(str(name), tuple(read), value, at_ns if isinstance(at_ns, int) else 0))
    return found


Totals = dict[tuple[str, tuple[str, ...]], Count]  # by name and words


def merged(counts: Iterable[Count]) -> list[Count]:
    """Add up those with the same name and words."""
    found: Totals = {}
    _add_up(found, counts)
    return list(found.values())


def _add_up(found: Totals, counts: Iterable[Count]) -> None:
    for each in counts:
        key = each.name, each.words
        before = found.get(key)
        found[key] = each if before is None else Count(*key, before.value + each.value, max(before.at_ns, each.at_ns))


# -- inside a transaction


def add(connection: sqlite3.Connection, counts: Iterable[Count]) -> None:
    """Add counts to the table, in the caller's transaction."""
    connection.executemany(ADD, ((each.name, key_of(each.words), each.value, each.at_ns) for each in counts))


def count_exit(connection: sqlite3.Connection, exit: Exit) -> None:
    """Count an end that the ledger has just taken, and those of its memory kills that are not counted yet. A memory
    kill during an exec is its container's."""
    add(connection, of_exit(exit))
    if exit.oom.kills and not exit.key.exec_id:
        _count_kills(connection, MemoryKills(exit.key, exit.oom.kills, names.of_exit(exit), exit.at_ns))
        connection.execute("DELETE FROM memory_told WHERE container = ? AND run = ?", exit.key.of_container)


def count_kills(connection: sqlite3.Connection, kills: MemoryKills) -> None:
    """Count the memory kills of a run that goes on, as far as they are not counted yet."""
    _count_kills(connection, kills)
    statement = "INSERT INTO memory_told VALUES (?, ?, ?) ON CONFLICT (container, run) "
    statement += "DO UPDATE SET kills = max(kills, excluded.kills)"
    connection.execute(statement, (*kills.key.of_container, kills.kills))


def _count_kills(connection: sqlite3.Connection, kills: MemoryKills) -> None:
    found = connection.execute("SELECT kills FROM memory_told WHERE container = ? AND run = ?", kills.key.of_container)
    (before,) = found.fetchone() or (0,)
    add(connection, of_kills(what_of(kills.key), kills.names, kills.kills - before, kills.at_ns))


def read(connection: sqlite3.Connection, more: Sequence[Exit], *, named: bool) -> list[Count]:
    """Return all counters, as they will be when the ledger has taken these ends, too. `named`: also those by name and
    reason, which may be thousands."""
    found = list[Count]()
    wanted = "SELECT name, words, value, at_ns FROM counts WHERE ? OR name <> ?"
    rows = connection.execute(wanted, (named, NAMED))
    while some := rows.fetchmany(ROWS_BETWEEN_TURNS):
        found += counts_of(some)
        time.sleep(0)  # the event loop's thread goes on, which else would wait for the switch interval
    if not more:
        return found
    for exit in more:
        key = exit.key
        query = "SELECT 1 FROM exits WHERE container = ? AND run = ? AND exec = ?"
        if connection.execute(query, (key.container, key.run, key.exec_id)).fetchone() is None:
            query = "SELECT kills FROM memory_told WHERE container = ? AND run = ?"
            (before,) = connection.execute(query, key.of_container).fetchone() or (0,)
            kills = 0 if key.exec_id else exit.oom.kills - before
            found += (*of_exit(exit), *of_kills(what_of(key), names.of_exit(exit), kills, exit.at_ns))
    return merged(found)


def fill(connection: sqlite3.Connection) -> None:
    """Count what the ledger has and what is not counted yet: for a database from before there were counters."""
    ledger = connection.execute("SELECT container, run, exec, at_ns, body FROM exits")
    total: Totals = {}
    while rows := ledger.fetchmany(ROWS_AT_ONCE):
        for exit in map(codec.exit_in_row, rows):
            _add_up(total, of_exit(exit))
            if exit.oom.kills and not exit.key.exec_id:
                kills = of_kills(what_of(exit.key), names.of_exit(exit), exit.oom.kills, exit.at_ns)
                _add_up(total, kills)
    newest = sorted(total.values(), key=lambda each: each.at_ns, reverse=True)
    for name in SERIES:
        add(connection, [each for each in newest if each.name == name][:MOST_FILLED])
    add(connection, (each for each in newest if each.name not in SERIES))


def forget(connection: sqlite3.Connection, before_ns: int, most: int) -> None:
    """Forget series of what comes and goes in which nothing was counted since `before_ns`, and all but the newest
    `most` of each name; and what is noted of runs that there are no more."""
    for name in SERIES:
        connection.execute("DELETE FROM counts WHERE name = ? AND at_ns < ?", (name, before_ns))
        rest = "SELECT words FROM counts WHERE name = ? ORDER BY at_ns DESC, words LIMIT -1 OFFSET ?"
        connection.execute(f"DELETE FROM counts WHERE name = ? AND words IN ({rest})", (name, name, most))
    connection.execute(
        "DELETE FROM memory_told WHERE container NOT IN (SELECT id FROM containers) "
        "AND container NOT IN (SELECT container FROM observed)"
    )
