"""`rescore lm merge` and `verify`: what they print, and what they exit with."""

import json

import numpy as np
import pytest
from support import cli, dumps
from support.refusals import assert_named

from rescore.lm.model.ngram import NGram


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Two models of different texts and orders, one of another vocabulary, held-out tokens."""
    folder = tmp_path_factory.mktemp("operations")
    cli.make_model(folder / "a.ngram", dumps.sequences(count=12), order=3)
    cli.make_model(folder / "b.ngram", dumps.sequences(kind="greedy", count=6), order=2)
    cli.make_model(folder / "t.ngram", dumps.sequences(), tokenizer="b" * 64)
    np.save(folder / "heldout.npy", np.random.default_rng(3).integers(1, dumps.V, 300))  # and an end of text
    return folder


def test_merge(world, capsys, tmp_path):
    call = f"lm merge {world}/a.ngram {world}/b.ngram"
    report = cli.figures(capsys, f"{call} --weights 0.7,0.3 -o {tmp_path}/m.ngram")
    paths = (tmp_path / "m.ngram", world / "a.ngram", world / "b.ngram")
    merged, a, b = (NGram.open(path, verify=True) for path in paths)
    assert [part["weight"] for part in report["merged"]] == [0.7, 0.3] and report["interpolation"]["method"] == "linear"
    assert merged.words == a.words and merged.metadata["end_of_text"] == 0
    p, q, r = (np.exp(-model.distribution(0).astype(float)) for model in (merged, a, b))
    np.testing.assert_allclose(p, 0.7 * q + 0.3 * r, rtol=1e-5)
    cli.done(capsys, f"lm verify {tmp_path}/m.ngram")
    equal = cli.figures(capsys, f"{call} --log-linear --max-ngrams 100 -o {tmp_path}/m.arpa")
    assert [part["weight"] for part in equal["merged"]] == [0.5, 0.5]
    assert equal["interpolation"]["method"] == "log-linear"
    assert sum(equal["ngrams"]) <= 100 and equal["pruning"][0]["max_ngrams"] == 100


@pytest.mark.parametrize("form", [(), ("--log-linear",)])
def test_merge_tuned(world, capsys, tmp_path, form):
    words = [f"lm merge {world}/a.ngram {world}/b.ngram --tune {world}/heldout.npy -o {tmp_path}/m.ngram", *form]
    report = cli.figures(capsys, *words)
    heldout = report["heldout"]
    assert heldout["tokens"] == 301 and heldout["tuned"] <= min(heldout["equal"], *heldout["models"]) * 1.0001
    score = cli.figures(capsys, f"lm score {tmp_path}/m.ngram {world}/heldout.npy")
    assert heldout["merged"] == pytest.approx(score["overall"]["perplexity"], rel=1e-6)
    for name, expected in zip("ab", heldout["models"]):
        alone = cli.figures(capsys, f"lm score {world}/{name}.ngram {world}/heldout.npy")
        assert alone["overall"]["perplexity"] == pytest.approx(expected, rel=1e-6)
    out = cli.call(capsys, *words).out
    last = [line.split()[0] for line in out.splitlines()[-5:]]
    assert last == ["equal", "tuned", "merged", "note:", "wrote"]  # a note, as the text has no end of text
    assert f"{heldout['merged']:,.2f}" in out


def test_merge_text(world, capsys, tmp_path):
    tokenizer = cli.make_tokenizer(tmp_path / "t.json")
    (tmp_path / "h.jsonl").write_text('{"text": "w3 w1 w2"}\n{"text":\n')
    more = f"--tune {tmp_path}/h.jsonl --tokenizer {tokenizer} -o {tmp_path}/m.ngram"
    words = f"lm merge {world}/a.ngram {world}/b.ngram {more}"
    report = cli.figures(capsys, words)
    assert report["heldout"]["tokens"] == 4 and report["skipped"]["documents"] == 1
    assert "skipped 1 documents" in cli.done(capsys, words).out
    cli.refusal(capsys, f"lm merge {world}/a.ngram {world}/t.ngram {more}", names=["t.ngram"])


@pytest.mark.parametrize(
    "words, status, named",
    [
        ("A", 2, ["least"]),
        ("A B --weights 1", 2, ["--weights", "2", "1"]),
        ("A B --weights 0.5,0.4", 2, ["--weights", "1", "0.5", "0.4"]),
        ("A B --weights 1,-1", 2, ["--weights", "0"]),
        ("A B --weights 1,0 --tune x", 2, ["argument"]),
        ("A B --tune EMPTY", 1, ["empty.npy"]),
        ("A C", 1, ["c.ngram", "end_of_text", "0"]),
    ],
)
def test_merge_refusals(world, capsys, tmp_path, words, status, named):
    np.save(tmp_path / "empty.npy", np.zeros(0, np.int64))
    model = NGram.open(world / "a.ngram")
    NGram.from_tables(model.to_tables(), words=model.words, metadata={"end_of_text": 7}).save(tmp_path / "c.ngram")
    names = {"A": world / "a.ngram", "B": world / "b.ngram", "C": tmp_path / "c.ngram", "EMPTY": tmp_path / "empty.npy"}
    given = [names.get(word, word) for word in words.split()]
    cli.refusal(capsys, "lm merge", *given, "-o", tmp_path / "m.ngram", status=status, names=named)
    assert not (tmp_path / "m.ngram").exists()


def test_verify(world, capsys, tmp_path):
    report = cli.figures(capsys, f"lm verify {world}/a.ngram")
    assert report["passed"] is True and all(check["passed"] for check in report["checks"])
    for suffix in ("arpa", "fst"):
        cli.done(capsys, f"lm convert {world}/a.ngram {tmp_path}/a.{suffix}")
        cli.done(capsys, f"lm verify {tmp_path}/a.{suffix}")
    strict = cli.call(capsys, f"lm verify {world}/a.ngram --tolerance 0")
    assert strict.status == 1 and strict.err == ""
    assert "sums to one" in next(line for line in strict.out.splitlines() if "FAIL" in line)
    (tmp_path / "bad.ngram").write_bytes((world / "a.ngram").read_bytes()[:-1])
    found = cli.call(capsys, f"lm verify {tmp_path}/bad.ngram --json -")
    assert found.status == 1 and json.loads(found.out)["checks"][0]["passed"] is False
    assert_named(found.out, ["truncated"])
    cli.refusal(capsys, f"lm verify {tmp_path}/no.ngram", names=["no.ngram"])
