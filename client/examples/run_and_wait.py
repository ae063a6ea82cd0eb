"""Run a command and learn how it ended. Usage: python run_and_wait.py [IMAGE]"""

import sys

from exitd_client import Client, CommandNotFound

image = sys.argv[1] if len(sys.argv) > 1 else "docker://busybox"

with Client() as exitd:
    made = exitd.run(image, ["sh", "-c", "exit 7"], name="example", memory_bytes=64 << 20, timeout=600)
    end = exitd.wait("example", timeout=60)
    if end.code is not None:
        print(f"exited {end.code}")
    elif end.signal is not None:
        print(f"ended by signal {end.signal}")
    else:
        print(f"unknown: {end.cause}")
    print(f"reason {end.reason}, seen by {end.source}, after {end.at - (end.started_at or end.at)}")
    exitd.rm(made.id)
    try:
        exitd.run(image, ["/no/such/program"], auto_remove=True)
    except CommandNotFound as error:
        print(f"{error.reason}: {error}")
