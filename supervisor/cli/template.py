r"""Go templates as hands know them from docker's --format: a small, pure look-alike.

A pipeline is commands between `|`, each of which gets the value before it as its last argument. A command is one
operand, or a word of FUNCTIONS with operands. An operand is a field (`.`, `.A.B`), a variable (`$`, `$v.A`), a "text",
a number, true, false, nil, or a pipeline in parentheses, behind which fields may stand: `(index .A 0).B`.

Blocks: `{{if PIPELINE}}`, `{{else if PIPELINE}}`, `{{else}}`, `{{end}}`; `{{with PIPELINE}}`; `{{range PIPELINE}}`,
`{{range $key, $value := PIPELINE}}`. `$` is the whole document. `{{- ` and ` -}}` remove the white space beside them;
outside of the braces there are the two-letter escapes \t and \n. A leading `table ` asks for columns (see `headings`).
Everything else is a BadRequest that says where it stands and what to write instead.

https://pkg.go.dev/text/template
"""

import json
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from shim.frozen import frozen
from shim.patterns import LatePattern
from supervisor.model.errors import BadRequest

MOST_DEPTH = 50  # blocks within blocks, `else if` among them; and parentheses and pipes of one action
MOST_CHARACTERS = 1 << 26  # of one document; each step counts as STEP_CHARACTERS more, so that empty loops end, too
STEP_CHARACTERS = 64

_ACTION = LatePattern(r"\{\{(-(?=\s))?\s*(.*?)\s*((?<=\s)-)?\}\}", re.DOTALL)
_TOKEN = LatePattern(r'"(?:[^"\\]|\\.)*"|`[^`]*`|\)(?:\.[A-Za-z_]\w*)*|[(|]|[^\s()|"`]+|["`]')
_CONTROL = LatePattern(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")  # all but tab and newline
_PATH = LatePattern(r"(\$\w*)?((?:\.[A-Za-z_]\w*)*)")
_NUMBER = LatePattern(r"-?[0-9]{1,18}(\.[0-9]{1,18})?")
_VERB = LatePattern(r"%([-+ 0]{0,4})([0-9]{0,3})((?:\.[0-9]{0,2})?)(.?)", re.DOTALL)  # of printf
_FIELD = LatePattern(r"\.([A-Za-z_]\w*)")
_DECLARED = LatePattern(r"(?:(\$\w+)\s*,\s*)?(\$\w+)\s*:=\s*(.*)", re.DOTALL)
_SPACE = " \t\r\n"  # what Go trims
ROOT = "$"

Value = object


@frozen
class Scope:
    """What `.` is here, and each variable; `$` is the whole document."""

    dot: Value
    variables: Mapping[str, Value]


Expression = Callable[[Scope], Value]
Piece = Callable[[Scope], Iterator[str]]  # yields once for each step, so that steps can be counted


@frozen
class Template:
    """A parsed template: `render` one value, `headings` for a table of them."""

    pieces: tuple[Piece, ...]
    heading: str
    is_table: bool

    def render(self, value: Value) -> str:
        """Raises BadRequest naming a field the value does not have, or when it writes more than MOST_CHARACTERS."""
        texts, spent = [], 0
        for text in _each(self.pieces, Scope(value, {ROOT: value})):
            spent += STEP_CHARACTERS + len(text)
            if spent > MOST_CHARACTERS:
                raise BadRequest("the template writes too much of one document; put fewer ranges into one another")
            texts.append(text)
        return "".join(texts)


def parse(text: str) -> Template:
    """Raises BadRequest for what this look-alike does not know."""
    is_table = text.startswith("table ")
    body = text.removeprefix("table ").strip() if is_table else text
    parts = list(_parts(body, text.find(body)))
    pieces = _Parser(parts).whole()
    return Template(pieces, "".join(_headings(parts)) if is_table else "", is_table)


@frozen
class _Action:
    """What stands between two braces. `at` counts characters of the whole template from 1; `word` is its first one."""

    text: str
    at: int

    @property
    def word(self) -> str:
        return next(iter(self.text.split(maxsplit=1)), "")

    @property
    def rest(self) -> str:
        return self.text[len(self.word) :].strip()

    def wrong(self, words: str) -> BadRequest:
        return BadRequest(f"template, {{{{{self.text}}}}} at character {self.at}: {words}")


class _Wrong(Exception):
    """An expression that has no value; the caller, which knows the place, makes a BadRequest of it."""


def _parts(body: str, offset: int) -> Iterator[str | _Action]:
    """Texts, unescaped and trimmed, and the actions between them."""
    end, trims = 0, False
    for match in _ACTION.finditer(body):
        yield _literal(body[end : match.start()], offset + end, trims, bool(match[1]))
        yield _Action(match[2], offset + match.start() + 1)
        end, trims = match.end(), bool(match[3])
    yield _literal(body[end:], offset + end, trims, False)


def _literal(text: str, offset: int, trims_left: bool, trims_right: bool) -> str:
    for braces, other in (("{{", "}}"), ("}}", "{{")):
        if (at := text.find(braces)) >= 0:
            raise BadRequest(f"template, character {offset + at + 1}: {braces} without its {other}; add {other}")
    plain = text.replace("\\t", "\t").replace("\\n", "\n")
    plain = plain.lstrip(_SPACE) if trims_left else plain
    return plain.rstrip(_SPACE) if trims_right else plain


def _headings(parts: Iterable[str | _Action]) -> Iterator[str]:
    """Of what stands in no block; a block has one of its own, as its value has."""
    depth = 0
    for part in parts:
        if isinstance(part, str):
            yield "" if depth else part
            continue
        depth -= part.word == "end"
        if not depth and part.word != "end":
            yield _heading(part.text)
        depth += part.word in BLOCKS


def _heading(action: str) -> str:
    plain = re.sub(r'"[^"]*"|`[^`]*`', "", action)
    name = (_FIELD.findall(plain) or ["value"])[-1]
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).upper()


class _Parser:
    """Reads on at `_next`. Each method knows the variables that there are where it reads."""

    def __init__(self, parts: Sequence[str | _Action]) -> None:
        self._parts = parts
        self._next = 0
        self._depth = 0

    def whole(self) -> tuple[Piece, ...]:
        pieces, closing = self._pieces(frozenset((ROOT,)))
        if closing is not None:
            raise closing.wrong("there is no {{if}} or {{range}} before it that is still open; take it out")
        return pieces

    def _pieces(self, names: frozenset[str]) -> tuple[tuple[Piece, ...], _Action | None]:
        """Up to the `else` or `end` of the block, or the end of the template."""
        found: list[Piece] = []
        while self._next < len(self._parts):
            part = self._parts[self._next]
            self._next += 1
            if isinstance(part, str):
                found.append(_text(part))
            elif part.word in CLOSING:
                return tuple(found), part
            elif part.word in BLOCKS:
                found.append(self._block(part, names))
            else:
                found.append(_show(part, _expression(part, part.text, names)))
        return tuple(found), None

    def _block(self, action: _Action, names: frozenset[str]) -> Piece:
        if self._depth == MOST_DEPTH:
            raise action.wrong(f"more than {MOST_DEPTH} blocks are open; write fewer into one another")
        self._depth += 1
        declared = _DECLARED.fullmatch(action.rest) if action.word == "range" else None
        key, value, rest = declared.groups() if declared else (None, None, action.rest)
        expression = _expression(action, rest, names)
        body, closing = self._pieces(names | {name for name in (key, value) if name})
        otherwise: tuple[Piece, ...] = ()
        if closing is not None and closing.word == "else":
            otherwise, closing = self._else(action, closing, names)
        if closing is None or closing.text != "end":
            raise (closing or action).wrong(
                f"the {{{{{action.word}}}}} has no {{{{end}}}}; add it where the block ends"
            )
        self._depth -= 1
        if action.word == "with":
            return _with(action, expression, body, otherwise)
        if action.word == "if":
            return _choose(action, expression, body, otherwise)
        return _repeat(action, expression, (key, value), body, otherwise)

    def _else(
        self, action: _Action, closing: _Action, names: frozenset[str]
    ) -> tuple[tuple[Piece, ...], _Action | None]:
        """What is there for the other case, and the `end`, which an `else if` shares with its `if`."""
        if not closing.rest:
            return self._pieces(names)
        following = _Action(closing.rest, closing.at)
        if (action.word, following.word) != ("if", "if"):
            raise closing.wrong("an {{if}} may have an {{else if .FIELD}}, everything else an {{else}}; write that")
        return (self._block(following, names),), _Action("end", closing.at)


def _each(pieces: Iterable[Piece], scope: Scope) -> Iterator[str]:
    for piece in pieces:
        yield from piece(scope)


def _text(text: str) -> Piece:
    return lambda _: iter((text,))


def _value(action: _Action, expression: Expression, scope: Scope) -> Value:
    try:
        return expression(scope)
    except _Wrong as error:
        raise action.wrong(str(error)) from None


def _show(action: _Action, expression: Expression) -> Piece:
    def show(scope: Scope) -> Iterator[str]:
        yield _printable(say(_value(action, expression, scope)))

    return show


def _choose(action: _Action, condition: Expression, then: Sequence[Piece], otherwise: Sequence[Piece]) -> Piece:
    """Go takes false, 0, nil and what is empty for untrue, and so does Python."""

    def choose(scope: Scope) -> Iterator[str]:
        yield from _each(then if _value(action, condition, scope) else otherwise, scope)

    return choose


def _with(action: _Action, expression: Expression, then: Sequence[Piece], otherwise: Sequence[Piece]) -> Piece:
    """As `_choose`; the value is `.` in what it chooses."""

    def show(scope: Scope) -> Iterator[str]:
        value = _value(action, expression, scope)
        yield from _each(then, Scope(value, scope.variables)) if value else _each(otherwise, scope)

    return show


def _repeat(
    action: _Action, expression: Expression, names: tuple[str | None, str | None], body: Sequence[Piece],
    otherwise: Sequence[Piece],
) -> Piece:  # fmt: skip
    def repeat(scope: Scope) -> Iterator[str]:
        pairs = _pairs(action, _value(action, expression, scope))
        for key, value in pairs:
            yield ""
            given = {name: each for name, each in zip(names, (key, value), strict=True) if name}
            yield from _each(body, Scope(value, {**scope.variables, **given}))
        if not pairs:
            yield from _each(otherwise, scope)

    return repeat


def _pairs(action: _Action, value: Value) -> Sequence[tuple[Value, Value]]:
    """A list's with their numbers from 0, a map's in the order of their keys; nothing has none."""
    if value is None:
        return ()
    if isinstance(value, Mapping):
        return [(key, value[key]) for key in sorted(value)]
    if isinstance(value, list | tuple):
        return list(enumerate(value))
    itself = action.rest.rpartition(":=")[2].strip()
    raise action.wrong(f"range wants a list or a map; write {{{{{itself}}}}} for the value itself")


def _expression(action: _Action, text: str, names: frozenset[str]) -> Expression:
    """Return what a pipeline stands for."""
    try:
        return _Expressions(_TOKEN.findall(text), names).whole()
    except _Wrong as error:
        raise action.wrong(str(error)) from None


class _Expressions:
    """Reads the words of one action on at `_next`. `names`: the variables that there are."""

    def __init__(self, tokens: Sequence[str], names: frozenset[str]) -> None:
        self._tokens = tokens
        self._names = names
        self._next = 0
        self._depth = 0

    def whole(self) -> Expression:
        """Raises _Wrong."""
        found = self._pipeline()
        if self._next < len(self._tokens):
            raise _Wrong("there is no ( for this ); take it out")
        return found

    def _pipeline(self) -> Expression:
        found = self._command(None)
        while self._peek() == "|":
            self._deeper()
            found = self._command(found)
        return found

    def _command(self, before: Expression | None) -> Expression:
        """`before`: what the pipe brings, its last argument."""
        word = self._peek()
        if word == LABEL or (word[:1].isalpha() and word not in CONSTANTS):
            self._next += 1
            return _call(word, [*self._operands(), *([before] if before else [])])
        operands = self._operands()
        if not operands:
            raise _Wrong("there is no value; name a field such as .ID")
        if len(operands) > 1:
            raise _Wrong(f"a value and another one behind it; what stands in front is one of: {', '.join(FUNCTIONS)}")
        if before:
            raise _Wrong(f"behind a | stands one of: {', '.join(FUNCTIONS)}")
        return operands[0]

    def _operands(self) -> list[Expression]:
        found = []
        while (word := self._peek()) and word != "|" and word[0] != ")":
            if word == "(":
                found.append(self._parenthesis())
            else:
                self._next += 1
                found.append(_operand(word, self._names))
        return found

    def _parenthesis(self) -> Expression:
        self._deeper()
        inner, close = self._pipeline(), self._peek()
        if not close:
            raise _Wrong("there is a ( without its ); add )")
        self._next += 1
        fields = close.split(".")[1:]
        return lambda scope: _below(inner(scope), fields)

    def _deeper(self) -> None:
        """Read a ( or a |. Each is a step further in when the value is made."""
        self._next += 1
        self._depth += 1
        if self._depth > MOST_DEPTH:
            raise _Wrong(f"more than {MOST_DEPTH} parentheses and |; write fewer into one action")

    def _peek(self) -> str:
        return self._tokens[self._next] if self._next < len(self._tokens) else ""


def _call(word: str, operands: Sequence[Expression]) -> Expression:
    if word == LABEL:
        if len(operands) != 1:
            raise _Wrong(f"{LABEL} takes 1 value(s), not {len(operands)}")
        return lambda scope: _index(_walk(scope.dot, "", ["Labels"]), operands[0](scope))
    if word not in FUNCTIONS:
        known = ", ".join((*FUNCTIONS, *BLOCKS))
        raise _Wrong(f"the word {word!r} is not known here; there are fields such as .ID and: {known}")
    least, most, behaviour = FUNCTIONS[word]
    if not least <= len(operands) <= most:
        wanted = f"{least}" if least == most else f"{least} or more" if most == ANY else f"{least} to {most}"
        raise _Wrong(f"{word} takes {wanted} value(s), not {len(operands)}")

    def value(scope: Scope) -> Value:
        made = behaviour(*(operand(scope) for operand in operands))
        if isinstance(made, str) and len(made) > MOST_CHARACTERS:  # JSON of JSON of JSON doubles each time
            raise _Wrong("this makes too long a text")
        return made

    return value


def _operand(token: str, names: frozenset[str]) -> Expression:
    if token[0] in '"`':
        text = _text_of(token)
        return lambda _: text
    if token in CONSTANTS:
        return lambda _: CONSTANTS[token]
    if number := _NUMBER.fullmatch(token):
        value = float(token) if number[1] else int(token)
        return lambda _: value
    if token == ".":
        return lambda scope: scope.dot
    path = _PATH.fullmatch(token)
    if path is None:
        raise _Wrong(f"{token!r} is neither a field such as .State.Pid nor a text in double quotes")
    variable, fields = path[1], path[2].split(".")[1:]
    if variable is None:
        return lambda scope: _walk(scope.dot, "", fields)
    if variable not in names:
        raise _Wrong(f"there is no {variable} here; there is {', '.join(sorted(names))}")
    return lambda scope: _walk(scope.variables[variable], variable, fields)


def _text_of(token: str) -> str:
    if token[0] == "`" and len(token) > 1:
        return token[1:-1]
    try:
        return str(json.loads(token))
    except ValueError:
        raise _Wrong(f"{token} is not a text in double quotes") from None


def _walk(value: Value, start: str, names: Sequence[str]) -> Value:
    for depth, name in enumerate(names):
        if value is None:  # what is below nothing is nothing: an exit that has not happened has no code
            return None
        if not isinstance(value, Mapping) or name not in value:
            path = ".".join((start, *names[: depth + 1]))
            there = ", ".join(map(str, value)) if isinstance(value, Mapping) else "nothing"
            raise _Wrong(f"the field {path} does not exist; there is {there}")
        value = value[name]
    return value


def say(value: Value) -> str:
    """A value as Go's fmt prints it: true, <nil>, [a b], map[k:v]."""
    if value is None:
        return "<nil>"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return "map[" + " ".join(f"{key}:{say(value[key])}" for key in sorted(value)) + "]"
    if isinstance(value, list | tuple):
        return "[" + " ".join(map(say, value)) + "]"
    return str(value)


def _printable(text: str) -> str:
    """No container's name or command can steer a terminal. What stands between the braces' values is the user's own."""
    return _CONTROL.sub("?", text)


def _json(value: Value) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _join(value: Value, separator: Value) -> str:
    if not isinstance(value, list | tuple | None):
        raise _Wrong('join wants a list, and then what comes between, as in {{join .Config.Cmd " "}}')
    return str(separator).join(map(say, value or ()))


def _below(value: Value, fields: Sequence[str]) -> Value:
    """As `_index`, for the fields behind parentheses."""
    return value if value is None or value == "" else _walk(value, "(...)", fields)


def _index(value: Value, *keys: Value) -> Value:
    """What is below nothing, or is not there in a map, is nothing."""
    for key in keys:
        if value is None or value == "":
            return ""
        value = _at(value, key)
    return value


def _at(value: Value, key: Value) -> Value:
    if isinstance(value, Mapping):
        if not isinstance(key, str):
            raise _Wrong('index wants a key in double quotes, as in {{index .Config.Labels "key"}}')
        return value.get(key, "")
    if not isinstance(value, list | tuple):
        raise _Wrong("index wants a map, such as .Config.Labels, or a list")
    if _kind(key) != "number" or not isinstance(key, int):
        raise _Wrong("index wants the number of a list's value, from 0 on, as in {{index .Args 0}}")
    if not 0 <= key < len(value):
        raise _Wrong(f"there is no value {key} in this list; it has {len(value)}, from 0 on")
    return value[key]


def _len(value: Value) -> int:
    if not isinstance(value, Mapping | list | tuple | str | None):
        raise _Wrong("len wants a list, a map or a text")
    return len(value or ())


def _kind(value: Value) -> str:
    for kind, types in (("nil", type(None)), ("truth", bool), ("number", (int, float)), ("text", str)):
        if isinstance(value, types):
            return kind
    return "list or map"


def _eq(first: Value, *others: Value) -> bool:
    """Return whether any of the others is the first. Nothing is nothing else."""
    return any(_compare("eq", operator.eq, first, other) for other in others)


def _compare(word: str, relation: Callable[[Any, Any], bool], first: Value, second: Value) -> bool:
    kinds = (_kind(first), _kind(second))
    if "nil" in kinds and word in ("eq", "ne"):
        return relation(*kinds)
    if kinds[0] != kinds[1] or kinds[0] not in (("text", "number") if word not in ("eq", "ne") else COMPARED):
        hint = "; a number stands without quotes" if {*kinds} == {"text", "number"} else ""
        raise _Wrong(f"{word} compares no {kinds[0]} with a {kinds[1]}{hint}")
    return relation(first, second)


def _comparison(word: str, relation: Callable[[Any, Any], bool]) -> tuple[int, int, Callable[..., Value]]:
    return 2, 2, lambda first, second: _compare(word, relation, first, second)


def _and(*values: Value) -> Value:
    return next((value for value in values if not value), values[-1])


def _or(*values: Value) -> Value:
    return next((value for value in values if value), values[-1])


def _printf(form: Value, *values: Value) -> str:
    """Go's verbs %s, %v, %q, %d, %t and %f, with width and precision."""
    if not isinstance(form, str):
        raise _Wrong('printf wants a text first, as in {{printf "%s" .ID}}')
    left = list(values)

    def put(match: re.Match[str]) -> str:
        flags, width, precision, verb = match.groups()
        if verb == "%":
            return "%"
        if verb not in VERBS:
            raise _Wrong(f"printf knows no {match[0]}; there are %s, %v, %q, %d, %t, %f and %%")
        if not left:
            raise _Wrong(f"printf has no value for {match[0]}; add one")
        wanted, value = VERBS[verb], left.pop(0)
        if wanted and _kind(value) != wanted:
            raise _Wrong(f"printf's {match[0]} wants a {wanted}, and this is a {_kind(value)}; %v takes all")
        text = json.dumps(say(value), ensure_ascii=False) if verb == "q" else say(value)
        if verb not in "df" or not _NUMBER.fullmatch(text):  # a number that is not known is said as it is
            return f"%{flags}{width}{precision if verb not in 'df' else ''}s" % text
        if verb == "d" and not isinstance(value, int):
            raise _Wrong(f"printf's {match[0]} wants a whole number; %f takes this one")
        return f"%{flags}{width}{precision}{verb}" % value

    made = _VERB.sub(put, form)
    if left:
        raise _Wrong(f"printf has {len(left)} value(s) too many; add a %s for each")
    return made


ANY = 1 << 20
BLOCKS = ("range", "if", "with")
LABEL = ".Label"  # a method of docker's: {{.Label "key"}} of a document with Labels
CLOSING = ("else", "end")
CONSTANTS: Mapping[str, Value] = {"true": True, "false": False, "nil": None}
COMPARED = ("text", "number", "truth")
VERBS = {"s": "", "v": "", "q": "", "d": "number", "f": "number", "t": "truth"}  # of printf, and what each wants
# How few and how many values each takes.
FUNCTIONS: Mapping[str, tuple[int, int, Callable[..., Value]]] = {
    "json": (1, 1, _json),
    "upper": (1, 1, lambda value: say(value).upper()),
    "lower": (1, 1, lambda value: say(value).lower()),
    "len": (1, 1, _len),
    "join": (2, 2, _join),
    "index": (2, ANY, _index),
    "eq": (2, ANY, _eq),
    "ne": _comparison("ne", operator.ne),
    "lt": _comparison("lt", operator.lt),
    "le": _comparison("le", operator.le),
    "gt": _comparison("gt", operator.gt),
    "ge": _comparison("ge", operator.ge),
    "and": (1, ANY, _and),
    "or": (1, ANY, _or),
    "not": (1, 1, lambda value: not value),
    "print": (0, ANY, lambda *values: "".join(map(say, values))),
    "printf": (1, ANY, _printf),
    "println": (0, ANY, lambda *values: " ".join(map(say, values)) + "\n"),
}
