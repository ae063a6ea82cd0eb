"""The Debian package where systemd runs: an upgrade over what lives, an earlier one refused, removed, and put back."""

from collections.abc import Iterator

import pytest

from tests.vm import image
from tests.vm.check_power import lives
from tests.vm.check_units import UNITS, inits, main_pid
from tests.vm.machine import Machine

COUNT = 3
KEEPER = "exitd-keeper.service"
INSTALLED = "exitd.deb"
EXEC, POSTINST = "^sh -c trap", "^/bin/sh /var/lib/dpkg/info/exitd"  # how their command lines begin
VERSION = ("dpkg-query", "--show", "--showformat=${db:Status-Abbrev}${Version}", "exitd")


@pytest.fixture(autouse=True)
def it_is_there_again(machine: Machine) -> Iterator[None]:
    """To install it takes the machine more than a minute: only what was upgraded is purged."""
    machine.python("lives.py", "clear")
    version = machine.say(*VERSION)
    yield
    machine.python("lives.py", "clear")
    if machine.run(*VERSION).out != version:
        anew(machine, INSTALLED)


def anew(machine: Machine, name: str) -> None:
    """The package and nothing of what was before."""
    config = "etc/exitd/config.toml"
    machine.say("dpkg", "--purge", "exitd")
    machine.say("sh", "-c", f"mkdir -p /etc/exitd && printf %s '{image.FILES[config]}' >/{config}")
    machine.say("dpkg", "--install", f"/opt/{name}")


def install(machine: Machine, name: str) -> tuple[int, str]:
    done = machine.run("dpkg", "--install", f"/opt/{name}")
    return done.status, done.out + done.err


def all_end_truly(machine: Machine, pids: list[str]) -> None:
    """Of those that run: the same processes as before, and what becomes of them is known."""
    assert sorted(inits(machine)) == sorted(pids)
    machine.say("kill", "-9", *pids)
    assert set(lives(machine, "wait").values()) == {("signaled", 9)}


def check_an_upgrade_leaves_containers_and_execs_alone_and_renews_exitd_and_keeper(machine: Machine) -> None:
    machine.python("lives.py", "up", "lives", str(COUNT))
    obeys = "trap 'exit 6' TERM; sleep 100000 & wait"
    machine.say("systemd-run", "--no-block", "exitctl", "exec", "lives-1", "sh", "-c", obeys)
    machine.say("sh", "-c", f"until pgrep -f '{EXEC}'; do sleep 0.2; done")
    pids, exitd = inits(machine), main_pid(machine, "exitd.service")
    keeper = main_pid(machine, "exitd-keeper.service")
    status, said = install(machine, image.NEWER)
    assert status == 0, said
    assert machine.say(*VERSION).startswith("ii ")
    assert main_pid(machine, "exitd.service") != exitd
    assert main_pid(machine, "exitd-keeper.service") == keeper
    assert machine.say("systemctl", "is-active", *UNITS).split() == ["active"] * len(UNITS)
    machine.say("pkill", "-TERM", "-f", EXEC)
    ledger = "/opt/exitd/bin/python /opt/tree/tests/vm/guest/lives.py ledger"
    machine.say("sh", "-c", f'until {ledger} | grep \'"name": "lives-1"\' | grep -q \'"code": 6\\b\'; do sleep 1; done')
    ends = [end for end in machine.python("lives.py", "ledger") if end["name"] == "lives-1" and end["kind"] == "exited"]
    assert [end["code"] for end in ends] == [6]  # other ends are of checks before this one
    all_end_truly(machine, pids)


def check_an_earlier_package_is_refused_and_nothing_is_changed(machine: Machine) -> None:
    machine.python("lives.py", "up", "lives", str(COUNT))
    pids, exitd, version = inits(machine), main_pid(machine, "exitd.service"), machine.say(*VERSION)
    status, said = install(machine, image.OLDER)
    assert status != 0
    assert "Nothing was changed" in said, said
    assert (main_pid(machine, "exitd.service"), machine.say(*VERSION)) == (exitd, version)
    all_end_truly(machine, pids)


@pytest.mark.parametrize("keeper_dies", [False, True], ids=["", "keeper-dies"])
def check_a_removed_package_leaves_containers_alone_and_a_new_one_takes_them_over(
    machine: Machine, keeper_dies: bool
) -> None:
    machine.python("lives.py", "up", "lives", str(COUNT))
    pids, keeper = inits(machine), main_pid(machine, "exitd-keeper.service")
    done = machine.run("dpkg", "--remove", "exitd")
    assert done.status == 0, done
    assert str(COUNT) in done.out + done.err, done
    if keeper_dies:
        machine.say("sh", "-c", f"kill -9 {keeper}; while systemctl --quiet is-active {KEEPER}; do sleep 0.2; done")
    assert machine.run("sh", "-c", f"kill -0 {' '.join(pids)}").status == 0
    assert machine.say("pgrep", "--count", "--exact", "exitd-shim").strip() == str(COUNT)
    machine.say("kill", "-9", pids[0])
    status, said = install(machine, INSTALLED)
    assert status == 0, said
    assert sorted(inits(machine)) == sorted(pids[1:])
    machine.say("kill", "-9", *pids[1:])
    assert set(lives(machine, "wait").values()) == {("signaled", 9)}


def check_a_purge_of_what_was_removed_leaves_nothing_and_a_new_package_works(machine: Machine) -> None:
    machine.python("lives.py", "up", "lives", str(COUNT))
    pids = inits(machine)
    machine.say("dpkg", "--remove", "exitd")
    kept = machine.run("dpkg", "--purge", "exitd")
    assert kept.status == 0 and "were kept" in kept.err, kept
    assert machine.run("sh", "-c", f"kill -0 {' '.join(pids)}").status == 0
    assert install(machine, INSTALLED)[0] == 0
    assert sorted(inits(machine)) == sorted(pids)
    machine.say("dpkg", "--remove", "exitd")
    machine.say("sh", "-c", f"kill -9 {' '.join(pids)}; while pgrep --exact exitd-shim; do sleep 0.2; done")
    machine.say("dpkg", "--purge", "exitd")
    assert machine.run("sh", "-c", "ls -d /var/lib/exitd /run/exitd /etc/exitd /run/systemd/system/exitd*").out == ""
    assert machine.run("pgrep", "exitd").out == ""
    assert machine.run("grep", "exitd/", "/proc/self/mountinfo").out == ""
    anew(machine, INSTALLED)
    machine.python("lives.py", "up", "lives", "1")
    all_end_truly(machine, inits(machine))
    assert main_pid(machine, KEEPER) in machine.say("exitctl", "info")


def check_an_upgrade_that_is_killed_halfway_goes_on_where_it_was(machine: Machine) -> None:
    machine.python("lives.py", "up", "lives", str(COUNT))
    pids = inits(machine)
    killing = f"until pkill -9 -f '{POSTINST}'; do sleep 0.01; done"
    halfway = f"dpkg --install /opt/{image.NEWER} & {killing}; wait $!"
    assert machine.run("sh", "-c", halfway).status != 0
    machine.say("dpkg", "--configure", "exitd")
    assert machine.say(*VERSION).startswith("ii ")
    all_end_truly(machine, pids)
