"""Signals as people write them."""

import pytest

from supervisor.model import parsing


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("SIGTERM", 15),
        ("TERM", 15),
        ("term", 15),
        ("sigTerm", 15),
        ("15", 15),
        ("9", 9),
        ("HUP", 1),
        ("1", 1),
        ("RTMIN", 34),
        ("SIGRTMIN+3", 37),
        ("rtmin+30", 64),
        ("RTMAX", 64),
        ("RTMAX-1", 63),
        ("SIGRTMAX-30", 34),
        ("STKFLT", 16),
        ("CLD", 17),
        ("POLL", 29),
        ("IOT", 6),
        ("SIGWINCH", 28),
        ("32", 32),
        ("64", 64),
    ],
)
def test_a_signal_is_known_by_name_and_by_number(text: str, number: int) -> None:
    assert parsing.number_of(text) == number


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0",
        "65",
        "-1",
        "+9",
        "1.0",
        "SIG",
        "SIG9",
        "NOPE",
        "SIG_DFL",
        "_IGN",
        "9 ",
        " 9",
        "³",
        "٩",
        "099",
        "RTMIN+31",
        "RTMIN-1",
        "RTMAX+1",
        "RTMAX-31",
        "RTMIN+",
        "RTMIN3",
        "TERM\0",
        "\u017fIGTERM",
    ],
)
def test_what_is_no_signal_is_none(text: str) -> None:
    assert parsing.number_of(text) is None


@pytest.mark.parametrize("number", range(1, 65))
def test_every_signal_has_a_name_that_leads_back_to_it(number: int) -> None:
    assert parsing.number_of(parsing.name_of(number)) == number
