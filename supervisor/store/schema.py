"""The database file: its tables, its version, and the refusal to touch files that this exitd does not understand."""

import contextlib
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

import structlog

from shim.undo import undone_on_failure
from supervisor.model.errors import CannotStart
from supervisor.store import counts

APPLICATION_ID = 0x65786974  # "exit", in the file's header: identifies exitd's file among SQLite databases

# MIGRATIONS[n] makes version n + 1 out of version n. Only ever append. Append an empty one, too, when rows get fields
# which an older exitd must not drop.
MIGRATIONS = (
    """
    CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
    CREATE TABLE containers (id TEXT PRIMARY KEY, namespace TEXT NOT NULL, name TEXT NOT NULL, body TEXT NOT NULL);
    CREATE UNIQUE INDEX containers_by_name ON containers (namespace, name) WHERE name <> '';
    CREATE TABLE exits (
        container TEXT NOT NULL, run INTEGER NOT NULL, exec TEXT NOT NULL,
        at_ns INTEGER NOT NULL, unknown INTEGER NOT NULL, body TEXT NOT NULL,
        PRIMARY KEY (container, run, exec)
    ) WITHOUT ROWID;
    CREATE INDEX exits_by_time ON exits (at_ns, container, run, exec);
    CREATE TABLE events (seq INTEGER PRIMARY KEY, time_ns INTEGER NOT NULL, body TEXT NOT NULL);
    """,
    """
    CREATE TABLE retained (
        container TEXT PRIMARY KEY, namespace TEXT NOT NULL, name TEXT NOT NULL,
        boot_id TEXT NOT NULL, boot_ns INTEGER NOT NULL
    ) WITHOUT ROWID;
    CREATE INDEX retained_by_name ON retained (namespace, name);
    """,
    """
    CREATE TABLE execs (
        container TEXT NOT NULL, run INTEGER NOT NULL, exec TEXT NOT NULL, body TEXT NOT NULL,
        PRIMARY KEY (container, run, exec)
    ) WITHOUT ROWID;
    """,
    """
    CREATE TABLE task_execs (
        container TEXT NOT NULL, name TEXT NOT NULL, body TEXT NOT NULL, PRIMARY KEY (container, name)
    ) WITHOUT ROWID;
    CREATE TABLE tombstones (
        relay TEXT NOT NULL, connection INTEGER NOT NULL, stream INTEGER NOT NULL,
        boot_id TEXT NOT NULL, boot_ns INTEGER NOT NULL, body TEXT NOT NULL,
        PRIMARY KEY (relay, connection, stream)
    ) WITHOUT ROWID;
    """,
    """
    CREATE TABLE watches (target TEXT PRIMARY KEY, body TEXT NOT NULL) WITHOUT ROWID;
    CREATE TABLE observed (
        container TEXT NOT NULL, run INTEGER NOT NULL, body TEXT NOT NULL, PRIMARY KEY (container, run)
    ) WITHOUT ROWID;
    """,
    # The same tables. An exitd of schema 5 would read the rows and, when it writes them back, drop fields that it does
    # not know: a container's rights and seccomp profile, its runtime's root, and that an end was found late.
    "",
    # The same tables. An exitd of schema 6 would drop a pod's limit of CPU time, whether a container has the groups
    # that its image gives its user, and whether its program had been seen executed when its start counted.
    "",
    # The same tables. An exitd of schema 7 would not see the ends that are only in the ring beside the database, and
    # would take a number without an event for a lost one.
    "",
    # Filled with what the ledger has: see FILLED. An exitd of schema 8 would store ends without counting them.
    counts.TABLES,
    # The same tables. An exitd of schema 9 would drop where a container's writable layer is, and give it an empty one.
    "",
    # The same tables. An exitd of schema 10 would drop a container's networks, published ports and probes, and what a
    # restart of exitd must know of them: it would leave an interface behind, or a container that is not looked at.
    "",
)
FILLED: dict[int, Callable[[sqlite3.Connection], None]] = {9: counts.fill}  # by the version that it completes
VERSION = len(MIGRATIONS)

log = structlog.get_logger(__name__)

WAL_BYTES = 16 << 20  # the write-ahead log is cut back to this after a checkpoint
CACHE_KB = 512  # of pages, for each connection. SQLite's own 2,000 kB fill up over some hundred lives and save no time:
# the rows of an end are at random places of the ledger, and the kernel has its pages, too


def open_database(path: Path, lock_seconds: float) -> sqlite3.Connection:
    """Open or make the database, migrate it, and return the writing connection.

    Raises CannotStart, with the file unchanged, when it is damaged, not exitd's, or of a newer version.
    """
    try:
        version = _inspect(path)
        if version == 0:
            _make_file(path)
        connection = connect(path, lock_seconds)
        with undone_on_failure(connection.close):
            if version:
                _put_aside(connection)
            _migrate(connection, version)
        return connection
    except sqlite3.Error as error:
        text = f"{path}: cannot be opened ({describe(error)}); {_next_step(error)}"
        raise CannotStart(text, file=str(path)) from error
    except OSError as error:
        raise CannotStart(f"{path}: cannot be opened ({error.strerror}); {CHECK_PLACE}", file=str(path)) from error


def connect(path: Path, lock_seconds: float) -> sqlite3.Connection:
    """Return the writing connection to an existing file. Raises sqlite3.Error.

    FULL: a commit returns only after the log is on the disk. The writer takes checkpoints when it is idle; left to
    SQLite, they would happen inside some commit and delay it.
    """
    uri = f"{path.absolute().as_uri()}?mode=rw"  # without creating it: a deleted database must not come back empty
    connection = sqlite3.connect(uri, uri=True, timeout=lock_seconds, isolation_level=None, check_same_thread=False)
    with undone_on_failure(connection.close):
        connection.execute("PRAGMA auto_vacuum=INCREMENTAL")  # has effect only before the first table, and before WAL
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("PRAGMA wal_autocheckpoint=0")
        connection.execute(f"PRAGMA journal_size_limit={WAL_BYTES}")
        _limit_cache(connection)
    return connection


def connect_for_reading(path: Path, lock_seconds: float) -> sqlite3.Connection:
    """Return a connection that cannot write, not even by mistake. Raises sqlite3.Error."""
    uri = f"{path.absolute().as_uri()}?mode=ro"
    connection = sqlite3.connect(uri, uri=True, timeout=lock_seconds, isolation_level=None, check_same_thread=False)
    with undone_on_failure(connection.close):
        _limit_cache(connection)
    return connection


def _limit_cache(connection: sqlite3.Connection) -> None:
    connection.execute(f"PRAGMA cache_size=-{CACHE_KB}")


def lenient(data: bytes) -> str:
    """Decode a column's text: what is not UTF-8 must not make its whole table unreadable."""
    return data.decode("utf-8", "surrogateescape")


def describe(error: sqlite3.Error) -> str:
    """Return SQLite's symbolic name of the error, such as SQLITE_FULL, or the text of an error that has none."""
    name = getattr(error, "sqlite_errorname", None)
    return f"{name}: {error}" if name else str(error)


# Ledger rows whose key has another type, and events whose number leaves none for a later or an earlier event. An SQLite
# column keeps a value that cannot be converted to its type as it is.
IMPOSSIBLE = {
    "exits": (
        "container, run, exec, at_ns, unknown, body",
        "INDEXED BY exits_by_time WHERE typeof(container) <> 'text' OR typeof(run) <> 'integer' "
        "OR typeof(exec) <> 'text' OR typeof(at_ns) <> 'integer'",
    ),
    "events": ("seq, time_ns, body", f"WHERE seq <= 0 OR seq > {1 << 62}"),
}


def _put_aside(connection: sqlite3.Connection) -> None:
    """Move such rows unchanged to `meta`, where they are in no list and no count. Raises sqlite3.Error."""
    for table, (columns, which) in IMPOSSIBLE.items():
        found = connection.execute(f"SELECT {columns} FROM {table} {which} LIMIT 1").fetchone()
        if found is None:
            continue
        quoted = " || ', ' || ".join(f"quote({name})" for name in columns.split(", "))
        copy = f"INSERT INTO meta SELECT 'aside/{table}/' || hex(randomblob(16)), {quoted} FROM {table} {which}"
        _at_once(connection, f"{copy}; DELETE FROM {table} {which};")
        log.error("rows whose key cannot be read are put aside in meta", table=table, first=ascii(found)[:200])


CHECK_PLACE = "check the directory, its owner and its file system"
MOVE_AWAY = "Containers were not touched. Restore a backup, or move the file away to begin with an empty one"


def _inspect(path: Path) -> int:
    """Return the schema version of the file, 0 if there is none. Raises CannotStart.

    It uses a read-only connection: a writing one would replay and truncate the log of a file that may not be exitd's.
    """
    if not path.exists() or path.stat().st_size == 0:
        return 0
    with contextlib.closing(connect_for_reading(path, 1.0)) as connection:
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if tables and application != APPLICATION_ID:
            raise CannotStart(f"{path}: a database, but not exitd's. {MOVE_AWAY}.", file=str(path))
        if version > VERSION:
            raise CannotStart(
                f"{path}: written by a newer exitd (schema {version}, this one knows {VERSION}). Containers were not "
                "touched. Start that version, or move the file away to begin with an empty one.",
                file=str(path),
            )
        (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if verdict != "ok":
        raise CannotStart(f"{path}: damaged ({verdict}). {MOVE_AWAY}.", file=str(path))
    return int(version)


def _next_step(error: sqlite3.Error) -> str:
    """Choose by code, without the extension in the upper bits (sqlite.org/rescode.html)."""
    extended = getattr(error, "sqlite_errorcode", 0)
    code = extended & 0xFF
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return f"it is damaged. {MOVE_AWAY}."
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return "another program holds it: end that program."
    if code == sqlite3.SQLITE_FULL or extended == sqlite3.SQLITE_IOERR_SHMSIZE:
        return "free space on its file system."
    return f"{CHECK_PLACE}. Containers were not touched."


def _make_file(path: Path) -> None:
    """Make it readable for root only: specs contain environments, and those contain secrets. The -wal file inherits
    this."""
    os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))


def _migrate(connection: sqlite3.Connection, version: int) -> None:
    if version == 0:
        connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
    scripts: list[str] = []  # those of one transaction: each costs a flush, and a new file has all of them before it
    for number, script in enumerate(MIGRATIONS[version:], start=version + 1):
        scripts.append(script)
        if number in FILLED or number == VERSION:
            _at_once(connection, f"{' '.join(scripts)} PRAGMA user_version={number};", FILLED.get(number))
            scripts.clear()


def _at_once(
    connection: sqlite3.Connection, script: str, fill: Callable[[sqlite3.Connection], None] | None = None
) -> None:
    """Do the script, and then `fill`, in one transaction. Raises sqlite3.Error."""
    try:
        connection.executescript(f"BEGIN IMMEDIATE; {script}")
        if fill is not None:
            connection.text_factory = lenient
            fill(connection)
            connection.text_factory = str
        connection.execute("COMMIT")
    except sqlite3.Error:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
