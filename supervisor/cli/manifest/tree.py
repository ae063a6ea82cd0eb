"""A JSON or YAML text as a tree in which every part knows its place. Pure.

YAML is read as Kubernetes reads it (YAML 1.1 with JSON's data model): `yes` and `off` are booleans, keys are texts,
merges (`<<`) work, and no tag makes an object. An alias is the same node and no copy, so that aliases of aliases cost
nothing.
"""

import re
from collections.abc import Iterator, Mapping

import yaml

from shim.frozen import field, frozen, mutable
from shim.patterns import LatePattern
from supervisor.cli.manifest import jsontext
from supervisor.cli.manifest.marks import Alias, BadText, End, Event, Mark, MarkedNumber, Scalar, Start, Value
from supervisor.model.errors import BadRequest

MOST_CHARACTERS = 1 << 20
MOST_DEPTH = 100
MERGE = "<<"
BEGINNING = Mark(1, 1)
_STRING = "tag:yaml.org,2002:str"
_TRUE = frozenset(["y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"])
_FALSE = frozenset(["n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"])
_NULL = frozenset(("", "~", "null", "Null", "NULL"))
_NUMBER = LatePattern(
    r"[-+]?(?:0b[01_]+|0o?[0-7_]+|0x[0-9a-fA-F_]+|\d[\d_]*|(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|\.(?:inf|Inf|INF))"
    r"|\.(?:nan|NaN|NAN)",
    re.ASCII,
)


@frozen
class TreeNode:
    """A part of a document. A mapping's keys come with their own places."""

    mark: Mark
    value: "Value | tuple[TreeNode, ...] | Mapping[str, TreeNode]"
    keys: Mapping[str, Mark] = field(default_factory=dict)


def kind_of(value: object) -> str:
    """Return a name of the part's type, for people."""
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case MarkedNumber():
            return "a number"
        case str():
            return "a text"
        case tuple():
            return "a list"
    return "a mapping"


def documents(text: str, file: str, *, json: bool = False) -> tuple[TreeNode, ...]:
    """Return all documents that are not empty; JSON is one. Raises BadRequest with file, line, column and field."""
    if len(text) > MOST_CHARACTERS:
        raise BadRequest(f"{file}: more than {MOST_CHARACTERS} characters are not read", file=file)
    composer = _Composer()
    try:
        for event in jsontext.events(text) if json else _yaml_events(text):
            composer.take(event)
    except BadText as error:
        raise _bad(file, error.mark, composer.path(), error.what) from error
    return tuple(composer.done)


def _bad(file: str, mark: Mark, path: str, what: str) -> BadRequest:
    place = f"{file}:{mark.line}:{mark.column}"
    return BadRequest(f"{place}: {path}: {what}" if path else f"{place}: {what}", file=file, field=path)


@mutable
class _Open:
    """A mapping or list that has not ended yet."""

    start: Start
    parts: dict[str, TreeNode] = field(default_factory=dict)
    keys: dict[str, Mark] = field(default_factory=dict)
    items: list[TreeNode] = field(default_factory=list)
    merged: list[TreeNode] = field(default_factory=list)
    key: str | None = None
    key_mark: Mark = BEGINNING


class _Composer:
    """Events into nodes, without recursion: a document may be as deep as MOST_DEPTH, and no deeper."""

    def __init__(self) -> None:
        self.done: list[TreeNode] = []
        self._open: list[_Open] = []
        self._anchors: dict[str, TreeNode] = {}

    def path(self) -> str:
        """Where in the document the text has come to."""
        words = ""
        for each in self._open:
            if not each.start.is_map:
                words += f"[{len(each.items)}]"
            elif each.key is not None:
                words += f".{each.key}" if words else each.key
        return words

    def take(self, event: Event) -> None:
        match event:
            case Start():
                if len(self._open) == MOST_DEPTH:
                    raise BadText(event.mark, f"nested deeper than {MOST_DEPTH}")
                if self._wants_key():
                    raise BadText(event.mark, "a key must be a text")
                self._open.append(_Open(event))
            case End():
                self._close(self._open.pop())
            case Alias(mark, anchor):
                if anchor not in self._anchors:
                    raise BadText(mark, f"the alias *{anchor} stands for nothing that has been read to its end")
                if self._wants_key():
                    raise BadText(mark, "a key must be a text, and no alias")
                self._part(self._anchors[anchor], "")
            case Scalar(mark, value, anchor):
                _check_text(mark, value)
                if self._wants_key():
                    self._key(mark, value, anchor)
                else:
                    self._part(TreeNode(mark, value), anchor)

    def _wants_key(self) -> bool:
        return bool(self._open) and self._open[-1].start.is_map and self._open[-1].key is None

    def _key(self, mark: Mark, value: Value, anchor: str) -> None:
        here = self._open[-1]
        if not isinstance(value, str):
            raise BadText(mark, f"the key is {kind_of(value)} and no text; write it in quotes")
        if value in here.keys:
            first = here.keys[value]
            raise BadText(mark, f"the key {value!r} is here twice; the first one is in line {first.line}")
        if anchor:
            self._anchors[anchor] = TreeNode(mark, value)
        here.key, here.key_mark = value, mark

    def _part(self, node: TreeNode, anchor: str) -> None:
        if anchor:
            self._anchors[anchor] = node
        if not self._open:
            self._anchors = {}
            if node.value is not None:
                self.done.append(node)
            return
        here = self._open[-1]
        if not here.start.is_map:
            here.items.append(node)
        elif here.key == MERGE and here.start.merges:
            here.merged += _merged(node)
            here.keys[MERGE] = here.key_mark
            here.key = None
        else:
            assert here.key is not None
            here.parts[here.key], here.keys[here.key] = node, here.key_mark
            here.key = None

    def _close(self, here: _Open) -> None:
        if here.start.merges:
            here.keys.pop(MERGE, None)
        for other in here.merged:  # the first one that has a key gives it, and what stands here itself is first
            assert isinstance(other.value, dict)
            for key, node in other.value.items():
                here.parts.setdefault(key, node)
                here.keys.setdefault(key, other.keys[key])
        whole = TreeNode(here.start.mark, here.parts if here.start.is_map else tuple(here.items), here.keys)
        self._part(whole, here.start.anchor)


def _merged(node: TreeNode) -> list[TreeNode]:
    found = list(node.value) if isinstance(node.value, tuple) else [node]
    if not all(isinstance(each.value, dict) for each in found):
        raise BadText(node.mark, "<< merges mappings; this is something else")
    return found


def _yaml_events(text: str) -> Iterator[Event]:
    try:
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            mark = _place(event.start_mark)
            match event:
                case yaml.MappingStartEvent() | yaml.SequenceStartEvent():
                    _check_tag(event, mark)
                    is_map = isinstance(event, yaml.MappingStartEvent)
                    yield Start(mark, is_map, event.anchor or "", merges=True)
                case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                    yield End()
                case yaml.AliasEvent():
                    yield Alias(mark, event.anchor or "")
                case yaml.ScalarEvent():
                    yield Scalar(mark, _scalar(event, mark), event.anchor or "")
    except yaml.MarkedYAMLError as error:
        what = " ".join(filter(None, (error.context, error.problem)))
        raise BadText(_place(error.problem_mark or error.context_mark), f"no YAML: {what}") from error
    except yaml.reader.ReaderError as error:
        before = text[: error.position]
        where = Mark(before.count("\n") + 1, error.position - (before.rfind("\n") + 1) + 1)
        raise BadText(where, f"no YAML: the character {text[error.position]!r} is not allowed") from error


def _place(mark: "yaml.error.Mark | yaml._yaml.Mark | None") -> Mark:
    return Mark(mark.line + 1, mark.column + 1) if mark is not None else BEGINNING


def _check_tag(event: yaml.MappingStartEvent | yaml.SequenceStartEvent, mark: Mark) -> None:
    if event.tag not in (None, "!"):
        raise BadText(mark, f"the tag {event.tag} is not known here")


def _scalar(event: yaml.ScalarEvent, mark: Mark) -> Value:
    if event.tag == _STRING or (event.tag in (None, "!") and not event.implicit[0]):
        return event.value
    if event.tag is not None:
        raise BadText(mark, f"the tag {event.tag} is not known here")
    word = event.value
    if word in _NULL:
        return None
    if word in _TRUE or word in _FALSE:
        return word in _TRUE
    return MarkedNumber(word) if _NUMBER.fullmatch(word) else word


def _check_text(mark: Mark, value: Value) -> None:
    """C sees another text than Python behind a NUL; half of a surrogate pair is no character."""
    if isinstance(value, str) and ("\0" in value or any("\ud800" <= char <= "\udfff" for char in value)):
        raise BadText(mark, "a NUL or half a surrogate pair stands in the text")
