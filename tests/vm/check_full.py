"""A node without a free block below /var: exitd stops and starts there, containers live on, and ends are true."""

from tests.vm.check_power import lives
from tests.vm.check_units import inits
from tests.vm.machine import Machine

COUNT = 3
BALLAST = "/var/ballast"
# The blocks alone are taken, from large to small, which writes nothing and is soon done.
FILL = (
    "mkdir -p {place}; n=0; for size in 1G 100M 10M 1M 64K 4K; do"
    " while fallocate --length $size {place}/$n; do n=$((n + 1)); done; rm -f {place}/$n; done"
)


def check_exitd_starts_with_a_full_var_and_ends_are_true(machine: Machine) -> None:
    machine.python("lives.py", "clear")
    machine.python("lives.py", "up", "full", str(COUNT))
    pids = inits(machine)
    machine.run("sh", "-c", FILL.format(place=f"{BALLAST}/1"))
    try:
        machine.say("kill", "-9", pids[0])
        machine.say("exitctl", "wait", "full-1")  # the ring has its room
        machine.say("systemctl", "stop", "exitd.service")
        machine.run("sh", "-c", FILL.format(place=f"{BALLAST}/2"))  # what it has given back
        assert "100%" in machine.say("df", "--output=pcent", "/var")
        machine.say("kill", "-9", pids[1])
        machine.say("systemctl", "start", "exitd.service")
        machine.say("exitctl", "wait", "full-2")  # exitd serves while it is looking for what has ended meanwhile
        assert inits(machine) == pids[2:]
    finally:
        machine.say("rm", "-r", BALLAST)
    machine.say("kill", "-9", *pids[2:])
    names = [f"full-{number}" for number in range(1, COUNT + 1)]
    assert lives(machine, "wait") == dict.fromkeys(names, ("signaled", 9))
    ledger = [str(end["name"]) for end in machine.python("lives.py", "ledger")]
    assert sorted(each for each in ledger if each.startswith("full-")) == names
    machine.python("lives.py", "clear")
