"""The pictures of docs/training-heads.md: current, and lines where their numbers are."""

from __future__ import annotations

import re
import xml.etree.ElementTree as xml

import pytest
from support.paths import ROOT
from support.tools import load_tool

draw_curves = load_tool("draw/curves")
line_chart = load_tool("draw/line_chart")


def test_shipped_pictures_are_current():
    for name, content in draw_curves.pictures().items():
        assert (ROOT / "docs" / "pictures" / name).read_text(encoding="utf-8") == content, "run tools/draw/curves.py"


@pytest.mark.parametrize("logarithmic", [False, True])
def test_lines_lie_where_their_numbers_are(logarithmic):
    lines = [
        line_chart.Line(name="a < b", colour="before", points=[(1, 4.0), (10, 2.0), (100, 0.0)]),
        line_chart.Line(name="c", colour="after-1", points=[(1, 2.0), (100, 2.0)]),
    ]
    drawing = line_chart.chart("A & B", line_chart.Axis(title="x", logarithmic=logarithmic), line_chart.Axis(), lines)
    xml.fromstring(drawing)
    first, second = (
        [tuple(map(float, pair)) for pair in re.findall(r"([\d.]+) ([\d.]+)", path)]
        for path in re.findall(r'<path d="M([\d. L]+)" class="line', drawing)
    )
    share = [(x - first[0][0]) / (first[2][0] - first[0][0]) for x, _ in first]
    assert share[1] == pytest.approx(0.5 if logarithmic else 9 / 99, abs=1e-3)
    assert first[1][1] == pytest.approx((first[0][1] + first[2][1]) / 2, abs=0.1)
    assert [y for _, y in second] == [first[1][1]] * 2
    assert "a &lt; b: 0.00" in drawing and "A &amp; B" in drawing


def test_a_logarithmic_axis_upwards():
    """Equal ratios are equal distances, and numbers stand where they belong."""
    drawing = line_chart.chart(
        "t",
        line_chart.Axis(ticks=[1, 3]),
        line_chart.Axis(title="us", logarithmic=True),
        [line_chart.Line(name="a", colour="before", points=[(1, 10.0), (2, 100.0), (3, 1000.0)])],
        form=".0f",
    )
    (line,) = re.findall(r'<path d="M([\d. L]+)" class="line', drawing)
    heights = [float(pair.split()[1]) for pair in line.split("L")]
    assert heights[0] - heights[1] == pytest.approx(heights[1] - heights[2], abs=0.2) and heights[0] > heights[2]
    assert ">200<" in drawing and ">us<" in drawing and "a: 1000<" in drawing
    assert [line_chart.number(value) for value in (0.5, 16, 850_000, 100_000_000)] == ["0.5", "16", "0.85M", "100M"]


def test_ticks_are_round_numbers_within():
    assert line_chart.ticks(3.87, 5.49) == [4.0, 4.2, 4.4, 4.6, 4.8, 5.0, 5.2, 5.4]
    assert line_chart.ticks(0, 4.1) == [0, 1, 2, 3, 4]


def test_labels_keep_apart():
    assert line_chart.apart([50, 10, 12, 200]) == [50, 10, 24, 200]
    assert line_chart.apart([30, 30, 30]) == [30, 44, 58]
