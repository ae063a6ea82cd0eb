from supervisor.model.remembered import MOST, MOST_BYTES, Remembered


class Value:
    def __init__(self, text: str) -> None:
        self.text = text


def test_a_result_is_made_once_for_each_value_and_anew_once_others_came_after_it() -> None:
    made: list[Value] = []

    def make(value: Value) -> str:
        made.append(value)
        return value.text

    remembered, first = Remembered(make, len), Value("first")
    others = [Value(str(number)) for number in range(MOST)]
    assert [remembered.of(first), remembered.of(first)] == ["first", "first"]
    assert [remembered.of(each) for each in others] == [each.text for each in others]
    assert made == [first, *others]

    assert remembered.of(first) == "first"
    assert made == [first, *others, first]


def test_a_long_result_is_not_kept() -> None:
    made: list[Value] = []
    long = Value("x" * (MOST_BYTES + 1))
    remembered = Remembered[Value, str](lambda value: made.append(value) or value.text, len)  # type: ignore[func-returns-value]
    assert remembered.of(long) == remembered.of(long) == long.text
    assert made == [long, long]
