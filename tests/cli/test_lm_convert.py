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
def test_there_and_back(models, capsys, tmp_path, name, suffix):
    """Ids keep their numbers and costs; words and what the model was made of are lost."""
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
    call = f"lm convert {path} {tmp_path}/n.ngram --tokenizer {tokenizer}"
    cli.refusal(capsys, call, names=["ids.ngram", "tokenizer"])
    cli.make_model(tmp_path / "bare.ngram", dumps.sequences())
    large = cli.make_tokenizer(tmp_path / "large.json", 60)
    cli.refusal(capsys, f"lm convert {tmp_path}/bare.ngram {tmp_path}/n.fst --tokenizer {large}", names=["tokenizer"])


def test_refusals(models, capsys, tmp_path):
    path = models["plain"][0]
    (tmp_path / "d.ngram").mkdir()
    for suffix in ("ngram", "arpa", "arpa.gz", "fst"):
        (tmp_path / f"bad.{suffix}").write_bytes(path.read_bytes()[:200])
        cli.refusal(capsys, f"lm info {tmp_path}/bad.{suffix}", names=[f"bad.{suffix}"])
    for words, status, named in (
        ("convert LM NOW/m.bin", 2, "ngram"),
        ("convert NOW/m.bin NOW/m.fst", 1, "ngram"),
        ("convert NOW/no.ngram NOW/m.fst", 1, "no.ngram"),
        ("convert LM NOW/d.ngram", 2, "folder"),
        ("info NOW/d.ngram", 1, "d.ngram"),
    ):
        words = words.replace("NOW", str(tmp_path)).replace("LM", str(path))
        cli.refusal(capsys, f"lm {words}", status=status, names=[named])
    assert not list(tmp_path.glob("m.*"))


def test_quantised(demo, capsys, tmp_path):
    whole, small = demo / "demo.ngram", tmp_path / "small.ngram"
    info = cli.figures(capsys, "lm convert", whole, small, "--quantise")
    assert info["quantised"] == 256 and info["bytes"] < 0.55 * cli.figures(capsys, "lm info", whole)["bytes"]
    tokens = np.arange(1000, 3000, dtype=np.int32)
    apart = np.abs(NGram.open(whole).score(tokens) - NGram.open(small, verify=True).score(tokens))
    assert 0 < apart.max() < 0.1
    cli.refusal(capsys, "lm convert", whole, tmp_path / "small.arpa", "--quantise", status=2, names=["--quantise"])


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


@pytest.mark.parametrize("name, label", [("plain", 0), ("spaced", dumps.V + 7), ("ids", dumps.V + 7)])
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
    call = f"lm convert {models['spaced'][0]} {tmp_path}/m.fst"
    cli.refusal(capsys, f"{call} --symbols {tmp_path}/m.syms --words text", names=["symbols", "' w1'"])
    assert not (tmp_path / "m.syms").exists()
    cli.refusal(capsys, f"{call} --failure-label 3", names=["failure_label", dumps.V, "3"])


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
    words, costs, state = "the cat sat".split(), [], fst.start()
    for word in words:
        cost, state = step(fst, state, symbols.find(word), symbols.find("<phi>"))
        costs.append(cost)
    model = NGram.open(tmp_path / "lm.ngram")
    assert costs == pytest.approx(model.score(model.ids(words)), abs=1e-4)
