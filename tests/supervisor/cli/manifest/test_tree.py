"""JSON and YAML as trees with places: the same values as other readers give, and every error with line and field."""

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.cli.manifest.marks import Mark, MarkedNumber
from supervisor.cli.manifest.tree import MOST_CHARACTERS, TreeNode, documents
from supervisor.model.errors import BadRequest

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner),
)


def plain(node: TreeNode) -> object:
    """What json.loads would give."""
    match node.value:
        case MarkedNumber(text):
            return json.loads(text)
        case tuple() as items:
            return [plain(item) for item in items]
        case dict() as parts:
            return {key: plain(part) for key, part in parts.items()}
    return node.value


def yaml(text: str) -> object:
    (node,) = documents(text, "f.yaml")
    return plain(node)


def refusal(text: str, *, json: bool = False) -> str:
    with pytest.raises(BadRequest) as caught:
        documents(text, "f", json=json)
    return str(caught.value)


@given(JSON, st.booleans(), st.sampled_from([None, 0, 2, "\t"]))
def test_json_has_the_values_that_the_standard_library_reads(value: object, ascii: bool, indent: int | str) -> None:
    text = json.dumps(value, ensure_ascii=ascii, indent=indent)
    found = documents(text, "f.json", json=True)
    assert [plain(node) for node in found] == ([] if value is None else [value])


@given(JSON.filter(lambda value: isinstance(value, dict | list)), st.data())
def test_json_that_is_cut_off_is_refused_with_a_place_in_it(value: object, data: st.DataObject) -> None:
    text = json.dumps(value, indent=1)
    cut = text[: data.draw(st.integers(0, len(text) - 1))]
    place, _, rest = refusal(cut, json=True).removeprefix("f:").partition(": ")
    line, column = map(int, place.split(":"))
    assert 1 <= line <= cut.count("\n") + 1 and column >= 1
    assert "no JSON" in rest


@given(st.text("{}[]:,\"\\ \n0-.eE+truefalsnu/*'a", max_size=20))
def test_json_is_refused_exactly_where_the_standard_library_refuses_it(text: str) -> None:
    try:
        json.loads(text, object_pairs_hook=_no_twins)
    except (ValueError, KeyError):
        refusal(text, json=True)
    else:
        documents(text, "f", json=True)


def _no_twins(pairs: list[tuple[str, object]]) -> dict[str, object]:
    if len(dict(pairs)) != len(pairs):
        raise KeyError
    return dict(pairs)


@given(JSON)
def test_json_is_read_as_yaml_to_the_same_shape_but_for_its_escapes(value: object) -> None:
    """What Kubernetes' tools rely on; escapes of YAML know no surrogate pairs, control characters are not allowed."""
    text = json.dumps(value, ensure_ascii=False)
    if text.isprintable() and "\\" not in text and text.isascii() and value is not None and "e" not in text.lower():
        assert yaml(text) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: yes", True), ("a: Off", False), ("a: ~", None), ("a:", None), ("a: null", None), ("a: y", True),
        ("a: 'yes'", "yes"), ('a: "1"', "1"), ("a: 1.5", 1.5), ("a: -3", -3), ("a: 1e3", 1000.0),
        ("a: 12:30", "12:30"), ("a: 2026-01-01", "2026-01-01"), ("a: !!str 5", "5"), ("a: 500m", "500m"),
        ("a: |\n  x\n  y\n", "x\ny\n"), ("a: >\n  x\n  y\n", "x y\n"), ("a: 5Gi", "5Gi"), ("a: =", "="),
    ],
)  # fmt: skip
def test_yaml_scalars_mean_what_they_mean_to_kubernetes(text: str, value: object) -> None:
    assert yaml(text) == {"a": value}


@pytest.mark.parametrize("word", ["0644", "0x1F", "0b1", "1_000", ".5", "5.", "-.inf", ".nan", "0o17", "1E-3"])
def test_yaml_numbers_of_all_forms_are_numbers_and_keep_their_text(word: str) -> None:
    (node,) = documents(f"a: {word}", "f")
    assert isinstance(node.value, dict)
    assert node.value["a"].value == MarkedNumber(word)


def test_every_part_knows_its_line_and_column() -> None:
    (node,) = documents("# x\na:\n  - b: {c: d}\n", "f")
    assert isinstance(node.value, dict)
    items = node.value["a"].value
    assert isinstance(items, tuple) and isinstance(items[0].value, dict)
    inner = items[0].value["b"]
    assert (node.mark, items[0].mark, inner.mark) == (Mark(2, 1), Mark(3, 5), Mark(3, 8))
    assert node.keys["a"] == Mark(2, 1)
    assert inner.keys["c"] == Mark(3, 9)


def test_documents_are_told_apart_and_empty_ones_left_out() -> None:
    assert [plain(node) for node in documents("---\na: 1\n---\n---\n# no more\n---\nb: 2\n...\n", "f")] == [
        {"a": 1},
        {"b": 2},
    ]


def test_anchors_are_of_their_document_alone() -> None:
    assert yaml("a: &x [1]\nb: *x\n") == {"a": [1], "b": [1]}
    assert "f:3:4: b: the alias *x" in refusal("a: &x 1\n---\nb: *x\n")


def test_merges_give_what_is_not_there_and_the_first_of_several_wins() -> None:
    text = "p: &x {a: 1, b: 2}\nq: &y {b: 3, c: 4}\nz:\n  <<: [*x, *y]\n  a: 0\n"
    assert yaml(text)["z"] == {"a": 0, "b": 2, "c": 4}  # type: ignore[index]
    assert "<< merges mappings" in refusal("a: {<<: 1}")
    assert plain(documents('{"<<": 1}', "f", json=True)[0]) == {"<<": 1}


def test_an_alias_of_aliases_of_aliases_costs_nothing() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 60)]
    begun = time.monotonic()
    (node,) = documents("\n".join(lines), "f")
    assert isinstance(node.value, dict) and len(node.value) == 60
    assert time.monotonic() - begun < 5


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("a: 1\nb: 2\na: 3", "f:3:1: the key 'a' is here twice; the first one is in line 1"),
        ("s:\n  c:\n  - d: 1\n    d: 2", "f:4:5: s.c[0]: the key 'd' is here twice; the first one is in line 3"),
        ("a:\n  b: [1, 2", "f:2:11: a.b[2]: no YAML"),
        ("a:\n\tb: 1", "f:2:1: a: no YAML"),
        ("a: b: c", "f:1:5: no YAML: mapping values are not allowed here"),
        ("a: 'x", "f:1:6: a: no YAML"),
        ("a: \x01", "f:1:4: no YAML: the character '\\x01' is not allowed"),
        ("on: 1", "f:1:1: the key is a boolean and no text; write it in quotes"),
        ("y: 1", "f:1:1: the key is a boolean"),
        ("1: a", "f:1:1: the key is a number and no text"),
        ("{a: 1}: 2", "f:1:1: a key must be a text"),
        ("? [a]\n: b", "f:1:3: a key must be a text"),
        ("a: &x k\n*x : 1", "f:2:1: a key must be a text, and no alias"),
        ("a: *x", "f:1:4: a: the alias *x"),
        ("a: &x [*x]", "f:1:8: a[0]: the alias *x stands for nothing that has been read to its end"),
        ("a: !!python/object:os.system {}", "f:1:4: a: the tag tag:yaml.org,2002:python/object:os.system"),
        ("a: !secret x", "f:1:4: a: the tag !secret is not known here"),
        ("a: !!int '3'", "f:1:4: a: the tag tag:yaml.org,2002:int"),
        ("a: " + "[" * 200, "nested deeper than 100"),
        ('a: "\\ud800"', "f:1:4: a: a NUL or half a surrogate pair"),
        ('a: "\\0"', "f:1:4: a: a NUL or half a surrogate pair"),
    ],
)  # fmt: skip
def test_yaml_that_is_none_is_refused_with_line_column_and_field(text: str, what: str) -> None:
    assert what in refusal(text)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ('{"a": [1,]}', "f:1:9: a[1]: no JSON: a comma before the closing ]"),
        ('{\n "a": 1,\n}', "f:2:8: no JSON: a comma before the closing }"),
        ('{"a": {"b" 1}}', "f:1:12: a.b: no JSON: a colon after the key is missing"),
        ('{"a": {"b": nul}}', "f:1:13: a.b: no JSON: a value is missing"),
        ("{'a': 1}", "f:1:2: no JSON: a key in double quotes is missing"),
        ('{"a": 1 "b": 2}', "f:1:9: no JSON: a comma or the closing } is missing"),
        ('{"a": "x\ny"}', "f:1:9: a: no JSON: Invalid control character"),
        ('{"a": "x', "f:1:7: a: no JSON: Unterminated string"),
        ('{"a": 1, "a": 2}', "f:1:10: the key 'a' is here twice"),
        ("[1] 2", "f:1:5: no JSON: something follows"),
        ("", "f:1:1: no JSON: the text ends too early"),
        ('{"a": // x\n1}', "f:1:7: a: no JSON: a value is missing"),
        ("[" * 200, "nested deeper than 100"),
        ('{"a": 01}', "f:1:8: no JSON"),
    ],
)  # fmt: skip
def test_json_that_is_none_is_refused_with_line_column_and_field(text: str, what: str) -> None:
    assert what in refusal(text, json=True)


def test_a_text_beyond_all_measure_is_not_read() -> None:
    assert "are not read" in refusal("#" * (MOST_CHARACTERS + 1))
