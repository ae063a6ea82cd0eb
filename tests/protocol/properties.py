"""What must hold in every state, and what every way must come to once nothing goes wrong any more."""

from tests.protocol.state import CLEAN, UP, Database, Exit, State
from tests.protocol.step import Rules, Wrong


def check(s: State) -> None:
    """Raises Wrong."""
    _answers_survive(s)
    _once(s)
    _events(s)
    _relay(s)


def _answers_survive(s: State) -> None:
    flushed = s.versions[0]
    for end in s.told:
        if end not in flushed.exits and not _is_in_ring(s, flushed, end):
            raise Wrong("what a client was answered would not survive a power cut")
    for event in s.heard:
        if event not in flushed.events and not _has_event(s, flushed, event[0]):
            raise Wrong("what a subscriber has received would not survive a power cut")


def _is_in_ring(s: State, db: Database, end: Exit) -> bool:
    page = s.page
    return page is not None and page.is_safe and page.number > db.mark and page.number != db.void and page.end == end


def _has_event(s: State, db: Database, seq: int) -> bool:
    page = s.page
    return page is not None and page.seq == seq and _is_in_ring(s, db, page.end)


def _once(s: State) -> None:
    for exits in (s.told, s.versions[-1].exits, s.told | s.versions[-1].exits):
        if len({end[:2] for end in exits}) < len(exits):
            raise Wrong("an end is reported twice, and differently")
    for at, run in enumerate(s.runs):
        for end in s.told:
            if run.life and end[:2] == (at, run.number) and end[2] not in (0, run.life):
                raise Wrong("an end is reported with a code that is not its own")


def _events(s: State) -> None:
    stored = s.versions[-1].events
    if len({event[0] for event in s.heard | stored}) < len(s.heard | stored):
        raise Wrong("an event's number is given twice")
    if any(event[0] <= s.cursor and event not in s.heard for event in stored):
        raise Wrong("an event has come behind a subscriber that had passed its number")
    exits = [event[2:4] for event in s.heard if event[1] == "exit"]
    if len(set(exits)) < len(exits):
        raise Wrong("a subscriber has received an end twice")


def _relay(s: State) -> None:
    r, run = s.relay, s.runs[0]
    if not r.heard and not r.answered:
        return
    told = {end[2] for end in s.told if end[:2] == (0, run.number)}
    for value in (*r.heard, *r.answered):
        if value not in (0, run.life):
            raise Wrong("the relay reports a code that is not the end's own")
        if told and value not in told and not (r.has_died and value == 0):
            raise Wrong("the relay reports another end than exitd")
        if not told and value == 0 and not r.has_died:
            raise Wrong("the relay reports an end as unknown, which is exitd's to say")
    if len(r.heard) > 1 and not r.has_died:
        raise Wrong("containerd has an end twice, though its relay lives")


def is_settled(s: State, rules: Rules) -> bool:
    """Whether everything that has begun has been reported, everywhere."""
    reported = {end[:2] for end in s.told}
    heard = {event[2:4] for event in s.heard if event[1] == "exit"}
    runs = range(1, rules.bound.runs + 1)
    wanted = {(at, number) for at in range(rules.bound.containers) for number in runs}
    if s.exitd != UP or any(run.phase != CLEAN or run.number != rules.bound.runs for run in s.runs):
        return False
    has_told_containerd = not rules.bound.has_relay or s.relay.is_noted or s.relay.is_deleted
    return (
        reported == wanted and heard == wanted and has_told_containerd and (not s.relay.has_died or bool(s.relay.heard))
    )
