"""supervisor/cli/template.py: Go templates as hands know them."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.cli import template
from supervisor.model.errors import BadRequest

DOCUMENT: dict[str, object] = {
    "ID": "abc",
    "Name": "web",
    "State": {"Pid": 12, "Running": True, "Error": None},
    "Exit": None,
    "Env": ["A=1", "B=2"],
    "Labels": {"b": "2", "a": "1"},
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{{.State.Pid}}", "12"),
        ("{{ .State.Pid }}", "12"),
        (r"{{.ID}}\t{{.Name}}\n", "abc\tweb\n"),
        ("{{.State.Running}}", "true"),
        ("{{.State.Error}}", "<nil>"),
        ("{{.Exit.Code}}", "<nil>"),
        ("{{.Env}}", "[A=1 B=2]"),
        ("{{.Labels}}", "map[a:1 b:2]"),
        ("{{json .State}}", '{"Pid":12,"Running":true,"Error":null}'),
        ('{{join .Env ","}}', "A=1,B=2"),
        ('{{index .Labels "a"}}', "1"),
        ('{{index .Labels "c"}}', ""),
        ("{{upper .Name}}{{lower .ID}}{{len .Env}}", "WEBabc2"),
        ('{{"x y"}}', "x y"),
        ("plain", "plain"),
    ],
)
def test_a_template_says_what_go_would_say(text: str, expected: str) -> None:
    assert template.parse(text).render(DOCUMENT) == expected


def test_json_of_everything_is_the_document() -> None:
    assert json.loads(template.parse("{{json .}}").render(DOCUMENT)) == DOCUMENT


@pytest.mark.parametrize(
    ("text", "field"), [("{{.Nope}}", r"\.Nope"), ("{{.State.Pidd}}", r"\.State\.Pidd"), ("{{.ID.X}}", r"\.ID\.X")]
)
def test_a_missing_field_is_named(text: str, field: str) -> None:
    with pytest.raises(BadRequest, match=field):
        template.parse(text).render(DOCUMENT)


@pytest.mark.parametrize(
    "text",
    ["{{", "{{.ID", "{{}}", "{{range .Env}}", "{{json}}", "{{join .Env}}", "{{ID}}", ".ID}}", "{{if .ID}}x{{end}}"],
)
def test_what_the_look_alike_does_not_know_is_refused(text: str) -> None:
    with pytest.raises(BadRequest):
        template.parse(text)


def test_a_table_template_has_headings_of_its_fields() -> None:
    parsed = template.parse(r"table {{.ID}}\t{{.RunningFor}}")
    assert parsed.is_table
    assert parsed.heading == "ID\tRUNNING FOR"


@given(st.text(alphabet=st.characters(exclude_characters="{}\\")))
def test_text_without_braces_comes_out_as_it_went_in(text: str) -> None:
    assert template.parse("x" + text).render({}) == "x" + text


@given(st.text(max_size=40))
def test_no_template_ends_in_anything_but_text_or_a_bad_request(text: str) -> None:
    try:
        template.parse(text).render(DOCUMENT)
        template.parse("{{" + text + "}}").render(DOCUMENT)
    except BadRequest:
        pass


@pytest.mark.parametrize("action", ["{{.Command}}", "{{upper .Command}}", '{{join .Words ","}}', '{{index .Map "k"}}'])
def test_no_value_can_steer_a_terminal(action: str) -> None:
    evil = "a\x1b]0;x\x07\x9b\x7fb"
    document = {"Command": evil, "Words": [evil, "c"], "Map": {"k": evil}}
    shown = template.parse("\x1b[1m" + action).render(document)
    assert shown.startswith("\x1b[1m") and shown.removeprefix("\x1b[1m").isprintable()
