"""The C files of each program in an order: none uses a function of one that, by way of others or not, uses its own."""

import graphlib
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
COMMENT_OR_TEXT = re.compile(r"/\*.*?\*/|\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])+'", re.DOTALL)
# As the style has it: the definition begins at the margin, its body with a brace there.
FUNCTION = re.compile(r"^((?:[a-z]\w*[ *]+)+)(\w+)\((?:[^;{}]*)\)\n\{", re.MULTILINE)


def functions(code: str) -> tuple[set[str], set[str]]:
    """The functions that a file defines: for all files, and for itself alone."""
    found: list[tuple[str, str]] = FUNCTION.findall(code)
    own = {name for kind, name in found if "static" in kind.split()}
    return {name for _, name in found} - own, own


def uses(folder: pathlib.Path) -> dict[str, set[str]]:
    """By file (folder/name.c, below shim/), the files of which it uses a function, called or handed on."""
    codes = {
        str(path.relative_to(folder)): COMMENT_OR_TEXT.sub(" ", path.read_text())
        for path in sorted(folder.glob("*/*.c"))
    }
    owners: dict[str, set[str]] = {}
    for file, code in codes.items():
        for name in functions(code)[0]:
            owners.setdefault(name, set()).add(file)
    found: dict[str, set[str]] = {}
    for file, code in codes.items():
        # A field of that name follows a dot or an arrow.
        named = set(re.findall(r"(?<![\w.>])[a-z_]\w*", code)) - functions(code)[1] - {"main"}
        used = {owner for name in named & owners.keys() for owner in owners[name]}
        found[file] = {owner for owner in used - {file} if within(owner, file)}
    return found


def within(owner: str, user: str) -> bool:
    """A program is made of its own folder and of core/: what has the name in a third folder is another program's."""
    return owner.partition("/")[0] in ("core", user.partition("/")[0])


def circle(graph: dict[str, set[str]]) -> list[str]:
    """One circle, its first file repeated at its end; empty when there is none."""
    try:
        list(graphlib.TopologicalSorter(graph).static_order())
    except graphlib.CycleError as error:
        return list(error.args[1])
    return []


def test_no_c_file_uses_itself_in_a_circle() -> None:
    assert circle(uses(ROOT / "shim")) == []


def test_the_uses_are_seen() -> None:
    found = uses(ROOT / "shim")
    assert "core/procfs.c" in found["core/reap.c"]
    assert {"core/fields.c", "keeper/table.c"} <= found["keeper/serve.c"]
    assert "relay/place.c" in found["relay/daemon.c"]


@pytest.mark.parametrize("use", ["b()", "b(1, &x)", "call(b)", "table[] = { b }"])
def test_a_planted_circle_is_found(tmp_path: pathlib.Path, use: str) -> None:
    (tmp_path / "core").mkdir()
    (tmp_path / "core" / "a.c").write_text(f"int a(void)\n{{\n\t{use};\n}}\n")
    (tmp_path / "core" / "b.c").write_text("int *b(int x,\n       int y)\n{\n\treturn a();\n}\n")
    assert set(circle(uses(tmp_path))) == {"core/a.c", "core/b.c"}


@pytest.mark.parametrize("use", ["x->b = 1", "x.b()", "/* b() */", 'say("b()")'])
def test_a_field_or_a_word_of_that_name_is_no_use(tmp_path: pathlib.Path, use: str) -> None:
    (tmp_path / "core").mkdir()
    (tmp_path / "core" / "a.c").write_text(f"int a(void)\n{{\n\t{use};\n}}\n")
    (tmp_path / "core" / "b.c").write_text("int b(void)\n{\n\treturn a();\n}\n")
    assert uses(tmp_path) == {"core/a.c": set(), "core/b.c": {"core/a.c"}}
