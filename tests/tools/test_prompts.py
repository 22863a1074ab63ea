"""The bench of long prompts: both ways write one text, in rows of a table; what a text costs beside its pass."""

import subprocess
import sys

import pytest
from support.paths import ROOT


def table(*words) -> list[list[str]]:
    run = [sys.executable, ROOT / "tools/bench/prompts.py", *map(str, words)]
    said = subprocess.run(run, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in said.splitlines() if line.startswith("| ")][1:]


@pytest.mark.slow
def test_texts_quote_their_prompts():
    (one,) = table("--tokens", 60, "--rows", 2, "--new", 4, "--rounds", 1, "--threads", 1)
    name, *values = one
    assert name == "2, 60" and len(values) == 9
    for plain, drafts, times in zip(*[iter(map(float, values))] * 3):
        assert min(plain, drafts) > 0 and abs(times - drafts / plain) <= 0.01 * (1 + (times + 1) / plain)


def test_what_a_text_costs(tmp_path):
    (tmp_path / "text").write_text("The quick brown fox jumps over the lazy dog. " * 40)
    found = table("--text", tmp_path / "text", "--tokens", 100, 300, "--rounds", 1)
    assert [row[0] for row in found] == ["100", "300"] and all(float(value) > 0 for row in found for value in row[1:])
