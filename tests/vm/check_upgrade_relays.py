"""Tasks of containerd's over an upgrade of exitd's package: their relays, and their exec's, go on with the old program,
and each end, during it and after it, is published by containerd with its true code, once."""

from collections import Counter

from tests.vm import image, tasks
from tests.vm.check_package import VERSION
from tests.vm.check_units import main_pid
from tests.vm.machine import Machine
from tests.vm.tasks import Published

OBEYS, MEANWHILE, KILLED = ("obeys-1", "obeys-2"), "meanwhile", "killed"
CODE, EXEC_CODE, LATER_CODE, NEW_CODE = 7, 6, 5, 4
KILL = 128 + 9
OLD_PROGRAM = " (deleted)"
STATUS = "/run/exec.status"
EXEC_SCRIPT = "^sh -c echo exec"  # how its command line begins
# One is ended when exitd of the old version has gone: while containerd's relays are without it.
WHILE_AWAY = "until ! kill -0 {exitd} 2>/dev/null; do sleep 0.1; done; kill -TERM {init}"
UPGRADE = f"({WHILE_AWAY}) & dpkg --install /opt/{image.NEWER}; done=$?; wait; exit $done"


def check_tasks_live_over_an_upgrade_and_their_ends_are_true_and_published_once(machine_with_tasks: Machine) -> None:
    machine = machine_with_tasks
    tasks.bring_image(machine)
    tasks.record(machine)
    for name in (*OBEYS, MEANWHILE):
        tasks.begin(machine, name, tasks.OBEYS.format(code=CODE))
    tasks.begin(machine, KILLED, tasks.DEAF)
    script = f"echo exec; {tasks.OBEYS.format(code=EXEC_CODE)}"
    run = f'ctr tasks exec --exec-id before {OBEYS[0]} sh -c "{script}"; echo $? >{STATUS}'
    machine.say("systemd-run", "--no-block", "sh", "-c", run)
    machine.say("sh", "-c", f"until pgrep -f '{EXEC_SCRIPT}'; do sleep 0.2; done")
    before, programs, exitd = tasks.listed(machine), tasks.relays(machine), main_pid(machine, "exitd.service")
    assert len(programs) == len(before) == len(OBEYS) + 2
    assert not any(program.endswith(OLD_PROGRAM) for program in programs.values())

    done = machine.run("sh", "-c", UPGRADE.format(exitd=exitd, init=before[MEANWHILE][0]))
    assert done.status == 0, done
    assert machine.say(*VERSION).startswith("ii ")
    assert main_pid(machine, "exitd.service") != exitd
    machine.say("sh", "-c", f"until ctr tasks list | grep -q '^{MEANWHILE} .*STOPPED'; do sleep 0.5; done")
    after = tasks.listed(machine)
    assert {name: one for name, one in after.items() if name != MEANWHILE} == {
        name: one for name, one in before.items() if name != MEANWHILE
    }
    assert (now := tasks.relays(machine)).keys() == programs.keys()
    assert all(program.endswith(OLD_PROGRAM) for program in now.values()), now

    later = machine.run("ctr", "tasks", "exec", "--exec-id", "later", OBEYS[1], "sh", "-c", f"exit {LATER_CODE}")
    assert later.status == LATER_CODE, later
    machine.say("pkill", "-TERM", "-f", EXEC_SCRIPT)
    machine.say("sh", "-c", f"until [ -s {STATUS} ]; do sleep 0.2; done")
    assert machine.say("cat", STATUS).strip() == str(EXEC_CODE)
    for name in OBEYS:
        machine.say("ctr", "tasks", "kill", "--signal", "SIGTERM", name)
    machine.say("kill", "-9", after[KILLED][0])
    run_new = ("ctr", "run", "--rm", "--runtime", tasks.RUNTIME, tasks.IMAGE, "new", "sh", "-c", f"exit {NEW_CODE}")
    assert machine.run(*run_new).status == NEW_CODE
    stopped = "ctr tasks list | grep -c STOPPED"
    machine.say("sh", "-c", f"until [ $({stopped}) = {len(before)} ]; do sleep 0.5; done")

    ends = Counter(
        {
            **{Published(name, name, CODE): 1 for name in (*OBEYS, MEANWHILE)},
            Published(KILLED, KILLED, KILL): 1,
            Published(OBEYS[0], "before", EXEC_CODE): 1,
            Published(OBEYS[1], "later", LATER_CODE): 1,
            Published("new", "new", NEW_CODE): 1,
        }
    )
    assert Counter(tasks.published(machine)) == ends
    ledger = [
        (str(end["name"]), end["code"] if end["kind"] == "exited" else KILL, bool(end["exec"]))
        for end in machine.python("lives.py", "ledger")
        if end["name"] in (*before, "new") and (end["kind"], end["signal"]) in (("exited", 0), ("signaled", 9))
    ]
    assert Counter(ledger) == Counter((each.container, each.code, each.id != each.container) for each in ends)
    tasks.clear(machine)
