"""`rescore lm score`: perplexities against sums of costs, token by token."""

import json
import math

import numpy as np
import pytest
from support import cli, dumps

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


@pytest.mark.parametrize(
    "words, status, named",
    [
        ("lm.ngram a.npy", 1, ["a.npy", "1", "0..49", "50"]),
        ("lm.ngram a.npy --end-of-text 60", 2, ["60", "0..49"]),
        ("other.ngram a.txt --tokenizer t.json", 1, ["other.ngram", "tokenizer"]),
        ("lm.ngram a.txt --tokenizer large.json", 1, ["60", "50"]),
    ],
)
def test_refusals(lm, capsys, tmp_path, monkeypatch, words, status, named):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lm.ngram").symlink_to(lm[0])
    np.save(tmp_path / "a.npy", np.array([1, 50]))
    (tmp_path / "a.txt").write_text("w1")
    cli.make_tokenizer(tmp_path / "t.json")
    cli.make_tokenizer(tmp_path / "large.json", 60)
    cli.make_model(tmp_path / "other.ngram", dumps.sequences(), tokenizer="b" * 64)
    cli.refusal(capsys, f"lm score {words}", status=status, names=named)
