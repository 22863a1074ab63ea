"""The bench of linear layers: a row for each layer and number of tokens, of products that agree."""

import sys

from support.tools import load_tool

linear = load_tool("bench/linear")


def test_rows(monkeypatch, capsys):
    monkeypatch.setattr(linear, "MEMORY", 0)
    words = ["--layers", "64x16", "16x32", "--tokens", "4", "9", "--threads", "1", "--repeats", "2"]
    monkeypatch.setattr(sys, "argv", ["linear.py", *words])
    linear.main()
    rows = [line.split("|")[1:-1] for line in capsys.readouterr().out.splitlines() if line.startswith(("| 64", "| 16"))]
    assert [row[0].strip() for row in rows] == ["64x16, 4", "64x16, 9", "16x32, 4", "16x32, 9"]
    assert all(float(figure) >= 0 for row in rows for figure in row[1:])
