"""What a way says is held against the truth, and everybody has a turn at being first."""

import pytest

from supervisor.compare.way import WayAnswer, number_answer, verdict, words_of
from supervisor.model.values import Exited, ExitStatus, Signaled, Unknown


@pytest.mark.parametrize(
    ("truth", "answer", "wanted"),
    [
        (Exited(43), WayAnswer("43", Exited(43)), "right"),
        (Exited(43), WayAnswer("0", Exited(0)), "wrong"),
        (Exited(137), WayAnswer("signal 9", Signaled(9)), "wrong"),
        (Signaled(11, core=True), WayAnswer("signal 11", Signaled(11)), "right"),
        (Exited(43), WayAnswer("unknown", Unknown("monitors-killed", 137)), "unknown"),
        (Exited(43), WayAnswer("not found", None), "lost"),
        (Signaled(9), number_answer(137), "right"),
        (Exited(43), number_answer(137), "wrong"),
        (Exited(43), number_answer(43), "right"),
        (Exited(43), number_answer(255), "unknown"),
    ],
)
def test_what_is_reported_is_right_unknown_wrong_or_lost(truth: ExitStatus, answer: WayAnswer, wanted: str) -> None:
    assert verdict(truth, answer) == wanted


def test_a_number_alone_keeps_the_words_it_was_reported_with() -> None:
    assert number_answer(137, "137 (event)").words == "137 (event)"
    assert number_answer(137).words == "137"


def test_an_end_has_words() -> None:
    assert [words_of(one) for one in (Exited(43), Signaled(9), Unknown("host-rebooted"))] == [
        "exited 43",
        "signal 9",
        "unknown: host-rebooted",
    ]
