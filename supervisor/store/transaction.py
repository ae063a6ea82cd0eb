"""What is stored together, and the statements that store it."""

import sqlite3

from shim.frozen import frozen
from supervisor.model.errors import NameTaken
from supervisor.model.execs import Exec
from supervisor.model.taskfacts import TaskExec, Tombstone
from supervisor.model.values import Container, Event, Exit, MemoryKills, Retained, RunKey
from supervisor.store import codec, counts

DAMAGED = "damaged/"  # in `meta`, before a container's id: its unreadable row, as it was before it was replaced


class AlreadyStored(Exception):
    """The ledger already has this end of this run: another witness was first. Nothing of the transaction was stored."""

    def __init__(self, exit: Exit) -> None:
        super().__init__(f"{exit.key} is stored already")
        self.key = exit.key


@frozen
class Transaction:
    """What is stored together or not at all. Removals come first, so that a name can be reused within one transaction.

    Its events have their numbers when it is applied: the store gives them.

    `ahead`: an intention, written before work begins that no client knows of. It survives a kill of exitd, but need not
    survive a crash of the host, so it is not flushed.
    """

    containers: tuple[Container, ...] = ()
    removed: tuple[str, ...] = ()
    exits: tuple[Exit, ...] = ()
    events: tuple[Event, ...] = ()
    retained: tuple[Retained, ...] = ()
    execs: tuple[Exec, ...] = ()
    ended_execs: tuple[RunKey, ...] = ()
    task_execs: tuple[TaskExec, ...] = ()
    ended_task_execs: tuple[TaskExec, ...] = ()
    tombstones: tuple[Tombstone, ...] = ()
    watching: tuple[codec.Statement, ...] = ()  # of `codec`
    kept_aside: tuple[str, ...] = ()  # ids of containers whose rows are replaced: the old rows are kept
    ahead: bool = False
    memory_kills: tuple[MemoryKills, ...] = ()  # of runs that go on; an end's are in its exit


def apply(change: Transaction, connection: sqlite3.Connection) -> tuple[Event, ...]:
    """Store the change, in the writer thread, inside the transaction's savepoint. Return its events. Raises NameTaken,
    AlreadyStored, sqlite3.Error."""
    for id in change.removed:
        connection.execute("DELETE FROM containers WHERE id = ?", (id,))
        connection.execute("DELETE FROM task_execs WHERE container = ?", (id,))
        connection.execute("DELETE FROM meta WHERE key = ?", (f"{DAMAGED}{id}",))
    for id in change.kept_aside:
        copy = "INSERT OR IGNORE INTO meta SELECT ?, body FROM containers WHERE id = ?"
        connection.execute(copy, (f"{DAMAGED}{id}", id))
    for key in change.ended_execs:
        values = (key.container, key.run, key.exec_id)
        connection.execute("DELETE FROM execs WHERE container = ? AND run = ? AND exec = ?", values)
    for container in change.containers:
        put_container(connection, container)
    for each in change.execs:
        connection.execute("INSERT OR REPLACE INTO execs VALUES (?, ?, ?, ?)", codec.exec_row(each))
    for exit in change.exits:
        put_exit(connection, exit)
    for kills in change.memory_kills:
        counts.count_kills(connection, kills)
    for retained in change.retained:
        _put_retained(connection, retained)
    tasks = codec.statements(change.task_execs, change.ended_task_execs, change.tombstones)
    for statement, fields in (*tasks, *change.watching):
        connection.execute(statement, fields)
    for event in change.events:
        put_event(connection, event)
    return change.events


def put_container(connection: sqlite3.Connection, container: Container) -> None:
    """Store or update the row. Raises NameTaken: only the name can conflict."""
    statement = (
        "INSERT INTO containers (id, namespace, name, body) VALUES (?, ?, ?, ?) ON CONFLICT (id) DO UPDATE "
        "SET namespace = excluded.namespace, name = excluded.name, body = excluded.body"
    )
    try:
        connection.execute(statement, codec.container_row(container))
    except sqlite3.IntegrityError as error:
        name, namespace = container.spec.name, container.spec.namespace
        text = f"the name {name} is taken in namespace {namespace}; remove or rename that container, or choose another"
        raise NameTaken(text, name=name, namespace=namespace) from error


def put_exit(connection: sqlite3.Connection, exit: Exit) -> None:
    """Store and count an end. Raises AlreadyStored; then it is counted already, too."""
    try:
        connection.execute("INSERT INTO exits VALUES (?, ?, ?, ?, ?, ?)", codec.exit_row(exit))
    except sqlite3.IntegrityError as error:
        raise AlreadyStored(exit) from error
    counts.count_exit(connection, exit)


def _put_retained(connection: sqlite3.Connection, one: Retained) -> None:
    values = (one.container, one.namespace, one.name, one.at.boot_id, one.at.ns)
    connection.execute("INSERT OR REPLACE INTO retained VALUES (?, ?, ?, ?, ?)", values)


def put_event(connection: sqlite3.Connection, event: Event) -> None:
    """Store an event. Raises sqlite3.IntegrityError when the log has its number."""
    connection.execute("INSERT INTO events VALUES (?, ?, ?)", (event.seq, *codec.event_row(event)))
