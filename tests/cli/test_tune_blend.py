"""`rescore tune` of dumps of models without heads, and `--settings` of `run` there: figures against the API and each
other, refusals.
"""

import json

import pytest
from support import cli


@pytest.fixture(scope="module")
def report(headless):
    words = (*call(headless), "-o", headless / "s.json", "--json", headless / "report.json")
    assert cli.main([str(word) for word in words]) == 0
    return json.loads((headless / "report.json").read_text())


def call(headless, *more) -> tuple:
    return ("tune", headless / "dump", "--lm", headless / "lm.ngram", "--threads", 1, *more)


def test_run_agrees(headless, report, capsys):
    given = ("--settings", headless / "s.json", "--threads", 1)
    run = cli.figures(capsys, f"run {headless}/dump", *given)
    (overall,), drafters = run["overall"], report["heldout"]["drafters"]
    (tuning,) = cli.figures(capsys, f"run {headless}/dump", *given, "--part", "tune")["overall"]
    assert overall["part"] == "heldout"
    assert list(drafters) == ["blend 16", "blend 64", "blend tuned 16", "blend tuned 64"]
    for name, row in drafters.items():
        assert [task["block_efficiency"][name] for task in run["tasks"]] == list(row["tasks"].values())
        assert overall["interval"]["block_efficiency"][name] == row["interval"]
        assert tuning["block_efficiency"][name] == pytest.approx(report["settings"]["values"][name])
    differences = {(one["drafter"], one["against"]): one["value"] for one in overall["differences"]}
    assert differences["blend tuned 16", "blend 16"] == drafters["blend tuned 16"]["difference"]["value"]
    other = cli.figures(capsys, f"run {headless}/other", *given)
    assert other["overall"][0]["part"] == "all" and "blend-without-lm tuned 32" in other["settings"]["drafters"]


def test_dumps_with_heads_and_without_share_a_table(headless, capsys):
    """Each with its own base; rows are those that both have."""
    both = ("run", headless / "dump", headless / "heads", "--lm", headless / "lm.ngram")
    out = cli.call(capsys, *both).out
    assert out.startswith("blend 16: tokens per pass ")
    assert "where prompt-lookup has" in out and "where base has" in out and "model without heads" not in out
    drafters = cli.figures(capsys, *both)["settings"]["drafters"]
    assert "blend 64" in drafters and not {"base", "prompt-lookup", "oracle"} & set(drafters)
    assert "blend 64 - blend-without-lm 64" in cli.call(capsys, *both, "--all").out


def test_without_a_model(headless, capsys):
    got = cli.figures(capsys, f"tune {headless}/dump -o {headless}/none.json --tune-sequences 1")
    assert got["settings"]["models"] == [] and set(got["settings"]["split"]["tune"].values()) == {1}
    run = cli.figures(capsys, f"run {headless}/dump --settings {headless}/none.json")
    drafters = run["settings"]["drafters"]
    assert run["settings"]["lm"] == [] and "blend tuned 16" in drafters and "blend-without-lm tuned 16" not in drafters


def test_misuse(headless, report, capsys):
    cli.refusal(capsys, *call(headless, "--lm", headless / "lm.ngram"), status=2, names=["--lm", "rescore"])
    cli.refusal(capsys, f"tune {headless}/heads", status=2, names=["--lm"])
    cli.refusal(capsys, f"run {headless}/heads --settings {headless}/s.json", names=["3"])
