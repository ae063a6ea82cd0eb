"""The sentences say what the figures say."""

from supervisor.compare.facts import CompareReport, Way
from supervisor.compare.html.text import against, listed, samples, sentence, turn
from supervisor.compare.words import milliseconds

FIFO, WAIT = "shim per container, fifo", "shim per pod, Wait"
REPORT = CompareReport((), (Way("a", "Ah", FIFO), Way("b", "Be", WAIT), Way("c", "Ce", "another")))


def test_the_two_designs_are_reported_against_each_other() -> None:
    assert against(REPORT, {"a": 2.1, "b": 5.0}, milliseconds) == "2.1 ms (Ah) against 5 ms (Be)"


def test_of_more_ways_the_least_and_the_most_are_reported_too() -> None:
    said = against(REPORT, {"a": 2.1, "b": 5.0, "c": 0.5}, milliseconds)
    assert said == "2.1 ms (Ah) against 5 ms (Be); all 3 ways: 0.50 ms (Ce) to 5 ms (Be)"


def test_the_plain_peers_stand_for_the_designs() -> None:
    ways = (Way("exitd-shimv2", "S", WAIT), Way("exitd-runc", "E", FIFO), Way("containerd-runc", "C", WAIT))
    said = against(
        CompareReport((), ways), {"exitd-shimv2": 3.0, "exitd-runc": 1.0, "containerd-runc": 2.0}, milliseconds
    )
    assert said.startswith("1 ms (E) against 2 ms (C); ")


def test_without_both_designs_there_is_a_range_a_figure_or_nothing() -> None:
    assert against(REPORT, {"a": 2.0, "c": 1.0}, milliseconds) == "from 1 ms (Ce) to 2 ms (Ah)"
    assert against(REPORT, {"c": 1.0}, milliseconds) == "1 ms (Ce)"
    assert against(REPORT, {}, milliseconds) == "nothing was measured"


def test_samples_are_counted() -> None:
    assert [samples([5, 20], "a row"), samples([1], "a point"), samples([], "a row")] == [
        "5 to 20 samples a row",
        "1 sample a point",
        "no samples",
    ]


def test_words_are_listed_and_made_a_sentence() -> None:
    assert [listed([]), listed(["a"]), listed(["a", "b", "c"])] == ["", "a", "a, b and c"]
    assert sentence("it is so") == "It is so."


def test_where_the_lower_becomes_the_higher_is_reported() -> None:
    assert turn({1: 1, 2: 2, 4: 8, 8: 16}, {2: 4, 4: 6, 8: 6, 16: 6}) == (
        "the lower becomes the higher between 2 and 4 members"
    )
    assert turn({1: 1, 2: 2}, {1: 2, 2: 3}) == turn({1: 1}, {2: 1}) == ""
