"""No part assigns a function to an attribute of another part: who needs whom is said when it is made."""

import ast
import pathlib
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).resolve().parent.parent
MAKERS = ("__init__", "__post_init__")


def trees_of(root: pathlib.Path) -> dict[pathlib.Path, ast.Module]:
    paths = sorted(path for tree in ("supervisor", "shim") for path in (root / tree).rglob("*.py"))
    return {path: ast.parse(path.read_text()) for path in paths}


def names_in(node: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def is_callable(annotation: ast.expr | None, words: set[str]) -> bool:
    """Whether a value of this type is called: Callable, an alias for one, or one of these or nothing."""
    match annotation:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name in words
        case ast.Subscript(value=value):
            return is_callable(value, words)
        case ast.BinOp(op=ast.BitOr(), left=left, right=right):
            return is_callable(left, words) or is_callable(right, words)
        case ast.Constant(value=str(text)):
            return is_callable(ast.parse(text, mode="eval").body, words)
    return False


def words_of(trees: dict[pathlib.Path, ast.Module]) -> set[str]:
    """Callable, and each name that the tree has for one, also by way of another such name."""
    words = {"Callable"}
    aliases = {
        target.id: node.value
        for tree in trees.values()
        for node in tree.body
        if isinstance(node, ast.Assign) and not isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    classes = {node.name for tree in trees.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    while more := {name for name, value in aliases.items() if is_callable(value, words)} - words - classes:
        words |= more
    return words


def callables_of(each: ast.ClassDef, words: set[str]) -> set[str]:
    """The attributes of a class that hold something to be called."""
    found = {
        node.target.id
        for node in each.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and is_callable(node.annotation, words)
    }
    for method in (node for node in each.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)):
        arguments = (*method.args.posonlyargs, *method.args.args, *method.args.kwonlyargs)
        given = {argument.arg for argument in arguments if is_callable(argument.annotation, words)}
        for node in ast.walk(method):
            match node:
                case ast.AnnAssign(target=ast.Attribute(value=ast.Name(id="self"), attr=name), annotation=annotation):
                    found |= {name} if is_callable(annotation, words) else set()
                case ast.Assign(targets=[ast.Attribute(value=ast.Name(id="self"), attr=name)], value=value):
                    found |= {name} if method.name in MAKERS and given & names_in(value) and _keeps(value) else set()
    return found


def _keeps(value: ast.expr) -> bool:
    """A given function itself, or that or another."""
    return isinstance(value, ast.Name) or (isinstance(value, ast.BoolOp) and any(map(_keeps, value.values)))


def hooks_of(root: pathlib.Path) -> list[str]:
    """Each assignment, outside of the class itself, to an attribute of another object that is annotated as callable."""
    trees = trees_of(root)
    words = words_of(trees)
    owners: dict[str, set[str]] = {}
    for tree in trees.values():
        for each in (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)):
            for name in callables_of(each, words):
                owners.setdefault(name, set()).add(each.name)
    return [
        f"{path.relative_to(root)}:{line}: {name} of {' or '.join(sorted(owners[name]))}"
        for path, tree in trees.items()
        for line, name, within in assigned(tree)
        if name in owners and not owners[name] & {within}
    ]


def assigned(node: ast.AST, within: str = "") -> Iterator[tuple[int, str, str]]:
    """Line, attribute and class of each assignment to an attribute of an object that is not `self`. A constant is
    nothing to be called: such an attribute has the name of another class's by chance."""
    for child in ast.iter_child_nodes(node):
        match child:
            case ast.Assign(targets=targets, value=value) if not isinstance(value, ast.Constant):
                for target in targets:
                    yield from _attributes(target, within)
            case ast.AnnAssign(target=target) | ast.AugAssign(target=target):
                yield from _attributes(target, within)
        yield from assigned(child, child.name if isinstance(child, ast.ClassDef) else within)


def _attributes(target: ast.expr, within: str) -> Iterator[tuple[int, str, str]]:
    match target:
        case ast.Tuple(elts=targets) | ast.List(elts=targets):
            for each in targets:
                yield from _attributes(each, within)
        case ast.Attribute(value=ast.Name(id="self")):
            pass
        case ast.Attribute(attr=name, lineno=line):
            yield line, name, within


def test_no_part_assigns_a_function_to_another() -> None:
    assert hooks_of(ROOT) == []


def planted(root: pathlib.Path, **modules: str) -> pathlib.Path:
    for name, text in modules.items():
        path = root / "supervisor" / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return root


HUB = """
class Hub:
    def __init__(self, tell: "Tell | None" = None) -> None:
        self.on_silence: Callable[[str], None] = print
        self.tell = tell or print
        self.count = 0
"""
ALIAS = "from collections.abc import Callable\nTell = Callable[[str], None]\n"


def test_a_planted_hook_is_found_whatever_its_annotation(tmp_path: pathlib.Path) -> None:
    wiring = "def wire(hub):\n    hub.on_silence = print\n    hub.one, hub.tell = 1, print\n    hub.count = 2\n"
    found = hooks_of(planted(tmp_path, alias=ALIAS, hub=HUB, wiring=wiring))
    assert found == ["supervisor/wiring.py:2: on_silence of Hub", "supervisor/wiring.py:3: tell of Hub"]


def test_a_planted_hook_of_a_part_within_another_is_found(tmp_path: pathlib.Path) -> None:
    desk = "class Desk:\n    def __init__(self, parts):\n        parts.hub.on_silence = self.silent\n"
    assert hooks_of(planted(tmp_path, hub=HUB, desk=desk)) == ["supervisor/desk.py:3: on_silence of Hub"]


def test_what_a_class_makes_of_its_own_is_no_hook(tmp_path: pathlib.Path) -> None:
    made = "\n    @classmethod\n    def of(cls):\n        hub = cls()\n        hub.tell = print\n        return hub\n"
    assert hooks_of(planted(tmp_path, alias=ALIAS, hub=HUB + made)) == []
