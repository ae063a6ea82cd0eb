"""Files of tests/system that run in the machine: which of them, and what has become of their tests.

What depends on the cgroups always runs, with each cgroup driver and each runtime; which of the drivers has which of the
runtimes a seed says, that is printed. Of the other files it chooses as many as asked for.
"""

import json
import os
import pathlib
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass

from tests.vm.machine import Machine

SYSTEM = pathlib.Path(__file__).resolve().parents[1] / "system"
# By name: files of tests/system, and pytest's expression for which of their tests.
GROUPS = {
    "memory": (("test_memory.py", "test_memory_live.py"), ""),
    "pause": (
        (
            "test_pause.py",
            "kill_matrix/test_pausing.py",
            "test_ends.py",
            "test_stops.py",
            "test_cli.py",
            "test_health.py",
        ),
        "paus or frozen",
    ),
    "stats": (("test_shimv2.py", "test_container_verbs.py"), "stats or cgroup"),
    "limits": (
        (
            *("test_rights.py", "test_pods.py", "test_pods_cli.py", "test_play_security.py", "test_oci_spec.py"),
            *("test_exec.py", "test_limits.py", "test_changes.py"),
        ),
        "(limit or bomb or memory_kill or update) and not containerd",
    ),
    "exec": (("test_exec.py", "kill_matrix/test_exec_running.py"), "not thousands"),
    "rest": (("test_rest.py", "test_rest_kinds.py", "test_stops.py"), "not frozen"),
}
# Whose containers' cgroups are named by bundles, for no driver of exitd's.
BY_HAND: dict[str, tuple[tuple[str, ...], str]] = {"byhand": (("test_exec_byhand.py",), "")}
RUNTIMES = ("runc", "crun")
SYSTEMD, CGROUPFS = DRIVERS = ("systemd", "cgroupfs")
SEED = int(os.environ.get("EXITD_VM_SEED") or time.time_ns() % 1_000_000)
CHOSEN = int(os.environ.get("EXITD_VM_FILES") or 4)
ALL_PAIRS = bool(os.environ.get("EXITD_VM_PAIRS"))
# What the machine has not, or is about another machine: by the beginning of the file's name.
UNFIT = {
    "test_containerd": "containerd is not in the machine",
    "test_watch_containerd": "containerd is not in the machine",
    "test_docs_containerd": "containerd is not in the machine",
    "test_docs_watch": "containerd is not in the machine",
    "test_shimclient": "containerd's shim is not in the machine",
    "test_docs_shimv2": "containerd's shim is not in the machine",
    "test_completion": "zsh and fish are not in the machine",
    "test_images": "skopeo and umoci are not in the machine",
    "test_upgrade": "earlier versions are built from the history, which is not in the machine",
    "test_bench": "figures of a machine that counts instructions mean nothing",
    "test_compare": "figures of a machine that counts instructions mean nothing",
    "test_attack": "takes hours",
    "test_complaints_crowd": "containerd is not in the machine",
    "test_metrics_watched": "containerd is not in the machine",
    "test_node_shutdown": "containerd is not in the machine",
    "test_sandbox": "containerd is not in the machine",
    "test_security_page": "containerd is not in the machine",
    "test_storm": "containerd is not in the machine",
    "test_lean_start": "containerd's shim is not in the machine",
    "test_never_began": "containerd's shim is not in the machine",
    "test_races": "a hundred containers at once need more memory than the machine has",
    "test_commit": "skopeo and umoci are not in the machine",
    "test_programs": "java is not in the machine",
    "kill_matrix/test_sandbox": "containerd is not in the machine",
    "kill_matrix/test_task": "containerd is not in the machine",
    "kill_matrix/test_foreign_shim": "containerd's shim is not in the machine",
    "kill_matrix/test_image": "skopeo and umoci are not in the machine",
}
GUEST_SECONDS = 900.0  # by the machine's clock, for one file; it is cut off then
PROCESSOR_SECONDS = 7200.0  # of QEMU's, for the same: a machine that stands still
OUTCOMES = "/run/outcomes"
PYTHON = "/opt/tests/bin/python"
# A service of its own, which takes everything along at its end.
SERVICE = (
    *("--pipe", "--wait", "--collect", "--quiet", "--working-directory=/opt/tree", "--slice=tests.slice"),
    *("--property=TasksMax=infinity", "--property=LimitNOFILE=1048576", "--property=Delegate=yes"),
    "--setenv=PATH=/opt/tests/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
)
GOOD = ("passed", "skipped")  # what the machine cannot be asked; the reason is in the outcome
BEGUN = "begun"  # what has not ended
# The containers of a test that was cut off are in cgroups beside that of the service: they would take the next tests'
# memory.
END_CONTAINERS = "systemctl stop exitd.slice; echo 1 >/sys/fs/cgroup/exitd/cgroup.kill"


@dataclass(frozen=True)
class Outcome:
    """What became of one test. `seconds` by the machine's clock."""

    test: str
    outcome: str
    seconds: float
    why: str


def fitting() -> list[str]:
    """The files of which some are chosen."""
    names = sorted(str(path.relative_to(SYSTEM)) for path in SYSTEM.rglob("test_*.py"))
    always = {file for files, _ in (GROUPS | BY_HAND).values() for file in files}
    return [name for name in names if name not in always and not name.startswith(tuple(UNFIT))]


def chosen(seed: int = SEED, count: int = CHOSEN) -> list[str]:
    """The same for a seed as long as no file comes or goes."""
    names = fitting()
    return random.Random(seed).sample(names, min(count, len(names)))


def pairs(driver: str, seed: int = SEED, all_pairs: bool = ALL_PAIRS) -> list[tuple[str, str]]:
    """Runtime and group, of what runs with a driver. A seed gives a group each driver and each runtime once, and the
    next seed the other way around."""
    groups = GROUPS if driver == SYSTEMD else GROUPS | BY_HAND
    found = []
    for number, group in enumerate(groups):
        turn = (seed + number + DRIVERS.index(driver)) % len(RUNTIMES)
        found += [(runtime, group) for runtime in (RUNTIMES if all_pairs else RUNTIMES[turn : turn + 1])]
    return found


def read(text: str) -> list[Outcome]:
    """The last line of each test counts: one of which it is `begun` was cut off."""
    found = {}
    for line in text.splitlines():
        one = json.loads(line)
        found[one["test"]] = Outcome(one["test"], one["outcome"], one["seconds"], one["why"])
    return list(found.values())


def run(machine: Machine, files: Sequence[str], which: str = "", options: Sequence[str] = ()) -> list[Outcome]:
    """Run files; `options` are exitd's."""
    service = (
        *SERVICE,
        f"--property=RuntimeMaxSec={GUEST_SECONDS:g}",
        *(f"--setenv=EXITD_VM_OUTCOMES={OUTCOMES}", f"--setenv=EXITD_TEST_OPTIONS={' '.join(options)}"),
    )
    words = (PYTHON, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "tests.vm.guest.outcomes")
    machine.say("rm", "-f", OUTCOMES)
    selected = ("-k", which) if which else ()
    paths = [f"tests/system/{file}" for file in files]
    done = machine.run("systemd-run", *service, *words, *selected, *paths, seconds=PROCESSOR_SECONDS)
    text = machine.run("cat", OUTCOMES)
    found = read(text.out) if text.status == 0 else []
    if any(one.outcome == BEGUN for one in found):
        machine.run("sh", "-c", END_CONTAINERS)
    if done.status and all(one.outcome in (*GOOD, BEGUN) for one in found):
        found.append(
            Outcome(" ".join(files), "failed", 0.0, f"status {done.status}: {done.out[-2000:]}{done.err[-2000:]}")
        )
    return found
