"""Rescored word lattices: weights, words, ends, an old model taken out; against enumeration and KenLM's rules."""

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import oracle
from support.refusals import refuses
from support.word_lattices import VOCAB, arc_paths, spelt, word_lattices

from rescore.decode.rescoring.rescorer import LatticeRescorer, Weights
from rescore.lattice.word_lattice import WordLattice
from rescore.lm.model.arpa import read_arpa

NEW = """\\data\\
ngram 1=6
ngram 2=5

\\1-grams:
-1.0\t<unk>
-99\t<s>\t-0.25
-0.75\t</s>
-0.5\tcat\t-0.125
-0.5\tsat
-1.25\tthe\t-0.5

\\2-grams:
-0.25\t<s> the
-0.25\tthe cat
-0.125\tcat sat
-0.5\tsat </s>
-2\tcat </s>

\\end\\
"""
OLD = NEW.replace("-0.25\tthe cat", "-1.5\tthe cat").replace("cat\t-0.125", "cat\t-0.25")


def model(folder, text, name="lm.arpa"):
    (folder / name).write_text(text)
    return read_arpa(folder / name)


def sentences(*strings):
    """A lattice of whole strings, with costs (acoustic, language)."""
    words = sorted({word for text, *_ in strings for word in text.split()})
    source, tokens, targets, costs, final, states = [], [], [], [], {}, 1
    for text, *pair in strings:
        at = 0
        for word in text.split():
            source.append(at), tokens.append(words.index(word)), targets.append(states), costs.append((0, 0))
            at, states = states, states + 1
        final[at] = tuple(pair)
    return WordLattice.from_arcs(source, tokens, targets, np.reshape(costs, (-1, 2)), final=final, words=tuple(words))


def ln(*log10):
    return -math.log(10) * sum(log10)


@pytest.fixture
def lattice():
    return sentences(("the cat sat", 6.0, 2.0), ("the cat", 4.0, 1.0), ("the dog sat", 5.0, 3.0))


def test_sentences_begin_and_end_and_unknown_words_are_unk(tmp_path, lattice):
    found = LatticeRescorer(model(tmp_path, NEW)).paths(lattice)
    expected = {
        "the cat sat": ln(-0.25, -0.25, -0.125, -0.5),
        "the cat": ln(-0.25, -0.25, -2),
        "the dog sat": ln(-0.25, -0.5 - 1.0, -0.5, -0.5),
    }
    acoustic = {"the cat sat": 6.0, "the cat": 4.0, "the dog sat": 5.0}
    total = {text: acoustic[text] + cost for text, cost in expected.items()}
    assert [" ".join(words) for words in found.words] == sorted(total, key=total.get)
    for words, cost, of_model in zip(found.words, found.cost.tolist(), found.models[:, 0].tolist()):
        text = " ".join(words)
        assert cost == pytest.approx(total[text], abs=1e-5) and of_model == pytest.approx(expected[text], abs=1e-5)


def test_an_old_model_is_taken_out_of_the_language_costs(tmp_path, lattice):
    new, old = model(tmp_path, NEW), model(tmp_path, OLD, "old.arpa")
    weights = Weights(acoustic=0.5, language=1.0, word_penalty=0.25)
    found = LatticeRescorer([new, old], alpha=[0.75, -1.0], weights=weights).paths(lattice)
    for row in range(len(found)):
        parts = 0.5 * found.costs[row, 0] + found.costs[row, 1] + 0.25 * len(found.words[row])
        assert found.cost[row] == pytest.approx(parts + 0.75 * found.models[row, 0] - found.models[row, 1], abs=1e-4)
    differs = dict(zip(map(" ".join, found.words), (found.models[:, 1] - found.models[:, 0]).tolist()))
    assert differs["the cat sat"] == pytest.approx(ln(-1.25), abs=1e-5)
    assert differs["the cat"] == pytest.approx(ln(-1.25), abs=1e-5)
    assert differs["the dog sat"] == pytest.approx(0.0, abs=1e-5)


def test_fragments_and_no_model(tmp_path, lattice):
    found = LatticeRescorer(model(tmp_path, NEW), ends=False).paths(lattice, 1)
    assert found.words == [["the", "cat"]]
    assert found.models[0, 0] == pytest.approx(ln(-1.25, -0.25), abs=1e-5)
    found = LatticeRescorer(weights=Weights(language=2.0)).paths(lattice, 2)
    assert [" ".join(words) for words in found.words] == ["the cat", "the cat sat"] and found.models.shape == (2, 0)
    assert found.cost.tolist() == [6.0, 10.0]


def test_what_the_maker_used_is_the_default(lattice):
    own = dataclasses.replace(lattice, lm_scale=4.0, word_penalty=2.0)
    assert LatticeRescorer().paths(own, 1).cost.tolist() == [4.0 / 4 + 2 * 2 / 4]


@settings(max_examples=100)
@given(st.lists(word_lattices(), min_size=1, max_size=3), oracle.models(VOCAB), st.integers(1, 40), st.integers(1, 2))
def test_ids_against_enumeration(lattices, lm, p, threads):
    rescorer = LatticeRescorer(lm.ngram(), alpha=0.5, weights=Weights(language=0.25), threads=threads)
    for lattice, found in zip(lattices, rescorer.paths_of(lattices, p)):
        least = {}
        for path in arc_paths(lattice):
            string, context, cost = spelt(lattice, path), (), 0.0
            for token in string:
                cost += 0.5 * lm.cost(lm.context(context), token)
                context = (*context, token)
            cost += float(lattice.costs[list(path)].sum(axis=0) @ [1.0, 0.25])
            least[string] = min(cost, least.get(string, cost))
        assert found.cost.tolist() == pytest.approx(sorted(least.values())[:p], abs=1e-4)
        assert found.cost.tolist() == pytest.approx([least[tuple(one.tolist())] for one in found.tokens], abs=1e-4)
        parts = found.costs @ [1, 0.25] + 0.5 * found.models[:, 0]
        assert parts.tolist() == pytest.approx(found.cost.tolist(), abs=1e-4)


def test_what_does_not_fit_is_refused(tmp_path, lattice):
    ids = oracle.unigrams([1.0, 2.0]).ngram()
    refuses(ValueError, lambda: LatticeRescorer(ids).paths(lattice), "models[0]", "token ids")
    two = WordLattice.from_arcs([0], [5], [1], [(0, 0)], final={1: (0, 0)})
    refuses(ValueError, lambda: LatticeRescorer(ids).paths(two), "below 2", "5")
    refuses(ValueError, lambda: LatticeRescorer(ids, alpha=2e3), 1000)
    refuses(ValueError, lambda: LatticeRescorer(ids, alpha=[1, 2]), "alpha", "[2]")
    refuses(TypeError, lambda: LatticeRescorer("lm.ngram"), "models", "str")
    refuses(ValueError, lambda: Weights(acoustic=math.nan), "nan")
    long = WordLattice.from_arcs([0, 0], [0, 1], [1, 1], [(6e5, 0), (6e5, 1)], final={1: (0, 0)}, name="long")
    refuses(ValueError, lambda: LatticeRescorer().paths(long), "long", 524288, 600000)
    small = LatticeRescorer(weights=Weights(acoustic=0.5, language=1.0))
    assert small.paths(long).cost.tolist() == [3e5, 3e5 + 1]
