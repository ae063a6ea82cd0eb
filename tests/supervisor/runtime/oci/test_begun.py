"""supervisor/runtime/oci/begun.py: which of a container's processes is what a killed runtime has begun."""

import os
import subprocess
from dataclasses import replace

from supervisor.model.values import Process
from supervisor.runtime.oci.begun import BegunProcess, CgroupMember, find, in_session, look

SHIM, SINCE = 50, 1000
INIT = CgroupMember(7, parent_inside=False, session=100, is_led=False, started_ticks=10, began=True, dead=False)
PROGRAM = replace(INIT, parent=SHIM, session=200, started_ticks=1001)


def test_it_is_the_one_that_leads_a_session_and_whose_parent_is_none_of_the_containers() -> None:
    child = replace(PROGRAM, parent=200, session=200)
    assert find({100: INIT, 200: PROGRAM, 201: child}, SINCE, {100}, {SHIM}) == BegunProcess(Process(200, 1001))


def test_what_is_older_than_the_shim_is_known_or_is_in_nobodys_session_is_not_it() -> None:
    assert find({200: replace(PROGRAM, started_ticks=999)}, SINCE, (), {SHIM}) == BegunProcess()
    assert find({200: PROGRAM}, SINCE, {200}, {SHIM}) == BegunProcess()
    assert find({200: replace(PROGRAM, session=199, is_led=True)}, SINCE, (), {SHIM}) == BegunProcess()


def test_it_may_have_been_left_in_a_session_whose_leader_has_ended_unless_that_was_a_shim() -> None:
    left = replace(PROGRAM, session=199)
    assert find({200: left}, SINCE, (), {SHIM}) == BegunProcess(Process(200, 1001))
    assert find({200: left}, SINCE, (), {SHIM, 199}) == BegunProcess()  # a command of the runtime's


def test_a_daemon_of_a_pods_member_whose_parent_is_the_pods_init_is_not_it() -> None:
    assert find({200: replace(PROGRAM, parent_inside=True)}, SINCE, (), {SHIM}) == BegunProcess()


def test_whoever_has_executed_nothing_yet_may_be_it_as_long_as_it_lives() -> None:
    waits = replace(PROGRAM, began=False)
    assert find({200: waits}, SINCE, (), {SHIM}) == BegunProcess(undecided=True)
    assert find({200: replace(waits, dead=True)}, SINCE, (), {SHIM}) == BegunProcess()


def test_of_what_is_left_of_it_in_the_hosts_pid_namespace_the_first_is_it() -> None:
    daemonized = replace(PROGRAM, session=199, started_ticks=1002)
    assert find({199: daemonized, 200: PROGRAM}, SINCE, (), {SHIM}) == BegunProcess(Process(200, 1001))


def test_the_kernel_says_of_a_process_all_that_is_needed() -> None:
    with subprocess.Popen(["sleep", "1000"], start_new_session=True) as child:
        try:
            member = look([child.pid])[child.pid]
            assert (member.parent, member.session, member.began) == (os.getpid(), child.pid, True)
            assert not (member.dead or member.parent_inside or member.is_led)
            assert in_session(child.pid) == [child.pid]
        finally:
            child.kill()
    assert (look([child.pid]), in_session(child.pid)) == ({}, [])
