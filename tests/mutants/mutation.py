"""Lists every small mistake that one place of a Python source can have. Pure: text in, values out.

Left out, since no test should hold them: docstrings, annotations, decorators, assertions, `__all__`, the arguments of a
logger and of a raised error, and f-strings (whose parts have no positions before Python 3.12).
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}
LOGGERS = {"log", "logger"}


@dataclass(frozen=True, slots=True)
class Mutant:
    """One mistake: `before`, at these offsets of the file's bytes, is written as `after`."""

    path: str
    line: int
    begin: int
    end: int
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {_one_line(self.before)}  ->  {_one_line(self.after)}"

    def applied(self, source: str) -> str:
        data = source.encode()
        return (data[: self.begin] + self.after.encode() + data[self.end :]).decode()


def mutants(path: str, source: str) -> list[Mutant]:
    """Every mutant of a source, from its beginning to its end. Raises SyntaxError when it is no Python."""
    lines = _Lines(source)
    found = [lines.mutant(path, node, after) for node, after in _places(ast.parse(source))]
    return sorted(found, key=lambda mutant: (mutant.begin, mutant.end, mutant.after))


class _Lines:
    """ast counts lines from 1, and bytes in a line from 0."""

    def __init__(self, source: str) -> None:
        self._data = source.encode()
        self._starts = [0]
        for line in self._data.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))

    def mutant(self, path: str, node: ast.stmt | ast.expr, after: str) -> Mutant:
        assert node.end_lineno is not None and node.end_col_offset is not None
        begin = self._starts[node.lineno - 1] + node.col_offset
        end = self._starts[node.end_lineno - 1] + node.end_col_offset
        return Mutant(path, node.lineno, begin, end, self._data[begin:end].decode(), after)


def _places(node: ast.AST) -> Iterator[tuple[ast.stmt | ast.expr, str]]:
    """What may be replaced, and by which text."""
    if isinstance(node, ast.stmt):
        yield from _statement(node)
    elif isinstance(node, ast.expr):
        yield from _expression(node)
    for child in _children(node):
        yield from _places(child)


def _children(node: ast.AST) -> Iterator[ast.AST]:
    match node:
        case ast.JoinedStr() | ast.Assert() | ast.Raise() | ast.Import() | ast.ImportFrom():
            return
        case ast.Expr(value=ast.Constant()):  # a docstring
            return
        case ast.Assign(targets=[ast.Name(id="__all__")]):
            return
        case ast.Call() if _logs(node):
            return
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            yield from (*node.args.defaults, *filter(None, node.args.kw_defaults), *node.body)
        case ast.ClassDef():
            yield from node.body
        case ast.AnnAssign():
            yield from filter(None, [node.value])
        case _:
            yield from ast.iter_child_nodes(node)


def _statement(node: ast.stmt) -> Iterator[tuple[ast.stmt | ast.expr, str]]:
    match node:
        case ast.Expr(value=ast.Call() | ast.Await()) if not _logs(node.value):
            yield node, "pass"
        case ast.AugAssign() | ast.Raise() | ast.Delete() | ast.Continue() | ast.Break():
            yield node, "pass"
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield node, "pass"
        case ast.Return(value=ast.expr() as value) if not (isinstance(value, ast.Constant) and value.value is None):
            yield node, "return None"
        case ast.If() | ast.While() if not isinstance(node.test, ast.Constant):
            yield node.test, f"(not ({ast.unparse(node.test)}))"


def _expression(node: ast.expr) -> Iterator[tuple[ast.expr, str]]:
    match node:
        case ast.Compare(ops=[op, *_]) if type(op) in COMPARISONS:
            yield node, _written(ast.Compare(node.left, [COMPARISONS[type(op)](), *node.ops[1:]], node.comparators))
        case ast.BoolOp():
            other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
            yield node, _written(ast.BoolOp(other, node.values))
        case ast.UnaryOp(op=ast.Not()):
            yield node, _written(node.operand)
        case ast.BinOp() if type(node.op) in ARITHMETIC:
            yield node, _written(ast.BinOp(node.left, ARITHMETIC[type(node.op)](), node.right))
        case ast.IfExp():
            yield node, _written(ast.IfExp(ast.UnaryOp(ast.Not(), node.test), node.body, node.orelse))
        case ast.Constant(value=bool() as value):
            yield node, str(not value)
        case ast.Constant(value=int() | float() as value):
            yield node, repr(value + 1)
        case ast.Constant(value=str() as value):
            yield node, repr(f"{value}?")
        case ast.Constant(value=bytes() as value):
            yield node, repr(value + b"?")


def _written(node: ast.expr) -> str:
    return f"({ast.unparse(ast.fix_missing_locations(node))})"


def _logs(node: ast.expr) -> bool:
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name))):
            return name in LOGGERS
    return False


def _one_line(text: str) -> str:
    return re.sub(r"\s+", " ", text)
