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


@pytest.mark.parametrize("inputs", [["a.jsonl"], ["a.jsonl.gz"], ["0.txt", "1.txt", "2.txt", "3.txt", "4.txt"]])
def test_from_text(world, tokenizer, capsys, tmp_path, inputs):
    more = f"--tokenizer {tokenizer} --order 3 -o {tmp_path}/new/lm.ngram"
    info = cli.figures(capsys, f"lm build {' '.join(f'{world}/{name}' for name in inputs)} {more}")
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
    cli.done(
        capsys, *words, "--order", 2, "--min-count", "1,2", "--textbook", "--unseen-cost", 1000, "--max-ngrams", 53
    )
    estimate = KatzOptions(textbook=True, unseen_cost=1000.0)
    how = {"min_counts": (1, 2), "estimate": estimate, "shorten": PruneOptions(max_ngrams=53)}
    expected = build(TEXTS, order=2, vocab_size=dumps.V, end_of_text=0, **how)
    assert_same_model(NGram.open(tmp_path / "lm.ngram"), expected)


def test_kneser_ney(world, capsys, tmp_path):
    words = ("lm", "build", world / "a.npy", "--vocab-size", dumps.V, "--end-of-text", 0, "--order", 3)
    words = (*words, "--method", "kneser-ney", "-o", tmp_path / "lm.ngram")
    cli.refusal(capsys, *words, names=["3", "--discount-fallback", "0.5,1,1.5", "--method"])
    cli.done(capsys, *words, "--discount-fallback", "0.5,1,1.5")
    method = KneserNeyOptions(discount_fallback=(0.5, 1.0, 1.5))
    expected = build(TEXTS, order=3, vocab_size=dumps.V, end_of_text=0, estimate=method)
    assert_same_model(NGram.open(tmp_path / "lm.ngram"), expected)
    out = cli.call(capsys, f"lm info {tmp_path}/lm.ngram").out
    assert re.search(r"estimation: method +kneser-ney\n", out)
    rows = [line.split() for line in out.splitlines()[-4:]]
    assert rows[0] == ["order", "n-grams", "counted", "d(1)", "d(2)", "above"]
    assert rows[1][:3] == ["1", str(dumps.V), "6"] and rows[3][3:] == ["0.500", "1.000", "1.500"]
    cli.done(capsys, *words, "--discount-fallback", "0.5,1,1.5", "--max-ngrams", 55)
    pruned = build(
        TEXTS, order=3, vocab_size=dumps.V, end_of_text=0, estimate=method, shorten=PruneOptions(max_ngrams=55)
    )
    assert_same_model(NGram.open(tmp_path / "lm.ngram"), pruned)


def test_from_standard_input(world, tokenizer, tmp_path):
    for content, form in (("a.jsonl", ()), ("a.npy", ("--stdin-format", "bin"))):
        with open(world / content, "rb") as stream:
            if form:
                stream.seek(128)  # past the header of the array
            process = cli.start(
                "lm", "build", "-", *form, "--tokenizer", tokenizer, "-o", tmp_path / "lm.ngram", stdin=stream
            )
            assert (process.communicate(timeout=120)[1], process.returncode) == (b"", 0)
        assert_same_model(NGram.open(tmp_path / "lm.ngram"), build(TEXTS, order=4, vocab_size=dumps.V, end_of_text=0))


@pytest.mark.parametrize(
    "content, form, message",
    [
        (b'{"text": "w1"}\nbad\n', "jsonl", "standard input, line 2: expected a JSON object, got bad: "),
        (b"w1\nw2\n\xff\n", "txt", "standard input, line 3: expected UTF-8, got byte 0xff at 0"),
        (b"\1\0\2", "bin", "standard input: expected uint16 ids of 2 bytes, got 3 bytes"),
        (b"\1\0\x63\0", "bin", "standard input, token 1: expected ids in 0..49, got 99"),
    ],
)
def test_bad_standard_input(tokenizer, tmp_path, content, form, message):
    process = cli.start(
        *f"lm build - --stdin-format {form} --tokenizer {tokenizer} -o {tmp_path}/lm.ngram --strict".split(),
        stdin=cli.subprocess.PIPE,
    )
    err = process.communicate(content, timeout=120)[1].decode()
    assert process.returncode == 1 and err.count("\n") == 1 and message in err


def test_skipped_lines_are_reported(world, tokenizer, capsys, tmp_path):
    good = (world / "a.jsonl").read_text()
    (tmp_path / "c4.json.gz").write_bytes(gzip.compress((good + "oops\n" + '{"url": 1}\n').encode()))
    words = ("lm", "build", tmp_path / "c4.*.gz", "--tokenizer", tokenizer, "-o", tmp_path / "lm.ngram")
    skipped = cli.figures(capsys, *words)["skipped"]
    assert (skipped["documents"], skipped["reasons"]) == (2, {"not JSON": 1, "no text": 1})
    assert skipped["examples"][0].startswith(f"{tmp_path / 'c4.json.gz'}, line 6: expected a JSON object, got oops: ")
    assert_same_model(NGram.open(tmp_path / "lm.ngram"), build(TEXTS, order=4, vocab_size=dumps.V, end_of_text=0))
    out = cli.call(capsys, *words).out
    assert_named(out, ["2", "1", "c4.json.gz", "7"])
    cli.refusal(capsys, *words, "--strict", names=["c4.json.gz", "6"])


def cut(tokens: list[int]) -> list[list[int]]:
    """The documents between ends of text."""
    parts: list[list[int]] = [[]]
    for token in tokens:
        parts[-1].append(int(token)) if token else parts.append([])
    return [part for part in parts if part]


@pytest.mark.parametrize(
    "options, cut",
    [(["--theta", "0.01"], PruneOptions(theta=0.01)), (["--max-ngrams", "0.055k"], PruneOptions(max_ngrams=55))],
)
def test_prune(world, capsys, tmp_path, options, cut):
    cli.call(capsys, f"lm build {world}/a.npy --vocab-size {dumps.V} --end-of-text 0 -o {tmp_path}/lm.ngram")
    info = cli.figures(capsys, f"lm prune {tmp_path}/lm.ngram", *options, "-o", tmp_path / "small.ngram")
    model = NGram.open(tmp_path / "small.ngram")
    assert_same_model(model, prune_model(NGram.open(tmp_path / "lm.ngram"), cut))
    assert sum(info["ngrams"]) < sum(NGram.open(tmp_path / "lm.ngram").info()["ngrams"])
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
        {"discounts": 1},
        {"ngrams_counted": [1, 2, 3]},
        {"ngrams_counted": [1, 2, 3], "discounts": [{"d": "x"}, {}]},
        {"a": {"b": [{"c": [1, None]}, {"d": "\x1b[31m" + "x" * 1000}]}},
    ],
)
def test_info_of_any_metadata(capsys, tmp_path, estimation):
    cli.make_model(tmp_path / "lm.ngram", dumps.sequences())
    model = NGram.open(tmp_path / "lm.ngram")
    changed = NGram.from_tables(model.to_tables(), metadata={"estimation": estimation, "[bold]": "[/x]"})
    changed.save(tmp_path / "lm.ngram")
    result = cli.call(capsys, f"lm info {tmp_path}/lm.ngram")
    assert result.status == 0 and "\x1b" not in result.out and "[/x]" in result.out and "3-grams" not in result.out


MISUSE = [
    (["--vocab-size", "50", "--end-of-text", "50"], ["--end-of-text", "50", "0..49"]),
    (["--vocab-size", "0", "--end-of-text", "0"], ["--vocab-size", "16777216", "0"]),
    (["--tokenizer", "T", "--vocab-size", "20"], ["--vocab-size", "20", "50"]),
    (["--end-of-text", "x"], ["--end-of-text", "--tokenizer"]),
    (["--order", "8"], ["--order", "1", "7", "8"]),
    (["--min-count", "2,2"], ["--min-count", "1,1,2,4", "'2,2'"]),
    (["--tokenizer", "T", "--order", "2", "--min-count", "1,1,1"], ["--min-count", "--order", "min_counts", "2", "3"]),
    (["--max-ngrams", "nan"], ["--max-ngrams", "400K", "'nan'"]),
    (["--max-ngrams", "1e400k"], ["--max-ngrams"]),
    (["--theta", "nan"], ["--theta", "'nan'"]),
    (["--theta", "1", "--max-ngrams", "9"], ["--max-ngrams", "--theta"]),
    (["--unseen-cost", "-1"], ["--unseen-cost"]),
    (["--method", "witten-bell"], ["--method", "'witten-bell'"]),
    (["--tokenizer", "T", "--discount-fallback", "0.5,1,1.5"], ["katz", "--discount-fallback", "--method"]),
    (["--discount-fallback", "1,2,4"], ["--discount-fallback", "3", "0.5,1,1.5", "'1,2,4'"]),
    (["--tokenizer", "T", "--method", "kneser-ney", "--textbook"], ["--textbook", "--method"]),
    (["--tokenizer", "T", "--method", "kneser-ney", "--unseen-cost", "5"], ["--unseen-cost", "--method"]),
    (["-o", "lm.bin"], ["-o/--out", "'lm.bin'", "arpa.gz"]),
    (["--tokenizer", "T", "-o", "INPUT/x.ngram"], ["x.ngram", "a.jsonl"]),
]


@pytest.mark.parametrize("words, message", MISUSE)
def test_misuse(world, tokenizer, capsys, tmp_path, words, message):
    words = [word.replace("INPUT", str(world / "a.jsonl")) if word != "T" else str(tokenizer) for word in words]
    before = sorted(tmp_path.iterdir())
    cli.refusal(capsys, f"lm build {world}/a.jsonl -o {tmp_path}/lm.ngram", *words, status=2, names=message)
    assert sorted(tmp_path.iterdir()) == before


BAD = [
    ("none.npy IDS", 1, ["none.npy"]),
    ("WORLD/a.jsonl IDS", 1, ["a.jsonl", "--tokenizer", "tokenizer.json"]),
    ("WORLD/a.jsonl WORLD/a.npy", 2, ["--tokenizer", "--vocab-size", "--end-of-text"]),
    ("WORLD/a.npy --vocab-size 3 --end-of-text 0", 1, ["a.npy", "0..2", "3"]),
    ("empty.jsonl --tokenizer tokenizer.json", 1, ["least"]),
    ("bad.jsonl --tokenizer tokenizer.json --strict", 1, ["bad.jsonl", "2"]),
    ("bad.jsonl --tokenizer tokenizer.json --text-field body", 1, ["2", "1", "bad.jsonl", '"body"']),
    ("WORLD/a.jsonl --tokenizer bad.jsonl", 1, ["tokenizer.json"]),
    ("WORLD/a.npy IDS --max-ngrams 49", 1, ["unigrams"]),
]


@pytest.mark.parametrize("words, status, named", BAD, ids=[words for words, _, _ in BAD])
def test_bad_data(world, tokenizer, capsys, tmp_path, monkeypatch, words, status, named):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.jsonl").touch()
    (tmp_path / "bad.jsonl").write_text('{"text": "w1"}\n{"text":')
    words = words.replace("WORLD", str(world)).replace("IDS", f"--vocab-size {dumps.V} --end-of-text 0")
    cli.refusal(capsys, f"lm build {words} -o out/lm.ngram", status=status, names=named)
    assert not (tmp_path / "out/lm.ngram").exists()


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
@pytest.mark.parametrize("ids", [False, True], ids=["words", "tokens"])
def test_why_nothing_is_read_and_the_next_build_is_free(world, tokenizer, capsys, tmp_path, name, ids):
    content, message = USELESS[name]
    more = ("--tokenizer", tokenizer) if ids else ()
    if ids and name == "c.txt":
        return  # words like any others
    (tmp_path / name).write_bytes(content)
    cli.refusal(capsys, "lm build", tmp_path / name, *more, "-o", tmp_path / "lm.ngram", names=message)
    assert not (tmp_path / "lm.ngram.work").exists()
    (tmp_path / name).write_text('{"text": "w1 w2"}' if "json" in name else "w1 w2")
    cli.done(capsys, "lm build", tmp_path / name, *more, "-o", tmp_path / "lm.ngram")


@pytest.mark.parametrize("later", ["words", "tokens", "pipe"])
def test_a_failed_build_does_not_block_the_next_with_other_inputs(
    world, tokenizer, capsys, tmp_path, monkeypatch, later
):
    """Here one too small for Kneser-Ney."""
    more = ["--method", "kneser-ney", "-o", tmp_path / "lm.ngram"]
    more += ["--tokenizer", tokenizer] if later == "tokens" else []
    (tmp_path / "a.txt").write_text("w1 w2\n")
    (tmp_path / "b.txt").write_text("w1 w2 w3\n")
    first, second = tmp_path / "a.txt", tmp_path / "b.txt"
    if later == "pipe":
        first = second = "-"
    fallback = ("--discount-fallback", "0.5,1,1.5")
    for name, options, status in ((first, (), 1), (first, (), 1), (second, fallback, 0)):
        process = cli.start(
            "lm", "build", name, *more, *options, stdin=open(tmp_path / ("a.txt" if status else "b.txt"))
        )
        process.communicate(timeout=120)
        assert process.returncode == status
        assert (tmp_path / "lm.ngram.work").exists() == bool(status)
    assert NGram.open(tmp_path / "lm.ngram").vocab_size == (dumps.V if later == "tokens" else 5)
