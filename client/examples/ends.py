"""Print every end from now on, over restarts of exitd too, or from an event's number. Usage: python ends.py [SEQ]"""

import sys

from exitd_client import Client

with Client() as exitd:
    since = int(sys.argv[1]) if len(sys.argv) > 1 else None
    for event in exitd.events(since=since, filters=["type=exit"]):
        end = event.exit
        if end is not None:
            how = end.cause if end.kind == "unknown" else end.code if end.code is not None else f"signal {end.signal}"
            print(event.seq, end.at.isoformat(), end.name or end.container[:12], how, end.reason, flush=True)
