"""What other engines say of an end when a daemon or a monitor has died, as a section of docs/reliability.md. Pure.

Read in their sources at the commits below and in their users' threads; measured is only what docs/comparison.md has.
"""

from shim.frozen import frozen

SOURCES = (
    ("conmon", "c3f70a3"),
    ("conmon-rs", "3f0abb3"),
    ("podman", "c6580b4"),
    ("CRI-O", "f954a17"),
    ("containerd", "301026e"),
    ("rust-extensions (its shim in Rust)", "6fb72d3"),
    ("iSulad", "fd0fcf8"),
)
HEAD = ("What happens", "conmon, with podman or CRI-O", "containerd", "iSulad", "exitd")


@frozen
class Row:
    """One misfortune, and what becomes of the code and of the container."""

    what: str
    conmon: str
    containerd: str
    isulad: str
    exitd: str

    def cells(self) -> tuple[str, ...]:
        return self.what, self.conmon, self.containerd, self.isulad, self.exitd


ROWS = (
    Row(
        "the monitor (conmon, shim) is killed, its container lives",
        "Nobody waits for the container any more. podman says -1 later, fails to remove it at first, and its restart"
        " policy does not act (podman#439, #6520, #14937); CRI-O says 255, logs it, and counts it in a metric. With"
        " conmon-rs all containers of the pod lose their monitor.",
        "The container is killed by `shim delete`, and 137 is reported, a constant, or 255; users take it for a kill"
        " (containerd#8381). The shim in Rust does likewise. Docker showed such a container as running (moby#43491).",
        "The exit fifo ends without a number, which counts as 137; the daemon kills the container.",
        "The container goes on. The keeper, its parent now, or the kernel has its code; a new shim takes its output.",
    ),
    Row(
        "a container ends while the daemon is away",
        "podman has no daemon. For CRI-O conmon leaves the code in a file, which is read at the next start; events"
        " are not repeated.",
        "The shim has the code in its memory, and the next daemon asks it. The event is tried five times in some 21 s"
        " and dropped; what waited for it did not happen (containerd#6771, #10515).",
        "The fifo has no reader: 255 at the next start, dated then.",
        "The record is on the disk; the next daemon reports it with its code and its time, once.",
    ),
    Row(
        "the daemon is away, the monitor is killed, then the container ends",
        "No exit file: -1 (podman), 255 (CRI-O).",
        "The next daemon finds the shim dead and cleans up behind it: 137 or 255 (containerd#705). Docker could not"
        " stop what was left (moby#26374).",
        "255; if the container still lives, the next daemon kills it.",
        "The keeper's journal has the code. If the keeper was killed, too, the end is `unknown`, `monitors-killed`,"
        " on a kernel or in a moment in which no other witness saw it.",
    ),
    Row(
        "the monitor stands still",
        "Right once it goes on (measured, comparison.md).",
        "Right once it goes on (measured, comparison.md). A daemon that starts meanwhile waited for it without limit"
        " (containerd#13848).",
        "Not known.",
        "Another witness is asked after two seconds; a start does not wait.",
    ),
    Row(
        "the code cannot be written: full disk",
        "conmon cannot write its file, and the code is lost; podman's state was left inconsistent (podman#19943), and"
        " a full log took the monitor with it (cri-o#9274).",
        "Unaffected: it stores nothing.",
        "The code is in the fifo alone; whether the daemon's own files fail was not looked at.",
        "Nobody is answered before it is stored; it is kept, and stored when there is room.",
    ),
    Row(
        "the monitor is not the container's parent",
        "conmon reports 0 where it has no child to wait for and the process is gone (openwrt/packages#30306: 0 for a"
        " program that exited 42).",
        "A second waiter in another shim of its kind stored 0 (cpuguy83/containerd-shim-systemd-v1#26).",
        "The shim waits for a child that never comes, and no exit is reported.",
        "No number without a witness: `unknown`, with its cause.",
    ),
    Row(
        "the host is rebooted under a container",
        "CRI-O keeps the files over a reboot, and that there is none is not 0 (cri-o#3041, #3045).",
        "Docker showed 0, so that `on-failure` did not restart it (kubernetes#41516, distribution#3945); later 255"
        " (moby#45800).",
        "255.",
        "`unknown`, `host-rebooted`; it counts as a failure for the restart policy.",
    ),
)
TITLE = "## Beside others, when a daemon or a monitor dies\n"
INTRODUCTION = """The others were not under this attack. What stands here of them was read in their sources and in the
threads of their users, whose versions differ; some of it may be mended by now. Where it was measured, it says so:
[comparison.md](comparison.md) kills and stops one process of each way at one end, and there containerd's 137 and the
end that is lost without conmon were seen. exitd's column is what the tables above count, and
[architecture.md](architecture.md) names the test of each promise.

The sources: {sources}.
"""
FAIRNESS = """Two things are not in exitd's favour. The ends that the tables above call `unknown` are lost for exitd,
too; it says so and invents nothing. And who stores nothing has nothing to wait for: containerd answers while a disk is
full or slow, and exitd does not.
"""


def introduction() -> str:
    return INTRODUCTION.format(sources=", ".join(f"{name} {commit}" for name, commit in SOURCES))
