"""supervisor/cli/template.py: Go templates as hands know them."""

import json
import re

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
    "Ports": {"80/tcp": [{"HostIp": "", "HostPort": "8080"}], "81/tcp": None},
    "Mounts": [],
    "NetworkSettings": {"Networks": {"two": {"IPAddress": "10.0.0.2"}, "one": {"IPAddress": "10.0.0.1"}}},
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
        ("{{`x \"y`}}", 'x "y'),
        ("plain", "plain"),
        ("{{.Name | upper}}", "WEB"),
        ("{{.Name|upper|lower|printf `%s!`}}", "web!"),
        ('{{json .Labels | len}} {{len (json .Labels)}}', "17 17"),
        ('{{(index (index .Ports "80/tcp") 0).HostPort}}', "8080"),
        ('{{(index .Ports "80/tcp" 0).HostPort}}', "8080"),
        ('{{(index (index .Ports "82/tcp") 0).HostPort}}', ""),
        ('{{index .Ports "81/tcp" 0}}{{index .Ports "82/tcp" 0}}', ""),
        ("{{index .Env 1}}", "B=2"),
        ("{{join .Exit \",\"}}{{len .Exit}}", "0"),
        ('{{eq .Name "web"}} {{ne .Name "web"}} {{eq .Name "a" "web"}}', "true false true"),
        ("{{eq .State.Pid 12}} {{eq .State.Pid 12.0}} {{eq .State.Pid -12}}", "true true false"),
        ("{{eq .State.Running true}} {{eq .Exit nil}} {{ne .ID nil}}", "true true true"),
        ("{{lt 1 2}} {{le 2 2}} {{gt 1 2}} {{ge 1 2}} {{lt `a` `b`}}", "true true false false true"),
        ('{{and .ID .Name}} {{and .ID .Exit}} {{or .Exit .Name}} {{or .Exit false}}', "web <nil> web false"),
        ("{{not .Exit}} {{not .ID}}", "true false"),
        ('{{if and .State.Running (not .Exit)}}up{{end}}', "up"),
        ('{{if (eq .Name "web" | not)}}a{{else if or .Exit (gt .State.Pid 3)}}b{{end}}', "b"),
        ('{{printf "%s is %d, %v, %q, %t%%" .Name .State.Pid .Env .ID true}}', 'web is 12, [A=1 B=2], "abc", true%'),
        ('{{printf "%-5s|%5s|%05d|%+d|%.2f|%.1s" .ID .ID 12 12 1.5 .ID}}', "abc  |  abc|00012|+12|1.50|a"),
        ('{{.ID | printf "%s-%s" .Name}}', "web-abc"),
        ("{{print .ID .Name}}", "abcweb"),
        ("{{with .State}}{{.Pid}} of {{$.ID}}{{end}}{{with .Exit}}x{{else}}{{.Name}}{{end}}", "12 of abcweb"),
        ('{{.Label "a" | printf "%q"}}', '"1"'),
    ],
)  # fmt: skip
def test_a_template_says_what_go_would_say(text: str, expected: str) -> None:
    assert template.parse(text).render(DOCUMENT) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{{range .NetworkSettings.Networks}}{{.IPAddress}} {{end}}", "10.0.0.1 10.0.0.2 "),
        ("{{range $name, $net := .NetworkSettings.Networks}}{{$name}}={{$net.IPAddress}} {{end}}",
         "one=10.0.0.1 two=10.0.0.2 "),
        ("{{range .Env}}{{println .}}{{end}}", "A=1\nB=2\n"),
        ("{{range $i, $v := .Env}}{{$i}}:{{$v}}:{{$.ID}} {{end}}", "0:A=1:abc 1:B=2:abc "),
        ("{{range $v := .Env}}{{$v}}{{.}} {{end}}", "A=1A=1 B=2B=2 "),
        ("{{range .Env}}{{range $.Labels}}{{.}}{{end}}{{end}}", "1212"),
        ("{{range .Mounts}}x{{else}}none of {{.Name}}{{end}}", "none of web"),
        ("{{range .Exit}}x{{else}}none{{end}}", "none"),
        ("{{range .Exit.Codes}}x{{end}}", ""),
        ('{{range index .NetworkSettings "Networks"}}{{.IPAddress}}{{end}}', "10.0.0.110.0.0.2"),
        ("{{println .ID .State.Pid}}{{println}}", "abc 12\n\n"),
        ("{{if .State.Running}}up{{else}}down{{end}}", "up"),
        ("{{if .Exit}}ended{{else if .State.Running}}runs{{else}}waits{{end}}", "runs"),
        ("{{if .Exit}}a{{else if .Mounts}}b{{else if .State.Error}}c{{else}}d{{end}}.", "d."),
        ("{{if .Exit}}a{{else if .Mounts}}b{{end}}", ""),
        ("{{if len .Mounts}}some{{else}}none{{end}}", "none"),
        ("{{ if .ID }}{{ range .Env }}{{ if . }}y{{ end }}{{ end }}{{ end }}", "yy"),
        ("{{range .Env}}{{if $.Mounts}}x{{else if .}}{{.}};{{end}}{{end}}", "A=1;B=2;"),
    ],
)  # fmt: skip
def test_blocks_repeat_and_choose_as_in_go(text: str, expected: str) -> None:
    assert template.parse(text).render(DOCUMENT) == expected


@pytest.mark.parametrize("value", [None, False, 0, 0.0, "", [], {}])
def test_what_is_nothing_zero_or_empty_is_untrue(value: object) -> None:
    assert template.parse("{{if .}}yes{{else}}no{{end}}").render(value) == "no"


@pytest.mark.parametrize("value", [True, 1, -1, 0.5, "0", "false", [None], {"a": None}])
def test_everything_else_is_true(value: object) -> None:
    assert template.parse("{{if .}}yes{{else}}no{{end}}").render(value) == "yes"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a \n {{- .ID}} b", "aabc b"),
        ("a {{.ID -}} \t\r\n b", "a abcb"),
        ("a {{- .ID -}} b", "aabcb"),
        (r"a\n{{- .ID -}}\tb", "aabcb"),
        ("a {{- .ID}} {{.ID -}} b", "aabc abcb"),
        ("{{range .Env -}} {{.}} {{- end}}", "A=1B=2"),
        ("{{range .Env -}}\n  {{println .}}\n{{- end}}", "A=1\nB=2\n"),
        ("a\u00a0{{- .ID}}", "a\u00a0abc"),
    ],
)
def test_a_dash_removes_the_white_space_beside_its_braces(text: str, expected: str) -> None:
    assert template.parse(text).render(DOCUMENT) == expected


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "x{{range .Env}}y",
            "{{range .Env}} at character 2: the {{range}} has no {{end}}; add it where the block ends",
        ),
        ("{{.ID}}{{end}}", "{{end}} at character 8: there is no {{if}} or {{range}} before it that is still open"),
        ("{{else}}", "{{else}} at character 1: there is no {{if}}"),
        ("{{if .ID}}{{else}}{{else}}{{end}}", "{{else}} at character 19: the {{if}} has no {{end}}"),
        ("{{range .Env}}{{else if .ID}}{{end}}", "{{else if .ID}} at character 15: an {{if}} may have an {{else if"),
        ("{{if}}x{{end}}", "{{if}} at character 1: there is no value; name a field such as .ID"),
        ("{{range $v := }}x{{end}}", "there is no value"),
        ("{{range $v := .Env}}x{{end}}{{$v}}", "{{$v}} at character 29: there is no $v here; there is $"),
        ("{{range $v := .Env}}{{else}}{{$v}}{{end}}", "there is no $v here; there is $"),
        ("{{$.}}", "'$.' is neither a field such as .State.Pid nor a text in double quotes"),
        ("table {{.ID}}  {{nope}}", "{{nope}} at character 16: the word 'nope' is not known here"),
        ("ab {{(.ID}}", "{{(.ID}} at character 4: there is a ( without its ); add )"),
        ("{{.ID)}}", "there is no ( for this ); take it out"),
        ("{{.ID | }}", "{{.ID |}} at character 1: there is no value"),
        ("{{| upper}}", "there is no value"),
        ("{{.ID | .Name}}", "behind a | stands one of: json, upper"),
        ("{{.ID .Name}}", "a value and another one behind it"),
        ("{{eq .ID}}", "eq takes 2 or more value(s), not 1"),
        ("{{not}}", "not takes 1 value(s), not 0"),
        ("{{upper" + " (upper" * 51 + "}}", "character 1: more than 50 parentheses and |"),
        ("{{.ID" + "|upper" * 51 + "}}", "character 1: more than 50 parentheses and |"),
        ("{{1e9}}", "'1e9' is neither a field"),
        ("{{with .ID}}x", "the {{with}} has no {{end}}"),
        ("ab}}c", "character 3: }} without its {{; add {{"),
        ("ab{{c", "character 3: {{ without its }}; add }}"),
        ("{{if .ID}}" * 51, "more than 50 blocks are open; write fewer into one another"),
        ("{{if .ID}}" + "{{else if .ID}}" * 50 + "{{end}}", "more than 50 blocks are open"),
    ],
)
def test_a_refusal_names_the_place_and_the_next_step(text: str, words: str) -> None:
    with pytest.raises(BadRequest, match=re.escape(words)):
        template.parse(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a{{range .ID}}{{end}}", "{{range .ID}} at character 2: range wants a list or a map; write {{.ID}} for the"),
        ("{{range $i, $v := .ID}}{{end}}", "write {{.ID}} for the value itself"),
        ("{{range .Labels}}{{.Nope}}{{end}}", "{{.Nope}} at character 18: the field .Nope does not exist"),
        ("{{range .Env}}{{$.Nope}}{{end}}", "the field $.Nope does not exist; there is ID, Name"),
        ("{{if .Nope}}{{end}}", "{{if .Nope}} at character 1: the field .Nope does not exist"),
        ("{{index .Labels .Env}}", "index wants a key in double quotes"),
        ("a{{index .Env 2}}", "{{index .Env 2}} at character 2: there is no value 2 in this list; it has 2, from 0 on"),
        ("{{index .Env true}}", "index wants the number of a list's value"),
        ("{{index .State.Pid 1}}", "index wants a map, such as .Config.Labels, or a list"),
        ('{{eq .State.Pid "12"}}', "eq compares no number with a text; a number stands without quotes"),
        ("{{eq .Env .Env}}", "eq compares no list or map with a list or map"),
        ("{{lt true false}}", "lt compares no truth with a truth"),
        ('{{printf "%s"}}', "printf has no value for %s; add one"),
        ('{{printf "%s" 1 2}}', "printf has 1 value(s) too many; add a %s for each"),
        ('{{printf "%x" 1}}', "printf knows no %x; there are %s, %v"),
        ('{{printf "%d" .ID}}', "printf's %d wants a number, and this is a text; %v takes all"),
        ('{{printf "%d" 1.5}}', "printf's %d wants a whole number; %f takes this one"),
        ("{{printf .State.Pid}}", "printf wants a text first"),
        ("{{(.State).Nope}}", "the field (...).Nope does not exist; there is Pid, Running, Error"),
        ("{{json .ID" + "|json" * 40 + "}}", "this makes too long a text"),
    ],
)
def test_a_value_that_does_not_fit_is_reported_with_its_place(
    monkeypatch: pytest.MonkeyPatch, text: str, words: str
) -> None:
    monkeypatch.setattr(template, "MOST_CHARACTERS", 100_000)
    with pytest.raises(BadRequest, match=re.escape(words)):
        template.parse(text).render(DOCUMENT)


def test_fifty_blocks_may_be_open_at_once() -> None:
    assert template.parse("{{if .ID}}" * 50 + "x" + "{{end}}" * 50).render(DOCUMENT) == "x"
    assert template.parse("{{if .Exit}}" + "{{else if .Exit}}" * 49 + "{{else}}x{{end}}").render(DOCUMENT) == "x"


@pytest.mark.parametrize("inner", ["", "{{json $}}"])
def test_ranges_within_ranges_end(monkeypatch: pytest.MonkeyPatch, inner: str) -> None:
    monkeypatch.setattr(template, "MOST_CHARACTERS", 100_000)
    parsed = template.parse("{{range $.Env}}" * 40 + inner + "{{end}}" * 40)
    with pytest.raises(BadRequest, match="put fewer ranges into one another"):
        parsed.render(DOCUMENT)


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
    ["{{", "{{.ID", "{{}}", "{{range .Env}}", "{{json}}", "{{join .Env}}", "{{ID}}", ".ID}}", "{{-.ID}}", "{{.ID-}}"],
)
def test_what_the_look_alike_does_not_know_is_refused(text: str) -> None:
    with pytest.raises(BadRequest):
        template.parse(text)


def test_a_table_template_has_headings_of_its_fields() -> None:
    parsed = template.parse(r"table {{.ID}}\t{{.RunningFor}}")
    assert parsed.is_table
    assert parsed.heading == "ID\tRUNNING FOR"


def test_a_block_of_a_table_has_the_heading_of_its_value() -> None:
    parsed = template.parse(r"table {{.ID}}\t{{range .Labels}}{{.}}\t{{else}}{{.Name}}{{end}}\t{{.Name}}")
    assert parsed.heading == "ID\tLABELS\tNAME"


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


WORDS = st.sampled_from(
    [
        *template.FUNCTIONS,
        *("(", ")", ").ID", "|", ".", "$", ".ID", ".Env", ".Labels", ".State.Pid", ".Exit", ".Nope", "$v", ".Label"),
        *("0", "1", "-2", "0.5", "true", "nil", '"a"', '"%d %5s"', '"%', "`b`", '"', "x", "%q"),
    ]
)


@given(st.lists(WORDS, max_size=12), st.sampled_from(["", "if ", "range ", "with "]))
def test_whatever_words_an_action_has_it_ends_in_text_or_in_a_bad_request_with_its_place(
    words: list[str], block: str
) -> None:
    action = block + " ".join(words)
    try:
        parsed = template.parse(f"x{{{{{action}}}}}{'y{{end}}' if block else ''}")
        parsed.render(DOCUMENT)
        template.parse(f"table {{{{{action}}}}}{'y{{end}}' if block else ''}")
    except BadRequest as error:
        assert "at character 2: " in str(error) or "at character 7: " in str(error)


@given(st.text(max_size=8), st.text(max_size=8))
def test_a_comparison_of_texts_is_that_of_the_texts(first: str, second: str) -> None:
    render = template.parse("{{eq .A .B}} {{ne .A .B}} {{lt .A .B}} {{ge .A .B}}").render({"A": first, "B": second})
    wanted = (first == second, first != second, first < second, first >= second)
    assert render.split() == [str(each).lower() for each in wanted]


@given(st.text(max_size=20))
def test_printf_of_a_text_is_the_text(text: str) -> None:
    assert template.parse('{{printf "%s" .}}').render(text) == template.parse("{{.}}").render(text)


VALUES = [
    ".",
    "$",
    ".ID",
    ".Env",
    "$.Env",
    ".Labels",
    ".Exit",
    ".Mounts",
    ".NetworkSettings.Networks",
    "$v",
    '"a"',
    ".Nope",
]
ACTIONS = [
    "range",
    "range $i, $v :=",
    "range $v :=",
    "if",
    "else if",
    "else",
    "end",
    "",
    "println",
    "len",
    "json",
    "index $.Labels",
]


@given(st.lists(st.tuples(st.sampled_from(ACTIONS), st.sampled_from(["", *VALUES]), st.sampled_from(["", " ", "x"]))))
def test_whatever_blocks_are_put_together_it_ends_in_text_or_a_bad_request(words: list[tuple[str, str, str]]) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(template, "MOST_CHARACTERS", 20_000)
        try:
            text = template.parse("".join(f"{{{{{word} {value}}}}}{rest}" for word, value, rest in words)).render(
                DOCUMENT
            )
        except BadRequest:
            return
        assert len(text) <= 20_000


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=8,
)


@given(st.lists(JSON))
def test_a_range_writes_its_block_once_for_each_value(values: list[object]) -> None:
    written = template.parse("{{range .}}{{json .}}\\n{{else}}empty{{end}}").render(values)
    assert written == ("".join(template.parse("{{json .}}\\n").render(value) for value in values) or "empty")


@given(st.dictionaries(st.text(alphabet="abc", max_size=3), JSON))
def test_a_range_goes_over_a_map_in_the_order_of_its_keys(values: dict[str, object]) -> None:
    assert template.parse("{{range $k, $v := .}}{{$k}},{{end}}").render(values) == "".join(
        f"{k}," for k in sorted(values)
    )


@pytest.mark.parametrize("action", ["{{.Command}}", "{{upper .Command}}", '{{join .Words ","}}', '{{index .Map "k"}}'])
def test_no_value_can_steer_a_terminal(action: str) -> None:
    evil = "a\x1b]0;x\x07\x9b\x7fb"
    document = {"Command": evil, "Words": [evil, "c"], "Map": {"k": evil}}
    shown = template.parse("\x1b[1m" + action).render(document)
    assert shown.startswith("\x1b[1m") and shown.removeprefix("\x1b[1m").isprintable()
