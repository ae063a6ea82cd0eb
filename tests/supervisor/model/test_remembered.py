from supervisor.model.remembered import BESIDE_BYTES, MOST_BYTES, Remembered, forget_everywhere


class Value:
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


def test_what_is_forgotten_is_kept_nowhere_and_makes_room() -> None:
    makers, value = [Maker(BESIDE_BYTES + 10), Maker(BESIDE_BYTES + 10)], Value("a" * 10)
    for maker in makers:
        maker.remembered.of(value)
    forget_everywhere(value)
    forget_everywhere(value)
    other = Value("b" * 10)
    for maker in makers:
        maker.remembered.of(other)
        maker.remembered.of(other)
        maker.remembered.of(value)
        assert maker.made == [value, other, value]
