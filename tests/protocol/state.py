"""The states of the model: what the kernel, the state directory, the disk and each process's memory hold.

A value of an end is the number of the process's life, which stands for its true code, or 0 for "unknown". Fields marked
as ghosts belong to no process: they are what the properties are about.
"""

from collections.abc import Mapping
from typing import NamedTuple

from shim.frozen import frozen

NONE, ALIVE, ZOMBIE, REAPED = "-", "alive", "zombie", "reaped"  # init; NONE for a shim, too: there is none
SHIM, KEEPER, HOST = "shim", "keeper", "host"  # init's parent
WAITS, LOOKED, RECORDED, REPORTED, UNSAFE, DONE = "waits", "looked", "recorded", "reported", "unsafe", "done"  # shim
CHILD, WATCHED = "child", "watched"  # what the living keeper has of a run: it is its parent's parent, or holds a pidfd
SEEN, WRITTEN = "seen", "written"  # how far the keeper is with a zombie
UP, STOPPED, DOWN = "up", "stopped", "down"  # a process
STARTING, LIVE, ENDED, CLEAN = "starting", "live", "ended", "clean"  # a container's row, and exitd's memory of it
KNOWN, RUNG, COMMITTED, SHOWN = "known", "rung", "committed", "shown"  # exitd's memory: an end on its way to the disk
BLANK = "blank"  # exitd has read the witnesses and found nothing (in a mutation only)

Event = tuple[int, str, int, int, int]  # its number, kind, container, run, value
Exit = tuple[int, int, int]  # container, run, value


class Run(NamedTuple):
    """A container's newest run: its processes, its files in the state directory, and what exitd has in memory of it."""

    number: int = 0
    life: int = 0  # ghost: names the process
    init: str = NONE
    parent: str = HOST
    shim: str = NONE
    is_stopped: bool = False  # the shim
    record: bool = False
    fifo: bool = False  # the four bytes are in it
    entry: bool = False  # in a keeper's journal, living or dead
    kept: str = ""
    keeper_at: str = ""
    is_unrecorded: bool = False  # ghost: the record could not be written
    has_shim_died: bool = False  # ghost: or it has left without reaping
    has_keeper_died: bool = False  # ghost: the one that would have been the next parent, or there was none
    phase: str = ""  # from here on exitd's memory; "": exitd is away, or there is no run
    holds_pidfd: bool = False  # since before init was reaped
    look: str = ""  # what init was when exitd looked at it last
    value: int = 0
    is_ordinary: bool = False  # its shim recorded the end: it may take the short way
    seq: int = 0  # the number of its end's event


class Row(NamedTuple):
    run: int
    phase: str
    boot: int


class Database(NamedTuple):
    """One version of the database. `mark`: the newest block of the ring that it has taken over. `void`: the block whose
    write failed."""

    rows: tuple[Row | None, ...]
    exits: frozenset[Exit] = frozenset()
    events: frozenset[Event] = frozenset()
    mark: int = 0
    void: int = 0


class Block(NamedTuple):
    """What is in the ring's one page. Not `is_safe`: its write failed, a power cut may take it or leave it."""

    number: int
    end: Exit
    seq: int
    is_safe: bool = True


class Flight(NamedTuple):
    """An event that the relay has sent to containerd. `seq` 0: the relay brings it itself."""

    seq: int
    value: int
    is_taken: bool = False  # by containerd


class Relay(NamedTuple):
    is_up: bool = False
    at: str = NONE  # NONE, ZOMBIE: init has ended, REAPED: it was reaped before the record is read, ENDED, DONE: unread
    value: int = 0
    flight: Flight | None = None
    last: int = 0  # the number of exitd's event that containerd took last
    has_brought: bool = False
    has_answered: bool = False
    has_died: bool = False  # ghost
    answered: frozenset[int] = frozenset()  # ghost: what containerd's clients were answered
    heard: tuple[int, ...] = ()  # ghost: the exit events that containerd has
    is_deleted: bool = False  # containerd has given the task up through `delete`
    is_noted: bool = False  # in the state directory: containerd has the exit's event
    is_handed: bool = False  # in exitd's memory: the relay has been given it


class State(NamedTuple):
    runs: tuple[Run, ...]
    versions: tuple[Database, ...]  # the first is flushed; the last is what a process reads
    boot: int = 1
    keeper: str = UP
    exitd: str = UP
    page: Block | None = None
    used: tuple[int, ...] = ()  # exitd's memory: blocks whose page is not free
    block: int = 0  # exitd's memory: the newest block's number
    has_ring: bool = True  # exitd's memory: the ring has not been given up
    void: int = 0  # exitd's memory: the block whose write failed
    given: int = 0  # exitd's memory: the newest event's number
    relay: Relay = Relay()
    lives: int = 0  # ghost
    told: frozenset[Exit] = frozenset()  # ghost: what clients were answered
    cursor: int = 0  # ghost: the number up to which a subscriber has the log
    heard: frozenset[Event] = frozenset()  # ghost: the events that it has received
    faults: tuple[int, ...] = ()  # how many of each kind may still come
    misfortunes: int = 0  # how many of any kind


@frozen
class Bound:
    """What one search visits all of.

    `faults`: how often each may happen; `total`: all together. `kernel`: the kernel says to who holds a pidfd how the
    process ended (6.15). `wide`: codes over 128, which in the fifo may be a signal's, too.
    """

    name: str
    words: str
    faults: Mapping[str, int]
    total: int
    containers: int = 1
    runs: int = 1
    kernel: bool = False
    wide: bool = False
    has_relay: bool = False
    from_end: bool = False  # both inits have ended and are recorded; for searches about the disk
