"""Words stay words."""

from supervisor.compare.html.tags import Markup, join, tag


def test_words_are_escaped_and_markup_is_not() -> None:
    assert tag("p", "a < b & \"c\" 'd'", tag("b", "e")) == "<p>a &lt; b &amp; &quot;c&quot; &#x27;d&#x27;<b>e</b></p>"
    assert join("<", Markup("<br/>")) == "&lt;<br/>"


def test_attributes_are_escaped_named_and_left_out() -> None:
    said = tag("td", class_='"><x', aria_hidden="true", scope=None)
    assert said == '<td class="&quot;&gt;&lt;x" aria-hidden="true"></td>'


def test_an_element_of_html_is_closed_by_a_tag_of_its_own() -> None:
    assert [tag("td"), tag("br")] == ["<td></td>", "<br/>"]
