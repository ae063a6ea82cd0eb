"""What a witness wrote when a container ended: bytes to facts. The writer is core/record.c; readers are forgiving about
nothing, because half a record must never become an exit code."""

import json
import zlib
from typing import Any

from shim.frozen import frozen

HEAD_BYTES = 46  # {"version":1,"length":"0000","crc":"00000000",
RECORD_BYTES = 4096
ENTRY_BYTES = 1024
NAME = "exit.json"


class BadRecord(ValueError):
    """There is something, and it is no record that this version can trust."""


@frozen
class Record:
    """One end as its witness saw it. Exactly one of `code` and `signal` is set; times in ns; -1: not known."""

    id: str
    run: int
    exec_id: str
    witness: str
    code: int | None
    signal: int | None
    core: bool
    pid: int
    started: int  # clock ticks since boot
    realtime_ns: int
    boottime_ns: int
    boot_id: str
    oom_kills: int
    user_us: int = 0
    system_us: int = 0
    max_rss_kb: int = 0
    began: bool | None = None  # the program had been executed; None: not known, as of records before there was this


def parse(data: bytes) -> Record | None:
    """The record in a block of bytes, or None for a block that is not written yet; BadRecord for anything else."""
    if data == bytes(len(data)):
        return None
    try:
        length, crc = int(data[23:27]), int(data[36:44], 16)
    except ValueError as error:
        raise BadRecord(f"record head {data[:HEAD_BYTES]!r}") from error
    head = b'{"version":1,"length":"%04d","crc":"%08x",' % (length, crc)
    if not data.startswith(head) or not HEAD_BYTES < length <= len(data):
        raise BadRecord(f"record head {data[:HEAD_BYTES]!r}")
    if zlib.crc32(data[HEAD_BYTES:length]) != crc:
        raise BadRecord("record checksum does not fit")
    try:
        return _from_json(json.loads(data[:length]))
    except (KeyError, TypeError, ValueError) as error:
        raise BadRecord(f"record content: {error!r}") from error


def _from_json(doc: dict[str, Any]) -> Record:
    kind = doc["kind"]
    if kind not in ("exited", "signaled"):
        raise ValueError(f"kind {kind!r}")
    return Record(
        id=str(doc["id"]),
        run=int(doc["run"]),
        exec_id=str(doc["exec"]),
        witness=str(doc["witness"]),
        code=int(doc["code"]) if kind == "exited" else None,
        signal=int(doc["signal"]) if kind == "signaled" else None,
        core=bool(doc["core"]),
        pid=int(doc["pid"]),
        started=int(doc["started"]),
        realtime_ns=int(doc["realtime_ns"]),
        boottime_ns=int(doc["boottime_ns"]),
        boot_id=str(doc["boot_id"]),
        oom_kills=int(doc["oom_kills"]),
        user_us=int(doc["user_us"]),
        system_us=int(doc["system_us"]),
        max_rss_kb=int(doc["max_rss_kb"]),
        began=_known(doc.get("began")),
    )


def _known(value: object) -> bool | None:
    if value is not None and not isinstance(value, bool):
        raise ValueError(f"began {value!r}")
    return value
