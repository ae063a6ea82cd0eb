"""Memory kills in systemd's scopes, which are gone before their counters have been read: each one has its reason.

EXITD_VM_KILLS is how many inits are killed in all; a fifth as many have a child killed.
"""

import collections
import json
import os
import sys

import pytest

from tests.vm.machine import Machine

KILLS = int(os.environ.get("EXITD_VM_KILLS") or 200)
ALONE, CROWD = 1, 20
# Of a hundred inits of one runtime.
SHARES = [
    ("short", ALONE, 20),
    ("short", CROWD, 20),
    ("long", ALONE, 15),
    ("long", CROWD, 20),
    ("away", ALONE, 5),
    ("away", CROWD, 20),
]
INIT = ["signaled", 9, "oom", True, 1]
CHILD = ["exited", 7, "self", False, 1]
EVENTS = ["create", "start", "oom", "exit"]


def count_of(share: int) -> int:
    return max(1, share * KILLS // 200)


def kills(machine: Machine, *words: str) -> collections.Counter[str]:
    """How often each outcome came, as JSON."""
    outcomes = collections.Counter[str]()
    for end in machine.python("kills.py", *words):
        number = end["signal"] if end["kind"] == "signaled" else end["code"]
        outcomes[json.dumps([end["kind"], number, end["reason"], end["init"], end["kills"], end["events"]])] += 1
    print(*words, dict(outcomes), file=sys.stderr)
    return outcomes


@pytest.mark.parametrize("runtime", ["runc", "crun"])
@pytest.mark.parametrize(("life", "at_once", "share"), SHARES)
def check_an_init_killed_for_memory_in_a_scope_ends_by_oom(
    machine: Machine, runtime: str, life: str, at_once: int, share: int
) -> None:
    count = count_of(share)
    found = kills(machine, runtime, "init", life, str(count), str(at_once))
    assert found == {json.dumps([*INIT, EVENTS]): count}


@pytest.mark.parametrize("runtime", ["runc", "crun"])
@pytest.mark.parametrize(("life", "share"), [("short", 10), ("long", 5), ("away", 5)])
def check_a_child_killed_for_memory_right_before_init_ends_is_counted(
    machine: Machine, runtime: str, life: str, share: int
) -> None:
    count = count_of(share)
    found = kills(machine, runtime, "child", life, str(count), str(CROWD))
    assert found == {json.dumps([*CHILD, EVENTS]): count}
