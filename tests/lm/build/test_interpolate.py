"""Models made one, against mixtures that are computed word by word from dictionaries; weights tuned on text."""

import math
from dataclasses import replace
from itertools import product

import kenlm
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import cli as support_cli
from support.oracle_lm import from_tables, random_tables, random_text
from support.refusals import refuses

from rescore.decode import cli
from rescore.lm.build.estimate import with_backoff
from rescore.lm.build.interpolate import Mixture, check_alike, interpolate, merge_models
from rescore.lm.build.tuning import tune_mixture
from rescore.lm.model.ngram import NGram
from rescore.lm.model.tables import NEVER, Tables

V = 6
HISTORIES = [history for length in range(4) for history in product(range(V), repeat=length)]


def models(seed: int, orders: tuple[int, ...]) -> list[Tables]:
    """Of texts of different lengths."""
    return [random_tables(seed + 31 * j, order, vocab_size=V, tokens=40 + 20 * j) for j, order in enumerate(orders)]


def mixed(slow, weights, log_linear, history):
    """Probabilities [V] of a mixture that looks every word up in all models."""
    p = np.array([[math.exp(-model.of(history, token)) for token in range(V)] for model in slow])
    mass = np.prod(p ** np.array(weights)[:, None], axis=0) if log_linear else np.array(weights) @ p
    return mass / mass.sum()


orders = st.lists(st.integers(1, 4), min_size=1, max_size=3).map(tuple)
shares = st.lists(st.floats(0.05, 1), min_size=3, max_size=3)


@settings(max_examples=25)
@given(st.integers(0, 10**6), orders, shares, st.booleans())
def test_merged_models_are_their_mixtures(seed, orders, shares, log_linear):
    made = models(seed, orders)
    weights = np.array(shares[: len(orders)])
    if not log_linear:
        weights /= weights.sum()
    slow = [from_tables(model) for model in made]
    merged = from_tables(interpolate(made, Mixture(weights=tuple(weights.tolist()), log_linear=log_linear)))
    assert set(merged.cost) == set().union(*(model.cost for model in slow))
    for history in HISTORIES:
        expected = mixed(slow, weights, log_linear, history)
        found = mixed([merged], [1], False, history)
        assert merged.total(history) == pytest.approx(1, abs=1e-9)
        kept = np.array([log_linear or (*history, token) in merged.cost for token in range(V)])
        assert found[kept] == pytest.approx(expected[kept], rel=1e-8), history
        assert found[~kept].sum() == pytest.approx(expected[~kept].sum(), abs=1e-9) or history not in merged.backoff


@pytest.mark.parametrize("log_linear", [False, True])
def test_what_never_happens_stays_so(log_linear):
    """<s> in both models, ids of cost 1000, contexts that leave no mass."""
    text = random_tables(3, 3, vocab_size=V, tokens=60, unseen_cost=1000.0, textbook=True)
    cost = text.cost[0] + math.log1p(-math.exp(-text.cost[0][5]))
    cost[5] = NEVER
    made = [
        with_backoff(replace(text, cost=(cost, *text.cost[1:]), bos=5)),
        replace(random_tables(8, 2, vocab_size=V), bos=5),
    ]
    merged = interpolate(made, Mixture(weights=(0.5, 0.5), log_linear=log_linear))
    assert all(np.isfinite(own).all() for own in (*merged.cost, *merged.backoff))
    slow = from_tables(merged)
    for history in HISTORIES:
        assert slow.total(history) == pytest.approx(1, abs=1e-6)
    assert merged.bos == 5


def test_models_keep_what_they_say():
    first, second = models(1, (2, 3))
    a = NGram.from_tables(first, metadata={"end_of_text": 0, "tokenizer": "x"})
    b = NGram.from_tables(second, words=tuple("abcdef"), metadata={"note": "b"})
    merged = merge_models([a, b], Mixture.equal(2))
    for weights in (None, [0.5, 0.5]):
        assert all(map(np.array_equal, merge_models([a, b], weights).arrays, merged.arrays))
    merged.core.check()
    assert merged.words == tuple("abcdef") and merged.order == 3
    assert (merged.metadata["end_of_text"], merged.metadata["tokenizer"]) == (0, "x")
    mixed = merged.metadata["interpolation"]
    assert mixed["method"] == "linear" and [own["weight"] for own in mixed["models"]] == [0.5, 0.5]
    assert [own["ngrams"] for own in mixed["models"]] == [a.info()["ngrams"], b.info()["ngrams"]]
    assert mixed["models"][1]["note"] == "b"


def read_words(path) -> dict[tuple[str, ...], tuple[float, float]]:
    """The n-grams of an ARPA file as words: probability and backoff weight."""
    rows = [line.split("\t") for line in path.read_text().splitlines() if line[:1] == "-" or line[:1] == "0"]
    return {tuple(row[1].split()): (10 ** float(row[0]), 10 ** float((*row, "0")[2])) for row in rows}


def of_words(grams, history: tuple[str, ...], word: str) -> float:
    """p(word | history) by Katz's recursion; 0 for a word that the model lacks."""
    if (*history, word) in grams:
        return 0 if word == "<s>" else grams[(*history, word)][0]
    return of_words(grams, history[1:], word) * grams.get(history, (1, 1))[1] if history else 0


TEXTS = {
    "a": "a b c\nb c a\nc\n",
    "b": "x y a\ny a x\na y\n",
    "c": "c b a\nb a c\na b\n",
}
SENTENCES = ["a b c", "x y a", "c b a", "y a x", "a", "b x", "<unk> a"]


@pytest.fixture(scope="module")
def word_models(tmp_path_factory):
    """Models of other words, or of the same in another order, as .ngram and as ARPA."""
    folder = tmp_path_factory.mktemp("words")
    for name, text in TEXTS.items():
        (folder / f"{name}.txt").write_text(text * 4)
        for suffix in ("ngram", "arpa"):
            assert not cli.main([*f"lm build {folder}/{name}.txt --order 3 -o {folder}/{name}.{suffix}".split()])
    return folder


@pytest.mark.parametrize("suffixes", [("ngram", "ngram"), ("arpa", "arpa"), ("ngram", "arpa"), ("arpa", "ngram")])
@pytest.mark.parametrize("names", [("a", "b"), ("a", "c"), ("b", "a")])
def test_models_of_other_words_are_merged_over_all_of_them(word_models, tmp_path, names, suffixes):
    files = [str(word_models / f"{name}.{suffix}") for name, suffix in zip(names, suffixes)]
    out = ["-o", f"{tmp_path}/m.arpa"]
    assert not cli.main(["lm", "merge", *files, "--weights", "0.7,0.3", *out])
    merged = read_words(tmp_path / "m.arpa")
    made = [read_words(word_models / f"{name}.arpa") for name in names]
    assert set(merged) == set(made[0]) | set(made[1])
    words = sorted({word for (*_, word) in merged})
    for *history, word in merged:
        p = [of_words(grams, tuple(history), word) for grams in made]
        if word != "<s>":
            assert merged[(*history, word)][0] == pytest.approx(0.7 * p[0] + 0.3 * p[1], rel=1e-5), (history, word)
    for length in range(3):
        for history in product([word for word in words if word != "</s>"], repeat=length):
            assert sum(of_words(merged, history, word) for word in words) == pytest.approx(1, abs=1e-5)
    scorer = kenlm.Model(str(tmp_path / "m.arpa"))
    for sentence in (one for one in SENTENCES if {*words}.issuperset(one.split())):
        text = ("<s>", *sentence.split(), "</s>")
        expected = [of_words(merged, text[max(0, at - 2) : at], text[at]) for at in range(1, len(text))]
        assert scorer.score(sentence) == pytest.approx(sum(map(math.log10, expected)), abs=1e-4)


def test_tuning_models_of_other_words(word_models, tmp_path, capsys):
    """The text of one of them, which gets nearly all the weight; its words are those of all."""
    call = f"lm merge {word_models}/a.ngram {word_models}/b.arpa --tune {word_models}/b.txt -o {tmp_path}/m.ngram"
    report = support_cli.figures(capsys, call)
    assert report["merged"][1]["weight"] > 0.9 and report["heldout"]["merged"] < report["heldout"]["equal"]
    model = NGram.open(tmp_path / "m.ngram")
    assert model.words is not None and set(model.words) == {"<unk>", "</s>", *"abcxy"}


def test_models_without_weight_add_no_words(word_models, tmp_path):
    a, b = (NGram.open(word_models / f"{name}.ngram") for name in "ab")
    assert merge_models([a, b], [1.0, 0.0]).words == a.words


def test_words_that_cannot_be_numbered_alike_are_refused(word_models):
    """Words of a tokenizer, whose ids count; words that one of a product's factors lacks."""
    a, b, c = (NGram.open(word_models / f"{name}.ngram") for name in "abc")
    of_tokenizer = replace(b, metadata={**b.metadata, "tokenizer": "x"})
    refuses(ValueError, lambda: merge_models([a, of_tokenizer]), "model 2", "words")
    refuses(ValueError, lambda: merge_models([a, b], Mixture.equal(2, log_linear=True)), "log-linear", "'x'")
    merged = merge_models([a, c], Mixture.equal(2, log_linear=True))
    assert merged.words == a.words
    np.testing.assert_allclose(np.exp(-merged.distribution(0)).sum(), 1, rtol=1e-6)


def nats(made, weights, text, log_linear) -> float:
    slow = [from_tables(model.to_tables()) for model in made]
    return -sum(math.log(mixed(slow, weights, log_linear, text[:at])[token]) for at, token in enumerate(text))


@settings(max_examples=15)
@given(st.integers(0, 10**6), st.booleans())
def test_no_other_weights_are_better(seed, log_linear):
    made = [NGram.from_tables(own) for own in models(seed, (1 + seed % 3, 1 + (seed + 1) % 3))]
    text = random_text(seed + 5, V, 60)
    found = tune_mixture(made, [text[:20], text[20:]], log_linear=log_linear)
    assert found.nats == pytest.approx(nats(made, found.mixture.weights, text, log_linear), rel=1e-4)
    assert found.equal == pytest.approx(nats(made, (0.5, 0.5), text, log_linear), rel=1e-4)
    assert found.alone == pytest.approx([nats(made, own, text, False) for own in ((1, 0), (0, 1))], rel=1e-4)
    for share in np.linspace(0, 1, 6):
        for power in (1,) if not log_linear else (0.5, 1, 1.5):
            other = (power * share, power * (1 - share))
            assert nats(made, other, text, log_linear) > found.nats - 1e-3 * len(text)


LETTERS = NGram.from_tables(models(1, (2,))[0], words=tuple("abcdef"), metadata={"end_of_text": 0, "tokenizer": "x"})


def merged_with(**changes):
    return merge_models([LETTERS, replace(LETTERS, **changes)], Mixture.equal(2))


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: merged_with(metadata={"tokenizer": "y"}), ["model 2", "y", "1"]),
        (lambda: merged_with(metadata={"end_of_text": 3}), ["model 2", "end_of_text", "0", "1", "3"]),
        (lambda: merged_with(metadata={"bos": 3}), ["model 2", "None", "1", "3"]),
        (lambda: merged_with(words=tuple("abxdef")), ["model 2", "'c'", "1", "'x'"]),
        (lambda: check_alike([LETTERS, NGram.uniform(7)], ["a.ngram", "b.ngram"]), ["b.ngram", "6", "a.ngram", "7"]),
        (lambda: check_alike([]), ["models"]),
        (lambda: Mixture(weights=(0.5, 0.4)), ["weights", "1", "0.5", "0.4", "0.9"]),
        (lambda: Mixture(weights=(1.5, -0.5)), ["weights", "1.5", "-0.5"]),
        (lambda: Mixture(weights=(0.0, 0.0), log_linear=True), ["0"]),
        (lambda: merge_models([LETTERS, LETTERS], (1.0,)), ["weights", "2", "1"]),
        (lambda: Mixture(weights=()), ["none"]),
        (lambda: tune_mixture([LETTERS, LETTERS], []), ["weights"]),
        (lambda: tune_mixture([LETTERS, LETTERS], [[]]), ["weights"]),
    ],
)
def test_what_does_not_mix_is_named(call, message):
    refuses(ValueError, call, *message)
