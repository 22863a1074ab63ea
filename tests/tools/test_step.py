"""The bench of a step: every setting writes the recorded texts, parts add up, and a wrong text is found."""

import sys

import pytest
from support.tools import load_tool

step = load_tool("bench/step")


def rows(demo, monkeypatch, capsys, *words):
    monkeypatch.setattr(sys, "argv", ["step.py", str(demo / "greedy"), str(demo / "demo.ngram"), *words])
    step.main()
    return [line.split("|")[1:-1] for line in capsys.readouterr().out.splitlines() if ", 4, " in line]


def test_the_parts_of_a_step(demo, monkeypatch, capsys):
    words = ["--limit", "2", "--rounds", "1", "--nodes", "4", "--requests", "1", "2"]
    found = rows(demo, monkeypatch, capsys, *words)
    assert len(found) == 8
    for _, whole, *parts in found:
        assert min(map(int, parts)) >= 0 and abs(int(whole) - sum(map(int, parts))) <= len(parts)


def test_a_text_that_is_not_the_recorded_one_is_found(demo, monkeypatch, capsys):
    monkeypatch.setattr(step, "UNLIKELY", 50.0)  # the prompt's pass finds another token
    with pytest.raises(SystemExit, match="a text is not the recorded one"):
        rows(demo, monkeypatch, capsys, "--limit", "1", "--rounds", "1", "--nodes", "4", "--requests", "1")
