"""`rescore lm build` and `prune`: the models of lm.build, from every kind of file."""

import gzip
import json
import re

import numpy as np
import pytest
from support import cli, dumps
from support.models import assert_same_model
from support.refusals import assert_named

from rescore.lm.build.estimate import KatzOptions, KneserNeyOptions
from rescore.lm.build.in_memory import build, prune_model
from rescore.lm.build.prune import PruneOptions
from rescore.lm.model.arpa import ArpaOptions
from rescore.lm.model.formats import load
from rescore.lm.model.ngram import NGram

TEXTS = [[3, 1, 2, 3, 1], [2, 3, 1, 4], [3, 1, 2, 3], [1, 2], [5, 3, 1, 2, 3, 1]]


def text(ids: list[int]) -> str:
    return " ".join(f"w{i}" for i in ids)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("build")
    lines = "".join(json.dumps({"text": text(ids)}) + "\n" for ids in TEXTS)
    (folder / "a.jsonl").write_text(lines)
    (folder / "a.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    for number, ids in enumerate(TEXTS):
        (folder / f"{number}.txt").write_text(text(ids))
    np.save(folder / "a.npy", np.array([token for ids in TEXTS for token in (*ids, 0)], np.uint16))
    return folder


@pytest.fixture
def tokenizer(tmp_path):
    return cli.make_tokenizer(tmp_path / "tokenizer.json")


@pytest.mark.parametrize("inputs", [["a.jsonl.gz"], ["0.txt", "1.txt", "2.txt", "3.txt", "4.txt"]])
def test_from_text(world, tokenizer, capsys, tmp_path, inputs):
    more = f"--tokenizer {tokenizer} --order 3 -o {tmp_path}/new/lm.ngram"
    info = cli.figures(capsys, "lm build", *(world / name for name in inputs), *more.split())
    model = NGram.open(tmp_path / "new" / "lm.ngram", verify=True)
    assert_same_model(model, build(TEXTS, order=3, vocab_size=dumps.V, end_of_text=0))
    assert model.words is not None and model.words[:3] == ("<|endoftext|>", "w1", "w2")
    assert model.metadata["end_of_text"] == 0 and model.metadata["tokenizer"] == info["tokenizer"]
    assert info["ngrams"] == model.info()["ngrams"]
    assert info["estimation"]["tokens"] == sum(map(len, TEXTS)) + len(TEXTS)


def test_from_tokens(world, capsys, tmp_path):
    words = ("lm", "build", world / "a.npy", "--vocab-size", dumps.V, "--end-of-text", 0, "-o", tmp_path / "lm.ngram")
    cli.done(capsys, *words)
    assert_same_model(NGram.open(tmp_path / "lm.ngram"), build(TEXTS, order=4, vocab_size=dumps.V, end_of_text=0))
    assert NGram.open(tmp_path / "lm.ngram").words is None
    more = "--order 2 --min-count 1,2 --textbook --unseen-cost 1000 --max-ngrams 0.053k"
    cli.done(capsys, *words, *more.split())
    estimate = KatzOptions(textbook=True, unseen_cost=1000.0)
    how = {"min_counts": (1, 2), "estimate": estimate, "shorten": PruneOptions(max_ngrams=53)}
    expected = build(TEXTS, order=2, vocab_size=dumps.V, end_of_text=0, **how)
    assert_same_model(NGram.open(tmp_path / "lm.ngram"), expected)


def test_kneser_ney(world, capsys, tmp_path):
    words = ("lm", "build", world / "a.npy", "--vocab-size", dumps.V, "--end-of-text", 0, "--order", 3)
    words = (*words, "--method", "kneser-ney", "-o", tmp_path / "lm.ngram")
    cli.refusal(capsys, *words, names=["3", "--discount-fallback", "0.5,1,1.5", "--method"])
    cli.done(capsys, *words, "--discount-fallback", "0.5,1,1.5", "--max-ngrams", 55)
    how = {"estimate": KneserNeyOptions(discount_fallback=(0.5, 1.0, 1.5)), "shorten": PruneOptions(max_ngrams=55)}
    expected = build(TEXTS, order=3, vocab_size=dumps.V, end_of_text=0, **how)
    assert_same_model(NGram.open(tmp_path / "lm.ngram"), expected)
    out = cli.done(capsys, f"lm info {tmp_path}/lm.ngram").out
    assert re.search(r"estimation: method +kneser-ney\n", out)
    head, first, *_, last = (line.split() for line in out.splitlines()[-4:])
    assert head == "order n-grams counted d(1) d(2) above".split()
    assert first[:3] == ["1", str(dumps.V), "6"] and last[3:] == ["0.500", "1.000", "1.500"]


def test_from_standard_input(world, tokenizer, tmp_path):
    for content, form, header in (("a.jsonl", (), 0), ("a.npy", ("--stdin-format", "bin"), 128)):
        words = ("lm", "build", "-", *form, "--tokenizer", tokenizer, "-o", tmp_path / "lm.ngram")
        with open(world / content, "rb") as stream:
            stream.seek(header)  # of the array
            process = cli.start(*words, stdin=stream)
            assert (process.communicate(timeout=120)[1], process.returncode) == (b"", 0)
        assert_same_model(NGram.open(tmp_path / "lm.ngram"), build(TEXTS, order=4, vocab_size=dumps.V, end_of_text=0))


@pytest.mark.parametrize(
    "content, form, named",
    [
        (b'{"text": "w1"}\nbad\n', "jsonl", ["standard input", "line 2", "bad"]),
        (b"\1\0\2", "bin", ["standard input", "uint16", "3 bytes"]),
    ],
)
def test_bad_standard_input(tokenizer, tmp_path, content, form, named):
    words = f"lm build - --stdin-format {form} --tokenizer {tokenizer} -o {tmp_path}/lm.ngram --strict"
    process = cli.start(*words.split(), stdin=cli.subprocess.PIPE)
    err = process.communicate(content, timeout=120)[1].decode()
    assert process.returncode == 1 and err.count("\n") == 1
    assert_named(err, named)


def test_skipped_lines_are_reported(world, tokenizer, capsys, tmp_path):
    good = (world / "a.jsonl").read_text()
    (tmp_path / "c4.json.gz").write_bytes(gzip.compress((good + "oops\n" + '{"url": 1}\n').encode()))
    words = ("lm", "build", tmp_path / "c4.*.gz", "--tokenizer", tokenizer, "-o", tmp_path / "lm.ngram")
    skipped = cli.figures(capsys, *words)["skipped"]
    assert (skipped["documents"], skipped["reasons"]) == (2, {"not JSON": 1, "no text": 1})
    assert_named(skipped["examples"][0], [tmp_path / "c4.json.gz", "line 6", "oops"])
    assert_same_model(NGram.open(tmp_path / "lm.ngram"), build(TEXTS, order=4, vocab_size=dumps.V, end_of_text=0))
    assert_named(cli.done(capsys, *words).out, ["2", "1", "c4.json.gz", "7"])
    cli.refusal(capsys, *words, "--strict", names=["c4.json.gz", "6"])


def test_prune(world, capsys, tmp_path):
    cli.done(capsys, f"lm build {world}/a.npy --vocab-size {dumps.V} --end-of-text 0 -o {tmp_path}/lm.ngram")
    cli.done(capsys, f"lm prune {tmp_path}/lm.ngram --theta 0.01 -o {tmp_path}/small.ngram")
    whole, model = NGram.open(tmp_path / "lm.ngram"), NGram.open(tmp_path / "small.ngram")
    assert_same_model(model, prune_model(whole, PruneOptions(theta=0.01)))
    assert sum(model.info()["ngrams"]) < sum(whole.info()["ngrams"])
    assert model.metadata["end_of_text"] == 0 and model.metadata["estimation"]["method"] == "katz"


def test_info(world, capsys, tmp_path):
    path = tmp_path / "lm.ngram"
    cli.done(capsys, f"lm build {world}/a.npy --vocab-size {dumps.V} --end-of-text 0 --theta 1e-09 -o {path}")
    info = cli.figures(capsys, f"lm info {path} --verify")
    assert (info["order"], info["vocab_size"], info["verified"]) == (4, dumps.V, True)
    out, estimation = cli.call(capsys, f"lm info {path}").out, info["estimation"]
    rows = [line.split() for line in out.splitlines()[-5:]]
    assert rows[0] == "order n-grams counted d(1) d(2) d(3) d(4) d(5) above none for".split()
    for order, row in enumerate(rows[1:]):
        own = estimation["discounts"][order - 1] if order else {"d": [], "fallbacks": []}
        counts = [order + 1, info["ngrams"][order], estimation["ngrams_counted"][order]]
        assert row == [*map(str, counts), *(f"{d:.3f}" for d in own["d"]), *map(str, own["fallbacks"])]
    assert "pruning: theta" in out and "{" not in out


@pytest.mark.parametrize(
    "estimation",
    [
        3,
        {"ngrams_counted": [1, 2, 3], "discounts": [{"d": "x"}, {}]},
        {"a": {"b": [{"c": [1, None]}, {"d": "\x1b[31m" + "x" * 1000}]}},
    ],
)
def test_info_of_any_metadata(capsys, tmp_path, estimation):
    model = cli.make_model(tmp_path / "lm.ngram", dumps.sequences())
    changed = NGram.from_tables(model.to_tables(), metadata={"estimation": estimation, "[bold]": "[/x]"})
    changed.save(tmp_path / "lm.ngram")
    out = cli.done(capsys, f"lm info {tmp_path}/lm.ngram").out
    assert "\x1b" not in out and "[/x]" in out and "3-grams" not in out


TOKENIZER = "--tokenizer tokenizer.json"
BAD = [
    ("none.npy IDS", 1, ["none.npy"]),
    ("WORLD/a.jsonl --vocab-size 50 --end-of-text 50", 2, ["--end-of-text", "50", "0..49"]),
    (f"WORLD/a.jsonl {TOKENIZER} --vocab-size 20", 2, ["--vocab-size", "20", "50"]),
    ("WORLD/a.jsonl --end-of-text x", 2, ["--end-of-text", "--tokenizer"]),
    ("WORLD/a.jsonl --min-count 2,2", 2, ["--min-count", "1,1,2,4", "'2,2'"]),
    (f"WORLD/a.jsonl {TOKENIZER} --order 2 --min-count 1,1,1", 2, ["--min-count", "--order", "min_counts", "2", "3"]),
    ("WORLD/a.jsonl --theta 1 --max-ngrams 9", 2, ["--max-ngrams", "--theta"]),
    (f"WORLD/a.jsonl {TOKENIZER} --discount-fallback 0.5,1,1.5", 2, ["katz", "--discount-fallback", "--method"]),
    ("WORLD/a.jsonl --discount-fallback 1,2,4", 2, ["--discount-fallback", "3", "0.5,1,1.5", "'1,2,4'"]),
    (f"WORLD/a.jsonl {TOKENIZER} --method kneser-ney --textbook", 2, ["--textbook", "--method"]),
    ("WORLD/a.jsonl -o lm.bin", 2, ["-o/--out", "'lm.bin'", "arpa.gz"]),
    (f"WORLD/a.jsonl {TOKENIZER} -o WORLD/a.jsonl/x.ngram", 2, ["x.ngram", "a.jsonl"]),
    ("WORLD/a.jsonl IDS", 1, ["a.jsonl", "--tokenizer", "tokenizer.json"]),
    ("WORLD/a.jsonl WORLD/a.npy", 2, ["--tokenizer", "--vocab-size", "--end-of-text"]),
    ("WORLD/a.npy --vocab-size 3 --end-of-text 0", 1, ["a.npy", "0..2", "3"]),
    (f"empty.jsonl {TOKENIZER}", 1, ["least"]),
    (f"bad.jsonl {TOKENIZER} --text-field body", 1, ["2", "1", "bad.jsonl", '"body"']),
    ("WORLD/a.jsonl --tokenizer bad.jsonl", 1, ["tokenizer.json"]),
    ("WORLD/a.npy IDS --max-ngrams 49", 1, ["unigrams"]),
]


@pytest.mark.parametrize("words, status, named", BAD, ids=[words for words, _, _ in BAD])
def test_what_is_refused(world, tokenizer, capsys, tmp_path, monkeypatch, words, status, named):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.jsonl").touch()
    (tmp_path / "bad.jsonl").write_text('{"text": "w1"}\n{"text":')
    words = words.replace("WORLD", str(world)).replace("IDS", f"--vocab-size {dumps.V} --end-of-text 0")
    cli.refusal(capsys, f"lm build -o out/lm.ngram {words}", status=status, names=named)
    assert not (tmp_path / "out" / "lm.ngram").exists()


def test_a_model_that_memory_does_not_hold_is_refused_and_its_counts_are_kept(world, capsys, tmp_path, monkeypatch):
    words = ("lm", "build", world / "a.npy", "--vocab-size", dumps.V, "--end-of-text", 0, "-o", tmp_path / "lm.ngram")
    monkeypatch.setattr("rescore.lm.build.staged.COMPILED_BYTES", 1 << 30)
    cli.refusal(capsys, *words, names=["4.29", "--ram"])
    assert (tmp_path / "lm.ngram.work" / "manifest.json").exists()
    monkeypatch.undo()
    cli.done(capsys, *words)


def test_arpa_beside_the_model_of_a_tokenizer_whose_words_have_spaces(demo, capsys, tmp_path):
    (tmp_path / "a.txt").write_text("The cat sat on the mat, and the mat was flat.")
    outs = f"-o {tmp_path}/lm.ngram --arpa {tmp_path}/lm.arpa"
    cli.done(capsys, f"lm build {tmp_path}/a.txt --tokenizer {demo}/tokenizer.json {outs}")
    model = NGram.open(tmp_path / "lm.ngram")
    ids = ArpaOptions(words="ids", vocab_size=model.vocab_size, end_of_text=model.metadata["end_of_text"])
    again = load(tmp_path / "lm.arpa", arpa=ids)
    tokens = np.arange(300, 400)
    np.testing.assert_allclose(again.score(tokens), model.score(tokens), rtol=1e-6)


USELESS = {
    "c.jsonl": (b'{"content": "a b"}\n', ["1", '"text"', "--text-field"]),
    "c.json": (b'[{"text": "a b"}]', ["1"]),
    "c.txt": (b"<s> a b </s>\n<s> c </s>\n", ["2"]),
    "d.txt": (b"\xff\n", ["1", "UTF-8", "d.txt", "0xff"]),
    "e.txt": (b"", ["document"]),
    "f.txt": (b"\n \n", ["document"]),
}


@pytest.mark.parametrize("name", USELESS)
def test_why_nothing_is_read_and_the_next_build_is_free(tokenizer, capsys, tmp_path, name):
    content, message = USELESS[name]
    more = () if name in ("c.txt", "d.txt", "e.txt") else ("--tokenizer", tokenizer)  # as words, and as tokens
    (tmp_path / name).write_bytes(content)
    cli.refusal(capsys, "lm build", tmp_path / name, *more, "-o", tmp_path / "lm.ngram", names=message)
    assert not (tmp_path / "lm.ngram.work").exists()
    (tmp_path / name).write_text('{"text": "w1 w2"}' if "json" in name else "w1 w2")
    cli.done(capsys, "lm build", tmp_path / name, *more, "-o", tmp_path / "lm.ngram")


@pytest.mark.parametrize("later", ["tokens", "pipe"])
def test_a_failed_build_does_not_block_the_next_with_other_inputs(tokenizer, tmp_path, later):
    """Here one too small for Kneser-Ney."""
    more = ["--method", "kneser-ney", "-o", tmp_path / "lm.ngram"]
    more += ["--tokenizer", tokenizer] if later == "tokens" else []
    (tmp_path / "a.txt").write_text("w1 w2\n")
    (tmp_path / "b.txt").write_text("w1 w2 w3\n")
    fallback = ("--discount-fallback", "0.5,1,1.5")
    for name, options, status in (("a.txt", (), 1), ("a.txt", (), 1), ("b.txt", fallback, 0)):
        given = "-" if later == "pipe" else tmp_path / name
        process = cli.start("lm", "build", given, *more, *options, stdin=open(tmp_path / name))
        process.communicate(timeout=120)
        assert process.returncode == status
        assert (tmp_path / "lm.ngram.work").exists() == bool(status)
    assert NGram.open(tmp_path / "lm.ngram").vocab_size == (dumps.V if later == "tokens" else 5)
