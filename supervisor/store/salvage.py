"""Recovers what it can from a container's or an exec's row that cannot be decoded. Pure.

Each field that can be read by itself is kept; the rest comes from the columns, the ledger, the run directory and the
event log. The result is an ordinary container, marked as damaged: it is watched, reported and removed like others, but
it is never started again, and none of its processes is ended before a caller asks for that.
"""

import re

from shim.patterns import LatePattern

ID = LatePattern(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,199}", re.ASCII)
TASKS = "containerd/"  # comes before the namespace of a containerd task
# Fields of a spec that would act on a guess.
NEVER_TAKEN = ("restart", "auto_remove", "restart_rules", "health", "probes", "hooks")
