"""Run a command in a running container, read what both wrote, and stop it. Usage: python exec_and_logs.py [IMAGE]"""

import sys

from exitd_client import Client, Limits, Mount, Rights

image = sys.argv[1] if len(sys.argv) > 1 else "docker://busybox"

with Client() as exitd:
    exitd.run(
        image,
        ["sh", "-c", "echo begun; exec sleep 600"],
        name="box",
        env={"LEVEL": "debug"},
        mounts=[Mount(tmpfs=True, destination="/scratch", size_bytes=1 << 20)],
        limits=Limits(cpu_shares=512),
        rights=Rights(cap_drop=["ALL"]),
        timeout=600,
    )
    next(exitd.logs("box", follow=True, timeout=30))  # it has begun
    done = exitd.exec("box", ["sh", "-c", "cat; echo $LEVEL; exit 3"], input=b"hello\n", timeout=30)
    print(done.exit.code, done.stdout)
    exitd.stop("box", grace_seconds=1)
    print(exitd.wait("box").reason)
    for part in exitd.logs("box", timeout=30):
        print(part.stream, part.data)
    exitd.rm("box")
