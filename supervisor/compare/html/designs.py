"""The two designs in a few lines: who calls whom when a container starts, when it ends, when the daemon comes back."""

from collections.abc import Sequence

from supervisor.compare.html import pieces
from supervisor.compare.html.tags import Markup, join, tag

Step = tuple[str, str]  # the call, and what it is for
Part = tuple[str, Sequence[Step]]

_FIFO: Sequence[Part] = (
    (
        "A container starts",
        (
            ("open(exit_fifo, O_RDONLY | O_NONBLOCK)", "before anybody could write to it"),
            ("", "A shim is spawned for this one container; the pod's pause container has its own"),
            ("do_start_container", "asks the OCI runtime to start it"),
            ("container_supervisor_add_exit_monitor", "gives the open end to the one epoll of the daemon"),
            ("epoll_loop_add_handler", "from here a wait costs one descriptor, no thread and no call"),
        ),
    ),
    (
        "It ends",
        (
            ("waitid", "the shim is its parent and reaps it"),
            ("write(exit_fifo, 4 bytes)", "the exit code, as a C int"),
            ("epoll_wait", "wakes the daemon, which reads the code or sees that the writer has gone"),
        ),
    ),
    (
        "The daemon comes back",
        (
            ("", "Is its shim still there? By pid and start time, for each container"),
            ("open", "the fifo again"),
            ("epoll_loop_add_handler", "a wait is rebuilt with two system calls"),
        ),
    ),
)
_WAIT: Sequence[Part] = (
    (
        "A container starts",
        (
            ("shim start", "one shim for the pod; a member finds the socket of the shim that is there"),
            ("task.Create", "over that socket, by ttrpc"),
            ("task.Wait", "a call that stays open until the process has ended, with a goroutine behind it"),
            ("task.Start", "only now, so that no exit is missed"),
            ("startExitMonitor", "gives the pending answer to the event monitor"),
        ),
    ),
    (
        "It ends",
        (
            ("wait4", "the shim is a subreaper and reaps it"),
            ("task.Wait", "answers, and the shim publishes the event TaskExit"),
            ("eventMonitor", "brings the state up to date"),
            ("task.Delete", "and with the last container of the pod the shim ends"),
        ),
    ),
    (
        "The daemon comes back",
        (
            ("loadTasks", "reads the bundles and the address of each shim"),
            ("task.Connect", "for each container: a connection, and the shim's pid"),
            ("task.Wait", "again for each; a shim that does not answer is given up, with what it knew"),
        ),
    ),
)


def section() -> Markup:
    return pieces.section(
        "designs",
        "The two designs",
        tag(
            "p",
            "Both watch a container's first process through its parent, a small program that outlives the daemon. They "
            "differ in how many of these there are, and in how the daemon hears of the end.",
        ),
        pieces.pair(
            _calls(
                "Shim per container: fifo and epoll", _FIFO, "A pod of M members and a pause container: M + 1 shims."
            ),
            _calls("Shim per pod: Wait and Connect", _WAIT, "A pod of M members and a pause container: one shim."),
        ),
        pieces.soft(
            "Secure containers in their first form had a shim and a proxy of their own beside each container, "
            "2N\u00a0+\u00a01 processes in a pod of N; one binary per pod took the place of all of them. exitd keeps "
            "the fifo as the wake-up, and beside it a record that is written before anybody reaps, and a keeper above "
            "all shims."
        ),
    )


def _calls(title: str, parts: Sequence[Part], last: str) -> Markup:
    return tag("div", tag("h3", title), *(_part(*part) for part in parts), tag("p", last), class_="calls")


def _part(title: str, steps: Sequence[Step]) -> Markup:
    listed = (tag("li", tag("code", call) if call else "", f": {what}" if call else what) for call, what in steps)
    return join(tag("h3", title), tag("ol", *listed))
