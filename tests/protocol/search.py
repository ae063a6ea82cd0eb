"""Visits every state of the model within a bound, breadth first, and checks that each of them leads to its end."""

from collections import Counter
from collections.abc import Iterator
from itertools import chain

from shim.frozen import frozen, mutable
from tests.protocol import daemon, faults, processes, relay
from tests.protocol.properties import check, is_settled
from tests.protocol.state import CLEAN, DONE, LIVE, REAPED, SHIM, UP, Bound, Database, Relay, Row, Run, State
from tests.protocol.step import STEPS, Rules, Step, Wrong

assert all((daemon, faults, processes, relay))  # their steps are in STEPS
KINDS = ("another event", *(each.fault for each in STEPS.values() if each.fault))
FAULTS = tuple((KINDS.index(each.fault), each) for each in STEPS.values() if each.fault)


def own(is_up: bool, has_relay: bool) -> tuple[Step, ...]:
    """The protocol's own steps that may be possible with exitd up, or not, and with a relay, or not."""
    begins = ("exitd begins",)
    return tuple(
        each
        for each in STEPS.values()
        if not each.fault
        and (is_up or each.room != daemon.__name__ or each.name in begins)
        and (not is_up or each.name not in begins)
        and (has_relay or each.room != relay.__name__)
    )


OWN = {(is_up, has_relay): own(is_up, has_relay) for is_up in (False, True) for has_relay in (False, True)}


class Refused(Exception):
    """The protocol is wrong. `way`: the steps that lead there, from the first state on."""

    def __init__(self, why: str, way: list[str]) -> None:
        super().__init__(f"{why}:\n" + "\n".join(f"  {number}. {name}" for number, name in enumerate(way, 1)))
        self.why = why
        self.way = way


@frozen
class Found:
    """What a search has visited. `taken`: how often each step was possible."""

    states: int
    moves: int
    depth: int
    taken: Counter[str]


def first(rules: Rules) -> State:
    bound = rules.bound
    left = tuple(bound.faults.get(kind, 0) for kind in KINDS)
    if bound.from_end:
        runs = tuple(
            Run(1, at + 1, REAPED, SHIM, DONE, record=True, phase=LIVE, holds_pidfd=True)
            for at in range(bound.containers)
        )
        events = frozenset((at + 1, "start", at, 1, 0) for at in range(bound.containers))
        db = Database(tuple(Row(1, LIVE, 1) for _ in runs), events=events)
        count = bound.containers
        return State(runs, (db,), lives=count, given=count, cursor=count, heard=events, faults=left)
    runs = tuple(Run(phase=CLEAN) for _ in range(bound.containers))
    db = Database(tuple(Row(0, CLEAN, 1) for _ in runs))
    return State(runs, (db,), faults=left, relay=Relay(is_up=bound.has_relay))


def moves(s: State, rules: Rules) -> Iterator[tuple[str, bool, State]]:
    """Every step that is possible: its name, whether it is a fault, and the state after it. Raises Wrong."""
    for each in OWN[s.exitd == UP, rules.bound.has_relay]:
        for after in each.change(s, rules):
            yield each.name, False, after
    if s.misfortunes == rules.bound.total:
        return
    for at, each in FAULTS:
        if s.faults[at]:
            for after in each.change(s, rules):
                left = (*after.faults[:at], after.faults[at] - 1, *after.faults[at + 1 :])
                yield each.name, True, after._replace(faults=left, misfortunes=s.misfortunes + 1)


@mutable
class Search:
    """One search. The states have numbers; each is looked up once for a move that leads to it, since to hash one is to
    hash all that it holds."""

    rules: Rules
    numbers: dict[State, int]
    before: list[tuple[int, str]]  # for each state, by number: the one that led to it, and the step's name
    onward: list[tuple[int, ...]]  # for each state, by number: where the protocol's own steps lead

    def run(self) -> Found:
        """Raises Refused."""
        start = first(self.rules)
        self.numbers[start] = 0
        self.before.append((0, ""))
        layer, depth, count = [start], 0, 0
        taken = Counter[str]()
        while layer:
            following: list[State] = []
            for s in layer:
                count += self._visit(s, len(self.onward), following, taken)
            layer, depth = following, depth + bool(following)
        self._comes_to_an_end()
        return Found(len(self.numbers), count, depth, taken)

    def _visit(self, s: State, number: int, following: list[State], taken: Counter[str]) -> int:
        own, count = list[int](), 0
        try:
            check(s)
            for name, is_fault, after in moves(s, self.rules):
                count += 1
                taken[name] += 1
                reached = self.numbers.setdefault(after, len(self.before))
                if reached == len(self.before):
                    self.before.append((number, name))
                    following.append(after)
                if not is_fault:
                    own.append(reached)
        except Wrong as wrong:
            raise Refused(str(wrong), self.way(number)) from wrong
        if not own and not is_settled(s, self.rules):
            raise Refused("nothing can go on, and not every end is reported everywhere", self.way(number))
        self.onward.append(tuple(own))
        return count

    def _comes_to_an_end(self) -> None:
        """Without faults no way leads in a circle: whatever comes first, the steps that are left run out."""
        into = Counter(chain.from_iterable(self.onward))
        ready = [number for number in range(len(self.onward)) if number not in into]
        done = 0
        while ready:
            done += 1
            for after in self.onward[ready.pop()]:
                into[after] -= 1
                if not into[after]:
                    ready.append(after)
        if done < len(self.onward):
            circling = next(number for number in range(len(self.onward)) if into.get(number))
            raise Refused("the protocol's own steps lead in a circle", self.way(circling))

    def way(self, number: int) -> list[str]:
        found, at = list[str](), number
        while at:
            at, name = self.before[at]
            found.append(name)
        return found[::-1]


def search(bound: Bound, mutation: str = "") -> Found:
    """Visit everything within the bound. Raises Refused."""
    return Search(Rules(bound, mutation), {}, [], []).run()


def steps() -> list[Step]:
    return list(STEPS.values())
