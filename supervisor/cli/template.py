r"""Go templates as hands know them from docker's --format: a small, pure look-alike.

Known: `{{.}}`, `{{.A.B}}`, `{{json .A}}`, `{{upper .A}}`, `{{lower .A}}`, `{{len .A}}`, `{{join .A ","}}`,
`{{index .A "key"}}`, `{{"text"}}`, and the two-letter escapes \t and \n outside of the braces. A leading `table ` asks
for columns (see `headings`). Everything else is a BadRequest that names the field or word.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from supervisor.model.errors import BadRequest

Value = object
Piece = Callable[[Value], str]

_ACTION = re.compile(r"\{\{-?\s*(.*?)\s*-?\}\}", re.DOTALL)
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|\S+')
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")  # all but tab and newline
_FIELD = re.compile(r"\.(?:[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)?")


@dataclass(frozen=True, slots=True)
class Template:
    """A parsed template: `render` one value, `headings` for a table of them."""

    pieces: tuple[Piece, ...]
    heading: str
    is_table: bool

    def render(self, value: Value) -> str:
        """Raises BadRequest naming a field the value does not have."""
        return "".join(piece(value) for piece in self.pieces)


def parse(text: str) -> Template:
    """Raises BadRequest for what this look-alike does not know."""
    is_table = text.startswith("table ")
    body = text.removeprefix("table ").strip() if is_table else text
    pieces: list[Piece] = []
    headings: list[str] = []
    end = 0
    for match in _ACTION.finditer(body):
        pieces.append(_literal(body[end : match.start()]))
        pieces.append(_action(match[1]))
        headings += [_unescape(body[end : match.start()]), _heading(match[1])]
        end = match.end()
    rest = body[end:]
    if "{{" in rest or "}}" in _ACTION.sub("", body):
        raise BadRequest(f"template {text!r}: a {{{{ without its }}}}, or the reverse")
    return Template((*pieces, _literal(rest)), "".join(headings) + _unescape(rest), is_table)


def _unescape(text: str) -> str:
    return text.replace("\\t", "\t").replace("\\n", "\n")


def _literal(text: str) -> Piece:
    plain = _unescape(text)
    return lambda _: plain


def _heading(action: str) -> str:
    name = action.split(".")[-1].split(" ")[0] or "value"
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).upper()


def _action(action: str) -> Piece:
    tokens = _TOKEN.findall(action)
    if not tokens:
        raise BadRequest("an empty {{}} in the template")
    word, *arguments = tokens
    if not arguments and word[0] in '."':
        operand = _operand(word)
        return lambda value: _printable(say(operand(value)))
    function = FUNCTIONS.get(word)
    if function is None:
        known = ", ".join(FUNCTIONS)
        raise BadRequest(f"template word {word!r} is not known here; there are fields such as .ID and: {known}")
    count, behaviour = function
    if len(arguments) != count:
        raise BadRequest(f"template word {word!r} takes {count} value(s), not {len(arguments)}")
    operands = [_operand(argument) for argument in arguments]
    return lambda value: _printable(behaviour(*(operand(value) for operand in operands)))


def _operand(token: str) -> Callable[[Value], Value]:
    if token.startswith('"'):
        try:
            text = json.loads(token)
        except ValueError:
            raise BadRequest(f"template text {token} is not a quoted string") from None
        return lambda _: text
    if not _FIELD.fullmatch(token):
        raise BadRequest(f"template word {token!r} is neither a field such as .State.Pid nor a quoted text")
    names = token[1:].split(".") if token != "." else []
    return lambda value: _walk(value, names)


def _walk(value: Value, names: Sequence[str]) -> Value:
    for depth, name in enumerate(names):
        if value is None:  # what is below nothing is nothing: an exit that has not happened has no code
            return None
        if not isinstance(value, Mapping) or name not in value:
            path = "." + ".".join(names[: depth + 1])
            there = ", ".join(map(str, value)) if isinstance(value, Mapping) else "nothing"
            raise BadRequest(f"the template names the field {path}, which does not exist; there is {there}")
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
    if not isinstance(value, list | tuple):
        raise BadRequest("join in the template wants a list")
    return str(separator).join(map(say, value))


def _index(value: Value, key: Value) -> str:
    if not isinstance(value, Mapping):
        raise BadRequest("index in the template wants a map, such as .Config.Labels")
    return say(value.get(key, ""))


def _len(value: Value) -> str:
    if not isinstance(value, Mapping | list | tuple | str):
        raise BadRequest("len in the template wants a list, a map or a text")
    return str(len(value))


FUNCTIONS: Mapping[str, tuple[int, Callable[..., str]]] = {
    "json": (1, _json),
    "upper": (1, lambda value: say(value).upper()),
    "lower": (1, lambda value: say(value).lower()),
    "len": (1, _len),
    "join": (2, _join),
    "index": (2, _index),
}
