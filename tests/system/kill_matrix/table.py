"""The kill matrix: whose death is tried, when, in the middle of what, and what has to hold then.

A row is one path, the life that goes on meanwhile. Each of its victims is killed (or stopped) at each of its moments,
alone; victims with a `+` between them at once. The tests of a path take their cases from here by the row's name, so
that this page is all that is tried:

- `exitd`: the daemon. `shim`: exitd-shim, which watches one run. `keeper`: exitd-keeper, which inherits what a dead
  shim leaves. `runtime`: the command (runc) that works at that moment. `init`: the container's first process. `pause`:
  that of a pod. `relay`: containerd-shim-exitd-v2, between containerd and exitd. `image store`: the part of exitd that
  keeps images, in a process of its own.
- A moment `create.before` is in the runtime's command `create` before it has done anything; `create.after`: when it has
  done its work and has not returned. `each call` is each system call of the victim's part in that life, by strace.
- `few`: what is tried at less than full scale (EXITD_SCALE): so many, the same ones each time, or these.
- `holds`: what is compared with the program's own notes about its end.

At full scale (`make rig`) every case is tried. Where a row's moments are words (`runs`, `at random`) its test says what
they mean.
"""

import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.system.waits import SCALE

SEED = 20_262
EACH_CALL, AT_RANDOM = "each call", "at random"
COMMANDS = ("create.before", "create.after", "start.before", "start.after", "delete.before", "delete.after")
DELETES = ("delete.before", "delete.after")
ONE_OF = ("exitd", "keeper", "shim", "runtime", "init")
TWO_OF = tuple("+".join(pair) for pair in itertools.combinations(ONE_OF, 2))
# A pod's commands are its pause container's, or a member's.
POD_COMMANDS = tuple(f"{whose} {command}" for whose in ("pause", "member") for command in COMMANDS)

# What holds.
TRUE = "each end is told once, with its code, and nothing is left"
TRUE_OR_UNKNOWN = "each end is told once, with its code, or as unknown with the cause; nothing is left"
WHOLE = "no half of it is listed, nothing is left, what a container stands on is held"
FROZEN = "no half of it is listed, and nothing stays frozen"
FILLED = "no container sees half of it"
KEPT = "what was written is there until the volume is removed, and nothing of it is left then"
UNNOTICED = "no call of containerd's clients fails, each event comes once, and the end has its code"
IN_FORCE = "the name is the old one or the new, and no other's; what is stored of limits is what the kernel has"
EVERY_BYTE = "no byte of the output is lost or doubled, and no code is lost"


@dataclass(frozen=True, slots=True)
class Case:
    victim: str
    moment: str

    @property
    def victims(self) -> tuple[str, ...]:
        return tuple(self.victim.split("+"))

    def __str__(self) -> str:
        return f"{self.victim} at {self.moment}"


Few = int | tuple[Case, ...] | Callable[[Sequence[Case]], Sequence[Case]]


def these(*words: str) -> tuple[Case, ...]:
    """`exitd at create.before`, ..."""
    return tuple(Case(*word.split(" at ")) for word in words)


def light(cases: Sequence[Case]) -> list[Case]:
    """As the light squares of a chess board: every victim and every moment, but not each with each."""
    return [case for case, is_light in zip(cases, _lights(cases), strict=True) if is_light]


def dark(cases: Sequence[Case]) -> list[Case]:
    """The others."""
    return [case for case, is_light in zip(cases, _lights(cases), strict=True) if not is_light]


def some(count: int, of: Callable[[Sequence[Case]], Sequence[Case]]) -> Callable[[Sequence[Case]], Sequence[Case]]:
    return lambda cases: random.Random(SEED).sample(of(cases), count)


def _lights(cases: Sequence[Case]) -> list[bool]:
    victims, moments = list(dict.fromkeys(c.victim for c in cases)), list(dict.fromkeys(c.moment for c in cases))
    return [(victims.index(case.victim) + moments.index(case.moment)) % 2 == 1 for case in cases]


@dataclass(frozen=True, slots=True)
class Row:
    """`file`: of this folder, where the path is lived and judged."""

    file: str
    victims: tuple[str, ...]
    moments: tuple[str, ...]
    holds: str
    few: Few = 0  # all of them
    deed: str = "killed"

    @property
    def cases(self) -> list[Case]:
        """What is tried at this scale. Of calls, which are learned first, `calls.chosen` takes `count`."""
        every = [Case(victim, moment) for victim in self.victims for moment in self.moments]
        if SCALE >= 1 or not self.few:
            return every
        if isinstance(self.few, int):
            return random.Random(SEED).sample(every, self.few)
        chosen = self.few if isinstance(self.few, tuple) else self.few(every)
        assert set(chosen) <= set(every), f"not of this row: {sorted(map(str, set(chosen) - set(every)))}"
        return list(chosen)

    @property
    def count(self) -> int:
        """How many calls are tried at less than full scale."""
        assert self.moments == (EACH_CALL,) and isinstance(self.few, int)
        return self.few


def pause_before_or_member_after(cases: Sequence[Case]) -> list[Case]:
    return [case for case in cases if case.moment.startswith("pause") == case.moment.endswith("before")]


def pause_after_or_member_before(cases: Sequence[Case]) -> list[Case]:
    return [case for case in cases if case.moment.startswith("pause") == case.moment.endswith("after")]


EXITD = ("exitd",)
CALLS = (EACH_CALL,)
OF_DELETE = tuple(moment for moment in POD_COMMANDS if "delete" in moment)
# Whether exitd is there again before the command goes on, or not.
AND_BACK = tuple(f"{command}{back}" for command in COMMANDS for back in ("", " and back"))
EXEC_AND_BACK = ("exec.before", "exec.before and back", "exec.after", "exec.after and back")
WORD, EVENT = "between its word and the answer", "between its event and the answer"
RELAYS_STEPS = (WORD, EVENT)
AROUND_THE_WRITE = ("before the write", "after the write", "after the answer", "after the database")
# Of an exec: its program has not begun; it runs, and no pid is written; that is written, and not read; it has ended.
MAKING = ("before", "begun", "written", "ended")
MAKERS = (
    *("runtime", "shim", "exitd", "keeper", "shim+exitd", "runtime+exitd", "keeper+shim", "keeper+runtime"),
    "keeper+shim+exitd",
)
MAKERS_FEW = these(
    *("runtime at before", "runtime at begun", "shim at before", "shim at begun", "shim at written", "shim at ended"),
    *("exitd at begun", "shim+exitd at begun", "shim+exitd at written", "shim+exitd at ended", "keeper at begun"),
    *("keeper+shim at begun", "keeper+runtime at begun", "keeper+shim+exitd at ended"),
)
TASK_MAKERS = ("shim", "exitd", "keeper", "relay", "shim+exitd", "keeper+shim")  # a relay's death ends its tasks
TASK_FEW = these("exitd at before", "exitd at begun", "shim at begun", "shim at runs", "shim+exitd at ended")
TASK_FEW += these("keeper+shim at begun", "keeper+shim at runs", "relay at begun", "relay at runs")
WITH_RUNTIME = ("runtime", "shim+runtime", "runtime+exitd")
# A stopped monitor costs its limit each time: one case of each kind.
STOPS = these(
    *(f"exitd at {command}" for command in COMMANDS),
    *("keeper at create.before", "keeper at delete.before"),
    *("shim at create.after", "shim at start.after", "shim at delete.after"),
    *("runtime at create.after", "runtime at start.after", "runtime at delete.before"),
    *("init at start.before", "init at start.after"),
)

OF_PLUGINS = tuple(
    f"{plugin}-{verb}.{side}"
    for plugin in ("bridge", "host-local", "portmap")
    for verb in ("ADD", "DEL")
    for side in ("before", "after")
)
OF_THE_SECOND = ("bridge-ADD-eth1.before", "bridge-ADD-eth1.after", "bridge-DEL-eth0.before")  # between two networks
PLUGINS_FEW = these(
    *("exitd at bridge-ADD.before", "exitd at bridge-ADD-eth1.after", "exitd at bridge-DEL-eth0.before"),
    *("exitd at host-local-ADD.before", "exitd at portmap-ADD.after"),
    *("exitd at portmap-DEL.before", "exitd at host-local-DEL.after", "exitd at bridge-DEL.after"),
)

CONTAINER, POD, EXEC, TASK = "test_container_commands.py", "test_pod.py", "test_exec.py", "test_task.py"
MONITORS, MEMBERS, RUNNING = "test_monitors.py", "test_pod_members.py", "test_exec_running.py"

MATRIX: dict[str, Row] = {
    # A container: created, started, ended by itself, removed.
    "container": Row(CONTAINER, ONE_OF, COMMANDS, TRUE, few=light),
    "container, two die": Row(CONTAINER, TWO_OF, COMMANDS, TRUE_OR_UNKNOWN, few=some(7, of=list)),
    "container, restarted by its policy": Row(CONTAINER, ONE_OF, COMMANDS, TRUE, few=some(9, of=dark)),
    "container, one stands still": Row(CONTAINER, ONE_OF, COMMANDS, TRUE, few=STOPS, deed="stopped"),
    "container, at calls": Row("test_container_calls.py", EXITD, CALLS, TRUE, few=9),
    "container, stopped at calls": Row("test_container_calls.py", EXITD, CALLS, TRUE, few=4, deed="stopped"),
    "an end by a probe, at calls": Row("test_probe_end.py", EXITD, CALLS, TRUE, few=6),
    # The one write by which an ordinary end comes onto the disk, and what follows it.
    "container, its end in the ring": Row("test_ring.py", EXITD, AROUND_THE_WRITE, TRUE),
    "container, its end in the ring while exitd stands still": Row(
        "test_ring.py", EXITD, ("at the write",), TRUE, deed="stopped"
    ),
    "many containers": Row("test_container_calls.py", ("exitd", "keeper", "shim"), (AT_RANDOM,), TRUE_OR_UNKNOWN),
    "pause and resume": Row("test_pausing.py", ("exitd", "runtime"), ("pause.after", "resume.after"), TRUE),
    # A container gets other limits; and another name, other limits and a stop.
    "update": Row("test_changing.py", ("exitd", "runtime", "init"), ("update.before", "update.after"), IN_FORCE),
    "changes, at calls": Row("test_changing.py", EXITD, CALLS, IN_FORCE, few=6),
    # A run without exitd: its shim and its keeper, at each system call of theirs.
    "run, its shim": Row(MONITORS, ("shim",), CALLS, TRUE),
    "run, its shim stands still": Row(MONITORS, ("shim",), CALLS, TRUE, deed="stopped"),
    "run, its keeper": Row(MONITORS, ("keeper",), CALLS, TRUE),
    "run, both": Row(MONITORS, ("keeper+shim",), CALLS, TRUE_OR_UNKNOWN),
    "run, between record and reaping": Row(MONITORS, ("shim", "shim+exitd"), ("second waitid",), TRUE),
    # Members join their pod's namespaces.
    "join": Row("test_join.py", ("shim",), CALLS, TRUE),
    # A shim that was started by hand is adopted.
    "adoption, at calls": Row("test_adoption.py", EXITD, CALLS, TRUE, few=6),
    "adoptions, many": Row("test_adoption.py", EXITD, (AT_RANDOM,), TRUE),
    "output": Row("test_output.py", ("shim",), (EACH_CALL, AT_RANDOM), EVERY_BYTE),
    "input": Row("test_output.py", ("shim",), (AT_RANDOM,), EVERY_BYTE),
    "attached": Row("test_attach.py", ("shim", "exitd", "shim+exitd"), ("runs",), EVERY_BYTE),
    # One death after the other: K is the keeper's, S the shims', B both at once, D exitd's, U exitd's return, e the
    # containers' ends.
    "orders": Row(
        "test_orders.py",
        ("keeper", "shim", "exitd", "keeper+shim"),
        ("KSe", "KKSSKe", "DKSeU", "DKKSUe", "DKSUKSe", "DSeU", "SKe", "SKSe", "SKKSe", "Be", "BBBe", "DUBKSBe"),
        EVERY_BYTE,
    ),
    "orders, amid the output": Row("test_orders.py", ("keeper+shim",), (AT_RANDOM,), EVERY_BYTE),
    "orders, no other shim can begin": Row(
        "test_orders.py", ("keeper+shim",), ("while its program is away",), EVERY_BYTE
    ),
    # It has started a shim, and has not answered.
    "orders, a shim unanswered": Row("test_orders.py", ("keeper",), ("create", "exec", "replacement"), EVERY_BYTE),
    # A pod of a pause container and two members; the moments are of the pause container's commands or of a member's.
    "pod": Row(POD, EXITD, POD_COMMANDS, TRUE, few=pause_before_or_member_after),
    "pod, removed alive": Row(POD, EXITD, OF_DELETE, TRUE),
    "pod, pause dead": Row(POD, EXITD, OF_DELETE, TRUE),
    "pod, coming back": Row(POD, EXITD, POD_COMMANDS, TRUE, few=pause_after_or_member_before),
    "pod, half removed": Row(POD, EXITD, ("member delete.before",), TRUE),
    "pod, pause and exitd": Row(POD, ("pause+exitd",), ("runs",), TRUE),
    "pod, at calls": Row(POD, EXITD, CALLS, TRUE, few=7),
    "pod, while it is run": Row(MEMBERS, ("pause",), ("create.after", "start.before", "start.after"), TRUE),
    "pod, a member is created": Row(MEMBERS, ("pause",), ("create.before", "create.after"), TRUE),
    "pod, a member is started": Row(MEMBERS, ("pause",), ("start.before", "start.after"), TRUE),
    "pod, its monitors": Row(MEMBERS, ("shim", "keeper"), (AT_RANDOM,), TRUE),
    # An exec: made by its shim and the runtime's `exec`, run, ended.
    "exec": Row(EXEC, MAKERS, MAKING, TRUE_OR_UNKNOWN, few=MAKERS_FEW),
    "exec, host's pids": Row(
        EXEC, MAKERS, MAKING, TRUE, few=these("runtime at begun", "shim at begun", "shim+exitd at ended")
    ),
    "exec, crun": Row(
        *(EXEC, MAKERS, MAKING, TRUE_OR_UNKNOWN),
        few=these("runtime at begun", "runtime at ended", "shim at begun", "shim at ended", "keeper+shim at ended"),
    ),
    "exec, running": Row(RUNNING, ("shim", "exitd", "shim+exitd"), ("runs", "ends", "its limit"), TRUE),
    "exec, stands still": Row(RUNNING, ("shim",), ("runs",), TRUE, deed="stopped"),
    "execs, many": Row(RUNNING, EXITD, (AT_RANDOM,), TRUE),
    # A container in a network of CNI, with a published port; the moments are its plugins'. No address, interface,
    # namespace and rule is left.
    "network": Row("test_network.py", EXITD, (*OF_PLUGINS, *OF_THE_SECOND), TRUE, few=PLUGINS_FEW),
    "network, exitd is stopped": Row(
        "test_network.py", EXITD, ("iptables-DEL.before", "host-local-DEL.after"), TRUE, deed="ended by SIGTERM"
    ),
    "network, at calls": Row("test_network.py", EXITD, CALLS, TRUE, few=5),
    "network, users of its own, at calls": Row("test_network.py", EXITD, CALLS, TRUE, few=3),
    # An image: fetched, a container made on it, that removed, the image removed.
    "image, at calls": Row("test_image.py", EXITD, CALLS, WHOLE, few=9),
    "image, at steps": Row("test_image_steps.py", ("image store",), ("each line of its code",), WHOLE),
    "images, many clients": Row("test_image.py", EXITD, (AT_RANDOM,), WHOLE),
    # Files of containers: an image made of one, and a new volume that gets what the image has there.
    "commit, at calls": Row("test_files.py", EXITD, CALLS, FROZEN, few=4),
    "volume fill, at calls": Row("test_files.py", EXITD, CALLS, FILLED, few=4),
    # A named volume: made, written, read by the next container, refused while in use, removed.
    "volume, at calls": Row("test_volume.py", EXITD, CALLS, KEPT, few=5),
    # A task of a real containerd, by ctr: run, an exec, paused, resumed, ended, deleted.
    "task": Row(TASK, EXITD, AND_BACK, UNNOTICED, few=2),
    "task, at calls": Row(TASK, EXITD, CALLS, UNNOTICED, few=3),
    "task, an exec": Row(TASK, EXITD, EXEC_AND_BACK, UNNOTICED),
    "task, an exec at calls": Row(TASK, EXITD, CALLS, UNNOTICED, few=4),
    "task, containerd dies too": Row(TASK, ("exitd stopped+containerd",), ("runs",), UNNOTICED, deed="stopped"),
    "task, its exec's makers": Row(
        "test_task_exec.py", TASK_MAKERS, ("before", "begun", "ended", "runs"), TRUE_OR_UNKNOWN, few=TASK_FEW
    ),
    "task, its exec's runtime": Row(
        "test_task_exec.py",
        WITH_RUNTIME,
        ("before", "begun", "ended"),
        TRUE_OR_UNKNOWN,
        few=these("runtime at before", "runtime at begun"),
    ),
    "task, hanging create": Row("test_task_making.py", ("relay",), ("create.before", "create.after"), TRUE),
    "task, hanging create's others": Row("test_task_making.py", ("client", "init"), ("create.after",), TRUE),
    "task, around its life": Row(
        "test_task_making.py", ("containerd", "relay"), ("before its create", "after its delete"), TRUE
    ),
    "task, its end while exitd is away": Row(
        "test_task_away.py", ("relay", "containerd"), ("after its end", "after its wait", "after its delete"), TRUE
    ),
    # In steps of the relay's own: it has left exitd word in STATE/shimv2/gone, and has not answered the Delete; it has
    # sent an event, and has not read containerd's answer.
    "task, its end while exitd is away, in the relay's steps": Row("test_task_away.py", ("relay",), RELAYS_STEPS, TRUE),
    "task, its end while exitd is away, the relay stands still": Row(
        "test_task_away.py", ("relay",), RELAYS_STEPS, UNNOTICED, deed="stopped"
    ),
    "task, its exec's end while exitd is away": Row(
        "test_task_away.py", ("relay",), ("after its end", "after its wait", "after its delete"), TRUE
    ),
    "task, a relay's request": Row(
        "test_task_requests.py", EXITD, ("0 ms", "5 ms", "15 ms", "40 ms"), "each request is answered once, done once"
    ),
    # A pod whose sandbox containerd leaves to exitd, and a task in it.
    "pod of containerd's, at calls": Row("test_sandbox_calls.py", EXITD, CALLS, UNNOTICED, few=5),
    "pod of containerd's, its end while exitd is away": Row(
        "test_sandbox_away.py", ("relay",), ("after its end", "after its wait", WORD, "after its shutdown"), TRUE
    ),
    # A container under containerd's own shim for runc.
    "foreign shim, at calls": Row("test_foreign_shim.py", EXITD, CALLS, TRUE, few=8),
    "foreign shims": Row("test_foreign_shim.py", ("exitd", "shim"), (AT_RANDOM,), TRUE_OR_UNKNOWN),
    # A process that exitd only watches.
    "watched, at calls": Row("test_watched.py", EXITD, CALLS, TRUE_OR_UNKNOWN, few=7),
}


def row(path: str) -> Row:
    return MATRIX[path]


def cases(path: str) -> list[Case]:
    return MATRIX[path].cases
