import operator
import weakref

from supervisor.model.remembered import BESIDE_BYTES, MOST_BYTES, Remembered


class Value:
    def __init__(self, text: str) -> None:
        self.text = text


class Result:
    def __init__(self, text: str) -> None:
        self.text = text


class Maker:
    def __init__(self, in_all: int) -> None:
        self.made: list[Value] = []
        self.remembered = Remembered(self.make, len, in_all)

    def make(self, value: Value) -> str:
        self.made.append(value)
        return value.text


def test_a_result_is_made_once_for_each_value_and_anew_once_too_much_came_after_it() -> None:
    maker, first = Maker(10 * (BESIDE_BYTES + 100)), Value("f" * 100)
    others = [Value(str(number) * 100) for number in range(9)]
    for _ in range(2):
        for each in (first, *others):
            assert maker.remembered.of(each) == each.text
    assert maker.made == [first, *others]

    last = Value("l")
    assert [maker.remembered.of(each) for each in (last, *others)] == [each.text for each in (last, *others)]
    assert maker.made == [first, *others, last]
    assert maker.remembered.of(first) == first.text
    assert maker.made == [first, *others, last, first]


def test_a_long_result_is_not_kept() -> None:
    long, maker = Value("x" * (MOST_BYTES + 1)), Maker(1 << 30)
    assert maker.remembered.of(long) == maker.remembered.of(long) == long.text
    assert maker.made == [long, long]


def test_what_was_made_of_a_value_goes_with_it_and_makes_room() -> None:
    """It may have secrets in it."""
    kept: list[weakref.ref[Result]] = []

    def make(value: Value) -> Result:
        made = Result(value.text)
        kept.append(weakref.ref(made))
        return made

    remembered = Remembered(make, lambda result: len(result.text), 2 * (BESIDE_BYTES + 10))
    first, other = Value("a" * 10), Value("b" * 10)
    for value in (first, other, first, other):
        remembered.of(value)
    assert [result() is None for result in kept] == [False, False]
    del first, value
    assert [result() is None for result in kept] == [True, False]
    third = Value("c" * 10)
    for value in (third, other):
        remembered.of(value)
    assert [result() is None for result in kept] == [True, False, False]


def test_a_value_that_goes_while_another_is_pushed_out_is_not_waited_for() -> None:
    """As when garbage is collected just then, in the same thread."""
    first, others = Value("first"), [Value("a"), Value("b")]
    results = {"first": [Value("held by the first one's")]}
    remembered = Remembered[Value, list[Value]](lambda value: results.pop(value.text, []), len, 2 * BESIDE_BYTES + 1)
    held = weakref.ref(remembered.of(first)[0])
    remembered.of(remembered.of(first)[0])
    made = [remembered.of(other) for other in others]
    assert held() is None
    assert all(map(operator.is_, map(remembered.of, others), made))  # both have room
