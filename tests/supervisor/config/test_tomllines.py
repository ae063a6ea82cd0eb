"""Lines of statements, against tomllib's own word on what the text says."""

import json
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.config.tomllines import NotToml, Path, parse

EVERYTHING = b"""\
# a comment = 1
a = 1
b.c = \"\"\"
[x]
]
y = 2\"\"\" # more

[limits]
 z = [
   1, # ]
   2,
 ]
[runtimes."a.b"]  # a header's comment
path = '/x'
opt = {k = [1,
2], m = 3}
'''quoted''' = true
[[many]]
q = 1
[[many]]
q = 2
r = '''
'''
""".replace(b"'''quoted'''", b"'quoted'")


def test_every_kind_of_statement_has_the_line_it_begins_in() -> None:
    assert parse(EVERYTHING).lines == {
        ("a",): 2,
        ("b",): 3,
        ("b", "c"): 3,
        ("limits",): 8,
        ("limits", "z"): 9,
        ("runtimes",): 13,
        ("runtimes", "a.b"): 13,
        ("runtimes", "a.b", "path"): 14,
        ("runtimes", "a.b", "opt"): 15,
        ("runtimes", "a.b", "opt", "k"): 15,
        ("runtimes", "a.b", "opt", "m"): 15,
        ("runtimes", "a.b", "quoted"): 17,
        ("many",): 18,
        ("many", "q"): 19,
        ("many", "r"): 22,
    }


def test_windows_line_ends_change_nothing() -> None:
    windows = parse(EVERYTHING.replace(b"\n", b"\r\n"))
    assert windows == parse(EVERYTHING)


def test_the_values_are_tomllibs() -> None:
    assert parse(EVERYTHING).values == tomllib.loads(EVERYTHING.decode())


NAMES = st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), min_size=1, max_size=8)
SCALARS = st.integers(-9, 9) | st.booleans() | st.text("ab\n]}[{'\"=#\\ ", max_size=12)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3), max_leaves=6)
TABLES = st.dictionaries(NAMES, st.dictionaries(NAMES, VALUES, min_size=1, max_size=4), max_size=4)


def as_toml(value: object) -> str:
    """Lists over several lines, and strings too where they can be."""
    match value:
        case list():
            return "[\n" + "".join(f"  {as_toml(each)}, # ]]\n" for each in value) + "]"
        case str() if "'" not in value and "\n" in value:
            return f"'''\n{value}'''"
    return json.dumps(value)


@given(TABLES)
def test_a_keys_line_is_where_its_name_stands(tables: dict[str, dict[str, object]]) -> None:
    text, expected = "", dict[Path, int]()
    for name, table in tables.items():
        expected[name,] = text.count("\n") + 1
        text += f"[{json.dumps(name, ensure_ascii=False)}]\n"
        for key, value in table.items():
            expected[name, key] = text.count("\n") + 1
            text += f"{json.dumps(key, ensure_ascii=False)} = {as_toml(value)}\n"
    document = parse(text.encode())
    assert document.values == tables
    assert document.lines == expected


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (b"a = 1\nb = \n", 2),
        (b"a = 1\na = 2\n", 2),
        (b"[a]\n\n[a]\n", 3),
        (b"\n\nx = [", 3),
        (b"x = '''\n\n\n", 1),
        (b"ok = 1\nx = \xff", 2),
        (b"\xef\xbb\xbfa = 1", 1),
        (b"\n\na = " + b"[" * 100_000, 3),
        (b"\nq = 1\nb = " + b"9" * 5000 + b"\nc = 1", 3),
        (b"q = [\n1,\n" + b"9" * 5000 + b"]\n", 1),
        (b"a = 1\rb = 2", 1),
        (b"a = \0", 1),
    ],
)
def test_what_is_no_toml_is_reported_with_its_line(text: bytes, line: int) -> None:
    with pytest.raises(NotToml) as caught:
        parse(text)
    assert caught.value.line == line
    assert "at line" not in str(caught.value)


@given(st.binary(max_size=60) | st.text("a=[]{}\"'\n.,#1 ", max_size=40).map(str.encode))
def test_any_bytes_are_a_document_or_reported(data: bytes) -> None:
    try:
        document = parse(data)
    except NotToml as error:
        assert 1 <= error.line <= data.count(b"\n") + 1
    else:
        assert all(1 <= line <= data.count(b"\n") + 1 for line in document.lines.values())
        assert {path[0] for path in document.lines} == document.values.keys()
