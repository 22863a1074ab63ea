"""The benchmark of word lattices: a row for every size, and no times where answers differ."""

import re

import pytest
from support.refusals import refuses
from support.tools import load_tool

bench = load_tool("bench/lattices")


def run(monkeypatch, demo, program):
    monkeypatch.setattr(bench, "compile_search", lambda path, options: program)
    given = [demo / "sampled", demo / "demo.ngram", "--arcs", 100, 300, "--paths", 4]
    monkeypatch.setattr("sys.argv", ["lattices.py", *map(str, given)])
    monkeypatch.setattr(bench, "TOTAL", 600)
    bench.main()


@pytest.mark.slow
def test_every_row_is_timed(monkeypatch, demo, program, capsys):
    run(monkeypatch, demo, program)
    rows = re.findall(
        r"^ *(\d+) arcs, +4 paths +ours +[\d.]+ +PhiMatcher +[\d.]+ +x [\d.]+", capsys.readouterr().out, re.M
    )
    assert rows == ["100", "300"]


def test_a_wrong_answer_is_not_timed(monkeypatch, demo, program):
    right = bench.run_search

    def wrong(*given, **options):
        answers = right(*given, **options)
        cost, tokens = answers.strings[1][0]
        answers.strings[1][0] = (cost - 1, tokens)
        return answers

    monkeypatch.setattr(bench, "run_search", wrong)
    refuses(ValueError, lambda: run(monkeypatch, demo, program), "p = 4", "PhiMatcher", "string 0")
