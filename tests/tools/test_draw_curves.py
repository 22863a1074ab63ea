"""Line charts: lines where their numbers are, names at their ends, and files that do not change by themselves."""

from __future__ import annotations

import json
import xml.etree.ElementTree as xml

import pytest
from support.paths import ROOT
from support.tools import load_tool

pytest.importorskip("matplotlib")
draw_curves = load_tool("draw/curves")
line_chart = load_tool("draw/line_chart")
LINES = [
    line_chart.Line(name="a < b", colour="before", points=[(1, 4.0), (10, 2.0), (100, 0.0)]),
    line_chart.Line(name="c", colour="after-1", points=[(1, 2.0), (100, 2.0)]),
]


def test_training_curves_are_those_of_the_demo():
    (figure,) = draw_curves.pictures().values()
    last = json.loads((ROOT / "data" / "demo" / "curve.further.jsonl").read_text().splitlines()[-1])
    ends = [line.get_ydata()[-1] for line in figure.axes[0].lines]
    assert ends == pytest.approx([100 * value for value in last["recall"]["1"]])


def test_lines_are_named_at_their_ends():
    figure = line_chart.chart("A & B", line_chart.Axis(title="x"), line_chart.Axis(title="us"), LINES)
    (axes,) = figure.axes
    assert [text.get_text() for text in axes.texts] == ["a < b: 0.00", "c: 2.00"]
    assert [text.xy for text in axes.texts] == [(100, 0.0), (100, 2.0)]
    assert (axes.get_title(loc="left"), axes.get_xlabel(), axes.get_ylabel()) == ("A & B", "x", "us")
    assert [list(zip(*line.get_data())) for line in axes.lines] == [line.points for line in LINES]


def test_logarithmic_axes():
    """Numbers stand where they are asked for, else at round ones among the values."""
    line = line_chart.Line(name="a", colour="before", points=[(1, 10.0), (3, 1000.0)])
    x, y = line_chart.Axis(logarithmic=True, ticks=[1, 3]), line_chart.Axis(logarithmic=True)
    (axes,) = line_chart.chart("t", x, y, [line], form=".0f").axes
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    assert list(axes.get_xticks()) == [1, 3] and list(axes.get_yticks()) == [10, 20, 50, 100, 200, 500, 1000]
    assert [line_chart.number(value) for value in (0.5, 16, 850_000, 100_000_000)] == ["0.5", "16", "0.85M", "100M"]


def test_files_are_the_same_twice(tmp_path):
    for name in ("a.svg", "b.svg"):
        line_chart.save(line_chart.chart("t", line_chart.Axis(), line_chart.Axis(), LINES), tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    assert "a < b: 0.00" in ["".join(node.itertext()) for node in xml.parse(tmp_path / "a.svg").getroot().iter()]


def test_labels_keep_apart():
    assert line_chart.apart([50, 10, 12, 200]) == [50, 10, 22, 200]
    assert line_chart.apart([30, 30, 30]) == [30, 42, 54]
