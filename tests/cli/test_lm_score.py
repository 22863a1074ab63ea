"""`rescore lm score` against sums of costs and KenLM; models of words, built without a tokenizer and through pipes."""

import csv
import io
import json
import math
import random

import numpy as np
import pytest
from support import cli, dumps
from support.models import assert_same_model

from rescore.lm.build.in_memory import build
from rescore.lm.model import example
from rescore.lm.model.ngram import NGram

DOCUMENTS = [[3, 1, 2], [5], [], [3, 1, 4, 1, 5]]


@pytest.fixture(scope="module")
def lm(tmp_path_factory):
    path = tmp_path_factory.mktemp("score") / "lm.ngram"
    return path, cli.make_model(path, dumps.sequences(count=10))


def cost(model: NGram, documents: list[list[int]]) -> tuple[int, float]:
    """Tokens, and the sum of -ln p of each after the last two before it; a document follows the end of another."""
    tokens, total = 0, 0.0
    for document in filter(None, documents):  # an empty document counts nothing
        history = [0]
        for token in [*document, 0]:
            state = model.start(history[-2:])
            total += float(model.distribution(state)[token])
            history.append(token)
            tokens += 1
    return tokens, total


def test_the_worked_example_by_hand(capsys, tmp_path):
    """. Lionel Messi scored, each after the two before: p = 0.1, 0.8, 0.9 (no end of text: from no context)."""
    example.model().save(tmp_path / "m.ngram")
    np.save(tmp_path / "a.npy", np.array([example.STOP, example.LIONEL, example.MESSI, example.SCORED]))
    (file,) = cli.figures(capsys, f"lm score {tmp_path}/m.ngram {tmp_path}/a.npy")["files"]
    assert file["tokens"] == 4 and file["nats"] == pytest.approx(-math.log(0.4 * 0.1 * 0.8 * 0.9), abs=1e-5)
    orders = [(row["order"], row["tokens"], row["share"]) for row in file["by_order"]]
    assert orders == [(1, 2, 0.5), (2, 1, 0.25), (3, 1, 0.25)]
    perplexities = [row["perplexity"] for row in file["by_order"]]
    assert perplexities == pytest.approx([(0.4 * 0.1) ** -0.5, 1 / 0.8, 1 / 0.9], rel=1e-4)


def test_text_and_overall(lm, capsys, tmp_path):
    path, model = lm
    tokenizer = cli.make_tokenizer(tmp_path / "t.json")
    texts = [" ".join(f"w{i}" for i in document) for document in DOCUMENTS]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    (tmp_path / "b.txt").write_text(texts[0])
    words = f"lm score {path} {tmp_path}/a.jsonl {tmp_path}/b.txt --tokenizer {tokenizer}"
    report = cli.figures(capsys, words)
    parts = (DOCUMENTS, DOCUMENTS[:1], DOCUMENTS + DOCUMENTS[:1])
    for found, documents in zip((*report["files"], report["overall"]), parts, strict=True):
        tokens, total = cost(model, documents)
        assert (found["tokens"], found["nats"]) == (tokens, pytest.approx(total, rel=1e-6))
    lines = cli.done(capsys, words).out.splitlines()
    assert lines[3].split() == ["overall", str(tokens), f"{total / tokens:.4f}", f"{math.exp(total / tokens):,.2f}"]
    orders = [line.split() for line in lines[lines.index("") + 2 :]]
    assert [row[0] for row in orders] == ["1", "2", "3"] and sum(int(row[1]) for row in orders) == tokens


def test_nothing_to_score(lm, capsys, tmp_path):
    (tmp_path / "a.jsonl").touch()
    tokenizer = cli.make_tokenizer(tmp_path / "t.json")
    words = ("lm", "score", lm[0], tmp_path / "a.jsonl", "--tokenizer", tokenizer)
    nothing = {"tokens": 0, "nats": 0.0, "nats_per_token": None, "perplexity": None}
    (file,) = cli.figures(capsys, *words)["files"]
    assert file.pop("by_order") == [{"order": order, **nothing, "share": None} for order in (1, 2, 3)]
    assert file == {"file": str(tmp_path / "a.jsonl"), **nothing}
    cli.done(capsys, *words)


TEXT = """\
the cat sat on the mat
the dog sat on the cat

a dog saw the cat
the cat saw a dog on the mat
"""
HELD = ("the cat sat", "zebra dog", "", "a cat saw the unheard dog", "the mat")
LN10 = math.log(10)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """The text, and its model of order 3 in both forms."""
    folder = tmp_path_factory.mktemp("words")
    (folder / "text.txt").write_text(TEXT)
    (folder / "held.txt").write_text("".join(f"{line}\n" for line in HELD))
    for name in ("m.ngram", "m.arpa"):
        assert cli.main(f"lm build {folder}/text.txt --order 3 -o {folder}/{name}".split()) == 0
    return folder


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text), delimiter="\t", quoting=csv.QUOTE_NONE))


def kenlm_model(path):
    return pytest.importorskip("kenlm", reason="kenlm is absent").Model(str(path))


def test_a_model_of_words(world, capsys):
    """Ids by first appearance; the same as estimating from these ids."""
    words = ["<unk>", "</s>", *dict.fromkeys(TEXT.split())]
    ids = [[words.index(word) for word in line.split()] for line in TEXT.splitlines() if line]
    model = NGram.open(world / "m.ngram", verify=True)
    assert model.words == tuple(words) and model.metadata["end_of_text"] == 1 and "tokenizer" not in model.metadata
    assert_same_model(model, build(ids, order=3, vocab_size=len(words), end_of_text=1))
    info = cli.figures(capsys, f"lm info {world}/m.arpa")
    assert info["vocab_size"] == len(words) + 1 and (info["bos"], info["eos"]) == (0, 2)


@pytest.mark.parametrize("name", ["m.ngram", "m.arpa"])
def test_lines_score_as_in_kenlm(world, capsys, tmp_path, name):
    peer = kenlm_model(world / "m.arpa")
    report = cli.figures(capsys, "lm score", world / name, world / "held.txt", "--per-line", tmp_path / "lines.tsv")
    found = rows((tmp_path / "lines.tsv").read_text())
    lines = [(number, line) for number, line in enumerate(HELD, 1) if line]  # blank ones are skipped
    assert [int(row["line"]) for row in found] == [number for number, _ in lines]
    total = np.zeros(4)
    for row, (_, line) in zip(found, lines):
        scores = list(peer.full_scores(line, bos=True, eos=True))
        oov = [logp for logp, _, unknown in scores if unknown]
        assert row["file"] == str(world / "held.txt")
        assert (int(row["tokens"]), int(row["oov"])) == (len(scores), len(oov))
        assert float(row["log10_p"]) == pytest.approx(peer.score(line), abs=1e-4)
        assert float(row["nats"]) == pytest.approx(-LN10 * float(row["log10_p"]), rel=1e-6)
        total += len(scores), peer.score(line), len(oov), sum(oov)
    tokens, logp, unknown, unknown_logp = total
    assert report["overall"]["tokens"] == tokens and report["overall"]["oov"] == unknown == 2
    assert report["overall"]["perplexity"] == pytest.approx(10 ** (-logp / tokens), rel=1e-4)
    assert report["overall"]["without_oov"]["perplexity"] == pytest.approx(
        10 ** (-(logp - unknown_logp) / (tokens - unknown)), rel=1e-4
    )
    out = cli.call(capsys, "lm score", world / name, world / "held.txt").out.splitlines()
    assert " ".join(out[0].split()).endswith("unknown words without them")
    assert out[1].split()[-2:] == ["2", f"{report['overall']['without_oov']['perplexity']:,.2f}"]


def test_tokens_score_as_in_kenlm(world, capsys):
    peer = kenlm_model(world / "m.arpa")
    result = cli.call(capsys, f"lm score {world}/m.ngram {world}/held.txt --per-token -")
    assert "perplexity" in result.err and "perplexity" not in result.out
    found = iter(rows(result.out))
    for line in filter(None, HELD):
        for word, (logp, order, unknown) in zip([*line.split(), "</s>"], peer.full_scores(line), strict=True):
            row = next(found)
            assert float(row["log10_p"]) == pytest.approx(logp, abs=1e-4) and row["oov"] == str(int(unknown))
            assert row["token"] == ("<unk>" if unknown else word)
            assert unknown or int(row["order"]) == order
    assert next(found, None) is None


def test_a_model_of_kenlms_own(shared, capsys, tmp_path):
    """Whose <s> and </s> are words of the file."""
    path = shared / "reference" / "kenlm" / "test.arpa"
    peer, draw = kenlm_model(path), random.Random(7)
    words = "also would consider higher looking on a little more loin beyond immediate unheard".split()
    lines = [" ".join(draw.choices(words, k=draw.randint(1, 9))) for _ in range(50)]
    (tmp_path / "a.txt").write_text("\n".join(lines))
    cli.call(capsys, f"lm convert {path} {tmp_path}/m.ngram")
    for model in (path, tmp_path / "m.ngram"):
        result = cli.call(capsys, f"lm score {model} {tmp_path}/a.txt --per-line -")
        found = [float(row["log10_p"]) for row in rows(result.out)]
        np.testing.assert_allclose(found, [peer.score(line) for line in lines], atol=1e-4)


def test_long_documents_come_in_parts(world, capsys, monkeypatch):
    call = f"lm score {world}/m.arpa {world}/held.txt --per-line -"
    whole = rows(cli.done(capsys, call).out)
    monkeypatch.setattr("rescore.lm.model.perplexity.CHUNK", 2)
    for one, other in zip(rows(cli.done(capsys, call).out), whole, strict=True):
        for name in ("log10_p", "nats"):
            assert float(one.pop(name)) == pytest.approx(float(other.pop(name)), rel=1e-6)
        assert one == other


def test_rows_of_token_files_are_numbered(capsys, tmp_path):
    build([[1, 2], [2], [1, 1]], order=2, vocab_size=3, end_of_text=0).save(tmp_path / "m.ngram")
    np.save(tmp_path / "a.npy", np.array([1, 2, 0, 0, 2, 0]))
    result = cli.done(capsys, f"lm score {tmp_path}/m.ngram {tmp_path}/a.npy --per-token -")
    found = [(row["line"], row["token"]) for row in rows(result.out)]
    assert found == [("1", "1"), ("1", "2"), ("1", "0"), ("2", "2"), ("2", "0")]


def test_heldout_text_and_mixtures_of_words(world, capsys, tmp_path):
    two, held = tmp_path / "two.ngram", world / "held.txt"
    info = cli.figures(capsys, f"lm build {world}/text.txt --order 2 --heldout {held} -o {two}")
    score = cli.figures(capsys, f"lm score {two} {held}")
    assert info["heldout"]["perplexity"] == pytest.approx(score["overall"]["perplexity"], rel=1e-6)
    merged = cli.figures(capsys, f"lm merge {two} {world}/m.ngram --tune {held} -o {tmp_path}/both.ngram")
    assert merged["heldout"]["tokens"] == score["overall"]["tokens"]


def test_through_pipes(world, tmp_path):
    """Text in, ARPA out and in again, rows out: as of files; tables and notes go to standard error."""
    build = cli.start("lm", "build", "-", "--order", 3, "-o", "-", stdin=cli.subprocess.PIPE, cwd=tmp_path)
    arpa, err = build.communicate(TEXT.encode(), timeout=120)
    assert build.returncode == 0 and b"n-grams" in err and arpa == (world / "m.arpa").read_bytes()
    assert not list(tmp_path.iterdir())
    convert = cli.start("lm", "convert", "-", tmp_path / "m.ngram", "--end-of-text", 1, stdin=cli.subprocess.PIPE)
    assert convert.communicate(arpa, timeout=120)[1] == b""
    assert_same_model(NGram.open(tmp_path / "m.ngram"), NGram.open(world / "m.ngram"))
    score = cli.start("lm", "score", world / "m.arpa", "-", "--per-line", "-", stdin=cli.subprocess.PIPE)
    out, err = score.communicate(b"the cat sat\n\nzebra", timeout=120)
    assert [row["line"] for row in rows(out.decode())] == ["1", "3"] and b"perplexity" in err


def test_work_of_tokens_is_not_taken_for_words(world, capsys, tmp_path):
    np.save(tmp_path / "a.npy", np.array([1, 2, 0, 2, 1, 0]))
    tokens = ("lm", "build", tmp_path / "a.npy", "--vocab-size", 3, "--end-of-text", 0, "-o", tmp_path / "a.ngram")
    words = ("lm", "build", world / "text.txt", "-o", tmp_path / "b.ngram")
    for own, others, name in ((tokens, words, "w"), (words, tokens, "v")):
        cli.done(capsys, *own, "--work", tmp_path / name)
        cli.refusal(capsys, *others, "--work", tmp_path / name, names=[name])
        cli.done(capsys, *own, "--theta", 0.1, "--work", tmp_path / name)  # goes on from the counts
