"""Words stay words."""

from supervisor.compare.html.tags import Markup, join, tag


def test_words_are_escaped_and_markup_is_not() -> None:
    assert tag("p", "a < b & \"c\" 'd'", tag("b", "e")) == "<p>a &lt; b &amp; &quot;c&quot; &#x27;d&#x27;<b>e</b></p>"
    assert join("<", Markup("<br/>")) == "&lt;<br/>"


def test_attributes_are_escaped_named_and_left_out() -> None:
    assert (
        tag("line", class_='"><x', stroke_width=1.26, y=None, x=2)
        == '<line class="&quot;&gt;&lt;x" stroke-width="1.3" x="2"/>'
    )


def test_an_element_of_html_is_closed_by_a_tag_of_its_own() -> None:
    assert [tag("td"), tag("meta", charset="utf-8")] == ["<td></td>", '<meta charset="utf-8"/>']
