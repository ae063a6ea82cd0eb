"""The keeper's journal: bytes of one instance's file to its header and the exits in it."""

from shim import fields
from shim.frozen import frozen
from shim.record import ENTRY_BYTES, BadRecord, Record, parse


class BadJournal(ValueError):
    """Not a journal this version can read."""


@frozen
class Journal:
    """One keeper instance's file. `entries` holds the exits not yet acknowledged; `damaged` counts unreadable slots."""

    instance: str
    boot_id: str
    pid: int
    started: int
    entries: tuple[Record, ...]
    damaged: int


def read(data: bytes) -> Journal:
    """Everything in a journal's bytes. A slot was one pwrite: it is there or it is not."""
    head = data[:ENTRY_BYTES].rstrip(b"\0") + b"\0"
    try:
        header = fields.decode(head, "exitd-journal")
        size = header.number("slot_size")
        if header.version != 1 or size < 256:
            raise BadJournal(f"journal version {header.version}, slots of {size} bytes")
        identity = (header.number("pid"), header.number("started"))
    except fields.BadMessage as error:
        raise BadJournal(str(error)) from error
    entries, damaged = [], 0
    for at in range(size, len(data) - size + 1, size):
        try:
            record = parse(data[at : at + size])
        except BadRecord:
            damaged += 1
            continue
        if record is not None:
            entries.append(record)
    return Journal(header.get("instance"), header.get("boot_id"), *identity, tuple(entries), damaged)
