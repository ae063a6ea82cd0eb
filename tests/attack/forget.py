"""Asks the attacked containerd to delete a task that it does not list: a process of its own, which may be killed. gRPC
hangs for ever when it can begin no thread.

    python -m tests.attack.forget DIRECTORY-OF-CONTAINERD TASK"""

import pathlib
import sys

from tests.system.containerd.history import Who
from tests.system.containerd.server import Containerd
from tests.system.containerd.tasks import Tasks


def main(directory: str, task: str) -> None:
    client = Tasks(Containerd(pathlib.Path(directory)))
    try:
        client.begin("delete", Who(task)).call()
    finally:
        client.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
