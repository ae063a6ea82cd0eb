"""What a step of the model is, and the table of all of them."""

from collections.abc import Callable, Iterable
from typing import Any

from shim.frozen import frozen
from tests.protocol.state import Bound, Run, State

Change = Callable[["State", "Rules"], Iterable[State]]


class Wrong(Exception):
    """A step has done what the protocol never may; the search adds the way that led there."""


@frozen
class Rules:
    """What a search goes by: its bound, and how the protocol is wrong in it (`MUTATIONS` of `bounds.py`), if it is."""

    bound: Bound
    mutation: str = ""


@frozen
class Step:
    """`place`: the lines that it stands for, FILE:FUNCTION. `fault`: its kind; empty: a step of the protocol's own."""

    name: str
    place: str
    words: str
    change: Change
    fault: str = ""

    @property
    def room(self) -> str:
        """The module that has it."""
        return self.change.__module__


STEPS: dict[str, Step] = {}


def step(name: str, place: str, words: str) -> Callable[[Change], Change]:
    def add(change: Change) -> Change:
        assert name not in STEPS, name
        STEPS[name] = Step(name, place, words, change)
        return change

    return add


def fault(name: str, words: str) -> Callable[[Change], Change]:
    """One step for each way in which this may happen; its number is used up by the search."""

    def add(change: Change) -> Change:
        assert name not in STEPS, name
        STEPS[name] = Step(name, "", words, change, fault=name)
        return change

    return add


def changed(s: State, at: int, **fields: Any) -> State:
    """The state with one run changed."""
    runs = list(s.runs)
    runs[at] = runs[at]._replace(**fields)
    return s._replace(runs=tuple(runs))


def with_run(s: State, at: int, run: Run) -> State:
    return s._replace(runs=(*s.runs[:at], run, *s.runs[at + 1 :]))
