"""The attack in a pid namespace of its own where few numbers are free: soon threads have numbers that processes had.

Linux has a limit of its own for each pid namespace since 6.14 (proc_sys_kernel(5), pid_max)."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence

FIRST_KERNEL = (6, 14)  # an older one has one limit for the whole machine
# The shell is the namespace's init: it reaps whoever loses its parent, as the host's does. It outlives the attack.
INIT = """
echo "$1" >/proc/sys/kernel/pid_max || exit 2
shift
env --default-signal=INT,TERM "$@"
exit $?
"""
AWAY = ("env", "--ignore-signal=INT,TERM", "unshare", "--pid", "--fork", "--mount-proc", "sh", "-c", INIT, "sh")


def works(release: str) -> bool:
    """Whether such a kernel (`uname -r`) has a limit for each namespace."""
    return tuple(int(word) for word in re.findall(r"\d+", release)[:2]) >= FIRST_KERNEL


def run(most: int, words: Sequence[str]) -> int:
    """`python -m tests.attack WORDS` with pids up to `most`; its exit status. A signal to end is handed on: the attack
    clears away what it has made."""
    command = (*AWAY, str(most), sys.executable, "-m", "tests.attack", *words)
    inside = subprocess.Popen(command, start_new_session=True)
    while True:
        try:
            return inside.wait()
        except KeyboardInterrupt:
            os.killpg(inside.pid, signal.SIGTERM)
