"""The power fails at random moments of a load of exits, creates, removes and image loads: what exitd had answered is
there afterwards, with the same code and the same number, nothing is invented, and the store opens."""

import os
import random
import sys
import time

from tests.vm import collected
from tests.vm.check_suite import Record
from tests.vm.machine import Machine

CUTS = int(os.environ.get("EXITD_VM_CUTS") or 3)
SEED = int(os.environ.get("EXITD_VM_SEED") or time.time_ns() % 1_000_000)
PORT = "/dev/virtio-ports/exitd.answered.0"
PYTHON, GUEST = "/opt/exitd/bin/python", "/opt/tree/tests/vm/guest"
LIMIT_SECONDS, STEP_SECONDS = 3600.0, 0.5  # by the host's clock
FEWEST, MOST = 20, 120  # answers before the power fails


def check_what_was_answered_before_a_power_cut_is_there_after_it(machine: Machine, record_property: Record) -> None:
    machine.python("lives.py", "clear")
    chance, answers = random.Random(SEED), 0
    print(f"seed {SEED}, {CUTS} cuts", file=sys.stderr)
    for cut in range(CUTS):
        machine.say("systemd-run", "--unit=load", PYTHON, f"{GUEST}/load.py", f"cut{cut}", PORT)
        wanted, until = chance.randrange(FEWEST, MOST), time.monotonic() + LIMIT_SECONDS
        while len(machine.answered()) < wanted:
            assert time.monotonic() < until, f"{len(machine.answered())} answers in {LIMIT_SECONDS} s"
            time.sleep(STEP_SECONDS)
        time.sleep(STEP_SECONDS * chance.random())
        machine.cut()
        said = machine.answered()
        machine.boot()
        machine.say("sh", "-c", f'until [ -z "$({PYTHON} {GUEST}/lives.py inits)" ]; do sleep 1; done')
        wrong = judged(machine, said)
        assert not wrong, (cut, wrong)
        answers += len(said)
    record_property(collected.WHAT, "`check_cuts.py`, cuts")
    record_property(collected.PASSED, CUTS)
    record_property(collected.SEED, SEED)
    print(f"{CUTS} cuts, {answers} answers", file=sys.stderr)


def judged(machine: Machine, said: list[dict[str, object]]) -> list[str]:
    """What is otherwise now than it was answered."""
    ledger = [end for end in machine.python("lives.py", "ledger") if str(end["name"]).startswith("cut")]
    ends = {str(end["name"]): end for end in ledger}
    events = {event["seq"]: event["name"] for event in machine.python("lives.py", "events", "exit")}
    names = {str(each["name"]) for each in machine.python("lives.py", "all")}
    images = {str(each["id"]) for each in machine.python("lives.py", "images")}
    wrong = [] if len(ends) == len(ledger) else ["an end is there twice"]
    removed = {each["removed"] for each in said if "removed" in each}
    unloaded = {each["unimage"] for each in said if "unimage" in each}
    last = next((each["image"] for each in reversed(said) if "image" in each), None)  # its removal may be under way
    for each in said:
        match each:
            case {"exit": name, "code": code}:
                end = ends.get(str(name), {})
                right = (end.get("kind"), end.get("code")) == ("exited", code)
            case {"event": seq, "of": name}:
                right = events.get(seq) == name
            case {"created": name}:
                right = name in names or name in removed or is_being_removed(said, name)
            case {"removed": name}:
                right = name not in names
            case {"image": id}:
                right = id in images or id in unloaded or id == last
            case {"unimage": id}:
                right = id not in images
            case _:
                right = False
        wrong += [] if right else [f"{each}, but {ends.get(str(each.get('exit')))}"]
    # Every exit with a number was that of a program: its code follows from its name.
    for end in ledger:
        number = int(str(end["name"]).rpartition("-")[2])
        if end["kind"] == "exited" and end["code"] != number % 100 + 1:
            wrong.append(f"invented: {end}")
    return wrong


def is_being_removed(said: list[dict[str, object]], name: object) -> bool:
    """Whether its removal may have been asked for: its end was answered."""
    return any(each.get("exit") == name for each in said)
