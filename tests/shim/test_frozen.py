import copy
import inspect
import pickle
import weakref
from dataclasses import asdict, dataclass, fields, replace
from dataclasses import field as ordinary_field
from typing import Any, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shim import frozen as quick
from shim.frozen import NO_DEFAULT, field, fields_of, frozen, is_defined, mutable


@frozen
class Point:
    x: int
    y: tuple[int, ...] = (1, 2)
    names: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Ordinary:
    x: int
    y: tuple[int, ...] = (1, 2)
    names: dict[str, int] = ordinary_field(default_factory=dict)


@frozen
class Twin:
    """Of the same shape as Line."""

    value: int


@frozen
class Line:
    value: int


@frozen
class Deeper(Line):
    more: str = ""


@frozen
class Nothing:
    pass


@frozen
class Own:
    value: int

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Own)

    def __hash__(self) -> int:
        return 7


@frozen
class Watched:
    __slots__ = ("__weakref__",)

    value: int
    more: str = ""


@mutable
class Counter:
    name: str
    seen: list[int] = field(default_factory=list)


@mutable
class Limited(Counter):
    limit: int = 3


@given(st.integers(), st.tuples(st.integers(), st.integers()), st.integers(), st.integers())
def test_it_is_equal_and_hashed_as_a_frozen_dataclass_is(a: int, b: tuple[int, int], c: int, d: int) -> None:
    assert (Point(a, b) == Point(c, b)) is (Ordinary(a, b) == Ordinary(c, b)) is (a == c)
    assert (Line(a) == Line(c)) is (a == c) and (Line(a) != Line(c)) is (a != c)
    assert len({Deeper(a, str(d)), Deeper(a, str(d)), Deeper(c, str(d))}) == len({a, c})
    assert repr(Point(a, b)) == repr(Ordinary(a, b)).replace("Ordinary", "Point")


def test_what_is_of_another_class_is_not_equal_whatever_its_values() -> None:
    values: list[object] = [Twin(1), Line(1), Deeper(1), Nothing(), 1]
    assert [[a == b for b in values] for a in values] == [[a is b for b in values] for a in values]
    assert len({*values}) == 5 and Nothing() == Nothing()


def test_a_value_that_has_no_hash_leaves_it_without_one() -> None:
    with pytest.raises(TypeError, match="unhashable"):
        hash(Point(1))


def test_methods_of_its_own_stay() -> None:
    assert Own(1) == Own(2) and hash(Own(1)) == 7 and repr(Own(1)) == "Own(value=1)"


def test_the_tools_for_dataclasses_know_it() -> None:
    point = Point(1)
    assert [each.name for each in fields(point)] == ["x", "y", "names"]
    assert replace(point, x=2) == Point(2) and asdict(point) == {"x": 1, "y": (1, 2), "names": {}}
    assert copy.deepcopy(point) == point == pickle.loads(pickle.dumps(point)) and point.names is not Point(1).names
    match point:
        case Point(x, y):
            assert (x, y) == (1, (1, 2))


@pytest.mark.parametrize("arguments", [(), (1, (), {}, 4)])
def test_its_constructor_takes_what_its_fields_say(arguments: tuple[Any, ...]) -> None:
    with pytest.raises(TypeError, match="argument"):
        Point(*arguments)


def test_there_is_room_for_its_fields_only() -> None:
    with pytest.raises(AttributeError):
        Line(1).other = 2  # type: ignore[attr-defined]


def test_a_class_that_asks_for_it_can_be_referred_to_weakly() -> None:
    watched = Watched(1)
    seen = weakref.ref(watched)
    assert seen() is watched == pickle.loads(pickle.dumps(watched)) == replace(watched, value=1)
    assert [each.name for each in fields(watched)] == [*Watched.__match_args__] == ["value", "more"]
    with pytest.raises(TypeError, match="weak reference"):
        weakref.ref(Line(1))


def test_the_type_checker_refuses_an_assignment() -> None:
    """If it did not, it would complain of the comment that has it say nothing (warn_unused_ignores)."""
    line = Line(1)
    line.value = 2  # type: ignore[misc]
    assert line == Line(2)


def test_a_docstring_is_never_made_from_the_signature() -> None:
    """That would take as long as all the rest."""
    assert Twin.__doc__ == "Of the same shape as Line." and Line.__doc__ == "Line"


def test_a_constructor_is_compiled_when_the_first_value_is_made() -> None:
    """Most classes are only defined: in a command of exitctl, at the start of exitd."""

    @frozen
    class Late:
        value: int
        more: str = "x"

    assert not inspect.isfunction(vars(Late)["__init__"])
    assert (Late(1), Late(value=2, more="y")) == (Late(1, "x"), Late(2, "y"))
    assert inspect.isfunction(vars(Late)["__init__"]) and Late.__init__.__qualname__ == f"{Late.__qualname__}.__init__"


def test_constructors_of_one_shape_are_compiled_once() -> None:
    @frozen
    class Here:
        place: int
        others: list[int] = field(default_factory=list)

    @frozen
    class There:
        _where: str
        names: dict[str, int] = field(default_factory=dict)

    assert (Here(1), There("a")) == (Here(1, []), There("a", {})) and Here(1).others is not Here(1).others
    before = quick._template.cache_info()
    assert There(_where="b", names={"c": 1}).names == {"c": 1}
    assert repr(There("b")) == f"{There.__qualname__}(_where='b', names={{}})"

    @frozen
    class Elsewhere:
        value: int
        more: set[int] = field(default_factory=set)

    assert Elsewhere(3).more == set() and quick._template.cache_info().misses == before.misses
    assert [*inspect.signature(Elsewhere).parameters] == ["value", "more"]
    with pytest.raises(TypeError, match=r"Elsewhere\.__init__\(\) missing 1 required positional argument: 'value'"):
        Elsewhere()  # type: ignore[call-arg]


def test_fields_are_known_without_a_look_at_them_by_the_library() -> None:
    assert fields_of(Deeper) == {"value": (int, NO_DEFAULT), "more": (str, "")} and [*fields_of(Nothing)] == []
    assert (is_defined(Counter), is_defined(Line(1)), is_defined(Ordinary), is_defined(int)) == (
        True,
        False,
        False,
        False,
    )
    with pytest.raises(TypeError, match="Ordinary"):
        fields_of(Ordinary)


def test_a_default_by_the_librarys_field_is_refused() -> None:
    with pytest.raises(TypeError, match=r"Wrong\.names: .*shim\.frozen"):

        @frozen
        class Wrong:
            names: list[int] = ordinary_field(default_factory=list)


def test_a_field_without_a_default_comes_first() -> None:
    @frozen
    class Wrong:
        more: str = ""
        value: int  # type: ignore[misc]

    with pytest.raises(TypeError, match="a field without a default follows"):
        Wrong("", 1)


@given(st.builds(Point))
def test_its_constructor_can_be_looked_at(point: Point) -> None:
    """Hypothesis does, to make values."""
    assert [*inspect.signature(Point).parameters] == [*inspect.signature(Ordinary).parameters]
    assert get_type_hints(Point.__init__) == get_type_hints(Ordinary.__init__) and isinstance(point.x, int)


def test_a_mutable_one_is_itself_whatever_its_attributes() -> None:
    one, other = Counter("a"), Counter("a")
    one.name = other.name = "b"
    assert one != other and len({one, other}) == 2 and one.seen is not other.seen
    assert repr(one) == "Counter(name='b', seen=[])"
    with pytest.raises(AttributeError):
        one.other = 2  # type: ignore[attr-defined]


def test_fields_of_a_base_class_come_first() -> None:
    assert repr(Limited("a", [], 4)) == "Limited(name='a', seen=[], limit=4)" and not hasattr(Limited("a"), "__dict__")


@given(st.builds(Point), st.integers())
def test_a_value_changed_by_the_quick_way_is_the_same_as_by_the_librarys(point: Point, x: int) -> None:
    assert quick.replace(point, x=x) == replace(point, x=x) and quick.replace(point) == point
    ordinary = Ordinary(point.x, point.y, point.names)
    assert quick.replace(ordinary, x=x) == replace(ordinary, x=x)
    with pytest.raises(TypeError):
        quick.replace(point, z=x)  # type: ignore[call-arg]
    assert quick.replace(Nothing()) == Nothing()
