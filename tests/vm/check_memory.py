"""Memory kills in systemd's scopes, which are gone before their counters have been read: each one has its reason."""

import collections
import json

import pytest

from tests.vm.machine import Machine

INIT = ("signaled", 9, "oom", True, 1)
CHILD = ("exited", 7, "self", False, 1)
TOLD = ["create", "start", "oom", "exit"]


def kills(machine: Machine, *words: str) -> collections.Counter[str]:
    """How often each outcome came, as JSON."""
    outcomes = collections.Counter[str]()
    for end in machine.python("kills.py", *words):
        number = end["signal"] if end["kind"] == "signaled" else end["code"]
        outcomes[json.dumps([end["kind"], number, end["reason"], end["init"], end["kills"], end["events"]])] += 1
    return outcomes


@pytest.mark.parametrize("runtime", ["runc", "crun"])
@pytest.mark.parametrize(("life", "count", "at_once"), [("short", 6, 1), ("short", 20, 20), ("long", 10, 10)])
def check_an_init_killed_for_memory_in_a_scope_ends_by_oom(
    machine: Machine, runtime: str, life: str, count: int, at_once: int
) -> None:
    found = kills(machine, runtime, "init", life, str(count), str(at_once))
    assert found == {json.dumps([*INIT, TOLD]): count}


@pytest.mark.parametrize("runtime", ["runc", "crun"])
def check_a_child_killed_for_memory_right_before_init_ends_is_counted(machine: Machine, runtime: str) -> None:
    found = kills(machine, runtime, "child", "short", "10", "10")
    assert found == {json.dumps([*CHILD, TOLD]): 10}
