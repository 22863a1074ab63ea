"""The page and its tables as text: everything escaped, nothing fetched, the figures those of `rescore run`."""

import html
import json
import re
from html.parser import HTMLParser

import pytest

from rescore.decode.lab.replay.figures import Interval
from rescore.decode.lab.report.content import Curve, Plot, Report, Section, Table
from rescore.decode.lab.report.page import embedded, markdown, page
from rescore.lattice.svg import clean

HOSTILE = "</script><!--<b>|`x`\u202e\n&"


@pytest.fixture(scope="module")
def report():
    """A report whose every text is hostile."""
    table = Table(HOSTILE, (HOSTILE, "b"), [(HOSTILE, HOSTILE), ("x", None)], strong=frozenset({0}))
    curves = [Curve(name=HOSTILE, x=[HOSTILE], y=[2], texts=[HOSTILE])]
    plot = Plot(title=HOSTILE, x=HOSTILE, y="y", views={HOSTILE: curves})
    section = Section(key="one", title=HOSTILE, prose=[HOSTILE], plots=[plot], tables=[table])
    shown = {"lm": False, "words": {"1": HOSTILE}, "sequences": []}
    lattices = Section(key="two", title="two", prose=[], browser=shown)
    return Report(title=HOSTILE, subtitle=HOSTILE, verdict=HOSTILE, sections=[section, lattices])


class Outline(HTMLParser):
    """Elements and attributes of a page, and the text of its scripts."""

    def __init__(self, text: str):
        super().__init__()
        self.elements: list[tuple[str, dict]] = []
        self.scripts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data):
        if self.elements and self.elements[-1][0] == "script" and self.cdata_elem == "script":
            self.scripts[-1] += data


def test_hostile_texts_make_no_elements(report):
    outline = Outline(page(report))
    tags = [tag for tag, _ in outline.elements]
    assert tags.count("script") == 3 and tags.count("b") == 0
    known = {"data-part", "data-plot", "data-save", "data-table", "data-value", "http-equiv"}
    attributes = {name for _, own in outline.elements for name in own}
    assert not {name for name in attributes if name.startswith("on")}
    assert {name for name in attributes if "-" in name} - known <= {"aria-label", "aria-labelledby", "aria-live"}


def test_data_survives_its_element(report):
    data = json.loads(Outline(page(report)).scripts[0])
    assert data["browser"] == {"lm": False, "words": {"1": HOSTILE}, "sequences": []}
    (name, (curve,)) = data["plots"]["one-0"]["views"][0]
    assert name == curve["name"] == curve["x"][0] == curve["texts"][0] == HOSTILE


def test_nothing_is_fetched(report):
    outline = Outline(page(report))
    for tag, attributes in outline.elements:
        assert tag not in ("link", "img", "iframe", "object", "embed", "base"), tag
        assert "src" not in attributes
        assert attributes.get("href", "#").startswith("#")
    (policy,) = [own["content"] for _, own in outline.elements if own.get("http-equiv") == "Content-Security-Policy"]
    assert policy.startswith("default-src 'none'")
    text = page(report)
    styles = text[text.index("<style>") : text.index("</style>")]
    assert "url(" not in styles and "@import" not in styles
    assert not re.findall(r"https?://(?!www\.w3\.org/2000/svg)", outline.scripts[2] + styles)


def test_embedded_is_json():
    value = {"a": ["<!--", "</SCRIPT>", "&lt;", "\u2028", 1.5, None]}
    assert json.loads(embedded(value)) == value
    assert not set("<>&\u2028") & set(embedded(value))
    with pytest.raises(ValueError):
        embedded(float("nan"))


def test_every_text_is_on_the_page_once_escaped(report):
    """Whatever escapes it, what is read is what `clean` makes of it."""
    shown = page(report)
    body = shown[shown.index("<main>") : shown.index("</main>")]
    assert html.escape(clean(HOSTILE)) in body and "&amp;amp;" not in body and "&amp;lt;" not in body
    assert "\u202e" not in body
    texts = [own.get("aria-label", "") for _, own in Outline(shown).elements]
    assert f"{clean(HOSTILE)}: y over {clean(HOSTILE)}" in texts and f"Save as CSV: {clean(HOSTILE)}" in texts


def test_markdown_is_escaped(report):
    text = markdown(report)
    rows = [line for line in text.split("\n") if line.startswith("|")]
    assert all(len(re.findall(r"(?<!\\)\|", row)) == 3 for row in rows)
    assert "<" not in re.sub(r"\\<", "", text) and "\u202e" not in text
    assert "## two" not in text  # no table


def test_a_row_of_another_length_is_refused():
    with pytest.raises(ValueError):
        _ = Table("t", ("a", "b"), [("x",)]).cells


def test_the_table_of_a_plot():
    """A row for each x of any curve, ascending if these are numbers; ends of intervals are notes."""
    curves = [
        Curve(name="a", x=[1, 4], y=[Interval(value=0.5, low=0.25, high=0.75), None]),
        Curve(name="b", x=[2, 4], y=[1.0, 0.125]),
    ]
    table = Plot(title="t", x="k", y="share", views={"all": curves, "other": []}, percent=True).table
    assert (table.title, table.headers) == ("t, all", ("k", "a", "b"))
    assert [[cell.text for cell in row] for row in table.cells] == [
        ["1", "50.0%", "–"],
        ["2", "–", "100.0%"],
        ["4", "–", "12.5%"],
    ]
    assert table.cells[0][1].note == "25.0–75.0%"
    words = Plot(title="t", x="task", y="y", views={"all": [Curve(name="a", x=["z", "b"], y=[1.5, 2.0])]}).table
    assert [[cell.text for cell in row] for row in words.cells] == [["z", "1.500"], ["b", "2.000"]]
