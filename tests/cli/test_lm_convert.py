"""`rescore lm convert` and `info`: every format and back, and KenLM on what we write."""

import re
import sys

import numpy as np
import pytest
from support import cli, dumps
from support.models import assert_same_model
from support.paths import ROOT
from support.refusals import assert_named

from rescore.lm.model.ngram import NGram

SPACED = tuple(f" w{i}" if i % 2 else f"w{i}" for i in range(dumps.V))


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


HISTORIES = ([], [0], [3, 1], [0, 2], [40, 41], [1, 1])


@pytest.mark.parametrize("suffix", ["arpa", "arpa.gz", "fst"])
@pytest.mark.parametrize("name", ["spaced", "ids"])
def test_there_and_back(models, capsys, tmp_path, name, suffix):
    """Ids keep their numbers and costs; words and what the model was made of are lost."""
    if suffix == "fst":
        pytest.importorskip("pywrapfst", reason="OpenFst's Python binding (pynini) is absent")
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


def test_openfst_files_need_no_binding(models, capsys, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pywrapfst", None)
    path, model = models["ids"]
    cli.call(capsys, f"lm convert {path} {tmp_path}/m.fst")
    assert cli.figures(capsys, f"lm info {tmp_path}/m.fst")["ngrams"] == model.info()["ngrams"]


@pytest.mark.parametrize("suffix", ["arpa", "arpa.gz"])
def test_words_there_and_back(models, capsys, tmp_path, suffix):
    """Words, their ids and all costs survive; the placeholders that ARPA needs are removed again."""
    path, model = models["plain"]
    assert cli.figures(capsys, f"lm convert {path} {tmp_path}/m.{suffix}")["arpa_words"] == "text"
    cli.call(capsys, f"lm convert {tmp_path}/m.{suffix} {tmp_path}/m.ngram")
    again = NGram.open(tmp_path / "m.ngram", verify=True)
    assert again.words == model.words
    ids = again.ids(model.words)
    for history in HISTORIES:
        costs = again.distribution(again.start(ids[history]))[ids]
        np.testing.assert_array_equal(costs, model.distribution(model.start(history)))
    cli.call(capsys, f"lm convert {path} {tmp_path}/m.fst")
    cli.call(capsys, f"lm convert {tmp_path}/m.fst {tmp_path}/n.ngram")
    for a, b in zip(NGram.open(tmp_path / "n.ngram").arrays, model.arrays):
        np.testing.assert_array_equal(a, b)


def test_reading_ids_as_text(models, capsys, tmp_path):
    cli.call(capsys, "lm convert", models["ids"][0], tmp_path / "m.arpa")
    cli.call(capsys, f"lm convert {tmp_path}/m.arpa {tmp_path}/m.ngram --words text")
    words = NGram.open(tmp_path / "m.ngram").words
    assert words == tuple(map(str, range(dumps.V)))


def test_tokenizer_gives_words(models, capsys, tmp_path):
    tokenizer = cli.make_tokenizer(tmp_path / "t.json")
    cli.call(capsys, "lm convert", models["ids"][0], tmp_path / "m.arpa")
    cli.done(capsys, f"lm convert {tmp_path}/m.arpa {tmp_path}/m.ngram --tokenizer {tokenizer}")
    model = NGram.open(tmp_path / "m.ngram")
    assert model.words is not None and model.words[1] == "w1" and model.metadata["end_of_text"] == 0
    assert len(model.metadata["tokenizer"]) == 64
    call = f"lm convert {models['ids'][0]} {tmp_path}/n.ngram --tokenizer {tokenizer}"
    cli.refusal(capsys, call, names=["ids.ngram", "tokenizer"])
    cli.make_model(tmp_path / "bare.ngram", dumps.sequences())
    large = cli.make_tokenizer(tmp_path / "large.json", 60)
    cli.refusal(capsys, f"lm convert {tmp_path}/bare.ngram {tmp_path}/n.fst --tokenizer {large}", names=["tokenizer"])


def test_refusals(models, capsys, tmp_path):
    path = models["plain"][0]
    cli.refusal(capsys, f"lm convert {path} {tmp_path}/m.bin", status=2, names=["ngram"])
    cli.refusal(capsys, f"lm convert {tmp_path}/m.bin {tmp_path}/m.fst", names=["ngram"])
    cli.refusal(capsys, f"lm convert {tmp_path}/no.ngram {tmp_path}/m.fst", names=["no.ngram"])
    (tmp_path / "d.ngram").mkdir()
    cli.refusal(capsys, f"lm convert {path} {tmp_path}/d.ngram", status=2, names=["folder"])
    cli.refusal(capsys, f"lm info {tmp_path}/d.ngram", names=["d.ngram"])
    for suffix in ("ngram", "arpa", "arpa.gz", "fst"):
        for content in (b"", b"\0" * 100, path.read_bytes()[:200]):
            (tmp_path / f"bad.{suffix}").write_bytes(content)
            cli.refusal(capsys, f"lm info {tmp_path}/bad.{suffix}", names=[f"bad.{suffix}"])
    assert sorted(one.name for one in tmp_path.iterdir() if not one.name.startswith("bad")) == ["d.ngram"]


def test_quantised(demo, capsys, tmp_path):
    info = cli.figures(capsys, "lm convert", demo / "demo.ngram", tmp_path / "small.ngram", "--quantise")
    assert info["quantised"] == 256
    assert info["bytes"] < 0.55 * cli.figures(capsys, "lm info", demo / "demo.ngram")["bytes"]
    exact, rounded = NGram.open(demo / "demo.ngram"), NGram.open(tmp_path / "small.ngram", verify=True)
    tokens = np.arange(1000, 3000, dtype=np.int32)
    assert 0 < np.abs(exact.score(tokens) - rounded.score(tokens)).max() < 0.1
    cli.refusal(
        capsys, f"lm convert {demo}/demo.ngram {tmp_path}/small.arpa --quantise", status=2, names=["--quantise"]
    )


def test_sentence_ends_of_a_tokenizer(capsys, tmp_path):
    tokenizer = cli.make_tokenizer(tmp_path / "t.json")
    words = ("<|endoftext|>", *(f"w{i}" for i in range(1, dumps.V)))
    model = cli.make_model(tmp_path / "m.ngram", dumps.sequences(count=10), words=words)
    cli.call(capsys, f"lm convert {tmp_path}/m.ngram {tmp_path}/m.arpa --sentence-ends")
    cli.call(capsys, f"lm convert {tmp_path}/m.arpa {tmp_path}/n.ngram --tokenizer {tokenizer}")
    again = NGram.open(tmp_path / "n.ngram")
    assert_same_model(again, model)
    assert again.words == words and len(again.metadata["tokenizer"]) == 64
    (tmp_path / "a.jsonl").write_text('{"text": "w1 w2 w3"}\n{"text": "w4"}\n')
    one, other = (
        cli.figures(capsys, "lm score", tmp_path / name, tmp_path / "a.jsonl", "--tokenizer", tokenizer)["overall"]
        for name in ("m.ngram", "m.arpa")
    )
    assert one["nats"] == pytest.approx(other["nats"], rel=1e-6)
    swapped = re.sub(r"\bw1\b", "x1", (tmp_path / "m.arpa").read_text())
    (tmp_path / "m.arpa").write_text(swapped)
    cli.refusal(
        capsys,
        f"lm convert {tmp_path}/m.arpa {tmp_path}/n.ngram --tokenizer {tokenizer}",
        names=["m.arpa", "'x1'", "'w1'"],
    )


def test_a_file_without_sentence_ends_says_so(models, capsys, tmp_path):
    path = models["plain"][0]
    result = cli.call(capsys, f"lm convert {path} {tmp_path}/m.arpa")
    assert result.err == (
        f"note: {tmp_path / 'm.arpa'} has no sentence ends: its <s> and </s> are placeholders, and KenLM's "
        "sentence scores are meaningless; --sentence-ends writes the end of text as both\n"
    )
    report = cli.figures(capsys, f"lm convert {path} {tmp_path}/m.arpa --sentence-ends")
    assert report["sentence_ends"] is True
    cli.call(capsys, f"lm convert {path} {tmp_path}/m.fst")
    result = cli.call(capsys, f"lm convert {tmp_path}/m.fst {tmp_path}/m.arpa")
    assert_named(result.err, ["--sentence-ends", "--end-of-text"])
    cli.refusal(capsys, f"lm convert {tmp_path}/m.fst {tmp_path}/m.arpa --sentence-ends", names=["end_of_text"])
    cli.done(capsys, f"lm convert {tmp_path}/m.fst {tmp_path}/m.arpa --sentence-ends --end-of-text 0")
    cli.call(capsys, f"lm convert {tmp_path}/m.arpa {tmp_path}/m.ngram --end-of-text 0")
    assert_same_model(NGram.open(tmp_path / "m.ngram"), models["plain"][1])


@pytest.mark.parametrize("label", [0, dumps.V + 7])
@pytest.mark.parametrize("name", ["plain", "spaced", "ids"])
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
    path, model = models["spaced"]
    cli.refusal(
        capsys,
        f"lm convert {path} {tmp_path}/m.fst --symbols {tmp_path}/m.syms --words text",
        names=["symbols", "' w1'"],
    )
    assert not (tmp_path / "m.syms").exists()
    cli.refusal(capsys, f"lm convert {path} {tmp_path}/m.fst --failure-label 3", names=["failure_label", dumps.V, "3"])


def test_the_openfst_commands_of_the_docs(capsys, tmp_path, monkeypatch):
    """Failure arcs of the written file, followed in pywrapfst, give -ln p by the model."""
    pywrapfst = pytest.importorskip("pywrapfst", reason="OpenFst's Python binding (pynini) is absent")
    page = (ROOT / "docs/use/from-kenlm-and-opengrm.md").read_text(encoding="utf-8").split("## OpenFst")[1]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text("the cat sat on the mat\nthe dog sat on the cat\n")
    for command in re.findall(r"^    rescore (.+)$", page, re.M)[:2]:
        cli.done(capsys, *command.split())
    fst = pywrapfst.Fst.read("lm.fst")
    symbols = pywrapfst.SymbolTable.read_text("lm.syms")
    phi, state, cost = symbols.find("<phi>"), fst.start(), 0.0
    for word in "the cat sat".split():
        while not (taken := [arc for arc in fst.arcs(state) if arc.ilabel == symbols.find(word)]):
            (back,) = (arc for arc in fst.arcs(state) if arc.ilabel == phi)
            cost, state = cost + float(back.weight), back.nextstate
        cost, state = cost + float(taken[0].weight), taken[0].nextstate
    model = NGram.open(tmp_path / "lm.ngram")
    assert cost == pytest.approx(model.score(model.ids("the cat sat".split())).sum(), abs=1e-4)
