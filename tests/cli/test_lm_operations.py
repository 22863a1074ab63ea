"""`rescore lm convert`, `count`, `merge` and `verify`: every format and back, and OpenFst on what we write."""

import json
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from support import cli, dumps
from support.models import assert_same_model
from support.refusals import assert_named

from rescore.lm.build.counts_files import open_counts
from rescore.lm.model.ngram import NGram

SPACED = tuple(f" w{i}" if i % 2 else f"w{i}" for i in range(dumps.V))
WORDS = ("<|endoftext|>", *(f"w{i}" for i in range(1, dumps.V)))


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Models with words that ARPA can hold, words that it cannot, and none."""
    folder = tmp_path_factory.mktemp("convert")
    made = dumps.sequences(count=10)
    names = tuple(f"w{i}" for i in range(dumps.V))
    found = {}
    for name, words in (("plain", names), ("spaced", SPACED), ("ids", None)):
        path = folder / f"{name}.ngram"
        found[name] = path, cli.make_model(path, made, words=words, tokenizer="a" * 64)
    return found


@pytest.mark.parametrize("name, suffix", [("spaced", "arpa"), ("ids", "arpa.gz"), ("spaced", "fst")])
def test_there_and_back(models, capsys, tmp_path, monkeypatch, name, suffix):
    """Ids keep their numbers and costs; words and what the model was made of are lost. OpenFst need not be here."""
    monkeypatch.setitem(sys.modules, "pywrapfst", None)
    path, model = models[name]
    there = cli.figures(capsys, f"lm convert {path} {tmp_path}/m.{suffix}")
    back = cli.figures(capsys, f"lm convert {tmp_path}/m.{suffix} {tmp_path}/m.ngram")
    again = NGram.open(tmp_path / "m.ngram", verify=True)
    for a, b in zip(again.arrays, model.arrays):
        np.testing.assert_array_equal(a, b)
    assert (again.words, again.order, again.vocab_size) == (None, model.order, dumps.V)
    assert there["ngrams"] == back["ngrams"] == model.info()["ngrams"]
    if suffix != "fst":
        why = {"spaced": "word ' w1' of id 1: ARPA words", "ids": "the model has no words"}
        assert there["arpa_words"].startswith(f"decimal ids, as {why[name]}")


@pytest.mark.parametrize("suffix", ["arpa", "arpa.gz"])
def test_words_there_and_back(models, capsys, tmp_path, suffix):
    """Words, their ids and all costs survive; the placeholders that ARPA needs are removed again."""
    path, model = models["plain"]
    assert cli.figures(capsys, f"lm convert {path} {tmp_path}/m.{suffix}")["arpa_words"] == "text"
    cli.done(capsys, f"lm convert {tmp_path}/m.{suffix} {tmp_path}/m.ngram")
    again = NGram.open(tmp_path / "m.ngram", verify=True)
    assert again.words == model.words
    ids = again.ids(model.words)
    for history in ([], [0], [3, 1], [0, 2], [40, 41], [1, 1]):
        costs = again.distribution(again.start(ids[history]))[ids]
        np.testing.assert_array_equal(costs, model.distribution(model.start(history)))


def test_tokenizer_gives_words(models, capsys, tmp_path):
    path, tokenizer = models["ids"][0], cli.make_tokenizer(tmp_path / "t.json")
    cli.done(capsys, "lm convert", path, tmp_path / "m.arpa")
    cli.done(capsys, f"lm convert {tmp_path}/m.arpa {tmp_path}/m.ngram --tokenizer {tokenizer}")
    model = NGram.open(tmp_path / "m.ngram")
    assert model.words is not None and model.words[1] == "w1" and model.metadata["end_of_text"] == 0
    assert len(model.metadata["tokenizer"]) == 64


def test_quantised(demo, capsys, tmp_path):
    whole, small = demo / "demo.ngram", tmp_path / "small.ngram"
    info = cli.figures(capsys, "lm convert", whole, small, "--quantise")
    assert info["quantised"] == 256 and info["bytes"] < 0.55 * cli.figures(capsys, "lm info", whole)["bytes"]
    tokens = np.arange(1000, 3000, dtype=np.int32)
    apart = np.abs(NGram.open(whole).score(tokens) - NGram.open(small, verify=True).score(tokens))
    assert 0 < apart.max() < 0.1


def test_sentence_ends_of_a_tokenizer(capsys, tmp_path):
    tokenizer = cli.make_tokenizer(tmp_path / "t.json")
    model = cli.make_model(tmp_path / "m.ngram", dumps.sequences(count=10), words=WORDS)
    back = f"lm convert {tmp_path}/m.arpa {tmp_path}/n.ngram --tokenizer {tokenizer}"
    cli.done(capsys, f"lm convert {tmp_path}/m.ngram {tmp_path}/m.arpa --sentence-ends")
    cli.done(capsys, back)
    again = NGram.open(tmp_path / "n.ngram")
    assert_same_model(again, model)
    assert again.words == WORDS and len(again.metadata["tokenizer"]) == 64
    (tmp_path / "a.jsonl").write_text('{"text": "w1 w2 w3"}\n{"text": "w4"}\n')
    text = (tmp_path / "a.jsonl", "--tokenizer", tokenizer)
    scores = [cli.figures(capsys, "lm score", tmp_path / name, *text) for name in ("m.ngram", "m.arpa")]
    nats = [score["overall"]["nats"] for score in scores]
    assert nats[0] == pytest.approx(nats[1], rel=1e-6)
    (tmp_path / "m.arpa").write_text(re.sub(r"\bw1\b", "x1", (tmp_path / "m.arpa").read_text()))
    cli.refusal(capsys, back, names=["m.arpa", "'x1'", "'w1'"])


def test_a_file_without_sentence_ends_says_so(models, capsys, tmp_path):
    (ngram, model), arpa, fst = models["plain"], tmp_path / "m.arpa", tmp_path / "m.fst"
    assert_named(cli.done(capsys, "lm convert", ngram, arpa).err, ["note", arpa, "<s>", "</s>", "--sentence-ends"])
    assert cli.figures(capsys, "lm convert", ngram, arpa, "--sentence-ends")["sentence_ends"] is True
    cli.done(capsys, "lm convert", ngram, fst)
    assert_named(cli.done(capsys, "lm convert", fst, arpa).err, ["--sentence-ends", "--end-of-text"])
    cli.refusal(capsys, "lm convert", fst, arpa, "--sentence-ends", names=["end_of_text"])
    cli.done(capsys, "lm convert", fst, arpa, "--sentence-ends", "--end-of-text", 0)
    cli.done(capsys, "lm convert", arpa, tmp_path / "m.ngram", "--end-of-text", 0)
    assert_same_model(NGram.open(tmp_path / "m.ngram"), model)


@pytest.mark.parametrize("name, label", [("plain", 0), *((name, dumps.V + 7) for name in ("plain", "spaced", "ids"))])
def test_symbols_and_failure_labels(models, capsys, tmp_path, name, label):
    """OpenFst reads the symbols, and paths spelled with them cost what the model says."""
    pywrapfst = pytest.importorskip("pywrapfst", reason="OpenFst's Python binding (pynini) is absent")
    path, model = models[name]
    report = cli.figures(
        capsys, f"lm convert {path} {tmp_path}/m.fst --symbols {tmp_path}/m.syms --failure-label {label}"
    )
    assert report["backoff_label"] == (f"{label} (failure)" if label else "0 (epsilon)")
    assert report["symbols_of"].startswith(
        {"plain": "text", "spaced": "decimal ids, as word ' w1'", "ids": "decimal ids"}[name]
    )
    symbols = pywrapfst.SymbolTable.read_text(str(tmp_path / "m.syms"))
    names = model.words if name == "plain" else list(map(str, range(dumps.V)))
    assert [symbols.find(one) for one in names] == list(range(1, dumps.V + 1)) and symbols.find("<epsilon>") == 0
    assert symbols.num_symbols() == dumps.V + 1 + bool(label) and (not label or symbols.find("<phi>") == label)
    fst = pywrapfst.Fst.read(str(tmp_path / "m.fst"))
    ids = np.random.default_rng(3).integers(0, dumps.V, 30).tolist()
    costs, state = [], fst.start()
    for token in ids:
        cost, state = step(fst, state, symbols.find(names[token]), label)
        costs.append(cost)
    np.testing.assert_allclose(costs, model.score(ids), atol=1e-5)
    cli.call(capsys, f"lm convert {tmp_path}/m.fst {tmp_path}/m.ngram")
    assert_same_model(NGram.open(tmp_path / "m.ngram"), model)


def step(fst, state, label, failure):
    """The cost of a label in a state, and the next: backing off where there is no arc."""
    cost = 0.0
    while True:
        arcs = {arc.ilabel: arc for arc in fst.arcs(state)}
        if label in arcs:
            return cost + float(arcs[label].weight), arcs[label].nextstate
        cost, state = cost + float(arcs[failure].weight), arcs[failure].nextstate


def test_symbols_refused(models, capsys, tmp_path):
    call = f"lm convert {models['spaced'][0]} {tmp_path}/m.fst --symbols {tmp_path}/m.syms --words text"
    cli.refusal(capsys, call, names=["symbols", "' w1'"])
    assert not [*tmp_path.glob("m.*")]


@pytest.mark.parametrize("verb", ["lm info {model} --json {model}", "lm score {model} {text} --json {text}"])
def test_what_is_read_is_not_overwritten(demo, capsys, tmp_path, verb):
    model, text = shutil.copy(demo / "demo.ngram", tmp_path), tmp_path / "a.txt"
    text.write_text("a text\n", encoding="utf-8")
    before = text.read_bytes(), Path(model).read_bytes()
    cli.refusal(capsys, verb.format(model=model, text=text), status=2, names=["--json", str(tmp_path)])
    assert (text.read_bytes(), Path(model).read_bytes()) == before


IDS = ("--vocab-size", dumps.V, "--end-of-text", 0)


@pytest.fixture
def shards(tmp_path):
    rng = np.random.default_rng(3)
    for name in ("a", "b", "c"):
        tokens = rng.integers(0, dumps.V, 2_000) // rng.integers(1, 6, 2_000)
        np.save(tmp_path / f"{name}.npy", tokens.astype(np.uint16))
    return tmp_path


def test_counts_of_parts_give_the_model_of_the_whole(shards, capsys):
    how = ("--order", 4, "--min-count", "1,2")
    for name in "ab":
        cli.done(capsys, f"lm count {shards}/{name}.npy", *IDS, "-o", shards / f"counts-{name}")
    cli.done(capsys, "lm build", *(shards / f"{name}.npy" for name in "abc"), *IDS, *how, "-o", shards / "whole.ngram")
    mixed = shards / "counts-b", shards / "counts-a", shards / "c.npy"
    cli.done(capsys, "lm build", *mixed, *how, "-o", shards / "parts.ngram")
    assert_same_model(*(NGram.open(shards / name, verify=True) for name in ("parts.ngram", "whole.ngram")))
    assert not list(shards.glob("*.work"))


def test_counts_are_merged_into_counts(shards, capsys):
    for name in "ab":
        cli.done(capsys, f"lm count {shards}/{name}.npy", *IDS, "-o", shards / f"counts-{name}")
    info = cli.figures(capsys, f"lm count {shards}/counts-a {shards}/counts-b -o {shards}/both")
    header = open_counts(shards / "both").header
    assert header.tokens == info["tokens"] == sum(open_counts(shards / f"counts-{name}").header.tokens for name in "ab")
    spelled = [
        tuple(batch.tokens[a:b].tolist())
        for batch in open_counts(shards / "both").batches()
        for a, b in zip(batch.offsets, batch.offsets[1:])
    ]
    assert len(spelled) == len(set(spelled))


def test_wrong_counts_are_named(shards, capsys):
    for name in ("counts", "more"):
        cli.done(capsys, f"lm count {shards}/a.npy", *IDS, "--order", 3, "-o", shards / name)
    shutil.copy(next((shards / "counts").glob("*.parquet")), shards / "more" / "stray.parquet")
    for words, named in (
        ("counts", ["4", "3"]),
        (f"counts --order 3 --vocab-size {dumps.V} --end-of-text 1", [dumps.V]),
        ("more --order 3", ["missing"]),
    ):
        cli.refusal(capsys, f"lm build {shards}/{words}", "-o", shards / "lm.ngram", names=named)
    assert not (shards / "lm.ngram").exists()
    cli.refusal(capsys, f"lm count {shards}/b.npy", *IDS, "-o", shards / "counts", names=["folder"])


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Two models of different texts and orders, held-out tokens."""
    folder = tmp_path_factory.mktemp("operations")
    cli.make_model(folder / "a.ngram", dumps.sequences(count=12), order=3)
    cli.make_model(folder / "b.ngram", dumps.sequences(kind="greedy", count=6), order=2)
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
