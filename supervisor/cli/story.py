"""`exitctl why`: one end as a short story, from the messages alone."""

from collections.abc import Sequence

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api.answers import status_of
from supervisor.cli import spoken
from supervisor.cli.shape import time_text
from supervisor.model.values import Exited, Signaled, Unknown, is_own_doing
from supervisor.model.watched import FOREIGN

WITNESSES = {
    "record": "Its shim, the parent process, saw the end and wrote it down before anything else.",
    "fifo": "Its shim sent the number through the exit fifo; the shim's written record could not be read.",
    "keeper": "Its shim had died first; the keeper inherited the process, saw the end and wrote it in its journal.",
    "zombie": "Its parent did not reap it (stopped or traced), so exitd read the wait status from the dead process "
    "itself, in /proc.",
    "pidfd": "No witness of the end was left; the kernel itself reported the status through the pidfd that exitd held.",
    "procevents": "No witness of the end was left; the kernel's process events, to which exitd listens, reported the "
    "status.",
    "shimv2-wait": "Its shim answered the Wait that exitd had open.",
    "shimv2-event": "Its shim sent a TaskExit event; the Wait that exitd had open was not answered.",
    "shimv2-delete": "Its shim was gone. The number is what the shim's delete command printed, which saw no end.",
    "none": "No witness of the end was left, so how it ended is not known. exitd makes up no number.",
}

# For processes that exitd only watches: they have no shim and no keeper.
WATCHED = {
    "pidfd": "exitd only watched it: the kernel itself reported the status through the pidfd that exitd held.",
    "procevents": "exitd only watched it: the kernel's process events reported the status.",
    "none": "exitd only watched it, and could not see its end. exitd makes up no number.",
}

CAUSES = {
    "watcher-away": "exitd was not running when it ended, and so could not see it",
    "ended-before-watch": "it began and ended before exitd could look at it",
    "kernel-did-not-tell": "exitd watched it, but the kernel did not report how it ended",
    "monitors-killed": "its shim was gone, no keeper had it, and the kernel did not report how it ended to anyone else",
    "journal-unread": "its shim was gone, and what the keeper had written about its end could not be read",
    "record-unread": "its shim was gone, and what it had written about its end could not be read",
    "empty-record": "its shim's record has neither a code nor a signal of it",
    "fifo-number-only": "its shim left one number for codes and signals, and no record that says which it was",
    "shim-lost": "its shim had died, and what was left of the container was deleted",
    "never-started": "its program was never executed, so that no number is its code",
    "shim-lost-undeleted": "its shim had died, and the shim's delete failed, so that it may have run on after that",
    "shim-number-only": "its shim reports one number for codes and signals, and the kernel did not report which it was",
    "shim-255": "its shim reports 255 for a program that exited with it, and for one whose end it has lost, as with "
    "its virtual machine",
    "shim-number-impossible": "its shim reported a number with which no process can end",
    "state-lost": "the state directory was lost, and with it every witness; exitd ended what was left of it",
    "row-damaged": "what exitd had stored about it could not be read, and no other witness was left",
    "start-unconfirmed": "it is not known whether its program was executed, so no number is certain to be its code",
    "host-rebooted": "the host was restarted while it ran",
}

REASONS = {
    "self": "No client asked for it: the program ended by itself.",
    "stop": "It was asked to stop{by}.",
    "kill": "It was sent a signal on request{by}.",
    "oom": "The kernel killed it because the memory limit was reached.",
    "timeout": "exitd killed it because its time limit had passed{by}.",
    "health": "exitd ended it because its health check had failed{by}.",
    "pause-exit": "exitd stopped it because the pause container of its pod had ended{by}.",
    "node-shutdown": "exitd stopped it because the node was shutting down{by}.",
    "evicted": "exitd ended it because its pod had written more than it may{by}.",
    "unknown": "Who asked for it is not known.",
}

# Where no limit is stored: the machine's memory had run out, or a limit was reached that exitd did not set, as that of
# a task of containerd's or of a cgroup above it.
MEMORY_HAD_RUN_OUT = "The kernel killed it because memory had run out."

# Why exitd itself asked for it, where the reason does not say so.
POLICIES = {
    "last-member": "the last member of its pod had ended",
    "new-sandbox": "its pod has a new pause container",
    "start-failed": "its start had failed",
    "container-exit": "its container had ended",
    "startup-probe": "its startup probe had failed too often",
    "liveness-probe": "its liveness probe had failed too often",
    "post-start": "its postStart hook had failed",
    "active-deadline": "the time of its pod (activeDeadlineSeconds) was over",
    "size-limit": "an emptyDir of its pod had grown above its sizeLimit",
}

DECISIONS = {
    "ended": "The {who} does not start it again.",
    "none": "It has no restart policy: nothing starts it again.",
    "gone": "It was not started again.",
    "gave-up": "The {who} gave up after {restarts}.",
    "stopped": "The {who} does not start again what was stopped on request.",
    "succeeded": "The {who} does not start again what exited 0.",
    "next-boot": "The {who} starts nothing again before the next boot.",
    "restart": "The {who} starts it again.",
    "remove": "It was removed afterwards, as --rm asked; this entry of the ledger stays.",
}


def of(exit_: pb.Exit, container: pb.Container | None, log_lines: Sequence[str]) -> str:
    """Return the story of an exit: plain sentences, one a line. `container` is None if it has been removed; log lines
    are shown unchanged."""
    lines = [
        f"{_subject(exit_)} {_ending(exit_)}.",
        f"  {_when(exit_)}",
        f"  {_witness(exit_)}",
        f"  {_asked(exit_)}",
        *(f"  {line}" for line in _evicted(exit_, container)),
        *(f"  {line}" for line in _memory(exit_)),
        *(f"  {line}" for line in _left_behind(exit_)),
        *(f"  {line}" for line in _policy(exit_, container)),
        *([f"  Whether it was that container at all is not certain: {exit_.unverified}."] if exit_.unverified else []),
        *([f"  {_damage(container)}"] if container is not None and container.damaged else []),
    ]
    if log_lines:
        lines += ["  Its last words:", *(f"    | {_printable(line)}" for line in log_lines)]
    return "\n".join(lines) + "\n"


def not_ended(container: pb.Container, now_ns: int) -> str:
    """Describe a container without any end so far."""
    name = container.spec.name or container.id[: spoken.SHORT_ID]
    state = spoken.status(container, now_ns)
    error = f" Its last error: {container.error}." if container.error else ""
    damage = f" {_damage(container)}" if container.damaged else ""
    return f"{name} has not ended yet ({state}).{error}{damage}\n"


def _damage(container: pb.Container) -> str:
    """Describe a container that was recovered from the readable part of its row."""
    words = f"Damaged: {container.damaged}. The rest is what exitd could recover"
    return f"{words}; `exitctl rm -f {container.id[: spoken.SHORT_ID]}` removes it."


def _witness(exit_: pb.Exit) -> str:
    watched = WATCHED.get(exit_.source) if FOREIGN in exit_.container_id else None
    return watched or WITNESSES.get(exit_.source, f"The source of this is {exit_.source!r}.")


def _subject(exit_: pb.Exit) -> str:
    what = f"exec {exit_.exec_id} of " if exit_.exec_id else ""
    where = f" ({spoken.short_id(exit_.container_id)})" if FOREIGN in exit_.container_id else ""
    return f"{what}{exit_.name or exit_.container_id[: spoken.SHORT_ID]}{where}, run {exit_.run},"


def _ending(exit_: pb.Exit) -> str:
    match status_of(exit_):
        case Exited(0):
            return "exited 0"
        case Exited(code):
            return f"exited {code}{_code_hint(code)}"
        case Signaled(number, core):
            dump = " and dumped core" if core else ""
            return f"was ended by signal {number} ({spoken.signal_name(number)}){dump}"
        case Unknown(cause, number):
            why = CAUSES.get(cause, cause) or "no cause was recorded"
            beside = f"; the number {number} was seen, which proves nothing" if number is not None else ""
            return f"ended, and how is unknown: {why}{beside}"


def _code_hint(code: int) -> str:
    if code in (126, 127):
        return " (what a shell reports for a command it could not execute or find)"
    if 128 < code <= 128 + 64:
        return f" (its own code, not a signal; shells say so when a child died of {spoken.signal_name(code - 128)})"
    return ""


def _when(exit_: pb.Exit) -> str:
    is_found = exit_.at_is_found or exit_.source == "none"
    text = f"It {'was found ended' if is_found else 'ended'} at {time_text(exit_.at)}"
    if not exit_.HasField("started_at"):
        return f"{text}."
    lasted = spoken.nanoseconds(exit_.at) - spoken.nanoseconds(exit_.started_at)
    if lasted < 0:
        return f"{text}; it had started at {time_text(exit_.started_at)} by a clock that was set back since."
    return f"{text}, {spoken.precise(lasted)} after its start at {time_text(exit_.started_at)}."


def _asked(exit_: pb.Exit) -> str:
    status = status_of(exit_)
    if exit_.reason in ("self", "unknown") and isinstance(status, Signaled) and not is_own_doing(status):
        return "No client asked exitd for it: the signal came from elsewhere on this host, or from within."
    if exit_.reason == "oom" and isinstance(status, Unknown):
        return f"Memory ran out in it, and {status.number} is the number of the signal that the kernel sends for that."
    if exit_.reason == "oom" and not exit_.oom.limit_bytes:
        return MEMORY_HAD_RUN_OUT
    if exit_.reason in ("health", "timeout", "evicted") and exit_.by.policy in POLICIES:
        return f"exitd ended it because {POLICIES[exit_.by.policy]}."
    sentence = REASONS.get(exit_.reason, f"The reason given is {exit_.reason or 'unknown'!r}{{by}}.")
    return sentence.format(by=_by(exit_.by, exit_.reason))


def _evicted(exit_: pb.Exit, container: pb.Container | None) -> list[str]:
    why = container.evicted if container is not None and exit_.reason == "evicted" else ""
    return [f"{why[:1].upper()}{why[1:]}."] if why else []


def _by(by: pb.By, reason: str) -> str:
    """Name who asked for it; nothing where the reason has named exitd already."""
    if by.policy:
        why = POLICIES.get(by.policy)
        return "" if by.policy == reason else f", by exitd: {why}" if why else f", by exitd's rule {by.policy}"
    uid = f"user {by.uid}" if by.HasField("uid") else ""
    pid = f"process {by.pid}" if by.HasField("pid") else ""
    return f", by {' in '.join(filter(None, (uid, pid)))}" if uid or pid else ""


def _memory(exit_: pb.Exit) -> list[str]:
    kills, limit = exit_.oom.kills, exit_.oom.limit_bytes
    if not exit_.oom.init and not kills:
        return []
    under = f" Its limit was {spoken.size(limit)}." if limit else ""
    if exit_.oom.init:
        others = f", one of {kills} processes killed in its cgroup" if kills > 1 else ""
        return [f"The victim of the memory shortage was its main process{others}.{under}"]
    if isinstance(status_of(exit_), Unknown):
        processes = "one process" if kills == 1 else f"{kills} processes"
        return [
            f"Memory ran out in it: {processes} of it killed; whether the main one was among them is not known.{under}"
        ]
    processes = "one other process" if kills == 1 else f"{kills} other processes"
    return [f"Memory ran out in its cgroup: {processes} of it killed, not the main one.{under}"]


def _left_behind(exit_: pb.Exit) -> list[str]:
    count = exit_.left_behind
    if not count:
        return []
    who = "One process that it left in its cgroup" if count == 1 else f"{count} processes that it left in its cgroup"
    return [f"{who} had not died half a second after SIGKILL, and may live on."]


def _policy(exit_: pb.Exit, container: pb.Container | None) -> list[str]:
    policy = (container.spec.restart if container is not None else "") or "no"
    on_failure = container.spec.health.on_failure if container is not None else ""
    who = "restart policy" if container is None else f"restart policy ({policy})"
    who = f"restart rule {exit_.rule!r}" if exit_.rule else who
    if exit_.reason == "health" and on_failure in ("restart", "stop"):
        who = f"health check (on failure {on_failure})"
    lines = []
    if exit_.decision:
        word, restarts = _decision(exit_, container, by_policy=who.startswith("restart policy"))
        lines.append(DECISIONS.get(word, f"What follows: {word}.").format(who=who, restarts=restarts))
    if container is None:
        if exit_.decision != "remove" and FOREIGN not in exit_.container_id:
            lines.append("The container itself has been removed since.")
    elif container.phase == pb.PHASE_RESTARTING and container.HasField("restart_at"):
        lines.append(f"Run {container.run + 1} is due at {time_text(container.restart_at)}.")
    elif container.run > exit_.run:
        lines.append(f"It is in run {container.run} now.")
    return lines


def _decision(exit_: pb.Exit, container: pb.Container | None, *, by_policy: bool) -> tuple[str, str]:
    """Return the word for what the policy decided, with its cause where that is known, and how many restarts there were
    if they are used up. `by_policy`: neither a rule nor a health check decided."""
    if exit_.decision != "ended" or not by_policy:
        return exit_.decision, ""
    if container is None:
        return "gone", ""  # with it went its policy
    policy = container.spec.restart.partition(":")[0] or "no"
    if restarts := _used_up(exit_, container):
        return "gave-up", restarts
    if policy == "no":
        return "none", ""
    if exit_.reason == "stop":
        return "stopped", ""
    if exit_.reason == "node-shutdown":
        return "next-boot", ""
    return ("succeeded" if policy == "on-failure" and status_of(exit_) == Exited(0) else "ended"), ""


def _used_up(exit_: pb.Exit, container: pb.Container) -> str:
    """Return the restarts that its policy allowed, if they are used up and nothing else kept it from another run; empty
    otherwise."""
    policy, _, limit = container.spec.restart.partition(":")
    asked_for = exit_.rule or exit_.reason not in ("self", "oom", "unknown")
    if policy != "on-failure" or not limit.isdecimal() or asked_for or container.run != exit_.run:
        return ""
    if exit_.decision != "ended" or status_of(exit_) == Exited(0) or not 0 < int(limit) <= container.restart_count:
        return ""
    return "1 restart" if int(limit) == 1 else f"{int(limit)} restarts"


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() or char == "\t" else "?" for char in text)
